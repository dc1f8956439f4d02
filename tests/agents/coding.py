"""A coding task that is killed: `python -m tests.agents.coding FOLDER MODEL URL POINT STEP`.

A child for every STEP-th of `POINTS`, from POINT on, is killed there; without a POINT (""), child N is killed at its
N-th await, for N of 0, STEP, ... until one is not reached; with the POINT "moments", STEP children wherever they are
after so much CPU time. Then two processes make the same run at once. What is printed says how these ended, and what
files and session have: first of a run that nobody kills. The provider at URL answers by `scripted`, so that it does
not matter who asks.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, repeat
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, exceptions

import flue_py
from flue_py.agents import Recorded
from flue_py.agents.repl import FolderTools
from flue_py.db.files import Folder
from flue_py.db.sqlite import runner
from flue_py.models import client_of
from tests.agents.kills import attempt, state
from tests.models.servers import KEY, Answer, completion, message

FILES = {"app.py": "print('helo')\n", "README.md": "It prints helo.\n"}
MENDED = {name: text.replace("helo", "hello") for name, text in FILES.items()}
DONE = "It prints hello."
_PLAN: list[dict[str, tuple[str, dict[str, Any]]]] = [
    {"r1": ("read", {"path": "app.py"}), "n1": ("note", {"line": "begun"})},
    {"w1": ("write", {"path": "app.py", "text": "print('hello')\n"})},
    {"e1": ("edit", {"path": "README.md", "old": "helo", "new": "hello"})},
    {"n2": ("note", {"line": "done"})},
]
_REPEATED = ("w1", "e1")
"""The calls that the model makes once more if they may have run: that does no harm."""


def scripted(path: str, body: dict[str, Any]) -> Answer:
    """Return the next answer of the task, by what a request has."""
    results = dict(_results(body["messages"]))
    for number, calls in enumerate(_PLAN):
        lost = [name for name in calls if name in _REPEATED and "may have run" in results.get(name, "")]
        again = {f"{name}again": calls[name] for name in lost}
        for wanted in (calls, again):
            if wanted.keys() - results:
                return _answer(path, f"{number}{'again' if wanted is again else ''}", wanted)
    return _answer(path, "last", {})


def _results(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    results = [(sent["tool_call_id"], str(sent["content"])) for sent in messages if sent["role"] == "tool"]
    for sent in messages:
        parts = sent["content"] if isinstance(sent["content"], list) else []
        results += [(part["tool_use_id"], str(part["content"])) for part in parts if part["type"] == "tool_result"]
    return results


def _answer(path: str, name: str, calls: dict[str, tuple[str, dict[str, Any]]]) -> Answer:
    if path.endswith("/messages"):
        used = [
            {"type": "tool_use", "id": call_id, "name": tool, "input": arguments}
            for call_id, (tool, arguments) in calls.items()
        ]
        whole = (
            message(None, content=used, stop_reason="tool_use", id=f"msg_{name}")
            if calls
            else message(DONE, id="msg_last")
        )
        return Answer(whole)
    functions = [
        {"id": call_id, "type": "function", "function": {"name": tool, "arguments": json.dumps(arguments)}}
        for call_id, (tool, arguments) in calls.items()
    ]
    if not calls:
        return Answer(completion(DONE))
    return Answer(completion(None, message={"tool_calls": functions}, finish_reason="tool_calls", id=f"chat-{name}"))


async def run(folder: Path, model: str, url: str) -> str:
    """Make the run once."""
    repository = folder / "repository"
    async with flue_py.open(folder / "a.db") as store:
        session = await store.open_session("bills", mode="get_or_create")

        async def note(line: str) -> str:
            with (folder / "effects").open("a") as file:
                file.write(line + "\n")
            return "noted"

        agent = Agent(
            client_of(model, {"api_key": KEY, "base_url": url}),
            name="coder",
            model_settings={"max_tokens": 1_000},
            tools=[note],
            toolsets=[FolderTools(session, Folder(repository)).toolset()],
            capabilities=[Recorded(store, session, files=repository)],
        )
        return (await agent.run("Mend the spelling.", conversation_id=session.id, run_id="job-1")).output


POINTS = (
    ("Recorded._answered" if hasattr(exceptions, "RetryModelRequest") else "Attempts._last", 10),
    ("SqliteRunner._outcome_of", 15),
    ("OnLoop.finish", 6),
    ("Journal._commit_new", 3),
    ("Journal._commit_end", 2),
    ("FolderTools._replace", 1),
)
"""The functions whose awaits a run is killed at: while a model answers, a statement runs, a commit is noted, messages
or the end of a call are stored, and when a file has been written. The number is how often that went on before."""


def killed_at(function: str | None, number: int) -> None:
    """Have this process killed when an await in a function has ended, or with None any callback begins, after so many.

    The function is the innermost of ours that waits.
    """
    go_on: Any = asyncio.events.Handle._run
    passed = 0

    def counted(self: asyncio.Handle) -> None:
        nonlocal passed
        if function is None or _waiting(self) == function:
            if passed == number:
                os.kill(os.getpid(), signal.SIGKILL)
            passed += 1
        go_on(self)

    asyncio.events.Handle._run = counted  # type: ignore[attr-defined]


def _waiting(handle: Any) -> str | None:
    task = getattr(handle._callback, "__self__", None)
    awaited: Any = task.get_coro() if isinstance(task, asyncio.Task) else None
    name = None
    while (code := getattr(awaited, "cr_code", None)) is not None:
        name = code.co_qualname if "flue_py" in code.co_filename else name
        awaited = awaited.cr_await
    return name


def begun(folder: Path) -> Path:
    (folder / "repository").mkdir(parents=True)
    for name, text in FILES.items():
        (folder / "repository" / name).write_text(text)
    return folder


def ended(folder: Path, answers: list[str | None]) -> str:
    files = {name: (folder / "repository" / name).read_text() for name in FILES}
    return json.dumps({**asyncio.run(state(folder)), "files": files, "answers": answers})


def _kills(root: Path, model: str, url: str, point: str, step: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield a name and a kill for each child."""
    if point == "moments":
        # What the first run alone loads is not in the time of the children.
        begin = time.process_time()
        asyncio.run(run(begun(root / "again"), model, url))
        seconds = time.process_time() - begin
        for number in range(step):
            # Nobody handles the signal, so that it ends the process, whichever thread runs.
            moment = seconds * (number + 1) / (step + 1)
            yield f"moment{number}", partial(signal.setitimer, signal.ITIMER_PROF, moment)
        return
    for function, number in POINTS[int(point) :: step] if point else zip(repeat(None), count(0, step)):
        yield f"{function}{number}", partial(killed_at, function, number)


def main(root: Path, model: str, url: str, point: str, step: int) -> None:
    if point.isdigit():
        # Each write waits for the writer's thread, so that the awaits are those that were counted.
        runner.SHORT_SECONDS = 0
    whole = begun(root / "whole")
    print(ended(whole, [asyncio.run(run(whole, model, url))]), flush=True)
    for name, kill in _kills(root, model, url, point, step):
        folder = begun(root / name)
        work = partial(run, folder, model, url)
        [answer] = attempt(work, kill)
        if answer is None:
            print(ended(folder, attempt(work, *[partial(killed_at, None, -1)] * 2)), flush=True)
        elif point != "moments":  # the last ones may have ended before theirs
            assert not point, f"{name} is not reached"
            break


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
