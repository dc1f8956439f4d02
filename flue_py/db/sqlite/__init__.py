"""SQLite, in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.lazy import lazy_modules

if TYPE_CHECKING:
    from flue_py.db.sqlite import runner as runner
__all__ = ["runner"]
__getattr__ = lazy_modules(__name__)
