"""The report in a real browser: it is drawn, makes no request, and shows messages as text."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from msgspec.structs import replace

import flue_py
from flue_py.core.entries import NewEntry
from flue_py.core.sessions import NewSession, SessionInfo
from flue_py.render.lines import entry_text
from flue_py.render.report import ReportedSession, html_report
from flue_py.transfer import write_pages
from tests.browser import PHONE, Chromium
from tests.formats.pi_files import parse_pi, real_lines
from tests.render.entries import forest, made
from tests.render.pictures import GIF, JPEG, PNG, SVG, WEBP
from tests.values import existing

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = (
    "</script><script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 2'>",
    "<!-- <script> -->",
    "]]>&lt;b&gt;&amp;",
    "line\u2028separator\u2029paragraph",
    "\u202eelttil a si siht\u202c \u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd",
    "javascript:window.pwned=3",
    "${window.pwned = 4}{{window.pwned = 5}}",
    "nul \x00 bell \x07 escape \x1b[31m",
    "[link](javascript:window.pwned=6) [data](data:text/html,x) [file](file:///etc/passwd) <javascript:window.pwned=7>",
    "![picture](https://example.com/x.png) ![inline](data:image/png;base64,AAAA) [beside](report-2.html) [#](#history)",
    "<details open><summary>raw</summary></details>\n\n<style>body { display: none }</style>",
    "[\u202emoc.elpmaxe](https://example.com/\u202e) **\u202ebold**",
)


def usage(sent: int, cost: str | None = None) -> dict[str, Any]:
    reported: dict[str, Any] = {"input": sent, "output": 10, "totalTokens": sent + 10}
    return reported if cost is None else {**reported, "cost": {"total": float(cost)}}


def answer(text: str, sent: int, cost: str | None = None, **fields: Any) -> dict[str, Any]:
    return {
        "role": "assistant", "provider": "anthropic", "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": text}], "usage": usage(sent, cost), **fields,
    }  # fmt: skip


def ask(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def write(folder: Path, page: str) -> Path:
    file = folder / "report.html"
    file.write_bytes(page.encode())
    return file


def test_the_list_of_all_sessions_is_searched_filtered_and_sorted(chromium: Chromium, tmp_path: Path) -> None:
    async def made() -> Path:
        async with flue_py.open(tmp_path / "sessions.db", prices=False) as store:
            for number, name in enumerate(HOSTILE):
                imported = {"imported": {"format": f"program {number % 3}"}}
                session = await store.create_session(
                    title=name.replace("\0", ""), cwd=f"/w/project {number % 2}", metadata=imported
                )
                await session.append_message(ask(f"about {number}"))
                await session.append_message(answer("x", 10 * number, f"0.{number:02}"))
            untold = await store.create_session(title="untold")
            await untold.append_message({"role": "assistant", "content": "x", "model": "m", "usage": {"input": 5}})
            await untold.tasks.create(task_id="t", title="a task")
            return (await write_pages(store, tmp_path / "pages")).index

    index = asyncio.run(made())
    count = len(HOSTILE) + 1

    def look(page: Page) -> None:
        def column(place: int) -> list[str]:
            cells: list[str] = page.locator(f"#sessions .session > :nth-child({place})").all_text_contents()
            return cells

        # The newest project is open, and all have their sums.
        sums = [text[16:] for text in page.locator("#sessions .group").all_text_contents()]
        assert sums == ["no project 1 session15—", "project 0 7 sessions14490$0.42", "project 1 6 sessions12420$0.36"]
        assert page.locator("#sessions .session").count() == 1
        for place in (1, 2):
            page.locator("#sessions .group button").nth(place).click()
        assert page.locator("#found").text_content() == f"{count} sessions of {count}, $0.78 + ?"
        assert {name.split()[0] for name in column(2)} >= {"untold", "javascript:window.pwned=3"}
        assert page.evaluate("window.pwned") is None
        links = page.eval_on_selector_all("#sessions a", "all => all.map(each => each.getAttribute('href'))")
        assert {(index.parent / link).is_file() for link in links} == {True}
        assert len(set(links)) == count
        page.locator("#sessions thead button").nth(6).click()
        costs = [f"$0.{number:02}" for start in (12, 11) for number in range(start, -1, -2)]
        assert column(7) == [*costs, "—"], "an unknown cost is no 0"
        page.locator("#find").fill("WINDOW.pwned javascript:")
        assert page.locator("#sessions .session").count() == sum("javascript:window.pwned" in name for name in HOSTILE)
        page.locator("#find").fill("")
        page.select_option("#program", "program 2")
        page.select_option("#project", "project 1")
        assert page.locator("#sessions .session").count() == len(range(5, len(HOSTILE), 6))
        page.select_option("#by", "project")
        assert page.locator("#sums tbody th").all_text_contents()[-1] == "—"
        assert not is_wider_than_window(page)

    chromium.look(index, look)
    chromium.look(index, lambda page: page.emulate_media(media="print"), viewport=PHONE)


def shown_ids(page: Page) -> list[str]:
    """Return the ids of the messages that the page lists, all of them."""
    if page.locator("#panel .gap .all").count():
        page.locator("#panel .gap .all").click()
    ids: list[str] = page.eval_on_selector_all("#panel .message", "found => found.map(each => each.dataset.entry)")
    return ids


def is_wider_than_window(page: Page) -> bool:
    return bool(page.evaluate("document.scrollingElement.scrollWidth > window.innerWidth"))


async def real_session_with_branches(store: flue_py.Store) -> flue_py.Session:
    """Import a part of the real session, and go on at several places of it, with compactions on some branches."""
    parsed = parse_pi(real_lines()[:300], "large-session.jsonl")
    session = await store.import_session(parsed.session, parsed.entries, leaf=parsed.leaf)
    path = await session.get_active_path()
    for place in (250, 150, 40):
        await session.move_leaf(path[place].id)
        await session.append_messages([ask(f"and from {place}?"), answer("so", 1000)])
        kept = path[place - 10].id
        await session.append_compaction(f"until {place}", first_kept_entry_id=kept, tokens_before=9000)
        await session.append_custom("note", {"n": place})
        await session.append_message(ask("go on"))
    compacted = existing(await session.compactions.latest())
    await session.move_leaf(compacted.id)
    await session.append_branch_summary("went astray", from_id=None)
    # Its first kept entry is on no path of this leaf, so that nothing is kept.
    await session.append_compaction("again", first_kept_entry_id=path[-1].id, tokens_before=1)
    return session


def test_every_leaf_of_the_real_session_shows_what_the_model_sees_there(chromium: Chromium, tmp_path: Path) -> None:
    async def made() -> tuple[str, dict[str, list[str]], str | None]:
        async with flue_py.open(tmp_path / "sessions.db") as store:
            session = await real_session_with_branches(store)
            tree = await session.get_tree()
            leaves = {entry.id for entry in tree} - {entry.parent_id for entry in tree}
            contexts = {
                leaf: [item.entry_id for item in await session.build_context_entries(leaf=leaf)] for leaf in leaves
            }
            return await session.reports.html(sizes=False), contexts, session.leaf_id

    text, contexts, leaf_of_the_session = asyncio.run(made())
    assert len(contexts) == 5
    assert sorted(len(ids) for ids in contexts.values()) == [1, 15, 16, 16, 273]

    def look(page: Page) -> None:
        options = page.eval_on_selector_all("#leaves option", "all => all.map(each => [each.value, each.textContent])")
        places = {text.removeprefix("● ").split(" ")[0]: value for value, text in options if value}
        assert places.keys() == contexts.keys()
        # The longest last, so that rows of it are drawn.
        for leaf, ids in sorted(contexts.items(), key=lambda context: len(context[1])):
            page.select_option("#leaves", places[leaf])
            assert page.locator("#reading-title code").text_content() == leaf
            assert page.locator("#tab-0").text_content() == f"Model sees ({len(ids)})"
            assert shown_ids(page) == ids
            # The row in the tree is selected and in sight, and belongs to the context.
            row = page.locator(f'#tree [data-entry="{leaf}"]')
            assert row.get_attribute("aria-selected") == "true"
            assert row.is_visible()
            assert ("seen" in (row.get_attribute("class") or "").split()) is (leaf in ids)
        longest = max(contexts.values(), key=len)
        rows = page.eval_on_selector_all("#tree [data-entry]", "all => all.map(each => each.dataset.entry)")
        other = next(row for row in rows if row in longest)
        page.locator(f'#tree [data-entry="{other}"]').click()
        assert page.locator("#reading-title code").text_content() == other
        page.locator("#panel .message .id").first.click()
        assert page.locator("#reading-title code").text_content() == longest[0]
        assert page.evaluate("document.activeElement.id") == "tab-0"
        # The map draws the same leaves, and leads to them.
        page.select_option("#leaves", "")
        page.locator("#map circle.active").dispatch_event("click")
        assert page.locator("#reading-title code").text_content() == leaf_of_the_session
        assert page.locator("#map circle.leaf").count() == len(contexts)

    chromium.look(write(tmp_path, text), look)


async def hostile_session(store: flue_py.Store) -> flue_py.Session:
    """Return a session in which every place that takes a text has one that would do harm as markup."""
    script, image, *_ = HOSTILE
    new = NewSession(title=script, key=image, id=f"id {image}", cwd=script)
    session = await store.import_session(new, [replace(NewEntry.message(ask(script)), id=image)], leaf=image)
    for text in HOSTILE:
        tool = {"type": "toolCall", "id": text, "name": text, "arguments": {text: [text]}}
        await session.append_messages(
            [
                {"role": "user", "content": text, "agentName": image},
                {
                    **answer(text, 100, provider=image, model=script, agentName=script, errorMessage=text),
                    "content": [{"type": "thinking", "thinking": text}, {"type": "text", "text": text}, tool],
                },
                {
                    "role": "toolResult",
                    "toolCallId": text,
                    "toolName": text,
                    "content": [{"type": "text", "text": text}],
                },
            ]
        )
    await session.append_message(ask("x" * 80_000 + " \u0645" * 10_000))
    await session.append_compaction(script, first_kept_entry_id=session.leaf_id or "", tokens_before=1)
    await session.append_branch_summary(image, from_id=script)
    await session.append_custom("custom_message", {"content": script})
    await session.append_custom("other", {script: image})
    await session.marks.set_label(session.leaf_id or "", image)
    task = await session.tasks.create(task_id=script, title=image)
    await task.append_messages([ask(script), answer(image, 50)])
    return session


def test_hostile_content_is_text_and_nothing_else(chromium: Chromium, tmp_path: Path) -> None:
    async def made() -> str:
        async with flue_py.open(tmp_path / "sessions.db") as store:
            return await (await hostile_session(store)).reports.html(warn_at=90)

    file = write(tmp_path, asyncio.run(made()))

    def look(page: Page) -> None:
        script = HOSTILE[0]
        assert page.title() == script
        assert page.locator("h1").text_content() == script
        assert page.locator("#leaves option").count() == 2
        scripts = page.locator("script").count()
        shown = ""
        for tab in ("#tab-0", "#tab-1", "#tab-2"):
            page.locator(tab).click()
            shown_ids(page)
            shown += page.locator("#panel").text_content() or ""
        page.locator("#leaves").focus()
        for summary in page.locator("summary").all():
            summary.click()
        for session in page.locator("#sessions button").all():
            session.click()
        shown += page.locator("#turns").text_content() or ""
        shown += page.locator("#bills").text_content() or ""
        for text in (*HOSTILE[:7], HOSTILE[7]):
            assert text in shown
        assert page.locator("#sessions").text_content() == f"{script}this session{HOSTILE[1]}task {script}"
        assert page.evaluate("[window.pwned, document.images.length]") == [None, 0]
        links = page.eval_on_selector_all("#panel a", "all => all.map(each => [each.href, each.rel, each.target])")
        assert {tuple(link) for link in links} <= {
            ("https://example.com/%E2%80%AE", "noopener noreferrer nofollow", "_blank")
        }
        assert page.locator("#panel :is(style, details, form, iframe, object, embed, input)").count() == 0
        assert page.locator("script").count() == scripts == 5
        assert not is_wider_than_window(page)

    chromium.look(file, look)

    def look_at_the_huge(page: Page) -> None:
        page.locator("#find").fill("x" * 40)
        page.locator("#find").press("Enter")
        page.locator("#tab-2").click()
        body = page.locator("#panel .long .text")
        assert len(body.text_content() or "") == 1500
        page.get_by_role("button", name="Show all 100,000 characters").click()
        assert len(body.text_content() or "") == 100_000
        assert not is_wider_than_window(page)
        page.get_by_role("button", name="Show less").click()
        assert len(body.text_content() or "") == 1500

    chromium.look(file, look_at_the_huge, viewport=PHONE)


async def session_with_a_task(store: flue_py.Store) -> flue_py.Session:
    session = await store.create_session(title="Red build")
    for turn in range(6):
        await session.append_messages(
            [
                ask(f"question {turn}"),
                answer(f"step {turn}", 1000 * turn + 500, "0.25", agentName="Planner"),
                *[answer(f"detail {turn}.{n}", 100, agentName="Developer") for n in range(4)],
            ]
        )
    path = await session.get_active_path()
    await session.append_compaction(
        "so far", first_kept_entry_id=path[-3].id, tokens_before=6000, usage=usage(6000, "0.125")
    )
    await session.append_messages([ask("go on"), answer("gone on", 900, "0.25", agentName="Planner")])
    leaf = session.leaf_id
    await session.move_leaf(path[6].id)
    await session.append_messages([ask("another way"), answer("dead end", 300, "0.5")])
    await session.move_leaf(leaf)
    task = await session.tasks.create(task_id="changelog")
    await task.append_messages([ask("check it"), {**answer("fine", 200), "provider": "openai", "model": "gpt-5"}])
    return session


@pytest.fixture(scope="module")
def tasked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the report of a session with two agents, two branches, a compaction and a task."""
    folder = tmp_path_factory.mktemp("tasked")

    async def made() -> str:
        async with flue_py.open(folder / "sessions.db", prices=False) as store:
            return await (await session_with_a_task(store)).reports.html(warn_at=4000, cutover_at=8000)

    return write(folder, asyncio.run(made()))


