"""Checks of arguments, made before anything reaches a backend."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from math import isfinite
from os import PathLike, fspath
from pathlib import Path
from typing import Protocol, TypeVar

from flue_py.core.entries import checked_kind, to_microseconds
from flue_py.core.json import Frozen, JsonValue, decode_object, encode_json
from flue_py.core.sessions import (
    GUARD_KEY,
    NOTHING_SEEN,
    ORDERS,
    STORED,
    LeafChoice,
    Limits,
    OnConflict,
    Ordering,
    Scalar,
    Seen,
    SessionOrder,
    Stored,
    check_label,
    check_scope,
    is_storable,
)
from flue_py.core.usage import MAX_AMOUNT
from flue_py.errors import InvalidArgument, InvalidEntry, shown

MAX_PAGE = 1000
_LAST_REVISION = 2**63 - 1

T = TypeVar("T")
Result = TypeVar("Result")


class HasId(Protocol):
    """Anything with an id: a `Session`, its blocking twin, a `SessionInfo`."""

    @property
    def id(self) -> str: ...


def checked_session(session: HasId | str) -> str:
    """Return the id of a session given as itself or by its id; of one given as itself, as a `SessionRef`.

    Raises `InvalidArgument` for anything else.
    """
    session_id = session if isinstance(session, str) else getattr(session, "ref", getattr(session, "id", None))
    if not isinstance(session_id, str):
        raise InvalidArgument(f"session: {shown(session)} is neither a session nor an id")
    return session_id


def checked_id(text: str, name: str) -> str:
    """Return an id unchanged. Raises `InvalidArgument` if it is not a string."""
    if not isinstance(text, str):
        raise InvalidArgument(f"{name}: {shown(text)} is not an id; ids are strings")
    return text


def checked_ids(ids: Iterable[str]) -> list[str]:
    """Return ids as a list. Raises `InvalidArgument` if they are not a list, a tuple or the like of strings."""
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        raise InvalidArgument(f"ids: {shown(ids)} is not a list of ids")
    return [checked_id(entry_id, "ids") for entry_id in ids]


def checked_place(text: str | None, name: str) -> str | None:
    """Return an id or None unchanged. Raises `InvalidArgument` for anything else."""
    return None if text is None else checked_id(text, name)


def checked_leaf(leaf: LeafChoice, name: str = "leaf") -> LeafChoice:
    """Return the choice of a leaf unchanged. Raises `InvalidArgument` unless it is an id, None or `STORED`."""
    if leaf is not None and not isinstance(leaf, (str, Stored)):
        raise InvalidArgument(f"{name}: {shown(leaf)} is not an id or None; ids are strings")
    return leaf


def checked_seen(leaf: LeafChoice, revision: int | None) -> Seen:
    """Return the leaf and the revision a caller has seen. Raises `InvalidArgument` unless they can be such."""
    if leaf is STORED and revision is None:
        return NOTHING_SEEN
    checked_leaf(leaf, "expected_leaf")
    return Seen(leaf, None if revision is None else checked_revision(revision, "expected_revision"))


def checked_on_conflict(on_conflict: OnConflict) -> OnConflict:
    """Return the choice for a conflict unchanged. Raises `InvalidArgument` if it is not one of the choices."""
    checked_choice(on_conflict, "on_conflict", ("raise", "branch", "rebase"))
    return on_conflict


def checked_messages(messages: Iterable[T]) -> list[T]:
    """Return messages as a list. Raises `InvalidArgument` for a single one, and if it is not iterable."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise InvalidArgument("messages: should be a sequence of messages; append_message takes a single one")
    return list(messages)


def checked_path(path: str | PathLike[str], name: str) -> Path:
    """Return ``path`` as a path. Raises `InvalidArgument` if it is not a path."""
    location = fspath(path) if isinstance(path, (str, PathLike)) else None
    if not isinstance(location, str) or not location or "\0" in location:
        raise InvalidArgument(f"{name}: {shown(path)} is not the path of a file")
    return Path(location)


