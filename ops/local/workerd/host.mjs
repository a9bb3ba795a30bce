// The way out to the Node process that runs this workerd, and the Worker's bindings without our own among them.
import * as cloudflareWorkers from "cloudflare:workers";

const { EDGE_HOST, EDGE_RUN, EDGE_CACHE, EDGE_PYODIDE, EDGE_EVAL, ...own } = cloudflareWorkers.env;

/** The bindings that wrangler.toml declares, and no others. */
export const env = own;

/** WebAssembly may not be compiled from bytes in workerd; this binding can. */
export const compileWasm = (bytes) => EDGE_EVAL.newWasmModule(bytes);

/** Tells the Node process something. Never fails: nobody can act on a lost report. */
export function report(event) {
  const sent = EDGE_HOST.fetch("http://host/event", { method: "POST", body: JSON.stringify(event) }).catch(() => {});
  // Outside an event there is nothing to keep alive, and waitUntil says so by throwing.
  try {
    cloudflareWorkers.waitUntil(sent);
  } catch {
    return;
  }
}

/** Hands compiled bytecode to the Node process, which keeps it for the next start. */
export function keepBytecode(pack) {
  return EDGE_HOST.fetch("http://host/bytecode", { method: "POST", body: pack }).then((r) => r.arrayBuffer());
}

async function read(service, name) {
  const response = await service.fetch(`http://disk/${name}`);
  if (!response.ok) throw new Error(`the local edge cannot read ${name} (${response.status})`);
  return new Uint8Array(await response.arrayBuffer());
}

export const readRun = (name) => read(EDGE_RUN, name);
export const readCache = (name) => read(EDGE_CACHE, name);
export const readPyodide = (name) => read(EDGE_PYODIDE, name);
