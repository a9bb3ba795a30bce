// What Miniflare is told: the Worker as wrangler.toml declares it, run by the modules in ../workerd.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const WORKERD = fileURLToPath(new URL("../workerd/", import.meta.url));
const INSIDE = fileURLToPath(new URL("../inside/", import.meta.url));
export const PYODIDE = dirname(createRequire(import.meta.url).resolve("pyodide/package.json"));

const OUTBOUND = "outbound";

const text = (path) => readFileSync(path, "utf8");
const esm = (contents) => ({ type: "esm", contents });

/** The modules every isolate needs, main module aside. */
export function baseModules(names) {
  const modules = {
    "pyodide/pyodide.mjs": esm(text(join(PYODIDE, "pyodide.mjs"))),
    "pyodide/pyodide.asm.mjs": esm(text(join(PYODIDE, "pyodide.asm.mjs"))),
    "pyodide/pyodide.asm.wasm": { type: "wasm", contents: new Uint8Array(readFileSync(join(PYODIDE, "pyodide.asm.wasm"))) },
  };
  for (const name of names) modules[name] = esm(text(join(WORKERD, name)));
  return modules;
}

export const preludeModule = () => ({ type: "text", contents: text(join(INSIDE, "prelude.py")) });

export const disk = (path) => ({ type: "disk", path, writable: false });

/** Options of Miniflare itself: quiet, offline, on this machine alone. */
export const shared = (log, handleStructuredLogs) => ({
  host: "127.0.0.1",
  cf: false,
  log,
  logRequests: false,
  handleStructuredLogs,
  enableDevRegistry: false,
  unsafeLocalExplorer: false,
  unsafeObservability: false,
  telemetry: { enabled: false },
});

function mainModule({ classes }) {
  const lines = ['import { durableObject, workerEntrypoint } from "./entrypoints.mjs";'];
  for (const { name, kind, handlers } of classes) {
    const make = `${kind === "durable-object" ? "durableObject" : "workerEntrypoint"}("${name}", ${JSON.stringify(handlers)})`;
    lines.push(name === "Default" ? `export default ${make};` : `export const ${name} = ${make};`);
  }
  return lines.join("\n");
}

function bindings(plan) {
  const env = {};
  for (const [name, value] of Object.entries(plan.vars)) {
    env[name] = typeof value === "string" ? { type: "text", value } : { type: "json", value };
  }
  for (const { binding, id } of plan.d1) env[binding] = { type: "d1", id };
  for (const { binding, name } of plan.r2) env[binding] = { type: "r2", name };
  for (const { binding, className } of plan.durableObjects) {
    env[binding] = { type: "durable-object", worker: plan.name, exportName: className };
  }
  return env;
}

/** The Workers of `plan`, as made by ops/local/edge.py: its own, and where it may not reach this machine what it sends by. */
export function workers(plan, hostService) {
  const own = worker(plan, hostService);
  if (plan.inside) return [own];
  own.dev.outboundService = { type: "worker", worker: OUTBOUND };
  const env = {
    PUBLIC: { type: "network", allow: ["public"], deny: [], tlsOptions: { trustBrowserCas: true } },
    TRUSTED: { type: "json", value: plan.trusted.map((url) => URL.parse(url)?.origin ?? null) },
  };
  const manifest = { mainModule: "outbound.mjs", modulesRoot: WORKERD, modules: { "outbound.mjs": esm(text(join(WORKERD, "outbound.mjs"))) } };
  return [own, { config: { name: OUTBOUND, compatibilityDate: plan.compatibilityDate, manifest, env, exports: {} } }];
}

/** The Worker of `plan`. */
function worker(plan, hostService) {
  const exports = {};
  for (const { className } of plan.durableObjects) exports[className] = { type: "durable-object", storage: "sqlite" };
  const names = ["entrypoints.mjs", "interpreter.mjs", "boot.mjs", "host.mjs", "not_node.mjs", "pack.mjs", "pyodide_host.mjs", "sdk.mjs", "startup.mjs"];
  const planModule = ["classes", "entryModule", "snapshotName"].map((key) => `export const ${key} = ${JSON.stringify(plan[key])};`);
  return {
    config: {
      name: plan.name,
      compatibilityDate: plan.compatibilityDate,
      compatibilityFlags: plan.compatibilityFlags,
      manifest: {
        mainModule: "main.mjs",
        modulesRoot: WORKERD,
        modules: { "main.mjs": esm(mainModule(plan)), "plan.mjs": esm(planModule.join("\n")), ...baseModules(names) },
      },
      env: {
        ...bindings(plan),
        EDGE_HOST: { type: "fetcher", handler: hostService },
        EDGE_RUN: disk(plan.runFolder),
        EDGE_CACHE: disk(plan.cacheFolder),
        EDGE_PYODIDE: disk(PYODIDE),
      },
      exports,
    },
    dev: { unsafeEvalBinding: "EDGE_EVAL" },
  };
}