def pixels_like(page: Page, variable: str) -> int:
    """Return how many pixels of the chart have the color of a CSS variable."""
    found: int = page.evaluate(
        """variable => {
            const color = getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
            const [r, g, b] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
            const chart = document.querySelector("#chart canvas");
            const copy = new OffscreenCanvas(chart.width, chart.height).getContext("2d", { willReadFrequently: true });
            copy.drawImage(chart, 0, 0);
            const { data } = copy.getImageData(0, 0, chart.width, chart.height);
            let found = 0;
            for (let at = 0; at < data.length; at += 4)
            {
                const off = Math.abs(data[at] - r) + Math.abs(data[at + 1] - g) + Math.abs(data[at + 2] - b);
                if (off < 12 && data[at + 3] > 200) found += 1;
            }
            return found;
        }""",
        variable,
    )
    return found


def test_growth_and_cost_are_drawn_for_each_agent_and_model(chromium: Chromium, tasked: Path) -> None:
    def look(page: Page) -> None:
        legend = page.locator("#chart-legend li").all_text_contents()
        assert legend == [
            "Planner 7 turns", "Developer 24 turns", "changelog 1 turn", "1 compaction", "warn at 4,000",
            "cut over at 8,000",
        ]  # fmt: skip
        for color in ("--line-0", "--line-1", "--warn", "--cutover"):
            assert pixels_like(page, color) > 50, color
        page.get_by_role("button", name="Cumulative input").click()
        assert "since the last compaction" in (page.locator("#growth-note").text_content() or "")
        assert pixels_like(page, "--line-0") > 50
        page.hover("#chart .u-over")
        assert "turn" in (page.locator("#chart-tip").text_content() or "")
        page.click("#chart .u-over")
        assert page.locator("#tab-0").get_attribute("aria-selected") == "true"

        bills = [row.locator("th, td").all_text_contents() for row in page.locator("#bills tbody tr").all()]
        assert [[*row[:3], row[-1]] for row in bills] == [
            ["anthropic", "claude-sonnet-4-5", "32", "$2.25 + 24 unpriced"],
            ["—", "compaction", "1", "$0.125"],
            ["openai", "gpt-5", "1", "—"],
        ]
        total = page.locator("#bills tfoot th, #bills tfoot td").all_text_contents()
        assert (total[2], total[-1]) == ("34", "$2.375 + 25 unpriced")
        page.get_by_text("The figures as a table").click()
        page.wait_for_selector("#turns table")
        assert page.locator("#turns tbody tr").count() == 32 + 2
        # A task has a tree of its own.
        page.get_by_role("button", name="task changelog").click()
        assert page.locator("#tree").get_attribute("aria-label") == "Entries of check it"
        assert [row.get_attribute("aria-level") for row in page.locator("#tree [role=treeitem]").all()] == ["1", "1"]

    chromium.look(tasked, look)


