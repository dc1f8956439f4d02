"""Checks of what callers pass, made before anything reaches a backend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from os import PathLike, fspath
from os.path import normpath
from pathlib import Path
from typing import Protocol, TypeVar, cast

from flue_py.core.calls import PaidCall, checked_tag, ledger_name, read_call
from flue_py.core.entries import to_microseconds
from flue_py.core.jsontext import JsonValue, encode_json
from flue_py.core.ledger import BRANCH_STATES, DAY_US, DIMENSIONS, BranchState, Dimension, LedgerQuery, number_of
from flue_py.core.limits import Limits
from flue_py.core.sessions import LeafChoice, Stored, check_label, is_storable
from flue_py.core.usage_shapes import read_reported
from flue_py.errors import InvalidArgument, InvalidEntry, shown

MAX_PAGE = 1000
_LAST_REVISION = 2**63 - 1

T = TypeVar("T")


class HasId(Protocol):
    """Anything with an id: a `Session`, its blocking twin, a `SessionInfo`."""

    @property
    def id(self) -> str: ...


def id_of(session: HasId | str) -> str:
    """Return the id of a session given as itself or by its id; of one given as itself, as a `SessionRef`.

    Raises `InvalidArgument` for anything else.
    """
    found = session if isinstance(session, str) else getattr(session, "ref", getattr(session, "id", None))
    if not isinstance(found, str):
        raise InvalidArgument(f"session: {shown(session)} is neither a session nor an id")
    return found


def checked_id(text: str, what: str) -> str:
    """Return an id unchanged. Raises `InvalidArgument` for what is no string."""
    if not isinstance(text, str):
        raise InvalidArgument(f"{what}: {shown(text)} is not an id; ids are strings")
    return text


def checked_place(text: str | None, what: str) -> str | None:
    """Return an id or None unchanged. Raises `InvalidArgument` for anything else."""
    return None if text is None else checked_id(text, what)


def checked_leaf(leaf: LeafChoice, what: str = "leaf") -> LeafChoice:
    """Return the choice of a leaf unchanged. Raises `InvalidArgument` for what is no id, None or `STORED`."""
    if leaf is not None and not isinstance(leaf, (str, Stored)):
        raise InvalidArgument(f"{what}: {shown(leaf)} is not an id or None; ids are strings")
    return leaf


def checked_messages(messages: Iterable[T]) -> list[T]:
    """Return messages as a list. Raises `InvalidArgument` for a single one, and for what cannot be gone through."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise InvalidArgument("messages: should be a sequence of messages; append_message takes a single one")
    return list(messages)


def checked_path(path: str | PathLike[str], what: str) -> Path:
    """Return ``path`` as a path. Raises `InvalidArgument` where it is none."""
    location = fspath(path) if isinstance(path, (str, PathLike)) else None
    if not isinstance(location, str) or not location or "\0" in location:
        raise InvalidArgument(f"{what}: {shown(path)} is not the path of a file")
    return Path(location)


def checked_flag(value: bool, what: str) -> bool:
    """Return ``value`` unchanged. Raises `InvalidArgument` where it is neither True nor False."""
    if not isinstance(value, bool):
        raise InvalidArgument(f"{what}: {shown(value)} is neither True nor False")
    return value


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


def checked_choice(value: object, what: str, choices: tuple[str, ...]) -> None:
    """Raise `InvalidArgument` where ``value`` is none of ``choices``."""
    if value not in choices:
        raise InvalidArgument(f"{what}: {shown(value)} is not one of {', '.join(choices)}")


def checked_prefix(prefix: str) -> str:
    """Return ``prefix`` unchanged. Raises `InvalidArgument` where it is empty or no string."""
    if not isinstance(prefix, str) or not prefix:
        raise InvalidArgument(f"id: {shown(prefix)} is not the beginning of an id; give at least one character")
    return prefix


def paid_call(
    usage: Mapping[str, JsonValue],
    provider: str,
    model: str,
    call_id: str | None,
    purpose: str,
    outcome: str | None,
    agent: str | None,
    at: datetime | None,
) -> PaidCall:
    """Return a paid call from what a caller says of it. Raises `InvalidArgument`, `InvalidEntry` naming the field."""
    if not isinstance(usage, Mapping):
        raise InvalidEntry(f"usage: should be an object, not {type(usage).__name__}")
    encode_json(dict(usage), "usage")
    for what, text in (("provider", provider), ("model", model), ("call_id", call_id)):
        if what != "call_id" and text is None:
            raise InvalidArgument(f"{what}: should be a string, not None; leave it out where it is not known")
        check_label(text, what)
    check_label(agent, "agent")
    if call_id == "":
        raise InvalidArgument("call_id: must not be empty; leave it out where there is none")
    given: dict[str, JsonValue] = {"provider": provider, "model": model, "callId": call_id}
    if oddities := read_reported(usage).oddities:
        # There is no answer to lose here, and nothing that would keep the numbers as they were reported.
        raise InvalidEntry(oddities[0])
    call = read_call({**usage, **{name: value for name, value in given.items() if value}}, "usage")
    return replace(
        call,
        purpose=checked_tag(purpose, "purpose"),
        outcome=None if outcome is None else checked_tag(outcome, "outcome"),
        at_us=None if at is None else checked_moment(at),
        agent=ledger_name(agent) or None,
    )


