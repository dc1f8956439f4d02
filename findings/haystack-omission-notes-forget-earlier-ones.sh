#!/usr/bin/env bash
# haystack-ai 3.4.1 (PyPI), SlidingWindowCompactor: the note on what was removed counts from the note before, not from the
# beginning.
#
# Behaviour seen: at each compaction the model is told how many "earlier messages were removed from this conversation". The
# note of the compaction before is folded into it, as the docstring says, and counts as one message: from the second time on
# the model is told 13, while 24, 36, 48 messages are gone. `removed_messages` in the note's meta is the same number, so that
# nothing in the conversation says how much is missing.
#
# Needs Python 3.10 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check haystack-ai==3.4.1
cat >notes.py <<'PY'
from haystack import component
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from haystack.hooks.compaction import CompactionHook, SlidingWindowCompactor


@component
class Model:
    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools=None):
        return {"replies": [ChatMessage.from_assistant("word " * 100)]}


hook = CompactionHook(compactor=SlidingWindowCompactor(), context_window=2_000, compact_at=0.9, compact_to=0.3)
agent = Agent(chat_generator=Model(), hooks={"before_llm": [hook]})
messages = []
for turn in range(1, 33):
    sent = [*messages, ChatMessage.from_user("word " * 100)]
    messages = agent.run(messages=sent)["messages"]
    if len(messages) < len(sent):
        (note,) = [message for message in messages if "context_compaction" in message.meta]
        noted = note.meta["context_compaction"]["removed_messages"]
        print(f"turn {turn}: {2 * turn - len(messages) + 1} messages are gone, noted: {noted}, {note.text[:29]!r}")
PY
HAYSTACK_TELEMETRY_ENABLED=False venv/bin/python notes.py 2>/dev/null | tee seen
diff seen - <<'SEEN'
turn 8: 12 messages are gone, noted: 12, '[12 earlier messages were rem'
turn 14: 24 messages are gone, noted: 13, '[13 earlier messages were rem'
turn 20: 36 messages are gone, noted: 13, '[13 earlier messages were rem'
turn 26: 48 messages are gone, noted: 13, '[13 earlier messages were rem'
turn 32: 60 messages are gone, noted: 13, '[13 earlier messages were rem'
SEEN
