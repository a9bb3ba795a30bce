// Makes the memory snapshot that later starts begin from: an interpreter with common parts of the standard library
// already imported. It holds nothing of the Worker, so it is made once for a version of Pyodide.
import { readPyodide } from "./host.mjs";
import { load } from "./pyodide_host.mjs";
import prelude from "./prelude.py";

export default {
  async fetch() {
    const pyodide = await load(await readPyodide("python_stdlib.zip"), { _makeSnapshot: true });
    pyodide.runPython(prelude);
    return new Response(pyodide.makeMemorySnapshot());
  },
};
