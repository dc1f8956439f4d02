"""The cost per row of deleting a session. The floor deletes the same rows of two tables in one transaction."""

from __future__ import annotations

import flue_py
from benchmarks.measuring import (
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
    timed,
    timed_async,
)
from benchmarks.raw import Raw


async def measure(options: Options) -> list[Line]:
    """Return the lines."""
    lengths = (100,) if options.short else (1_000, 10_000)
    messages = make_messages(1000)
    return [await _of(options, length, messages) for length in lengths]


async def _of(options: Options, length: int, messages: list[Message]) -> Line:
    bodies = [body(message) for message in messages]

    async def ours() -> Samples:
        with scratch(options) as folder:
            async with flue_py.open(folder / "store.db", durability="normal") as store:
                session = await store.create_session()
                await fill(session, messages, length)
            async with flue_py.open(folder / "store.db") as store:
                return [await timed_async(lambda: store.delete_session_tree(session.id)) / length]

    async def raw() -> Samples:
        with scratch(options) as folder:
            store = Raw(folder / "raw.db")
            store.fill(bodies, length)
            seconds = timed(store.delete)
            store.close()
            return [seconds / length]

    taken, floor = await in_rounds(options.rounds, ours, raw)
    return Line.of_latencies(f"delete a session of {length:,} entries, per entry", "us", taken, floor)


if __name__ == "__main__":
    main(measure)
