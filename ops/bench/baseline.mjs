// The bare cost of this machine: a plain JavaScript Worker that does one D1 insert, on the same workerd and Miniflare.
// `node baseline.mjs <state folder>` prints its address; it ends when its standard input closes.
import { serve } from "./d1_worker.mjs";

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

await serve("baseline", script);
