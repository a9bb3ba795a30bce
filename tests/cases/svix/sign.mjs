// Signs with the npm package standardwebhooks: [secret, [[id, milliseconds, body], ...]] on stdin, the signatures on stdout.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const { Webhook } = createRequire(join(process.argv[2], "standardwebhooks", "package.json"))("standardwebhooks");
const [secret, messages] = JSON.parse(readFileSync(0, "utf8"));
const signer = new Webhook(secret);
process.stdout.write(JSON.stringify(messages.map(([id, at, body]) => signer.sign(id, new Date(at), body))));
