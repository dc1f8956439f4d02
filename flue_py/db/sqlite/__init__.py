"""SQLite, in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.lazy import lazy_modules

if TYPE_CHECKING:
    from flue_py.db.sqlite import runner as runner
__all__ = ["caller", "memory", "read_only", "runner"]
__getattr__ = lazy_modules(__name__)
