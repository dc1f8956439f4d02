"""The cost of counting the tokens of a long context: the first time in a process, and again.

Cold has the text to count. Again is another handle that has read nothing, whose reading is not in the figure; what was
counted is found by entry. The vocabulary is loaded before the clock starts. The figures are CPU time, of all threads.
"""

from __future__ import annotations

from time import process_time

import flue_py
from benchmarks.measuring import Goal, Line, Options, Samples, fill, in_rounds, main, make_messages
from flue_py import Store
from flue_py.context.tokens import ENTRY_COUNTS, counter_for


async def measure(options: Options) -> list[Line]:
    """Return the lines."""
    count = options.count(10_000, 100)
    lines: list[Line] = []
    async with flue_py.open(options.directory / "counting.db", durability="normal") as store:
        await fill(await store.create_session(key="long"), make_messages(min(count, 1_000)), count)
        for model in ("gpt-5", "some-model"):
            name = counter_for(model).name
            counter_for(model).count({"role": "user", "content": "x"})
            cold, again = await in_rounds(
                options.rounds,
                lambda model=model: _sampled(store, 1, model, is_cold=True),
                lambda model=model: _sampled(store, options.count(20, 2), model, is_cold=False),
            )
            lines.append(Line.of_latencies(f"count {count:,} messages, {name}: first", "ms", cold))
            lines.append(
                Line.of_latencies(f"count {count:,} messages, {name}: again", "ms", again, goal=Goal(10, "value"))
            )
    return lines


async def _sampled(store: Store, times: int, model: str, *, is_cold: bool) -> Samples:
    samples = []
    for _ in range(times):
        session = await store.open_session("long")
        await session.build_context_entries()
        if is_cold:
            ENTRY_COUNTS.clear()
        else:
            await session.context.measure(model, use_reported=False)
        start = process_time()
        await session.context.measure(model, use_reported=False)
        samples.append(process_time() - start)
    return samples


if __name__ == "__main__":
    main(measure)
