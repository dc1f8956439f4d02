"""Stores and sessions of agent frameworks, kept in a store of ours: a folder for each framework.

Each needs the extra of its name, and imports nothing of another; `messages` has plain functions for those without a
framework. They share `common`: access to a store, keys of sessions from the ids of frameworks, and the context shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.lazy import lazy_modules

if not TYPE_CHECKING:
    __getattr__ = lazy_modules(__name__)
