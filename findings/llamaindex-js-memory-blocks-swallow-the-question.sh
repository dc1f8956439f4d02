#!/usr/bin/env bash
# @llamaindex/core 0.6.22 (npm), its Memory: with memory blocks, a full window takes the newest question along, and with a static
# block alone everything that was said.
#
# Behaviour seen: what exceeds the short-term limit goes into the long-term blocks, and getLLM() gives blocks and rest. (1) There
# is no rest: what goes is everything, with the message that was just added. Where that is the user's, the model is sent the
# blocks and no question. (2) A static block keeps nothing, but it is a block: with it alone, all messages go and nobody takes
# them. The model is sent "Ann is a pilot." and not a word of the talk, which without any block it would have most of. (3) A fact
# block reads facts from the model's answer as JSON. If that comes in a code fence, a warning is logged, and the messages are
# gone as if they were kept. (4) When there are too many facts, the prompt to condense them says "less than {{ max_facts }} facts":
# the code replaces the placeholder without spaces. What is over the limit in the answer is cut. (5) A message in the form of the
# AI SDK's UI is stored as text: a call with its result becomes a text without a text. What went into blocks is given by get()
# as before, so that it is missing shows in the model's answers alone.
#
# Needs npm with a registry, and Node 20; the model is made up. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit @llamaindex/core@0.6.22 @llamaindex/env@0.1.30 >npm.log 2>&1 || { cat npm.log; exit 2; }
cat >remember.mjs <<'JS'
import { createMemory, factExtractionBlock, staticBlock } from "@llamaindex/core/memory";

const text = (name) => `${name} ${"word ".repeat(20)}`;
const name = ({ content }) => content.split(" word")[0].replaceAll("\n", " ") || "(empty)";
const names = (messages) => messages.map(name).join(", ");

async function talk(title, memoryBlocks) {
  let warnings = 0;
  const logger = { log() {}, error() {}, warn: () => (warnings += 1) };
  const memory = createMemory({ tokenLimit: 200, memoryBlocks, logger });
  for (const turn of [1, 2, 3]) {
    await memory.add({ role: "user", content: text(`question${turn}`) });
    await memory.add({ role: "assistant", content: text(`answer${turn}`) });
  }
  console.log(`${title}, before: ${names(await memory.getLLM())}`);
  await memory.add({ role: "user", content: text("question4") });
  console.log(`${title}, sent: ${names(await memory.getLLM())} (${warnings} warnings, ${(await memory.get()).length} stored)`);
  return memory;
}

const prompts = [];
const model = (answer) => ({
  complete: async ({ prompt }) => {
    prompts.push(prompt);
    return { text: answer };
  },
});
const facts = JSON.stringify({ facts: ["It is red.", "It is old.", "It is here."] });
const factsOf = (answer) => factExtractionBlock({ priority: 1, maxFacts: 2, llm: model(answer) });

await talk("no block", []);
await talk("static", [staticBlock({ content: "Ann is a pilot." })]);
await talk("facts", [factsOf(facts)]);
await talk("facts in a fence", [factsOf("```json\n" + facts + "\n```")]);
console.log("to condense:", prompts.map((prompt) => /less than.*/.exec(prompt)?.[0]).filter(Boolean).join());

const memory = createMemory();
const toolInvocation = { state: "result", toolCallId: "1", toolName: "look", args: {}, result: "seen" };
const parts = [{ type: "text", text: "I look." }, { type: "tool-invocation", toolInvocation }];
await memory.add({ id: "1", role: "assistant", content: "", parts });
console.log("a message with a tool:", JSON.stringify(await memory.get({ type: "vercel" })));
JS
timeout 60 node remember.mjs 2>errors | tee seen || { cat errors; exit 2; }
diff seen - <<'SEEN'
no block, before: question1, answer1, question2, answer2, question3, answer3
no block, sent: answer1, question2, answer2, question3, answer3, question4 (0 warnings, 7 stored)
static, before: Ann is a pilot., answer1, question2, answer2, question3, answer3
static, sent: Ann is a pilot. (0 warnings, 7 stored)
facts, before: (empty), question1, answer1, question2, answer2, question3, answer3
facts, sent: It is red. It is old. (0 warnings, 7 stored)
facts in a fence, before: (empty), question1, answer1, question2, answer2, question3, answer3
facts in a fence, sent: (empty) (1 warnings, 7 stored)
to condense: less than {{ max_facts }} facts
a message with a tool: [{"id":"1","role":"assistant","content":"I look.\n\n","parts":[{"type":"text","text":"I look."},{"type":"text"}]}]
SEEN