def checked_flag(value: bool, name: str) -> bool:
    """Return ``value`` unchanged. Raises `InvalidArgument` if it is neither True nor False."""
    if not isinstance(value, bool):
        raise InvalidArgument(f"{name}: {shown(value)} is neither True nor False")
    return value


def checked_function(function: T, name: str) -> T:
    """Return a function that is to be called, or None, unchanged. Raises `InvalidArgument` for anything else."""
    if function is not None and not callable(function):
        raise InvalidArgument(f"{name}: {shown(function)} is not a function")
    return function


def checked_limits(limits: Limits) -> Limits:
    """Return ``limits`` unchanged. Raises `InvalidArgument` for anything else."""
    if not isinstance(limits, Limits):
        raise InvalidArgument(f"limits: should be Limits, not {type(limits).__name__}")
    return limits


def checked_limit(limit: int) -> int:
    """Return ``limit`` unchanged. Raises `InvalidArgument` outside 1..`MAX_PAGE`."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_PAGE:
        raise InvalidArgument(f"limit: {shown(limit)} is not a number from 1 to {MAX_PAGE}; read page by page")
    return limit


def checked_end(limit: int) -> int:
    """Return ``limit``, for the end of something, unchanged. Raises `InvalidArgument` if it is not a number >= 1."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InvalidArgument(f"limit: {shown(limit)} is not a whole number >= 1; leave it out to read everything")
    return limit


def checked_kind_name(kind: str, name: str) -> str:
    """Return the name of a kind of entries unchanged. Raises `InvalidArgument` if no entry can be of that kind."""
    try:
        return checked_kind(kind)
    except InvalidEntry as error:
        raise InvalidArgument(str(error).replace("kind", name, 1)) from error


def checked_choice(value: object, name: str, choices: tuple[str, ...]) -> None:
    """Raise `InvalidArgument` if ``value`` is not one of ``choices``."""
    if value not in choices:
        raise InvalidArgument(f"{name}: {shown(value)} is not one of {', '.join(choices)}")


def checked_prefix(prefix: str) -> str:
    """Return ``prefix`` unchanged. Raises `InvalidArgument` if it is empty or no string."""
    if not isinstance(prefix, str) or not prefix:
        raise InvalidArgument(f"id: {shown(prefix)} is not the beginning of an id; give at least one character")
    return prefix


def checked_metadata(metadata: Mapping[str, JsonValue] | None, limits: Limits) -> str:
    """Return metadata as JSON text; None is ``{}``. Raises `InvalidArgument`, or `InvalidEntry` naming the field."""
    if metadata is None:
        return "{}"
    if not isinstance(metadata, Mapping):
        raise InvalidArgument(f"metadata: should be an object, not {type(metadata).__name__}")
    text = encode_json(dict(metadata), "metadata")[0]
    limits.check_metadata(text)
    return text


class ChangedMetadata(Frozen):
    """Makes metadata, as text, of those that are stored and those that are given, which are merged or take their place.

    Raises as `checked_metadata`.
    """

    given: str
    merge: bool
    limits: Limits

    def __call__(self, stored: str) -> str:
        # Metadata that cannot be read can be replaced.
        if not self.merge and GUARD_KEY not in stored:
            return self.given
        metadata = decode_object(stored)
        if not self.merge:
            metadata = {GUARD_KEY: metadata[GUARD_KEY]} if GUARD_KEY in metadata else {}
        return checked_metadata({**metadata, **decode_object(self.given)}, self.limits)


def checked_moment(moment: datetime) -> int:
    """Return an aware moment as microseconds since 1970 UTC. Raises `InvalidArgument` for anything else."""
    try:
        return to_microseconds(moment)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidArgument(f"{shown(moment)} is not a moment in time: use a datetime with a time zone") from error


