#!/usr/bin/env bash
# @voltagent/core 2.10.0 with ai 6.0.325 (npm): once the window of the memory is full, the summary stays as it is, and what
# leaves the window is in nothing that the model is sent.
#
# Behaviour seen: an agent with a memory and `summarization`, whose window is the last ten messages unless a call sets another
# (`contextLimit`). How far the summary goes is kept as a number of messages, and compared with places in the window: when
# that is full and slides on, no message counts as new any more. (1) From the seventh of twelve questions on, with a window of
# 20 from the twelfth, no summary is written: at the end the model is sent that of the first three, and questions 10 to 12.
# (2) No summary has the call of a tool or its result, though its prompt asks for "important tool outputs": the code looks for
# parts of the type `tool-call` and `tool-result`, where stored messages have `tool-` and the tool's name. For the same reason
# (3) they count as nothing: with a result of 1,250 tokens, none is written at `triggerTokens: 1000`. Its page of the docs
# says none of this.
#
# Needs npm with a registry, and Node 20. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit @voltagent/core@2.10.0 ai@6.0.325 zod@4.6.7 >npm.log 2>&1 || { cat npm.log; exit 2; }
cat >window.mjs <<'JS'
import { setTimeout as sleep } from "node:timers/promises";
import { Agent, createTool, InMemoryStorageAdapter, Memory } from "@voltagent/core";
import { MockLanguageModelV3 } from "ai/test";
import { z } from "zod";

const usage = { inputTokens: { total: 10 }, outputTokens: { total: 10 } };
const say = (...content) => ({ content, finishReason: { unified: "stop" }, usage, warnings: [] });
const text = (words) => ({ type: "text", text: words });
const numbers = (value) => [...new Set(JSON.stringify(value).match(/(?<=question)\d+/g))].join(" ");
const sent = [];
const summarized = [];

const model = new MockLanguageModelV3({
  doGenerate: async ({ prompt }) => {
    await sleep(100);
    sent.push(prompt);
    const last = prompt.at(-1);
    const call = { type: "tool-call", toolCallId: "call", toolName: "look", input: "{}" };
    return last.role === "user" && JSON.stringify(last).includes("question1 ") ? say(call) : say(text("answer"));
  },
});
const writer = new MockLanguageModelV3({
  doGenerate: async ({ prompt }) => {
    summarized.push(JSON.stringify(prompt.at(-1).content));
    return say(text(`summary of question${numbers(prompt).replaceAll(" ", ", question")}`));
  },
});
const look = createTool({
  name: "look",
  description: "look",
  parameters: z.object({}),
  execute: async () => `code 4711 ${"word ".repeat(1000)}`,
});
async function talk(triggerTokens, turns) {
  const agent = new Agent({
    name: "agent",
    instructions: "prompt",
    model,
    tools: [look],
    memory: new Memory({ storage: new InMemoryStorageAdapter() }),
    summarization: { triggerTokens, model: writer },
  });
  for (let turn = 1; turn <= turns; turn++) {
    const before = summarized.length;
    const conversation = { userId: "user", conversationId: `conversation${triggerTokens}` };
    await agent.generateText(`question${turn} ${"word ".repeat(10)}`, conversation);
    await sleep(100);
    const summary = sent.at(-1).find(({ content }) => String(content).includes("summary of"))?.content ?? "";
    const messages = sent.at(-1).filter(({ role }) => role !== "system");
    const written = summarized.length > before ? ", written now" : "";
    console.log(`turn ${turn}: summary [${numbers(summary)}]${written}, messages [${numbers(messages)}]`);
  }
}
await talk(50, 12);
console.log("with the tool's result:", summarized.filter((words) => words.includes("4711")).length, "of", summarized.length);
console.log("summaries due at 1,000 tokens:");
await talk(1000, 5);
process.exit(0);
JS
NODE_ENV=production timeout 60 node window.mjs 2>/dev/null | tee seen
diff seen - <<'SEEN'
turn 1: summary [], messages [1]
turn 2: summary [], messages [1 2]
turn 3: summary [], messages [1 2 3]
turn 4: summary [1], written now, messages [2 3 4]
turn 5: summary [1 2], written now, messages [3 4 5]
turn 6: summary [1 2 3], written now, messages [4 5 6]
turn 7: summary [1 2 3], messages [5 6 7]
turn 8: summary [1 2 3], messages [6 7 8]
turn 9: summary [1 2 3], messages [7 8 9]
turn 10: summary [1 2 3], messages [8 9 10]
turn 11: summary [1 2 3], messages [9 10 11]
turn 12: summary [1 2 3], messages [10 11 12]
with the tool's result: 0 of 3
summaries due at 1,000 tokens:
turn 1: summary [], messages [1]
turn 2: summary [], messages [1 2]
turn 3: summary [], messages [1 2 3]
turn 4: summary [], messages [1 2 3 4]
turn 5: summary [], messages [1 2 3 4 5]
SEEN
