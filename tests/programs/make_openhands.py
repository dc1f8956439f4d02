"""Conversations of the OpenHands SDK, run against a made-up model, packed as test data.

``env -i HOME=FOLDER PYTHONPATH=. PYTHON -m tests.programs.make_openhands FOLDER [PATTERN ...]``, where PYTHON has
openhands-sdk and openhands-tools, writes them below a folder, beside them the requests that were sent, and packs both.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.programs.loopback import Model, Request, Turn
from tests.programs.made import pack

os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENHANDS_SUPPRESS_BANNER": "1"}


def answer(request: Request) -> Turn:
    """Return the turn for a request, by its last words."""
    content = request.body.get("messages", [])[-1].get("content") or ""
    text = json.dumps(content if isinstance(content, str) else content[-1])
    if "summarize the events" in text:
        return Turn("SUMMARY of the talk.", input=400, cached=0, output=9)
    if "Break down" in text:
        return Turn(status=400, text="made-up failure")
    if "Ask a helper" in text:
        return Turn("A helper will count.", [("task", {"prompt": "Count to two.", "subagent_type": "counter"})])
    if "Count to two" in text:
        return Turn("", [("finish", {"message": "One, two."})], input=300, cached=0, output=7)
    if "Look twice" in text:
        views = [
            ("file_editor", {"command": "view", "path": str(Path(folder, "work", f"{name}.txt"))}) for name in "ab"
        ]
        return Turn("Two files.", views, thoughts="Both, then.", output=30, reasoning=10)
    if '"role": "tool"' in json.dumps(request.body["messages"][-1:]) or "tool_result" in text:
        return Turn("That was it.", input=1200, cached=1000, output=5)
    if "no such tool" in text:
        return Turn("", [("imaginary", {"depth": 3})])
    return Turn(f"Yes {len(request.body.get('messages', []))}.", input=1000, cached=600, output=20)


def talk(model: Model) -> dict[str, int]:
    """Hold the conversations; return the place of the last request of each, by its id."""
    from openhands.sdk import LLM, Agent, LLMSummarizingCondenser, LocalConversation, Tool
    from openhands.sdk.subagent import AgentDefinition, register_agent
    from openhands.tools.file_editor import FileEditorTool
    from openhands.tools.task import TaskToolSet
    from pydantic import SecretStr

    def llm(name: str, usage: str, **more: Any) -> LLM:
        return LLM(
            model=name, usage_id=usage, api_key=SecretStr("made-up"), num_retries=0, base_url=f"{model.url}/v1", **more
        )

    def agent(name: str, size: int = 80, **more: Any) -> Agent:
        condenser = LLMSummarizingCondenser(llm=llm(name, "condenser"), max_size=size, keep_first=2)
        tools = [Tool(name=FileEditorTool.name), Tool(name=TaskToolSet.name)]
        return Agent(llm=llm(name, "agent", **more), tools=tools, condenser=condenser)

    def counter(parent: LLM) -> Agent:
        return Agent(llm=parent, tools=[])

    register_agent("counter", counter, AgentDefinition(name="counter", description="Counts."))
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    for name in "ab":
        (work / f"{name}.txt").write_text(f"I am {name}.\n")
    ends: dict[str, int] = {}

    def conversation(number: int, made: Agent) -> LocalConversation:
        place = folder / ".openhands" / "conversations"
        return LocalConversation(
            agent=made,
            workspace=str(work),
            persistence_dir=str(place),
            conversation_id=UUID(int=number),
            visualizer=None,
        )

    def say(with_: LocalConversation, *texts: str) -> None:
        for text in texts:
            with_.send_message(text)
            with suppress(Exception):
                with_.run()
        ends[with_.id.hex] = len(model.requests) - 1

    chat = "openai/gpt-4o"
    first = conversation(1, agent(chat))
    say(first, "Hello.", "Look twice, please.", "There is no such tool.", "Break down.", "Go on.")
    fork = first.fork(conversation_id=UUID(int=2))
    say(fork, "Hello, fork.")
    part = first.fork(conversation_id=UUID(int=3), from_event_id=first.state.events.get_id(2))
    part.close()
    first.close()
    again = conversation(1, agent(chat))
    say(again, "Are you back?")
    before = again.state.leaf_event_id
    say(again, "This goes.")
    again.navigate_to(before)
    say(again, "This stays.", "Ask a helper, please.")
    again.close()
    long = conversation(4, agent("anthropic/claude-sonnet-4-5-20250929", size=10))
    say(long, "One.", "Look twice, please.", *(f"And {number}." for number in range(8)))
    long.condense()
    say(long, "After it.", "Look twice, again.", "More.")
    long.close()
    empty = conversation(5, agent(chat))
    say(empty, "Nothing of this.")
    empty.navigate_to(None)
    empty.close()
    return ends


def cut(text: str) -> str:
    """Return the beginning of a long text: the prompts of the program are its own."""
    return text if len(text) < 300 else f"{text[:40]} ..."


def shorten(event: Path) -> None:
    """Cut the prompt in the file of an event, and leave its tools out."""
    fields = json.loads(event.read_text())
    if fields["kind"] == "SystemPromptEvent":
        fields["system_prompt"]["text"] = cut(fields["system_prompt"]["text"])
        event.write_text(json.dumps({**fields, "tools": []}))


def sent(request: Request) -> list[Any]:
    """Return the messages of a request, each text cut."""
    system = request.body.get("system") or []
    messages = json.loads(json.dumps([{"role": "system", "content": system}] * bool(system) + request.body["messages"]))
    for message in messages:
        for part in message.get("content") or []:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                part["text"] = cut(part["text"])
    return messages


if __name__ == "__main__":
    folder = Path(sys.argv[1]).absolute()
    with Model(choose=answer) as model:
        ends = talk(model)
    for event in folder.glob("**/events/*.json"):
        shorten(event)
    (folder / "requests.json").write_text(json.dumps({"sent": [*map(sent, model.requests)], "ends": ends}))
    print(pack(folder, f"openhands-{version('openhands-sdk')}", sys.argv[2:]))
