"""What people do with a report in a browser: select, read, find, follow links, compare; on a screen and on a phone."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import flue_py
from flue_py.render.report import ReportedSession, html_report
from tests.browser import PHONE, Chromium
from tests.formats.pi_files import parse_pi, real_lines
from tests.formats.transcripts import CLAUDE, as_lines, import_lines, lines_of
from tests.render.entries import forest, made, page_entries
from tests.values import existing

if TYPE_CHECKING:
    from playwright.sync_api import Page


def written(folder: Path, make: Callable[[flue_py.Store], Any], **settings: Any) -> Path:
    """Return the report of the session that ``make`` makes in a store of its own."""

    async def page() -> str:
        async with flue_py.open(folder / "sessions.db", prices=False) as store:
            session = await make(store)
            text: str = await session.reports.html(**settings)
            return text

    file = folder / "report.html"
    file.write_bytes(asyncio.run(page()).encode())
    return file


def reported(entries: list[flue_py.Entry]) -> ReportedSession:
    return ReportedSession(flue_py.SessionInfo("s", leaf_id=entries[-1].id), entries)


def report_of(folder: Path, *sessions: ReportedSession) -> Path:
    file = folder / "report.html"
    file.write_text(html_report(sessions), encoding="utf-8")
    return file


async def pi_session(store: flue_py.Store, lines: int | None = None) -> flue_py.Session:
    parsed = parse_pi(real_lines()[:lines], "large-session.jsonl")
    return await store.import_session(parsed.session, parsed.entries, leaf=parsed.leaf)


@pytest.fixture(scope="module")
def pi_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the report of the real pi session: 1,018 entries, no branches."""
    return written(tmp_path_factory.mktemp("pi"), pi_session)