def test_the_tree_is_read_and_used_by_keyboard_alone(chromium: Chromium, tasked: Path) -> None:
    def look(page: Page) -> None:
        def focused(name: str) -> str | None:
            found: str | None = page.evaluate("name => document.activeElement.getAttribute(name)", name)
            return found

        press = page.keyboard.press
        press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the history"
        press("Enter")
        for _ in range(3):
            press("Tab")
        assert focused("role") == "treeitem"
        assert page.locator("#tree [tabindex='0']").count() == 1
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        leaf = focused("data-entry")
        assert focused("aria-selected") == "true"

        press("Home")
        first = focused("data-entry")
        assert first != leaf
        assert focused("data-place") == "0"
        press("ArrowDown")
        run = existing(focused("data-run"))
        assert focused("aria-expanded") == "false"
        rows = page.locator("#tree [role=treeitem]")
        before = rows.count()
        press("ArrowRight")
        assert focused("aria-expanded") == "true"
        assert rows.count() == before + 5
        press("ArrowRight")
        assert focused("aria-level") == "2"
        press("Enter")
        chosen = focused("data-entry")
        assert page.locator("#reading-title code").text_content() == chosen
        assert page.locator("#tree [aria-selected=true]").count() == 1
        press("ArrowLeft")
        assert focused("data-run") == run
        press("ArrowLeft")
        assert rows.count() == before
        press("End")
        assert focused("data-entry") == leaf
        press("ArrowUp")
        press("Space")
        assert page.locator("#reading-title code").text_content() == focused("data-entry")

        press("Tab")
        assert focused("id") == "raw"
        press("Tab")
        assert focused("id") == "tab-0"
        press("ArrowRight")
        assert (focused("id"), focused("aria-selected")) == ("tab-1", "true")
        press("End")
        assert focused("id") == "tab-3"
        press("ArrowLeft")
        assert focused("id") == "tab-2"
        assert "created" in (page.locator("#panel").text_content() or "")
        press("ArrowRight")
        press("ArrowRight")
        assert focused("id") == "tab-0"
        for landmark in ("header", "main", "nav", "footer"):
            assert page.locator(f"body > {landmark}, main > {landmark}").count() == 1

    chromium.look(tasked, look)


