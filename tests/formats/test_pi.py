"""Files of pi: of each version, as they are written, and a real session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flue_py
from flue_py.core.entries import NewEntry, settings_on
from flue_py.core.json import decode_object
from flue_py.core.sessions import derived_id
from flue_py.core.usage import NO_USAGE, Usage
from flue_py.formats import pi
from flue_py.formats.kit import ParseReport, SessionPart
from flue_py.formats.pi import PiReader
from flue_py.providers.lists import bash_text
from tests.formats import pi_files
from tests.formats.pi_files import HEADER, as_lines, every_type, parse_pi, real_lines, row, said
from tests.formats.test_export_pi import exported, rows_of
from tests.formats.transcripts import import_lines
from tests.tables import inputs
from tests.values import existing

# Hand-made pi files of all three versions: every entry type, and what migration does to the old ones.


def entry_of(parsed: SessionPart, entry_id: str) -> NewEntry:
    return next(entry for entry in parsed.entries if entry.id == entry_id)


def user(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text, "timestamp": 1767607200000}


def shown(parsed: SessionPart, leaf: str | None) -> list[tuple[str, str]]:
    return [(message["role"], pi_files.rule_text(message)) for message in pi_files.context_at(parsed, leaf)]


def test_every_entry_type_keeps_id_parent_time_kind_and_payload() -> None:
    rows = pi_files.every_type()
    parsed = pi_files.parse_pi(pi_files.as_lines(rows))
    assert parsed.report.skipped == parsed.report.repaired == ()
    assert parsed.report.unknown_kinds == {"future_kind": 1}
    assert [entry.id for entry in parsed.entries] == [row["id"] for row in rows[1:]]
    for written in rows[1:]:
        entry = entry_of(parsed, written["id"])
        assert entry.parent_id == written["parentId"]
        assert entry.kind == ("empty_branch_summary" if written["id"] == "s0000002" else written["type"])
        body = {name: value for name, value in written.items() if name not in ("type", "id", "parentId", "timestamp")}
        assert decode_object(entry.payload) == body.get("message", body)
        assert entry.extra is None
    first, last = parsed.entries[0], parsed.entries[-1]
    assert (last.created_us or 0) - (first.created_us or 0) == (len(rows) - 2) * 1_000_000


def test_context_of_each_branch_is_the_one_pi_builds() -> None:
    parsed = pi_files.parse_pi(pi_files.as_lines(pi_files.every_type()))
    assert shown(parsed, "r0000001") == [("user", "Add a parser"), ("assistant", "Reading."), ("toolResult", "(empty)")]
    compacted = shown(parsed, "h0000001")
    assert [role for role, _ in compacted] == ["user", "toolResult", "bashExecution", "bashExecution", "custom"]
    assert "## Goal: a parser" in compacted[0][1]
    assert [text for _, text in compacted[1:]] == ["(empty)", "pytest -q\n1 failed", "ls ~\nsecret", "from a hook"]
    other = shown(parsed, parsed.leaf)
    assert [role for role, _ in other] == ["user", "user", "user", "user"]
    assert "Tried regex." in other[1][1]
    assert [other[n][1] for n in (0, 2, 3)] == ["Add a parser", "ruff: 0 issues", "Try the standard library instead"]


def test_what_is_sent_has_commands_as_text_and_leaves_out_what_the_user_excluded() -> None:
    parsed = pi_files.parse_pi(pi_files.as_lines(pi_files.every_type()))
    sent = pi_files.messages_for_model(pi_files.context_at(parsed, "h0000001"))
    assert [message["role"] for message in sent] == ["user", "toolResult", "user", "user"]
    assert pi_files.rule_text(sent[2]) == (
        "Ran `pytest -q`\n```\n1 failed\n```\n\nCommand exited with code 1"
        "\n\n[Output truncated. Full output: /var/log/out.txt]"
    )
    assert pi_files.rule_text(sent[3]) == "from a hook"


def test_text_of_a_command_tells_of_no_output_and_of_a_cancellation() -> None:
    assert bash_text(pi_files.bash("true", "")) == "Ran `true`\n(no output)"
    assert bash_text(pi_files.bash("sleep 9", "", cancelled=True, exitCode=None)) == (
        "Ran `sleep 9`\n(no output)\n\n(command cancelled)"
    )


def test_settings_are_those_of_the_branch() -> None:
    parsed = pi_files.parse_pi(pi_files.as_lines(pi_files.every_type()))
    at = {leaf: settings_on(pi_files.path_to(parsed, leaf)) for leaf in (None, "u0000001", "a0000001", "s0000001")}
    assert (at[None].thinking_level, at[None].provider, at[None].model) == (None, None, None)
    assert (at["u0000001"].thinking_level, at["u0000001"].model) == ("high", "gpt-5.1-codex")
    assert (at["a0000001"].provider, at["a0000001"].model) == ("anthropic", "claude-sonnet-4-5")
    assert at["s0000001"] == at["u0000001"]


def test_title_is_the_latest_name_and_labels_come_in_file_order() -> None:
    rows = pi_files.every_type()
    rows.append({"type": "session_info", "id": "i2", "parentId": "u0000001", "timestamp": "x", "name": "   "})
    parsed = pi_files.parse_pi(pi_files.as_lines(rows))
    assert parsed.session.title == "INI parser session"
    assert [(change.target_id, change.label) for change in parsed.labels] == [
        ("a0000001", "first-version"),
        ("x0000001", "lint"),
        ("x0000001", None),
    ]
    # The leaf is the last row, also where it names something on an older branch.
    assert [entry.id for entry in pi_files.path_to(parsed, parsed.leaf)][-2:] == ["u0000001", "i2"]


def test_header_fields_survive_in_the_metadata() -> None:
    header = {**pi_files.HEADER, "parentSession": "/path/to/parent.jsonl", "provider": "anthropic"}
    parsed = pi_files.parse_pi(pi_files.as_lines([header]), "demo.jsonl")
    metadata = decode_object(parsed.session.metadata_text)
    assert metadata == {"imported": {"format": "pi", "version": 3, "file": "demo.jsonl", "header": header}}
    assert (parsed.entries, parsed.leaf) == ((), None)


def test_version_2_renames_the_role_of_hook_messages_and_version_3_does_not() -> None:
    row = {"type": "message", "id": "h1", "parentId": None, "timestamp": pi_files.HEADER["timestamp"]}
    hook = {**row, "message": user("from a hook", "hookMessage")}
    old = pi_files.parse_pi(pi_files.as_lines([{**pi_files.HEADER, "version": 2}, hook]))
    new = pi_files.parse_pi(pi_files.as_lines([pi_files.HEADER, hook]))
    assert (old.entries[0].role, new.entries[0].role) == ("custom", "hookMessage")
    assert decode_object(old.entries[0].payload) == user("from a hook", "custom")
    assert [message["role"] for message in pi_files.messages_for_model(pi_files.context_at(old, "h1"))] == ["user"]


def version_1(*rows: Any) -> list[bytes]:
    header = {name: value for name, value in pi_files.HEADER.items() if name != "version"}
    stamped = [
        {"timestamp": "2026-01-05T10:00:01.000Z", **row} if isinstance(row, dict) else row for row in (header, *rows)
    ]
    return pi_files.as_lines(stamped)


def test_version_1_index_of_the_first_kept_entry_counts_the_header_and_readable_rows() -> None:
    parsed = pi_files.parse_pi(
        version_1(
            {"type": "message", "message": user("one")},
            '{"type":"mess',
            {"type": "message", "message": user("two")},
            {"type": "compaction", "summary": "so far", "firstKeptEntryIndex": 2, "tokensBefore": 9},
            {"type": "message", "message": user("three")},
        )
    )
    assert parsed.report.repaired == ()
    assert [text for _, text in shown(parsed, parsed.leaf)[1:]] == ["two", "three"]
    compaction = decode_object(parsed.entries[2].payload)
    assert compaction["firstKeptEntryId"] == derived_id(pi_files.SESSION_ID, 4)
    assert "firstKeptEntryIndex" not in compaction


def test_version_1_index_that_names_no_entry_keeps_nothing_and_is_reported() -> None:
    for index in (0, 99, -1):
        parsed = pi_files.parse_pi(
            version_1(
                {"type": "message", "message": user("one")},
                {"type": "compaction", "summary": "so far", "firstKeptEntryIndex": index, "tokensBefore": 9},
            )
        )
        assert len(shown(parsed, parsed.leaf)) == 1
        assert [note.line for note in parsed.report.repaired] == [3]
        assert decode_object(parsed.entries[1].payload)["firstKeptEntryIndex"] == index


def test_version_1_entries_are_a_chain_whatever_ids_they_bring() -> None:
    parsed = pi_files.parse_pi(
        version_1(
            {"type": "message", "id": "a", "parentId": None, "message": user("one")},
            {"type": "message", "id": "b", "parentId": None, "message": user("two")},
        )
    )
    assert parsed.entries[1].parent_id == parsed.entries[0].id == derived_id(pi_files.SESSION_ID, 2)
    assert decode_object(parsed.entries[1].extra or "{}") == {"line": 3, "id": "b", "parentId": None}


def test_unknown_fields_beside_a_message_and_unusual_times_go_to_extra() -> None:
    row = {"type": "message", "id": "m1", "parentId": None, "message": user("hi")}
    beside = {"timestamp": "2026-01-05T11:00:00+01:00", "traceId": "t-1"}
    rows = [{**row, **beside}, {**row, "id": "m2", "parentId": "m1", "timestamp": 1767607200500}]
    parsed = pi_files.parse_pi(pi_files.as_lines([pi_files.HEADER, *rows]))
    assert [entry.created_us for entry in parsed.entries] == [1767607200000000, 1767607200500000]
    assert decode_object(parsed.entries[0].extra or "{}") == beside
    assert decode_object(parsed.entries[1].extra or "{}") == {"timestamp": 1767607200500}


def test_an_edit_of_the_context_leaves_its_target_out_from_there_on() -> None:
    rows = [
        pi_files.HEADER,
        row("message", "u1", None, message=user("one")),
        row("message", "u2", "u1", message=user("two")),
        row("context_edit", "e1", "u2", targetId="u1", replacement=None),
        row("message", "u3", "e1", message=user("three")),
        row("context_edit", "e2", "u3", targetId="u1", replacement={"content": 1}),
    ]
    parsed = pi_files.parse_pi(pi_files.as_lines(rows))
    assert shown(parsed, "u2") == [("user", "one"), ("user", "two")]
    assert shown(parsed, "u3") == [("user", "two"), ("user", "three")]
    # What cannot be content is not shown, and neither is what it was to replace: it may be a secret.
    assert shown(parsed, "e2") == [("user", "two"), ("user", "three")]
    assert parsed.report.unknown_kinds == {}
    assert [note.line for note in parsed.report.repaired] == [6]


def test_what_an_edit_puts_in_the_place_of_a_content_is_shown_from_there_on() -> None:
    call = {"type": "toolCall", "id": "t1", "name": "read", "arguments": {}}
    result = {"role": "toolResult", "toolCallId": "t1", "content": [{"type": "text", "text": "1234"}]}
    rows = [
        pi_files.HEADER,
        row("message", "u1", None, message=user("one")),
        row("message", "a1", "u1", message={"role": "assistant", "content": [{"type": "text", "text": "1234"}, call]}),
        row("message", "r1", "a1", message=result),
        row("context_edit", "e1", "r1", targetId="r1", replacement={"content": "(removed)"}),
        row("context_edit", "e2", "e1", targetId="u1", replacement={"content": [{"type": "text", "text": "two"}]}),
        row("context_edit", "e3", "e2", targetId="a1", replacement="none"),
        row("context_edit", "e4", "e3", targetId="u1", replacement=None),
        row("context_edit", "e5", "e4", targetId="u1", replacement="three"),
        row("context_edit", "e6", "e5", targetId="u9", replacement="of nothing"),
        row("message", "u2", "e6", message=user("end")),
    ]
    parsed = pi_files.parse_pi(pi_files.as_lines(rows))
    answer, results = ("assistant", "1234"), ("toolResult", "1234")
    assert shown(parsed, "r1") == [("user", "one"), answer, results]
    assert shown(parsed, "e1") == [("user", "one"), answer, ("toolResult", "(removed)")]
    assert shown(parsed, "e2") == [("user", "two"), answer, ("toolResult", "(removed)")]
    # The answer calls no tool any more, and so there is no result.
    assert shown(parsed, "e3") == [("user", "two"), ("assistant", "none")]
    assert shown(parsed, "e4") == [("assistant", "none")]
    assert shown(parsed, "u2") == [("user", "three"), ("assistant", "none"), ("user", "end")]
    assert parsed.report.repaired == ()


def test_an_edit_of_the_context_without_a_target_is_an_unknown_entry() -> None:
    parsed = pi_files.parse_pi(pi_files.as_lines([pi_files.HEADER, row("context_edit", "e1", None, edits=[])]))
    assert entry_of(parsed, "e1").kind == "context_edit"
    assert parsed.report.unknown_kinds == {"context_edit": 1}


def test_usage_beside_messages_is_paid_and_no_part_of_a_message() -> None:
    used = {"input": 7, "output": 0, "cacheRead": 50, "cacheWrite": 0, "totalTokens": 57, "cost": {"total": 0.5}}
    warm = {"kind": "cache_warm", "provider": "anthropic", "model": "m", "usage": used}
    rows = [
        pi_files.HEADER,
        row("usage", "g1", None, **warm),
        row("usage", "g2", "g1", **warm),
        row("branch_summary", "b1", "g2", fromId="x", summary="Tried.", usage=used),
        row("usage", "g3", "b1", kind="odd", usage={"input": -1}),
        row("usage", "g4", "g3", kind="none", usage={"input": 0}),
    ]
    parsed = pi_files.parse_pi(pi_files.as_lines(rows))
    paid = [call for entry in parsed.entries for call in entry.calls]
    assert [(call.usage.total_tokens, call.purpose) for call in paid] == [
        (57, "cache_warm"),
        (57, "cache_warm"),
        (57, "branch_summary"),
        (0, "odd"),
    ]
    assert [call.is_unknown for call in paid] == [False, False, False, True]
    assert len({call.call_id for call in paid}) == 4
    assert (paid[0].provider, paid[0].model) == ("anthropic", "m")
    assert not any(any(entry.usage) for entry in parsed.entries)
    assert [note.line for note in parsed.report.repaired] == [5]
    assert parsed.report.unknown_kinds == {}


def test_the_system_message_says_its_sections_and_comes_back_as_it_was() -> None:
    def prompt(**sections: str | None) -> dict[str, Any]:
        return {"role": "system", "content": "", "sections": sections, "toolsAdded": [], "timestamp": 1}

    bare = {name: value for name, value in prompt(b="B.").items() if name != "content"}
    kept = {"summary": "S.", "firstKeptEntryId": "u2", "tokensBefore": 1, "systemMessage": prompt(c="C.")}
    odd = {"role": "system", "content": "Own.", "sections": {"a": "A."}, "timestamp": 1}
    rows = [
        pi_files.HEADER, row("message", "s1", None, message=prompt(b="B.", a="A.")),
        row("message", "u1", "s1", message=user("one")), row("message", "s2", "u1", message=prompt(a=None, c="C.")),
        row("message", "u2", "s2", message=user("two")), row("message", "s3", "u2", message=prompt(d="D.")),
        row("compaction", "k1", "s3", **kept), row("message", "s4", "k1", message=prompt(e="E.")),
        row("message", "s5", "u1", message=prompt(f="F.")), row("message", "s6", "u1", message=bare),
        row("message", "s7", "u1", message=odd),
    ]  # fmt: skip
    parsed = pi_files.parse_pi(pi_files.as_lines(rows))
    first = [("system", "A.\n\nB."), ("user", "one")]
    assert shown(parsed, "s3") == [*first, ("system", "B.\n\nC."), ("user", "two"), ("system", "B.\n\nC.\n\nD.")]
    assert shown(parsed, "s5") == [*first, ("system", "A.\n\nB.\n\nF.")]
    assert shown(parsed, "s6") == [*first, ("system", "A.\n\nB.")]
    assert shown(parsed, "s7") == [*first, ("system", "Own.")]
    # A compaction has the prompt from then on: it leads, and those before are dropped.
    summary = ("user", "[Context Summary]\n\nS.")
    assert shown(parsed, "s4") == [("system", "C."), summary, ("user", "two"), ("system", "C.\n\nE.")]
    out = exported(parsed)
    assert rows_of(out) == rows
    assert [list(each.get("message", {})) for each in rows_of(out)] == [list(each.get("message", {})) for each in rows]
    assert out.notes == ()


async def test_the_context_of_a_store_begins_with_the_prompt_that_a_compaction_has(tmp_path: Path) -> None:
    prompt = {"role": "system", "content": "", "sections": {"a": "Be brief."}}
    kept = {"summary": "S.", "firstKeptEntryId": "k1", "tokensBefore": 1, "systemMessage": prompt}
    rows = [pi_files.HEADER, row("message", "u1", None, message=user("one")), row("compaction", "k1", "u1", **kept)]
    async with flue_py.open(":memory:", prices=False) as store:
        report = await import_lines(
            store, tmp_path, pi_files.as_lines([*rows, row("message", "u2", "k1", message=user("two"))])
        )
        session = existing(await store.get_session(report.sessions[0].session_id))
        context = await session.build_context()
        assert [message["role"] for message in context] == ["system", "user", "user"]
        assert context[0]["content"] == "Be brief."
        assert [item.data for item in await session.build_context_entries()] == context
        assert "Be brief." in str((await session.request("anthropic")).system)
        assert (await store.verify()).problems == []


# A pi file gives the same session however it is cut into parts.


def read(lines: Sequence[bytes], *, every: int = 1000) -> tuple[list[SessionPart], PiReader]:
    reader = PiReader("session.jsonl")
    for number, line in enumerate(lines, 1):
        reader.scan(number, line)
    parts = []
    for number, line in enumerate(lines, 1):
        reader.feed(number, line)
        if number % every == 0:
            parts += reader.take()
    return [*parts, *reader.finish(take_all=False)], reader


@inputs("lines", [as_lines(every_type()), real_lines()], ids=["every type", "the real file"])
@inputs("every", [1, 7])
def test_the_parts_of_a_file_are_its_session(lines: list[bytes], every: int) -> None:
    parts, reader = read(lines, every=every)
    ((whole,), _) = read(lines, every=10_000)
    assert [entry for part in parts for entry in part.entries] == list(whole.entries)
    assert [leaf for part in parts for leaf in part.leaves] == list(whole.leaves)
    assert [label for part in parts for label in part.labels] == list(whole.labels)
    assert [line for part in parts for line in part.lines] == list(whole.lines)
    assert [title for part in parts for title in part.titles] == list(whole.titles)
    assert whole.session.title == (whole.titles[-1].title if whole.titles else None)
    assert parts[0].session.metadata_text == whole.session.metadata_text
    assert reader.report().rows == len(lines)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 11)), max_size=10))
def test_any_parents_give_every_row_once_below_a_row_before_it(links: list[tuple[int, int]]) -> None:
    rows = [said(f"e{mine:07}", None if parent == 11 else f"e{parent:07}") for mine, parent in links]
    lines = as_lines([HEADER, *rows])
    whole = parse_pi(lines, "session.jsonl")
    parts, reader = read(lines, every=1)
    assert [entry for part in parts for entry in part.entries] == list(whole.entries)
    assert reader.report() == whole.report
    order: list[str | None] = [None]
    for entry in whole.entries:
        assert entry.parent_id in order
        order.append(entry.id)
    named_parents = {f"e{mine:07}": f"e{parent:07}" for mine, parent in reversed(links)}
    for entry in whole.entries:
        parent = named_parents[str(entry.id)]
        assert entry.parent_id == (parent if parent in order and parent != entry.id else None)
    assert len(whole.entries) + reader.report().skipped_rows + 1 == len(lines)  # type: ignore[operator]


@inputs("every", [1, 1000])
def test_a_label_may_come_before_its_entry_and_the_last_one_in_the_file_counts(every: int) -> None:
    rows = [
        said("a", None), row("label", "l1", "late", targetId="b", label="first"),
        row("label", "l2", "a", targetId="b", label="second"),
        row("label", "l3", "a", targetId="gone", label="lost"), row("session_info", "i1", "late", name="first"),
        row("session_info", "i2", "a", name="second"), said("b", "a"), said("late", "a"),
    ]  # fmt: skip
    parts, reader = read(as_lines([HEADER, *rows]), every=every)
    assert [(label.target_id, label.label) for part in parts for label in part.labels] == [("b", "second")]
    assert [title.title for part in parts for title in part.titles] == ["second"]
    assert [(note.line, note.text) for note in reader.report().repaired] == [
        (5, "labels 'gone', which is not in the file; no label was set")
    ]


def test_a_label_of_a_row_that_turns_out_to_be_none_is_noted() -> None:
    label = row("label", "l", None, targetId="b", label="X")
    torn = as_lines([said("b", "l")])[0][:60]
    cycle = as_lines([said("b", "c"), said("c", "b")])
    for rest in ([torn], cycle):
        parts, reader = read([*as_lines([HEADER, label]), *rest])
        assert [part.labels for part in parts] == [()]
        assert [note.line for note in reader.report().repaired] == [2]


def test_the_order_of_the_fields_of_a_row_does_not_matter() -> None:
    child, parent = said("c", "p"), said("p", None)
    parent["message"]["content"] = [{"type": "toolCall", "id": "call_1", "name": "read", "arguments": {}}]
    lines = as_lines([HEADER, child, dict(reversed(parent.items()))])
    (part,), _ = read(lines)
    assert [(entry.id, entry.parent_id) for entry in part.entries] == [("p", None), ("c", "p")]


def test_rows_whose_parents_come_much_too_late_become_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pi, "_MAX_WAITING", 3)
    rows = [said("x", "y"), said("y", "x"), said("b", "late"), said("c", "b"), said("d", "c"), said("late", None)]
    (part,), reader = read(as_lines([HEADER, *rows]))
    assert {entry.id: entry.parent_id for entry in part.entries} == {"b": None, "c": "b", "d": "c", "late": None}
    assert [(note.line, note.text) for note in reader.report().repaired] == [
        (4, "entry 'b' names the parent 'late', which comes too much later; it became a root")
    ]
    assert [note.line for note in reader.report().skipped] == [2, 3]


# The real session file of a pi user, against what pi itself makes of it.

FACTS = pi_files.real_facts()


@pytest.fixture(scope="module")
def parsed() -> SessionPart:
    return pi_files.parse_pi(pi_files.real_lines())


def ours(parsed: SessionPart, their_id: str) -> str:
    """Return our id for an entry that the facts name by the 0-based index of its line."""
    return derived_id(str(parsed.session.id), int(their_id.removeprefix("e")) + 1)


def test_every_row_is_an_entry_of_the_files_own_kind_and_nothing_is_repaired(parsed: SessionPart) -> None:
    assert (parsed.version, parsed.session.created_us) == ("1", 1763681630805000)
    assert (parsed.session.id, parsed.session.cwd) == (FACTS["header"]["id"], FACTS["header"]["cwd"])
    assert len(parsed.entries) == FACTS["entryCount"]
    assert parsed.report == ParseReport(rows=FACTS["file"]["lines"])
    assert Counter(entry.kind for entry in parsed.entries) == FACTS["entryTypes"]
    assert Counter(entry.role for entry in parsed.entries if entry.role) == FACTS["messageRoles"]
    assert [ours(parsed, leaf) for leaf in FACTS["leaves"]] == [parsed.leaf]
    path = pi_files.path_to(parsed, parsed.leaf)
    assert [entry.extra_fields["line"] for entry in path] == list(range(2, FACTS["maxDepth"] + 2))


@inputs("sample", [*FACTS["sampledLeaves"], FACTS["lastLeaf"]], ids=lambda sample: sample["leafId"])
def test_context_is_what_pi_builds_at_every_sampled_leaf(parsed: SessionPart, sample: dict[str, Any]) -> None:
    leaf = ours(parsed, sample["leafId"])
    context = pi_files.context_at(parsed, leaf)
    assert len(context) == sample["messageCount"]
    assert pi_files.sequence_digest(context) == sample["sequenceSha256"]
    assert len(pi_files.messages_for_model(context)) == sample["llmMessageCount"]
    assert pi_files.sequence_digest(pi_files.messages_for_model(context)) == sample["llmSequenceSha256"]
    settings = settings_on(pi_files.path_to(parsed, leaf))
    assert (settings.thinking_level or "off") == sample["thinkingLevel"]
    model = sample["model"] or {"provider": None, "modelId": None}
    assert (settings.provider, settings.model) == (model["provider"], model["modelId"])


def test_usage_totals_are_pis_and_exact(parsed: SessionPart) -> None:
    total = NO_USAGE
    for entry in parsed.entries:
        total = total.plus(entry.usage)
    usage, expected = Usage.from_totals(total), FACTS["usageTotals"]
    assert (usage.input, usage.output) == (expected["input"], expected["output"])
    assert (usage.cache_read, usage.cache_write) == (expected["cacheRead"], expected["cacheWrite"])
    # This file reports no totals: they are the sums of what it reports.
    assert expected["totalTokens"] == 0
    assert usage.total_tokens == usage.input + usage.output + usage.cache_read + usage.cache_write
    assert usage.cost.usd == Decimal("30.3301977")
    assert abs(usage.cost.usd - Decimal(expected["costTotal"])) < Decimal("1e-9")
    calls = [call for entry in parsed.entries for call in entry.calls]
    assert len(calls) == FACTS["messageRoles"]["assistant"]
    paid = [call.call_id for call in calls if call.usage != NO_USAGE]
    assert len(set(paid)) == len(paid) > 400


def test_a_longer_file_begins_with_the_entries_of_the_shorter_one(parsed: SessionPart) -> None:
    shorter = pi_files.parse_pi(pi_files.real_lines()[:500])
    assert shorter.entries == parsed.entries[:499]
    assert shorter.leaf == parsed.entries[498].id
