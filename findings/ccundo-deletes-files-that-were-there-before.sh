#!/usr/bin/env bash
# ccundo 1.1.1 (npm), which undoes single steps of a session of Claude Code: it deletes files that were there before the session,
# and undoes what was never done.
#
# Behaviour seen, each time with "1 successful, 0 failed": (1) Claude Code's Write makes a file or replaces what is in one; the
# row with the result says which (`type`), and has what was there before (`originalFile`). ccundo reads no results, and takes
# each Write for the creation of a file: to undo one deletes it. What the file held before the session is not put back; the
# backup has the new text. (2) A call that failed, or that the person said no to, counts as done: to undo a Write that was
# refused deletes the file as it was, which no tool had touched. (3) An Edit is undone where its new text stands first in the
# file, not where the edit was. Here one line was made the same as an earlier one: the earlier one is changed, the edit stays.
# (4) With `replace_all` every place that has the new text is changed, also one that had it before the edit. (5) The old text is
# put back by JavaScript's `replace`, which takes `$$` and `$&` in it for signs of its own: a script that used its
# process id, `$$`, has a lone `$` afterwards. The README says: "Revert to original content".
#
# Needs npm with a registry, and Node 20. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d -t undoXXXXXX); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit ccundo@1.1.1 >npm.log 2>&1 || { cat npm.log; exit 2; }
export HOME=$work
cat >undo.mjs <<'JS'
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, realpathSync, writeFileSync } from "node:fs";

const sessionId = "5e2f3c1a-0000-4000-8000-000000000001";
const ccundo = realpathSync("node_modules/ccundo/bin/ccundo.js");

/** Write what Claude Code writes of one call and its result, and undo it. Print what the file holds each time. */
function undo(name, { before, after = before, tool, input, result, refused }) {
  const cwd = realpathSync(".") + "/" + name;
  const projects = ".claude/projects/" + cwd.replace(/[^a-zA-Z0-9]/g, "-");
  mkdirSync(cwd);
  mkdirSync(projects, { recursive: true });
  const file = `${cwd}/file`;
  writeFileSync(file, after);
  const row = { sessionId, cwd, version: "2.1.332", userType: "external", isSidechain: false };
  const call = { type: "tool_use", id: "toolu_1", name: tool, input: { file_path: file, ...input } };
  const no = "The user doesn't want to proceed with this tool use. The tool use was rejected.";
  const answer = { tool_use_id: "toolu_1", type: "tool_result", content: refused ? no : "ok", is_error: refused };
  const rows = [
    { type: "user", uuid: "u1", parentUuid: null, message: { role: "user", content: "Please do it." } },
    {
      type: "assistant",
      uuid: "a1",
      parentUuid: "u1",
      requestId: "req_1",
      message: { id: "msg_1", type: "message", role: "assistant", model: "claude-sonnet-5", content: [call] },
    },
    {
      type: "user",
      uuid: "u2",
      parentUuid: "a1",
      message: { role: "user", content: [answer] },
      toolUseResult: refused ? `Error: ${no}` : { filePath: file, originalFile: before, ...result },
    },
  ];
  const lines = rows.map((part) => JSON.stringify({ ...part, ...row, timestamp: "2026-11-27T22:10:00.000Z" }) + "\n");
  writeFileSync(`${projects}/${sessionId}.jsonl`, lines.join(""));
  const said = execFileSync("node", [ccundo, "undo", "toolu_1", "--yes"], { cwd, encoding: "utf8" });
  console.log(`${name}: ${said.match(/\d+ successful, \d+ failed/)}`);
  console.log("  before:", JSON.stringify(before));
  if (after !== before) console.log("  after the call:", JSON.stringify(after));
  console.log("  undone:", existsSync(file) ? JSON.stringify(readFileSync(file, "utf8")) : "there is no file");
}

undo("Write", {
  before: "port = 80\n",
  after: "port = 8080\n",
  tool: "Write",
  input: { content: "port = 8080\n" },
  result: { type: "update", content: "port = 8080\n" },
});
undo("refused Write", { before: "port = 80\n", tool: "Write", input: { content: "port = 443\n" }, refused: true });
undo("Edit", {
  before: "tries = 3\nwaits = 3\ntries = 5\n",
  after: "tries = 3\nwaits = 3\ntries = 3\n",
  tool: "Edit",
  input: { old_string: "tries = 5", new_string: "tries = 3" },
});
undo("Edit of all", {
  before: "show(rows) # all items\n",
  after: "show(items) # all items\n",
  tool: "Edit",
  input: { old_string: "rows", new_string: "items", replace_all: true },
});
undo("Edit with signs", {
  before: "echo $$ >pid\n",
  after: "true\n",
  tool: "Edit",
  input: { old_string: "echo $$ >pid", new_string: "true" },
});
JS
timeout 60 node undo.mjs 2>errors | tee seen || { cat errors; exit 2; }
diff seen - <<'SEEN'
Write: 1 successful, 0 failed
  before: "port = 80\n"
  after the call: "port = 8080\n"
  undone: there is no file
refused Write: 1 successful, 0 failed
  before: "port = 80\n"
  undone: there is no file
Edit: 1 successful, 0 failed
  before: "tries = 3\nwaits = 3\ntries = 5\n"
  after the call: "tries = 3\nwaits = 3\ntries = 3\n"
  undone: "tries = 5\nwaits = 3\ntries = 3\n"
Edit of all: 1 successful, 0 failed
  before: "show(rows) # all items\n"
  after the call: "show(items) # all items\n"
  undone: "show(rows) # all rows\n"
Edit with signs: 1 successful, 0 failed
  before: "echo $$ >pid\n"
  after the call: "true\n"
  undone: "echo $ >pid\n"
SEEN
