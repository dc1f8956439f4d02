"""The cost of building the context when a compaction keeps 200 messages of a very long session, and of reading its end.

Each sample is a handle that has read nothing. The floor is a range scan of as many bodies and `json.loads`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

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
LAST = 20


async def measure(options: Options) -> list[Line]:
    """Return the lines."""
    lengths = [1_000] if options.short else [1_000, 100_000]
    if options.long:
        lengths.append(1_000_000)
    messages = make_messages(1000)
    lines = [await _at(options, length, messages) for length in lengths]
    lines += await _ends(options, messages)
    if not options.long and not options.short:
        lines.append(Line.skipped("context of 1,000,000 entries", "run with --long"))
    return lines


async def _ends(options: Options, messages: list[Message]) -> list[Line]:
    """Return what the end of a long session costs, as entries and as messages, beside a session that is no longer."""
    path = options.directory / "ends.db"
    length, times = options.count(5_000, 100), options.count(300, 3)
    async with flue_py.open(path, durability="normal") as store:
        for key, count in (("long", length), ("short", LAST)):
            await fill(await store.create_session(key=key), messages, count)

    async with flue_py.open(path) as store:
        long, short = await store.open_session("long"), await store.open_session("short")
        path_of_long, path_of_short, all_of_short, context_of_long, context_of_short = await in_rounds(
            options.rounds,
            lambda: _sampled(times, lambda: long.get_active_path(limit=LAST)),
            lambda: _sampled(times, lambda: short.get_active_path(limit=LAST)),
            lambda: _sampled(times, lambda: short.get_active_path(leaf=short.leaf_id)),
            lambda: _sampled(times, lambda: long.build_context(limit=LAST)),
            lambda: _sampled(times, lambda: short.build_context(limit=LAST)),
        )
    of, beside = f"the last {LAST} of {length:,}", f"(raw: of {LAST})"
    return [
        Line.of_latencies(f"path: {of} {beside}", "ms", path_of_long, path_of_short, Goal(1.2)),
        Line.of_latencies(f"path: {of} (raw: {LAST} without a limit)", "ms", path_of_long, all_of_short),
        Line.of_latencies(f"context: {of} {beside}", "ms", context_of_long, context_of_short, Goal(1.2)),
    ]


async def _sampled(times: int, read: Callable[[], Awaitable[object]]) -> Samples:
    return [await timed_async(read) for _ in range(times)]


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
