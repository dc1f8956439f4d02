"""Which session the calls of deleted task sessions are counted for."""

from __future__ import annotations

from flue_py.core.ledger import owners_of_tasks


def test_a_task_belongs_to_the_nearest_session_above_that_has_paid() -> None:
    links = [("top", "a"), ("a", "b"), ("b", "c"), ("top", "d"), ("d", "e")]
    assert owners_of_tasks("top", links, {"b", "d"}) == {"a": "top", "b": "top", "c": "b", "d": "top", "e": "d"}


def test_cycles_and_several_parents_end_at_the_session_that_is_deleted() -> None:
    links = [("a", "b"), ("b", "a"), ("top", "a"), ("b", "top"), ("top", "b"), ("b", "b")]
    assert owners_of_tasks("top", links, {"a", "b", "top"}) == {"a": "top", "b": "top"}


def test_what_is_linked_from_elsewhere_only_belongs_to_nobody_here() -> None:
    assert owners_of_tasks("top", [("else", "a")], {"a"}) == {}
