"""A value that must be there: for tests of the rules too, which need no database."""

from __future__ import annotations

from typing import TypeVar

Value = TypeVar("Value")


def existing(value: Value | None) -> Value:
    """Return a value that must be there."""
    assert value is not None
    return value
