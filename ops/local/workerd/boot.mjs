// Brings up an interpreter with the bundle in /session/metadata and imports the Worker's entry module.
import { classes, entryModule, snapshotName } from "./plan.mjs";
import { addMethods } from "./entrypoints.mjs";
import { env, keepBytecode, readCache, readPyodide, readRun, report } from "./host.mjs";
import { files, makePack } from "./pack.mjs";
import { load } from "./pyodide_host.mjs";
import { allowEntropy, atStartUp, entropyAllowed, leftoversSince, standIns } from "./startup.mjs";
import { compatFlags, entrypointHelper } from "./sdk.mjs";

const CODE = "/session/metadata";
const BYTECODE = "/session/bytecode";
const READ_ONLY_FILE = 0o444;
const READ_ONLY_FOLDER = 0o555;

function stopwatch() {
  const phases = {};
  let last = Date.now();
  const started = last;
  return {
    phases,
    lap(name) {
      const now = Date.now();
      phases[name] = now - last;
      last = now;
    },
    total: () => Date.now() - started,
  };
}

/** Starts an interpreter; `onFatal(cause)` is called at most once, when it has died. */
export async function boot(onFatal) {
  const watch = stopwatch();
  const [stdlib, snapshot, pack] = await Promise.all([
    readPyodide("python_stdlib.zip"),
    readCache(snapshotName),
    readRun("bundle.pack"),
  ]);
  watch.lap("read");
  const pyodide = await load(stdlib, {
    _loadSnapshot: snapshot,
    stdout: (line) => console.log(line),
    stderr: (line) => console.error(line),
  });
  pyodide._api.on_fatal = onFatal;
  watch.lap("interpreter");
  const paths = unpack(pyodide.FS, pack);
  watch.lap("unpack");
  const bridge = importEntry(pyodide);
  watch.lap("import");
  forgetFiles(pyodide.FS);
  await saveBytecode(pyodide.FS, paths);
  watch.lap("finish");
  report({ event: "boot", ms: watch.total(), phases: watch.phases });
  return { bridge };
}

/** Writes the files of a pack, the Worker's code among them read-only, and returns their paths. */
function unpack(FS, pack) {
  const folders = new Set();
  const paths = new Set();
  for (const [path, bytes] of files(pack)) {
    const folder = path.slice(0, path.lastIndexOf("/"));
    if (!folders.has(folder)) FS.mkdirTree(folder);
    folders.add(folder);
    FS.writeFile(path, bytes, { canOwn: true });
    FS.chmod(path, READ_ONLY_FILE);
    paths.add(path);
  }
  for (const folder of folders) if (folder.startsWith(CODE)) FS.chmod(folder, READ_ONLY_FOLDER);
  return paths;
}

/** Removes what the Worker wrote while it was imported: a memory snapshot holds no files. */
function forgetFiles(FS) {
  for (const path of walk(FS, "/tmp")) FS.unlink(path);
}

/** The files below `folder`, at any depth. */
function walk(FS, folder) {
  const names = FS.readdir(folder).filter((name) => name !== "." && name !== "..");
  return names.flatMap((name) => {
    const path = `${folder}/${name}`;
    return FS.isDir(FS.stat(path).mode) ? walk(FS, path) : [path];
  });
}

/** Imports the entry module under the rules of start-up and returns the Python side of the bridge. */
function importEntry(pyodide) {
  pyodide.registerJsModule("_pyodide_entrypoint_helper", entrypointHelper);
  pyodide.registerJsModule("_cloudflare_compat_flags", compatFlags);
  const edgeHost = { allowEntropy, entropyAllowed };
  pyodide.registerJsModule("_edge_host", edgeHost);
  const bridge = pyodide.pyimport("_edge.start");
  const platform = [entrypointHelper, compatFlags, edgeHost, env, standIns];
  const known = [...platform, ...platform.flatMap((module) => Object.values(module))];
  const leftovers = leftoversSince(pyodide, known);
  const problem = atStartUp(() => bridge.import_entry(entryModule));
  if (problem !== undefined) throw new Error(problem);
  if (leftovers().length > 0) bridge.forget_garbage();
  const left = new Set(leftovers());
  if (left.size > 0) throw new Error(bridge.describe_leftover((object) => left.has(object)));
  for (const { name } of classes) addMethods(name, bridge.public_methods(name).toJs());
  bridge.begin_requests();
  return bridge;
}

/** Gives the bytecode that this start had to compile to the Node process, so that the next start need not. */
async function saveBytecode(FS, known) {
  if (!FS.analyzePath(BYTECODE).exists) return;
  const fresh = walk(FS, BYTECODE).filter((path) => !known.has(path));
  if (fresh.length === 0) return;
  await keepBytecode(makePack(fresh.map((path) => [path.slice(BYTECODE.length), FS.readFile(path)])));
}
