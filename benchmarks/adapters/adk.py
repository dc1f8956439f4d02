"""Compare `FlueSessionService` with the session services of ADK over SQLite.

    python -m benchmarks.adapters.adk [--short] [--rounds N]

Each round runs the same work on all of them, in an order that turns: turns of four events, a transaction each, of which
one changes the state. Then a service that has read nothing yet reads all events, all of them again, and the last 20.
Then the sessions of a user are listed with their state, by a service that has met none of them, and again. CPU is that
of the whole process. A ratio is taken inside a round and then the median; below 1 is less than ADK's needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig
from google.adk.sessions.database_session_service import DatabaseSessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from benchmarks.adapters.beside import Cost, cost_of, in_turns, parser_of, print_ratios, size_of
from flue_py.adapters.adk import FlueSessionService

OPEN: dict[str, Callable[[Path], Any]] = {
    "SqliteSessionService": lambda path: SqliteSessionService(str(path)),
    "DatabaseSessionService": lambda path: DatabaseSessionService(f"sqlite+aiosqlite:///{path}"),
    "FlueSessionService": FlueSessionService,
}
OURS = "FlueSessionService"
APP, USER = "benchmark", "alice"

WORDS = "the build fails because test collection imports a module that is missing on this runner so we pin it and run "


def turn(number: int) -> list[Event]:
    """Return a turn of an agent: a request, a call, what the tool returned (4 KB), an answer that sets the state."""
    text = (WORDS * 8)[number % 40 : number % 40 + 500]
    lines = "".join(f"{number * 31 + n}: {WORDS[n % 20 : n % 20 + 60]}\n" for n in range(60))
    used = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=900 + number, candidates_token_count=60, total_token_count=960 + number
    )
    call = types.FunctionCall(id=f"adk-{number}", name="read", args={"path": f"src/module_{number}.py"})
    result = types.FunctionResponse(id=f"adk-{number}", name="read", response={"result": lines})
    answered: dict[str, Any] = {
        "author": "root",
        "model_version": "gemini-2.5-flash",
        "usage_metadata": used,
        "finish_reason": "STOP",
        "invocation_id": f"e-{number}",
    }
    return [
        Event(author="user", invocation_id=f"e-{number}", content=said("user", types.Part(text=f"{number}: {text}"))),
        Event(**answered, content=said("model", types.Part(function_call=call))),
        Event(author="root", invocation_id=f"e-{number}", content=said("user", types.Part(function_response=result))),
        Event(
            **answered,
            content=said("model", types.Part(text=text)),
            actions=EventActions(state_delta={"answer": text, "turn": number}),
        ),
    ]


def said(role: str, part: types.Part) -> types.Content:
    return types.Content(role=role, parts=[part])


async def appended(service: BaseSessionService, session: Any, number: int) -> None:
    for event in turn(number):
        await service.append_event(session, event)


async def measured(name: str, folder: Path, turns: int, sessions: int) -> dict[str, Cost]:
    path = folder / f"{name}.db"
    found = {}
    service = OPEN[name](path)
    session = await service.create_session(app_name=APP, user_id=USER, session_id="one", state={"user:name": "A"})
    await appended(service, session, 0)
    numbers = iter(range(1, turns))
    found["append a turn"] = await cost_of(lambda: appended(service, session, next(numbers)), turns - 1)
    await service.close()
    found["file, bytes"] = size_of(path)

    service = await opened(name, path)
    names = {"app_name": APP, "user_id": USER, "session_id": "one"}
    found[f"load {4 * turns} events"] = await cost_of(lambda: service.get_session(**names))
    found["load them again"] = await cost_of(lambda: service.get_session(**names), 3)
    config = GetSessionConfig(num_recent_events=20)
    found["last 20"] = await cost_of(lambda: service.get_session(**names, config=config), 20)
    for number in range(sessions):
        session = await service.create_session(app_name=APP, user_id="bob", session_id=f"s{number}", state={"n": 1})
        await appended(service, session, number)
    await service.close()

    service = await opened(name, path)
    found[f"list {sessions}"] = await cost_of(lambda: service.list_sessions(app_name=APP, user_id="bob"))
    found["list them again"] = await cost_of(lambda: service.list_sessions(app_name=APP, user_id="bob"), 5)
    await service.close()
    return found


async def opened(name: str, path: Path) -> Any:
    """Return a service that is open, and has met no session yet."""
    service = OPEN[name](path)
    await service.get_session(app_name=APP, user_id="nobody", session_id="none")
    return service


def main() -> None:
    options = parser_of(__doc__).parse_args()
    turns, sessions, rounds = (5, 3, 1) if options.short else (250, 200, options.rounds)
    runs = in_turns([*OPEN], rounds, lambda name, folder: asyncio.run(measured(name, folder, turns, sessions)))
    print_ratios(runs, OURS, {"SqliteSessionService": "Sqlite", "DatabaseSessionService": "Database"})


if __name__ == "__main__":
    main()
