"""The report as text: the embedded data, its isolation, its figures. tests/edges tests it in a browser."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections import Counter
from datetime import UTC, datetime
from hashlib import sha256
from html import unescape
from importlib.resources import files
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from flue_py.core.context import EntryCost, project
from flue_py.core.entries import Entry
from flue_py.core.json import JsonObject
from flue_py.core.ledger import UsageRow
from flue_py.core.sessions import SessionInfo
from flue_py.render.lines import entry_text, one_line
from flue_py.render.report import (
    SCRIPTS,
    ReportedSession,
    Thresholds,
    context_snapshots,
    embedded_json,
    html_report,
    report_data,
    reshaped_contexts,
)
from flue_py.render.tools import MOST_CHARACTERS, MOST_PIXELS, media_of
from tests.render.entries import forest, made, page_entries
from tests.render.pictures import GIF, JPEG, PNG, SVG, WEBP
from tests.tables import inputs
from tests.values import existing

ASSETS = files("flue_py.render") / "assets"


def reported(entries: list[Entry], leaf: str | None = None, **fields: Any) -> ReportedSession:
    return ReportedSession(
        SessionInfo("s", title="Red build", leaf_id=leaf or (entries[-1].id if entries else None)), entries, **fields
    )


def rows_of(session: ReportedSession) -> list[dict[str, Any]]:
    """Return the entries of a session as the page puts them together."""
    data: Any = report_data([session], Thresholds())
    return page_entries(data["sessions"][0])


def answer(entry_id: str, parent: str | None, usage: dict[str, Any] | None, **fields: Any) -> Entry:
    return made(entry_id, parent, role="assistant", provider="p", model="m", usage=usage, **fields)


def data_of(page: str) -> Any:
    """Return the data that a page embeds, found as a browser finds it: up to the next end of a script."""
    _, _, rest = page.partition('<script type="application/json" id="report-data">')
    return json.loads(rest.partition("</script")[0])


# -- what reaches the page --------------------------------------------------------------------------------------------


def test_the_same_session_gives_the_same_bytes() -> None:
    session = reported(forest([None, 0, 1, 1]))
    first, second = html_report([session]), html_report([session])
    assert first == second
    made_at = datetime(2026, 1, 5, 10, 30, tzinfo=UTC)
    assert data_of(html_report([session], made_at=made_at))["made"] == "2026-01-05 10:30 UTC"
    assert data_of(first)["made"] is None


@given(st.text(st.sampled_from("</script><!-->&\u2028\u2029\ud800'\"\\ab \n\0"), max_size=60) | st.text(max_size=40))
def test_no_text_can_leave_the_data(text: str) -> None:
    embedded = embedded_json({"a": [text], text: None})
    assert not re.search("[<>&\u2028\u2029]", embedded)
    assert embedded.encode()
    assert json.loads(embedded) == {"a": [text], text: None}


def test_what_looks_like_a_slot_or_markup_in_a_session_stays_as_it_is() -> None:
    text = "@@STYLES@@ @@DATA@@ </title><script>"
    entry = made("e1", None, content=text)
    session = ReportedSession(SessionInfo("s", title=text, leaf_id="e1"), [entry])
    page = html_report([session])
    assert data_of(page)["sessions"][0]["entries"][0]["parts"] == [["text", text]]
    title = existing(re.search("<title>(.*?)</title>", page))
    assert unescape(title.group(1)) == text
    assert page.count("<script") == page.count("</script>") == 5


def test_the_policy_allows_what_is_in_the_file_and_nothing_else() -> None:
    page = html_report([reported(forest([None]))])
    found = existing(re.search('http-equiv="Content-Security-Policy" content="([^"]*)"', page))
    policy = dict(rule.strip().split(" ", 1) for rule in found.group(1).split(";"))
    assert policy.keys() == {
        "default-src", "script-src", "style-src", "img-src", "base-uri", "form-action", "require-trusted-types-for",
        "trusted-types",
    }  # fmt: skip
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == policy["trusted-types"] == "'none'"

    def hashes(tag: str) -> list[str]:
        texts = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        return [f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in texts]

    assert policy["script-src"].split() == hashes("script")
    assert policy["style-src"].split() == hashes("style")


def test_the_page_names_nothing_outside_of_itself() -> None:
    page = html_report([reported(forest([None]))])
    markup = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", page, flags=re.DOTALL)
    assert re.findall(r'(?:src|href|action|data|poster|srcset)="([^"]*)"', markup) == ["data:,", "#history"]
    own = "".join((ASSETS / f"{name}.js").read_text() for name in (*SCRIPTS, "index", "live", "listing"))
    own += (ASSETS / "report.css").read_text()
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|fetch\(|XMLHttp|import\(|url\(", own
    )
    assert re.findall(r"https?://[^\"' ]*", own) == ["http://www.w3.org/2000/svg"]
    assert "sourceMappingURL" not in page


def test_every_script_of_the_page_is_shipped_and_put_in() -> None:
    there = {file.name for file in ASSETS.iterdir() if file.is_file()}
    of_list = {"index.html", "index.js"}
    of_server = {"server.js", "live.js", "listing.js", "login.html", "login.js", "problem.html", "problem.js"}
    templates = {"page.html", "report.html"}
    assert there == {*templates, "report.css", *(f"{name}.js" for name in SCRIPTS)} | of_list | of_server
    page = html_report([reported(forest([None]))])
    for name in there - of_list - of_server - templates:
        assert (ASSETS / name).read_text() in page
    # The scripts of a page are one scope, in which the later of two functions of one name is both.
    own = "".join((ASSETS / f"{name}.js").read_text() for name in (*SCRIPTS, "server", "live"))
    functions = Counter(re.findall(r"^(?:async )?function (\w+)", own, re.MULTILINE))
    assert [name for name, count in functions.items() if count > 1] == []


def test_the_libraries_are_byte_for_byte_what_the_notice_says_and_their_licences_are_on_the_page() -> None:
    vendor = ASSETS / "vendor"
    notice = (vendor / "NOTICE").read_text()
    listed = re.findall(r"^(\S+)\s+(\d+)\s+([0-9a-f]{64})$", notice, re.MULTILINE)
    for name, size, digest in listed:
        content = (vendor / name).read_bytes()
        assert (len(content), sha256(content).hexdigest()) == (int(size), digest), name
    assert {name for name, _, _ in listed} | {"NOTICE"} == {file.name for file in vendor.iterdir()}
    versions = {"version 1.6.32", "version 3.1.3", "version 15.0.3"}
    assert versions | {"licence MIT", "licence ISC", "licence BSD-2-Clause"} <= set(
        re.findall(r"version [\d.]+\d|licence [A-Z][\w-]+", notice)
    )
    page = unescape(html_report([reported(forest([None]))]))
    for name in ("uPlot.LICENSE", "d3-hierarchy.LICENSE", "markdown-it.LICENSE"):
        assert (vendor / name).read_text().strip() in page
    assert "(v1.6.32)" in (vendor / "uPlot.iife.min.js").read_text()[:80]
    assert "v3.1.3" in (vendor / "d3-hierarchy.min.js").read_text()[:80]


# -- contexts ---------------------------------------------------------------------------------------------------------


DRAWN = ("message", "message", "branch_summary", "custom_message", "note", "exclusion", "compaction")


@st.composite
def histories(draw: st.DrawFn) -> list[Entry]:
    """Draw a tree of entries of all kinds, compactions that keep something, nothing, or what is on another branch."""
    entries: list[Entry] = []
    for number in range(draw(st.integers(1, 24))):
        parent = draw(st.sampled_from([None, *entries, *entries[-3:] * 3]))
        depth = 0 if parent is None else parent.depth + 1
        kind = draw(st.sampled_from(DRAWN))
        fields: dict[str, Any] = {"summary": "s", "content": "c"} if kind != "message" else {}
        if kind == "compaction":
            fields["firstKeptEntryId"] = draw(st.sampled_from(["nowhere", *[entry.id for entry in entries]]))
        parent_id = None if parent is None else parent.id
        entries.append(made(f"e{number}", parent_id, kind=kind, depth=depth, **fields))
    return entries


@given(histories())
def test_the_context_at_every_entry_follows_from_what_the_page_is_given(entries: list[Entry]) -> None:
    rows = rows_of(reported(entries))
    by_id = {entry.id: entry for entry in entries}

    def as_the_page_does(place: int | None) -> list[int]:
        if place is None:
            return []
        row = rows[place]
        if "context" in row:
            return [number for first, last in row["context"] for number in range(first, last + 1)]
        return as_the_page_does(row.get("parent")) + ([place] if row.get("seen") else [])

    for place, entry in enumerate(entries):
        path = [entry]
        while path[0].parent_id is not None:
            path.insert(0, by_id[path[0].parent_id])
        assert [entries[number].id for number in as_the_page_does(place)] == [item.entry_id for item in project(path)]


def test_only_the_contexts_that_are_reshaped_are_written_out_and_in_stretches() -> None:
    entries = [made("e0", None)]
    entries += [made(f"e{n}", f"e{n - 1}", depth=n) for n in range(1, 9)]
    entries.append(made("c", "e8", kind="compaction", depth=9, summary="so far", firstKeptEntryId="e5"))
    entries.append(made("e9", "c", depth=10))
    assert reshaped_contexts(entries) == {"c": [(9, 9), (5, 8)]}


# -- what is shown of an entry ----------------------------------------------------------------------------------------


CALL = {"type": "toolCall", "id": "1", "name": "read", "arguments": {"p": 1}}
EDIT = {**CALL, "name": "Edit", "arguments": {"file_path": "x.py", "old_string": "a\nb", "new_string": "a\nc"}}
USAGE = {"input": 900, "output": 70, "cacheRead": 9000, "cost": {"total": 0.01}}
ANSWER = {"role": "assistant", "provider": "anthropic", "model": "claude-sonnet-4-5", "usage": USAGE}
SOUND = {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"}
PICTURE = {"type": "image", "mimeType": "image/png", "data": PNG}
THOUGHT = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "so"}]
SHELL = {"role": "bashExecution", "content": None, "command": "ls", "output": "a"}


@inputs(
    ("fields", "parts"),
    [
        ({"content": "hi"}, [["text", "hi"]]),
        ({"role": "assistant", "content": THOUGHT}, [["thinking", "hm"], ["text", "so"]]),
        ({"role": "assistant", "content": [{**THOUGHT[0], "thinking": "\n"}, THOUGHT[1]]}, [["text", "so"]]),
        ({"role": "assistant", "content": [CALL]}, [["call", "p: 1", "read"]]),
        ({"role": "assistant", "content": [EDIT]}, [["diff", " a\n-b\n+c", "Edit x.py"]]),
        ({"content": [SOUND]}, [["media", "audio, audio/wav, 3 bytes"]]),
        ({"content": [PICTURE, PICTURE]}, [["media", "image, image/png, 3 x 2 pixels, 93 bytes", 0]] * 2),
        (SHELL, [["call", "$ ls"], ["text", "a"]]),
        ({"role": "assistant", "content": [], "errorMessage": "aborted"}, [["error", "aborted"]]),
        ({"content": [{"type": "new", "a": 1}, 7]}, [["data", "type: new\na: 1"], ["data", "7"]]),
        (
            {"content": "<ide_selection>x</ide_selection>\nFix it"},
            [["program", "<ide_selection>x</ide_selection>", "IDE selection"], ["text", "Fix it"]],
        ),
        (
            {"role": "toolResult", "toolName": "bash", "content": '{"returncode":2,"stdout":"no"}'},
            [["text", "no", "exit 2"]],
        ),
        ({**SHELL, "exitCode": 0}, [["call", "$ ls"], ["text", "a", "exit 0"]]),
        ({"kind": "compaction", "summary": "so far"}, [["text", "[Context Summary]\n\nso far"]]),
        ({"kind": "branch_summary", "summary": "tried"}, [["text", "[Branch Summary]\n\ntried"]]),
        ({"kind": "note", "a": 1}, [["json", '{"a":1}']]),
    ],
)
def test_an_entry_is_shown_in_parts(fields: dict[str, Any], parts: list[list[str]]) -> None:
    (row,) = rows_of(reported([made("e", None, **fields)]))
    assert row["parts"] == parts


TEXTS = st.text(st.sampled_from("ab \n\t\x1f\x7fé…\u2028\U0001f600"), max_size=200) | st.text("ab ", min_size=150)


@given(TEXTS, st.sampled_from(["user", "toolResult"]), st.sampled_from([None, "bash", "", 5]), st.booleans())
def test_the_line_of_an_entry_is_there_or_follows_from_its_text(text: str, role: str, tool: Any, failed: bool) -> None:
    entry = made("e", None, role=role, content=text, toolName=tool, isError=failed)
    (row,) = rows_of(reported([entry]))
    marks = [mark for mark in (row.get("tool"), "failed" if row.get("failed") else "") if mark]
    line = one_line(f"[{', '.join(marks)}] {text}" if marks else text)
    derived = line if len(line) <= 160 else line[:159].rstrip() + "…"
    stored = entry_text(entry)
    assert row.get("line", derived) == (stored if len(stored) <= 160 else stored[:159].rstrip() + "…")


def test_entries_share_what_they_have_alike_so_that_a_row_is_small() -> None:
    turn: list[dict[str, Any]] = [
        {"role": "user", "content": "why is the build red?"},
        {**ANSWER, "content": [{"type": "text", "text": "I look at it."}, CALL], "stopReason": "toolUse"},
        {"role": "toolResult", "toolCallId": "1", "toolName": "read", "content": "one\ntwo", "isError": False},
        {**ANSWER, "content": "The import is wrong.", "stopReason": "stop"},
    ]
    entries = [made(f"e{n}", f"e{n - 1}" if n else None, **turn[n % 4]) for n in range(4000)]
    data: Any = report_data([reported(entries)], Thresholds())
    session = data["sessions"][0]
    assert (len(session["sorts"]), len(session["rests"])) == (3, 3)
    size = len(embedded_json(session["entries"])) - sum(len(embedded_json(row["parts"])) for row in session["entries"])
    assert size < 110 * len(entries), "beside its text, an entry takes about a hundred bytes"


def test_a_page_has_each_picture_once_and_names_those_beyond_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flue_py.render.report.MOST_PICTURES", len(PNG) + len(GIF) - 1)
    contents = [[PICTURE], [{**PICTURE, "data": GIF}], [PICTURE]]
    entries = [made(f"e{place}", None, content=content) for place, content in enumerate(contents)]
    data: Any = report_data([reported(entries)], Thresholds())
    assert data["pictures"] == [["image/png", PNG, 3, 2]]
    shown = ["media", "image, image/png, 3 x 2 pixels, 93 bytes", 0]
    named = ["media", "image, image/gif, 3 x 2 pixels, 35 bytes, too large to be shown"]
    assert [row["parts"][0] for row in data["sessions"][0]["entries"]] == [shown, named, shown]


def test_what_an_entry_carries_beside_its_content_is_there_too() -> None:
    entry = made("e", None, kind="compaction", summary="so far", firstKeptEntryId="x", details={"files": ["a.py"]})
    (row,) = rows_of(reported([entry], labels={"e": "here"}, sizes={"e": 12}))
    assert row["rest"] == {"firstKeptEntryId": "x", "details": {"files": ["a.py"]}}
    assert (row["label"], row["tokens"], row["at"]) == ("here", 12, "2026-01-05 10:00:00")


# -- growth and cost --------------------------------------------------------------------------------------------------


def growing() -> list[Entry]:
    return [
        made("q", None),
        answer("a", "q", {"input": 10, "output": 1, "cacheRead": 90, "cacheWrite": 5}, depth=1, agentName="Planner"),
        answer("b", "a", {"input": 0, "output": 9}, depth=2),
        answer("off", "b", {"input": 7, "output": 1, "cost": {"total": 0.1}}, depth=3),
        answer("c", "b", {"input": 50, "output": 2, "cost": {"total": 0.2}}, depth=3, agent="Developer"),
        made("k", "c", kind="compaction", depth=4, summary="s", firstKeptEntryId="c", tokensBefore=155),
        answer("d", "k", {"input": 20, "output": 3, "cost": {"total": 0}}, depth=5, agentName="Planner"),
        answer("e", "d", None, depth=6),
    ]


def test_each_agent_has_a_line_along_the_active_path_which_a_compaction_sets_back() -> None:
    task = reported([answer("t", None, {"input": 4, "output": 4})], task_id="check", parent_id="s")
    data: Any = report_data([reported(growing()), task], Thresholds(100, 200))
    assert data["growth"] == [
        {
            "session": 0,
            "agent": "Planner",
            "turns": [[1, 10, 90, 5, 1, 105], [6, 20, None, None, 3, 20]],
            "compactions": [[1, 5, 155]],
        },
        {"session": 0, "agent": "Developer", "turns": [[4, 50, None, None, 2, 50]], "compactions": [[1, 5, 155]]},
        {"session": 1, "agent": "check", "turns": [[0, 4, None, None, 4, 4]], "compactions": []},
    ]
    assert (data["warnAt"], data["cutoverAt"]) == (100, 200)


def test_taking_a_compaction_back_is_no_compaction_in_the_growth() -> None:
    back = {"summary": "", "firstKeptEntryId": "q", "tokensBefore": 20}
    entries = [
        *growing(),
        made("u", "e", kind="compaction", depth=7, **back, restoresCompactionId=None, takesBackCompactionId="k"),
        answer("f", "u", {"input": 200, "output": 1}, depth=8, agentName="Planner"),
    ]
    data: Any = report_data([reported(entries)], Thresholds())
    assert [line["compactions"] for line in data["growth"]] == [[[1, 5, 155]], [[1, 5, 155]]]
    assert [turn[5] for turn in data["growth"][0]["turns"]] == [105, 20, 220]
    rows = [json.loads(line) for line in context_snapshots([reported(entries)], Thresholds()).splitlines()]
    assert sum("compaction_occurred" in row for row in rows) == 1


def test_snapshots_are_a_line_a_turn_and_a_line_a_compaction() -> None:
    snapshots = context_snapshots([reported(growing())], Thresholds(warn_at=100))
    lines = [json.loads(line) for line in snapshots.splitlines()]
    names = ("agent", "turn", "turn_input_tokens", "cumulative_input_tokens")
    assert [tuple(line[name] for name in names) for line in lines] == [
        ("Planner", 1, 105, 105),
        ("Developer", 1, 50, 50),
        ("system", 1, 0, 0),
        ("Planner", 2, 20, 20),
    ]
    assert lines[2] == {
        "ts": "2026-01-05T10:00:00.000000Z", "session": "s", "agent": "system", "turn": 1, "turn_input_tokens": 0,
        "turn_output_tokens": 0, "cumulative_input_tokens": 0, "warn_at": 100, "compaction_occurred": True,
    }  # fmt: skip
    assert "cutover_at" not in lines[0]
    assert context_snapshots([reported([])]) == ""


def paid(provider: str, model: str, purpose: str, *numbers: int) -> UsageRow:
    return UsageRow({"provider": provider, "model": model, "purpose": purpose}, *numbers)


def test_costs_are_exact_and_tell_how_many_calls_nobody_knows_the_price_of() -> None:
    costs = {"b": EntryCost(3, 1, 1), "c": EntryCost(1, 1, 0), "copy": EntryCost(1, 0, 1)}
    told: list[Entry] = [
        answer("a", None, {"input": 1, "cost": {"total": 0.1}}),
        answer("b", "a", {"input": 1}),
        answer("c", "b", {"input": 1}),
        made("d", "c", kind="branch_summary", summary="s", usage={"input": 7, "cost": {"total": 2}}),
        answer("e", "d", {"input": 1}),
        answer("f", "e", None),
    ]
    data: Any = report_data([reported(told, costs=costs)], Thresholds())
    rows = data["sessions"][0]["entries"]
    paid = [[10**11, 1, 0], [1, 3, 1], [0, 1, 1], [2 * 10**12, 1, 0], [0, 1, 1], [0, 0, 0, 1]]
    assert [row["paid"] for row in rows] == paid
    assert rows[3]["usage"] == [7, None, None, None, 7]
    assert "usage" not in rows[5]
    grown: Any = report_data([reported(growing())], Thresholds())
    assert [row.get("paid") for row in grown["sessions"][0]["entries"]] == [
        None, [0, 1, 1], [0, 1, 1], [10**11, 1, 0], [2 * 10**11, 1, 0], None, [0, 1, 0], [0, 0, 0, 1],
    ]  # fmt: skip


def test_the_bill_is_by_model_and_tells_how_many_calls_nobody_knows_the_price_of() -> None:
    bill = [
        paid("p", "m", "turn", 5, 2, 80, 16, 90, 3, 2, 0, 191, 10**12),
        paid("p", "m", "title", 1, 0, 7, 0, 0, 0, 0, 0, 7, 5 * 10**11),
        paid("", "", "compaction", 1, 1, 1, 2, 0, 0, 0, 0, 3, 0),
        paid("", "", "turn", 1, 0, 1, 2, 0, 0, 0, 0, 3, 0),
    ]
    models: Any = report_data([reported(growing())], Thresholds(), bill=bill)["models"]
    assert [(row["provider"], row["model"], row["paid"]) for row in models["rows"]] == [
        ("p", "m", [15 * 10**11, 6, 2]),
        ("", "compaction", [0, 1, 1]),
        ("", "model unknown", [0, 1, 0]),
    ]
    assert models["rows"][0]["usage"] == [87, 16, 90, 5]
    assert models["total"]["paid"] == [15 * 10**11, 8, 3]
    nothing: Any = report_data([reported(growing())], Thresholds())["models"]
    assert nothing == {"rows": [], "total": {"usage": [0, 0, 0, 0], "paid": [0, 0, 0], "unknown": 0}}


def test_tokens_that_nobody_knows_are_no_zeros_on_the_bill() -> None:
    bill = [UsageRow({"provider": "p", "model": "m", "purpose": "turn"}, 2, 2, unknown_calls=2)]
    models: Any = report_data([reported(growing())], Thresholds(), bill=bill)["models"]
    assert models["total"] == {"usage": [None] * 4, "paid": [0, 2, 2], "unknown": 2}


def test_what_was_copied_is_counted_where_it_was_said_first() -> None:
    entries = growing()
    origin = json.dumps({"copiedFrom": {"session": "s", "entry": "a"}})
    copy = replace(entries[1], id="copy", parent_id="q", extra=origin)
    data: Any = report_data([reported([*entries, copy], "copy")], Thresholds())
    assert data["growth"] == []
    row = page_entries(data["sessions"][0])[-1]
    assert "usage" not in row
    assert "paid" not in row
    assert row["rest"]["copiedFrom"] == {"session": "s", "entry": "a"}


def test_sums_over_branches_may_be_larger_than_any_path() -> None:
    most = 2**62
    bill = [paid("p", f"m{n}", "turn", 1, 1, most, 0, 0, 0, 0, 0, most, 0) for n in range(3)]
    data: Any = report_data([reported(growing())], Thresholds(), bill=bill)
    assert data["models"]["total"]["usage"][0] == 3 * most


# -- pictures and files in the parts of messages ----------------------------------------------------------------------


LARGE = b64encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + pack(">II", 4, MOST_PIXELS // 4 + 1)).decode()


@inputs(
    ("part", "name"),
    [
        ({"type": "image", "mimeType": "image/png", "data": PNG}, "image, image/png, 3 x 2 pixels, 93 bytes"),
        ({"type": "image", "data": PNG}, "image, image/png, 3 x 2 pixels, 93 bytes"),
        ({"type": "image", "mimeType": "image/png", "data": JPEG}, "image, image/jpeg, 3 x 2 pixels, 286 bytes"),
        ({"type": "image", "url": f"data:image/webp;base64,{WEBP}"}, "image, image/webp, 3 x 2 pixels, 56 bytes"),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": GIF}},
            "image, image/gif, 3 x 2 pixels, 35 bytes",
        ),
        (
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "low"}},
            "image_url, image/png, 3 x 2 pixels, 93 bytes",
        ),
        ({"type": "input_image", "image_url": f"data:;base64,{PNG}"}, "input_image, image/png, 3 x 2 pixels, 93 bytes"),
        ({"inlineData": {"mimeType": "image/gif", "data": GIF}}, "file, image/gif, 3 x 2 pixels, 35 bytes"),
        ({"inline_data": {"mime_type": "image/gif", "data": GIF}}, "file, image/gif, 3 x 2 pixels, 35 bytes"),
        ({"type": "file", "file": {"file_data": f"data:x/y;base64,{PNG}"}}, "file, image/png, 3 x 2 pixels, 93 bytes"),
        ({"type": "image", "mimeType": "image/png", "data": SVG}, "image, image/svg+xml, 77 bytes"),
        ({"type": "image", "mimeType": "image/png", "data": "AAAA"}, "image, image/png, 3 bytes"),
        ({"type": "image", "data": "\u00e9\u202e"}, "image, type unknown, 1 byte"),
        ({"type": "image", "mimeType": "a\n\x1bb", "data": "AAAA"}, "image, a\n\x1bb, 3 bytes"),
        ({"type": "file", "filename": "a.png", "data": PNG}, "a.png, file, image/png, 3 x 2 pixels, 93 bytes"),
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, "input_audio, wav, 3 bytes"),
    ],
)
def test_a_picture_is_known_by_its_first_bytes(part: JsonObject, name: str) -> None:
    media = existing(media_of(part))
    assert media.name == name
    assert media.is_picture is media.is_small is ("3 x 2 pixels" in name)


@inputs(
    "part",
    [
        {},
        {"type": "text", "text": f"data:image/png;base64,{PNG}"},
        {"type": "image", "url": "https://example.com/x.png"},
        {"type": "image", "url": "data:image/svg+xml,<svg/>"},
        {"type": "redacted_thinking", "data": "AAAA"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
        {"type": "image", "data": 5, "source": [], "image_url": None},
    ],
)
def test_a_part_without_bytes_is_no_picture(part: JsonObject) -> None:
    assert media_of(part) is None


@inputs("data", [PNG[:24], LARGE, PNG + "A" * MOST_CHARACTERS])
def test_a_picture_that_is_too_large_or_of_unknown_size_is_not_small(data: str) -> None:
    media = existing(media_of({"type": "image", "data": data}))
    assert (media.is_picture, media.is_small) == (True, False)
