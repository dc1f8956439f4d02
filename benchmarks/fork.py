"""The cost of a fork at the middle of a long session: time, in appends to the same store, and bytes per fork."""

from __future__ import annotations

import flue_py
from benchmarks.append import append_all
from benchmarks.measuring import (
    Goal,
    Line,
    Options,
    Samples,
    database_bytes,
    fill,
    in_rounds,
    main,
    make_messages,
    timed_async,
)


async def measure(options: Options) -> list[Line]:
    """Return the lines."""
    count = options.count(10_000, 200)
    messages = make_messages(1000)
    path = options.directory / "store.db"
    async with flue_py.open(path, durability="normal") as store:
        await fill(await store.create_session(key="long"), messages, count)

    async with flue_py.open(path) as store:
        long = await store.open_session("long")
        middle = (await long.get_active_path())[count // 2].id
        other = await store.create_session()

        async def forks() -> Samples:
            return [await timed_async(lambda: long.fork(at=middle)) for _ in range(options.count(300, 5))]

        async def appends() -> Samples:
            return await append_all(other, messages[: options.count(320, 30)])

        taken, floor = await in_rounds(options.rounds, forks, appends)

    before = database_bytes(path)
    many = options.count(2_000, 50)
    async with flue_py.open(path, durability="normal") as store:
        long = await store.open_session("long")
        for _ in range(many):
            await long.fork(at=middle)
    grown = database_bytes(path) - before
    what = f"fork at the middle of {count:,}"
    return [
        Line.of_latencies(f"{what} (raw: an append here)", "us", taken, floor, Goal(2, to="an append")),
        Line.of_figures(f"{what}, bytes (over {many:,} forks)", "bytes", [grown / many], None, Goal(250, of="value")),
    ]


if __name__ == "__main__":
    main(measure)
