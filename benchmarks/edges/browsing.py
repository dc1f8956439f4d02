"""What the browser costs: the list of sessions, the first screen of a long session, all of it, and a key.

    python -m benchmarks.edges.browsing [--short] [--rounds N]

It is driven without a terminal, and needs the extra ``tui``. What a person waits for is wall time, a key CPU time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter, process_time

import flue_py
from benchmarks.measuring import Goal, Line, Options, fill, main, make_messages, scratch
from flue_py.tui.app import Browser, RowList, SessionScreen

_KEYS = 20


async def measure(options: Options) -> list[Line]:
    """Return the lines."""
    entries = options.count(100_000, 3_000)
    with scratch(options) as folder:
        async with flue_py.open(folder / "browsed.db", durability="normal") as store:
            await fill(await store.create_session(title="long"), make_messages(1_000), entries)
            rounds = [await _round(store) for _ in range(options.rounds)]
    listed, first, whole, key = ([[figure] for figure in figures] for figures in zip(*rounds, strict=True))
    what = f"a session of {entries:,} entries"
    return [
        Line.of_latencies("the list of sessions", "ms", listed, goal=Goal(1_000, of="value")),
        Line.of_latencies(f"{what}: the first screen", "ms", first, goal=Goal(1_000, of="value")),
        Line.of_latencies(f"{what}: all of it", "ms", whole),
        Line.of_latencies(f"{what}: a key, CPU", "ms", key, goal=Goal(50, of="value")),
    ]


async def _round(store: flue_py.Store) -> tuple[float, float, float, float]:
    """Return the seconds until the sessions are listed, one is shown, all of it is; and of CPU for a key."""
    begin = perf_counter()
    app = Browser(store, "browsed.db")

    def shown(kind: type) -> bool:
        return isinstance(app.screen, kind) and bool(found := app.screen.query(RowList)) and found.first().count > 0

    async with app.run_test(size=(80, 24)) as pilot:
        await _until(lambda: shown(object))
        listed = perf_counter() - begin
        begin = perf_counter()
        app.simulate_key("enter")
        await _until(lambda: shown(SessionScreen))
        first = perf_counter() - begin
        screen = app.screen
        assert isinstance(screen, SessionScreen)
        await _until(lambda: screen.is_whole)
        whole = perf_counter() - begin
        cpu = process_time()
        await pilot.press(*["up"] * _KEYS)
        return listed, first, whole, (process_time() - cpu) / _KEYS


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - what it waits for tells nobody
        await asyncio.sleep(0.002)


if __name__ == "__main__":
    main(measure)
