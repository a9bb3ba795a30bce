// Cloudflare Workflows on this machine, on the same workerd and Miniflare: two workflows with the steps of the bodies in
// ops/bench/bodies/. `node workflows.mjs <state folder>` prints its address; it ends when its standard input closes.
import { Log, LogLevel, Miniflare } from "miniflare";
import { shared } from "../local/node/options.mjs";

const script = `
import { WorkflowEntrypoint } from "cloudflare:workers";

export class Steps extends WorkflowEntrypoint {
  async run(event, step) {
    let sum = 0;
    for (let n = 0; n < event.payload.steps; n++) sum += await step.do("step " + n, async () => n);
    return { sum };
  }
}

export class Signal extends WorkflowEntrypoint {
  async run(event, step) {
    const told = await step.waitForEvent("signal", { type: "go", timeout: "1 hour" });
    return { told: told.payload };
  }
}

const over = ["complete", "errored", "terminated"];

// The binding tells no end: the fastest way is to ask without a pause.
async function ended(instance) {
  let found;
  do found = await instance.status();
  while (!over.includes(found.status));
  return found;
}

export default {
  async fetch(request, env) {
    const { pathname, searchParams } = new URL(request.url);
    const [, workflow, id, signal] = pathname.split("/");
    const wait = searchParams.has("wait");
    const flow = workflow === "steps" ? env.STEPS : env.SIGNAL;
    if (request.method === "POST" && !id) {
      const instance = await flow.create({ params: await request.json() });
      if (wait) return Response.json({ id: instance.id, ...(await ended(instance)) });
      return Response.json({ id: instance.id }, { status: 202 });
    }
    const instance = await flow.get(id);
    if (request.method === "POST" && signal) {
      await instance.sendEvent({ type: "go", payload: await request.json() });
      return Response.json({});
    }
    return Response.json(wait ? await ended(instance) : await instance.status());
  },
};`;

const workflow = (name, exportName) => ({ type: "workflow", name, worker: "workflows", exportName });

const miniflare = new Miniflare({
  ...shared(new Log(LogLevel.ERROR), () => {}),
  port: 0,
  resourcePersistencePath: process.argv[2],
  workers: [
    {
      config: {
        name: "workflows",
        compatibilityDate: "2026-11-01",
        manifest: {
          mainModule: "main.mjs",
          modulesRoot: "/",
          modules: { "main.mjs": { type: "esm", contents: script } },
        },
        env: { STEPS: workflow("steps", "Steps"), SIGNAL: workflow("signal", "Signal") },
        exports: { Steps: { type: "workflow", name: "steps" }, Signal: { type: "workflow", name: "signal" } },
      },
    },
  ],
});
const url = await miniflare.ready;
process.stdout.write(`${url.origin}\n`);
process.stdin.resume();
process.stdin.on("close", async () => {
  await miniflare.dispose();
  process.exit(0);
});
