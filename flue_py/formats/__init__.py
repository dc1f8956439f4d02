"""Foreign formats, one module each: from and to values. What stores the values is elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.lazy import lazy_modules

if not TYPE_CHECKING:
    __getattr__ = lazy_modules(__name__)
