"""The cost of a batch: several operations as one transaction, against the same ones after each other.

The floor is as many appends in one transaction, done minimally on the stdlib driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from time import perf_counter

import flue_py
from benchmarks.measuring import (
    Goal,
    Line,
    Message,
    Options,
    Samples,
    body,
    in_rounds,
    main,
    make_messages,
    scratch,
    timed_async,
)
from benchmarks.raw import Raw

SIZES = (2, 10, 100)
WARM_UP = 5


async def measure(options: Options) -> list[Line]:
    """Return the lines."""
    lines = []
    for size in SIZES:
        lines += await _appends(options, size)
    return [*lines, *await _mixed(options)]


async def _appends(options: Options, size: int) -> list[Line]:
    """An append to each of so many sessions."""
    times = options.count(200 if size < SIZES[-1] else 50, 5)
    messages = make_messages(1000)

    async def as_one() -> Samples:
        with scratch(options) as folder:
            async with flue_py.open(folder / "store.db") as store:
                sessions = [await store.create_session() for _ in range(size)]

                async def batch(said: Sequence[Message]) -> None:
                    async with store.atomic() as tx:
                        for session, message in zip(sessions, said, strict=True):
                            tx.append_message(session, message)

                return [await timed_async(lambda said=said: batch(said)) for said in _groups(messages, size, times)]

    async def one_by_one() -> Samples:
        with scratch(options) as folder:
            async with flue_py.open(folder / "store.db") as store:
                sessions = [await store.create_session() for _ in range(size)]

                async def singly(said: Sequence[Message]) -> None:
                    for session, message in zip(sessions, said, strict=True):
                        await session.append_message(message)

                return [await timed_async(lambda said=said: singly(said)) for said in _groups(messages, size, times)]

    async def raw() -> Samples:
        with scratch(options) as folder, closing(Raw(folder / "raw.db", sessions=size)) as floor:
            samples = []
            for said in _groups(messages, size, times):
                texts = [body(message) for message in said]
                start = perf_counter()
                floor.append_to_each(texts)
                samples.append(perf_counter() - start)
            return samples

    batches, single, floor = [
        [one[WARM_UP:] or one for one in side] for side in await in_rounds(options.rounds, as_one, one_by_one, raw)
    ]
    what = f"append to {size} sessions"
    return [
        Line.of_latencies(f"{what}, as one batch", "us", batches, floor),
        Line.of_latencies(f"- {what}, one by one", "us", single, floor),
        Line.of_latencies(f"- {what}: the batch (raw: one by one)", "us", batches, single, Goal(1, to="one by one")),
    ]


async def _mixed(options: Options) -> list[Line]:
    """What an agent does that hands work out: an answer, a label on it, a task, its first message, a title."""
    times = options.count(200, 5)
    answer = {"role": "assistant", "content": "I hand it out."}

    async def as_one() -> Samples:
        with scratch(options) as folder:
            async with flue_py.open(folder / "store.db") as store:
                session = await store.create_session()

                async def batch(number: int) -> None:
                    async with store.atomic() as tx:
                        said = tx.append_message(session, answer)
                        tx.set_label(session, said.entry_id, "handed out")
                        task = tx.create_task(session, task_id=f"t{number}")
                        tx.append_message(task, {"role": "user", "content": "Look at it."})
                        tx.set_title(session, f"Handed out {number}")

                return [await timed_async(lambda number=number: batch(number)) for number in range(times)]

    async def one_by_one() -> Samples:
        with scratch(options) as folder:
            async with flue_py.open(folder / "store.db") as store:
                session = await store.create_session()

                async def singly(number: int) -> None:
                    said = await session.append_message(answer)
                    await session.marks.set_label(said.entry_id, "handed out")
                    task = await session.tasks.create(task_id=f"t{number}")
                    await task.append_message({"role": "user", "content": "Look at it."})
                    await session.set_title(f"Handed out {number}")

                return [await timed_async(lambda number=number: singly(number)) for number in range(times)]

    batches, single = [
        [one[WARM_UP:] or one for one in side] for side in await in_rounds(options.rounds, as_one, one_by_one)
    ]
    title = "five operations of several kinds as one batch (raw: one by one)"
    return [Line.of_latencies(title, "us", batches, single, Goal(1, to="one by one"))]


def _groups(messages: Sequence[Message], size: int, times: int) -> Iterator[Sequence[Message]]:
    endless = (messages[number % len(messages)] for number in range(size * times))
    for _ in range(times):
        yield list(islice(endless, size))


if __name__ == "__main__":
    main(measure)