CONTRASTS = """() => {
    const style = getComputedStyle(document.documentElement);
    const light = (name) => {
        const color = style.getPropertyValue(name).trim();
        const parts = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16) / 255);
        const [r, g, b] = parts.map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const contrast = (one, other) => {
        const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b);
        return (bright + 0.05) / (dark + 0.05);
    };
    const texts = "text muted accent seen user assistant tool shell summary other bad";
    const names = texts.split(" ").map((name) => `--${name}`);
    const grounds = ["--card", "--raised", "--accent-soft"];
    const least = (name) => Math.min(...grounds.map((ground) => contrast(name, ground)));
    const pairs = [["--added-text", "--added"], ["--removed-text", "--removed"], ["--text", "--found"]];
    return Object.fromEntries([
        ...names.map((name) => [name, least(name)]),
        ...pairs.map(([name, ground]) => [`${name} on ${ground}`, contrast(name, ground)]),
    ]);
}"""


def test_it_is_readable_in_light_and_dark_and_on_a_phone(chromium: Chromium, tasked: Path) -> None:
    def look(page: Page) -> None:
        def ground_of(scheme: Literal["light", "dark"]) -> str:
            page.emulate_media(color_scheme=scheme)
            low = {name: ratio for name, ratio in page.evaluate(CONTRASTS).items() if ratio < 4.5}
            assert low == {}
            color: str = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
            return color

        assert not is_wider_than_window(page)
        for box in ("#bills", "#turns"):
            page.locator(box).evaluate("box => box.closest('details')?.setAttribute('open', '')")
            page.wait_for_selector(f"{box} table")
            assert page.locator(box).evaluate("box => box.scrollWidth > box.clientWidth")
        assert not is_wider_than_window(page)
        assert page.evaluate("getComputedStyle(document.querySelector('.fill')).transitionDuration") == "0s"

        light, dark = ground_of("light"), ground_of("dark")
        assert light != dark
        # The button decides, whatever the system says.
        for theme, ground in (("light", light), ("dark", dark)):
            page.locator("#theme").click()
            assert page.locator("#theme").text_content() == f"Theme: {theme}"
            assert ground_of("light") == ground_of("dark") == ground
        page.locator("#theme").click()
        assert page.locator("#theme").text_content() == "Theme: auto"
        assert (ground_of("light"), ground_of("dark")) == (light, dark)

    chromium.look(tasked, look, viewport=PHONE)


