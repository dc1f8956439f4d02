"""How a report draws compactions: what went in, what came out, what was lost, and those that were taken back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import flue_py
from flue_py.compaction import CompactionSettings
from tests.browser import PHONE, Chromium
from tests.values import existing

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = "<img src=x onerror=window.pwned=1>"


async def written(folder: Path) -> tuple[Path, str, str, str, str]:
    """Return a report, and the ids of the first message, of two compactions, and of what took the second back."""
    async with flue_py.open(folder / "sessions.db") as store:
        session = await store.create_session()
        ids: list[str] = []
        settings = CompactionSettings(keep_recent_tokens=40)
        made = []
        for layer in range(2):
            for number in range(3):
                text = f"Never touch src/part{layer}{number}.py and {HOSTILE}! " + "so " * 80
                answer = {"role": "assistant", "content": "Fine. " + "and " * 80}
                ids += (await session.append_messages([{"role": "user", "content": text}, answer])).entry_ids
            made.append((await session.compact(mode="window", settings=settings)).entry_id or "")
        back = existing(await session.compactions.uncompact())
        file = folder / "report.html"
        file.write_bytes((await session.reports.html()).encode())
        return file, ids[0], made[0], made[1], back.appended.entry_ids[0]


def select(page: Page, entry_id: str) -> str:
    """Select an entry by finding it, and return what its tab says of the compaction."""
    page.locator("#find").fill(entry_id)
    page.locator("#find").press("Enter")
    page.locator("#tab-2").click()
    assert page.locator("#reading-title code").text_content() == entry_id
    return page.locator("#panel .compaction").inner_text()


def test_each_layer_is_drawn_with_what_it_lost(chromium: Chromium, tmp_path: Path) -> None:
    file, asked, first, second, taker = asyncio.run(written(tmp_path))

    def look(page: Page) -> None:
        said = select(page, second)
        assert f"At the leaf it is not in effect. Taken back by {taker}." in said
        page.locator("#panel .compaction button", has_text=taker).click()
        page.locator("#tab-2").click()
        said = page.locator("#panel .compaction").inner_text()
        assert said.endswith(f"It takes a compaction back: {second}; in effect again: {first}.")

        said = select(page, first)
        assert "At the leaf it is in effect." in said
        assert "Went in" in said
        assert "5 messages, size" in said
        assert "1 summary, size" in said
        widths = page.locator("#panel .compaction .fill").evaluate_all("all => all.map(each => each.offsetWidth)")
        assert widths[0] > widths[1] > 0
        rows = page.locator("#panel .compaction tbody tr").evaluate_all(
            "all => all.map(row => [...row.children].map(cell => cell.textContent))"
        )
        assert ["instruction", "3", "0", "0%"] in rows
        lost = page.locator("#panel .compaction .lost li").all_inner_texts()
        assert any(text.startswith("src/part00.py") for text in lost)
        assert any(HOSTILE in text for text in lost)
        assert page.evaluate("[window.pwned, document.images.length]") == [None, 0]
        page.locator("#panel .compaction button", has_text=asked).first.click()
        assert page.locator("#reading-title code").text_content() == asked

    chromium.look(file, look)


def test_it_fits_a_phone(chromium: Chromium, tmp_path: Path) -> None:
    file, _, first, _, _ = asyncio.run(written(tmp_path))

    def look(page: Page) -> None:
        assert "What was lost" in select(page, first)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.locator("#panel").evaluate("panel => panel.scrollWidth <= panel.clientWidth + 1")

    chromium.look(file, look, viewport=PHONE)
