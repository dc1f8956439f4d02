"""What a store does, as functions of a transaction: a file for each idea.

A file is loaded when something of it is first used, so that a program that only reads starts without the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.lazy import lazy_modules

if TYPE_CHECKING:
    from flue_py.store.ops import (
        append,
        atomic,
        budgets,
        contexts,
        delete,
        documents,
        edit,
        ends,
        entries,
        entry_pages,
        ledger,
        listing,
        log,
        many,
        move,
        navigate,
        path_sums,
        paths,
        pins,
        read,
        sessions,
        settings,
        state,
        tasks,
        transfer,
        transfer_budgets,
        usage,
        verify,
    )

__all__ = [
    "append",
    "atomic",
    "budgets",
    "contexts",
    "delete",
    "documents",
    "edit",
    "ends",
    "entries",
    "entry_pages",
    "ledger",
    "listing",
    "log",
    "many",
    "move",
    "navigate",
    "path_sums",
    "paths",
    "pins",
    "read",
    "sessions",
    "settings",
    "state",
    "tasks",
    "transfer",
    "transfer_budgets",
    "usage",
    "verify",
]
__getattr__ = lazy_modules(__name__)
