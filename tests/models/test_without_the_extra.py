"""Models of providers where the package that knows them is not installed."""

from __future__ import annotations

import sys

import pytest

from flue_py.errors import MissingExtra
from flue_py.models import open_model


@pytest.fixture(autouse=True)
def _missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pydantic_ai"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)


def test_a_model_without_its_extra_names_it() -> None:
    with pytest.raises(MissingExtra, match=r"flue-py\[models\]"):
        open_model("openai:gpt-5")
