// Makes the database of pi's agent library for its tests: node make_pi_sqlite.mjs PACKAGE FOLDER
//
// PACKAGE is the folder packages/storage/sqlite-node of pi's repository at 0.81.1, with npm @earendil-works/pi-agent-core
// of the same version installed beside it. What is in FOLDER afterwards is packed by tests/programs/made.py.
import { writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [home, folder] = process.argv.slice(2).map((path) => resolve(path));
const library = await import(pathToFileURL(join(home, "src/index.ts")));
const done = async (value) => ({ ok: true, value });

let time = 1790000000000;
const usage = (input, dollars) => ({
  input, output: 20, cacheRead: 40, cacheWrite: 10, totalTokens: input + 70,
  cost: { input: 0, output: dollars, cacheRead: 0, cacheWrite: 0, total: dollars },
});
const user = (text) => ({ role: "user", content: [{ type: "text", text }], timestamp: time++ });
const answer = (text, fields = {}) => ({
  role: "assistant", content: [{ type: "text", text }], api: "anthropic-messages", provider: "anthropic", model: "m-1",
  usage: usage(100, 0.25), stopReason: "stop", timestamp: time++, ...fields,
});

const repo = new library.SqliteSessionRepo({
  env: { absolutePath: done, createDir: () => done(), exists: () => done(true) },
  sqlite: library.createNodeSqliteFactory(),
  databasePath: join(folder, "sessions.sqlite"),
});
const seen = {};
const note = async (name, session) => {
  const { messages } = await session.buildContext();
  const { totalTokens } = await session.getSessionStats();
  seen[name] = { messages, totalTokens, leaf: await session.getLeafId(), entries: await session.getEntries() };
};
const create = (id, fields) => repo.create({ cwd: "/home/shop", id, ...fields });

const talk = await create("talk", { metadata: { profile: "reviewer" } });
await talk.appendMessage(user("one"));
await talk.appendModelChange("anthropic", "m-1");
await talk.appendThinkingLevelChange("high");
await talk.appendActiveToolsChange(["read"]);
const call = { type: "toolCall", id: "c1", name: "read", arguments: { path: "a" } };
await talk.appendMessage(answer("", { content: [call], stopReason: "toolUse" }));
const content = [{ type: "text", text: "AAA" }];
await talk.appendMessage({ role: "toolResult", toolCallId: "c1", toolName: "read", content, isError: false, timestamp: time++ });
await talk.appendLabel(await talk.appendMessage(answer("answer one")), "good");
await talk.appendSessionName("A name");
await talk.appendCustomEntry("note", { x: 1 });
await talk.appendCustomMessageEntry("mine", "a custom message", true);
const two = await talk.appendMessage(user("two"));
await talk.appendMessage(answer("answer two"));
await talk.appendCompaction("the summary so far", two, 900, undefined, undefined, usage(5, 0.125));
await talk.appendMessage(user("three"));
await note("talk", talk);

const fork = await repo.fork(await talk.getMetadata(), { cwd: "/home/shop", id: "fork", entryId: two, position: "at" });
await fork.appendMessage(answer("in the fork"));
await note("fork", fork);

const moved = await create("moved");
await moved.appendMessage(user("first"));
const second = await moved.appendMessage(answer("second"));
await moved.appendMessage(user("third"));
await moved.moveTo(second, { summary: "a branch summary", usage: usage(7, 0.5) });
await moved.appendMessage(user("other"));
await moved.moveTo(second);
await note("moved", moved);

const gone = await create("gone");
await gone.appendMessage(user("gone"));
await gone.moveTo(null);
await note("gone", gone);
writeFileSync(join(folder, "seen.json"), JSON.stringify(seen));
