"""Sessions for the program that runs an agent: a harness with names, roles and tasks, and a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.lazy import lazy_modules

if not TYPE_CHECKING:
    __getattr__ = lazy_modules(__name__)
