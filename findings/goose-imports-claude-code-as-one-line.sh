#!/usr/bin/env bash
# Goose 1.52.0 (npm @aaif/goose-binary-linux-x64): `session import` of a Claude Code transcript.
#
# Behaviour seen, with rows as Claude Code 2.1 writes them: every row of a user or an assistant becomes a message that
# is sent to the model, in the order of the file. So (1) a question that was taken back, and its answer, are sent between
# the two that go on from each other; (2) a row of a sub-agent (`isSidechain`) is sent, too; (3) what was before a
# compaction is sent as well as the summary that stands for it; (4) the tokens of an answer that is written in two rows
# (one message id, the same usage) are counted twice: 6 calls' tokens for 5 calls.
#
# Needs Linux on x86-64, npm with a registry (290 MB), and Python 3.8. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund --prefix . @aaif/goose-binary-linux-x64@1.52.0 >/dev/null
chmod +x node_modules/@aaif/goose-binary-linux-x64/bin/goose
cat >run.py <<'PY'
import json
import sqlite3
import subprocess
import sys
from contextlib import closing

WORK = sys.argv[1]
SESSION = "11111111-2222-4333-8444-555555555555"
USAGE = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20}
rows = []


def add(number, parent, kind, **fields):
    names = [None if each is None else f"aaaaaaaa-0000-4000-8000-{each:012}" for each in (number, parent)]
    about = {"uuid": names[0], "parentUuid": names[1], "type": kind, "sessionId": SESSION, "cwd": "/tmp"}
    about.update(version="2.1.332", userType="external", isSidechain=False)
    rows.append({**about, "timestamp": f"2026-11-01T10:00:{number:02}.000Z", **fields})


def ask(number, parent, words, **fields):
    add(number, parent, "user", message={"role": "user", "content": words}, **fields)


def answer(number, parent, call, *parts):
    message = {"role": "assistant", "id": call, "model": "claude-sonnet-4-5", "type": "message", "usage": USAGE}
    add(number, parent, "assistant", message={**message, "content": list(parts), "stop_reason": "end_turn"})


def text(words):
    return {"type": "text", "text": words}


ask(1, None, "one")
answer(2, 1, "msg_1", text("first"))
ask(3, 2, "taken back")
answer(4, 3, "msg_2", text("taken back, too"))
ask(5, 2, "two")
answer(6, 5, "msg_3", {"type": "thinking", "thinking": "hm", "signature": "c2ln"})
answer(7, 6, "msg_3", {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}})
ask(8, 7, [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a b", "is_error": False}])
answer(9, 8, "msg_4", text("second"))
ask(10, None, "of a sub-agent", isSidechain=True)
compaction = {"subtype": "compact_boundary", "content": "Conversation compacted", "logicalParentUuid": rows[8]["uuid"]}
add(11, None, "system", **compaction, compactMetadata={"trigger": "manual", "preTokens": 130})
ask(12, 11, "the summary", isCompactSummary=True, isVisibleInTranscriptOnly=True)
ask(13, 12, "three")
answer(14, 13, "msg_5", text("third"))
with open(WORK + "/session.jsonl", "w") as file:
    file.writelines(json.dumps(row) + "\n" for row in rows)

env = {"PATH": "/usr/bin:/bin", "HOME": WORK + "/home", "LANG": "C.UTF-8", "GOOSE_DISABLE_KEYRING": "1"}
command = [WORK + "/node_modules/@aaif/goose-binary-linux-x64/bin/goose", "session", "import", WORK + "/session.jsonl"]
subprocess.run(command, env=env, check=True, stdin=subprocess.DEVNULL, timeout=120)
with closing(sqlite3.connect(WORK + "/home/.local/share/goose/sessions/sessions.db")) as database:
    stored = database.execute("SELECT content_json, metadata_json FROM messages ORDER BY id").fetchall()
    tokens = database.execute("SELECT accumulated_input_tokens, accumulated_output_tokens FROM sessions").fetchone()
sent = [json.loads(content)[0].get("text") for content, about in stored if json.loads(about)["agentVisible"]]
print(sent, tokens)
words = ["one", "first", "taken back", "taken back, too", "two", None, None, None, "second", "of a sub-agent"]
sys.exit((sent, tokens) != ([*words, "the summary", "three", "third"], (6 * 130, 6 * 5)))
PY
mkdir home
python3 run.py "$work"
