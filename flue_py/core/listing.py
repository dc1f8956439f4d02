"""Listings of sessions: which of them, in which order, and where a page ended. All from the session's row alone."""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import fields
from typing import Literal, NamedTuple, TypeAlias, cast, get_args

from flue_py.core.frozen import frozen
from flue_py.core.sessions import SessionInfo, SessionKind, is_storable
from flue_py.core.task_names import OF_PARENT
from flue_py.errors import InvalidArgument, shown

SessionOrder: TypeAlias = Literal["activity", "updated", "created", "title", "messages", "entries", "tokens", "cost"]
"""What sessions are listed by. ``title`` is the one that was given, else the one that was made, else "": the first
`SORTED_CHARACTERS` of it, compared byte by byte in UTF-8. Equal ones are in the order in which they were made."""

SORTED_CHARACTERS = 200
"""By how much of a title sessions are sorted."""

SLOT_BITS = 22
"""How many bits of a time in microseconds its slot leaves out: a slot is 4.2 seconds."""

ORDERS: tuple[SessionOrder, ...] = get_args(SessionOrder)
SortValue: TypeAlias = int | str

Scalar: TypeAlias = str | int | float | bool | None
"""A value in JSON that holds no others."""

_LARGEST = 2**63
# What every JSON encoder writes as it is.
_PLAIN = re.compile(r"[0-9A-Za-z_.,:;@ +-]+")
_LOWER = str.maketrans({chr(code): chr(code + 32) for code in range(ord("A"), ord("Z") + 1)})


@frozen
class SessionFilter:
    """What sessions have to be to be listed; None asks for nothing.

    ``title`` is part of the title that is shown (`SessionInfo.shown_title`), whatever the case of its ASCII letters.
    ``metadata`` are keys of the top level of the metadata, and the values that they have to have: 1 is neither 1.0 nor
    True.
    """

    title: str | None = None
    key: str | None = None
    cwd: str | None = None
    completed: bool | None = None
    scopes: tuple[str, ...] | None = None
    scope_prefix: str | None = None
    metadata: tuple[tuple[str, Scalar], ...] | None = None

    @property
    def asked(self) -> dict[str, object]:
        """What is asked for, by name; titles in lower case, as they are compared."""
        found: dict[str, object] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                found[field.name] = lower(value) if field.name == "title" else value
        return found

    @property
    def can_match(self) -> bool:
        """Whether a store can hold what is asked for at all."""
        texts = (self.title, self.key, self.cwd, self.scope_prefix)
        return all(is_storable(text) for text in texts if text is not None)

    @property
    def needle(self) -> str:
        """A text that stored metadata have in them which are what is asked for; "" where there is none."""
        found = [
            f'"{part}"'
            for pair in self.metadata or ()
            for part in pair
            if isinstance(part, str) and _PLAIN.fullmatch(part)
        ]
        return max(found, key=len, default="")

    @property
    def asks_links(self) -> bool:
        """Whether links may say what is asked for of metadata, whatever is stored."""
        return any(key in OF_PARENT for key, _ in self.metadata or ())

    def has_metadata(self, info: SessionInfo) -> bool:
        """Return whether a session's metadata are what is asked for."""
        if not self.metadata:
            return True
        found = info.metadata
        return all(key in found and is_same(found[key], value) for key, value in self.metadata)

    def matches(self, info: SessionInfo) -> bool:
        """Return whether a session is what is asked for."""
        if self.title is not None and lower(self.title) not in lower(info.shown_title or ""):
            return False
        if self.completed is not None and self.completed != (info.completed_us is not None):
            return False
        if self.scopes is not None and info.scope not in self.scopes:
            return False
        if not info.scope.startswith(self.scope_prefix or "") or not self.has_metadata(info):
            return False
        equal = ((self.key, info.key), (self.cwd, info.cwd))
        return all(asked is None or found == asked for asked, found in equal)


ANY_SESSION = SessionFilter()


def slot_of(at_us: int) -> int:
    """Return the slot of a time in microseconds: what the listing by activity is sorted by first."""
    return at_us >> SLOT_BITS


def is_same(found: object, asked: Scalar) -> bool:
    """Return whether a value is the scalar that was asked for, of the same type."""
    return type(found) is type(asked) and found == asked


def lower(text: str) -> str:
    """Return a text with its ASCII letters in lower case, which every database can do alike."""
    return text.translate(_LOWER)


_SORTED_BY: dict[SessionOrder, Callable[[SessionInfo], SortValue]] = {
    "activity": lambda info: info.active_us,
    "updated": lambda info: info.updated_us,
    "created": lambda info: info.created_us,
    "title": lambda info: (info.title or info.auto_title or "")[:SORTED_CHARACTERS],
    "messages": lambda info: info.message_count,
    "entries": lambda info: info.entry_count,
    "tokens": lambda info: info.spent_tokens,
    "cost": lambda info: info.spent_picodollars,
}


def sort_value(info: SessionInfo, order: SessionOrder) -> SortValue:
    """Return what a session is sorted by."""
    return _SORTED_BY[order](info)


class Ordering(NamedTuple):
    """An order, and whether what is most comes first."""

    order: SessionOrder = "activity"
    descending: bool = True


LAST_ACTIVE_FIRST = Ordering()


class Listing(NamedTuple):
    """A listing that is asked for: whose sessions, of which kind, which of them, and in which order."""

    scope: str | None = None
    kind: SessionKind | None = None
    where: SessionFilter = ANY_SESSION
    ordering: Ordering = LAST_ACTIVE_FIRST


# -- cursors ----------------------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """Where a page ended: what its last session is sorted by, and its number, which decides between equal ones."""

    value: SortValue
    number: int


def write_cursor(ordering: Ordering, place: Place) -> str:
    """Return the cursor for the sessions that come after a place: an opaque text."""
    return urlsafe_b64encode(json.dumps([*ordering, *place], separators=(",", ":")).encode()).decode()


def read_cursor(cursor: str, ordering: Ordering) -> Place:
    """Return the place that a cursor stands for.

    Raises `InvalidArgument` for one of another order, and for what `write_cursor` did not make.
    """
    try:
        found = json.loads(urlsafe_b64decode(cursor.encode()))
        order, descending, value, number = found
        is_whole = order in ORDERS and isinstance(descending, bool) and type(number) is int
        is_sound = type(value) is (str if order == "title" else int)
        # Decoding passes over what it does not know, and databases over no number of more than 64 bits.
        in_range = is_whole and abs(number) < _LARGEST and (isinstance(value, str) or abs(value) < _LARGEST)
        is_ours = is_sound and in_range and write_cursor(Ordering(order, descending), Place(value, number)) == cursor
        if not is_ours or (isinstance(value, str) and not is_storable(value)):
            raise ValueError("it was changed")
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidArgument(
            f"cursor {shown(cursor)} is not one that list_sessions gave; start without one"
        ) from error
    if Ordering(order, descending) != ordering:
        raise InvalidArgument(
            f"cursor: it goes on with a listing by {order}, {_way(descending)} first, and not by {ordering.order}, "
            f"{_way(ordering.descending)} first; ask in the same order, or start without one"
        )
    return Place(cast("SortValue", value), number)


def _way(descending: bool) -> str:
    return "most" if descending else "least"
