"""Export to pi files: an imported file is exported unchanged, and whatever pi has no row for is reported."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from flue_py.core.context import project
from flue_py.core.entries import Entry, NewEntry, settings_on
from flue_py.core.sessions import SessionInfo
from flue_py.formats.kit import Exported, SessionPart, SessionTree
from flue_py.formats.noumen import parse_noumen
from flue_py.formats.pi import export_pi
from tests.effort import examples
from tests.formats.pi_files import HEADER, as_lines, every_type, parse_pi, real_lines
from tests.formats.trees import context_of, info_of, labels_of, path_in, tree_of


def exported(parsed: SessionPart, leaf: str | None = "", **info: Any) -> Exported:
    at = parsed.leaf if leaf == "" else leaf
    return export_pi(SessionTree(info_of(parsed, **info), tree_of(parsed), at, labels_of(parsed)))


def rows_of(out: Exported) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.text.splitlines()]


def again(out: Exported) -> SessionPart:
    return parse_pi(out.text.encode().split(b"\n"))


def made(*entries: NewEntry) -> tuple[SessionInfo, list[Entry]]:
    """Return a session that came from no file: entries e0, e1 ... each the child of the one before it."""
    tree = []
    for number, new in enumerate(entries):
        parent = None if number == 0 else f"e{number - 1}"
        common = {"session_id": "s", "kind": new.kind, "role": new.role, "source": new.source}
        places = {"depth": number, "revision": number + 1, "ordinal": 0, "created_us": 1_700_000_000_123_000 + number}
        tree.append(Entry(id=f"e{number}", parent_id=parent, payload=new.payload, **common, **places))  # type: ignore[arg-type]
    return SessionInfo(id="s", created_us=1_700_000_000_000_000, updated_us=1_700_000_001_000_000), tree


def test_a_file_of_version_3_goes_back_row_for_row() -> None:
    rows = every_type()
    out = exported(parse_pi(as_lines(rows)))
    assert rows_of(out) == rows
    assert [list(row) for row in rows_of(out)[1:]] == [list(row) for row in rows[1:]]
    assert out.notes == ()


def test_edits_of_the_context_go_back_as_they_were() -> None:
    row = {"parentId": None, "timestamp": "2026-01-05T10:00:01.000Z"}
    edit = {"type": "context_edit", **row, "targetId": "u1"}
    rows = [
        HEADER,
        {"type": "message", "id": "u1", **row, "message": {"role": "user", "content": "one", "timestamp": 1}},
        {**edit, "id": "e1", "parentId": "u1", "replacement": None},
        {**edit, "id": "e2", "parentId": "e1", "replacement": {"content": "1", "why": "short"}},
        {**edit, "id": "e3", "parentId": "e2", "replacement": "bare"},
    ]
    out = exported(parse_pi(as_lines(rows)))
    assert rows_of(out) == rows
    assert out.notes == ()


def test_odd_fields_go_back_to_where_they_were() -> None:
    usage = {"input": -5, "output": 3}
    row = {"type": "message", "parentId": None, "timestamp": "yesterday"}
    answer = {"role": "assistant", "content": [], "usage": usage, "timestamp": 1}
    said = {"role": "user", "content": "x", "timestamp": 2}
    compaction = {"summary": "S", "firstKeptEntryId": "c", "tokensBefore": 1, "usage": {"input": "many"}}
    rows: list[Any] = [
        {**HEADER, "parentSession": "/path/to/parent.jsonl"},
        {**row, "id": "a", "message": answer, "mood": "calm"},
        {**row, "id": "b", "parentId": "gone", "message": {"role": "user", "content": [{"no": "type"}]}},
        {**row, "id": "c", "parentId": "b", "message": said, "timestamp": 1767607203000},
        {**row, "type": "compaction", "id": "d", "parentId": "c", **compaction},
        '{"type":"future","id":"e","parentId":"d","timestamp":null,"deep":' + "[" * 250 + "]" * 250 + "}",
    ]
    out = exported(parse_pi(as_lines(rows)))
    assert [line.encode() for line in out.text.splitlines()][5] == as_lines(rows)[5].rstrip()
    assert rows_of(out)[:5] == rows[:5]
    assert tree_of(again(out)) == tree_of(parse_pi(as_lines(rows)))


def test_the_real_session_gives_the_same_context_at_every_leaf_after_a_round_trip() -> None:
    parsed = parse_pi(real_lines())
    out = exported(parsed)
    back = again(out)
    assert out.notes == ()
    assert (back.version, back.leaf, back.session.title) == ("3", parsed.leaf, parsed.session.title)
    assert (back.report.skipped, back.report.repaired) == ((), ())
    assert [(e.id, e.parent_id, e.payload, e.created_us) for e in back.entries] == [
        (e.id, e.parent_id, e.payload, e.created_us) for e in parsed.entries
    ]
    before, after = tree_of(parsed), tree_of(back)
    for leaf in [entry.id for entry in before[::97]] + [before[-1].id]:
        ours, theirs = ([item.data for item in project(path_in(tree, leaf))] for tree in (before, after))
        assert ours == theirs
        assert settings_on(path_in(before, leaf)) == settings_on(path_in(after, leaf))


def test_the_active_path_comes_last_whichever_leaf_it_has() -> None:
    parsed = parse_pi(as_lines(every_type()))
    for entry in parsed.entries:
        back = again(exported(parsed, str(entry.id)))
        assert entry.id in [each.id for each in path_in(tree_of(back), back.leaf)][-2:]
        assert context_of(back, str(entry.id)) == context_of(parsed, str(entry.id))
        assert {e.id for e in parsed.entries} <= {e.id for e in back.entries}
        assert labels_of(back) == labels_of(parsed)
        assert back.session.title == parsed.session.title


def test_a_label_and_a_title_that_were_set_here_get_rows_of_their_own_before_the_leaf() -> None:
    parsed = parse_pi(as_lines(every_type()))
    labels = {"u0000001": "start", "f0000001": "end"}  # a0000001 has lost its label
    out = export_pi(SessionTree(info_of(parsed, title="Renamed"), tree_of(parsed), parsed.leaf, labels))
    back = again(out)
    assert (labels_of(back), back.session.title, back.leaf) == (labels, "Renamed", parsed.leaf)
    assert (back.report.skipped, back.report.repaired) == ((), ())
    assert context_of(back) == context_of(parsed)
    # Also where the leaf is a row that names.
    out = export_pi(SessionTree(info_of(parsed, title="Renamed"), tree_of(parsed), "i0000001", {"a0000001": "other"}))
    back = again(out)
    assert (labels_of(back), back.session.title) == ({"a0000001": "other"}, "Renamed")
    assert context_of(back) == context_of(parsed, "i0000001")


def test_what_pi_has_no_row_for_is_said() -> None:
    parsed = parse_pi(as_lines(every_type()))
    assert [str(note) for note in exported(parsed, None).notes] == [
        "left out: that the leaf is before the first entry: pi continues at the last row"
    ]
    assert [str(note) for note in exported(parsed, title=None).notes] == [
        "left out: that the session has no title: pi goes on showing the name it was given"
    ]


def test_a_session_of_another_origin_becomes_a_file_that_pi_can_read() -> None:
    compaction = NewEntry.compaction("So far.", first_kept_entry_id="e1", tokens_before=7)
    pinned = replace(compaction, payload=compaction.payload[:-1] + ',"pinned":["e0"]}')
    info, tree = made(
        NewEntry.message({"role": "system", "content": "Be brief."}),
        NewEntry.message({"role": "user", "content": "hi"}, "prompt"),
        NewEntry.message({"role": "assistant", "content": "yes", "usage": {"input": 3}}),
        NewEntry.message({"role": "toolResult", "toolCallId": "c", "content": "out"}),
        pinned,
        NewEntry.branch_summary("Tried it.", from_id=None),
        NewEntry.custom("exclusion", {"entryId": "e2"}),
        NewEntry.custom("todo", ["a"]),
        NewEntry.custom("custom_message", {"content": {"odd": 1}}),
        NewEntry.message({"role": "assistant", "content": [], "usage": {"input": 1, "cost": {"total": 0.5}}}),
    )
    out = export_pi(SessionTree(info, tree, "e9"))
    assert [str(note) for note in out.notes] == [
        "the system prompt goes out as a custom row: pi has one of its own",
        "usage or a cost that was not reported stands as zeros, which pi asks for",
        "what a compaction keeps by pins is in the file, but pi does not show it",
        "an exclusion goes out as a custom row: pi shows the entry that it took out of the context",
        "entries of kind 'todo' go out as custom rows",
    ]
    header, *rows = rows_of(out)
    assert header == {"type": "session", "version": 3, "id": "s", "timestamp": "2023-11-14T22:13:20.000Z", "cwd": ""}
    assert rows[2]["message"]["content"] == [{"type": "text", "text": "yes"}]
    assert rows[2]["message"]["usage"]["input"] == 3
    assert set(rows[2]["message"]) >= {"api", "provider", "model", "stopReason", "timestamp"}
    assert rows[3]["message"]["content"] == [{"type": "text", "text": "out"}]
    assert rows[5] == {**rows[5], "type": "branch_summary", "fromId": "root", "summary": "Tried it."}
    assert rows[6] == {**rows[6], "type": "custom", "customType": "exclusion", "data": {"entryId": "e2"}}
    assert rows[8] == {**rows[8], "customType": "flue_py", "content": [{"type": "text", "text": '{"odd":1}'}]}
    assert rows[1]["source"] == "prompt"
    back = again(out)
    assert (back.leaf, back.report.skipped, back.report.repaired) == ("e9", (), ())
    roles = [message["role"] for message in context_of(back)]
    assert roles == ["user", "user", "assistant", "toolResult", "user", "user", "assistant"]


def test_an_imported_noumen_session_goes_out_with_its_rows_kept() -> None:
    row = {"sessionId": "demo", "timestamp": "2026-02-01T09:00:00.000Z"}
    message = {**row, "type": "message", "message": {"role": "user", "content": "hi"}}
    more = {**message, "uuid": "u2", "message": {"role": "user", "content": "more"}}
    rows = [{**message, "uuid": "u1"}, {**row, "type": "custom-title", "title": "Mine"}, more]
    (parsed,) = parse_noumen(b"".join(as_lines(rows)))
    back = again(exported(parsed))
    assert back.session.title == "Mine"
    assert [m["content"] for m in context_of(back)] == ["hi", "more"]
    assert [str(note) for note in exported(parsed).notes] == ["entries of kind 'custom-title' go out as custom rows"]


def test_text_that_other_readers_break_lines_at_stays_on_its_line() -> None:
    info, tree = made(NewEntry.message({"role": "user", "content": "a\u2028b\u2029c\u0085d\x0ce\nf"}))
    out = export_pi(SessionTree(info, tree, "e0"))
    assert len([line for line in out.text.splitlines() if line]) == 2
    assert context_of(again(out))[0]["content"] == "a\u2028b\u2029c\u0085d\x0ce\nf"


def test_an_empty_session_is_a_header() -> None:
    info, tree = made()
    assert len(rows_of(export_pi(SessionTree(info, tree, None)))) == 1
    assert export_pi(SessionTree(replace(info, title="T"), tree, None)).notes != ()


ids = st.sampled_from([f"e{n}" for n in range(8)])


@examples(25)
@given(
    st.lists(st.tuples(st.integers(0, 7), st.sampled_from(["message", "compaction", "label", "session_info"]), ids)),
    ids,
)
def test_any_tree_comes_back_with_its_contexts_labels_and_title(shape: list[tuple[int, str, str]], leaf: str) -> None:
    rows: list[dict[str, Any]] = [HEADER]
    for number, (parent, kind, target) in enumerate(shape[:8]):
        row = {"type": kind, "id": f"e{number}", "parentId": f"e{parent}" if parent < number else None}
        body: dict[str, Any] = {"message": {"role": "user", "content": f"m{number}", "timestamp": 1}}
        if kind == "compaction":
            body = {"summary": f"s{number}", "firstKeptEntryId": target, "tokensBefore": 1}
        elif kind == "label":
            body = {"targetId": target, **({"label": f"l{number}"} if number % 2 else {})}
        elif kind == "session_info":
            body = {"name": f"n{number}"}
        rows.append({**row, "timestamp": "2026-01-05T10:00:01.000Z", **body})
    parsed = parse_pi(as_lines(rows))
    at = leaf if leaf in {entry.id for entry in parsed.entries} else parsed.leaf
    back = again(exported(parsed, at))
    for entry in parsed.entries:
        assert context_of(back, str(entry.id)) == context_of(parsed, str(entry.id))
    assert (labels_of(back), back.session.title) == (labels_of(parsed), parsed.session.title)
    assert context_of(back) == context_of(parsed, at)
