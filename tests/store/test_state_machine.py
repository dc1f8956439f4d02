"""Random calls: every store returns what the reference model returns, and deletes exactly."""

from __future__ import annotations

from typing import Protocol

import pytest

from flue_py.db.ops import base
from tests.machine.budgets import check_budgets
from tests.machine.deletion import check_deletion
from tests.machine.spending import check_spending
from tests.machine.stores import check_against_model
from tests.sources import OpenBackend

pytestmark = pytest.mark.thorough(but=["sqlite"])
"""The other runners share all but their transactions with these, which the contract covers."""


class HasShare(Protocol):
    """A kind of backend, as `conftest` describes it."""

    share: float
    step_share: float


@pytest.fixture
def small_pictures_are_stored_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large ones would make every step large."""
    monkeypatch.setattr(base, "CUT_FROM", 600)


@pytest.mark.usefixtures("small_pictures_are_stored_apart")
def test_a_store_answers_like_the_model(kind: HasShare, open_backend: OpenBackend) -> None:
    check_against_model(open_backend, kind.share, kind.step_share)


@pytest.mark.usefixtures("small_pictures_are_stored_apart")
def test_a_deletion_leaves_exactly_what_survivors_see(kind: HasShare, open_backend: OpenBackend) -> None:
    check_deletion(open_backend, 2 * kind.share)


def test_a_store_keeps_budgets_as_the_model_does(kind: HasShare, open_backend: OpenBackend) -> None:
    check_budgets(open_backend, kind.share / 3, kind.step_share)


def test_the_ledger_sums_up_to_what_was_reported_once(kind: HasShare, open_backend: OpenBackend) -> None:
    check_spending(open_backend, kind.share / 2)
