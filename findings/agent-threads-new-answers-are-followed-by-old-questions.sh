#!/usr/bin/env bash
# @lleverage-ai/agent-threads 0.1.0-alpha.6 (npm): a transcript goes on after an answer that was made again, and leaves out what
# was just said on another branch.
#
# Behaviour seen: it stores "durable transcripts" of runs, with branches. A run names the message it forks from "if this run is a
# regeneration". (1) One that is none has no parent: its first message is a root, and the transcript is every root and what
# comes after it, one behind the other. So where the first answer of two turns is made again, the second turn stays: the new
# answer is followed by a question to the old one. The tree says that there is one fork, with no way from the old answer to what
# was said after it. (2) If each run names the message it goes on from, the second turn goes with the first answer. But at a
# fork the child that was made last counts, not the branch that was used last: a third question, asked after the second
# answer, is committed and not in the transcript, nor in the context that FullContextBuilder makes for the next call, which
# takes no choice of branches. (3) `createdAt` of a message, "when the message was created", is when its run was committed; the
# events had the right times. (4) With includeToolResults: false the calls stay without
# results, with maxMessages a result can come first; providers refuse both.
#
# Needs npm with a registry, and Node 20. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit @lleverage-ai/agent-threads@0.1.0-alpha.6 zod@4.6.7 >npm.log 2>&1 || { cat npm.log; exit 2; }
cat >threads.mjs <<'JS'
import { setTimeout as sleep } from "node:timers/promises";
import { FullContextBuilder, RunManager } from "@lleverage-ai/agent-threads";
import { InMemoryEventStore } from "@lleverage-ai/agent-threads/stores/event-memory";
import { InMemoryLedgerStore } from "@lleverage-ai/agent-threads/stores/ledger-memory";

const threadId = "thread";
const question = (content) => ({ kind: "user-message", payload: { content } });
const answer = (delta) => ({ kind: "text-delta", payload: { delta } });
const called = { kind: "tool-call", payload: { toolCallId: "1", toolName: "look", input: {} } };
const result = { kind: "tool-result", payload: { toolCallId: "1", output: "seen" } };
const text = ({ parts }) => parts.map((part) => part.text ?? part.type).join(" and ");
const texts = (messages) => messages.map(text).join(", ");

function open() {
  const ledger = new InMemoryLedgerStore();
  const events = new InMemoryEventStore();
  const manager = new RunManager(ledger, events);
  const context = new FullContextBuilder(ledger);
  return {
    run: async (said, after, wait = 0) => {
      const everything = await ledger.getTranscript({ threadId, branch: "all" });
      const forkFromMessageId = everything.find((message) => text(message) === after)?.id;
      const { runId, streamId } = await manager.beginRun({ threadId, forkFromMessageId });
      for (const event of said) {
        await manager.appendEvents(runId, [event]);
        await sleep(wait);
      }
      await manager.finalizeRun(runId, "committed");
      return events.replay(streamId);
    },
    transcript: () => ledger.getTranscript({ threadId }),
    forks: async () => (await ledger.getThreadTree(threadId)).forkPoints.length,
    context: async (options) => (await context.build({ threadId, ...options })).messages,
  };
}

const turns = open();
await turns.run([question("question 1"), answer("answer 1")]);
await turns.run([question("question 2"), answer("answer 2")]);
await turns.run([answer("answer 1 again")], "question 1");
console.log("made again:", texts(await turns.transcript()), `(${await turns.forks()} fork)`);

const chain = open();
await chain.run([question("question 1"), answer("answer 1")]);
await chain.run([question("question 2"), answer("answer 2")], "answer 1");
await chain.run([answer("answer 1 again")], "question 1");
console.log("each after one, made again:", texts(await chain.transcript()));
await chain.run([question("question 3"), answer("answer 3")], "answer 2");
console.log("went on after answer 2:", texts(await chain.transcript()));
console.log("what the next call is sent:", texts(await chain.context()));

const slow = open();
const stored = await slow.run([question("question 1"), answer("answer 1")], undefined, 500);
const differ = (stamps) => new Date(stamps[1]) - new Date(stamps[0]) >= 400;
console.log("the events have times apart:", differ(stored.map((event) => event.timestamp)));
console.log("the messages have times apart:", differ((await slow.transcript()).map((message) => message.createdAt)));

const tools = open();
const end = { kind: "step-finished", payload: {} };
await tools.run([question("question 1"), called, result, end, answer("answer 1")]);
console.log("no results of tools:", texts(await tools.context({ includeToolResults: false })));
console.log("two messages:", texts(await tools.context({ maxMessages: 2 })));
JS
timeout 60 node threads.mjs 2>errors | tee seen || { cat errors; exit 2; }
diff seen - <<'SEEN'
made again: question 1, answer 1 again, question 2, answer 2 (1 fork)
each after one, made again: question 1, answer 1 again
went on after answer 2: question 1, answer 1 again
what the next call is sent: question 1, answer 1 again
the events have times apart: true
the messages have times apart: false
no results of tools: question 1, tool-call, answer 1
two messages: tool-result, answer 1
SEEN
