// Plays the test file of the npm package svix, as it is published, against a sender of the edge: what it imports as the library
// is inbox.mjs. Arguments: the folder node_modules, the published test file, and where the bundle is to lie.
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const [modules, source, bundle] = process.argv.slice(2).map((one) => resolve(one));
const esbuild = createRequire(join(modules, "esbuild", "package.json"))("esbuild");
const here = dirname(fileURLToPath(import.meta.url));

await esbuild.build({
  entryPoints: [source],
  outfile: bundle,
  bundle: true,
  format: "esm",
  platform: "node",
  nodePaths: [modules],
  logLevel: "error",
  plugins: [
    {
      name: "inbox",
      setup(build) {
        build.onResolve({ filter: /^\.\/index$|^@stablelib\/utf8$/ }, () => ({ path: join(here, "inbox.mjs") }));
      },
    },
  ],
});
await import(pathToFileURL(bundle));