def checked_revision(revision: int, name: str = "after") -> int:
    """Return ``revision`` unchanged. Raises `InvalidArgument` if it is not one (0 is before the first)."""
    if isinstance(revision, bool) or not isinstance(revision, int) or not 0 <= revision <= _LAST_REVISION:
        raise InvalidArgument(f"{name}: {shown(revision)} is not a revision; 0 is before the first change")
    return revision


def checked_part(part: int | str | None) -> int | str | None:
    """Return ``part`` unchanged. Raises `InvalidArgument` for a value that names no part of a message's content."""
    if part is None or (isinstance(part, str) and is_storable(part)):
        return part
    if isinstance(part, bool) or not isinstance(part, int) or not 0 <= part <= _LAST_REVISION:
        raise InvalidArgument(f"part: {shown(part)} is neither the position of a part (from 0) nor its id")
    return part


def optional(check: Callable[[T, str], Result], value: T | None, name: str) -> Result | None:
    """Return None for None, else the result of the check."""
    return None if value is None else check(value, name)


def checked_scopes(scopes: Sequence[str]) -> tuple[str, ...]:
    """Return scopes as a tuple. Raises `InvalidArgument` if they are no list of texts that can be stored."""
    if not isinstance(scopes, Sequence) or isinstance(scopes, (str, bytes)):
        raise InvalidArgument(f"scopes: should be a list of scopes, not {type(scopes).__name__}")
    for scope in scopes:
        check_scope(scope)
    return tuple(scopes)


def checked_scalars(metadata: Mapping[str, Scalar]) -> tuple[tuple[str, Scalar], ...]:
    """Return the values of a metadata filter, by key. Raises `InvalidArgument` for values that hold others, or are no
    JSON.
    """
    if not isinstance(metadata, Mapping):
        raise InvalidArgument(f"metadata: should be an object, not {type(metadata).__name__}")
    for key, value in metadata.items():
        if not isinstance(key, str):
            raise InvalidArgument(f"metadata: {shown(key)} is not a key; keys are texts")
        is_scalar = value is None or type(value) in (str, int, bool)
        if not is_scalar and not (type(value) is float and isfinite(value)):
            raise InvalidArgument(
                f"metadata: {shown(key)} can be compared with a text, a number, a boolean or None, not {shown(value)}"
            )
    return tuple(metadata.items())


def checked_ordering(order_by: SessionOrder, descending: bool) -> Ordering:
    """Return the order of a listing. Raises `InvalidArgument` if there is no such order."""
    checked_choice(order_by, "order_by", ORDERS)
    return Ordering(order_by, checked_flag(descending, "descending"))


def checked_text(text: str | None, name: str) -> str | None:
    """Return a text, or None, unchanged. Raises `InvalidArgument` if it cannot be stored."""
    check_label(text, name)
    return text


def checked_count(count: int, name: str) -> int:
    """Return ``count`` unchanged. Raises `InvalidArgument` if it is not a whole number from 0."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise InvalidArgument(f"{name}: {shown(count)} is not a count; use a whole number >= 0")
    if count > MAX_AMOUNT:
        raise InvalidArgument(f"{name}: {shown(count)} is too large; use a whole number from 0 to {MAX_AMOUNT}")
    return count


def checked_patience(seconds: float) -> float:
    """Return for how many seconds to wait unchanged. Raises `InvalidArgument` if it is not a number from 0."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= sys.float_info.max:
        raise InvalidArgument(f"patience: should be a number of seconds, 0 or more, not {shown(seconds)}")
    return seconds


def check_rewind(to: LeafChoice, turns: int | None) -> None:
    """Check where to rewind to: either an entry or a number of turns. Raises `InvalidArgument`."""
    if isinstance(to, Stored) == (turns is None):
        raise InvalidArgument("rewind takes either to= or turns=")
    checked_leaf(to, "to")
    if turns is not None and (isinstance(turns, bool) or not isinstance(turns, int)):
        raise InvalidArgument(f"turns: {shown(turns)} is not a whole number of turns")
