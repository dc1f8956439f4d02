"""Appends per second of a hundred sessions that append at once, each waiting for its own commit, and their CPU time.

The floor commits each append on its own, one after the other, as a store without group commit does. On both sides one
more session appends before the clock starts. CPU time is that of all threads, user and system.
"""

from __future__ import annotations

import asyncio
from time import perf_counter, process_time
from typing import Literal

import flue_py
from benchmarks.measuring import Goal, Line, Message, Options, Samples, body, in_rounds, main, make_messages, scratch
from benchmarks.raw import Raw

Durability = Literal["full", "normal"]
GOALS = {"full": Goal(4, at_least=True), "normal": None}
CPU_GOALS = {"full": Goal(0.35), "normal": None}
TITLES = {"full": "fsync", "normal": "no fsync"}


async def measure(options: Options) -> list[Line]:
    """Return the lines."""
    sessions, each = options.count(100, 10), options.count(50, 5)
    messages = make_messages(each)
    durabilities: tuple[Durability, ...] = ("full", "normal")
    return [line for durability in durabilities for line in await _at_once(options, sessions, messages, durability)]


async def _at_once(options: Options, count: int, messages: list[Message], durability: Durability) -> list[Line]:
    bodies = [body(message) for message in messages]

    async def ours() -> Samples:
        with scratch(options) as folder:
            async with flue_py.open(folder / "store.db", durability=durability) as store:
                sessions = [await store.create_session() for _ in range(count)]
                await _append_all(await store.create_session(), messages)
                start, cpu = perf_counter(), process_time()
                await asyncio.gather(*[_append_all(session, messages) for session in sessions])
                return [perf_counter() - start, process_time() - cpu]

    async def raw() -> Samples:
        with scratch(options) as folder:
            store = Raw(folder / "raw.db", durability, sessions=count + 1)
            for text in bodies:
                store.append(text, count)
            start, cpu = perf_counter(), process_time()
            for text in bodies:
                for session in range(count):
                    store.append(text, session)
            taken = [perf_counter() - start, process_time() - cpu]
            store.close()
            return taken

    taken, floor = await in_rounds(options.rounds, ours, raw)
    total = count * len(messages)
    title = f"{count} sessions appending at once, {TITLES[durability]}"
    return [
        Line.of_figures(
            title,
            "/s",
            [total / seconds for seconds, _ in taken],
            [total / seconds for seconds, _ in floor],
            GOALS[durability],
        ),
        Line.of_figures(
            f"{title}: CPU time of an append",
            "us",
            [cpu / total * 1e6 for _, cpu in taken],
            [cpu / total * 1e6 for _, cpu in floor],
            CPU_GOALS[durability],
        ),
    ]


async def _append_all(session: flue_py.Session, messages: list[Message]) -> None:
    for message in messages:
        await session.append_message(message)


if __name__ == "__main__":
    main(measure)
