"""noumen files: the imported context is what noumen would load, worked out by hand from its rules."""

from __future__ import annotations

import json
from typing import Any

from flue_py.formats.kit import SessionPart
from flue_py.formats.noumen import parse_noumen
from tests.formats.pi_files import as_lines
from tests.formats.trees import context_of, shown, tree_of
from tests.tables import inputs

AT = "2026-02-01T09:00:00.000Z"


def row(kind: str, uuid: str | None = None, **fields: Any) -> dict[str, Any]:
    named = {} if uuid is None else {"uuid": uuid, "parentUuid": None}
    return {"type": kind, **named, "sessionId": "demo", "timestamp": AT, **fields}


def said(uuid: str, text: str, role: str = "user", **fields: Any) -> dict[str, Any]:
    return row("message", uuid, message={"role": role, "content": text, **fields})


def boundary(uuid: str = "cb1") -> dict[str, Any]:
    return row("compact-boundary", uuid)


def summary(uuid: str, text: str) -> dict[str, Any]:
    return row("summary", uuid, message={"role": "user", "content": f"[Conversation Summary]\n\n{text}"})


def snip(*uuids: str) -> dict[str, Any]:
    return row("snip-boundary", snipMetadata={"removedUuids": [*uuids]})


def parsed(*rows: Any) -> SessionPart:
    (session,) = parse_noumen(b"".join(as_lines([*rows])), "demo.jsonl")
    return session


def notes(session: SessionPart) -> list[tuple[int, str]]:
    return [(note.line, note.text) for note in (*session.report.skipped, *session.report.repaired)]


def test_messages_follow_each_other_in_file_order_whatever_parents_say() -> None:
    session = parsed(said("u1", "read two files"), said("a1", "reading", "assistant"), said("u2", "and now?"))
    assert shown(session) == [("user", "read two files"), ("assistant", "reading"), ("user", "and now?")]
    assert [entry.id for entry in session.entries] == ["u1", "a1", "u2"]
    assert [entry.parent_id for entry in session.entries] == [None, "u1", "a1"]
    assert (session.session.id, session.session.created_us) == ("demo", 1769936400000000)
    assert notes(session) == []


def test_calls_results_thinking_and_images_become_our_parts() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "ReadFile", "arguments": '{"file_path":"a"}'}}
    thought = {"thinking_content": "Read it.", "thinking_signature": "sig", "_turnId": "t1"}
    session = parsed(
        row("message", "a1", message={"role": "assistant", "content": None, "tool_calls": [call], **thought}),
        row("message", "t1", message={"role": "tool", "tool_call_id": "c1", "content": "AAA", "isError": False}),
        row(
            "message",
            "u1",
            message={
                "role": "user",
                "content": [
                    {"type": "image", "data": "QUJD", "media_type": "image/png"},
                    {"type": "image_url", "url": "https://example.org/a.png"},
                    {"type": "hologram", "depth": 3},
                ],
            },
        ),
    )
    assert context_of(session) == [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Read it.", "thinkingSignature": "sig"},
                {"type": "toolCall", "id": "c1", "name": "ReadFile", "arguments": {"file_path": "a"}},
            ],
            "_turnId": "t1",
        },
        {"role": "toolResult", "content": "AAA", "isError": False, "toolCallId": "c1", "toolName": "ReadFile"},
        {
            "role": "user",
            "content": [
                {"type": "image", "data": "QUJD", "mimeType": "image/png"},
                {"type": "image", "url": "https://example.org/a.png"},
                {"type": "hologram", "depth": 3},
            ],
        },
    ]


def test_a_boundary_with_a_summary_is_a_compaction_that_keeps_what_was_written_after_it() -> None:
    session = parsed(
        said("u1", "old"),
        said("a1", "older answer", "assistant"),
        boundary(),
        summary("s1", "They read files."),
        said("u1b", "old tail"),
        row("metadata", key="costState", value={"totalCost": 0.12}),
        said("a2", "new", "assistant"),
    )
    # By noumen's rule: what stands after the last boundary, in file order.
    assert shown(session) == [
        ("user", "[Context Summary]\n\nThey read files."),
        ("user", "old tail"),
        ("assistant", "new"),
    ]
    compaction = next(entry for entry in tree_of(session) if entry.kind == "compaction")
    assert (compaction.id, compaction.fields["firstKeptEntryId"]) == ("s1", "u1b")
    assert [entry.kind for entry in session.entries] == [
        "message", "message", "compact-boundary", "compaction", "message", "metadata", "message",
    ]  # fmt: skip
    assert json.loads(session.session.metadata_text)["imported"]["metadata"] == {"costState": {"totalCost": 0.12}}


ONE, TWO, THREE = said("u1", "one"), said("u2", "two"), said("u3", "three")
SUMMED = [boundary("b1"), summary("s1", "first")]
FIRST = "[Context Summary]\n\nfirst"


