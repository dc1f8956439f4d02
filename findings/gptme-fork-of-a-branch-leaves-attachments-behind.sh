#!/usr/bin/env bash
# gptme 0.35.1 (PyPI): a conversation that is forked while one of its branches is current is copied without its
# attachments and its event log.
#
# Behaviour seen: `fork` copies the folder of the current log. On the main branch that is the conversation's folder. On
# another branch it is the folder `branches` in it: the fork has the rows of each branch twice (`try.jsonl` at its top
# and `branches/try.jsonl`), and neither `files`, in which the file attached to a message is stored, nor the main
# branch's `events.jsonl`. The message still names the stored file by its hash.
#
# Needs Python 3.11 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check gptme==0.35.1
cat >fork.py <<'PY'
import json
from pathlib import Path

from gptme.dirs import get_logs_dir
from gptme.logmanager import LogManager
from gptme.message import Message

Path("notes.txt").write_text("notes")


def fork(name, branch):
    manager = LogManager.load(get_logs_dir() / name, create=True)
    manager.append(Message("user", "read this", files=[Path("notes.txt").resolve()], quiet=True))
    if branch:
        manager.branch(branch)
    manager.fork(f"{name}-forked")
    folder = get_logs_dir() / f"{name}-forked"
    print(name, "has", sorted(str(file.relative_to(folder)) for file in folder.rglob("[!.]*") if file.is_file()))
    row = json.loads((folder / "conversation.jsonl").read_text())
    print(name, "names", [value for value in row["file_hashes"].values()])


fork("main", None)
fork("branch", "try")
PY
HOME=$work GPTME_LOGS_HOME=$work/logs venv/bin/python fork.py 2>/dev/null | grep -E "^(main|branch) " | tee seen
diff seen - <<'SEEN'
main has ['conversation.jsonl', 'events.jsonl', 'files/ab5aa97074c454a0.txt']
main names ['ab5aa97074c454a0']
branch has ['branches/try.jsonl', 'conversation.jsonl', 'try.jsonl']
branch names ['ab5aa97074c454a0']
SEEN
