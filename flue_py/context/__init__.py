"""Counting the tokens of what a model is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.lazy import lazy_modules

if TYPE_CHECKING:
    from flue_py.context import counters, measuring, tokens

__all__ = ["counters", "measuring", "tokens"]
__getattr__ = lazy_modules(__name__)
