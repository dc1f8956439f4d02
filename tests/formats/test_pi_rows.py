"""Rows of pi's files: costs, and damage."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

import flue_py
from flue_py.core.json import decode_object
from flue_py.formats import kit
from flue_py.formats.kit import SessionPart
from tests.formats.pi_files import HEADER, as_lines, context_at, every_type, parse_pi, rule_text, said
from tests.values import existing

# Costs exported to a pi file and imported again: known stays known, unknown stays unknown, free stays free.

TOKENS = {"input": 1000, "output": 1000}
PRICES = {"dear": [4105, 4105], "gratis": [0.0, 0.0]}
ANSWERS: dict[str, dict[str, Any]] = {
    "reported": {"model": "own", "usage": {**TOKENS, "cost": {"input": 1.0, "output": 0.5, "total": 1.5}}},
    "priced": {"model": "dear", "usage": TOKENS},
    "unknown": {"model": "nameless", "usage": TOKENS},
    "free": {"model": "own", "usage": {**TOKENS, "cost": {"total": 0}}},
    "priced at nothing": {"model": "gratis", "usage": TOKENS},
    "without usage": {"model": "nameless"},
    "total only": {"model": "own", "usage": {"output": 5, "cost": {"total": 0.25}}},
}


async def opened(store: flue_py.Store, session_id: str) -> flue_py.Session:
    """Return a session that was imported."""
    return existing(await store.get_session(session_id))


async def went_through_pi(folder: Path, messages: dict[str, dict[str, Any]]) -> tuple[Any, Any, Any, Any]:
    """Return the costs and messages by name, before and after, and what was in the file and in the notes."""
    async with flue_py.open(":memory:", prices=PRICES) as store:
        session = await store.create_session()
        ids = {}
        for name, fields in messages.items():
            answer = {"role": "assistant", "content": name, "provider": "p", **fields}
            ids[name] = (await session.append_message(answer)).entry_id
        before = await session.money.entry_costs()
        exported = await flue_py.export_session(session, "pi")
        said = {name: (await session.get_entry(ids[name])).fields for name in messages}  # type: ignore[union-attr]
    file = folder / "out.jsonl"
    file.write_text(exported.text)
    async with flue_py.open(":memory:", prices=False) as store:
        await flue_py.import_file(store, file)
        session = await opened(store, session.id)
        costs = await session.money.entry_costs()
        back = {name: (await session.get_entry(ids[name])).fields for name in messages}  # type: ignore[union-attr]
        twice = (await flue_py.export_session(session, "pi")).text
    rows = {row["message"]["content"][0]["text"]: row for row in map(json.loads, file.read_text().splitlines()[1:])}
    assert [json.loads(line) for line in twice.splitlines()] == [
        json.loads(line) for line in exported.text.splitlines()
    ]
    known = {
        name: (
            before[ids[name]].usd if ids[name] in before else None,
            costs[ids[name]].usd if ids[name] in costs else None,
        )
        for name in messages
    }
    return known, (said, back), rows, [str(note) for note in exported.notes]


async def test_every_cost_comes_back_as_it_was_known_and_pi_finds_the_numbers_it_asks_for(tmp_path: Path) -> None:
    known, (said, back), rows, notes = await went_through_pi(tmp_path, ANSWERS)
    assert known == {
        "reported": (Decimal("1.5"), Decimal("1.5")), "priced": (Decimal("8.21"), Decimal("8.21")),
        "unknown": (None, None), "free": (Decimal(0), Decimal(0)), "priced at nothing": (Decimal(0), Decimal(0)),
        "without usage": (None, None), "total only": (Decimal("0.25"), Decimal("0.25")),
    }  # fmt: skip
    assert notes == [
        "a cost that the ledger has by a price stands as one that was reported (2 times)",
        "usage or a cost that was not reported stands as zeros, which pi asks for (2 times)",
    ]
    usage = {name: row["message"]["usage"] for name, row in rows.items()}
    for numbers in usage.values():
        assert {"input", "output", "cacheRead", "cacheWrite", "totalTokens"} <= set(numbers)
        assert all(isinstance(number, (int, float)) for name, number in numbers.items() if name != "cost")
    # Parts of a cost add up to it, and are left out where they are unknown.
    none = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}
    assert {name: numbers["cost"] for name, numbers in usage.items()} == {
        "reported": {**none, "input": 1.0, "output": 0.5, "total": 1.5},
        "priced": {**none, "input": 4.105, "output": 4.105, "total": 8.21}, "unknown": none, "free": none,
        "priced at nothing": none, "without usage": none, "total only": {"total": 0.25},
    }  # fmt: skip
    # What was put in for pi is not there when the file comes back.
    for name in ("reported", "unknown", "free", "without usage", "total only"):
        assert back[name] == {**said[name], "content": [{"type": "text", "text": name}]}


async def test_parts_of_a_cost_are_those_of_the_price_that_it_was_worked_out_by(tmp_path: Path) -> None:
    dear = {"dear": {"input": 3, "output": 15, "cacheRead": 0.3, "cacheWrite": 3.75, "cacheWrite1h": 6, "webSearch": 9}}
    usage = {"input": 7, "output": 11, "cacheRead": 13, "cacheWrite": 17, "cacheWrite1h": 5, "webSearchRequests": 2}
    async with flue_py.open(tmp_path / "db", prices=dear) as store:
        session = await store.create_session()
        await session.append_message({"role": "assistant", "content": "", "model": "dear", "usage": usage})
    costs = []
    for prices in (dear, PRICES, False):
        async with flue_py.open(tmp_path / "db", prices=prices) as store:
            text = (await flue_py.export_session(await opened(store, session.id), "pi")).text
        costs.append(json.loads(text.splitlines()[1])["message"]["usage"]["cost"])
    by_price, *others = ({name: Decimal(str(part)) for name, part in cost.items()} for cost in costs)
    total = by_price.pop("total")
    assert by_price["output"] == Decimal("0.000165")
    assert by_price["cacheRead"] == Decimal("0.0000039")
    assert by_price["cacheWrite"] == Decimal("0.000075")
    assert sum(by_price.values()) == total
    assert others == [{"total": total}, {"total": total}]


async def test_equal_answers_are_paid_for_once_each(tmp_path: Path) -> None:
    async with flue_py.open(":memory:", prices=False) as store:
        session = await store.create_session()
        for _ in range(3):
            await session.append_message({"role": "assistant", "content": "ok", "usage": {"input": 5}})
        text = (await flue_py.export_session(session, "pi")).text
    file = tmp_path / "out.jsonl"
    file.write_text(text)
    async with flue_py.open(":memory:", prices=False) as store:
        await flue_py.import_file(store, file)
        assert (await store.usage()).total.calls == 3


async def test_a_compaction_that_was_priced_goes_out_with_its_price(tmp_path: Path) -> None:
    async with flue_py.open(":memory:", prices=PRICES) as store:
        session = await store.create_session()
        kept = await session.append_message({"role": "user", "content": "hi"})
        usage = {**TOKENS, "model": "dear", "provider": "p"}
        done = await session.append_compaction(
            "So far.", first_kept_entry_id=kept.entry_id, tokens_before=9, usage=usage
        )
        exported = await flue_py.export_session(session, "pi")
    file = tmp_path / "out.jsonl"
    file.write_text(exported.text)
    async with flue_py.open(":memory:", prices=False) as store:
        await flue_py.import_file(store, file)
        costs = await (await opened(store, session.id)).money.entry_costs()
    assert costs[done.entry_id].usd == Decimal("8.21")
    assert [str(note) for note in exported.notes] == [
        "a cost that the ledger has by a price stands as one that was reported"
    ]


async def test_marks_of_strangers_in_a_row_take_nothing_out_of_a_message(tmp_path: Path) -> None:
    header = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-05T10:00:00.000Z", "cwd": "/"}
    row = {"type": "message", "id": "a", "parentId": None, "timestamp": "2026-01-05T10:00:01.000Z"}
    message = {"role": "assistant", "content": [{"type": "text", "text": "hi"}], "timestamp": 1}
    for mark in ({"unset": ["role", "content", 1], "set": {"role": "user"}}, {"unset": 1, "set": []}, [], 1, None):
        file = tmp_path / "in.jsonl"
        file.write_text("\n".join(map(json.dumps, [header, {**row, "message": message, "flue_py": mark}])))
        async with flue_py.open(":memory:") as store:
            report = await flue_py.import_file(store, file)
            entry = await (await opened(store, "s")).get_entry("a")
        assert entry is not None
        assert (entry.fields, report.skipped) == (message, ())


# Damaged pi files: nothing in a row is fatal, and everything left out or repaired is named by its line.


def parsed_with(*rows: Any) -> SessionPart:
    return parse_pi(as_lines([HEADER, *rows]))


def ids(parsed: SessionPart) -> list[str | None]:
    return [entry.id for entry in parsed.entries]


def skipped_lines(parsed: SessionPart) -> list[int]:
    return [note.line for note in parsed.report.skipped]


def repaired_lines(parsed: SessionPart) -> list[int]:
    return [note.line for note in parsed.report.repaired]


def test_a_header_that_cannot_be_stored_is_kept_as_its_text() -> None:
    header = b'{"type":"session","id":"a","deep":' + b"[" * 300 + b"]" * 300 + b"}\n"
    parsed = parse_pi([header, *as_lines([said("b", None)])])
    assert (parsed.session.id, len(parsed.entries), len(repaired_lines(parsed))) == ("a", 1, 1)
    assert '"text":' in parsed.session.metadata_text


def test_a_time_of_any_integer_that_can_be_read_costs_nothing_and_a_longer_one_its_row() -> None:
    rows = [HEADER, said("a", None), said("b", "a", timestamp=10**4299), said("c", "b")]
    parsed = parse_pi(
        [*as_lines(rows[:3]), b'{"type":"custom","timestamp":' + b"1" * 4_301 + b"}\n", *as_lines(rows[3:])]
    )
    assert ids(parsed) == ["a", "b", "c"]
    assert decode_object(str(parsed.entries[1].extra))["timestamp"] == 10**4299
    assert (repaired_lines(parsed), skipped_lines(parsed)) == ([3], [4])


def test_lines_that_are_no_entries_are_skipped_by_number() -> None:
    rows = ["garbage", HEADER, "[1,2]", '{"no":"type"}', '{"type":5}', "", "  ", HEADER, said("a", None)]
    parsed = parse_pi([*as_lines([*rows, '{"type":NaN}']), as_lines([said("c", "a")])[0][:40]])
    assert (ids(parsed), parsed.leaf) == (["a"], "a")
    assert skipped_lines(parsed) == [1, 3, 4, 5, 8, 10, 11]
    assert parsed.report.rows == 9
    assert "torn" in parsed.report.skipped[-1].text


def test_a_byte_order_mark_and_windows_line_ends_are_no_damage() -> None:
    lines = [line.replace(b"\n", b"\r\n") for line in as_lines([HEADER, said("a", None)])]
    lines[0] = b"\xef\xbb\xbf" + lines[0]
    parsed = parse_pi(lines)
    assert ids(parsed) == ["a"]
    assert parsed.report.skipped == parsed.report.repaired == ()


def test_missing_and_repeated_ids_are_skipped_and_the_first_one_counts() -> None:
    parsed = parsed_with(
        said("a", None, "first"), said("a", None, "second"), {**said("x", "a"), "id": None}, said("b", "a")
    )
    assert ids(parsed) == ["a", "b"]
    assert skipped_lines(parsed) == [3, 4]
    assert "line 2" in parsed.report.skipped[0].text
    assert [rule_text(message) for message in context_at(parsed, "a")] == ["first"]


def test_entries_on_a_cycle_are_left_out_and_what_hangs_on_them_or_on_nothing_becomes_roots() -> None:
    parsed = parsed_with(
        said("r", None), said("a", "c"), said("b", "a"), said("c", "b"), said("d", "b"), said("e", "d"), said("f", "r"),
        said("g", "g"), said("h", "gone"),
    )  # fmt: skip
    assert skipped_lines(parsed) == [3, 4, 5]
    assert all(f"'{name}'" in note.text for name, note in zip("abc", parsed.report.skipped, strict=True))
    parents = {entry.id: entry.parent_id for entry in parsed.entries}
    assert list(parents) == ["r", "f", "g", "h", "d", "e"]
    assert parents == {"r": None, "d": None, "e": "d", "f": "r", "g": None, "h": None}
    notes = {note.line: note.text for note in parsed.report.repaired}
    assert (list(notes), "'gone'" in notes[10]) == ([6, 9, 10], True)
    extra = {entry.id: decode_object(entry.extra or "{}") for entry in parsed.entries}
    assert extra["h"] == {"parentId": "gone"}


def test_a_long_chain_written_backwards_needs_no_recursion() -> None:
    count = 5_000
    rows = [said(f"e{n}", f"e{n - 1}" if n else None) for n in reversed(range(count))]
    parsed = parsed_with(*rows)
    assert ids(parsed) == [f"e{n}" for n in range(count)]
    assert parsed.leaf == "e0"
    assert parsed.report.skipped == parsed.report.repaired == ()


def test_a_message_that_is_none_is_kept_outside_the_context() -> None:
    broken = said("b", "a", message={"role": "user", "content": [{"no": "type"}]})
    parsed = parsed_with(said("a", None), broken, said("c", "b", "after", message="no object"), said("d", "c", "last"))
    assert [entry.kind for entry in parsed.entries] == [
        "message",
        "unreadable_message",
        "unreadable_message",
        "message",
    ]
    assert decode_object(parsed.entries[1].payload) == {"type": "message", "message": broken["message"]}
    assert [rule_text(message) for message in context_at(parsed, "d")] == ["hello", "last"]
    assert repaired_lines(parsed) == [3, 4]
    assert "content[0]" in parsed.report.repaired[0].text


def test_odd_usage_does_not_cost_the_context_a_message() -> None:
    usage = {"input": -5, "output": 3, "cost": {"total": 0.1}}
    message = {"role": "assistant", "content": [{"type": "text", "text": "so"}], "usage": usage, "model": "m"}
    parsed = parsed_with(said("a", None, message=message))
    assert [rule_text(item) for item in context_at(parsed, "a")] == ["so"]
    assert decode_object(parsed.entries[0].payload)["usage"] == usage
    assert [(call.usage.input, call.usage.output, call.cost) for call in parsed.entries[0].calls] == [(0, 3, 10**11)]
    assert repaired_lines(parsed) == [2]


def test_compactions_keep_an_unknown_first_kept_id_and_repair_the_rest() -> None:
    row = {"type": "compaction", "parentId": None, "timestamp": HEADER["timestamp"]}
    parsed = parsed_with(
        {**row, "id": "a", "summary": "S", "firstKeptEntryId": "elsewhere", "tokensBefore": 5, "usage": {"input": 4}},
        {**row, "id": "b", "summary": "S", "tokensBefore": -1},
        {**row, "id": "c", "summary": None, "firstKeptEntryId": "a", "tokensBefore": 5},
        {**row, "id": "d", "summary": "S", "firstKeptEntryId": "a", "tokensBefore": 1, "usage": {"input": "many"}},
    )
    payloads = [decode_object(entry.payload) for entry in parsed.entries]
    assert [entry.kind for entry in parsed.entries] == [
        "compaction",
        "compaction",
        "unreadable_compaction",
        "compaction",
    ]
    assert payloads[0]["firstKeptEntryId"] == "elsewhere"
    assert parsed.entries[0].usage.input == 4
    assert [call.purpose for call in parsed.entries[0].calls] == ["compaction"]
    assert (payloads[1]["firstKeptEntryId"], payloads[1]["tokensBefore"]) == ("", 0)
    assert payloads[3]["usage"] == {"input": "many"}
    assert [call.is_unknown for call in parsed.entries[3].calls] == [True]
    assert repaired_lines(parsed) == [3, 3, 4, 5]
    assert all(entry.references == () for entry in parsed.entries)


def test_numbers_and_nesting_that_cannot_be_stored_are_kept_as_their_line() -> None:
    huge = '{"type":"custom","id":"a","parentId":null,"timestamp":"2026-01-05T10:00:01.000Z","data":1e999}'
    deep = {"type": "custom", "id": "b", "parentId": "a", "timestamp": HEADER["timestamp"], "data": 0}
    deep_text = json.dumps(deep).replace('"data": 0', '"data": ' + "[" * 300 + "]" * 300)
    parsed = parsed_with(huge, deep_text, {**said("c", "b"), "type": "what is this?"}, said("d", "c"))
    assert [entry.kind for entry in parsed.entries] == ["unreadable_entry"] * 3 + ["message"]
    assert decode_object(parsed.entries[2].payload)["type"] == "what is this?"
    assert decode_object(parsed.entries[0].payload) == {"type": "custom", "line": huge}
    assert decode_object(parsed.entries[1].payload) == {"type": "custom", "line": deep_text}
    assert repaired_lines(parsed) == [2, 3, 4]


def test_lone_surrogates_and_broken_utf8_are_replaced_and_reported() -> None:
    line = json.dumps(said("b", "a")).encode().replace(b"hello", b"caf\xe9")
    parsed = parsed_with(said("a", None, "half \ud83d of it"), line)
    assert [rule_text(message) for message in context_at(parsed, "b")] == ["half \ufffd of it", "caf\ufffd"]
    assert parsed.report.surrogates_replaced == 1
    assert repaired_lines(parsed) == [3]


def test_a_row_without_a_readable_time_takes_its_messages_time_or_the_headers() -> None:
    row = said("a", None)
    del row["timestamp"]
    label = {"type": "label", "id": "b", "parentId": "a", "timestamp": "yesterday", "targetId": "a", "label": "L"}
    parsed = parsed_with(row, label)
    assert [entry.created_us for entry in parsed.entries] == [1_000_000, 1767607200000000]
    assert decode_object(parsed.entries[1].extra or "{}") == {"timestamp": "yesterday"}
    assert repaired_lines(parsed) == [2, 3]


def test_a_label_for_an_entry_that_is_not_there_is_reported() -> None:
    parsed = parsed_with(
        {"type": "label", "id": "a", "parentId": None, "timestamp": HEADER["timestamp"], "targetId": "x", "label": "L"}
    )
    assert parsed.labels == ()
    assert ids(parsed) == ["a"]
    assert repaired_lines(parsed) == [2]


def test_texts_of_the_session_lose_what_no_database_stores() -> None:
    rows = [{**HEADER, "cwd": "/a\0b"}, *every_type()[1:]]
    rows.append({"type": "session_info", "id": "z", "parentId": None, "timestamp": "x", "name": "\0 odd\ud800 "})
    parsed = parse_pi(as_lines(rows))
    assert parsed.session.cwd == "/ab"
    assert parsed.session.title == "odd\ufffd"


PLAIN_LINES = as_lines(every_type())


@given(st.lists(st.tuples(st.integers(0, len(PLAIN_LINES) - 1), st.integers(0, 400), st.integers(0, 255)), max_size=6))
def test_whatever_bytes_are_damaged_every_row_is_an_entry_or_is_reported(damage: list[tuple[int, int, int]]) -> None:
    lines = [bytearray(line) for line in PLAIN_LINES]
    for line, column, byte in damage:
        if line:
            lines[line][column % len(lines[line])] = byte
    file = b"".join(bytes(line) for line in lines)
    parsed = parse_pi(file.splitlines(keepends=True))
    assert parsed.report.rows == 1 + len(parsed.entries) + len(parsed.report.skipped)
    seen: set[str | None] = {None}
    for entry in parsed.entries:
        assert entry.parent_id in seen
        seen.add(entry.id)
    assert parsed.leaf in seen


@given(st.lists(st.one_of(st.none(), st.integers(0, 12)), min_size=1, max_size=12))
def test_any_parent_links_give_a_forest_of_all_rows_that_are_on_no_cycle(parents: list[int | None]) -> None:
    rows = [said(f"e{n}", None if parent is None else f"e{parent}") for n, parent in enumerate(parents)]
    parsed = parsed_with(*rows)

    def is_on_cycle(start: int) -> bool:
        at = parents[start]
        for _ in parents:
            if at is None or at >= len(parents):
                return False
            if at == start:
                return parents[start] != start
            at = parents[at]
        return False

    assert set(ids(parsed)) == {f"e{n}" for n in range(len(parents)) if not is_on_cycle(n)}
    place = {entry.id: n for n, entry in enumerate(parsed.entries)}
    assert all(entry.parent_id is None or place[entry.parent_id] < place[entry.id] for entry in parsed.entries)


def test_a_time_is_kept_beside_its_entry_unless_it_is_printed_the_same() -> None:
    same = ("2025-11-20T23:33:50.805Z", "0999-01-01T00:00:00.000Z")
    for time in same:
        assert kit.PRINTED_TIME.fullmatch(time)
        assert kit.iso_time(cast("int", kit.read_moment(time))) == time
    for time in ("2025-11-20T23:33:50Z", "2025-11-20 23:33:50.805Z", "2025-11-20T24:00:00.000Z"):
        assert not kit.PRINTED_TIME.fullmatch(time)
