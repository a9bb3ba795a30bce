// Ties workerd to the Node process, so that a SIGKILL of Node leaves no workerd that goes on writing.
import { accessSync, constants } from "node:fs";
import { createRequire } from "node:module";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

function onPath(program) {
  return (process.env.PATH ?? "").split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/**
 * Has Miniflare start workerd through a program that asks the kernel to end it together with its parent. Only Linux can
 * do this; elsewhere whoever next uses the state folder ends what is left.
 */
export function tieWorkerd() {
  if (process.platform !== "linux" || !onPath("setpriv")) return;
  process.env.MOORAGE_WORKERD = createRequire(createRequire(import.meta.url).resolve("miniflare"))("workerd").default;
  process.env.MINIFLARE_WORKERD_PATH = fileURLToPath(new URL("workerd.sh", import.meta.url));
}
