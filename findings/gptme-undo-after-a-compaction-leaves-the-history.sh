#!/usr/bin/env bash
# gptme 0.35.1 (PyPI): after a compaction, an undo takes back messages of the compacted view alone.
#
# Behaviour seen: a conversation of four messages is compacted into a view (a summary and the last two messages), as
# automatic compaction does, and two messages are undone. The view is the summary. `conversation.jsonl`, the whole
# history, keeps both messages, and the next message is written behind them: "one, two, three, four, five", where the
# model was sent "summary, five". Who goes back to the whole history gets the messages that were taken back. Without a
# view the same undo takes them out of the file.
#
# Needs Python 3.11 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check gptme==0.35.1
cat >undo.py <<'PY'
import json

from gptme.dirs import get_logs_dir
from gptme.logmanager import LogManager
from gptme.message import Message


def conversation(name, compacted):
    manager = LogManager.load(get_logs_dir() / name, create=True)
    for role, text in [("user", "one"), ("assistant", "two"), ("user", "three"), ("assistant", "four")]:
        manager.append(Message(role, text, quiet=True))
    if compacted:
        manager.create_view("compacted-001", [Message("system", "summary"), *manager.log[2:]])
        manager.switch_view("compacted-001")
    manager.undo(2, quiet=True)
    manager.append(Message("user", "five", quiet=True))
    print(name, "is sent as", [message.content for message in manager.log])
    with open(manager.logfile) as rows:
        print(name, "is stored as", [json.loads(row)["content"] for row in rows])


conversation("plain", compacted=False)
conversation("compacted", compacted=True)
PY
HOME=$work GPTME_LOGS_HOME=$work/logs venv/bin/python undo.py 2>/dev/null | grep " is " | tee seen
diff seen - <<'SEEN'
plain is sent as ['one', 'two', 'five']
plain is stored as ['one', 'two', 'five']
compacted is sent as ['summary', 'five']
compacted is stored as ['one', 'two', 'three', 'four', 'five']
SEEN
