#!/usr/bin/env bash
# @strands-agents/sdk 1.19.0 (npm), its context manager: the summary of a tool's result is summarized again before every call of
# the model, while summaries of messages never are, and pile up.
#
# Behaviour seen: (1) `Offload.summarize("toolResults").when({ preserveRecent: 1 })` puts a summary in the place of an older
# result. It does not know it again: before each call the summary of the summary is summarized, one more paid call each time.
# Of a result with two parts the first summary has both references, by which the model can get the original back, the next
# ones have one. None of these calls is in the agent's count of tokens. (2) What `contextManager: "auto"` makes of the oldest
# messages goes behind the first message, and is joined with it, being of the same role. The first message stays as it is, so
# no summary is taken into a later one: there are more and more, in the question that the talk began with, and the sooner the
# window is full again. Here the first is of six messages, and from the fifth on there is one for each question, of two.
#
# Needs npm with a registry, and Node 20. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit @strands-agents/sdk@1.19.0 >npm.log 2>&1 || { cat npm.log; exit 2; }
export HOME=$work
cat >summaries.mjs <<'JS'
import { Agent, Model, Offload } from "@strands-agents/sdk";

const long = (text, length) => text + "-".repeat(length);

class MadeUp extends Model {
  constructor(contextWindowLimit, length) {
    super();
    Object.assign(this, { contextWindowLimit, length, sent: [], summaries: [] });
  }
  updateConfig() {}
  getConfig() {
    return { modelId: "made-up", contextWindowLimit: this.contextWindowLimit };
  }
  async *stream(messages, { systemPrompt } = {}) {
    const summarizes = String(systemPrompt ?? "").includes("summarization assistant");
    const calls = summarizes ? this.summaries : this.sent;
    calls.push(messages.map((message) => message.toJSON()));
    const text = summarizes ? `summary ${calls.length}` : long(`answer ${calls.length} `, this.length);
    const inputTokens = await this.countTokens(messages);
    yield { type: "modelMessageStartEvent", role: "assistant" };
    yield { type: "modelContentBlockStartEvent" };
    yield { type: "modelContentBlockDeltaEvent", delta: { type: "textDelta", text } };
    yield { type: "modelContentBlockStopEvent" };
    yield { type: "modelMessageStopEvent", stopReason: "endTurn" };
    yield { type: "modelMetadataEvent", usage: { inputTokens, outputTokens: 10, totalTokens: inputTokens + 10 } };
  }
}

const blank = (text) => text.replace(/\n+/g, " ").replace(/ ~\d+ tokens/, "").replace(/-{2,}/g, "");
const block = ({ text, toolUse, toolResult }) =>
  text ? blank(text) : toolUse ? "call" : `result (${toolResult.content.map(block).join(" / ")})`;
const list = (messages) => messages.map(({ content }) => content.map(block).join(" & ")).join(" | ");
console.log("results of tools");
const result = (toolUseId, ...texts) => [
  { role: "assistant", content: [{ toolUse: { name: "look", toolUseId, input: {} } }] },
  { role: "user", content: [{ toolResult: { toolUseId, status: "success", content: texts.map((text) => ({ text })) } }] },
];
const messages = [
  { role: "user", content: [{ text: "Look." }] },
  ...result("call-1", "a till", "with 5 drawers"),
  ...result("call-2", "a door"),
  { role: "assistant", content: [{ text: "Seen." }] },
];
const first = new MadeUp(10_000, 0);
const contextManager = { strategies: [Offload.summarize("toolResults").when({ preserveRecent: 1 })] };
const looks = new Agent({ model: first, printer: false, messages, contextManager });
let counted = 0;
for (const number of [1, 2, 3]) {
  const { metrics } = await looks.invoke(`question ${number}`);
  counted = metrics.accumulatedUsage.outputTokens;
  console.log("  sent:", list(first.sent.at(-1).slice(2, 3)));
}
for (const summarized of first.summaries) console.log("  to summarize:", list(summarized));
console.log(`  output: ${10 * (first.sent.length + first.summaries.length)} tokens, counted: ${counted}`);

console.log("messages");
const second = new MadeUp(150, 40);
const talk = new Agent({ model: second, printer: false, contextManager: "auto" });
const made = [];
for (let number = 1; number <= 16; number++) {
  await talk.invoke(long(`question ${number} `, 40));
  made.push(second.summaries.length);
}
console.log("  summaries after each question:", made.join(" "));
console.log("  first message:", list(second.sent.at(-1).slice(0, 1)));
const said = (summarized) => list(summarized).replace(/(&|<\/?content>| )+/g, " ").trim();
for (const summarized of second.summaries) console.log("  to summarize:", said(summarized));
JS
timeout 60 node summaries.mjs 2>errors | tee seen || { cat errors; exit 2; }
diff seen - <<'SEEN'
results of tools
  sent: result ([Summarized: tool result,] summary 1 [refs: call-1_0, call-1_1])
  sent: result ([Summarized: tool result,] summary 2 [ref: call-1_0])
  sent: result ([Summarized: tool result,] summary 3 [ref: call-1_0])
  to summarize: <content> & a till & with 5 drawers & </content>
  to summarize: <content> & [Summarized: tool result,] summary 1 [refs: call-1_0, call-1_1] & </content>
  to summarize: <content> & [Summarized: tool result,] summary 2 [ref: call-1_0] & </content>
  output: 60 tokens, counted: 30
messages
  summaries after each question: 0 0 0 0 0 1 1 1 2 2 3 3 4 5 6 7
  first message: question 1  & [Summarized: 6 messages,] summary 1 & [Summarized: 6 messages,] summary 2 & [Summarized: 4 messages,] summary 3 & [Summarized: 4 messages,] summary 4 & [Summarized: 2 messages,] summary 5 & [Summarized: 2 messages,] summary 6 & [Summarized: 2 messages,] summary 7
  to summarize: [assistant] answer 1 [user] question 2 [assistant] answer 2 [user] question 3 [assistant] answer 3 [user] question 4
  to summarize: [assistant] answer 4 [user] question 5 [assistant] answer 5 [user] question 6 [assistant] answer 6 [user] question 7
  to summarize: [assistant] answer 7 [user] question 8 [assistant] answer 8 [user] question 9
  to summarize: [assistant] answer 9 [user] question 10 [assistant] answer 10 [user] question 11
  to summarize: [assistant] answer 11 [user] question 12
  to summarize: [assistant] answer 12 [user] question 13
  to summarize: [assistant] answer 13 [user] question 14
SEEN
