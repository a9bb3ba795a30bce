// The two JavaScript modules that workers-runtime-sdk imports from the platform.
import * as cloudflareSockets from "cloudflare:sockets";
import * as cloudflareWorkers from "cloudflare:workers";
import { env } from "./host.mjs";

/** Lets `waitUntil` take coroutines and other Python awaitables, which live only as long as their proxy. */
function waitingForPython(waitUntil) {
  return (work) => {
    const kept = typeof work?.copy === "function" ? work.copy() : work;
    const settle = async () => {
      try {
        await kept;
      } finally {
        if (kept !== work) kept.destroy();
      }
    };
    waitUntil(settle());
  };
}

function patchWaitUntil(ctx) {
  if (typeof ctx?.waitUntil !== "function" || Object.hasOwn(ctx, "waitUntil")) return;
  ctx.waitUntil = waitingForPython(ctx.waitUntil.bind(ctx));
}

function* patchEnvHelper(changes) {
  const before = { ...env };
  Object.assign(env, changes);
  try {
    yield;
  } finally {
    for (const key of Object.keys(env)) delete env[key];
    Object.assign(env, before);
  }
}

const workersModule = { ...cloudflareWorkers, env, waitUntil: waitingForPython(cloudflareWorkers.waitUntil) };

/** `_pyodide_entrypoint_helper` */
export const entrypointHelper = {
  cloudflareWorkersModule: workersModule,
  cloudflareSocketsModule: cloudflareSockets,
  doAnImport: (name) => import(name),
  patch_env_helper: patchEnvHelper,
  patchWaitUntil,
};

/** `_cloudflare_compat_flags`: both are on by default from the compatibility dates that mean Python 3.14. */
export const compatFlags = {
  python_workflows_implicit_dependencies: true,
  python_request_headers_preserve_commas: true,
};
