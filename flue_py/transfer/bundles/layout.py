"""The tables and columns of a bundle, and what one is counted by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias, get_args, get_type_hints

from flue_py.core.rows import (
    AttachmentRow,
    BlobRow,
    CallRow,
    EditRow,
    EntryRow,
    LaneRow,
    LinkRow,
    MarkRow,
    MoveRow,
    Payer,
    RequestRow,
    SessionRow,
)
from flue_py.core.trees import (
    GonePayer,
    TreeCopy,
)
from flue_py.core.usage import PAID_COLUMNS

NAME = "flue_py bundle"
VERSION = 2

Row: TypeAlias = tuple[Any, ...]

TABLES: Mapping[str, type[Row]] = {
    "sessions": SessionRow,
    "lanes": LaneRow,
    "entries": EntryRow,
    "attachments": AttachmentRow,
    "blobs": BlobRow,
    "links": LinkRow,
    "moves": MoveRow,
    "requests": RequestRow,
    "marks": MarkRow,
    "edits": EditRow,
    "payers": Payer,
    "calls": CallRow,
}
"""The rows of a tree, by the name that a bundle and a `TreeCopy` give them, in the order of a bundle."""

KEYS = ("session_key", "owner_key", "parent_key")
"""The columns that name a session by a number which means nothing elsewhere."""


class Column(NamedTuple):
    name: str
    type: type
    optional: bool


def _columns(row: type[Row]) -> tuple[Column, ...]:
    columns = []
    for name, hint in get_type_hints(row).items():
        options = get_args(hint) or (hint,)
        kind = next(option for option in options if option is not type(None))
        columns.append(Column(name, kind, type(None) in options))
    return tuple(columns)


COLUMNS = {name: _columns(row) for name, row in TABLES.items()}
# The slot of a session's last activity is left out, which the time tells.
COLUMNS["sessions"] = tuple(column for column in COLUMNS["sessions"] if column.name != "active_slot")
# Of an entry the sums come last; its parent is left out: the lanes tell it.
_LATE: Row = ("parent_id", *PAID_COLUMNS)
_OF_ENTRIES = {column.name: column for column in COLUMNS["entries"]}
COLUMNS["entries"] = (
    *(column for name, column in _OF_ENTRIES.items() if name not in _LATE),
    *(_OF_ENTRIES[name] for name in PAID_COLUMNS),
)
ENTRY_DEFAULTS: Mapping[str, Any] = {"parent_id": None, **dict.fromkeys(PAID_COLUMNS, 0)}
WRITTEN = {name: attrgetter(*(column.name for column in columns)) for name, columns in COLUMNS.items()}


@dataclass(frozen=True, slots=True)
class BundleCounts:
    """How much a bundle holds. ``calls`` are paid calls, those of sessions now gone among them."""

    trees: int = 0
    sessions: int = 0
    entries: int = 0
    calls: int = 0

    def with_tree(self, copy: TreeCopy) -> BundleCounts:
        """Return the counts with one tree more."""
        return BundleCounts(
            self.trees + 1,
            self.sessions + len(copy.sessions),
            self.entries + len(copy.entries),
            self.calls + len(copy.calls),
        )

    def with_gone(self, gone: GonePayer) -> BundleCounts:
        """Return the counts with the calls of one session more that is gone."""
        return replace(self, calls=self.calls + len(gone.calls))
