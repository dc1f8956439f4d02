#!/usr/bin/env bash
# @unified-llm/core 0.6.9 (npm), Thread with OpenAI's Responses API: each turn sends all that was said to where it is already.
#
# Behaviour seen, with `callAgent` and a Thread, which is said to "prioritize previousResponseId if present, otherwise uses
# history": it sends both. The provider puts the messages of a request behind those of the response that `previous_response_id`
# names, so (1) each turn begins anew behind the turns before it: in the fifth the model reads the first question five times, 29
# messages where 9 were said; all five have 65 instead of 25, and these are billed. (2) A turn whose request fails leaves its
# question in the thread: asked again, it is there twice. (3) Calls of tools and their results are not in the thread's history,
# which is what other providers are sent: their models read an answer without what it was made of.
#
# Needs npm with a registry, and Node 20. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit @unified-llm/core@0.6.9 >npm.log 2>&1 || { cat npm.log; exit 2; }
export HOME=$work
cat >thread.mjs <<'JS'
import { callAgent, Thread } from "@unified-llm/core";

const stored = new Map();
let fails = false;
let calls = false;
const read = [];
/** The Responses API: a request's context is that of the response it names, and its own input behind that. */
globalThis.fetch = async (_, { body }) => {
  if (fails) return new Response("overloaded", { status: 503 });
  const { input, previous_response_id: previous } = JSON.parse(body);
  const context = [...(stored.get(previous) ?? []), ...input];
  read.push(context);
  const called = context.at(-1).type === "function_call_output";
  const call = { type: "function_call", call_id: "call", name: "look", arguments: "{}" };
  const text = { type: "message", role: "assistant", content: [{ type: "output_text", text: `Answer ${read.length}.` }] };
  const output = calls && !called ? [call] : [text];
  const id = `resp_${read.length}`;
  stored.set(id, [...context, ...output]);
  const usage = { input_tokens: context.length, output_tokens: 1, total_tokens: context.length + 1 };
  return Response.json({ id, status: "completed", output, usage });
};
const look = {
  tools: [{ type: "function", name: "look", description: "look", parameters: { type: "object", properties: {} } }],
  handlers: { look: async () => "4711" },
};
const options = { provider: "openai", model: "gpt-4.1", apiKey: "none" };
const ask = (thread, content) => callAgent({ ...options, thread, baseInput: [{ role: "user", content }] });
const said = (messages) =>
  messages.map(({ role, type, content }) => (role === "user" ? content : role === "assistant" ? "A" : type)).join(" ");

const thread = new Thread();
for (const question of ["Q1", "Q2", "Q3", "Q4", "Q5"]) {
  const { usage } = await ask(thread, question);
  console.log(`${question}: ${usage.inputTokens} read: ${said(read.at(-1))}`);
}
const billed = read.reduce((sum, context) => sum + context.length, 0);
console.log(`${billed} read in all, ${said(thread.getHistory())} in the thread`);

const failed = new Thread();
fails = true;
await ask(failed, "Q1").catch((error) => console.log(error.message.trim().split("\n")[0].trim()));
fails = false;
await ask(failed, "Q1");
console.log("asked again:", said(failed.getHistory()));

const looked = new Thread();
calls = true;
await callAgent({ ...options, thread: looked, localTools: look, baseInput: [{ role: "user", content: "Q1" }] });
console.log("with a tool:", said(read.at(-1)), "read,", said(looked.getHistory()), "in the thread");
JS
timeout 60 node thread.mjs | tee seen
diff seen - <<'SEEN'
Q1: 1 read: Q1
Q2: 5 read: Q1 A Q1 A Q2
Q3: 11 read: Q1 A Q1 A Q2 A Q1 A Q2 A Q3
Q4: 19 read: Q1 A Q1 A Q2 A Q1 A Q2 A Q3 A Q1 A Q2 A Q3 A Q4
Q5: 29 read: Q1 A Q1 A Q2 A Q1 A Q2 A Q3 A Q1 A Q2 A Q3 A Q4 A Q1 A Q2 A Q3 A Q4 A Q5
65 read in all, Q1 A Q2 A Q3 A Q4 A Q5 A in the thread
OpenAI Responses API error: 503
asked again: Q1 Q1 A
look (arguments: {}), loop - 0
with a tool: Q1 function_call function_call_output read, Q1 A in the thread
SEEN
