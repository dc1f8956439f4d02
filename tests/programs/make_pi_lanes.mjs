// Makes the files of pi's agent library, version 4, for its tests: node make_pi_lanes.mjs PACKAGE FOLDER
//
// PACKAGE is the folder of npm @earendil-works/pi-agent-core, 0.84.4 or 0.87.1, with what it needs beside it. The files in FOLDER
// of both, and seen.json of each, are packed by tests/programs/made.py.
import { readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [home, folder] = process.argv.slice(2).map((path) => resolve(path));
const { version } = JSON.parse(readFileSync(join(home, "package.json")));
const library = await import(pathToFileURL(join(home, "dist/node.js")));
const { buildSessionContext } = await import(pathToFileURL(join(home, "dist/harness/session/context.js")));
const isOlder = version.startsWith("0.84.");
const context = library.BACKGROUND_CONTEXT;
const fs = new library.NodeExecutionEnv({ cwd: folder });
const repo = new library.JsonlSessionRepo({ fs, fileSystem: fs, sessionsRoot: join(folder, version) });

let time = 1790000000000;
const usage = (input, dollars) => ({
  input, output: 20, cacheRead: 40, cacheWrite: 10, totalTokens: input + 70,
  cost: { input: 0, output: dollars, cacheRead: 0, cacheWrite: 0, total: dollars },
});
const user = (text) => ({ role: "user", content: [{ type: "text", text }], timestamp: time++ });
const answer = (text, input) => ({
  role: "assistant", content: [{ type: "text", text }], api: "anthropic-messages", provider: "anthropic", model: "m-1",
  usage: usage(input, 0.25), stopReason: "stop", timestamp: time++,
});
const value = (namespace, key, next) => ({ kind: "value", op: "set", namespace, key, value: next });

const seen = {};
let session, number = 0;
const tip = (lane) => (isOlder ? session.view(lane).getLeafId() : session.getBranchTip(lane, context));
const place = async (lane, fields, calls = []) => {
  const id = `e${++number}`;
  const rows = calls.map((call) => ({ id: `c${++number}`, ...call }));
  if (isOlder) {
    await session.appendEntry({ id, ...fields }, lane);
    for (const row of rows) {
      await session.appendRecord({ type: "usage", lane, cause: "assistant", runId: "r", attempt: 1, stopReason: "stop", entryId: id, ...row });
    }
  } else {
    const writes = rows.map((row) => ({ kind: "usage", row: { adjustment: false, ...row } }));
    const entry = { kind: "entry", entry: { id, parentId: await tip(lane), ...fields } };
    await session.mutate((mutator) => mutator.commit([...writes, entry, value("pi.branch.tip", lane, id)], context), context);
  }
  return id;
};
const say = (text, lane = "main") => place(lane, { type: "message", message: user(text) });
const reply = (text, input, lane = "main") => {
  const message = answer(text, input);
  return place(lane, { type: "message", message }, [{ usage: message.usage, ...(isOlder ? {} : { entryId: `e${number + 1}` }) }]);
};
const begin = async (id) => {
  session = await repo.create({ cwd: "/home/shop", id, metadata: { profile: "reviewer" } }, context);
  if (!isOlder) await session.createBranch("main", null, context);
};
const note = async (name) => {
  const start = await tip("main");
  const path = isOlder ? await session.findEntriesOnBranch({ start, order: "oldestFirst" }) : await session.scanBranch({ start, order: "oldestFirst" }, context);
  const built = await buildSessionContext(path, undefined, context);
  const messages = built.messages ?? built;
  const stats = await session.getStats(context);
  const entries = await session.findEntries({ order: isOlder ? "oldestFirst" : "asc", ...(isOlder ? {} : { limit: 1000 }) }, context);
  seen[name] = { messages, totalTokens: stats.totalTokens ?? stats.usage.totalTokens, leaf: start, parents: entries.map((entry) => [entry.id, entry.parentId]) };
};

await begin("talk");
await say("one");
const one = await reply("answer one", 100);
await session.setName("A name", context);
await session.setLabel(one, "good", context);
await (isOlder ? session.createLane("side", one) : session.createBranch("side", one, context));
await say("aside", "side");
await reply("answer aside", 200, "side");
const two = user("two");
await place("main", { type: "message", message: two });
await reply("answer two", 300);
const retainedTail = [two, (await session.getEntry(await tip("main"), context)).message];
const summary = { type: "compaction", summary: "the summary so far", retainedTail, tokensBefore: 900, usage: usage(5, 0.125) };
const requests = isOlder ? [] : [{ usage: usage(50, 0.5) }];
await place("main", { fromHook: false, ...summary }, [...requests, { usage: summary.usage, cause: "compaction" }]);
await say("three");
await place("main", { type: "custom", customType: "note", data: { x: 1 } });
await note("talk");
const metadata = isOlder ? await session.getMetadata() : session.metadata;
if (isOlder) {
  session = await repo.fork(metadata, { cwd: "/home/shop", id: "fork", entryId: one, position: "at" });
  await reply("in the fork", 400);
  await note("fork");
}
await begin("moved");
const first = await say("first");
await say("second");
if (isOlder) await session.moveLane("main", first);
else await session.setValue({ namespace: "pi.branch.tip", key: "main", kind: "value" }, first, context);
await say("third");
await note("moved");
writeFileSync(join(folder, version, "seen.json"), JSON.stringify(seen));