@pytest.fixture(scope="module")
def claude_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the report of the real Claude Code transcript."""
    folder = tmp_path_factory.mktemp("claude")

    async def session(store: flue_py.Store) -> flue_py.Session:
        report = await import_lines(store, folder, lines_of(CLAUDE))
        return await store.get_session(report.sessions[0].session_id)

    return written(folder, session)


def entries_of(file: Path) -> list[dict[str, Any]]:
    """Return the entries of the first session that a report embeds."""
    _, _, rest = file.read_text().partition('id="report-data">')
    return page_entries(json.loads(rest.partition("</script")[0])["sessions"][0])


def chosen_id(page: Page) -> str:
    """Return the id of the message that is marked, after a check that it is the only one, and in sight."""
    marked = page.locator("#panel .message.chosen")
    assert marked.count() == 1
    assert marked.get_attribute("aria-current") == "true"
    panel, message = page.locator("#panel").bounding_box(), marked.bounding_box()
    assert panel is not None
    assert message is not None
    begins = message["y"] - panel["y"]
    assert -1 <= begins <= panel["height"] - 30, f"it begins {begins} below the top of {panel['height']}"
    found = existing(marked.get_attribute("data-entry"))
    assert page.locator("#reading-title code").text_content() == found
    return found


def address(page: Page) -> str:
    fragment: str = page.evaluate("decodeURIComponent(location.hash.slice(1))")
    return fragment


# -- selecting --------------------------------------------------------------------------------------------------------


def test_a_selected_entry_is_scrolled_to_and_marked_and_has_the_address(chromium: Chromium, pi_report: Path) -> None:
    entries = entries_of(pi_report)
    users = [entry["id"] for entry in entries if entry.get("role") == "user"]

    def look(page: Page) -> None:
        assert chosen_id(page) == [entry["id"] for entry in entries if entry.get("seen")][-1]
        assert address(page) == ""
        # By a click in the tree.
        page.locator("#tree").focus()
        row = page.locator("#tree [data-entry]").nth(3)
        wanted = row.get_attribute("data-entry")
        row.click()
        assert chosen_id(page) == wanted == address(page)
        # By finding it.
        page.locator("#find").fill(users[40])
        page.locator("#find").press("Enter")
        assert chosen_id(page) == users[40] == address(page)
        # On the branch, what came after it is there to read on, and it is marked among it.
        page.locator("#tab-1").click()
        assert page.locator("#tab-1").text_content() == "Branch (1,018)"
        assert chosen_id(page) == users[40]
        following = page.locator("#panel .message.chosen + .message")
        at = [entry["id"] for entry in entries].index(users[40])
        assert following.get_attribute("data-entry") == entries[at + 1]["id"]
        assert "not in the context" not in (following.text_content() or "")
        # By a click in the chart, from further down the page.
        page.locator("#chart .u-over").scroll_into_view_if_needed()
        page.click("#chart .u-over")
        answer = chosen_id(page)
        assert answer == address(page) != users[40]
        assert next(entry for entry in entries if entry["id"] == answer)["role"] == "assistant"
        top = page.locator("#panel").evaluate("panel => panel.getBoundingClientRect().top")
        assert 0 <= top < 900
        # And by keyboard, from the figures of the chart.
        page.locator("#growth summary").click()
        page.locator("#turns table button").first.focus()
        page.keyboard.press("Enter")
        first = next(entry["id"] for entry in entries if any(entry.get("usage", [])))
        # The turn is at the last of its answers.
        ids = [entry["id"] for entry in entries]
        assert chosen_id(page) == address(page)
        turn = entries[ids.index(first) : ids.index(chosen_id(page)) + 1]
        assert turn[-1]["role"] == "assistant"
        assert not any(entry["role"] == "user" for entry in turn)

    chromium.look(pi_report, look)


def test_an_entry_that_is_not_in_the_context_is_shown_as_such(chromium: Chromium, pi_report: Path) -> None:
    left_out = next(entry["id"] for entry in entries_of(pi_report)[500:] if entry["kind"] == "thinking_level_change")

    def look(page: Page) -> None:
        assert chosen_id(page) == left_out
        assert page.locator("#panel .chosen .badge").all_text_contents() == ["selected, not in the context"]

    chromium.look(pi_report, look, at=f"#{left_out}")


def test_on_a_phone_the_selected_entry_has_a_pane_that_going_back_closes(chromium: Chromium, pi_report: Path) -> None:
    def look(page: Page) -> None:
        reading = page.locator("#reading")
        assert not reading.is_visible()
        row = page.locator("#tree [data-entry]").nth(2)
        wanted = row.get_attribute("data-entry")
        row.click()
        assert reading.is_visible()
        assert (reading.get_attribute("role"), reading.get_attribute("aria-modal")) == ("dialog", "true")
        assert reading.bounding_box() == {"x": 0, "y": 0, "width": 390, "height": 844}
        assert chosen_id(page) == wanted == address(page)
        assert page.evaluate("document.activeElement.id") == "pane-close"
        assert page.locator("#history").evaluate("history => history.inert")
        page.go_back()
        reading.wait_for(state="hidden")
        assert page.evaluate("document.activeElement.dataset.entry") == wanted
        assert not page.locator("#history").evaluate("history => history.inert")
        for close in (lambda: page.locator("#pane-close").click(), lambda: page.keyboard.press("Escape")):
            row.click()
            assert reading.is_visible()
            close()
            reading.wait_for(state="hidden")
        # What is found opens it, too, and it leads on to what else is found.
        page.locator("#find").fill("theme")
        page.locator("#find").press("Enter")
        first = chosen_id(page)
        page.locator("#pane-find").get_by_role("button", name="Next found").click()
        assert chosen_id(page) != first
        page.go_back()
        reading.wait_for(state="hidden")
        # A wider window has both side by side.
        row.click()
        page.set_viewport_size({"width": 1280, "height": 900})
        page.locator("#history:not([inert])").wait_for()
        assert reading.get_attribute("role") is None
        assert reading.is_visible()

    chromium.look(pi_report, look, viewport=PHONE)


@pytest.mark.parametrize("viewport", [PHONE, {"width": 1280, "height": 900}], ids=["phone", "screen"])
def test_a_link_to_an_entry_opens_the_report_there(
    chromium: Chromium, pi_report: Path, viewport: dict[str, int]
) -> None:
    ids = [entry["id"] for entry in entries_of(pi_report) if entry.get("role") == "user"]

    def look(page: Page) -> None:
        assert chosen_id(page) == ids[30] == address(page)
        assert page.locator(f'#tree [data-entry="{ids[30]}"]').get_attribute("aria-selected") == "true"
        page.evaluate("id => { location.hash = id; }", ids[20])
        page.locator("#reading-title code", has_text=ids[20]).wait_for()
        assert chosen_id(page) == ids[20]
        # A link that leads nowhere changes nothing.
        page.evaluate("location.hash = '%E0%A4%A'")
        page.evaluate("location.hash = 'nothing/at/all'")
        assert page.locator("#reading-title code").text_content() == ids[20]

    chromium.look(pi_report, look, at=f"#{ids[30]}", viewport=viewport)


def test_a_link_leads_into_a_task(chromium: Chromium, tmp_path: Path) -> None:
    sessions = [
        ReportedSession(flue_py.SessionInfo("s", leaf_id="a"), [made("a")]),
        ReportedSession(flue_py.SessionInfo("t/1", title="Check it", leaf_id="b"), [made("b")], {}, "check", "s"),
    ]
    file = report_of(tmp_path, *sessions)

    def look(page: Page) -> None:
        assert chosen_id(page) == "b"
        assert page.locator("#sessions [aria-current=true]").text_content() == "Check ittask check"
        page.locator("#tree [data-entry]").click()
        assert page.evaluate("location.hash") == "#t%2F1/b"

    chromium.look(file, look, at="#t%2F1/b")


# -- finding ----------------------------------------------------------------------------------------------------------


def test_finding_counts_and_goes_on_and_back(chromium: Chromium, pi_report: Path) -> None:
    wanted = "dimgray"

    def has(entry: dict[str, Any]) -> bool:
        return any(wanted in text.lower() for part in entry["parts"] for text in part[1:])

    hits = [entry["id"] for entry in entries_of(pi_report) if has(entry)]
    assert len(hits) > 5

    def look(page: Page) -> None:
        told, box = page.locator("#found"), page.locator("#find")
        buttons = page.locator("#history [data-find]")
        assert buttons.first.is_disabled()
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") == "find"
        box.fill(wanted)
        assert told.text_content() in (f"{len(hits)} found", f"{len(hits)} of {len(hits)}")
        box.press("Enter")
        first = hits.index(chosen_id(page))
        assert told.text_content() == f"{first + 1} of {len(hits)}"
        page.get_by_role("button", name="Next found").click()
        assert chosen_id(page) == hits[(first + 1) % len(hits)]
        box.press("Shift+Enter")
        box.press("Shift+Enter")
        assert chosen_id(page) == hits[first - 1]
        assert page.evaluate("CSS.highlights.get('found').size") > 0
        box.fill("there is no such thing in it")
        assert told.text_content() == "not found"
        assert buttons.first.is_disabled()
        box.fill("")
        assert told.text_content() == ""

    chromium.look(pi_report, look)


def test_finding_goes_on_in_the_tasks(chromium: Chromium, tmp_path: Path) -> None:
    said = [made("a", content="the needle"), made("b", "a", depth=1), made("c", "b", content="a needle", depth=2)]
    sessions = [
        ReportedSession(flue_py.SessionInfo("s", leaf_id="c"), said),
        ReportedSession(flue_py.SessionInfo("t", leaf_id="e"), [made("d"), made("e", "d")], {}, "none", "s"),
        ReportedSession(
            flue_py.SessionInfo("u", leaf_id="g"), [made("f", content="needles"), made("g", "f")], {}, "more", "s"
        ),
    ]
    file = report_of(tmp_path, *sessions)

    def look(page: Page) -> None:
        box, told = page.locator("#find"), page.locator("#found")
        box.fill("needle")
        assert told.text_content() == "2 of 3"
        seen = []
        for _ in range(3):
            box.press("Enter")
            seen.append((chosen_id(page), told.text_content()))
        assert seen == [("f", "3 of 3"), ("a", "1 of 3"), ("c", "2 of 3")]
        box.press("Shift+Enter")
        box.press("Shift+Enter")
        assert (chosen_id(page), told.text_content()) == ("f", "3 of 3")
        assert page.locator("#sessions [aria-current=true]").text_content() == "(empty)task more"

    chromium.look(file, look)


def test_what_is_found_behind_the_cut_of_a_long_text_is_shown(chromium: Chromium, tmp_path: Path) -> None:
    long = "line\n" * 500 + "the needle"
    file = report_of(tmp_path, reported([made("a", content=long), made("b", "a", depth=1)]))

    def look(page: Page) -> None:
        page.locator("#find").fill("needle")
        page.locator("#find").press("Enter")
        assert chosen_or_left(page) == "a"
        assert "the needle" in (page.locator("#panel .message.chosen").text_content() or "")
        bottom = page.evaluate("[...CSS.highlights.get('found')][0].getBoundingClientRect().bottom")
        panel = page.locator("#panel").bounding_box()
        assert panel is not None
        assert panel["y"] < bottom <= panel["y"] + panel["height"]

    def chosen_or_left(page: Page) -> str | None:
        return page.locator("#panel .message.chosen").get_attribute("data-entry")

    chromium.look(file, look)


# -- what is said -----------------------------------------------------------------------------------------------------


def test_messages_are_markdown_and_as_they_are_written_on_request(chromium: Chromium, claude_report: Path) -> None:
    leaf = entries_of(claude_report)[-1]
    (text,) = [text for kind, text in leaf["parts"] if kind == "text"]
    assert "**Files modified:**" in text

    def look(page: Page) -> None:
        said = page.locator("#panel .message.chosen .part-text .md")
        assert said.locator("strong").first.text_content() == "Files modified:"
        assert said.locator("ol > li").count() == 3
        assert "manual_commit_condensation.go:39" in said.locator("li code").all_text_contents()
        assert "**" not in (said.text_content() or "")
        # What tools answered is no Markdown.
        assert page.locator("#panel .message.tint-tool .md").count() == 0
        page.get_by_role("button", name="As written").click()
        assert page.locator("#panel .md").count() == 0
        assert page.locator("#panel .message.chosen .part-text .text").text_content() == text
        assert page.locator("#raw").get_attribute("aria-pressed") == "true"

    chromium.look(claude_report, look)


MARKDOWN = """# Head

