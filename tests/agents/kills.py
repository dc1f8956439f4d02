"""Children that do work and may be killed, and the state of what they leave behind."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import flue_py


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
