"""Compare the answers of flue_py with those of a fixture, on a store."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

import flue_py

TOLERANCE = 1e-9

Json = Any
Case = Mapping[str, Any]
Op = Mapping[str, Any]


class OwnAnswer(Exception):
    """flue_py's documented answer to the tag named was given, and nothing after it can be compared."""


class Mismatch(AssertionError):
    """What the fixture says and what flue_py answered are not the same."""


def difference(expected: Json, actual: Json, path: str = "", *, money: bool = False) -> str | None:
    """Return where two JSON values differ first, or None. Numbers compare by value, costs with a tolerance."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        if expected.keys() != actual.keys():
            return f"{path or '.'}: keys {sorted(expected)} expected, got {sorted(actual)}"
        pairs = ((f"{path}.{key}", expected[key], actual[key], money or key == "cost") for key in expected)
    elif isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            return f"{path or '.'}: {len(expected)} items expected, got {len(actual)}: {expected!r} and {actual!r}"
        pairs = ((f"{path}[{n}]", *both, money) for n, both in enumerate(zip(expected, actual, strict=True)))
    else:
        return None if _same(expected, actual, money) else f"{path or '.'}: expected {expected!r}, got {actual!r}"
    return next((found for p, e, a, m in pairs if (found := difference(e, a, p, money=m)) is not None), None)


def _same(expected: Json, actual: Json, money: bool) -> bool:
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, (int, float)) and isinstance(actual, (int, float)):
        return abs(expected - actual) <= TOLERANCE if money else expected == actual
    return type(expected) is type(actual) and bool(expected == actual)


def check(expected: Json, actual: Json) -> None:
    found = difference(expected, actual)
    if found is not None:
        raise Mismatch(found)


class FixtureClock:
    """A clock that stands still until a fixture sets it."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def set(self, at: str | None) -> None:
        if at is not None:
            self.now = datetime.fromisoformat(at)


class Engine:
    """One store of the backend under test, which can be closed and opened again."""

    def __init__(self, backend: str, target: str) -> None:
        self.backend = backend
        self.clock = FixtureClock()
        self._target = target
        self._stack = AsyncExitStack()
        self.store: flue_py.Store

    async def start(self) -> None:
        opening = flue_py.open(self._target, durability="normal", clock=self.clock)
        self.store = await self._stack.enter_async_context(opening)

    async def stop(self) -> None:
        await self._stack.aclose()

    async def restart(self) -> None:
        """Forget everything that is not stored. A store in memory has nothing to forget but its handles."""
        if self.backend != "memory":
            await self.stop()
            await self.start()


@asynccontextmanager
async def running(backend: str, url: str | None = None) -> AsyncIterator[Engine]:
    with tempfile.TemporaryDirectory() as folder:
        targets = {
            "memory": ":memory:",
            "sqlite": f"{folder}/conformance.db",
            "aiosqlite": f"sqlite+aiosqlite:///{folder}/conformance.db",
        }
        engine = Engine(backend, url or targets[backend])
        await engine.start()
        try:
            yield engine
            report = await engine.store.verify()
            check([], [str(problem) for problem in report.problems])
        finally:
            await engine.stop()


class Player(Protocol):
    """What plays the ops of one case. ``own_answers`` are the tags at which flue_py's own answer was right."""

    own_answers: set[str]

    async def start(self) -> None: ...
    async def run(self, op: Op) -> None: ...


async def play(case: Case, player: Player) -> set[str]:
    """Run the ops of a case in order; return the tags at which flue_py's own answer took the fixture's place.

    Raises `Mismatch`, naming the op, where flue_py answers anything else.
    """
    await player.start()
    for number, op in enumerate(case["ops"]):
        try:
            await player.run(op)
        except OwnAnswer as answer:
            return player.own_answers | {str(answer)}
        except Exception as error:
            text = str(error) if isinstance(error, Mismatch) else f"raised {error!r}"
            raise Mismatch(f"op {number} ({op['op']}): {text}") from error
    return player.own_answers
