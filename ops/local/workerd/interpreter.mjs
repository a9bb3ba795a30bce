// The Python interpreter of this isolate: started by the first event, replaced after a fatal error.
//
// workerd forbids I/O, timers and WebAssembly compilation at module level, so the interpreter starts lazily inside the
// first event. Everything that waits for it waits for one promise. A fatal error (an abort, a JavaScript stack overflow
// inside the interpreter) leaves CPython's memory in an unknown state: that interpreter is never used again, the calls
// that were inside it are answered with an error, and the next event starts a fresh one.
import { boot } from "./boot.mjs";
import { report } from "./host.mjs";

let life = null;

/** The running interpreter, starting one if there is none. Rejects if the Worker's own code cannot be imported. */
export function interpreter() {
  if (life === null) {
    const mine = { running: new Set(), ready: null };
    life = mine;
    mine.ready = boot((cause) => bury(mine, cause)).then(
      (python) => {
        mine.python = python;
        python.life = mine;
        return python;
      },
      (error) => {
        // Importing again would fail again, so the failure stays: as on Cloudflare, such a Worker never starts.
        report({ event: "boot-failed", message: explain(error) });
        throw error;
      },
    );
  }
  return life.ready;
}

/** Runs `work(python)`; rejects when the interpreter dies under it, which would otherwise never answer. */
export async function inside(work) {
  const python = await interpreter();
  const { running } = python.life;
  let died;
  const death = new Promise((_, reject) => {
    died = reject;
  });
  running.add(died);
  try {
    return await Promise.race([work(python), death]);
  } finally {
    running.delete(died);
  }
}

function bury(mine, cause) {
  if (life === mine) life = null;
  const message = explain(cause);
  report({ event: "interpreter-died", message });
  const error = new Error(`the Python interpreter died: ${message}`);
  for (const reject of mine.running) reject(error);
  mine.running.clear();
}

function explain(error) {
  const text = String(error?.message ?? error);
  return text === "" ? String(error?.name ?? "unknown error") : text;
}
