// Runs the local edge: `node serve.mjs <plan.json>`.
//
// Standard output carries one JSON event a line for the Python side; standard error is what the terminal shows. Standard
// input carries commands, one JSON object a line; when it closes, whoever started this process is gone, and so is this.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { Log, LogLevel, Miniflare } from "miniflare";
import { Bundle } from "./bundle.mjs";
import { startCrons } from "./crons.mjs";
import { tieWorkerd } from "./lifeline.mjs";
import { PYODIDE, shared, workers } from "./options.mjs";

const plan = JSON.parse(readFileSync(process.argv[2], "utf8"));
const pyodideVersion = JSON.parse(readFileSync(`${PYODIDE}/package.json`, "utf8")).version;
const bundle = new Bundle(plan.bundle, plan.bytecodeFolder, pyodideVersion);

const tell = (event) => process.stdout.write(`${JSON.stringify(event)}\n`);
const show = (text) => process.stderr.write(`${text}\n`);

// What Pyodide says of its own death, but for the Python stack, which is kept.
const NOISE = /^\s+at .*(wasm:|pyodide\.asm\.mjs)|pyodide_fatal_error|^}$|^Pyodide has suffered|^The cause of the fatal|^Aborted\(|^  File "\/session\/edge\//;

/** Shows what the Worker wrote, a traceback as Python prints it, with paths as in the bundle. */
function showWorker({ message }) {
  const lines = message.split("\n").filter((line) => !NOISE.test(line));
  if (lines.length > 0) show(lines.join("\n").replaceAll("/session/metadata/", ""));
}

class QuietLog extends Log {
  constructor() {
    super(LogLevel.ERROR);
  }
  log(message) {
    show(message);
  }
}

// The reports of one isolate's start; the first tells whether the Worker can be imported at all.
const { promise: started, resolve: settleStart } = Promise.withResolvers();

async function hostService(request) {
  const { pathname } = new URL(request.url);
  if (pathname === "/bytecode") {
    bundle.keep(new Uint8Array(await request.arrayBuffer()));
  } else {
    const event = await request.json();
    tell(event);
    if (event.event === "boot" || event.event === "boot-failed") settleStart(event);
    if (event.event === "interpreter-died") show(`moorage: the Python interpreter died (${event.message}); the next request starts a new one`);
  }
  return new Response(null, { status: 204 });
}

let stopCrons = () => {};
let miniflare;

async function fire(cron, date) {
  const { outcome } = await (await miniflare.getWorker(plan.name)).scheduled({ cron, scheduledTime: date });
  return outcome;
}

async function stop() {
  stopCrons();
  await miniflare?.dispose();
  process.exit(0);
}

async function command(line) {
  const { id, cron } = JSON.parse(line);
  const fired = cron === null ? plan.crons : [cron];
  try {
    const outcomes = await Promise.all(fired.map((expression) => fire(expression, new Date())));
    tell({ event: "answer", id, outcomes });
  } catch (error) {
    tell({ event: "answer", id, error: String(error?.message ?? error) });
  }
}

createInterface({ input: process.stdin }).on("line", command).on("close", stop);
process.on("SIGTERM", stop);
process.on("SIGINT", () => {}); // the Python side got it too, and says when to stop

try {
  tieWorkerd();
  bundle.writePack(`${plan.runFolder}/bundle.pack`);
  miniflare = new Miniflare({
    ...shared(new QuietLog(), showWorker),
    port: plan.port,
    resourcePersistencePath: plan.state,
    unsafeHandleRuntimeRestart: () => {
      show("moorage: workerd died and was started again");
      tell({ event: "restarted" });
    },
    workers: workers(plan, hostService),
  });
  const url = await miniflare.ready;
  // The first event of an isolate starts its interpreter; nobody's request should have to wait for that.
  const first = miniflare.dispatchFetch(new URL("/health", url)).then((response) => response.arrayBuffer());
  const outcome = await Promise.race([started, first.then(() => started)]);
  if (outcome.event === "boot") {
    await first;
    stopCrons = startCrons(plan.crons, (cron, date) => fire(cron, date).catch((error) => show(`moorage: cron ${cron}: ${error.message}`)));
    tell({ event: "listening", url: url.origin });
  }
} catch (error) {
  tell({ event: "failed", code: error?.code ?? "", message: String(error?.message ?? error) });
}
