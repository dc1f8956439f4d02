"""Stores and sessions of agent frameworks, kept in a store of ours: a folder for each framework.

Each needs the extra of its name, and imports nothing of another; `messages` has plain functions for those without a
framework. What they share is how they get at a store
(`access`), and the key under which a session with the framework's own id is found (`keys`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.lazy import lazy_modules

if not TYPE_CHECKING:
    __getattr__ = lazy_modules(__name__)
