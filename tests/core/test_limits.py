"""The limits of one call, and the error beyond them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flue_py.core.entries import NewEntry
from flue_py.core.sessions import DEFAULT_LIMITS, MAX_NAME_BYTES, Limits, NewSession, check_entry_id, check_name
from flue_py.errors import InvalidArgument, InvalidEntry
from tests.tables import inputs

NAMES = ("entry_bytes", "batch_entries", "metadata_bytes", "document_bytes", "task_depth", "sessions_per_page")


@inputs("name", NAMES)
@inputs("value", [0, -1, 1.5, True, None, "10"])
def test_what_is_no_limit_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match=name):
        Limits(**{name: value})  # type: ignore[arg-type]


def test_an_entry_may_not_be_larger_than_databases_take() -> None:
    assert Limits(entry_bytes=512 * 2**20).entry_bytes == 512 * 2**20
    with pytest.raises(InvalidArgument, match="entry_bytes"):
        Limits(entry_bytes=512 * 2**20 + 1)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_an_entry_is_measured_in_bytes_of_its_json(text: str) -> None:
    entry = NewEntry.custom("note", text)
    size = len(entry.payload.encode())
    Limits(entry_bytes=size).check_entries([entry])
    with pytest.raises(InvalidEntry, match=rf"entry 0 of 1 \(note\): {size} bytes"):
        Limits(entry_bytes=size - 1).check_entries([entry])


def test_a_batch_is_counted() -> None:
    entries = [NewEntry.custom("note", None)] * 3
    Limits(batch_entries=3).check_entries(entries)
    with pytest.raises(InvalidEntry, match="batch_entries"):
        Limits(batch_entries=2).check_entries(entries)


@given(st.text(max_size=40))
def test_metadata_is_measured_in_bytes(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    size = len(text.encode())
    Limits(metadata_bytes=max(size, 1)).check_metadata(text)
    if size > 1:
        with pytest.raises(InvalidArgument, match="metadata_bytes"):
            Limits(metadata_bytes=size - 1).check_metadata(text)


def test_a_page_is_one_session_to_the_limit() -> None:
    for limit in (1, DEFAULT_LIMITS.sessions_per_page):
        DEFAULT_LIMITS.check_page(limit)
    for limit in (0, -1, DEFAULT_LIMITS.sessions_per_page + 1, True):
        with pytest.raises(InvalidArgument, match="limit"):
            DEFAULT_LIMITS.check_page(limit)


@inputs("character", ["x", "é", "🔑"])
def test_a_name_is_measured_in_bytes(character: str) -> None:
    longest = character * (MAX_NAME_BYTES // len(character.encode()))
    check_name(longest, "key")
    check_entry_id(longest)
    with pytest.raises(InvalidArgument, match=f"key: .* is longer than {MAX_NAME_BYTES} bytes"):
        check_name(longest + character, "key")
    with pytest.raises(InvalidEntry, match="entry id"):
        check_entry_id(longest + character)
    for field in ("key", "scope", "id"):
        with pytest.raises(InvalidArgument):
            NewSession(**{field: longest + character})  # type: ignore[arg-type]
    assert NewSession(title=longest + character).title
