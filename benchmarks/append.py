"""The cost of one append: one session, one message at a time, on a short history and on a long one.

The floor is the same transaction done minimally on the stdlib driver. Two more are there for scale: the same store
through an async engine of SQLAlchemy, and a plain JSONL file, which has no ids, no tree, no usage and no other writer.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Literal

import flue_py
import flue_py.sync
from benchmarks.measuring import (
    Goal,
    Line,
    Message,
    Options,
    Samples,
    body,
    fill,
    in_rounds,
    main,
    make_messages,
    scratch,
    settle,
    timed,
    timed_async,
)
from benchmarks.pages import open_sessions, pages_alone, pages_in_group
from benchmarks.raw import Raw

Durability = Literal["full", "normal"]
GOALS = {"full": Goal(2.2), "normal": Goal(9)}
BLOCKING_GOALS = {"full": Goal(2), "normal": None}
TITLES = {"full": "append, fsync per commit", "normal": "append, no fsync"}
WARM_UP = 20
PAGES_ALONE, PAGES_IN_GROUP = Goal(6.5, of="value"), Goal(1.7, of="value")


async def measure(options: Options) -> list[Line]:
    """Return the lines."""
    messages = make_messages(options.count(1000, 60))
    lines = []
    for durability in ("full", "normal"):
        lines += await _sequential(options, messages, durability)
        lines += await _on_this_thread(options, messages, durability)
    lines += await _on_histories(options, messages)
    lines += await _pages(options)
    return lines


async def _sequential(options: Options, messages: list[Message], durability: Durability) -> list[Line]:
    async def ours() -> Samples:
        with scratch(options) as folder:
            async with flue_py.open(folder / "store.db", durability=durability) as store:
                return await append_all(await store.create_session(), messages)

    async def through_engine() -> Samples:
        with scratch(options) as folder:
            async with flue_py.open(f"sqlite+aiosqlite:///{folder / 'store.db'}") as store:
                return await append_all(await store.create_session(), messages)

    async def raw() -> Samples:
        return _append_raw(options, messages, durability)

    async def jsonl() -> Samples:
        with scratch(options) as folder:
            return _append_lines(folder / "file.jsonl", messages, fsync=durability == "full")

    taken, floor, file = await in_rounds(options.rounds, ours, raw, jsonl)
    title = TITLES[durability]
    lines = [
        Line.of_latencies(title, "us", taken, floor, GOALS[durability]),
        Line.of_latencies(f"- {title}: user messages", "us", [one[0::2] for one in taken], floor),
        Line.of_latencies(f"- {title}: assistant messages with usage", "us", [one[1::2] for one in taken], floor),
        Line.of_latencies(f"- {title}: a line of a JSONL file, not flue_py", "us", file, floor),
    ]
    if durability == "full":
        engine, floor = await in_rounds(options.rounds, through_engine, raw)
        lines.append(Line.of_latencies(f"- {title}: through an engine, sqlite+aiosqlite", "us", engine, floor))
    return lines


async def _on_this_thread(options: Options, messages: list[Message], durability: Durability) -> list[Line]:
    """Compare appends that no other thread has to do with, awaited and by the blocking twin, with those that have.

    They take turns message by message, so that a busy disk is as busy for all of them.
    """
    rounds = [await _in_turns(options, messages, durability) for _ in range(options.rounds)]
    floor, without, blocking, with_threads = (
        [samples[WARM_UP:] for samples in side] for side in zip(*rounds, strict=True)
    )
    title = f"{TITLES[durability]}, in turns"
    return [
        Line.of_latencies(f"{title}: flue_py.sync", "us", blocking, floor, BLOCKING_GOALS[durability]),
        Line.of_latencies(f"{title}: threads=False", "us", without, floor),
        Line.of_latencies(f"{title}: with threads", "us", with_threads, floor),
    ]


async def _in_turns(
    options: Options, messages: list[Message], durability: Durability
) -> tuple[Samples, Samples, Samples, Samples]:
    """Return the times of raw, of a store without threads, of the blocking twin, and of a store with threads."""
    samples: tuple[Samples, Samples, Samples, Samples] = ([], [], [], [])
    floor, without, blocking, with_threads = samples
    settle()
    with scratch(options) as folder, flue_py.sync.open(folder / "twin.db", durability=durability) as twin:
        raw = Raw(folder / "raw.db", durability)
        async with (
            flue_py.open(folder / "without.db", durability=durability, threads=False) as one,
            flue_py.open(folder / "with.db", durability=durability) as other,
        ):
            session, here, there = twin.create_session(), await one.create_session(), await other.create_session()
            for message, text in zip(messages, map(body, messages), strict=True):
                floor.append(timed(partial(raw.append, text)))
                without.append(await timed_async(partial(here.append_message, message)))
                blocking.append(timed(partial(session.append_message, message)))
                with_threads.append(await timed_async(partial(there.append_message, message)))
        raw.close()
    return samples


def _append_raw(options: Options, messages: Sequence[Message], durability: Durability) -> Samples:
    with scratch(options) as folder:
        store = Raw(folder / "raw.db", durability)
        samples = []
        for text in map(body, messages):
            start = perf_counter()
            store.append(text)
            samples.append(perf_counter() - start)
        store.close()
        return samples[WARM_UP:]


async def append_all(session: flue_py.Session, messages: Sequence[Message]) -> Samples:
    """Return the time of each append, without the first ones."""
    samples = []
    for message in messages:
        start = perf_counter()
        await session.append_message(message)
        samples.append(perf_counter() - start)
    return samples[WARM_UP:]


def _append_lines(path: Path, messages: list[Message], *, fsync: bool) -> Samples:
    samples = []
    with path.open("a", encoding="utf-8") as file:
        for message in messages:
            start = perf_counter()
            file.write(body(message) + "\n")
            file.flush()
            if fsync:
                os.fsync(file.fileno())
            samples.append(perf_counter() - start)
    return samples[WARM_UP:]


async def _on_histories(options: Options, messages: list[Message]) -> list[Line]:
    """Compare appends on a long history with appends on a short one, in one round each."""
    few, many = 100, options.count(100_000, 500)
    lines = []
    for durability in ("full", "normal"):
        async with AsyncExitStack() as stack:
            sides = {}
            for length in (few, many):
                path = options.directory / f"history-{durability}-{length}.db"
                async with flue_py.open(path, durability="normal") as store:
                    await fill(await store.create_session(key="long"), messages, length)
                opened = await stack.enter_async_context(flue_py.open(path, durability=durability))
                sides[length] = await opened.open_session("long")

            async def on_few(session: flue_py.Session = sides[few]) -> Samples:
                return await append_all(session, messages[: options.count(300, 40)])

            async def on_many(session: flue_py.Session = sides[many]) -> Samples:
                return await append_all(session, messages[: options.count(300, 40)])

            short, long = await in_rounds(options.rounds, on_few, on_many)
        title = f"{TITLES[durability]}: history of {many:,} against {few}"
        lines.append(Line.of_latencies(title, "us", long, short, Goal(1.2, to=f"at {few}")))
    return lines


async def _pages(options: Options) -> list[Line]:
    """Count the pages of log that an append writes, on a store of two hundred sessions with a hundred messages each."""
    many, group = options.count(200, 20), options.count(100, 10)
    user, assistant = make_messages(2)
    lines = []
    with scratch(options) as folder:
        path = folder / "store.db"
        async with flue_py.open(path) as store:
            sessions = await open_sessions(store, many, options.count(100, 10))
            alone = [await pages_alone(path, sessions[:group], message) for message in (user, assistant)]
            together = [await pages_in_group(path, sessions[:group], message) for message in (user, assistant)]
    for title, pages, goal in (
        ("pages of log, an append", alone, PAGES_ALONE),
        (f"pages of log, an append of {group} at once", together, PAGES_IN_GROUP),
    ):
        lines.append(Line.of_figures(title, "pages", [sum(pages) / 2], goal=goal))
        lines.append(Line.of_figures(f"- {title}: user message", "pages", pages[:1]))
        lines.append(Line.of_figures(f"- {title}: assistant message with usage", "pages", pages[1:]))
    return lines


if __name__ == "__main__":
    main(measure)
