// The rules of start-up: no entropy, a clock that reads 1970, no JavaScript objects left behind.
//
// Cloudflare imports a Python Worker once, outside any request, and deploys a memory snapshot of the result. Whatever
// was random or timed would be the same in every isolate, and a JavaScript object cannot be in a snapshot at all. The
// local edge imports inside the first event, where all of it would work, so it takes these things away meanwhile.

const REFUSED = "randomness was asked for while the Worker's modules were being imported";
// An error of this shape reaches C code as a failed system call (WASI's number for EIO), and Python as OSError.
const IO_ERROR = { name: "ErrnoError", errno: 29 };

let closed = false;
let allowance = 0;

/** Lets the next `calls` requests for random bytes through during start-up, as the platform does for listed packages. */
export const allowEntropy = (calls) => {
  allowance = calls;
};
export const entropyAllowed = () => allowance;

const { getRandomValues } = crypto;
function guardedRandomValues(view) {
  if (closed && allowance === 0) throw Object.assign(new Error(REFUSED), IO_ERROR);
  allowance = Math.max(0, allowance - 1);
  return getRandomValues.call(crypto, view);
}
const zero = () => 0;

/** What stands in for JavaScript's own functions during start-up; Python may keep it by name as it may the originals. */
export const standIns = [guardedRandomValues, zero];

/** Runs `work`, which must not await, under the rules of start-up. */
export function atStartUp(work) {
  const { now: dateNow } = Date;
  const { now: performanceNow } = performance;
  crypto.getRandomValues = guardedRandomValues;
  Date.now = zero;
  performance.now = zero;
  closed = true;
  try {
    return work();
  } finally {
    closed = false;
    Date.now = dateNow;
    performance.now = performanceNow;
    crypto.getRandomValues = getRandomValues;
  }
}

const isObject = (value) => (typeof value === "object" && value !== null) || typeof value === "function";

/**
 * Returns a function that lists the JavaScript objects Python has come to refer to since this call and that a memory
 * snapshot cannot hold. A snapshot holds only what is found again by name, as `js.Object.fromEntries` is, or is `known`:
 * the platform's own modules, and bindings.
 */
export function leftoversSince(pyodide, known) {
  const before = new Set(references(pyodide._module));
  const nameable = new Set([globalThis, ...known.filter(isObject)]);
  for (let level = 0; level < 2; level++) for (const object of [...nameable]) addMembers(object, nameable);
  return () => {
    const now = references(pyodide._module);
    return now.filter((object) => !before.has(object) && !nameable.has(object) && object !== pyodide._api);
  };
}

/** The objects in the interpreter's table of references, which is what a snapshot has to write down. */
function references(module) {
  const found = [];
  for (let index = 0; ; index++) {
    let object;
    try {
      object = module.__hiwire_get(index);
    } catch {
      return found;
    }
    if (isObject(object)) found.push(object);
  }
}

function addMembers(object, nameable) {
  for (const key of Reflect.ownKeys(object)) {
    const { value } = Reflect.getOwnPropertyDescriptor(object, key);
    if (isObject(value)) nameable.add(value);
  }
  const prototype = Object.getPrototypeOf(object);
  if (prototype !== null) nameable.add(prototype);
}
