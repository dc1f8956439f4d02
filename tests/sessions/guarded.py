"""A guard with a small window, and talk that fills it."""

from __future__ import annotations

from collections.abc import Callable

from flue_py import JsonObject, LogLine, Session, Store
from flue_py.agents.guard import BY, CompactionGuard
from flue_py.compaction import CompactionSettings
from flue_py.core.entries import answered_id, called_ids
from flue_py.core.model import FunctionModel, ModelReply, ModelRequest
from tests.sessions.talk import answer, user

WINDOW = 2_000
SETTINGS = CompactionSettings(keep_recent_tokens=285, user_words_share=0)
"""Whole turns of `talk`, so that one request makes a summary."""


def summary(text: str = "what was said") -> FunctionModel:
    return model(lambda _: text)


def model(answer: Callable[[ModelRequest], ModelReply | str]) -> FunctionModel:
    return FunctionModel(answer, "small", provider="house", context_window=200_000)


def larger(answer: Callable[[ModelRequest], ModelReply | str], window: int | None = 200_000) -> FunctionModel:
    """Return another model than the session's own."""
    return FunctionModel(answer, "large", provider="house", context_window=window)


def guard_of(store: Store, session: Session, of: FunctionModel | None = None, **given: object) -> CompactionGuard:
    return CompactionGuard(store, session, of or summary(), **{"settings": SETTINGS, "window": WINDOW, **given})  # type: ignore[arg-type]


async def talk(session: Session, turns: int, **fields: object) -> None:
    for number in range(turns):
        await session.append_message(user(f"question {number} " + "q" * 120))
        await session.append_message(answer(f"answer {number} " + "a" * 120, **fields))


def wrong_results(context: list[JsonObject]) -> list[str]:
    """Return the results in a context whose calls are not in it."""
    called = {call_id for message in context for call_id in called_ids(message)}
    return [found for message in context if (found := answered_id(message)) is not None and found not in called]


async def events(session: Session) -> list[str]:
    """Return the reasons of the guard's events, oldest first."""
    lines: list[LogLine] = []
    while page := await session.log(limit=1000, before=lines[-1].revision if lines else None):
        lines += page
    return [line.why or "" for line in reversed(lines) if line.by == BY]
