#!/usr/bin/env bash
# genkit 1.42.0 (npm), its agents with a session store: a turn that fails takes the whole conversation with it where one
# snapshot is kept, and elsewhere it is answered with the answer before it.
#
# Behaviour seen; the model fails once, as by a rate limit: (1) each turn is a snapshot with the whole state, and
# FileSessionStore deletes those that are "older than maxPersistedChainLength entries". The failed turn is an entry, too, and
# cannot be gone on from: with a length of 1 the last good snapshot is deleted for it. The chat at hand answers "not found" to
# everything from then on, and by the session's id a new, empty conversation begins under the old id. (2) In the chat at
# hand the failed question stays in `messages`, with the answer to the question before it once more; without a store it is
# taken out. (3) `loadChat({ sessionId })` loads the failed turn: each send is refused ("not resumable"), whereas
# `chat({ sessionId })` goes on from the last good one. (4) With `rejectBranchingSessions` a session is "branching" once a
# turn failed and another was made, though nobody made a branch, and cannot be gone on with by its id. (5) A message that is
# sent while a tool waits for the person's answer goes to the model behind a call without a result; providers refuse that.
#
# Needs npm with a registry, and Node 20; installs 320 MB. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit genkit@1.42.0 >npm.log 2>&1 || { cat npm.log; exit 2; }
export HOME=$work
cat >turns.mjs <<'JS'
import { FileSessionStore, InMemorySessionStore, genkit, z } from "genkit/beta";

const ai = genkit({});
let next = "answer";
let sent = "";
const ask = ai.defineInterrupt({ name: "ask", description: "Ask.", inputSchema: z.object({}), outputSchema: z.string() });
const show = ({ text, toolRequest }) => text ?? (toolRequest ? "call" : "result");
const list = (messages) => messages.flatMap(({ content }) => content.map(show)).join(", ") || "nothing";

ai.defineModel({ name: "made-up", supports: { multiturn: true, tools: true } }, async ({ messages }) => {
  sent = list(messages);
  const does = next;
  next = "answer";
  if (does === "fail") throw new Error("429");
  const call = { toolRequest: { name: "ask", ref: "1", input: {} } };
  const text = `answer to ${list(messages.slice(-1))}`;
  return { message: { role: "model", content: [does === "call" ? call : { text }] }, finishReason: "stop" };
});

const define = (name, store) => ai.defineAgent({ name, model: "made-up", tools: [ask], store });
const withoutIds = (message) => message.replace(/[0-9a-f]{8}-[0-9a-f-]{27}/, "ID");

async function say(chat, text) {
  const told = await chat.send(text).then(() => `sent: ${sent}`, ({ message }) => withoutIds(message));
  console.log(`  ${text} -> ${told}`);
}

async function failOnce(name, store, init = { sessionId: "session" }) {
  console.log(name);
  const agent = define(name, store);
  const chat = agent.chat(init);
  await say(chat, "one");
  next = "fail";
  await say(chat, "two");
  console.log("  messages:", list(chat.messages));
  return { agent, chat };
}

const kept = await failOnce("one kept", new FileSessionStore("snapshots", { maxPersistedChainLength: 1 }));
await say(kept.chat, "three");
console.log("  by the session's id");
await say(kept.agent.chat({ sessionId: "session" }), "four");

const all = await failOnce("all kept", new InMemorySessionStore());
console.log("  loaded");
await say(await all.agent.loadChat({ sessionId: "session" }), "three");
console.log("  by the session's id");
await say(all.agent.chat({ sessionId: "session" }), "four");

const strict = await failOnce("branches rejected", new InMemorySessionStore({ rejectBranchingSessions: true }));
await say(strict.chat, "three");
console.log("  by the session's id");
await say(strict.agent.chat({ sessionId: "session" }), "four");

await failOnce("no store", undefined, {});

console.log("a tool waits");
const chat = define("waiting", new InMemorySessionStore()).chat({ sessionId: "session" });
next = "call";
await say(chat, "one");
await say(chat, "two");
JS
timeout 60 node turns.mjs 2>errors | tee seen || { cat errors; exit 2; }
diff seen - <<'SEEN'
one kept
  one -> sent: one
  two -> 429
  messages: one, answer to one, two, answer to one
  three -> NOT_FOUND: Snapshot ID not found
  by the session's id
  four -> sent: four
all kept
  one -> sent: one
  two -> 429
  messages: one, answer to one, two, answer to one
  loaded
  three -> INVALID_ARGUMENT: Snapshot ID is not resumable (status: failed). Only 'completed' snapshots can be resumed.
  by the session's id
  four -> sent: one, answer to one, four
branches rejected
  one -> sent: one
  two -> 429
  messages: one, answer to one, two, answer to one
  three -> sent: one, answer to one, three
  by the session's id
  four -> FAILED_PRECONDITION: Session 'session' has branching snapshots (2 leaves), so there is no single latest snapshot. This happens when a conversation is branched (e.g. regenerate). Resume by snapshotId instead.
no store
  one -> sent: one
  two -> 429
  messages: one, answer to one
a tool waits
  one -> sent: one
  two -> sent: one, call, two
SEEN
