// Serves a plain JavaScript Worker with one D1 database under `DB`, state in the folder that the command line names. Prints
// its address; ends when standard input closes.
import { Log, LogLevel, Miniflare } from "miniflare";
import { shared } from "../local/node/options.mjs";

export async function serve(name, script) {
  const miniflare = new Miniflare({
    ...shared(new Log(LogLevel.ERROR), () => {}),
    port: 0,
    resourcePersistencePath: process.argv[2],
    workers: [
      {
        config: {
          name,
          compatibilityDate: "2026-11-01",
          manifest: {
            mainModule: "main.mjs",
            modulesRoot: "/",
            modules: { "main.mjs": { type: "esm", contents: script } },
          },
          env: { DB: { type: "d1", id: name } },
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
}
