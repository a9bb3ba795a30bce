// A D1 database and nothing else: POST {"statements": [{"sql", "values"}]} runs one batch and answers what D1 says of it.
// `node d1.mjs <state folder>` prints its address; it ends when its standard input closes.
import { Log, LogLevel, Miniflare } from "miniflare";
import { shared } from "../../local/node/options.mjs";

const script = `
export default {
  async fetch(request, env) {
    if (request.method !== "POST") return new Response("{}");
    const { statements } = await request.json();
    try {
      const started = Date.now();
      const results = await env.DB.batch(statements.map(({ sql, values }) => env.DB.prepare(sql).bind(...values)));
      const answers = results.map(({ results: rows, meta }) => ({ rows, meta }));
      return Response.json({ answers, milliseconds: Date.now() - started });
    } catch (error) {
      return new Response(String(error), { status: 500 });
    }
  },
};`;

const miniflare = new Miniflare({
  ...shared(new Log(LogLevel.ERROR), () => {}),
  port: 0,
  resourcePersistencePath: process.argv[2],
  workers: [
    {
      config: {
        name: "designs",
        compatibilityDate: "2026-11-01",
        manifest: {
          mainModule: "main.mjs",
          modulesRoot: "/",
          modules: { "main.mjs": { type: "esm", contents: script } },
        },
        env: { DB: { type: "d1", id: "designs" } },
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
