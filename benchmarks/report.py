"""The cost of HTML reports: of a long session, opened in Chromium until it is drawn, and of many sessions."""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING

import flue_py
from benchmarks.measuring import (
    PROSE,
    Goal,
    Line,
    Message,
    Options,
    Samples,
    fill,
    in_rounds,
    main,
    make_messages,
    timed_async,
)
from flue_py.transfer import write_pages

if TYPE_CHECKING:
    from playwright.async_api import Browser

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
SWITCHES = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")


async def measure(options: Options) -> list[Line]:
    """Return the lines."""
    length, sessions = options.count(100_000, 200), 25
    what = f"report of {length:,} entries"
    async with flue_py.open(options.directory / "store.db", durability="normal") as store:
        session = await store.create_session(key="long", title="A long session")
        await fill(session, _messages(length), length)

        async def made() -> Samples:
            return [await _cpu_time(lambda: session.reports.html(warn_at=50_000, sizes=False))]

        async def sized() -> Samples:
            return [await _cpu_time(lambda: session.reports.html(warn_at=50_000))]

        quick, whole = await in_rounds(options.rounds, made, sized)
        page = (await session.reports.html(warn_at=50_000, sizes=False)).encode()
    async with flue_py.open(options.directory / "store-of-many.db", durability="normal") as store:
        for number in range(sessions):
            few = await store.create_session(key=f"session {number}")
            await fill(few, _messages(length // 100), length // 100)

        async def listed() -> Samples:
            return [await _cpu_time(lambda: write_pages(store, options.directory / "pages", overwrite=True))]

        (pages,) = await in_rounds(options.rounds, listed)
    file = options.directory / "report.html"
    file.write_bytes(page)
    return [
        Line.of_latencies(f"{what}, made, CPU", "ms", quick, None, Goal(6_000, of="value")),
        Line.of_latencies(f"{what}, made with sizes, CPU", "ms", whole),
        Line.of_figures(f"{what}, size", "KiB", [len(page) / 1024], None, Goal(30_000, of="value")),
        Line.of_latencies(f"{sessions} sessions of {length // 100:,}, CPU", "ms", pages, None, Goal(5_000, of="value")),
        await _opened(file, f"{what}, opened in Chromium and drawn", options),
    ]


async def _cpu_time(work: Callable[[], Awaitable[object]]) -> float:
    start = process_time()
    await work()
    return process_time() - start


def _messages(count: int) -> list[Message]:
    """Return the messages of an agent that calls a tool in each turn, of a hundred characters each."""
    asked, *answers = make_messages(2)
    usage = {name: value for name, value in answers[0].items() if name != "content"}
    messages: list[Message] = []
    for turn in range(count // 4 + 1):
        call_id, text = f"call_{turn}", f"{turn}: {PROSE[: 60 + turn % 80]}"
        call = {
            "type": "toolCall",
            "id": call_id,
            "name": "bash",
            "arguments": {"command": f"sed -n {turn}p parser.py"},
        }
        result = {"role": "toolResult", "toolCallId": call_id, "toolName": "bash", "isError": False}
        messages += [
            {**asked, "content": text},
            {**usage, "content": [{"type": "text", "text": "I look."}, call], "stopReason": "toolUse"},
            {**result, "content": [{"type": "text", "text": f"{text}\n{PROSE[:20]}"}], "timestamp": turn},
            {**usage, "content": [{"type": "text", "text": text}]},
        ]
    return messages[:count]


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