One *em*, **strong**, ~~gone~~, `code <b>`, [a link](https://example.com/a?b=1&c=2 "t"), <https://example.org>,
<mail@example.com>, https://example.net/x

3. three
4. four
   - inner

> quoted

```python
if a < b: pass
```

| a | b |
|---|--:|
| 1 | 2 |

***
"""


def test_the_kinds_of_markdown(chromium: Chromium, tmp_path: Path) -> None:
    file = report_of(tmp_path, reported([made("a", content=MARKDOWN)]))

    def look(page: Page) -> None:
        body = page.locator("#panel .md")

        def told(selector: str) -> list[str]:
            return body.locator(selector).all_text_contents()

        assert (told("h4"), told("em"), told("strong"), told("s")) == (["Head"], ["em"], ["strong"], ["gone"])
        assert told("p code") == ["code <b>"]
        assert body.locator("a").evaluate_all("all => all.map(each => each.href)") == [
            "https://example.com/a?b=1&c=2",
            "https://example.org/",
            "mailto:mail@example.com",
            "https://example.net/x",
        ]
        assert body.locator("ol").first.get_attribute("start") == "3"
        assert told("ol ul li") == ["inner"]
        assert told("blockquote p") == ["quoted"]
        assert told("pre code") == ["if a < b: pass"]
        assert told("th, td") == ["a", "b", "1", "2"]
        assert body.locator("td").last.evaluate("cell => getComputedStyle(cell).textAlign") == "right"
        assert body.locator("hr").count() == 1

    chromium.look(file, look)


def diffs_of(page: Page) -> list[tuple[str, list[str]]]:
    """Return the diffs in the marked message: the heading, and the lines that are taken away and put in."""
    found = []
    for part in page.locator("#panel .message.chosen .part-diff").all():
        lines = part.locator(".diff-text > :is(ins, del)").all_text_contents()
        head = part.locator(".diff-head").text_content() or ""
        found.append((re.sub(r"\s+", " ", head).strip(), [line.rstrip("\n") for line in lines]))
    return found


def test_the_edits_of_pi_are_diffs(chromium: Chromium, pi_report: Path) -> None:
    (edit,) = [
        entry["id"]
        for entry in entries_of(pi_report)
        if any('-\t\t"mdLink": "linkGray"' in part[1] for part in entry["parts"] if part[0] == "diff")
    ]

    def look(page: Page) -> None:
        assert diffs_of(page) == [
            (
                "edits edit packages/coding-agent/src/theme/dark.json +1 −1",
                ['-\t\t"mdLink": "linkGray",', '+\t\t"mdLink": "dimGray",'],
            )
        ]
        colors = page.locator("#panel .chosen .diff-text > *").evaluate_all(
            "all => all.map(each => getComputedStyle(each).backgroundColor)"
        )
        assert len(set(colors)) == 2

    chromium.look(pi_report, look, at=f"#{edit}")


def test_the_edits_of_claude_code_are_diffs(chromium: Chromium, claude_report: Path) -> None:
    edits = [entry for entry in entries_of(claude_report) if any(part[0] == "diff" for part in entry["parts"])]
    assert sum(part[0] == "diff" for entry in edits for part in entry["parts"]) == 5

    def look(page: Page) -> None:
        ((head, lines),) = diffs_of(page)
        assert head == "edits Edit /Users/soph/Work/entire/devenv/cli/cmd/entire/cli/strategy/strategy.go +4 −0"
        assert lines[-1].startswith("+\tAgent ")

    chromium.look(claude_report, look, at=f"#{edits[0]['id']}")


CONTEXT = "<environment_context>x</environment_context>"
PATCH = """*** Begin Patch
*** Update File: src/a.py
@@ def f():
-    return 1
+    return 2
*** Add File: src/b.py
+new
*** End Patch
"""


def test_the_patches_of_codex_are_diffs(chromium: Chromium, tmp_path: Path) -> None:
    def row(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        return {"timestamp": "2026-01-14T00:00:00.000Z", "type": kind, "payload": payload}

    command = json.dumps({"command": ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}EOF"], "workdir": "/w"})
    rows = [
        row("session_meta", {"id": "019e9625-802f-7e91-840a-cfe88d14117b", "cwd": "/w", "cli_version": "0.135"}),
        row(
            "response_item",
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": f"{CONTEXT}\n\ndo"}]},
        ),
        row("response_item", {"type": "custom_tool_call", "name": "apply_patch", "input": PATCH, "call_id": "c1"}),
        row("response_item", {"type": "function_call", "name": "shell", "arguments": command, "call_id": "c2"}),
    ]

    async def session(store: flue_py.Store) -> flue_py.Session:
        report = await import_lines(store, tmp_path, as_lines(rows), finish=True)
        return await store.get_session(report.sessions[0].session_id)

    def look(page: Page) -> None:
        changed = ["-    return 1", "+    return 2"]
        assert diffs_of(page) == [
            ("edits apply_patch src/a.py +1 −1", changed),
            ("edits apply_patch src/b.py (new file) +1 −0", ["+new"]),
            ("edits shell src/a.py +1 −1", changed),
            ("edits shell src/b.py (new file) +1 −0", ["+new"]),
        ]
        assert page.locator("#panel .chosen .part-call").text_content() == "calls shellworkdir: /w"
        folded = page.locator("#panel details.part-program")
        assert folded.locator("summary").all_text_contents() == ["environment context"]
        assert (folded.locator(".text").is_visible(), folded.locator(".text").text_content()) == (False, CONTEXT)

    chromium.look(written(tmp_path, session), look)


def test_rows_have_time_size_and_cost(chromium: Chromium, pi_report: Path) -> None:
    leaf = entries_of(pi_report)[-1]
    assert leaf["paid"] == [57_591_750_000, 1, 0]

    def look(page: Page) -> None:
        row = page.locator("#tree [aria-selected=true]")
        figures = [row.locator(name).text_content() for name in (".time", ".size", ".cost")]
        assert figures == ["11-21 02:14", "51", "$0.0576"]
        assert [row.locator(name).is_visible() for name in (".time", ".size", ".cost")] == [True, True, True]
        said = page.locator("#panel .message.chosen header .figures > *").all_text_contents()
        assert said == ["11-21 02:14", "size 51", "$0.0576"]
        assert row.locator(".time").get_attribute("title") == f"{leaf['at']} UTC"
        # A folded run has the sum of its own.
        run = page.locator("#tree [data-run]").last
        first, place = int(run.get_attribute("data-run") or ""), entries_of(pi_report)
        count = int((run.locator(".run").text_content() or "").split(" ")[0])
        paid = sum(entry.get("paid", [0])[0] for entry in place[first : first + count])
        assert run.locator(".cost").text_content() == f"${round(paid / 1e12, 4)}"

    for viewport in ({"width": 1440, "height": 900}, PHONE):
        chromium.look(pi_report, look, viewport=viewport)


# -- comparing --------------------------------------------------------------------------------------------------------


def test_two_leaves_are_compared_as_the_command_line_does(chromium: Chromium, tmp_path: Path) -> None:
    told: dict[str, Any] = {}

    async def session(store: flue_py.Store) -> flue_py.Session:
        session = await pi_session(store, 300)
        path = await session.get_active_path()
        answers = [entry for entry in path if entry.role == "assistant"]
        await session.move_leaf(path[200].id)
        usage = {"input": 70, "output": 5, "totalTokens": 75, "cost": {"total": 0.0125}}
        await session.append_messages(
            [
                {"role": "user", "content": "another way?"},
                {"role": "assistant", "content": "so", "provider": "p", "model": answers[0].id, "usage": usage},
            ]
        )
        diff = await session.branches.diff(other_leaf=path[-1].id)
        told.update(diff=diff, leaf=session.leaf_id, other=path[-1].id)
        return session

    file = written(tmp_path, session, sizes=False)
    diff = told["diff"]

    def facts(page: Page, side: str) -> dict[str, str]:
        names = page.locator(f".side.{side} dt").all_text_contents()
        return dict(zip(names, page.locator(f".side.{side} dd").all_text_contents(), strict=True))

    def look(page: Page) -> None:
        page.get_by_role("tab", name="Compare").click()
        assert page.locator("#other-leaf option:checked").text_content().split(" ")[0] == told["other"]  # type: ignore[union-attr]
        ancestor = page.locator("#panel .common [data-entry]")
        assert ancestor.get_attribute("data-entry") == diff.ancestor_id
        assert "In common: 201 entries" in (page.locator("#panel .common").text_content() or "")
        for side, expected in (("left", diff.left), ("right", diff.right)):
            ids = page.locator(f".side.{side} [data-entry]").evaluate_all("all => all.map(each => each.dataset.entry)")
            assert ids == [entry.id for entry in expected.entries]
            said = facts(page, side)
            assert said["entries"].startswith(f"{len(expected.entries)} entries (")
            assert said["tokens used"] == f"{expected.usage.totals.tokens:,}"
            tools = [
                f"{name} {each.calls}" + f" ({each.errors} failed)" * (each.errors > 0)
                for name, each in expected.tools.items()
            ]
            assert said.get("tools", "") == ", ".join(tools)
            assert float(said["cost"].removeprefix("$")) == round(float(expected.cost.usd), 4)
        assert facts(page, "left")["cost"] == "$0.0125"
        # An entry of either side leads to it, and the comparison stays.
        ancestor.click()
        assert page.locator("#reading-title code").text_content() == diff.ancestor_id
        assert "Nothing of its own." in (page.locator(".side.left").text_content() or "")

    for viewport in ({"width": 1280, "height": 900}, PHONE):
        chromium.look(file, look, at=f"#{told['leaf']}", viewport=viewport)


# -- figures ----------------------------------------------------------------------------------------------------------


def test_money_has_four_digits_after_the_point_unless_it_is_smaller(chromium: Chromium, tmp_path: Path) -> None:
    shown = {
        0.0: "$0.00", 2.35646475: "$2.3565", 1234.5: "$1,234.50", 0.0001: "$0.0001", 0.00001234: "$0.000012",
        0.000000000001: "$0.000000000001",
    }  # fmt: skip
    entries = []
    for n, dollars in enumerate(shown):  # a turn each
        entries.append(made(f"u{n}", f"a{n - 1}" if n else None))
        entries.append(made(f"a{n}", f"u{n}", role="assistant", usage={"input": 1, "cost": {"total": dollars}}))
    file = report_of(tmp_path, reported(entries))

    def look(page: Page) -> None:
        costs = page.locator("#tree .cost").all_text_contents()
        assert [cost for cost in costs if cost] == [*shown.values()]
        assert page.locator("#panel .cost").all_text_contents() == [*shown.values()]

    chromium.look(file, look)


def test_prompts_and_turns_are_told_apart_and_money_is_in_sight_on_a_phone(chromium: Chromium, pi_report: Path) -> None:
    def look(page: Page) -> None:
        page.locator("#growth summary").click()
        page.locator("#turns table").wait_for()
        text = page.locator("body").inner_text()
        assert "1,018\nentries, 84 prompts" in text
        assert re.search(r"\d turns", text)
        assert not re.search(r"\$\d+\.\d{5}", text)
        for cell in (page.locator("#bills tbody tr:first-child td").last, page.locator("#bills tfoot td").last):
            assert cell.text_content() == "$30.3302"
            box = existing(cell.bounding_box())
            assert 0 < box["x"] < box["x"] + box["width"] <= 390

    chromium.look(pi_report, look, viewport=PHONE)


@pytest.mark.parametrize(
    "parents",
    [
        pytest.param([None, *range(99), *range(100)], id="off a line"),
        pytest.param([None, *[0] * 100], id="off one entry"),
        pytest.param([None, *range(299), *[300 + n - 1 if n % 3 else n for n in range(300)]], id="long ones"),
    ],
)
@pytest.mark.parametrize("width", [1440, 390])
def test_the_map_of_a_hundred_branches_can_be_read(
    chromium: Chromium, tmp_path: Path, parents: list[int | None], width: int
) -> None:
    file = report_of(tmp_path, reported(forest(parents)))

    def look(page: Page) -> None:
        count = int((page.locator("#leaves option").first.text_content() or "").split(" ")[0])
        assert count >= 99
        # All of it is in sight at once, and what is drawn keeps its distance.
        assert page.locator("#map").evaluate("map => map.scrollHeight <= map.clientHeight + 1")
        assert page.locator("#map svg").evaluate("svg => svg.getBoundingClientRect().height") <= 230
        heights = page.locator("#map circle.leaf").evaluate_all("all => all.map(each => +each.getAttribute('cy'))")
        lanes = sorted(set(heights))
        assert all(after - before >= 8 for before, after in pairwise(lanes))
        drawn = page.locator("#map circle.leaf").count()
        note = page.locator("#map p")
        if drawn < count:
            assert f"{drawn} of {count} branches drawn, the others as ticks" in (note.text_content() or "")
            assert page.locator("#map .stub").count() > 0
        else:
            assert note.count() == 0
        # One that is too small to be drawn is drawn once it is selected.
        for value in page.locator("#leaves option").evaluate_all("all => all.slice(1).map(each => each.value)")[::50]:
            page.locator("#leaves").select_option(value)
            assert page.locator("#map circle.chosen").count() == 1
            if width == 390:
                page.locator("#pane-close").click()
                page.locator("#reading").wait_for(state="hidden")

    chromium.look(file, look, viewport={"width": width, "height": 844})