@inputs(
    ("rows", "texts", "excluded", "noted"),
    [
        ([ONE, *SUMMED, TWO, boundary("b2"), summary("s2", "second")], ["[Context Summary]\n\nsecond"], [], {}),
        ([ONE, *SUMMED, TWO, boundary("b2")], [FIRST, "two"], [], {5: "a boundary with neither summary nor message"}),
        ([ONE, boundary(), TWO, THREE], ["two", "three"], [], {3: ""}),
        ([ONE, summary("s1", "first")], ["one", "[Conversation Summary]\n\nfirst"], [], {}),
        ([ONE, TWO, snip("u2", "nobody"), THREE], ["one", "three"], ["u2"], {3: "snips 'nobody', which is not a row"}),
        ([ONE, snip("u2"), TWO, THREE], ["one", "three"], ["u2"], {}),
        ([ONE, *SUMMED, TWO, snip("u1")], [FIRST, "two"], [], {5: "snips 'u1', which is not a row"}),
    ],
    ids=[
        "the last boundary counts", "a boundary with nothing after it counts for nothing",
        "a boundary without a summary begins anew", "a summary without a boundary is a message",
        "what is snipped is out of the context", "a snip may come before its row",
        "a snip of what lies before the last boundary does nothing",
    ],
)  # fmt: skip
def test_boundaries_and_snips_take_rows_out_of_the_context(
    rows: list[Any], texts: list[str], excluded: list[str], noted: dict[int, str]
) -> None:
    session = parsed(*rows)
    assert [text for _, text in shown(session)] == texts
    assert [entry.fields["entryId"] for entry in tree_of(session) if entry.kind == "exclusion"] == excluded
    assert [line for line, _ in notes(session)] == list(noted)
    assert all(text.startswith(noted[line]) for line, text in notes(session))


def test_a_snip_of_a_summary_is_said_not_to_be_followed() -> None:
    session = parsed(ONE, *SUMMED, TWO, snip("s1"))
    assert notes(session) == [(5, "snips the summary 's1', which stays in the context")]


@inputs(
    ("titles", "expected"),
    [
        ([("ai-title", "AI"), ("custom-title", "Mine")], "Mine"),
        ([("custom-title", "Mine"), ("ai-title", "AI")], "Mine"),
        ([("custom-title", "Mine"), ("custom-title", "Mine too"), ("ai-title", "AI")], "Mine too"),
        ([("ai-title", "AI"), ("ai-title", "Better")], "Better"),
        ([("custom-title", "  "), ("ai-title", "AI")], "AI"),
        ([("custom-title", "Mine"), ("custom-title", " \n")], "Mine"),
        ([("ai-title", " ")], None),
        ([], None),
    ],
)
def test_a_title_that_somebody_gave_beats_one_that_was_made(
    titles: list[tuple[str, str]], expected: str | None
) -> None:
    session = parsed(said("u1", "hi"), *(row(kind, title=title) for kind, title in titles))
    assert (session.session.title or session.session.auto_title) == expected
    made = [title.strip() for kind, title in titles if kind == "ai-title" and title.strip()]
    assert session.session.auto_title == (made[-1] if made else None)


def test_of_each_metadata_key_the_last_value_counts() -> None:
    session = parsed(
        said("u1", "hi"), *(row("metadata", key=key, value=value) for key, value in [("a", 1), ("b", 2), ("a", [3])])
    )
    assert json.loads(session.session.metadata_text)["imported"]["metadata"] == {"a": [3], "b": 2}


def test_a_longer_file_begins_with_the_entries_of_the_shorter_one() -> None:
    rows = [
        said("u1", "one"), row("ai-title", title="T"), snip("u1"), boundary(), summary("s1", "sum"), said("u2", "two"),
    ]  # fmt: skip
    rows += [row("file-checkpoint", messageId="u2", snapshot={}, isSnapshotUpdate=False), said("u3", "three")]
    whole = parsed(*rows)
    for count in range(1, len(rows)):
        if not any(row["type"] == "summary" for row in rows[count : count + 1]):
            shorter = parsed(*rows[:count])
            assert [entry.id for entry in whole.entries[: len(shorter.entries)]] == [e.id for e in shorter.entries]
    assert parsed(*rows) == whole


def test_rows_that_repeat_a_uuid_or_have_none_are_all_there() -> None:
    session = parsed(said("u1", "one"), said("u1", "again"), {**said("", "nameless"), "uuid": None}, snip("u1"))
    assert [text for _, text in shown(session)] == ["nameless"]
    assert [line for line, _ in notes(session)] == [2, 3]
    assert len({entry.id for entry in session.entries}) == len(session.entries) == 5


def test_damage_is_named_by_its_line_and_the_rest_is_kept() -> None:
    torn = json.dumps(said("u4", "four")).encode()[:50]
    session = parsed(
        "not json",
        said("u1", "one"),
        "[1]",
        {"type": 7},
        said("u2", "two", role=5),
        b'{"type":"message","n":"\xff"}',
        torn,
    )
    assert shown(session) == [("user", "one")]
    assert [note.line for note in session.report.skipped] == [1, 3, 4, 7]
    assert {note.line for note in session.report.repaired} == {5, 6}
    assert session.report.rows == 7


def test_rows_of_kinds_from_the_future_are_kept_and_counted() -> None:
    session = parsed(said("u1", "one"), row("hologram", depth=3), row("../evil kind", a=1), said("u2", "two"))
    assert [text for _, text in shown(session)] == ["one", "two"]
    assert session.report.unknown_kinds == {"hologram": 1, "../evil kind": 1}
    assert [entry.kind for entry in session.entries] == ["message", "hologram", "unreadable_entry", "message"]


def test_the_name_of_the_file_stands_in_for_a_session_id() -> None:
    (session,) = parse_noumen(b"".join(as_lines([{**said("u1", "one"), "sessionId": None}])), "work/other.jsonl")
    assert session.session.id == "other"
