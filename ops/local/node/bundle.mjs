// Turns the bundle that wrangler wrote into one pack for the isolate, together with bytecode kept from earlier starts.
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { files, makePack } from "../workerd/pack.mjs";

const CODE = "/session/metadata";
const EDGE = "/session/edge";
const BYTECODE = "/session/bytecode";
// Each edit of a source file leaves the bytecode of its older text behind; past this number it is cleared away.
const MOST_KEPT = 5_000;
const INSIDE = fileURLToPath(new URL("../inside/", import.meta.url));

function* walk(folder, prefix = "") {
  for (const entry of readdirSync(join(folder, prefix), { withFileTypes: true })) {
    if (entry.name === "__pycache__") continue;
    const path = prefix === "" ? entry.name : `${prefix}/${entry.name}`;
    if (entry.isDirectory()) yield* walk(folder, path);
    else if (entry.isFile()) yield path;
  }
}

/** Where Python looks for the bytecode of a source file, below the folder that sys.pycache_prefix names. */
const bytecodePath = (source) => source.replace(/\.py$/, ".cpython-314.pyc");

/** Writes the pack of the bundle and keeps the bytecode that isolates send back, by content of the source. */
export class Bundle {
  #names = new Map();

  constructor(folder, bytecodeFolder, version) {
    this.folder = folder;
    this.bytecodeFolder = bytecodeFolder;
    this.version = version;
    mkdirSync(bytecodeFolder, { recursive: true });
  }

  /** Writes everything the isolate needs on its file system to `target`. */
  writePack(target) {
    const kept = new Set(readdirSync(this.bytecodeFolder));
    const entries = [];
    for (const [root, folder] of [[CODE, this.folder], [EDGE, INSIDE]]) {
      for (const name of walk(folder)) {
        if (name === "README.md") continue; // wrangler's note to whoever opens the folder; it is not uploaded
        const path = `${root}/${name}`;
        const bytes = readFileSync(join(folder, name));
        entries.push([path, bytes]);
        if (!name.endsWith(".py")) continue;
        const key = this.#key(path, bytes);
        const compiled = bytecodePath(path);
        this.#names.set(compiled, key);
        if (kept.has(key)) entries.push([BYTECODE + compiled, readFileSync(join(this.bytecodeFolder, key))]);
      }
    }
    writeFileSync(target, makePack(entries));
    if (kept.size > MOST_KEPT) this.#forgetOthers(kept);
  }

  #forgetOthers(kept) {
    const ours = new Set(this.#names.values());
    for (const key of kept) if (!ours.has(key)) rmSync(join(this.bytecodeFolder, key), { force: true });
  }

  /** Keeps the bytecode in `pack`, whose paths lie below the isolate's bytecode folder. */
  keep(pack) {
    for (const [path, bytes] of files(pack)) {
      const key = this.#names.get(path);
      if (key === undefined || bytes.length < 16) continue;
      const copy = Buffer.from(bytes);
      // Flags 1: the interpreter takes it without looking at the source, whose content the key already stands for.
      copy.writeUInt32LE(1, 4);
      const file = join(this.bytecodeFolder, key);
      writeFileSync(`${file}.${process.pid}`, copy);
      renameSync(`${file}.${process.pid}`, file);
    }
  }

  #key(path, bytes) {
    return createHash("sha256").update(this.version).update("\0").update(path).update("\0").update(bytes).digest("hex");
  }
}
