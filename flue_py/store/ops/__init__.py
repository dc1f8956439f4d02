"""What a store does, as functions of a transaction: a file for each idea.

A file is loaded when something of it is first used, so that a program that only reads starts without the rest.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flue_py.store.ops import (
        append,
        budgets,
        delete,
        edit,
        ledger,
        log,
        move,
        path_sums,
        pins,
        read,
        sessions,
        state,
        transfer,
        transfer_budgets,
        usage,
        verify,
    )

__all__ = [
    "append",
    "budgets",
    "delete",
    "edit",
    "ledger",
    "log",
    "move",
    "path_sums",
    "pins",
    "read",
    "sessions",
    "state",
    "transfer",
    "transfer_budgets",
    "usage",
    "verify",
]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
