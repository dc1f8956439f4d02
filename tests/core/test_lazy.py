"""Modules that are imported when something of them is first used."""

from __future__ import annotations

import sys

import pytest

from flue_py.lazy import lazy_module


def test_a_module_is_imported_at_its_first_use_and_no_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    module = lazy_module("colorsys")
    assert "colorsys" not in sys.modules
    assert module.rgb_to_hsv(0, 0, 0) == (0.0, 0.0, 0)
    assert "colorsys" in sys.modules
    assert module.rgb_to_hsv is sys.modules["colorsys"].rgb_to_hsv


def test_a_module_or_a_name_that_is_not_there_is_told_at_its_use() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = lazy_module("json").nothing
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        _ = lazy_module("no_such_module").anything
