"""Every backend tells what the model in memory tells, whatever is done to it."""

from __future__ import annotations

from flue_py.testing.machine import check_against_model
from flue_py.testing.sources import OpenBackend
from tests.store.conftest import BackendKind


def test_the_backend_answers_like_the_model_in_memory(kind: BackendKind, open_backend: OpenBackend) -> None:
    check_against_model(open_backend, kind.share)
