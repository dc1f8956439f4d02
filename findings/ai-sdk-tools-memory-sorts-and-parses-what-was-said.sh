#!/usr/bin/env bash
# @ai-sdk-tools/memory 1.2.0 (npm), with drizzle-orm 0.36.4 for its store in SQLite: messages come back without their roles,
# parsed as JSON if they are JSON, and sorted by role within a second; which ones come back depends on the store.
#
# Behaviour seen: a message is saved with role, text and time, and getMessages() is to give ConversationMessage[]. (1) It gives
# the texts alone. formatHistory(), which takes ConversationMessage[], makes "**undefined**: undefined" of them. (2) A text that
# is valid JSON is parsed: of "2026" comes a number, of '{"year": 2026}' an object. The agents of @ai-sdk-tools/agents save whole
# messages as JSON; who saves texts, as the types say, is not told. (3) The schema that it has for SQLite keeps times in whole
# seconds; rows of one second are sorted by role, then as the database likes. Four messages of one second, as an import has
# them, come back as both questions, then both answers, each pair the later one first. (4) Asked with a userId,
# the stores in memory and Redis also give messages saved without one, which is a field that may be left out; SQLite gives none:
# it compares the column to NULL by "=". (5) Of 150 messages, memory gives all, SQLite 100 unless a limit is given. In Redis the
# first 50 are deleted when the others are saved; its README says "default: no expiration".
#
# Needs npm with a registry, and Node 20; the client of Redis is made up. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit @ai-sdk-tools/memory@1.2.0 drizzle-orm@0.36.4 @libsql/client@0.14.0 >npm.log 2>&1 ||
  { cat npm.log; exit 2; }
cat >remember.mjs <<'JS'
import { formatHistory } from "@ai-sdk-tools/memory";
import { DrizzleProvider } from "@ai-sdk-tools/memory/drizzle";
import { SQL_SCHEMAS, createSqliteMessagesSchema } from "@ai-sdk-tools/memory/drizzle-schema";
import { InMemoryProvider } from "@ai-sdk-tools/memory/in-memory";
import { RedisProvider } from "@ai-sdk-tools/memory/redis";
import { createClient } from "@libsql/client";
import { drizzle } from "drizzle-orm/libsql";
import { integer, sqliteTable, text } from "drizzle-orm/sqlite-core";

const schema = Object.entries(createSqliteMessagesSchema());
const columns = Object.fromEntries(schema.map(([name, make]) => [name, make({ integer, text })]));
const client = createClient({ url: "file:chat.db" });
await client.executeMultiple(SQL_SCHEMAS.sqlite.messages);
const messagesTable = sqliteTable("conversation_messages", columns);

const lists = new Map();
const list = (key) => lists.get(key) ?? [];
const redis = {
  rpush: async (key, ...values) => lists.set(key, [...list(key), ...values]),
  ltrim: async (key, start) => lists.set(key, list(key).slice(start)),
  lrange: async (key, start) => list(key).slice(start),
};

const stores = {
  memory: new InMemoryProvider(),
  sqlite: new DrizzleProvider(drizzle(client), { messagesTable }),
  redis: new RedisProvider(redis),
};
const said = [
  ["user", "Which year?"],
  ["assistant", "2026"],
  ["user", "As JSON?"],
  ["assistant", '{"year": 2026}'],
];
const start = Date.parse("2026-11-01T10:00:00.000Z");
for (const [name, store] of Object.entries(stores)) {
  const save = (chatId, role, content, after) =>
    store.saveMessage({ chatId, role, content, timestamp: new Date(start + after) });
  for (const [index, [role, content]] of said.entries()) await save("short", role, content, 100 * index);
  const got = await store.getMessages({ chatId: "short" });
  console.log(`${name}:`, JSON.stringify(got));
  console.log("  formatted:", formatHistory(got.slice(-1)).trim().split("\n").at(-1));
  console.log("  for a user:", (await store.getMessages({ chatId: "short", userId: "ann" })).length);
  for (let index = 0; index < 150; index++) await save("long", "user", `message ${index}`, 2000 * index);
  const all = await store.getMessages({ chatId: "long" });
  const limited = await store.getMessages({ chatId: "long", limit: 1000 });
  console.log(`  of 150: ${all.length}, with a limit of 1000: ${limited.length}, from ${limited[0]}`);
}
JS
timeout 60 node remember.mjs 2>errors | tee seen || { cat errors; exit 2; }
diff seen - <<'SEEN'
memory: ["Which year?",2026,"As JSON?",{"year":2026}]
  formatted: **undefined**: undefined
  for a user: 4
  of 150: 150, with a limit of 1000: 150, from message 0
sqlite: ["As JSON?","Which year?",{"year":2026},2026]
  formatted: **undefined**: undefined
  for a user: 0
  of 150: 100, with a limit of 1000: 150, from message 0
redis: ["Which year?",2026,"As JSON?",{"year":2026}]
  formatted: **undefined**: undefined
  for a user: 4
  of 150: 100, with a limit of 1000: 100, from message 50
SEEN
