"""The keys of sessions whose ids a framework chose."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flue_py
from flue_py.adapters.common import FRAMEWORK_ID, id_of, key_of, metadata_of
from tests.tables import inputs

MADE = "sha256:" + "0" * 64
ODD = ["n\0ul", "x" * 3_000, "lone \ud800 surrogate", "tab\t", MADE, key_of("n\0ul"), "\x1b[2J"]
PLAIN = ["", " ", "conversation-1", "später", "🦊", "sha256:short", "x" * 500]


@inputs("id", PLAIN)
def test_an_id_is_its_own_key_wherever_it_can_be(id: str) -> None:
    assert key_of(id) == id
    assert metadata_of(id) == {}


@inputs("id", [*PLAIN, *ODD])
def test_every_id_has_a_session_of_its_own_and_comes_back(id: str) -> None:
    with flue_py.sync.open(":memory:") as store:
        for each in {*PLAIN, *ODD}:
            store.create_session(key=key_of(each), metadata=metadata_of(each))
        info = store.open_session(key_of(id)).info
        assert id_of(info.key or "", info.metadata) == id


@given(st.lists(st.text(), unique=True, max_size=5))
def test_no_two_ids_share_a_key(ids: list[str]) -> None:
    assert len({key_of(id) for id in ids}) == len(ids)
    assert [id_of(key_of(id), metadata_of(id)) for id in ids] == ids


def test_metadata_that_somebody_else_wrote_are_not_taken_for_an_id() -> None:
    assert id_of("a", {FRAMEWORK_ID: '"b"'}) == "a"
    assert id_of(MADE, {FRAMEWORK_ID: '"b"'}) == MADE
    assert id_of(MADE, {FRAMEWORK_ID: "{"}) == MADE
    assert id_of(MADE, {FRAMEWORK_ID: 7}) == MADE


def test_what_is_not_a_string_is_refused() -> None:
    with pytest.raises(flue_py.InvalidArgument, match="id: should be a string, not 7"):
        key_of(7)  # type: ignore[arg-type]
