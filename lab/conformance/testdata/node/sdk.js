// Asks model servers for a long answer by a client library: sdk.js KIND, and a URL on each line of standard input
//
// Prints of each "begun" when some words have come, at last what the user's code has got: a line of JSON.
"use strict";
const { setTimeout: sleep } = require("node:timers/promises");

const kind = process.argv[2];
let url, got;

// said counts the words of a piece of the answer.
function said(text) {
  const before = got.words;
  got.words += (text ?? "").split(" ").filter(Boolean).length;
  if (before < 5 && got.words >= 5) console.log("begun");
}

const openai = () => {
  const { OpenAI } = require("openai");
  return new OpenAI({ baseURL: url + "/v1", apiKey: "x", maxRetries: 0 });
};

async function ai(model) {
  const { streamText } = require("ai");
  const { createOpenAI } = require("@ai-sdk/openai");
  const provider = createOpenAI({ baseURL: url + "/v1", apiKey: "x" });
  const result = streamText({ model: model(provider), prompt: "?", maxRetries: 0, onError() {} });
  for await (const part of result.fullStream) {
    if (part.type === "text-delta") said(part.text);
    if (part.type === "finish") got.end = part.finishReason;
    if (part.type === "error") throw part.error;
  }
}

async function mcp(tool) {
  const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
  const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
  const { LoggingMessageNotificationSchema } = require("@modelcontextprotocol/sdk/types.js");
  const client = new Client({ name: "test", version: "1" });
  const heard = new Promise((resolve) => {
    client.setNotificationHandler(LoggingMessageNotificationSchema, (n) => {
      if (String(n.params.data).includes("young")) resolve();
    });
  });
  await client.connect(new StreamableHTTPClientTransport(new URL(url + "/mcp")));
  const options = { onprogress: () => said("word"), timeout: tool === "plain" ? 5000 : 30000 };
  const result = await client.callTool({ name: tool, arguments: {} }, undefined, options);
  got.end = result.content[0].text;
  await Promise.race([heard, sleep(20000).then(() => Promise.reject(new Error("the server's own stream is not opened again")))]);
}

const kinds = {
  async openai() {
    const stream = await openai().chat.completions.create({ model: "fake", messages: [{ role: "user", content: "?" }], stream: true });
    for await (const chunk of stream) {
      said(chunk.choices[0].delta.content);
      got.end = chunk.choices[0].finish_reason;
    }
  },
  async "openai-responses"() {
    for await (const event of await openai().responses.create({ model: "fake", input: "?", stream: true })) {
      if (event.type === "response.output_text.delta") said(event.delta);
      got.end = event.type;
    }
  },
  ai: () => ai((provider) => provider.chat("fake")),
  "ai-responses": () => ai((provider) => provider.responses("fake")),
  mcp: () => mcp("plain"),
  "mcp-resumable": () => mcp("resumable"),
  eventsource: () =>
    new Promise((resolve, reject) => {
      const { EventSource } = require("eventsource");
      const source = new EventSource(url + "/events");
      source.onmessage = (e) => {
        got.events.push(e.data);
        said(e.data);
      };
      source.addEventListener("end", () => {
        got.end = "end";
        source.close();
        resolve();
      });
      source.onerror = (e) => {
        if (source.readyState === source.CLOSED) reject(new Error(e.message));
      };
    }),
};

(async () => {
  for await (const line of require("node:readline").createInterface({ input: process.stdin })) {
    url = line;
    got = { words: 0, error: null, end: null, events: [] };
    await kinds[kind]().catch((e) => {
      got.error = `${e?.constructor?.name}: ${e?.message ?? JSON.stringify(e)}`;
    });
    console.log(JSON.stringify(got));
  }
  process.exit();
})();
