"""A program that runs an agent in a child per kill: `python -m tests.agents.kills FOLDER`.

Child N is killed at its N-th commit, before or after that, and the next child makes the same run again. What is printed
says what the tools did and what the session has: first of a run that nobody kills, then after each kill.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

import flue_py
from flue_py.agents import Recorded
from flue_py.agents.journal import Journal

_STEPS = (
    [ToolCallPart("look", {"order": 7}, "a"), ToolCallPart("pay", {"order": 7}, "b")],
    [ToolCallPart("pay", {"order": 8}, "c")],
    [TextPart("Paid.")],
)


def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Answer the steps one after the other."""
    step = sum(isinstance(message, ModelResponse) for message in messages)
    return ModelResponse(parts=list(_STEPS[step]), usage=RequestUsage(input_tokens=10, output_tokens=step + 1))


async def run(folder: Path) -> str:
    """Make the run once."""
    async with flue_py.open(folder / "a.db") as store:
        agent = Agent(FunctionModel(answer, model_name="script"), capabilities=[Recorded(store, agent="payer")])

        def note(line: str) -> str:
            with (folder / "effects").open("a") as file:
                file.write(line + "\n")
            return f"did {line}"

        @agent.tool_plain(metadata={"may_repeat": True})
        async def look(order: int) -> str:
            return note(f"look {order}")

        @agent.tool_plain
        async def pay(order: int) -> str:
            return note(f"pay {order}")

        return (await agent.run("Pay.", conversation_id="bills", run_id="job-1")).output


def killed_at(number: int) -> None:
    """Have this process killed at a commit: an even number before it, an odd one after."""
    commit: Any = Journal._commit
    passed = 0

    async def counted(self: Journal, entries: Any) -> None:
        nonlocal passed
        if not entries:
            return
        for late in (False, True):
            if late:
                await commit(self, entries)
            if passed == number:
                os.kill(os.getpid(), signal.SIGKILL)
            passed += 1

    Journal._commit = counted  # type: ignore[method-assign]


def attempt(work: Callable[[], Coroutine[Any, Any, str]], *kills: Callable[[], object]) -> list[str | None]:
    """Do work in a child for each kill, at the same time; return their answers or errors, None for one that was killed.

    ``kills`` are called in the children, and have them killed later.
    """
    children = [_begun(work, kill) for kill in kills]
    answers = []
    for child, answer_file in children:
        with open(answer_file) as pipe:
            answer = pipe.read()
        _, status = os.waitpid(child, 0)
        answers.append(answer if os.WIFEXITED(status) else None)
    return answers


def _begun(work: Callable[[], Coroutine[Any, Any, str]], kill: Callable[[], object]) -> tuple[int, int]:
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    os.close(reading)
    kill()
    try:
        answer = asyncio.run(work())
    except BaseException as error:  # noqa: BLE001 - the child has nobody to tell but its parent
        answer = f"{type(error).__name__}: {error}"
    os.write(writing, answer.encode())
    os._exit(0)


async def state(folder: Path) -> dict[str, Any]:
    """Return what the tools did, and what the session has and has paid."""
    async with flue_py.open(folder / "a.db") as store:
        session = await store.open_session("bills")
        path = [entry for entry in await session.get_active_path() if entry.kind == "message"]
        usage = (await store.usage(session)).total
        problems = (await store.verify()).problems
    said = [[entry.role, entry.fields.get("toolCallId"), _text(entry.fields["content"])] for entry in path]
    effects = folder / "effects"
    return {
        "effects": effects.read_text().split("\n")[:-1] if effects.exists() else [],
        "said": said,
        "paid": [usage.input, usage.output],
        "problems": list(problems),
    }


def _text(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content)


def main(root: Path) -> None:
    """Make the run undisturbed, which also loads every module once; then kill it at each commit in turn."""
    (root / "whole").mkdir()
    asyncio.run(run(root / "whole"))
    print(json.dumps(asyncio.run(state(root / "whole"))), flush=True)
    number, answer = 0, None
    while answer is None:
        folder = root / str(number)
        folder.mkdir()
        work = partial(run, folder)
        [answer] = attempt(work, partial(killed_at, number))
        assert answer == "Paid." or attempt(work, partial(killed_at, -1)) == ["Paid."]
        print(json.dumps(asyncio.run(state(folder))), flush=True)
        number += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]))
