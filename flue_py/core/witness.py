"""Heads of sessions, as others keep them, and what a head that was seen says of the one that is there."""

from __future__ import annotations

import json
from typing import Literal, Protocol, TypeAlias

from flue_py.core.json import Frozen
from flue_py.errors import InvalidArgument, shown

Age: TypeAlias = Literal["same", "newer", "older", "other", "missing"]
"""What is there, compared with a head that was seen: ``other`` is another history."""


GOES_ON: frozenset[Age] = frozenset({"same", "newer"})
"""The ages of a session that is as it was seen, or goes on from it."""


class Head(Frozen):
    """What identifies the state of a session, its row and all that it builds on. ``digest`` is that of the leaf.

    ``value`` is empty for a session that was deleted. As a text it is one line of JSON.
    """

    session_id: str
    revision: int
    value: bytes
    leaf: str | None = None
    digest: bytes = b""

    @property
    def fields(self) -> tuple[str, int, str, str | None, str]:
        """The fields as JSON has them."""
        return self.session_id, self.revision, self.value.hex(), self.leaf, self.digest.hex()

    def __str__(self) -> str:
        return json.dumps(self.fields)


class Witness(Protocol):
    """Who remembers heads where nobody reaches who can put back an older copy of the store.

    Both methods are called on a thread that may wait. An error of `last` ends the read or write that needs it, as
    `StoreUnavailable`; one of `take` is a warning, and the head goes with the next one. One that has a method
    ``last_of(session_ids)``, which returns the heads that there are by id, is asked once for a page of a list.
    """

    def last(self, session_id: str, /) -> Head | None:
        """Return the last head of a session that was taken; None if there is none."""

    def take(self, head: Head, /) -> None:
        """Remember a head, in the place of the last one of its session."""


def read_head(line: str) -> Head:
    """Return the head that a line says. Raises `InvalidArgument`."""
    try:
        session_id, revision, value, leaf, digest = json.loads(line)
        head = Head(session_id, revision, bytes.fromhex(value), leaf, bytes.fromhex(digest))
    except (ValueError, TypeError) as error:
        raise InvalidArgument(f"{shown(line.strip())} is not a head, as flue-py head prints them") from error
    if not (isinstance(session_id, str) and isinstance(revision, int) and isinstance(leaf, str | None)):
        raise InvalidArgument(f"{shown(line.strip())} is not a head, as flue-py head prints them")
    return head


def age_of(seen: Head, present: Head | None) -> Age:
    """Return what is there, compared with a head that was seen; "newer" if it has that one's leaf as it was."""
    if present is None:
        return "same" if not seen.value else "missing"
    if not seen.value:
        return "other"
    if present.revision < seen.revision:
        return "older"
    if present.value == seen.value:
        return "same"
    return "newer" if present.revision > seen.revision else "other"
