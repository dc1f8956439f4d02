#!/usr/bin/env bash
# llm-exe 3.0.4 (npm): from a dialogue with tools no valid request can be made, since results lose their ids, or are not kept.
#
# Behaviour seen, with its own Dialogue and ChatPrompt, `addFromOutput` of an answer that calls `read` and `touch`, and
# `setToolMessage` for their results: (1) Sent by the prompt's placeholder for a history, the result of `read` has no
# `tool_call_id` for OpenAI, and no `tool_use_id` for Anthropic: the id is in the dialogue, and the placeholder copies all but it.
# (2) `setHistory`, which makes a dialogue of a saved one, drops it as well, now from what is stored. (3) The result of `touch`,
# which printed nothing, is not stored at all: the call stays without an answer. (4) Two calls of one answer become two
# messages of the assistant for OpenAI, the second before the first was answered. The APIs refuse each of these. Only the
# prompt's `addFromHistory` keeps the ids.
#
# Needs npm with a registry, and Node 20. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit llm-exe@3.0.4 >npm.log 2>&1 || { cat npm.log; exit 2; }
export HOME=$work
cat >dialogue.mjs <<'JS'
import { createChatPrompt, createDialogue, createLlmExecutor, createParser, useLlm } from "llm-exe";

let sent;
globalThis.fetch = async (_, { body }) => {
  sent = JSON.parse(body).messages;
  const message = { role: "assistant", content: "Done." };
  const openai = { created: 1, choices: [{ index: 0, finish_reason: "stop", message }] };
  const anthropic = { type: "message", role: "assistant", stop_reason: "end_turn", content: [{ type: "text", text: "Done." }] };
  return Response.json({ id: "1", model: "model", ...openai, ...anthropic, usage: {} });
};
const openai = useLlm("openai.chat.v1", { model: "gpt-4.1", openAiApiKey: "none" });
const anthropic = useLlm("anthropic.chat.v1", { model: "claude-sonnet-4-5", anthropicApiKey: "none" });
const parser = createParser("string");

async function show(name, llm, prompt, values) {
  await createLlmExecutor({ llm, prompt, parser }).execute(values);
  console.log(`${name}:`);
  for (const message of sent.filter(({ role }) => role !== "system")) console.log("  " + JSON.stringify(message));
}
const answer = (name, id, input) => ({ type: "function_use", name, functionId: id, input });
const dialogue = createDialogue("chat");
dialogue.setUserMessage("Read a and touch b.");
dialogue.addFromOutput({ content: [answer("read", "call_1", { path: "a" }), answer("touch", "call_2", { path: "b" })] });
dialogue.setToolMessage("text of a", "read", "call_1");
dialogue.setToolMessage("", "touch", "call_2");
dialogue.setAssistantMessage("Done.");
const results = (history) => JSON.stringify(history.filter(({ role }) => role === "function"));
console.log("results stored:", results(dialogue.getHistory()));
const restored = createDialogue("chat").setHistory(JSON.parse(JSON.stringify(dialogue.getHistory())));
console.log("after setHistory:", results(restored.getHistory()));

const placeholder = createChatPrompt("Be brief.").addChatHistoryPlaceholder("history");
await show("placeholder, OpenAI", openai, placeholder, { history: dialogue.getHistory() });
await show("placeholder, Anthropic", anthropic, placeholder, { history: dialogue.getHistory() });
const history = createChatPrompt("Be brief.").addFromHistory(dialogue.getHistory());
await show("addFromHistory, Anthropic", anthropic, history, {});
JS
timeout 60 node dialogue.mjs | tee seen
diff seen - <<'SEEN'
results stored: [{"role":"function","id":"call_1","name":"read","content":"text of a"}]
after setHistory: [{"role":"function","name":"read","content":"text of a"}]
placeholder, OpenAI:
  {"role":"user","content":"Read a and touch b."}
  {"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"read","arguments":"{\"path\":\"a\"}"}}]}
  {"role":"assistant","content":null,"tool_calls":[{"id":"call_2","type":"function","function":{"name":"touch","arguments":"{\"path\":\"b\"}"}}]}
  {"role":"tool","name":"read","content":"text of a"}
  {"role":"assistant","content":"Done."}
placeholder, Anthropic:
  {"role":"user","content":"Read a and touch b."}
  {"role":"assistant","content":[{"type":"tool_use","id":"call_1","name":"read","input":{"path":"a"}},{"type":"tool_use","id":"call_2","name":"touch","input":{"path":"b"}}]}
  {"role":"user","content":[{"type":"tool_result","content":"text of a"}]}
  {"role":"assistant","content":"Done."}
addFromHistory, Anthropic:
  {"role":"user","content":"Read a and touch b."}
  {"role":"assistant","content":[{"type":"tool_use","id":"call_1","name":"read","input":{"path":"a"}},{"type":"tool_use","id":"call_2","name":"touch","input":{"path":"b"}}]}
  {"role":"user","content":[{"type":"tool_result","tool_use_id":"call_1","content":"text of a"}]}
  {"role":"assistant","content":"Done."}
SEEN
