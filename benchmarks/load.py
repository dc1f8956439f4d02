"""The cost of reading a whole history: cold, as typed models, undecoded, unchanged since the last read, and longer.

Cold is a store just opened and a handle that has read nothing. The floor is a range scan and `json.loads`.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

import flue_py
from benchmarks.measuring import (
    Goal,
    Line,
    Options,
    Samples,
    body,
    fill,
    in_rounds,
    main,
    make_messages,
    settle,
    timed,
    timed_async,
)
from benchmarks.raw import Raw


class _Part(BaseModel):
    type: str
    text: str


class _RawMessage(BaseModel):
    """The least a typed message can be."""

    model_config = ConfigDict(extra="allow")

    role: Literal["user", "assistant"]
    content: list[_Part]
    timestamp: int


async def measure(options: Options) -> list[Line]:
    """Return the lines."""
    count = options.count(10_000, 200)
    ours, raw = options.directory / "store.db", options.directory / "raw.db"
    messages = make_messages(1000)
    async with flue_py.open(ours, durability="normal") as store:
        await fill(await store.create_session(key="long"), messages, count)
    floor = Raw(raw, "normal")
    floor.fill([body(message) for message in messages], count)
    floor.close()

    def cold(read: Callable[[flue_py.Session], Awaitable[object]]) -> Callable[[], Awaitable[Samples]]:
        return lambda: _cold(ours, read)

    def raw_cold(read: Callable[[Raw], object]) -> Callable[[], Awaitable[Samples]]:
        async def once() -> Samples:
            store = Raw(raw)
            settle()
            seconds = timed(lambda: read(store))
            store.close()
            return [seconds]

        return once

    async def unchanged(read: Callable[[flue_py.Session], Awaitable[object]], times: int) -> Samples:
        async with flue_py.open(ours) as store:
            session = await store.open_session("long")
            await read(session)
            settle()
            return [await timed_async(lambda: read(session)) for _ in range(times)]

    async def longer(times: int) -> Samples:
        samples = []
        async with flue_py.open(shutil.copy(ours, options.directory / "longer.db"), durability="normal") as store:
            session = await store.open_session("long")
            await session.build_context_entries()
            settle()
            for number in range(times):
                await session.append_message(messages[number])
                samples.append(await timed_async(session.build_context_entries))
        return samples

    dicts, models, lazily, again, again_longer, again_dicts, json_loads, validated = await in_rounds(
        options.rounds,
        cold(lambda session: session.build_context()),
        cold(_as_models),
        cold(lambda session: session.build_context_entries()),
        lambda: unchanged(lambda session: session.build_context_entries(), options.count(200, 5)),
        lambda: longer(options.count(100, 5)),
        lambda: unchanged(lambda session: session.build_context(), options.count(10, 2)),
        raw_cold(Raw.scan),
        raw_cold(_raw_models),
    )
    what = f"load {count:,} messages"
    return [
        Line.of_latencies(f"{what}, cold, as dicts", "ms", dicts, json_loads, Goal(0.7)),
        Line.of_latencies(f"{what}, cold, typed, decoded when touched", "ms", lazily, json_loads, Goal(1.2)),
        Line.of_latencies("- the same, and every message touched", "ms", models, json_loads),
        Line.of_latencies("- the same; raw also makes a model of each", "ms", models, validated),
        Line.of_latencies(f"{what}, unchanged since last read", "ms", again, json_loads, Goal(0.3, of="value")),
        Line.of_latencies(f"{what}, one more since last read", "ms", again_longer, json_loads, Goal(3, of="value")),
        Line.of_latencies("- unchanged, decoded afresh into dicts", "ms", again_dicts, json_loads),
    ]


async def _cold(path: Path, read: Callable[[flue_py.Session], Awaitable[object]]) -> Samples:
    async with flue_py.open(path) as store:
        session = await store.open_session("long")
        settle()
        return [await timed_async(lambda: read(session))]


async def _as_models(session: flue_py.Session) -> list[object]:
    return [item.message for item in await session.build_context_entries()]


def _raw_models(store: Raw) -> list[object]:
    rows = store.connection.execute("SELECT body FROM entries WHERE session = 0 ORDER BY seq")
    return [_RawMessage.model_validate_json(text) for (text,) in rows]


if __name__ == "__main__":
    main(measure)
