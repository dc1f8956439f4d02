#!/usr/bin/env bash
# haystack-ai 3.4.1 (PyPI), ToolResultOffloadHook: in the next run of the same conversation another result takes the place of
# one that was put aside.
#
# Behaviour seen: a large result is written to a file, and the conversation keeps its path. The name is made of the step, the
# tool and the id of the call, or its place in the step where the model gives no ids, as many local ones do (`ToolCall.id` is
# optional). Steps are counted anew in each run: the second question of one conversation writes to the name of the first, and
# nothing says so. Both pointers now lead to the second result; the first one is nowhere, while the preview beside its pointer
# still shows its beginning. `ToolResultOffloadCompactor` of the same version draws a random name for each result.
#
# Needs Python 3.10 with venv and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check haystack-ai==3.4.1
cat >results.py <<'PY'
import re
from pathlib import Path

from haystack import component
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.hooks.tool_result_offloading import AlwaysOffload, FileSystemToolResultStore, ToolResultOffloadHook
from haystack.tools import tool


@tool
def look(city: str) -> str:
    """Look a city up."""
    return f"{city}: " + f"all about {city}. " * 40


@component
class Model:
    """Calls the tool with the last word of the question, and then answers."""

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools=None):
        if messages[-1].tool_call_result is not None:
            return {"replies": [ChatMessage.from_assistant("Done.")]}
        call = ToolCall("look", {"city": messages[-1].text.split()[-1]})
        return {"replies": [ChatMessage.from_assistant(tool_calls=[call])]}


hook = ToolResultOffloadHook(FileSystemToolResultStore("results"), {"*": AlwaysOffload()}, preview_chars=8)
agent = Agent(chat_generator=Model(), tools=[look], hooks={"after_tool": [hook]})
messages = []
for city in ("Athens", "Berlin"):
    messages = agent.run(messages=[*messages, ChatMessage.from_user(f"Look up {city}")])["messages"]
for message in messages:
    if message.tool_call_result is not None:
        pointer = message.tool_call_result.result
        path = Path(re.search(r"at '(.+)'", pointer)[1])
        print(f"preview {pointer.rpartition('Preview: ')[2]!r}, {path.name} has {path.read_text()[:8]!r}")
PY
HAYSTACK_TELEMETRY_ENABLED=False venv/bin/python results.py 2>/dev/null | tee seen
diff seen - <<'SEEN'
preview 'Athens: ...', 0_look_call0.txt has 'Berlin: '
preview 'Berlin: ...', 0_look_call0.txt has 'Berlin: '
SEEN
