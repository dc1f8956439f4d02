"""The cost of building the context when a compaction keeps 200 messages of a very long session.

Each sample is a handle that has read nothing. The floor is a range scan of as many bodies and `json.loads`.
"""

from __future__ import annotations

import flue_py
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
    timed,
    timed_async,
)
from benchmarks.raw import Raw

KEPT = 200


async def measure(options: Options) -> list[Line]:
    """Return the lines."""
    lengths = [1_000] if options.short else [1_000, 100_000]
    if options.long:
        lengths.append(1_000_000)
    messages = make_messages(1000)
    lines = [await _at(options, length, messages) for length in lengths]
    if not options.long and not options.short:
        lines.append(Line.skipped("context of 1,000,000 entries", "run with --long"))
    return lines


async def _at(options: Options, length: int, messages: list[Message]) -> Line:
    path = options.directory / f"store-{length}.db"
    async with flue_py.open(path, durability="normal") as store:
        session = await store.create_session(key="long")
        await fill(session, messages, length - KEPT)
        first = (await session.append_messages(messages[:KEPT])).entry_ids[0]
        await session.append_compaction("What was done so far. " * 25, first_kept_entry_id=first, tokens_before=90_000)
        session_id = session.id
    floor = Raw(options.directory / f"raw-{length}.db", "normal")
    floor.fill([body(message) for message in messages], length)
    times = options.count(100, 3)

    async with flue_py.open(path) as store:

        async def ours() -> Samples:
            samples = []
            for _ in range(times):
                fresh = await store.get_session(session_id)
                assert fresh is not None
                samples.append(await timed_async(fresh.build_context))
            return samples

        async def raw() -> Samples:
            return [timed(lambda: floor.scan(length - KEPT - 1)) for _ in range(times)]

        taken, scanned = await in_rounds(options.rounds, ours, raw)
    floor.close()
    return Line.of_latencies(f"context of {length:,} entries, {KEPT} kept", "ms", taken, scanned, Goal(1.5))


if __name__ == "__main__":
    main(measure)
