// The classes that workerd sees. Each stands for a class of the same name in the Worker's entry module.
import { DurableObject, WorkerEntrypoint } from "cloudflare:workers";
import { env } from "./host.mjs";
import { inside } from "./interpreter.mjs";

const made = new Map();
// Instances of Python classes by their JavaScript stand-in: { life, object }.
const instances = new WeakMap();

/**
 * The Python object behind `standIn`. It is made on first use, because there may be no interpreter yet when workerd
 * calls the constructor, and made anew when the interpreter was replaced.
 */
function pythonObject(standIn, name, python) {
  const known = instances.get(standIn);
  if (known?.life === python.life) return known.object;
  const object = python.bridge.construct(name, standIn.edgeContext, env);
  instances.set(standIn, { life: python.life, object });
  return object;
}

function call(standIn, name, method, args) {
  return inside((python) => python.bridge.call(pythonObject(standIn, name, python), method, ...args));
}

async function fetchFrom(standIn, name, request) {
  try {
    return await inside((python) => python.bridge.fetch(pythonObject(standIn, name, python), request));
  } catch {
    // The traceback is in the log already. As on Cloudflare, the client learns nothing of it.
    return new Response("Internal Server Error\n", { status: 500 });
  }
}

function standInFor(Base, name, handlers) {
  class StandIn extends Base {
    constructor(ctx, bindings) {
      super(ctx, bindings);
      Object.defineProperty(this, "edgeContext", { value: ctx });
    }
  }
  made.set(name, StandIn);
  for (const handler of handlers) define(name, handler);
  return StandIn;
}

function define(name, method) {
  const { prototype } = made.get(name);
  if (Object.hasOwn(prototype, method)) return;
  const value =
    method === "fetch"
      ? function (request) { return fetchFrom(this, name, request); }
      : function (...args) { return call(this, name, method, args); };
  Object.defineProperty(prototype, method, { value, configurable: true, writable: true });
}

export const durableObject = (name, handlers) => standInFor(DurableObject, name, handlers);
export const workerEntrypoint = (name, handlers) => standInFor(WorkerEntrypoint, name, handlers);

/** Makes methods callable over RPC. They are known only once the entry module was imported. */
export function addMethods(name, methods) {
  for (const method of methods) define(name, method);
}
