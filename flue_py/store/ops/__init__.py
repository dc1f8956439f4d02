"""What a store does, as functions of a transaction: a file for each idea.

A file is loaded when something of it is first used, so that a program that only reads starts without the rest.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flue_py.store.ops import (
        append as append,
    )
    from flue_py.store.ops import (
        budgets as budgets,
    )
    from flue_py.store.ops import (
        delete as delete,
    )
    from flue_py.store.ops import (
        edit as edit,
    )
    from flue_py.store.ops import (
        ledger as ledger,
    )
    from flue_py.store.ops import (
        log as log,
    )
    from flue_py.store.ops import (
        move as move,
    )
    from flue_py.store.ops import (
        path_sums as path_sums,
    )
    from flue_py.store.ops import (
        pins as pins,
    )
    from flue_py.store.ops import (
        read as read,
    )
    from flue_py.store.ops import (
        sessions as sessions,
    )
    from flue_py.store.ops import (
        state as state,
    )
    from flue_py.store.ops import (
        transfer as transfer,
    )
    from flue_py.store.ops import (
        transfer_budgets as transfer_budgets,
    )
    from flue_py.store.ops import (
        usage as usage,
    )
    from flue_py.store.ops import (
        verify as verify,
    )


def __getattr__(name: str) -> ModuleType:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
