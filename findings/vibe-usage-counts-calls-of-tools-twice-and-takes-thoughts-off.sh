#!/usr/bin/env bash
# @vibe-cafe/vibe-usage 0.12.0 (npm), which uploads the token counts of coding agents: of Gemini CLI it counts each call of a
# tool twice and takes the thoughts off the answers, of Qwen Code it finds nothing, and of Pi a fork counts twice.
#
# Behaviour seen: (1) Gemini CLI writes an answer that calls a tool as two rows of one id with the same counts, the second with
# the call. Both count: two calls of 1000 input tokens each, 600 of them cached, are 1200 and 1800 where 800 and 1200 are right.
# (2) `output` in these files is without the thoughts: the file's `total` is input, output and thoughts. The thoughts are taken
# off it once more. Here each of the two answers has 20 tokens beside 300 of thoughts: the output comes to less than nothing,
# which is made 0, and takes what is left off the other answers of the half hour. (3) Qwen Code is looked for in ~/.qwen/tmp.
# It keeps its sessions in ~/.qwen/projects, so none is counted. (4) Pi's `--fork` writes the rows of the session that it
# copies into the new file, under their ids: the calls count once in each file. Of Codex and Claude Code the same program
# counts forks once.
#
# Needs npm with a registry, and Node 20. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit @vibe-cafe/vibe-usage@0.12.0 >npm.log 2>&1 || { cat npm.log; exit 2; }
export HOME=$work
unset PI_CODING_AGENT_DIR PI_CODING_AGENT_SESSION_DIR VIBE_USAGE_PI_SESSION_DIRS
cat >count.mjs <<'JS'
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { parse as gemini } from "@vibe-cafe/vibe-usage/src/parsers/gemini-cli.js";
import { parse as pi } from "@vibe-cafe/vibe-usage/src/parsers/pi-coding-agent.js";
import { parse as qwen } from "@vibe-cafe/vibe-usage/src/parsers/qwen-code.js";

const timestamp = "2026-11-27T22:10:00.000Z";
const cwd = "/home/ann/shop";
const id = (number) => `5e2f3c1a-0000-4000-8000-00000000000${number}`;

function write(path, rows) {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, rows.map((row) => JSON.stringify(row) + "\n").join(""));
}

async function count(name, parse) {
  const { buckets } = await parse();
  if (!buckets.length) console.log(`${name}: nothing`);
  for (const { inputTokens, cachedInputTokens, outputTokens, reasoningOutputTokens } of buckets)
    console.log(`${name}:`, JSON.stringify({ inputTokens, cachedInputTokens, outputTokens, reasoningOutputTokens }));
}

const tokens = { input: 1000, output: 20, cached: 600, thoughts: 300, tool: 0, total: 1320 };
const call = { id: "list_1", name: "list_directory", args: { path: "." }, status: "success", result: [] };
const answer = (number, content) => {
  return { id: id(number), timestamp, type: "gemini", content, thoughts: [], tokens, model: "gemini-2.5-pro" };
};
write(".gemini/tmp/shop/chats/session-2026-11-27T22-10-5e2f3c1a.jsonl", [
  { sessionId: id(0), projectHash: "0a", startTime: timestamp, lastUpdated: timestamp, kind: "main" },
  { id: id(1), timestamp, type: "user", content: [{ text: "What is here?" }] },
  answer(2, ""),
  { ...answer(2, ""), toolCalls: [call] },
  answer(3, "Nothing."),
]);
await count("gemini-cli", gemini);

const said = { uuid: id(2), parentUuid: id(1), sessionId: id(0), timestamp, type: "assistant", cwd, version: "0.24.4" };
const parts = [{ text: "Nothing." }];
const usageMetadata = { promptTokenCount: 1000, candidatesTokenCount: 20, totalTokenCount: 1020 };
write(`.qwen/projects/-home-ann-shop/chats/${id(0)}.jsonl`, [
  { ...said, uuid: id(1), parentUuid: null, type: "user", message: { role: "user", parts: [{ text: "What is here?" }] } },
  { ...said, model: "qwen3-coder-plus", message: { role: "model", parts }, usageMetadata },
]);
await count("qwen-code", qwen);

const usage = { input: 400, output: 20, cacheRead: 600, cacheWrite: 0, totalTokens: 1020 };
const content = [{ type: "text", text: "Nothing." }];
const model = { provider: "anthropic", model: "claude-sonnet-5", api: "anthropic-messages", stopReason: "stop" };
const rows = [
  { type: "message", id: "a1b2c3d4", parentId: null, timestamp, message: { role: "user", content: "What is here?" } },
  { type: "message", id: "e5f6a7b8", parentId: "a1b2c3d4", timestamp, message: { role: "assistant", content, usage, ...model } },
];
const folder = ".pi/agent/sessions/--home-ann-shop--";
const header = { type: "session", version: 3, id: id(0), timestamp, cwd };
write(`${folder}/2026-11-27T22-10-00-000Z_${id(0)}.jsonl`, [header, ...rows]);
await count("pi", pi);
const parentSession = `${folder}/2026-11-27T22-10-00-000Z_${id(0)}.jsonl`;
write(`${folder}/2026-11-27T22-15-00-000Z_${id(9)}.jsonl`, [{ ...header, id: id(9), parentSession }, ...rows]);
await count("pi with a fork", pi);
JS
timeout 60 node count.mjs 2>errors | tee seen || { cat errors; exit 2; }
diff seen - <<'SEEN'
gemini-cli: {"inputTokens":1200,"cachedInputTokens":1800,"outputTokens":0,"reasoningOutputTokens":900}
qwen-code: nothing
pi: {"inputTokens":400,"cachedInputTokens":600,"outputTokens":20,"reasoningOutputTokens":0}
pi with a fork: {"inputTokens":800,"cachedInputTokens":1200,"outputTokens":40,"reasoningOutputTokens":0}
SEEN
