#!/usr/bin/env bash
# @convex-dev/agent 0.7.3 with convex 1.48.0 (npm), on convex-test 0.0.55, Convex's own backend for tests: what a search of the
# messages finds, and what a copy of a thread has.
#
# Behaviour seen, in the component that stores an agent's threads: (1) `searchMessages` by text and by vector at once puts the
# hits of both together, sorts them by their place in the thread, and keeps as many as `limit` says from the beginning: the oldest
# hits, not the best. Here each search alone finds "My cat is called Tom.", the first by vector, and both together do not.
# The ranks that are computed of both before that are used for nothing else than which hits by vector there are. (2)
# `cloneThread` looks for messages that are there already with the bounds of their range the wrong way round, and finds none:
# cloned again, as after a failure or to bring a copy up to date, all are there twice, each beside its double, under one
# place. (3) With `limit` or `batchSize`, which are among its arguments, it fails, since it hands them on to a function that has
# none.
#
# Needs npm with a registry, and Node 20. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit @convex-dev/agent@0.7.3 convex@1.48.0 convex-test@0.0.55 convex-helpers@0.1.135 \
    ai@7.0.173 react@19 >npm.log 2>&1 || { cat npm.log; exit 2; }
export HOME=$work
cat >threads.mjs <<'JS'
import { readdirSync } from "node:fs";
import { convexTest } from "convex-test";
import { anyApi } from "convex/server";

const folder = new URL("node_modules/@convex-dev/agent/dist/component/", import.meta.url);
const files = readdirSync(folder, { recursive: true }).filter((file) => file.endsWith(".js"));
const modules = Object.fromEntries(files.map((file) => [`./component/${file}`, () => import(new URL(file, folder))]));
const { default: schema } = await import(new URL("schema.js", folder));
const backend = convexTest(schema, modules);
const { messages, threads } = anyApi;

const vector = (angle) => [Math.cos(angle), Math.sin(angle), ...Array(126).fill(0)];
const create = async () => (await backend.mutation(threads.createThread, {}))._id;
function add(threadId, contents, vectors) {
  const embeddings = vectors && { model: "model", dimension: 128, vectors };
  const docs = contents.map((content, index) => ({ message: { role: index % 2 ? "assistant" : "user", content } }));
  return backend.mutation(messages.addMessages, { threadId, messages: docs, embeddings });
}
async function stored(threadId) {
  const options = { threadId, order: "asc", paginationOpts: { cursor: null, numItems: 100 } };
  const { page } = await backend.query(messages.listMessagesByThreadId, options);
  return page.map(({ order, stepOrder, message }) => `${order}.${stepOrder} ${message.content}`).join(" | ");
}

const thread = await create();
const said = ["Tom comes at nine.", "Noted.", "We have pets.", "How nice.", "My cat is called Tom.", "A good name."];
await add(thread, said, [1.2, 1.5, 0.3, 1.4, 0.1, 1.3].map(vector));
const question = { threadId: thread, limit: 2, messageRange: { before: 0, after: 0 } };
const text = { textSearch: true, text: "Tom" };
const angle = { vectorSearch: true, embedding: vector(0), embeddingModel: "model" };
for (const [name, options] of Object.entries({ text, vector: angle, both: { ...text, ...angle } })) {
  const found = await backend.action(messages.searchMessages, { ...question, ...options });
  console.log(`by ${name}:`, found.map((message) => message.text).join(" | "));
}

const source = await create();
await add(source, ["Q1", "A1", "Q2", "A2"]);
const copy = await create();
const clone = (options) => backend.action(messages.cloneThread, { sourceThreadId: source, targetThreadId: copy, ...options });
await clone();
console.log("cloned:", await stored(copy));
await add(source, ["Q3", "A3"]);
await clone();
console.log("cloned again:", await stored(copy));
await clone({ limit: 2 }).catch((error) => console.log("with a limit:", error.message));
process.exit(0);
JS
timeout 60 node threads.mjs 2>errors | tee seen || { cat errors; exit 2; }
diff seen - <<'SEEN'
by text: Tom comes at nine. | My cat is called Tom.
by vector: We have pets. | My cat is called Tom.
by both: Tom comes at nine. | We have pets.
cloned: 0.0 Q1 | 0.1 A1 | 1.0 Q2 | 1.1 A2
cloned again: 0.0 Q1 | 0.0 Q1 | 0.1 A1 | 0.1 A1 | 1.0 Q2 | 1.0 Q2 | 1.1 A2 | 1.1 A2 | 2.0 Q3 | 2.1 A3
with a limit: Validator error: Unexpected field `limit` in object
SEEN
