// What Pyodide expects of its surroundings and workerd does not give.
import "./not_node.mjs";
import createPyodideModule from "./pyodide/pyodide.asm.mjs";
import { loadPyodide } from "./pyodide/pyodide.mjs";
import wasm from "./pyodide/pyodide.asm.wasm";
import { compileWasm } from "./host.mjs";

const HOME = "http://pyodide.invalid/";

// No file of the lock is ever installed: packages come from the bundle.
const EMPTY_LOCK = (version) => ({
  info: { arch: "wasm32", platform: "", version: "0.0.0", python: "3.14", abi_version: "2026_0" },
  packages: {},
  version,
});

const compiled = new WeakMap();
function compile(bytes) {
  if (bytes instanceof WebAssembly.Module) return bytes;
  const known = compiled.get(bytes);
  if (known !== undefined) return known;
  const module = compileWasm(bytes);
  compiled.set(bytes, module);
  return module;
}

/** Makes `new WebAssembly.Module(bytes)` and its relatives work: Pyodide builds trampolines and loads .so files so. */
function patchWebAssembly() {
  if (WebAssembly.edge) return;
  const RealModule = WebAssembly.Module;
  const RealInstance = WebAssembly.Instance;
  function Module(bytes) {
    return compile(bytes);
  }
  Module.prototype = RealModule.prototype;
  for (const name of ["customSections", "exports", "imports"]) Module[name] = RealModule[name];
  WebAssembly.Module = Module;
  WebAssembly.compile = async (bytes) => compile(bytes);
  WebAssembly.instantiate = async (source, imports) => {
    const module = compile(source);
    const instance = new RealInstance(module, imports);
    return module === source ? instance : { module, instance };
  };
  WebAssembly.instantiateStreaming = async (source, imports) => ({
    module: wasm,
    instance: new RealInstance(wasm, imports),
  });
  WebAssembly.edge = true;
}

/**
 * Loads an interpreter. `stdlib` is python_stdlib.zip, `options` go to loadPyodide.
 *
 * While it loads, `fetch` answers Pyodide's own files; MessageChannel is hidden, because messages of a shared channel
 * arrive in the request that opened it, while timers stay with the request that set them; capture listeners, which
 * workerd refuses, are ignored.
 */
export async function load(stdlib, options) {
  patchWebAssembly();
  const real = {
    fetch: globalThis.fetch,
    MessageChannel: globalThis.MessageChannel,
    addEventListener: globalThis.addEventListener,
  };
  globalThis.location ??= HOME;
  globalThis.MessageChannel = undefined;
  globalThis.addEventListener = (type, listener, capture) =>
    capture === true ? undefined : real.addEventListener.call(globalThis, type, listener, capture);
  globalThis.fetch = async (resource, init) => {
    const url = String(resource?.url ?? resource);
    if (!url.startsWith(HOME)) return real.fetch.call(globalThis, resource, init);
    return url.endsWith(".wasm") ? {} : new Response(stdlib);
  };
  try {
    return await loadPyodide({
      createPyodideModule: async (settings) => {
        const module = await createPyodideModule(settings);
        // Pyodide restores a snapshot into the memory the module begins with, even one that was larger when taken.
        module.growMemory(options._loadSnapshot?.length ?? 0);
        return module;
      },
      indexURL: HOME,
      packageBaseUrl: HOME,
      lockFileContents: EMPTY_LOCK("0"),
      ...options,
    });
  } finally {
    Object.assign(globalThis, real);
  }
}
