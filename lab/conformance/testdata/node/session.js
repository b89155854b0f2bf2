// A session across a drain: session.js fetch|undici|undici-h2|http|http2|ws URL
//
// Makes the requests that sessionapp_test.go knows, until it is told "enough".
// Prints what has failed, and how many requests there were.
"use strict";
const { setTimeout: sleep } = require("node:timers/promises");

const [kind, url] = process.argv.slice(2);
const ca = process.env.SESSION_CA && require("node:fs").readFileSync(process.env.SESSION_CA);
const pauses = process.env.SESSION_PAUSES.split(",").map(Number); // of each worker, milliseconds
const body = "x".repeat(3000);

// Each asks and returns [status, body].
const clients = {
  fetch: () => async (method, path, content) => {
    const r = await fetch(url + path, { method, body: content });
    return [r.status, await r.text()];
  },

  undici: () => {
    const { Agent, request } = require("undici");
    const dispatcher = new Agent({ connect: { ca } });
    return async (method, path, content) => {
      const r = await request(url + path, { method, body: content, dispatcher });
      return [r.statusCode, await r.body.text()];
    };
  },

  "undici-h2": () => {
    const { Agent, request } = require("undici");
    const dispatcher = new Agent({ allowH2: true, connect: { ca } });
    return async (method, path, content) => {
      const r = await request(url + path, { method, body: content, dispatcher });
      return [r.statusCode, await r.body.text()];
    };
  },

  // node:http may take a connection whose end is on its way; its documentation leaves it to the caller to ask again
  // when a connection was reused (request.reusedSocket), here with what may be asked twice. Over TLS it also takes one
  // whose end it has read (socket.readableEnded). It sends nothing on it, so any request may be repeated.
  http: () => {
    const http = require(url.startsWith("https") ? "node:https" : "node:http");
    const agent = new http.Agent({ keepAlive: true });
    const ask = (method, path, content) =>
      new Promise((resolve, reject) => {
        const r = http.request(url + path, { method, agent, ca }, async (answer) => {
          try {
            answer.setEncoding("utf8");
            let text = "";
            for await (const part of answer) text += part;
            resolve([answer.statusCode, text]);
          } catch (e) {
            reject(e);
          }
        });
        let unsent = false;
        r.on("socket", (socket) => (unsent = socket.readableEnded));
        r.on("error", (e) =>
          r.reusedSocket && e.code === "ECONNRESET" && (method === "GET" || unsent)
            ? resolve(ask(method, path, content))
            : reject(e),
        );
        r.end(content);
      });
    return ask;
  },

  // node:http2 leaves connections to its user, one at a time until it says goodbye, and requests that were not sent
  // because a goodbye came in between (REFUSED_STREAM: safe to repeat; RFC 9113, 8.7).
  http2: () => {
    const http2 = require("node:http2");
    let session;
    const connected = () => {
      if (!session || session.closed || session.destroyed) {
        const s = http2.connect(url, { ca });
        s.on("goaway", () => (session = session === s ? undefined : session));
        s.on("error", (e) => console.log("session:", e.code ?? e.message)); // its requests tell, too
        session = s;
      }
      return session;
    };
    const ask = (method, path, content) =>
      new Promise((resolve, reject) => {
        const r = connected().request({ ":method": method, ":path": path });
        let status,
          text = "";
        r.setEncoding("utf8");
        r.on("response", (head) => (status = head[":status"]));
        r.on("data", (part) => (text += part));
        r.on("end", () => resolve([status, text]));
        r.on("error", (e) =>
          r.rstCode === http2.constants.NGHTTP2_REFUSED_STREAM ? resolve(ask(method, path, content)) : reject(e),
        );
        r.end(content);
      });
    return ask;
  },
};

let requests = 0;
let failed = 0;

function fail(what, e) {
  failed++;
  console.log(`failed: ${what}: ${e.cause?.code ?? e.code ?? e}: ${e.cause?.message ?? e.message ?? ""}`);
}

async function overHTTP(ask) {
  async function want(good, method, path, content) {
    requests++;
    try {
      const [status, text] = await ask(method, path, content);
      if (status !== 200 || !good(text)) throw new Error(`${status} ${text.slice(0, 100)}`);
      return text;
    } catch (e) {
      fail(`${method} ${path}`, e);
    }
  }
  const next = () => want((text) => text === "more" || text === "enough", "GET", "/next");
  const echo = () => want((text) => text === body, "POST", "/echo", body);

  await Promise.all(Array.from({ length: 8 }, next)); // connections that are idle at the end of the drain
  let enough = false;
  async function worker(pause) {
    while (!enough && failed < 20) {
      if ((await next()) === "enough") enough = true;
      await echo();
      await sleep(pause);
    }
  }
  await Promise.all([
    want((text) => text === "slow", "GET", "/slow"),
    want((text) => text === body, "POST", "/slow", body),
    want((text) => text.endsWith("drip\nend\n"), "GET", "/drip"),
    ...pauses.map(worker),
  ]);
}

async function overWebSocket() {
  const WebSocket = require("ws");
  const { once } = require("node:events");
  for (let enough = false; !enough; ) {
    const ws = new WebSocket(url.replace(/^http/, "ws") + "/ws", { ca });
    const closed = new Promise((resolve) => ws.on("close", (code, reason) => resolve([code, String(reason)])));
    ws.on("error", (e) => fail("WebSocket", e));
    ws.on("message", async (data) => {
      if (String(data) === "enough") {
        enough = true;
        return ws.close(1000);
      }
      await sleep(5);
      if (ws.readyState === WebSocket.OPEN) ws.send("hello");
    });
    ws.on("open", () => ws.send("hello"));
    const [code, reason] = await closed;
    requests++;
    console.log(`closed: ${code} ${reason}`);
  }
}

(kind === "ws" ? overWebSocket() : overHTTP(clients[kind]())).then(
  () => {
    console.log(`${requests} requests, ${failed} failed`);
    process.exit(failed ? 1 : 0);
  },
  (e) => {
    console.log(e);
    process.exit(1);
  },
);