@pytest.mark.parametrize(
    "parents",
    [
        pytest.param([None, *range(9_999)], id="a line"),
        pytest.param([None, *[max(0, n - 1 - n % 2) for n in range(1, 10_000)]], id="a comb", marks=pytest.mark.slow),
        pytest.param([None, *[0] * 9_999], id="a broom", marks=pytest.mark.slow),
    ],
)
def test_ten_thousand_entries_keep_the_page_small(
    chromium: Chromium, tmp_path: Path, parents: Sequence[int | None]
) -> None:
    entries = forest(parents)
    session = ReportedSession(SessionInfo("s", title="large", leaf_id=entries[-1].id), entries)

    def look(page: Page) -> None:
        assert page.evaluate("document.querySelectorAll('*').length") < 3000
        page.locator("#tree [tabindex='0']").focus()
        page.keyboard.press("Home")
        assert page.evaluate("document.activeElement.dataset.entry") == "e00000"
        page.keyboard.press("End")
        page.locator("#find").fill(entries[5000].id)
        page.locator("#find").press("Enter")
        assert page.locator(f'#tree [data-entry="{entries[5000].id}"]').is_visible()
        assert page.evaluate("document.querySelectorAll('*').length") < 3000

    chromium.look(write(tmp_path, html_report([session])), look)