def ledger_query(
    session: HasId | str | Sequence[HasId | str] | None,
    *,
    tree: bool,
    tasks: bool,
    path: bool,
    leaf: LeafChoice,
    since: str | None,
    matches: Mapping[str, str | None],
    project: str | None,
    branch: BranchState | None,
    first_day: date | None,
    last_day: date | None,
    group_by: Sequence[Dimension],
) -> LedgerQuery:
    """Return a question to the ledger. Raises `InvalidArgument` for what makes none."""
    for what, flag in (("tree", tree), ("tasks", tasks), ("path", path)):
        checked_flag(flag, what)
    on_path = path or since is not None or not isinstance(checked_leaf(leaf), Stored)
    several = None if isinstance(session, str) or not isinstance(session, Sequence) else session
    single = None if several is not None else cast("HasId | str | None", session)
    if single is None and (tree or tasks or on_path):
        raise InvalidArgument("tree, tasks, path, leaf and since are of a session; name one")
    if on_path and (tree or tasks):
        raise InvalidArgument("a path is one session's own: leave out tree and tasks, or path, leaf and since")
    for what, text in {**matches, "project": project}.items():
        check_label(text, what)
    if branch is not None:
        checked_choice(branch, "branch", BRANCH_STATES)
    if isinstance(group_by, str) or not isinstance(group_by, Sequence):
        raise InvalidArgument(f"group_by: should be a sequence of names, not {shown(group_by)}")
    for name in group_by:
        checked_choice(name, "group_by", DIMENSIONS)
    first, last = _checked_day(first_day, "first_day"), _checked_day(last_day, "last_day")
    return LedgerQuery(
        None if single is None else id_of(single),
        None if several is None else tuple(id_of(each) for each in several),
        tree=tree,
        tasks=tasks,
        on_path=on_path,
        leaf=leaf,
        since=checked_place(since, "since"),
        **matches,
        project=None if project is None else normpath(project),
        branch=branch,
        from_us=None if first is None else first * DAY_US,
        before_us=None if last is None else (last + 1) * DAY_US,
        group_by=tuple(dict.fromkeys(group_by)),
    )


def _checked_day(day: date | None, what: str) -> int | None:
    """Return a day as its number, counted from 1 January 1970."""
    if day is None:
        return None
    if not isinstance(day, date) or isinstance(day, datetime):
        raise InvalidArgument(f"{what}: {shown(day)} is not a day; use a datetime.date (days are in UTC)")
    return number_of(day)


def encode_metadata(metadata: Mapping[str, JsonValue] | None, limits: Limits) -> str:
    """Return metadata as JSON text; None is ``{}``. Raises `InvalidArgument`, or `InvalidEntry` naming the field."""
    if metadata is None:
        return "{}"
    if not isinstance(metadata, Mapping):
        raise InvalidArgument(f"metadata: should be an object, not {type(metadata).__name__}")
    text = encode_json(dict(metadata), "metadata")[0]
    limits.check_metadata(text)
    return text


def checked_moment(moment: datetime) -> int:
    """Return an aware moment as microseconds since 1970 UTC. Raises `InvalidArgument` for anything else."""
    try:
        return to_microseconds(moment)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidArgument(f"{shown(moment)} is not a moment in time: use a datetime with a time zone") from error


def checked_revision(revision: int, what: str = "after") -> int:
    """Return ``revision`` unchanged. Raises `InvalidArgument` for what is none (0 is before the first)."""
    if isinstance(revision, bool) or not isinstance(revision, int) or not 0 <= revision <= _LAST_REVISION:
        raise InvalidArgument(f"{what}: {shown(revision)} is not a revision; 0 is before the first change")
    return revision


def checked_part(part: int | str | None) -> int | str | None:
    """Return ``part`` unchanged. Raises `InvalidArgument` for what names no part of a message's content."""
    if part is None or (isinstance(part, str) and is_storable(part)):
        return part
    if isinstance(part, bool) or not isinstance(part, int) or not 0 <= part <= _LAST_REVISION:
        raise InvalidArgument(f"part: {shown(part)} is neither the position of a part (from 0) nor its id")
    return part
