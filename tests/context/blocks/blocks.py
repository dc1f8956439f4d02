"""Blocks for tests, and a folder with a file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

from flue_py.context.blocks import BlockText
from flue_py.core.json import JsonObject

CET = timezone(timedelta(hours=1), "CET")
MORNING = datetime(2026, 3, 28, 9, 5, tzinfo=CET)


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self, now: datetime = MORNING) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def pass_by(self, **what: int) -> None:
        self.now += timedelta(**what)


class Says:
    """A block that says what its attribute has."""

    def __init__(self, name: str, text: str | None, same: str | None = None) -> None:
        self.name = name
        self.text = text
        self.same = same
        self.saved: list[Sequence[JsonObject]] = []

    async def read(self) -> BlockText | None:
        return None if self.text is None else BlockText(self.text, self.same)


class Keeps(Says):
    """A block that keeps what it is given after a turn."""

    async def save(self, messages: Sequence[JsonObject]) -> None:
        self.saved.append(messages)


class Fails:
    """A block that raises, or never ends."""

    def __init__(self, name: str, error: Exception | None = None) -> None:
        self.name = name
        self.error = error

    async def read(self) -> BlockText | None:
        if self.error is not None:
            raise self.error
        from anyio import sleep_forever

        await sleep_forever()
        return None
