// Reads streams of model servers without an SDK: stream.js fetch|undici|undici-h2|http|http2, and on each line of standard
// input a URL and, of https, the file of its authority
//
// Prints of each "begun" when some words have come, at last what has come: a line of JSON.
"use strict";
const kind = process.argv[2];
let url, ca, got;

const take = (line) => {
  if (line.includes(`w${got.words + 1} `)) {
    if (++got.words === 5) console.log("begun");
  } else if (line.includes("the server is shutting down")) got.error = "error event";
  else if (line.includes("[DONE]")) got.end = "stop";
};

const read = async (parts) => {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const part of parts) {
    const lines = (rest + decoder.decode(part, { stream: true })).split("\n");
    rest = lines.pop();
    lines.forEach(take);
  }
};

const kinds = {
  fetch: async () => read((await fetch(url, { method: "POST", body: "{}" })).body),

  undici: async (allowH2) => {
    const { Agent, request } = require("undici");
    const dispatcher = new Agent({ allowH2, connect: { ca } });
    await read((await request(url, { method: "POST", body: "{}", dispatcher })).body);
  },

  "undici-h2": () => kinds.undici(true),

  http: () =>
    new Promise((resolve, reject) => {
      const r = require("node:http").request(url, { method: "POST" }, (answer) => resolve(read(answer)));
      r.on("error", reject);
      r.end("{}");
    }),

  http2: () =>
    new Promise((resolve, reject) => {
      const to = new URL(url);
      const session = require("node:http2").connect(to.origin);
      session.on("error", reject);
      const stream = session.request({ ":method": "POST", ":path": to.pathname + to.search });
      stream.end("{}");
      resolve(read(stream));
    }),
};

(async () => {
  for await (const line of require("node:readline").createInterface({ input: process.stdin })) {
    [url, ca] = line.split(" ");
    ca = ca && require("node:fs").readFileSync(ca);
    got = { words: 0, error: null, end: null };
    await kinds[kind]().catch((e) => {
      const cause = e.cause ? ` (${e.cause.code || e.cause.message})` : "";
      got.error = [got.error, `${e.name}: ${e.message}${cause}`].filter(Boolean).join(", then ");
    });
    console.log(JSON.stringify(got));
  }
  process.exit();
})();
