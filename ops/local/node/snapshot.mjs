// Writes the memory snapshot that the isolates start from: `node snapshot.mjs <file> <compatibility date>`.
import { renameSync, writeFileSync } from "node:fs";
import { Miniflare, NoOpLog } from "miniflare";
import { baseModules, disk, preludeModule, PYODIDE, shared } from "./options.mjs";

const [, , target, compatibilityDate] = process.argv;
const modules = {
  ...baseModules(["host.mjs", "not_node.mjs", "pyodide_host.mjs", "snapshot.mjs"]),
  "prelude.py": preludeModule(),
};
const miniflare = new Miniflare({
  ...shared(new NoOpLog(), ({ level, message }) => {
    if (level === "error" || level === "warn") console.error(message);
  }),
  workers: [
    {
      config: {
        name: "snapshot",
        compatibilityDate,
        manifest: { mainModule: "snapshot.mjs", modulesRoot: "/", modules },
        env: { EDGE_PYODIDE: disk(PYODIDE) },
        exports: {},
      },
      dev: { unsafeEvalBinding: "EDGE_EVAL" },
    },
  ],
});
try {
  const response = await miniflare.dispatchFetch("http://snapshot/");
  if (!response.ok) throw new Error(await response.text());
  // Written aside and renamed: an interrupted run leaves no half snapshot.
  writeFileSync(`${target}.part`, new Uint8Array(await response.arrayBuffer()));
  renameSync(`${target}.part`, target);
} finally {
  await miniflare.dispose();
}
