#!/usr/bin/env bash
# @google/adk 2.0.0 (npm), the Agent Development Kit for JavaScript: after a compaction the model is sent what is kept twice, or
# answers are sent no more that no summary has.
#
# Behaviour seen, with the runner and sessions in memory: (1) AnchoredContextCompactor is to keep the last events and one
# summary of the rest. The session stores the summary behind the events that were kept; in the next turn they are taken for
# old ones that stay, and for those to keep: from the second compaction on they are in the list, and in the request, twice.
# (2) What is summarized is told by time: all up to the last event in the summary. The event of an answer is made before the
# model is asked, often in the millisecond of the question (here the clock goes on in calls of models alone). With an even
# number of events to keep the cut is between the two: the answer is in no summary, and is sent no more. (3) Anchored
# compaction adds up tokens over events, and of each answer the whole prompt counts: three prompts of 100 tokens are over a
# limit of 250. (4) Of calls and results of tools the summary is told nothing but "[Event 2 - Author: agent]".
# (5) TruncatingContextCompactor with `preserveLeadingEvents: 2` sends a call without its result; providers refuse that.
#
# Needs npm with a registry, and Node 20; installs 150 MB. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit @google/adk@2.0.0 >npm.log 2>&1 || { cat npm.log; exit 2; }
export HOME=$work
cat >compact.mjs <<'JS'
import * as adk from "@google/adk";

let now = Date.parse("2026-11-27T22:10:00.000Z");
Date.now = () => now;

class Model extends adk.BaseLlm {
  constructor(says, usageMetadata) {
    super({ model: "made-up" });
    Object.assign(this, { says, usageMetadata, sent: [] });
  }
  async *generateContentAsync({ contents }) {
    this.sent.push(structuredClone(contents));
    now += 1000;
    const calls = contents.at(-1).parts[0].text === "Look.";
    const part = calls ? { functionCall: { name: "look", args: {}, id: "1" } } : { text: `${this.says} ${this.sent.length}` };
    yield { content: { role: "model", parts: [part] }, usageMetadata: this.usageMetadata };
  }
}

const look = new adk.FunctionTool({ name: "look", description: "Look.", execute: async () => ({ seen: "a till" }) });
const show = ({ text, functionCall }) => text?.replace("[Previous Context Summary]:\n", "") ?? (functionCall ? "call" : "result");
const list = (contents) => contents.map(({ parts }) => parts.map(show).join()).join(", ");

/** Ask the questions one after the other. Print what the model and the summarizer are sent. */
async function talk(name, compactor, options, questions, { waits, usage } = {}) {
  const summaries = new Model("summary");
  const model = new Model("answer", usage);
  const contextCompactors = [new compactor({ ...options, summarizer: new adk.LlmSummarizer({ llm: summaries, prompt: "-" }) })];
  const beforeAgentCallback = () => void (now += waits ?? 0);
  const agent = new adk.LlmAgent({ name: "agent", model, tools: [look], contextCompactors, beforeAgentCallback });
  const runner = new adk.InMemoryRunner({ agent, appName: "shop" });
  const { id } = await runner.sessionService.createSession({ appName: "shop", userId: "ann" });
  console.log(name);
  for (const text of questions) {
    now += 60_000;
    const newMessage = { role: "user", parts: [{ text }] };
    for await (const event of runner.runAsync({ userId: "ann", sessionId: id, newMessage })) void event;
    console.log("  sent:", list(model.sent.at(-1)));
  }
  for (const [content] of summaries.sent) console.log("  to summarize:", JSON.stringify(content.parts[0].text.slice(3).trim()));
}

const questions = ["question 1", "question 2", "question 3", "question 4", "question 5"];
const keep = { tokenThreshold: 5, eventRetentionSize: 4 };
await talk("anchored", adk.AnchoredContextCompactor, keep, questions, { waits: 1 });
await talk("by tokens, a millisecond apart", adk.TokenBasedContextCompactor, keep, questions, { waits: 1 });
await talk("by tokens, in one millisecond", adk.TokenBasedContextCompactor, keep, questions);
const usage = { promptTokenCount: 100, candidatesTokenCount: 5, totalTokenCount: 105 };
const limit = { tokenThreshold: 250, eventRetentionSize: 1 };
const looks = ["Look.", "question 2", "question 3"];
await talk("limit of 250, prompts of 100", adk.AnchoredContextCompactor, limit, looks, { waits: 1, usage });
await talk("truncating", adk.TruncatingContextCompactor, { threshold: 3, preserveLeadingEvents: 2 }, looks);
JS
timeout 60 node compact.mjs 2>errors | tee seen || { cat errors; exit 2; }
diff seen - <<'SEEN'
anchored
  sent: question 1
  sent: question 1, answer 1, question 2
  sent: summary 1, answer 1, question 2, answer 2, question 3
  sent: summary 2, answer 2, question 3, answer 2, question 3, answer 3, question 4
  sent: summary 3, answer 3, question 4, answer 3, question 4, answer 4, question 5
  to summarize: "[Event 1 - Author: user]\nquestion 1"
  to summarize: "[Event 1 - Author: system]\nsummary 1\n\n[Event 2 - Author: agent]\nanswer 1\n\n[Event 3 - Author: user]\nquestion 2"
  to summarize: "[Event 1 - Author: system]\nsummary 2\n\n[Event 2 - Author: agent]\nanswer 2\n\n[Event 3 - Author: user]\nquestion 3"
by tokens, a millisecond apart
  sent: question 1
  sent: question 1, answer 1, question 2
  sent: summary 1, answer 1, question 2, answer 2, question 3
  sent: summary 2, answer 2, question 3, answer 3, question 4
  sent: summary 3, answer 3, question 4, answer 4, question 5
  to summarize: "[Event 1 - Author: user]\nquestion 1"
  to summarize: "[Event 1 - Author: system]\nsummary 1\n\n[Event 2 - Author: agent]\nanswer 1\n\n[Event 3 - Author: user]\nquestion 2"
  to summarize: "[Event 1 - Author: system]\nsummary 2\n\n[Event 2 - Author: agent]\nanswer 2\n\n[Event 3 - Author: user]\nquestion 3"
by tokens, in one millisecond
  sent: question 1
  sent: question 1, answer 1, question 2
  sent: summary 1, question 2, answer 2, question 3
  sent: summary 2, question 3, answer 3, question 4
  sent: summary 3, answer 3, question 4, answer 4, question 5
  to summarize: "[Event 1 - Author: user]\nquestion 1"
  to summarize: "[Event 1 - Author: system]\nsummary 1\n\n[Event 2 - Author: user]\nquestion 2"
  to summarize: "[Event 1 - Author: system]\nsummary 2\n\n[Event 2 - Author: user]\nquestion 3"
limit of 250, prompts of 100
  sent: Look., call, result
  sent: Look., call, result, answer 2, question 2
  sent: summary 1, question 3
  to summarize: "[Event 1 - Author: user]\nLook.\n\n[Event 2 - Author: agent]\n\n\n[Event 3 - Author: agent]\n\n\n[Event 4 - Author: agent]\nanswer 2\n\n[Event 5 - Author: user]\nquestion 2\n\n[Event 6 - Author: agent]\nanswer 3"
truncating
  sent: Look., call, result
  sent: Look., call, result, answer 2, question 2
  sent: Look., call, question 2, answer 3, question 3
SEEN
