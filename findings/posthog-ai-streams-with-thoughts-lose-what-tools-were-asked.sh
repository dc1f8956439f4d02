#!/usr/bin/env bash
# @posthog/ai 8.13.1 with @anthropic-ai/sdk 0.125.0 (npm): where a streamed answer begins with a thought or a search of the
# web, every call of a tool is recorded without its arguments.
#
# Behaviour seen: the wrapper of Anthropic's client collects an answer's blocks in a list of its own, to which only texts and
# calls of tools are added, and then looks pieces of arguments up in it by the number that the provider gave the block. A block
# of another kind before them (`thinking`, `redacted_thinking`, `server_tool_use`, `web_search_tool_result`) shifts all numbers
# behind it. The same answer, two calls of tools with `{"path": "a"}` and `{"path": "b"}`, is recorded (1) whole when it is not
# streamed; (2) whole when it is streamed without thinking; (3) with `arguments: {}` for both calls when it is streamed with a
# thought at its head, as any answer with extended thinking is; (4) likewise after a search of the web. Nothing is logged, the
# counts of tokens are right, and the client gets the stream as it was: only the record says that `delete` was called with
# nothing.
#
# Needs npm with a registry, and Node 20. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit @posthog/ai@8.13.1 posthog-node@5.70.0 @anthropic-ai/sdk@0.125.0 >npm.log 2>&1 ||
    { cat npm.log; exit 2; }
export HOME=$work
cat >record.mjs <<'JS'
import { setTimeout as sleep } from "node:timers/promises";
import { Anthropic } from "@posthog/ai/anthropic";

const usage = { input_tokens: 100, cache_creation_input_tokens: 0, cache_read_input_tokens: 800, output_tokens: 50 };
const head = { id: "1", type: "message", role: "assistant", model: "claude-sonnet-4-5", stop_reason: null, stop_sequence: null };
const thought = { type: "thinking", thinking: "First a, then b.", signature: "signed" };
const search = { type: "server_tool_use", id: "srvtoolu_1", name: "web_search", input: { query: "b" } };
const found = { type: "web_search_tool_result", tool_use_id: "srvtoolu_1", content: [] };
const answer = [
  { type: "text", text: "I read a and delete b." },
  { type: "tool_use", id: "toolu_1", name: "read", input: { path: "a" } },
  { type: "tool_use", id: "toolu_2", name: "delete", input: { path: "b" } },
];
let content;

/** The events that the provider sends for a block: it begins empty, and is filled by a delta. */
function events(block, index) {
  const { type, text, thinking, signature, input } = block;
  const empty = { text: { type, text: "" }, thinking: { type, thinking: "", signature: "" } };
  const deltas = {
    text: [{ type: "text_delta", text }],
    thinking: [{ type: "thinking_delta", thinking }, { type: "signature_delta", signature }],
    tool_use: [{ type: "input_json_delta", partial_json: JSON.stringify(input) }],
    server_tool_use: [{ type: "input_json_delta", partial_json: JSON.stringify(input) }],
  };
  const filled = (deltas[type] ?? []).map((delta) => ({ type: "content_block_delta", index, delta }));
  const begin = empty[type] ?? (input ? { ...block, input: {} } : block);
  return [{ type: "content_block_start", index, content_block: begin }, ...filled, { type: "content_block_stop", index }];
}
async function provider(_, { body }) {
  if (!JSON.parse(body).stream) {
    return Response.json({ ...head, content, stop_reason: "tool_use", usage });
  }
  const sent = [
    { type: "message_start", message: { ...head, content: [], usage: { ...usage, output_tokens: 1 } } },
    ...content.flatMap(events),
    { type: "message_delta", delta: { stop_reason: "tool_use", stop_sequence: null }, usage: { output_tokens: 50 } },
    { type: "message_stop" },
  ];
  const lines = sent.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
  return new Response(lines.join(""), { headers: { "content-type": "text/event-stream" } });
}

const recorded = [];
const posthog = { capture: (event) => recorded.push(event.properties), options: {} };
const client = new Anthropic({ apiKey: "none", fetch: provider, maxRetries: 0, posthog });
const question = { model: head.model, max_tokens: 4000, messages: [{ role: "user", content: "Go." }] };

async function show(name, blocks, stream) {
  content = blocks;
  const result = await client.messages.create({ ...question, stream });
  let arrived = stream ? "" : JSON.stringify(result.content);
  if (stream) {
    for await (const event of result) arrived += event.delta?.partial_json ?? "";
  }
  while (recorded.length === 0) await sleep(20);
  const { $ai_output_choices: choices, $ai_input_tokens: input, $ai_output_tokens: output } = recorded.pop();
  const calls = choices[0].content.filter((part) => part.type === "function");
  const said = calls.map((call) => `${call.function.name}(${JSON.stringify(call.function.arguments)})`);
  const complete = arrived.includes('{"path":"a"}') && arrived.includes('{"path":"b"}');
  console.log(`${name}: client got ${complete ? "both" : "not both"}; recorded: ${said.join(" ")}, tokens ${input} ${output}`);
}
await show("not streamed, with a thought", [thought, ...answer], false);
await show("streamed, no thought", answer, true);
await show("streamed, with a thought", [thought, ...answer], true);
await show("streamed, after a search", [search, found, ...answer], true);
JS
timeout 60 node record.mjs | tee seen
diff seen - <<'SEEN'
not streamed, with a thought: client got both; recorded: read({"path":"a"}) delete({"path":"b"}), tokens 100 50
streamed, no thought: client got both; recorded: read({"path":"a"}) delete({"path":"b"}), tokens 100 50
streamed, with a thought: client got both; recorded: read({}) delete({}), tokens 100 50
streamed, after a search: client got both; recorded: read({}) delete({}), tokens 100 50
SEEN