def test_a_session_with_nothing_in_it_has_a_report_too(chromium: Chromium, tmp_path: Path) -> None:
    def look(page: Page) -> None:
        assert page.locator("h1").text_content() == "(empty)"
        assert page.locator("#reading-title").text_content() == "Before the first entry"
        assert page.locator("#panel").text_content() == "Nothing: the context is empty here."
        assert "No answer" in (page.locator("#chart").text_content() or "")
        assert page.locator("#bills").text_content() == "No call was paid for in this session."
        assert json.loads(page.locator("#report-data").text_content() or "")["sessions"][0]["entries"] == []

    chromium.look(write(tmp_path, html_report([ReportedSession(SessionInfo("s"), [])])), look)


def test_lines_and_data_are_those_of_the_entries(chromium: Chromium, tmp_path: Path) -> None:
    """The page derives the line of an entry from its text, and indents JSON without reading its numbers."""
    fields = {"n": 12345678901234567890, "f": 1.0, "none": [], "no": {}, "s": 'a "b": {1,2}\\', "l": [[None, "é\n"]]}
    texts = [
        " a\tb\n\nc ",
        "\x1fx\x7f \u202e y\u200bz\ufeff",
        "\u3000 é " + "w " * 300,
        "\U0001f600" * 170,
        "x" * 159 + " y",
    ]
    entries = [made(f"t{place}", None, content=text) for place, text in enumerate(texts)]
    entries += [
        made(f"r{place}", None, role="toolResult", content=text, toolName="read") for place, text in enumerate(texts)
    ]
    entries.append(made("data", None, kind="note", **fields))
    entries.append(made("rest", None, **fields))

    def look(page: Page) -> None:
        lines = page.locator("#tree .line").all_text_contents()
        stored = [entry_text(entry) for entry in entries]
        assert lines == [line if len(line) <= 160 else f"{line[:159].rstrip()}…" for line in stored]
        page.locator("#tab-2").click()
        for entry_id in ("rest", "data"):
            page.locator(f'#tree [data-entry="{entry_id}"] .line').click()
            shown = page.locator("#panel .part-json .text").text_content()
            assert shown == json.dumps(fields, indent=2, ensure_ascii=False)

    chromium.look(write(tmp_path, html_report([ReportedSession(SessionInfo("s"), entries)])), look)


