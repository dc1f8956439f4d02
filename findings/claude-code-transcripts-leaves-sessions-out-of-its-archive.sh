#!/usr/bin/env bash
# claude-code-transcripts 0.6 (PyPI): `all`, which makes an archive of all sessions of Claude Code, leaves some out, and says
# nothing.
#
# Behaviour seen: a session is passed over if it has no summary, and that is the first prompt that does not begin with "<".
# (1) A session in which each prompt is a slash command, as /review, is not in the archive: Claude Code writes these as
# `<command-message>`. Nor is one whose prompts are in tags, as Anthropic's guide to prompts advises. What the model answered
# is nowhere, and `local` does not offer them either. (2) The folder of a project in the archive has the last part of its
# name alone: where work/shop and projects/shop have sessions, one list takes the place of the other, and both links
# of the first page lead to it. The page of the other session is on the disk, and no page leads to it. (3) What was typed
# while the model worked, an `attachment` of the type `queued_command`, is on no page (its issue 98 says so since April).
# "Generated archive with 3 projects, 3 sessions" is all that it prints, of five.
#
# Needs Python 3.10 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check claude-code-transcripts==0.6
export HOME=$work
cat >rows.py <<'PY'
import json
import os
from pathlib import Path
from uuid import uuid4


def write(day, project, *rows):
    """A session of that day, whose rows follow one another."""
    session, last = str(uuid4()), None
    folder = Path(".claude/projects") / project
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{session}.jsonl"
    with path.open("w") as file:
        for second, row in enumerate(rows):
            common = {"uuid": str(uuid4()), "parentUuid": last, "sessionId": session, "cwd": project.replace("-", "/")}
            common["timestamp"] = f"2026-11-{day}T12:00:{second:02}.000Z"
            last = common["uuid"]
            file.write(json.dumps(common | row) + "\n")
    os.utime(path, (1795000000 + day, 1795000000 + day))


def user(text, **more):
    return {"type": "user", "message": {"role": "user", "content": text}} | more


def answer(text):
    message = {"id": f"msg_{text}", "role": "assistant", "content": [{"type": "text", "text": text}]}
    return {"type": "assistant", "message": message}


def queued(text):
    return {"type": "attachment", "attachment": {"type": "queued_command", "prompt": text, "commandMode": "prompt"}}


COMMAND = "<command-message>review</command-message>\n<command-name>/review</command-name>"
write(11, "-home-ann-bank", user("Count the coins."), answer("I count."), queued("Leave the pennies out."))
write(12, "-home-ann-bank", user(COMMAND), user("Review the code.", isMeta=True), answer("The till rounds down."))
write(13, "-home-ann-bank", user("<task>\nFind the leak.\n</task>"), answer("The leak is in the cellar."))
write(14, "-home-ann-work-shop", user("Open the shop."), answer("It is open."))
write(15, "-home-ann-projects-shop", user("Close the shop."), answer("It is closed."))
PY
cat >read.py <<'PY'
import re
from pathlib import Path

SAID = [
    "Count the coins.",
    "Leave the pennies out.",
    "The till rounds down.",
    "The leak is in the cellar.",
    "It is open.",
    "It is closed.",
]
linked = [Path("archive/index.html").resolve()]
for page in linked:
    links = [(page.parent / link).resolve() for link in re.findall(r'href="([^"#]+[.]html)', page.read_text())]
    linked += [link for link in dict.fromkeys(links) if link not in linked]
for words in SAID:
    pages = [page for page in Path("archive").rglob("*.html") if words in page.read_text()]
    place = "on a page" if any(page.resolve() in linked for page in pages) else "on a page without a link"
    print(words, place if pages else "on no page")
PY
venv/bin/python rows.py
venv/bin/claude-code-transcripts all -o archive | grep '^Generated archive' | tee seen
venv/bin/python read.py | tee -a seen
diff seen - <<'SEEN'
Generated archive with 3 projects, 3 sessions
Count the coins. on a page
Leave the pennies out. on no page
The till rounds down. on no page
The leak is in the cellar. on no page
It is open. on a page
It is closed. on a page without a link
SEEN
