"""The cost of the HTML report of a long session: making it, and opening it in Chromium until it is drawn."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import flue_py
from benchmarks.measuring import Goal, Line, Options, Samples, in_rounds, main, make_messages, timed_async

if TYPE_CHECKING:
    from playwright.async_api import Browser

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
SWITCHES = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
TURNS_TO_A_FORK = 250
TURNS_TO_A_COMPACTION = 1000


async def measure(options: Options) -> list[Line]:
    """Return the lines."""
    length = options.count(10_000, 200)
    async with flue_py.open(options.directory / "store.db", durability="normal") as store:
        session = await store.create_session(key="long", title="A long session")
        await _fill(session, length)

        async def made() -> Samples:
            return [await timed_async(lambda: session.reports.html(warn_at=50_000)) for _ in range(options.count(3, 1))]

        async def unsized() -> Samples:
            return [await timed_async(lambda: session.reports.html(sizes=False)) for _ in range(options.count(3, 1))]

        whole, quick = await in_rounds(options.rounds, made, unsized)
        page = (await session.reports.html(warn_at=50_000)).encode()
    file = options.directory / "report.html"
    file.write_bytes(page)
    return [
        Line.of_latencies(f"report of {length:,} entries, made (raw: without counting tokens)", "ms", whole, quick),
        Line.of_figures(f"report of {length:,} entries, size", "KiB", [len(page) / 1024]),
        await _opened(file, f"report of {length:,} entries, opened in Chromium and drawn", options),
    ]


async def _fill(session: flue_py.Session, length: int) -> None:
    """Fill a session with branches and compactions."""
    messages = make_messages(1000)
    count = 0
    while count < length:
        batch = [messages[number % 1000] for number in range(count, min(length, count + TURNS_TO_A_FORK))]
        ids = (await session.append_messages(batch)).entry_ids
        count += len(batch)
        if count % TURNS_TO_A_COMPACTION == 0:
            await session.append_compaction("so far", first_kept_entry_id=ids[-20], tokens_before=50_000)
        elif count < length:
            await session.move_leaf(ids[len(ids) // 2])


async def _opened(file: Path, what: str, options: Options) -> Line:
    if options.short:
        return Line.skipped(what, "run without --short")
    named = os.environ.get("FLUE_PY_TEST_CHROMIUM")
    program = shutil.which(named) if named else next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None or find_spec("playwright") is None:
        return Line.skipped(what, "no Chromium, or no playwright to drive it")
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=list(SWITCHES))

        async def opened() -> Samples:
            return [await _open_once(browser, file) for _ in range(options.count(5, 1))]

        (taken,) = await in_rounds(options.rounds, opened)
        await browser.close()
    return Line.of_latencies(what, "ms", taken, None, Goal(2000, of="value"))


async def _open_once(browser: Browser, file: Path) -> float:
    """Return how many seconds pass until the page is loaded, its scripts have run, and a frame of it was shown."""
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    page = await context.new_page()

    async def drawn() -> None:
        await page.goto(file.as_uri())
        await page.evaluate("new Promise((shown) => requestAnimationFrame(() => requestAnimationFrame(shown)))")

    seconds = await timed_async(drawn)
    assert await page.locator("#chart canvas").count() == 1
    await context.close()
    return seconds


if __name__ == "__main__":
    main(measure)
