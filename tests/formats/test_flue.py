"""The reference's session document is imported and exported unchanged, and refused if it is not a history."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flue_py
from flue_py.core.entries import to_microseconds
from flue_py.core.sessions import task_references
from flue_py.formats.flue import SessionDocument, parse_session_document, session_document
from tests.tables import inputs

USAGE = {
    "input": 3, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 4,
    "cost": {"input": 0.001, "output": 0.002, "cacheRead": 0, "cacheWrite": 0, "total": 0.003},
}  # fmt: skip


def row(entry_id: str, parent: str | None, **fields: object) -> dict[str, Any]:
    message = {"role": "user", "content": entry_id}
    content = fields or {"type": "message", "message": message}
    return {"id": entry_id, "parentId": parent, "timestamp": f"2026-01-01T00:00:0{len(entry_id)}.125Z", **content}


ROWS = [
    row("a", None, type="message", message={"role": "user", "content": "a"}, source="prompt"),
    row("ab", "a", type="message", message={"role": "assistant", "content": [], "usage": USAGE}),
    row("abc", "ab", type="branch_summary", summary="side", fromId="a", details={"files": ["x"]}),
    row("c", "abc", type="compaction", summary="s", firstKeptEntryId="ab", tokensBefore=7, usage=USAGE),
    row("d", "c", type="todo", data=[1, None], note="kept"),
    row("e", "a", type="message", message={"role": "user", "content": "e"}, mood="odd"),
]


def document(rows: list[Any], leaf: object = None, **changes: object) -> Any:
    stored = {
        "version": 3, "leafId": leaf, "metadata": {"m": 1}, "createdAt": "2026-01-01T00:00:00.000Z",
        "updatedAt": "2026-01-02T00:00:00.500Z", "entries": rows,
    }  # fmt: skip
    return {**stored, **changes}


async def stored(store: flue_py.Store, parsed: SessionDocument) -> flue_py.Session:
    return await store.import_session(flue_py.NewSession(), parsed.entries, leaf=parsed.leaf_id)


async def printed(session: flue_py.Session, parsed: SessionDocument) -> Any:
    assert parsed.created_us is not None
    assert parsed.updated_us is not None
    return session_document(
        await session.get_tree(),
        session.leaf_id,
        metadata=parsed.metadata,
        created_us=parsed.created_us,
        updated_us=parsed.updated_us,
    )


async def test_a_document_goes_out_as_it_came_in(store: flue_py.Store) -> None:
    original = document(ROWS, "d")
    parsed = parse_session_document(original)
    assert parsed.notes == ()
    session = await stored(store, parsed)
    assert await printed(session, parsed) == original
    window = await session.money.aggregate_usage_since(None)
    assert window.usage.total_tokens == 8
    assert [entry.source for entry in await session.get_tree()] == ["prompt", None, None, None, None, None]


@given(placed=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 99)), max_size=25), leaf=st.integers(-1, 24))
async def test_any_tree_in_any_order_keeps_its_shape(
    placed: list[tuple[int, int]], leaf: int, anyio_backend: str
) -> None:
    made = [
        (order, row(f"e{n}", f"e{parent % n}" if n and parent % 4 else None))
        for n, (parent, order) in enumerate(placed)
    ]
    rows = [each for _, each in sorted(made, key=lambda pair: pair[0])]
    leaf_id = f"e{leaf}" if 0 <= leaf < len(rows) else None
    parsed = parse_session_document(document(rows, leaf_id))
    async with flue_py.open(":memory:") as store:
        session = await stored(store, parsed)
        tree = await session.get_tree()
    assert {entry.id: entry.parent_id for entry in tree} == {each["id"]: each["parentId"] for each in rows}
    assert session.leaf_id == leaf_id
    moved = [entry.id for entry in tree] != [each["id"] for each in rows]
    assert bool(parsed.notes) == moved


def test_times_are_read_to_the_microsecond_and_printed_to_the_millisecond() -> None:
    parsed = parse_session_document(document(ROWS))
    assert parsed.updated_us == to_microseconds(datetime(2026, 1, 2, 0, 0, 0, 500000, UTC))
    assert parsed.entries[0].created_us == to_microseconds(datetime(2026, 1, 1, 0, 0, 1, 125000, UTC))
    printed = session_document([], None, created_us=-1, updated_us=1_000_999)
    assert (printed["createdAt"], printed["updatedAt"]) == ("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:01.000Z")


def test_what_is_no_time_is_noted_and_left_to_the_clock() -> None:
    parsed = parse_session_document(document([{**row("a", None), "timestamp": "x"}], createdAt="x", updatedAt=5))
    assert (parsed.created_us, parsed.updated_us, parsed.entries[0].created_us) == (None, None, None)
    assert parsed.notes == ("entries[0] ('a'): no readable timestamp; the time of the import was taken",)


def test_a_parent_that_is_not_there_makes_a_root_and_is_noted() -> None:
    parsed = parse_session_document(document([row("a", "lost"), row("b", "a")], "b"))
    assert [(entry.id, entry.parent_id) for entry in parsed.entries] == [("a", None), ("b", "a")]
    assert parsed.notes == ("entry 'a': its parent 'lost' is not in the document; it became a root",)


def test_parents_are_put_first_and_everything_else_stays_in_order() -> None:
    rows = [row("c", "b"), row("a", None), row("b", "a"), row("d", None)]
    parsed = parse_session_document(document(rows, "c"))
    assert [entry.id for entry in parsed.entries] == ["a", "b", "c", "d"]
    assert parsed.notes == ("2 entries came after their children; parents were put first",)


@inputs(
    ("broken", "why"),
    [
        ([], "document: should be an object"), (document([], version=2), "version: 2 is not 3"),
        (document([], version=True), "version: True"), (document([], entries={}), "entries: should be a list"),
        (document([5]), r"entries\[0\]: should be an object"),
        (document([{"type": "message"}]), r"entries\[0\]: has no id"),
        (document([{**row("a", None), "type": None}]), "has no type"),
        (document([{**row("a", None), "parentId": 5}]), "parentId"),
        (document([row("a", None), row("a", None)]), "occurs twice"), (document([row("a", None)], "b"), "leafId: 'b'"),
        (document([row("a", None)], ["a"]), "leafId"), (document([row("a", "b"), row("b", "a")]), "circle"),
        (document([row("a", "a")]), "circle"), (document([], metadata=[1]), "metadata"),
        (document([row("a", None, type="message", message={"role": 5})]), r"entries\[0\] \('a'\)"),
        (document([row("a", None, type="message")]), "message: should be an object"),
        (document([row("a", None, type="message", message={"role": "user", "content": ""}, source=5)]), "source"),
        (document([row("a", None, type="compaction", summary="s")]), "first_kept_entry_id"),
        (document([row("a", None, type="branch_summary")]), "summary"),
        (document([row("a", None, type="no name!")]), "kind"),
    ],
)  # fmt: skip
def test_what_is_no_history_is_refused_and_says_where(broken: Any, why: str) -> None:
    with pytest.raises(flue_py.UnreadableFile, match=why):
        parse_session_document(broken)


def test_a_first_kept_entry_is_not_checked() -> None:
    parsed = parse_session_document(
        document([row("a", None, type="compaction", summary="s", firstKeptEntryId="gone", tokensBefore=1)], "a")
    )
    assert parsed.entries[0].references == ()


def test_task_sessions_are_read_from_metadata_and_malformed_ones_passed_over() -> None:
    metadata: flue_py.JsonObject = {
        "taskSessions": [None, {}, {"storageKey": 5}, {"storageKey": "k", "session": "s", "taskId": "t"}, "x"]
    }
    (reference,) = task_references(metadata)
    assert (reference.storage_key, reference.session, reference.task_id) == ("k", "s", "t")
    assert task_references({"taskSessions": {"storageKey": "k"}}) == ()
    assert task_references({}) == ()
