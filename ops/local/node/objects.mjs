// Puts files into a bucket of a state folder that no edge is running on: `node objects.mjs <state> <bucket>`, with one
// `{"key": …, "file": …}` a line on standard input. Exits 0 when every object is there.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { Miniflare, NoOpLog } from "miniflare";
import { tieWorkerd } from "./lifeline.mjs";
import { shared } from "./options.mjs";

const [, , state, bucket] = process.argv;
const idle = { type: "esm", contents: "export default { fetch: () => new Response(null, { status: 404 }) };" };

tieWorkerd();
const miniflare = new Miniflare({
  ...shared(new NoOpLog(), ({ level, message }) => {
    if (level === "error") process.stderr.write(`${message}\n`);
  }),
  resourcePersistencePath: state,
  workers: [
    {
      config: {
        name: "objects",
        compatibilityDate: "2026-11-01",
        manifest: { mainModule: "idle.mjs", modulesRoot: "/", modules: { "idle.mjs": idle } },
        env: { BUCKET: { type: "r2", name: bucket } },
        exports: {},
      },
    },
  ],
});
try {
  const objects = await miniflare.getR2Bucket("BUCKET");
  for await (const line of createInterface({ input: process.stdin })) {
    const { key, file } = JSON.parse(line);
    await objects.put(key, readFileSync(file));
  }
} catch (error) {
  process.stderr.write(`${error?.message ?? error}\n`);
  process.exitCode = 1;
} finally {
  await miniflare.dispose();
}
