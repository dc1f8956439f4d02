"""The operations of a store, as functions of a transaction: a file for each idea.

A file is loaded when something of it is first used, so that a program that only reads starts without the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.lazy import lazy_modules

if TYPE_CHECKING:
    from flue_py.db.ops import append as append
    from flue_py.db.ops import base as base
    from flue_py.db.ops import delete as delete
    from flue_py.db.ops import documents as documents
    from flue_py.db.ops import edit as edit
    from flue_py.db.ops import ledger as ledger
    from flue_py.db.ops import read as read
    from flue_py.db.ops import seals as seals
    from flue_py.db.ops import sessions as sessions
    from flue_py.db.ops import transfer as transfer
    from flue_py.db.ops import verify as verify
__all__ = [
    "append", "base", "delete", "documents", "edit", "ledger", "read", "seals", "sessions", "transfer",
    "verify",
]  # fmt: skip
__getattr__ = lazy_modules(__name__)
