#!/usr/bin/env bash
# mem0ai 2.2.1 (PyPI), Memory.add: the "Last k Messages" that its prompt is given are the first ones of what was added.
#
# Behaviour seen: beside its memories it keeps the last ten messages of a user, a run or an agent, so that the model knows
# what new ones go on from ("she", "that one"). All messages of one call get the same time, and they are ordered by time
# alone; of equal ones SQLite keeps those that were written first. (1) After one call with a conversation of 14 lines, the
# prompt of the next call has lines 1 to 10 as the last ones: 11 to 14 are gone. Added by a call each, the last ten are 5 to
# 14. (2) Later calls do not repair it: they take away the newest of the old lines and leave the oldest. After four more
# calls of two lines each the prompt has lines 1 and 2 beside the eight new ones. The comment beside the SQL says "Evict old
# messages beyond the most recent 10". AsyncMemory uses the same store.
#
# Needs Python 3.10 with venv and a registry; the model and the embedder are made up. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check mem0ai==2.2.1
cat >last.py <<'PY'
import json
import re

from mem0 import Memory


class Model:
    """Finds nothing to remember, and keeps the prompt."""

    def generate_response(self, messages, **_):
        self.prompt = messages[-1]["content"]
        return json.dumps({"memory": []})


class Embedder:
    def embed(self, *_, **__):
        return [1.0, 0.0, 0.0, 0.0]


store = {"provider": "qdrant", "config": {"path": "vectors", "embedding_model_dims": 4}}
memory = Memory.from_config({"vector_store": store, "history_db_path": "history.db"})
memory.llm, memory.embedding_model = Model(), Embedder()


def lines(first, last):
    roles = ("assistant", "user")
    return [{"role": roles[number % 2], "content": f"line {number}"} for number in range(first, last + 1)]


def said_to_be_last(user):
    """The numbers of the lines that the prompt of a further call has as the last ones."""
    memory.add("And now?", user_id=user)
    section = memory.llm.prompt.split("## Last k Messages")[1].split("##")[0]
    return " ".join(re.findall(r"line (\d+)", section))


memory.add(lines(1, 14), user_id="one-call")
print("one call for 14 lines:", said_to_be_last("one-call"))
for message in lines(1, 14):
    memory.add([message], user_id="call-each")
print("one call for each line:", said_to_be_last("call-each"))
memory.add(lines(1, 14), user_id="went-on")
for first in range(15, 23, 2):
    memory.add(lines(first, first + 1), user_id="went-on")
print("and four calls of two lines:", said_to_be_last("went-on"))
PY
HOME=$work MEM0_DIR=$work/mem0 MEM0_TELEMETRY=False OPENAI_API_KEY=none venv/bin/python last.py 2>/dev/null | tee seen
diff seen - <<'SEEN'
one call for 14 lines: 1 2 3 4 5 6 7 8 9 10
one call for each line: 5 6 7 8 9 10 11 12 13 14
and four calls of two lines: 1 2 15 16 17 18 19 20 21 22
SEEN
