#!/usr/bin/env bash
# @xsai/generate-text and @xsai/stream-text 0.4.4 (npm): one step is two requests, the last of which is the answer and the bill.
#
# Behaviour seen, with an OpenAI-compatible provider and `maxSteps` left at its default, 1: (1) `generateText` gets a call of a
# tool, runs it and asks again, where `streamText` with the same options asks once. The calls of the second answer are not run,
# and it is the last of the `messages` given back: a provider refuses these, as a call has no result. (2) An answer that was cut
# at the limit of tokens (`length`) is put behind the messages and sent again, without being asked to and without a tool: `text`
# is the second piece alone, whose beginning is in no field but the messages and steps. (3) `usage` is that of the last request,
# 220 of 320 tokens each time, and there is no total, as `streamText` has one. (4) `streamText` drops the text of a chunk that
# has a call, too, as providers send that stream a whole answer at once: it is neither in the stream nor in the step, and "" in
# the messages that are sent next.
#
# Needs npm with a registry, and Node 20. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit @xsai/generate-text@0.4.4 @xsai/stream-text@0.4.4 >npm.log 2>&1 ||
    { cat npm.log; exit 2; }
export HOME=$work
cat >steps.mjs <<'JS'
import { generateText } from "@xsai/generate-text";
import { streamText } from "@xsai/stream-text";

const call = (id) => ({ id, type: "function", function: { name: "look", arguments: "{}" } });
const usage = (input, output) => ({ prompt_tokens: input, completion_tokens: output, total_tokens: input + output });
const calling = (id) => [{ role: "assistant", content: `I look, ${id}.`, tool_calls: [call(id)] }, "tool_calls"];
const looking = [[...calling("call_1"), usage(90, 10)], [...calling("call_2"), usage(210, 10)]];
const writing = [
  [{ role: "assistant", content: "The first half of a long" }, "length", usage(10, 90)],
  [{ role: "assistant", content: " answer, and the second." }, "stop", usage(120, 100)],
];
let requests = 0;
/** A provider that gives one answer after another, whole or as one chunk of a stream. */
function provider(answers) {
  requests = 0;
  return async (_, { body }) => {
    const [message, finish_reason, usage] = answers[requests];
    requests += 1;
    if (!JSON.parse(body).stream) return Response.json({ choices: [{ index: 0, message, finish_reason }], usage });
    const tool_calls = message.tool_calls?.map((call, index) => ({ index, ...call }));
    const chunks = [
      { choices: [{ index: 0, delta: { ...message, tool_calls }, finish_reason: null }] },
      { choices: [{ index: 0, delta: {}, finish_reason }], usage },
    ];
    const lines = chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`);
    return new Response([...lines, "data: [DONE]\n\n"].join(""));
  };
}
const look = { type: "function", function: { name: "look", parameters: { type: "object" } }, execute: () => "result" };
const options = (answers, tools) => ({
  baseURL: "http://provider.invalid/v1/",
  model: "model",
  messages: [{ role: "user", content: "Go." }],
  fetch: provider(answers),
  tools,
});
function show(name, { text, usage, messages }) {
  console.log(`${name}: ${requests} of 1 requests, text ${JSON.stringify(text)}, usage ${usage.total_tokens}`);
  for (const { role, content, tool_calls: calls } of messages) {
    console.log(`  ${role} ${JSON.stringify(content)} ${calls?.map(({ id }) => id) ?? ""}`.trimEnd());
  }
}
show("generateText, a tool", await generateText(options(looking, [look])));
const result = streamText(options(looking, [look]));
let text = "";
for await (const piece of result.textStream) text += piece;
show("streamText, a tool", { text, usage: await result.usage, messages: await result.messages });
show("generateText, cut", await generateText(options(writing)));
JS
timeout 60 node steps.mjs | tee seen
diff seen - <<'SEEN'
generateText, a tool: 2 of 1 requests, text "I look, call_2.", usage 220
  user "Go."
  assistant "I look, call_1." call_1
  tool "result"
  assistant "I look, call_2." call_2
streamText, a tool: 1 of 1 requests, text "", usage 100
  user "Go."
  assistant "" call_1
  tool "result"
generateText, cut: 2 of 1 requests, text " answer, and the second.", usage 220
  user "Go."
  assistant "The first half of a long"
  assistant " answer, and the second."
SEEN
