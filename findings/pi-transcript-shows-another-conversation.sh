#!/usr/bin/env bash
# @psg2/pi-transcript 2.2.1 with @earendil-works/pi-coding-agent 1.6.0 (npm, Node 22): a page of a session of Pi shows what was
# taken back, and not what took its place.
#
# Behaviour seen: a session of Pi is a tree, whose leaf says what the conversation is, and Pi's own `buildSessionContext` makes
# of it what the model is sent. pi-transcript shows the messages in the order of the file, and nothing else. Here (1) a
# question that was taken back, and its answer, stand between the others as if the talk had gone on from them; the summary of
# that branch, which the model is sent in their place, is on no page. (2) Nor is the summary of a compaction, though its README
# names compactions. (3) A command that the user ran with `!`, and its output, are on no page. (4) Nor is a picture: it looks
# for `source`, where Pi writes `data` and `mimeType`. (5) A prompt that is a plain string, as in the example of Pi's docs, is
# in the index and on no page. (6) What a context edit took out stands there as it was.
#
# Needs npm with a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit node@22.23.3 @psg2/pi-transcript@2.2.1 @earendil-works/pi-coding-agent@1.6.0 \
    >npm.log 2>&1 || { cat npm.log; exit 2; }
export HOME=$work PATH="$work/node_modules/.bin:$PATH"
cat >session.mjs <<'JS'
import { writeFileSync } from "node:fs";
import { SessionManager } from "@earendil-works/pi-coding-agent";

const usage = { input: 1, output: 1, cacheRead: 0, cacheWrite: 0, totalTokens: 2, cost: { total: 0 } };
const model = { api: "openai-responses", provider: "openai", model: "made-up" };
const PICTURE = "iVBORw0KGgo=";
const session = SessionManager.create("/home/ann/shop", "sessions");
const say = (message) => session.appendMessage({ timestamp: Date.now(), ...message });
const ask = (content) => say({ role: "user", content });
const answer = (text) => {
  const content = [{ type: "text", text }];
  return say({ role: "assistant", content, ...model, usage, stopReason: "stop" });
};

ask([
  { type: "text", text: "Look at the till." },
  { type: "image", data: PICTURE, mimeType: "image/png" },
]);
const seen = answer("It rounds down.");
ask([{ type: "text", text: "Make it round up." }]);
answer("It rounds up now.");
session.branchWithSummary(seen, "Rounding up was tried.");
ask("Leave it as it is.");
const left = answer("I left it, code 4711.");
session.appendContextEdit(left, { content: [{ type: "text", text: "I left it." }] });
const run = { role: "bashExecution", command: "date", output: "Friday", exitCode: 0, cancelled: false, truncated: false };
say(run);
const path = session.getSessionFile();
const before = JSON.stringify(session.buildSessionContext().messages);
session.appendCompaction("The till is fine.", say({ role: "user", content: [{ type: "text", text: "Thanks." }] }), 100);
answer("Bye.");
writeFileSync("sent.txt", before + JSON.stringify(session.buildSessionContext().messages));
console.log(path);
JS
cat >compare.mjs <<'JS'
import { readdirSync, readFileSync } from "node:fs";

const sent = readFileSync("sent.txt", "utf8");
const pages = readdirSync("out").filter((name) => name.startsWith("page"));
const shown = pages.map((name) => readFileSync(`out/${name}`, "utf8")).join("");
const WORDS = [
  "Look at the till.",
  "iVBORw0KGgo=",
  "It rounds down.",
  "Make it round up.",
  "It rounds up now.",
  "Rounding up was tried.",
  "Leave it as it is.",
  "code 4711",
  "Friday",
  "Thanks.",
  "The till is fine.",
  "Bye.",
];
for (const words of WORDS) {
  console.log(`${words} ${sent.includes(words) ? "sent" : "not sent"}, ${shown.includes(words) ? "shown" : "not shown"}`);
}
JS
path=$(node session.mjs)
pi-transcript "$path" -o out >log 2>&1 </dev/null || { cat log; exit 2; }
node compare.mjs | tee seen
diff seen - <<'SEEN'
Look at the till. sent, shown
iVBORw0KGgo= sent, not shown
It rounds down. sent, shown
Make it round up. not sent, shown
It rounds up now. not sent, shown
Rounding up was tried. sent, not shown
Leave it as it is. sent, not shown
code 4711 not sent, shown
Friday sent, not shown
Thanks. sent, shown
The till is fine. sent, not shown
Bye. sent, shown
SEEN
