#!/usr/bin/env bash
# beeai-framework 0.1.85 (PyPI), SummarizeMemory: the model that writes the summary sees neither the calls of tools nor
# their results, and only the summary is kept.
#
# Behaviour seen: a question, a call of a tool, its result ("42 euros"). The request for the summary has a line for each
# message, with its text alone: the question, an empty line of the assistant, an empty line of the tool. The messages are
# then replaced by the summary, so that what the tool found is nowhere. UnconstrainedMemory keeps all three.
#
# Needs Python 3.11 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check beeai-framework==0.1.85
cat >summary.py <<'PY'
import asyncio
from types import SimpleNamespace

from beeai_framework.backend.message import (
    AssistantMessage,
    MessageToolCallContent,
    MessageToolResultContent,
    ToolMessage,
    UserMessage,
)
from beeai_framework.memory import SummarizeMemory, UnconstrainedMemory

MESSAGES = [
    UserMessage("What does order 7 cost?"),
    AssistantMessage([MessageToolCallContent(id="c1", tool_name="price", args='{"order": 7}')]),
    ToolMessage(MessageToolResultContent(tool_call_id="c1", tool_name="price", result="42 euros")),
]


class Model:
    async def run(self, messages):
        print([line for line in messages[0].text.splitlines() if line.startswith(("user", "assistant", "tool"))])
        answer = SimpleNamespace(get_texts=lambda: [SimpleNamespace(text="the price of order 7 was asked for")])
        return SimpleNamespace(output=[answer])


async def main():
    for memory in (SummarizeMemory(Model()), UnconstrainedMemory()):
        await memory.add_many(MESSAGES)
        kept = " ".join(str(message.to_plain()) for message in memory.messages)
        print(type(memory).__name__, len(memory.messages), "42 euros" in kept)


asyncio.run(main())
PY
venv/bin/python summary.py | tee seen
diff seen - <<'SEEN'
['user: What does order 7 cost?', 'assistant: ', 'tool: ']
SummarizeMemory 1 False
UnconstrainedMemory 3 True
SEEN
