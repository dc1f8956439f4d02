"""What two branches of a long session begin with: by running digests, and by comparing their contexts whole.

The branches part in the middle. Known has asked for both before; beside has asked for one, so that the other is read
from where they part; first has asked for nothing. Raw builds both contexts and compares them message by message.
"""

from __future__ import annotations

import flue_py
from benchmarks.measuring import Goal, Line, Options, Samples, fill, in_rounds, main, make_messages, timed_async
from flue_py import Session, Store


async def measure(options: Options) -> list[Line]:
    """Return the lines."""
    count = options.count(10_000, 100)
    async with flue_py.open(options.directory / "prefixes.db", durability="normal") as store:
        one, other = await _branches(store, count)
        times = options.count(20, 2)
        known, beside, first, raw = await in_rounds(
            options.rounds,
            lambda: _sampled(store, times, one, other, (one, other)),
            lambda: _sampled(store, options.count(3, 1), one, other, (one,)),
            lambda: _sampled(store, options.count(3, 1), one, other, ()),
            lambda: _compared(store, one, other),
        )
    what = f"common prefix of two branches of {count:,}"
    return [
        Line.of_latencies(f"{what}: known", "ms", known, raw, goal=Goal(0.1)),
        Line.of_latencies(f"{what}: beside a known one", "ms", beside, raw),
        Line.of_latencies(f"{what}: first", "ms", first, raw),
    ]


async def _branches(store: Store, count: int) -> tuple[str, str]:
    """Return the leaves of two branches that part in the middle."""
    session = await store.create_session(key="long")
    messages = make_messages(min(count, 1_000))
    await fill(session, messages, count // 2)
    middle = session.leaf_id
    leaves = []
    for turn in (1, 2):
        await session.move_leaf(middle)
        await session.append_message({"role": "user", "content": f"branch {turn}"})
        await fill(session, messages, count // 2)
        leaves.append(session.leaf_id or "")
    return leaves[0], leaves[1]


async def _sampled(store: Store, times: int, one: str, other: str, known: tuple[str, ...]) -> Samples:
    samples = []
    for _ in range(times):
        session = await store.open_session("long")
        for leaf in known:
            await session.context.common_prefix(leaf, leaf)
        samples.append(await timed_async(lambda session=session: session.context.common_prefix(one, other)))
    return samples


async def _compared(store: Store, one: str, other: str) -> Samples:
    session = await store.open_session("long")
    return [await timed_async(lambda: _compare(session, one, other))]


async def _compare(session: Session, one: str, other: str) -> int:
    pairs = zip(await session.build_context(leaf=one), await session.build_context(leaf=other), strict=False)
    return next((place for place, (mine, theirs) in enumerate(pairs) if mine != theirs), 0)


if __name__ == "__main__":
    main(measure)
