// The bare cost of this machine: a plain JavaScript Worker that does one D1 insert, on the same workerd and Miniflare.
// `node baseline.mjs <state folder>` prints its address; it ends when its standard input closes.
import { Log, LogLevel, Miniflare } from "miniflare";
import { shared } from "../local/node/options.mjs";

const script = `
export default {
  async fetch(request, env) {
    if (request.method === "PUT") {
      await env.DB.exec("CREATE TABLE IF NOT EXISTS bare (id INTEGER PRIMARY KEY, value TEXT NOT NULL)");
    } else {
      await env.DB.prepare("INSERT INTO bare (value) VALUES (?1)").bind("x").run();
    }
    return new Response("{}", { headers: { "content-type": "application/json" } });
  },
};`;

const miniflare = new Miniflare({
  ...shared(new Log(LogLevel.ERROR), () => {}),
  port: 0,
  resourcePersistencePath: process.argv[2],
  workers: [
    {
      config: {
        name: "baseline",
        compatibilityDate: "2026-11-01",
        manifest: {
          mainModule: "main.mjs",
          modulesRoot: "/",
          modules: { "main.mjs": { type: "esm", contents: script } },
        },
        env: { DB: { type: "d1", id: "baseline" } },
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
