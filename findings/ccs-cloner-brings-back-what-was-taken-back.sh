#!/usr/bin/env bash
# ccs-cloner 0.5.0 (npm), which clones a session of Claude Code with less in it: in the clone the conversation goes through
# what was taken back.
#
# Behaviour seen: rows of Claude Code name the row before (`parentUuid`); after a rewind the next prompt names the row that it
# went back to, and what was taken back stays in the file, beside the conversation. Where the cloner leaves a row out, it hangs
# those behind it on the row above it in the file, which may be one that was taken back. (1) An answer that failed is always
# left out. A prompt after it, with its answer, was taken back, and another was put in its place: in the clone the new
# prompt follows on the answer that was taken back. (2) With `--strip-tools=extreme` the results of tools are left out, and so
# it is with a prompt that was put behind a result. "Session cloned successfully", it says. Its README says that such rows are
# kept for now, not that they become part of the conversation. Claude Code 2.1.332, resumed with each of these files against a
# model on loopback, sent what is shown here, also for the clones.
#
# Needs npm with a registry, and Node 20. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit ccs-cloner@0.5.0 >npm.log 2>&1 || { cat npm.log; exit 2; }
export HOME=$work PATH="$work/node_modules/.bin:$PATH"
cat >clone.mjs <<'JS'
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";

const folder = `${process.env.HOME}/.claude/projects/-home-ann-shop`;
mkdirSync(folder, { recursive: true });
const text = (words) => [{ type: "text", text: words }];
const ask = (uuid, parentUuid, words) => ({ type: "user", uuid, parentUuid, message: { role: "user", content: words } });
const answer = (uuid, parentUuid, content, model = "made-up") => {
  const message = { id: `msg_${uuid}`, type: "message", role: "assistant", model, content };
  return { type: "assistant", uuid, parentUuid, message };
};
const failed = (uuid, parentUuid) => {
  const row = answer(uuid, parentUuid, text("API Error: 529 Overloaded"), "<synthetic>");
  return { ...row, isApiErrorMessage: true, error: "overloaded" };
};
const call = [{ type: "tool_use", id: "toolu_1", name: "Bash", input: { command: "ls" } }];
const result = (uuid, parentUuid) => {
  const content = [{ type: "tool_result", tool_use_id: "toolu_1", content: "till.py" }];
  return { type: "user", uuid, parentUuid, message: { role: "user", content } };
};

function conversation(path) {
  const rows = readFileSync(path, "utf8").trim().split("\n").map(JSON.parse);
  const byUuid = new Map(rows.map((row) => [row.uuid, row]));
  const said = [];
  for (let row = rows.at(-1); row; row = byUuid.get(row.parentUuid)) {
    const { content } = row.message;
    said.unshift(typeof content === "string" ? content : (content[0].text ?? `(${content[0].type})`));
  }
  return said.join(" | ");
}
function clone(name, sessionId, rows, ...options) {
  const path = `${folder}/${sessionId}.jsonl`;
  const row = (each) => ({ sessionId, cwd: "/home/ann/shop", timestamp: "2026-11-27T22:10:00.000Z", ...each });
  writeFileSync(path, rows.map((each) => `${JSON.stringify(row(each))}\n`).join(""));
  const out = execFileSync("ccs-cloner", ["clone", sessionId, "--json", ...options], { encoding: "utf8" });
  console.log(`${name}, source:`, conversation(path));
  console.log(`${name}, clone:`, conversation(JSON.parse(out).clonedSessionFilePath));
}

const before = [ask("u1", null, "Look at the till."), answer("a1", "u1", text("I looked."))];
const error = [...before, ask("u2", "a1", "Why?"), failed("e", "u2")];
const back = (last) => [ask("u3", last, "Delete the till."), answer("a3", "u3", text("I deleted it."))];
const instead = (last) => [ask("u4", last, "Keep the till."), answer("a4", "u4", text("I keep it."))];
clone("error", "00000000-0000-4000-8000-000000000001", [...error, ...back("e"), ...instead("e")]);
const tool = [ask("u1", null, "Look at the till."), answer("a1", "u1", call), result("r1", "a1")];
clone("tool", "00000000-0000-4000-8000-000000000002", [...tool, ...back("r1"), ...instead("r1")]);
const stripped = "--strip-tools=extreme";
clone("tools stripped", "00000000-0000-4000-8000-000000000003", [...tool, ...back("r1"), ...instead("r1")], stripped);
JS
node clone.mjs | tee seen
diff seen - <<'SEEN'
error, source: Look at the till. | I looked. | Why? | API Error: 529 Overloaded | Keep the till. | I keep it.
error, clone: Look at the till. | I looked. | Why? | Delete the till. | I deleted it. | Keep the till. | I keep it.
tool, source: Look at the till. | (tool_use) | (tool_result) | Keep the till. | I keep it.
tool, clone: Look at the till. | (tool_use) | (tool_result) | Keep the till. | I keep it.
tools stripped, source: Look at the till. | (tool_use) | (tool_result) | Keep the till. | I keep it.
tools stripped, clone: Look at the till. | Delete the till. | I deleted it. | Keep the till. | I keep it.
SEEN
