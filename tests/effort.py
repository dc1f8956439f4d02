"""How much a test tries: less in every run, more with --thorough, much more with --run-slow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings

_USUAL = 50
"""How many examples the profile of --thorough draws."""
_FEWEST = 10


def examples(count: int) -> settings:
    """Return settings of a property: ``count`` examples with --thorough, fewer without, many more with --run-slow."""
    usual = settings().max_examples
    if usual > _USUAL:
        return settings(max_examples=max(count, usual))
    return settings(max_examples=min(count, max(_FEWEST, count * usual // _USUAL)))


def first(count: int, values: Sequence[Any]) -> list[Any]:
    """Return parameters of a test: the first ones always run, the others with --thorough."""
    return [*values[:count], *(pytest.param(value, marks=pytest.mark.thorough) for value in values[count:])]
