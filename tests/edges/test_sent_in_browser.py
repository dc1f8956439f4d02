"""How a report shows what an agent is sent: each step, and what became of each entry, beside the tree."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flue_py
from flue_py import InvalidArgument
from flue_py.compaction import CompactionSettings
from tests.browser import PHONE, Chromium
from tests.checks import raises
from tests.edges.cli_runs import Flue
from tests.values import existing

if TYPE_CHECKING:
    from playwright.sync_api import Page


HOSTILE = "<img src=x onerror=window.pwned=1>"
SETTINGS: dict[str, Any] = {
    "agents": {HOSTILE: {"window": {"max_tail_messages": 3}}},
    "microcompact": {"keep": 0, "tools": ["read"]},
    "epoch_tokens": 0,
}


async def written(folder: Path) -> tuple[Path, list[str]]:
    """Return a report with what an agent is sent, and the ids of the session's entries."""
    async with flue_py.open(folder / "sessions.db") as store:
        session = await store.create_session(id="s1")
        call = {"type": "toolCall", "id": "c1", "name": "read", "arguments": {}}
        said: list[dict[str, Any]] = [
            {"role": "user", "content": "Why is the build red?"},
            {"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]},
            {"role": "toolResult", "toolCallId": "c1", "toolName": "read", "content": "TIMEOUT " * 50},
            {"role": "user", "content": "And now?"},
        ]
        ids = [(await session.append_message(message)).entry_id for message in said]
        file = folder / "report.html"
        page = await session.reports.html(settings=SETTINGS, agent=HOSTILE, target="anthropic")
        file.write_bytes(page.encode())
        assert await session.reports.html(settings=SETTINGS, agent=HOSTILE, target="anthropic") == page
        await raises(InvalidArgument, session.reports.html(target="nobody"), match="target: should be one of")
        return file, ids


def test_a_report_shows_what_became_of_each_entry(chromium: Chromium, tmp_path: Path) -> None:
    file, ids = asyncio.run(written(tmp_path))

    def look(page: Page) -> None:
        badges = page.locator("#tree .badge.sent")
        assert badges.all_inner_texts() == ["out", "replaced"]
        assert page.locator(f'[data-entry="{ids[0]}"] .badge.sent').inner_text() == "out"
        assert page.locator(f'[data-entry="{ids[2]}"] .badge.sent').inner_text() == "replaced"
        page.get_by_role("tab", name="Sent").click()
        said = page.locator("#panel .sent").inner_text()
        assert f"At the leaf, for {HOSTILE}, as anthropic takes it" in said
        rows = page.locator("#panel .sent tbody tr").all_inner_texts()
        # In, cut, out, added, sent on.
        assert [row.split("\t")[:6] for row in rows][:3] == [
            ["max_tail_messages", "166", "—", "11 (1)", "—", "155"],
            ["tool_pairs", "155", "—", "—", "—", "155"],
            ["microcompact", "155", "108 (1)", "—", "—", "47"],
        ]
        assert f"{ids[0]} out, " in said
        assert f"{ids[2]} replaced, " in said
        assert "max_tail_messages: before the last messages of the view" in said
        page.locator("#panel .sent button", has_text=ids[2]).click()
        assert page.locator("#reading-title code").text_content() == ids[2]

        assert page.evaluate("window.pwned") is None

    chromium.look(file, look)


def test_a_report_without_settings_says_nothing_of_what_is_sent(tmp_path: Path) -> None:
    async def made() -> str:
        async with flue_py.open(tmp_path / "sessions.db") as store:
            session = await store.create_session()
            await session.append_message({"role": "user", "content": "Hi."})
            return await session.reports.html()

    assert '"sent":null' in asyncio.run(made())


def test_the_command_takes_the_settings_of_a_file(tmp_path: Path) -> None:
    _, ids = asyncio.run(written(tmp_path))
    flue = Flue(tmp_path)
    (tmp_path / "agents.json").write_text(json.dumps({"window": {"max_tail_messages": 1}}))
    page = flue.run(
        "export", "html", "s1", "--settings", str(tmp_path / "agents.json"), "--no-time", "--output", "-"
    ).stdout
    data = json.loads(page.partition('id="report-data">')[2].partition("</script>")[0])
    sent = data["sessions"][0]["sent"]
    assert [each["how"] for each in sent["changed"]] == ["out"] * 3
    assert [data["sessions"][0]["entries"][each["at"]]["id"] for each in sent["changed"]] == ids[:3]


# -- how a report draws compactions -----------------------------------------------------------------------------------


async def compacted(folder: Path) -> tuple[Path, str, str, str, str]:
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
    file, asked, first, second, taker = asyncio.run(compacted(tmp_path))

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
        assert "4 messages, size" in said
        assert "1 summary, size" in said
        widths = page.locator("#panel .compaction .fill").evaluate_all("all => all.map(each => each.offsetWidth)")
        assert widths[0] > widths[1] > 0
        rows = page.locator("#panel .compaction tbody tr").evaluate_all(
            "all => all.map(row => [...row.children].map(cell => cell.textContent))"
        )
        assert ["instruction", "2", "0", "0%"] in rows
        lost = page.locator("#panel .compaction .lost li").all_inner_texts()
        assert any(text.startswith("src/part00.py") for text in lost)
        assert any(HOSTILE in text for text in lost)
        assert page.evaluate("[window.pwned, document.images.length]") == [None, 0]
        page.locator("#panel .compaction button", has_text=asked).first.click()
        assert page.locator("#reading-title code").text_content() == asked

    chromium.look(file, look)


def test_it_fits_a_phone(chromium: Chromium, tmp_path: Path) -> None:
    file, _, first, _, _ = asyncio.run(compacted(tmp_path))

    def look(page: Page) -> None:
        assert "What was lost" in select(page, first)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.locator("#panel").evaluate("panel => panel.scrollWidth <= panel.clientWidth + 1")

    chromium.look(file, look, viewport=PHONE)
