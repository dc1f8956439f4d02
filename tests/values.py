"""Values of tests, of the rules too, which need no database: one that must be there, and shapes of other libraries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

Value = TypeVar("Value")


def existing(value: Value | None) -> Value:
    """Return a value that must be there."""
    assert value is not None
    return value


def shapes(kind: str) -> dict[str, Any]:
    """Return usage, messages, or the fields of usage, by whom they are of, as libraries and programs write them."""
    table: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "data/shapes.json").read_bytes())
    return table[kind]