def test_pictures_are_shown_and_what_is_none_is_named(chromium: Chromium, tmp_path: Path) -> None:
    broken = b64encode(b64decode(PNG)[:24] + bytes(36)).decode()
    parts = [{"type": "image", "data": data} for data in (PNG, JPEG, GIF, WEBP, PNG, SVG, broken)]
    entries = [made("e", None, content=[{"type": "text", "text": "look"}, *parts])]

    def look(page: Page) -> None:
        page.locator("#panel .part-media .text", has_text="cannot be shown").wait_for()
        images = page.locator("#panel .part-media img")
        shown = images.evaluate_all("all => all.map(each => [each.complete, each.naturalWidth, each.naturalHeight])")
        assert shown == [[True, 3, 2]] * 5
        assert images.first.get_attribute("alt") == "image, image/png, 3 x 2 pixels, 93 bytes"
        named = page.locator("#panel .part-media .text").all_text_contents()
        assert named == ["image, image/svg+xml, 77 bytes", "image, image/png, 3 x 2 pixels, 60 bytes, cannot be shown"]
        assert page.evaluate("window.pwned") is None

    chromium.look(write(tmp_path, html_report([ReportedSession(SessionInfo("s", leaf_id="e"), entries)])), look)


def test_everything_is_printed_and_the_screen_is_as_before(chromium: Chromium, tmp_path: Path) -> None:
    long = "\n".join(f"line {number}" for number in range(200))
    entries = forest([None, *range(150), 20], turn_every=50)
    entries += [made("long", entries[-1].id, content=long), made("aside", "e00003", content="on the side")]
    task = ReportedSession(SessionInfo("t", leaf_id="x1"), [made("x1", None)], task_id="check", parent_id="s")
    file = write(tmp_path, html_report([ReportedSession(SessionInfo("s", leaf_id="e00150"), entries), task]))

    def look(page: Page) -> None:
        def shown() -> tuple[int, int, int]:
            places = ("#tree [data-entry]", "#printed .message", "main details[open]")
            rows, messages, details = (page.locator(place).count() for place in places)
            return rows, messages, details

        before = shown()
        assert before[1:] == (0, 0)
        page.emulate_media(media="print")
        page.locator("#printed .message").first.wait_for()
        assert shown() == (len(entries), len(entries) + 1, 2)
        ids = page.locator("#printed .message").evaluate_all("all => all.map(each => each.dataset.entry)")
        assert ids == [*(entry.id for entry in entries), "x1"]
        assert page.locator('#printed [data-entry="long"] .text').inner_text() == long
        assert not page.locator("#reading, #find, #theme").locator("visible=true").count()
        page.emulate_media(media="screen")
        page.locator("#printed .message").first.wait_for(state="detached")
        assert shown() == before
        pages = page.pdf().count(b"/Type /Page\n")
        assert pages > 5
        assert shown() == before

    chromium.look(file, look)
