#!/usr/bin/env bash
# @claude-sessions/core 0.1.3 (npm), which lists, names and cleans the sessions of Claude Code: cleaning deletes whatever talks
# of an invalid API key, and naming a session changes what the user said.
#
# Behaviour seen: (1) `clearSessions` takes each message that has the words "Invalid API key" for an error of the program, and
# rewrites the file without it, by default and in all projects. So go a user's question why the tests say that, whose answer
# stays, and an answer that quotes a log. No copy is kept. (2) A session in which all messages have the words is emptied
# first, and then deleted for good, as an empty one: other sessions go to the folder `.bak`. `previewCleanup` has
# announced neither, since it looks for the words in titles, and a title is the first line of a prompt. (3) `renameSession`
# puts the name in the place of the first paragraph of the first prompt, and with it changes what the user said and what the
# model is sent when the session is resumed. Where the prompt is a plain string, as Claude Code writes what was
# typed, nothing changes, and `success` is true.
#
# Needs npm with a registry, and Node 20. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit @claude-sessions/core@0.1.3 effect@3.22.4 >npm.log 2>&1 || { cat npm.log; exit 2; }
cat >clean.mjs <<'JS'
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { clearSessions, previewCleanup, renameSession } from "@claude-sessions/core";
import { Effect } from "effect";

const folder = `${process.env.HOME}/.claude/projects/-home-ann-shop`;
mkdirSync(folder, { recursive: true });

function write(session, ...said) {
  const rows = said.map((content, at) => {
    const role = at % 2 ? "assistant" : "user";
    const parentUuid = at ? `${session}-${at - 1}` : null;
    return { type: role, uuid: `${session}-${at}`, parentUuid, sessionId: session, message: { role, content } };
  });
  writeFileSync(`${folder}/${session}.jsonl`, rows.map((row) => `${JSON.stringify(row)}\n`).join(""));
}
function read(session) {
  const path = `${folder}/${session}.jsonl`;
  if (!existsSync(path)) return "no file";
  const rows = readFileSync(path, "utf8").trim().split("\n").map(JSON.parse);
  return rows.map(({ message: { role, content } }) => `${role}: ${content[0].text ?? content}`).join(" | ");
}
const text = (words) => [{ type: "text", text: words }];
const run = Effect.runPromise;

write(
  "mixed",
  text("Look at the tests.\nWhy do they say Invalid API key?"),
  text("The variable is empty there."),
  text("And in the log?"),
  text('It says "Invalid API key" at noon, when the key was renewed.'),
  text("Then all is well."),
);
write("whole", text("What does this mean?\nInvalid API key"), text('"Invalid API key" is what the server says to an old key.'));
for (const { emptySessions, invalidSessions } of await run(previewCleanup())) {
  console.log("to be cleaned, it says:", emptySessions.length, "and", invalidSessions.length);
}
console.log("cleaned:", JSON.stringify(await run(clearSessions({}))));
console.log("mixed:", read("mixed"));
console.log("whole:", read("whole"));
console.log("copies:", readdirSync(`${folder}/..`, { recursive: true }).filter((name) => /[.]bak.*jsonl/.test(name)).length);

write("parts", text("Fix the till.\n\nIt rounds down."), text("Done."));
write("string", "Fix the till.\n\nIt rounds down.", text("Done."));
for (const session of ["parts", "string"]) {
  const { success } = await run(renameSession("-home-ann-shop", session, "Monday"));
  console.log(`renamed, ${session}:`, success, JSON.stringify(read(session)));
}
JS
HOME=$work node clean.mjs | tee seen
diff seen - <<'SEEN'
to be cleaned, it says: 0 and 0
cleaned: {"success":true,"deletedCount":1,"removedMessageCount":4,"deletedOrphanAgentCount":0,"deletedOrphanTodoCount":0}
mixed: assistant: The variable is empty there. | user: And in the log? | user: Then all is well.
whole: no file
copies: 0
renamed, parts: true "user: Monday\n\nIt rounds down. | assistant: Done."
renamed, string: true "user: Fix the till.\n\nIt rounds down. | assistant: Done."
SEEN
