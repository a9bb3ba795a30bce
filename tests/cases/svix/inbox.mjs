// What svix's tests know as its library: a Webhook is a sender that is declared at the edge, and verifying is delivering to it.
// EDGE_URL and EDGE_TOKEN say where, EDGE_AHEAD by how many milliseconds its clock is ahead, EDGE_MET where to note what came.
import { spawnSync } from "node:child_process";
import { appendFileSync } from "node:fs";
import { randomUUID } from "node:crypto";
import { Webhook as Library } from "standardwebhooks";

const { EDGE_URL, EDGE_TOKEN, EDGE_AHEAD, EDGE_MET } = process.env;
const real = Date.now;
Date.now = () => real() + Number(EDGE_AHEAD);

const ASK = `
const { url, ...told } = JSON.parse(require("node:fs").readFileSync(0, "utf8"));
fetch(url, told).then(async (answer) => process.stdout.write(JSON.stringify([answer.status, await answer.text()])));
`;

/** One request, waited for: the library's own verify is synchronous. */
function ask(path, method, headers, body) {
  const told = { url: EDGE_URL + path, method, headers: { "content-type": "application/json", ...headers }, body };
  const done = spawnSync(process.execPath, ["-e", ASK], { input: JSON.stringify(told), encoding: "utf8" });
  return JSON.parse(done.stdout);
}

export class WebhookVerificationError extends Error {}

export class Webhook {
  constructor(secret) {
    this.secret = secret;
    this.name = `svix-${randomUUID()}`;
    // Their "too new" is a second past their tolerance, cut to whole seconds; a slow answer would find it within.
    const declared = JSON.stringify({ scheme: "standard", secrets: [secret], subject: "svix", tolerance_seconds: 295 });
    const [status, text] = ask(`/senders/${this.name}`, "PUT", { authorization: `Bearer ${EDGE_TOKEN}` }, declared);
    if (status !== 200) throw new Error(`${status} ${text}`);
  }

  verify(payload, headers) {
    const [status, text] = ask(`/webhooks/${this.name}`, "POST", headers, payload);
    appendFileSync(EDGE_MET, JSON.stringify([this.name, status]) + "\n");
    if (status === 401) throw new WebhookVerificationError(text);
    if (status !== 200 && status !== 202) throw new Error(`${status} ${text}`);
    return JSON.parse(payload);
  }

  sign(id, timestamp, payload) {
    return new Library(this.secret).sign(id, timestamp, payload);
  }
}

export function encode(text) {
  return new TextEncoder().encode(text);
}
