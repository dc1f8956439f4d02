"""The only place that knows a database: schema, statements, runners, migration, verification."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.lazy import lazy_modules

if TYPE_CHECKING:
    from flue_py.db import engine as engine
    from flue_py.db import sqlite as sqlite
__all__ = ["engine", "sqlite"]
__getattr__ = lazy_modules(__name__)
