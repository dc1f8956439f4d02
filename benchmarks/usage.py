"""The cost of the usage since the middle of a session, at several lengths. The floor sums one column over the range."""

from __future__ import annotations

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
    timed,
    timed_async,
)
from benchmarks.raw import Raw


async def measure(options: Options) -> list[Line]:
    """Return the lines."""
    lengths = (100, 200) if options.short else (1_000, 10_000, 100_000)
    messages = make_messages(1000)
    return [await _at(options, length, messages) for length in lengths]


async def _at(options: Options, length: int, messages: list[dict[str, object]]) -> Line:
    path = options.directory / f"store-{length}.db"
    async with flue_py.open(path, durability="normal") as store:
        await fill(await store.create_session(key="long"), messages, length)
    floor = Raw(options.directory / f"raw-{length}.db", "normal")
    floor.fill([body(message) for message in messages], length)

    async with flue_py.open(path) as store:
        session = await store.open_session("long")
        middle = (await session.get_active_path())[length // 2].id
        times = options.count(300, 3)

        async def ours() -> Samples:
            return [await timed_async(lambda: session.money.aggregate_usage_since(middle)) for _ in range(times)]

        async def raw() -> Samples:
            return [timed(lambda: floor.tokens_since(length // 2)) for _ in range(times)]

        taken, summed = await in_rounds(options.rounds, ours, raw)
    floor.close()
    return Line.of_latencies(f"usage since the middle of {length:,}", "ms", taken, summed, Goal(0.3, of="value"))


if __name__ == "__main__":
    main(measure)
