#!/usr/bin/env bash
# openlit 1.15.0 and langsmith 0.12.0 (npm), with @anthropic-ai/sdk 0.125.0: what they record of a streamed answer of Claude.
#
# Behaviour seen, with an answer that has a thought, a search of the web by the provider and two calls of tools: (1) not
# streamed, both record the two calls, and LangSmith all of the answer. (2) Streamed, OpenLIT has one call, the last: it keeps one
# id, one name and one text of arguments for all. (3) It adds the output tokens that are told at the beginning to those at the
# end, which are the total: 58 for 50, at the price of 58. (4) LangSmith has both calls, but the thought as "" and without the
# signature by which it could be sent again, and the search without its query: it takes no pieces but those of texts and of calls
# of one's own tools.
#
# Needs npm with a registry, and Node 20. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit openlit@1.15.0 langsmith@0.12.0 @anthropic-ai/sdk@0.125.0 >npm.log 2>&1 ||
    { cat npm.log; exit 2; }
export HOME=$work
cat >record.cjs <<'JS'
const http = require("node:http");
const { once } = require("node:events");
const { setTimeout: sleep } = require("node:timers/promises");
const Anthropic = require("@anthropic-ai/sdk");
const { Client } = require("langsmith");
const { wrapAnthropic } = require("langsmith/wrappers/anthropic");
const Openlit = require("openlit").default;

const usage = { input_tokens: 100, cache_creation_input_tokens: 0, cache_read_input_tokens: 0, output_tokens: 50 };
const head = { id: "1", type: "message", role: "assistant", model: "claude-sonnet-4-5", stop_reason: null, stop_sequence: null };
const content = [
  { type: "thinking", thinking: "First a, then b.", signature: "signed" },
  { type: "server_tool_use", id: "srvtoolu_1", name: "web_search", input: { query: "b" } },
  { type: "web_search_tool_result", tool_use_id: "srvtoolu_1", content: [] },
  { type: "tool_use", id: "toolu_1", name: "read", input: { path: "a" } },
  { type: "tool_use", id: "toolu_2", name: "delete", input: { path: "b" } },
];
/** The events that the provider sends for a block: it begins empty, and is filled by a delta. */
function events(block, index) {
  const { type, thinking, signature, input } = block;
  const deltas = input ? [{ type: "input_json_delta", partial_json: JSON.stringify(input) }] : [];
  if (thinking) deltas.push({ type: "thinking_delta", thinking }, { type: "signature_delta", signature });
  const begin = thinking ? { type, thinking: "", signature: "" } : input ? { ...block, input: {} } : block;
  const filled = deltas.map((delta) => ({ type: "content_block_delta", index, delta }));
  return [{ type: "content_block_start", index, content_block: begin }, ...filled, { type: "content_block_stop", index }];
}
async function provider(_, { body }) {
  if (!JSON.parse(body).stream) return Response.json({ ...head, content, stop_reason: "tool_use", usage });
  const sent = [
    { type: "message_start", message: { ...head, content: [], usage: { ...usage, output_tokens: 8 } } },
    ...content.flatMap(events),
    { type: "message_delta", delta: { stop_reason: "tool_use", stop_sequence: null }, usage: { output_tokens: 50 } },
    { type: "message_stop" },
  ];
  const lines = sent.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
  return new Response(lines.join(""), { headers: { "content-type": "text/event-stream" } });
}
const question = { model: head.model, max_tokens: 4000, messages: [{ role: "user", content: "Go." }] };
const client = () => new Anthropic.Anthropic({ apiKey: "none", fetch: provider, maxRetries: 0 });

async function ask(anthropic, recorded, show) {
  for (const stream of [false, true]) {
    const result = await anthropic.messages.create({ ...question, stream });
    if (stream) for await (const _ of result);
    while (recorded.length === 0) await sleep(20);
    show(stream ? "streamed" : "not streamed", recorded.pop());
  }
}
async function main() {
  const runs = [];
  class Runs extends Client {
    async createRun() {}
    async updateRun(_, run) {
      runs.push(run.outputs);
    }
  }
  const langsmith = new Runs({ apiKey: "none", autoBatchTracing: false });
  await ask(wrapAnthropic(client(), { client: langsmith, tracingEnabled: true }), runs, (way, { content }) => {
    console.log(`langsmith, ${way}:`);
    for (const block of content) console.log("  " + JSON.stringify(block));
  });

  const spans = [];
  const collector = http.createServer(async (request, response) => {
    const body = (await request.toArray()).join("");
    spans.push(...JSON.parse(body).resourceSpans[0].scopeSpans[0].spans);
    response.end("{}");
  });
  collector.listen(0, "127.0.0.1");
  await once(collector, "listening");
  const prices = { chat: { [head.model]: { promptPrice: 0.003, completionPrice: 0.015 } } };
  const off = { disableBatch: true, disableMetrics: true, disableEvents: true };
  const otlpEndpoint = `http://127.0.0.1:${collector.address().port}`;
  Openlit.init({ ...off, otlpEndpoint, pricingJson: prices, instrumentations: { anthropic: Anthropic } });
  await sleep(100);
  await ask(client(), spans, (way, { attributes }) => {
    console.log(`openlit, ${way}:`);
    const wanted = /^gen_ai\.(tool\.(name|call)|usage\.(output_tokens|cost))/;
    const found = attributes.filter(({ key }) => wanted.test(key)).map(({ key, value }) => [key, Object.values(value)[0]]);
    for (const [key, value] of found.sort()) console.log(`  ${key} ${key.endsWith("cost") ? value.toFixed(5) : value}`);
  });
  process.exit(0);
}
main();
JS
timeout 60 node record.cjs 2>errors | tee seen || { cat errors; exit 2; }
diff seen - <<'SEEN'
langsmith, not streamed:
  {"type":"thinking","thinking":"First a, then b.","signature":"signed"}
  {"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"b"}}
  {"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}
  {"type":"tool_use","id":"toolu_1","name":"read","input":{"path":"a"}}
  {"type":"tool_use","id":"toolu_2","name":"delete","input":{"path":"b"}}
langsmith, streamed:
  {"type":"thinking","thinking":"","signature":""}
  {"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}
  {"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}
  {"type":"tool_use","id":"toolu_1","name":"read","input":{"path":"a"}}
  {"type":"tool_use","id":"toolu_2","name":"delete","input":{"path":"b"}}
openlit, not streamed:
  gen_ai.tool.call.id toolu_1, toolu_2
  gen_ai.tool.name read, delete
  gen_ai.usage.cost 0.00105
  gen_ai.usage.output_tokens 50
openlit, streamed:
  gen_ai.tool.call.id toolu_2
  gen_ai.tool.name delete
  gen_ai.usage.cost 0.00117
  gen_ai.usage.output_tokens 58
SEEN
