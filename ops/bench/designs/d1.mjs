// A D1 database and nothing else: POST {"statements": [{"sql", "values"}]} runs one batch and answers what D1 says of it.
// `node d1.mjs <state folder>` prints its address; it ends when its standard input closes.
import { serve } from "../d1_worker.mjs";

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

await serve("designs", script);
