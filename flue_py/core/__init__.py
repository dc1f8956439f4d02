"""Values and pure functions: no I/O, no clock, no randomness."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.lazy import lazy_modules

if not TYPE_CHECKING:
    __getattr__ = lazy_modules(__name__)
