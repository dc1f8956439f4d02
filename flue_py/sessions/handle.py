"""A handle on one session: its turn, its leaf, commits and reads; the checks of arguments; sessions by their names."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from math import isfinite
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Concatenate, Generic, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, cast

from msgspec import field
from msgspec.structs import replace

from flue_py.core import sessions
from flue_py.core.context import ContextEntry, ContextRead, PrefixChain, context_of, project_kept
from flue_py.core.entries import Entry, PathSettings, checked_kind, to_microseconds
from flue_py.core.json import Frozen, JsonObject, NamedTuple, Selective, decode_object, encode_json
from flue_py.core.kinds import EXCLUSION, MESSAGE
from flue_py.core.operations import Left
from flue_py.core.sessions import (
    Appended,
    Expected,
    LeafChoice,
    LeafRead,
    Limits,
    Moved,
    OnConflict,
    Ordering,
    ReadStamp,
    Scalar,
    Seen,
    SessionInfo,
    SessionKind,
    SessionOrder,
    SessionPage,
    SessionRef,
)
from flue_py.core.usage import MAX_AMOUNT
from flue_py.errors import (
    AmbiguousId,
    CorruptStore,
    EntryNotFound,
    InvalidArgument,
    InvalidEntry,
    SessionNotFound,
    damaged_session,
    shown,
)
from flue_py.lazy import lazy_module
from flue_py.prices import NO_PRICER, CallPricer

if TYPE_CHECKING:
    from flue_py.db import runner
    from flue_py.db.backend import Backend
    from flue_py.db.waiting import Waiting
    from flue_py.render import views
else:
    # The checks of arguments are used without a store, too.
    runner = lazy_module("flue_py.db.runner")
    # Only a listing of forks asks how a tree is drawn.
    views = lazy_module("flue_py.render.views")

_AMBIGUOUS = 6


_MATCHES = 64


P = ParamSpec("P")
T = TypeVar("T")
Result = TypeVar("Result")


# ---------------------------------------------------------------------------------------------------------------------
# Checks of arguments, made before anything reaches a backend.

MAX_PAGE = 1000
_LAST_REVISION = 2**63 - 1


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
    if leaf is not None and not isinstance(leaf, (str, sessions.Stored)):
        raise InvalidArgument(f"{name}: {shown(leaf)} is not an id or None; ids are strings")
    return leaf


class SeenOptions(TypedDict, total=False):
    """The leaf and the revision that the caller of a write has seen (see `Session`)."""

    expected_leaf: LeafChoice
    expected_revision: int | None


class EditOptions(SeenOptions, total=False):
    """The same of an edit, with who does it and why, for the log."""

    by: str | None
    why: str | None


class TaskRow(TypedDict, total=False):
    """The row of a new task session."""

    key: str | None
    title: str | None
    metadata: Mapping[str, object] | None
    cwd: str | None


class TaskOptions(TaskRow, SeenOptions, total=False):
    """The row of a task session, and the leaf and the revision that were seen of its parent."""


class RowOptions(TaskRow, total=False):
    """The row of a new session."""

    id: str | None
    scope: str | None


class ForkOptions(RowOptions, SeenOptions, total=False):
    """The row of a fork, and the leaf and the revision that were seen of its source."""


class LandingOptions(SeenOptions, total=False):
    """The same of an append, with the choice if the leaf is another now, and the key of retries."""

    idempotency_key: str | None
    on_conflict: OnConflict


def checked_seen(
    expected_leaf: LeafChoice = sessions.STORED, expected_revision: int | None = None, **unknown: object
) -> Seen:
    """Return the leaf and the revision a caller has seen. Raises `InvalidArgument` unless they can be such."""
    if unknown:
        raise TypeError(f"{', '.join(unknown)}: is no argument of this call")
    if expected_leaf is sessions.STORED and expected_revision is None:
        return sessions.NOTHING_SEEN
    checked_leaf(expected_leaf, "expected_leaf")
    revision = None if expected_revision is None else checked_revision(expected_revision, "expected_revision")
    return Seen(expected_leaf, revision)


def checked_edit(
    by: str | None = None, why: str | None = None, **seen: Unpack[SeenOptions]
) -> tuple[sessions.Note, Seen]:
    """Return who makes an edit and why, and the leaf and the revision it expects. Raises `InvalidArgument`."""
    return sessions.Note(by, why), checked_seen(**seen)


class Landing(NamedTuple):
    """Where an append lands: the leaf its caller has seen, the choice if that is another now, the key of retries."""

    seen: Seen
    on_conflict: OnConflict = "raise"
    idempotency_key: str | None = None


def checked_landing(
    idempotency_key: str | None = None, on_conflict: OnConflict = "raise", **expected: Unpack[SeenOptions]
) -> Landing:
    """Return where an append lands, from the arguments that all appends take. Raises `InvalidArgument`."""
    if idempotency_key is None and on_conflict == "raise" and not expected:
        return Landing(sessions.NOTHING_SEEN)
    seen = checked_seen(**expected)
    sessions.check_choice(on_conflict, "on_conflict", ("raise", "branch", "rebase"))
    sessions.check_name(idempotency_key, "idempotency_key")
    return Landing(seen, on_conflict, idempotency_key)


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


def checked_prefix(prefix: str) -> str:
    """Return ``prefix`` unchanged. Raises `InvalidArgument` if it is empty or no string."""
    if not isinstance(prefix, str) or not prefix:
        raise InvalidArgument(f"id: {shown(prefix)} is not the beginning of an id; give at least one character")
    return prefix


def checked_metadata(metadata: Mapping[str, object] | None, limits: Limits) -> str:
    """Return metadata as JSON text; None is ``{}``. Raises `InvalidArgument`, or `InvalidEntry` naming the field."""
    if metadata is None:
        return "{}"
    if not isinstance(metadata, Mapping):
        raise InvalidArgument(f"metadata: should be an object, not {type(metadata).__name__}")
    text = encode_json(dict(metadata), "metadata")[0]
    limits.check_metadata(text)
    return text


class ChangedMetadata(Frozen):
    """Makes metadata, as text, of those that are stored and new ones, which are merged or take their place.

    Raises as `checked_metadata`.
    """

    text: str
    merge: bool
    limits: Limits

    def __call__(self, stored: str) -> str:
        # Metadata that cannot be read can be replaced.
        if not self.merge and sessions.GUARD_KEY not in stored:
            return self.text
        metadata = decode_object(stored)
        if not self.merge:
            metadata = {sessions.GUARD_KEY: metadata[sessions.GUARD_KEY]} if sessions.GUARD_KEY in metadata else {}
        return checked_metadata({**metadata, **decode_object(self.text)}, self.limits)


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
    if part is None or (isinstance(part, str) and sessions.is_storable(part)):
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
        sessions.check_scope(scope)
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
    sessions.check_choice(order_by, "order_by", sessions.ORDERS)
    return Ordering(order_by, checked_flag(descending, "descending"))


def checked_text(text: str | None, name: str) -> str | None:
    """Return a text, or None, unchanged. Raises `InvalidArgument` if it cannot be stored."""
    sessions.check_label(text, name)
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
    if isinstance(to, sessions.Stored) == (turns is None):
        raise InvalidArgument("rewind takes either to= or turns=")
    checked_leaf(to, "to")
    if turns is not None and (isinstance(turns, bool) or not isinstance(turns, int)):
        raise InvalidArgument(f"turns: {shown(turns)} is not a whole number of turns")


# ---------------------------------------------------------------------------------------------------------------------
# The handle.


class KnownPath(Frozen):
    """The active path as last read, good while the stamp holds, and the beginning of a longer one."""

    stamp: ReadStamp
    entries: list[Entry]


class KnownContext(Selective):
    """The context as last read, good while the stamp holds, and the beginning of a longer one.

    ``tail`` is the stretch of path it was made from. ``counts`` are the tokens of each item, by the name of the
    counter, if they were counted before; ``settings`` are those of the path, one at most, likewise.
    """

    _not_compared: ClassVar[tuple[str, ...]] = ("counts", "settings")
    _not_shown: ClassVar[tuple[str, ...]] = ("counts", "settings")

    stamp: ReadStamp
    items: list[ContextEntry]
    compaction: Entry | None
    tail: Sequence[Entry]
    counts: dict[str, list[int]] = field(default_factory=dict)
    settings: list[PathSettings] = field(default_factory=list)


class KnownChain(Frozen):
    """The running digests of a context as last read, good while the stamp holds."""

    stamp: ReadStamp
    chain: PrefixChain


def waiting_of(handle: Handle) -> Waiting:
    """Return how the calls of a session wait: for code that reads and writes files beside them."""
    return handle._backend.waiting


def is_unchecked(handle: Handle) -> bool:
    """Return whether the store of a session was opened without its key."""
    return handle._backend.is_unchecked


async def stored_row(handle: Handle) -> SessionInfo:
    """Return the session's row as it is stored. The handle keeps its leaf. One point read."""
    return await handle._stored_info()


class Handle:
    """The base of every part of a `Session`: its row, its leaf, its turn."""

    __slots__ = (
        "_backend", "_chains", "_context", "_draft", "_info", "_leaf_id", "_limits", "_path", "_pricer", "_ref",
        "_revision", "_turn",
    )  # fmt: skip

    def __init__(
        self,
        backend: Backend,
        info: SessionInfo,
        limits: Limits = sessions.DEFAULT_LIMITS,
        pricer: CallPricer = NO_PRICER,
        draft: str | None = None,
    ) -> None:
        self._backend = backend
        self._limits = limits
        self._pricer = pricer
        self._turn = backend.waiting.turn()
        self._path: KnownPath | None = None
        self._context: KnownContext | None = None
        self._chains: dict[str | None, KnownChain] = {}
        self._draft = draft
        self._info = info
        self._ref = info.ref
        self._leaf_id = info.leaf_id
        self._revision = info.revision

    def __repr__(self) -> str:
        return f"<Session {self.id!r} key={self.key!r} leaf={self._leaf_id!r} revision={self._revision}>"

    # -- known without asking the store -----------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The id, unique in the store."""
        return self._info.id

    @property
    def ref(self) -> SessionRef:
        """The id, good for this session only: should it be deleted and its id be used again, that is not this one."""
        return self._ref

    @property
    def key(self) -> str | None:
        """The key an application opens it by; unique in its scope."""
        return self._info.key

    @property
    def title(self) -> str | None:
        """The title for people, as of the last `refresh` or `set_title`."""
        return self._info.title

    @property
    def metadata(self) -> JsonObject:
        """The metadata, decoded afresh, as of the last `refresh`, `set_metadata` or `Session.tasks.create`.

        With the names of task sessions that its links say, as `SessionInfo.metadata` has them.
        """
        return self._info.metadata

    @property
    def leaf_id(self) -> str | None:
        """The leaf the next append or move builds on; None before the first entry."""
        return self._leaf_id

    @property
    def draft(self) -> str | None:
        """The text of the entry that ``fork(before=...)`` made this session before; None of every other handle."""
        return self._draft

    @property
    def revision(self) -> int:
        """The session's revision as this handle knows it. `watch` starts after it."""
        return self._revision

    @property
    def info(self) -> SessionInfo:
        """The session's row: ``leaf_id`` and ``revision`` as above, the rest as of the last `refresh`."""
        return replace(self._info, leaf_id=self._leaf_id, revision=self._revision)

    async def refresh(self) -> SessionInfo:
        """Read the session's row again, take over its leaf, and return it. One point read."""
        async with self._turn:
            info = await self._stored_info()
            self._info = info
            self._note(info.leaf_id, info.revision)
            return info

    async def _stored_info(self) -> SessionInfo:
        """Return the session's row as it is stored, which nothing of this handle is made to follow."""
        info = await self._backend.get_session(self._ref)
        if info is None:
            raise SessionNotFound(str(self._ref))
        return info

    def _built_on(self, seen: Seen) -> str | None:
        """Return the leaf that an operation builds on: the one that its caller names, else this handle's."""
        return self._leaf_id if isinstance(seen.leaf, sessions.Stored) else seen.leaf

    def _expected(self, seen: Seen) -> Expected:
        """Return the leaf, or leaf and revision, that an operation on the leaf compares."""
        leaf = self._built_on(seen)
        return leaf if seen.revision is None else Seen(leaf, seen.revision)

    async def _compare(self, seen: Seen) -> None:
        """Compare leaf and revision before anything is read: an operation may have nothing to write."""
        if seen != sessions.NOTHING_SEEN:
            await self._backend.append(self._ref, (), expected=self._expected(seen))

    async def _ask(
        self, method: Callable[Concatenate[str, P], Awaitable[Result]], *args: P.args, **kwargs: P.kwargs
    ) -> Result:
        """Return the answer of the backend about this session, when it is this call's turn."""
        async with self._turn:
            return await method(self._ref, *args, **kwargs)

    async def _commit(self, work: Callable[[], Awaitable[Result]], note: Callable[[Result], None]) -> Result:
        """Do ``work`` when it is this call's turn, and ``note`` the result, also if the caller is cancelled."""
        async with self._turn:
            try:
                result = await work()
            except BaseException as error:
                if (committed := runner.committed_before(error)) is not None:
                    note(cast("Result", committed.result))
                raise
            note(result)
            return result

    def _note(self, leaf_id: str | None, revision: int) -> None:
        self._leaf_id = leaf_id
        self._revision = revision

    def _keep_base(self, base: str | None, stored: str | None) -> None:
        """Keep the leaf that the caller has seen after an append below one that it has not seen."""
        if base != stored:
            self._leaf_id = base

    def _note_append(self, result: Appended) -> None:
        # No entries moved no leaf. A replay may tell of a leaf that this handle has long moved on from.
        if result.entry_ids and (not result.replayed or result.revision > self._revision):
            self._note(result.entry_ids[-1] if result.on_branch else result.leaf_id, result.revision)

    def _note_row(self, info: SessionInfo) -> None:
        self._info = info
        # The leaf stays the one this handle has seen, so that entries of another writer are not built on unseen.
        if info.leaf_id == self._leaf_id:
            self._revision = info.revision

    def _note_read(self, read: LeafRead | ContextRead, leaf: LeafChoice) -> None:
        if isinstance(leaf, sessions.Stored):
            self._note(read.stored_leaf_id, read.revision)

    def _note_move(self, moved: Moved | None) -> None:
        if moved is not None and (not moved.replayed or moved.revision > self._revision):
            self._note(moved.to_id, moved.revision)

    def _note_task(self, task_id: str, child: SessionInfo) -> None:
        self._info = replace(self._info, task_names=self._info.task_names.with_task(task_id, child.id))

    def _note_left(self, left: Left | None) -> None:
        # A leaf that this handle has not seen is not built on.
        if left is not None and left.leaf_id == self._leaf_id:
            self._note(left.leaf_id, max(left.revision, self._revision))

    def _note_outcome(self, outcome: object) -> None:
        if isinstance(outcome, Appended):
            self._note_append(outcome)
        elif isinstance(outcome, Moved):
            self._note_move(outcome)
        elif isinstance(outcome, sessions.Navigated) and outcome.revision >= self._revision:
            self._note(outcome.to_id, outcome.revision)
        elif isinstance(outcome, SessionInfo) and self._ref.session_key == outcome.session_key:
            self._note_row(outcome)
        elif isinstance(outcome, SessionInfo):
            # Until now it was only to be made.
            self._info, self._ref = outcome, outcome.ref
            self._note(outcome.leaf_id, outcome.revision)

    # -- reading ----------------------------------------------------------------------------------------------------

    async def get_active_path(
        self, *, leaf: LeafChoice = sessions.STORED, since: str | None = None, limit: int | None = None
    ) -> list[Entry]:
        """Return the entries from root to leaf; with ``limit``, the last of them, at most so many.

        With ``since``, those after that entry, and none if it is not on the path. A ``limit`` counts entries of every
        kind, and never takes a tool's result without its call: where it would cut in between, fewer entries are
        returned, from the next place on that divides no call and result. Only where there is no such place, because
        the last exchange is longer than ``limit``, that is returned whole.

        O(path), or O(new entries) and a list copy where it goes on from the one read before. With ``limit``: O(limit +
        forks on the path), however long the path, plus the entries between its results and their calls. With ``since``:
        O(entries returned + forks on the path). Raises `EntryNotFound` for a ``leaf`` the session does not see,
        `InvalidArgument` for a ``limit`` below 1 or beside ``since``.
        """
        checked_leaf(leaf)
        checked_place(since, "since")
        if since is not None and limit is not None:
            raise InvalidArgument("get_active_path takes either since= or limit=")
        if limit is not None:
            checked_end(limit)
        async with self._turn:
            if limit is not None:
                return list((await self._backend.read_path_end(self._ref, limit, leaf=leaf)).entries)
            if since is not None:
                return list((await self._backend.read_path_since(self._ref, since, leaf=leaf)).entries)
            cache = self._path
            read = await self._backend.read_path(self._ref, leaf=leaf, unless=None if cache is None else cache.stamp)
            entries = [*cache.entries, *read.entries] if cache is not None and read.goes_on else list(read.entries)
            if isinstance(leaf, sessions.Stored):
                self._path = KnownPath(read.stamp, entries)
            return list(entries)

    async def turns(self, *, leaf: LeafChoice = sessions.STORED) -> list[Entry]:
        """Return the user messages of the path, root to leaf: the turns that `rewind` counts.

        Texts of programs in the user's name (commands, contexts, reminders) begin no turn. Raises `EntryNotFound`.
        O(user messages on the path + its forks).
        """
        checked_leaf(leaf)
        return await self._ask(self._backend.read_turns, leaf=leaf)

    async def settings(self, *, leaf: LeafChoice = sessions.STORED) -> PathSettings:
        """Return the model and the thinking level that the path has at its leaf, or at another; a branch has its own.

        The thinking level is that of the last ``thinking_level_change``; the model, with its provider, that of the last
        answer or ``model_change``, whichever came later. None where the path says nothing. O(entries since the last
        answer or change of model + forks on the path). Raises `EntryNotFound`.
        """
        checked_leaf(leaf)
        return await self._ask(self._backend.read_settings, leaf=leaf)

    async def get_entry(self, entry_id: str) -> Entry | None:
        """Return an entry the session sees, on the path or off it, or None. One point read."""
        checked_id(entry_id, "entry_id")
        return await self._ask(self._backend.get_entry, entry_id)

    async def get_entries(self, ids: Iterable[str]) -> list[Entry | None]:
        """Return the entries with these ids, in the order given, as many as ids; None for one it does not see.

        An id that is given twice is answered twice. O(ids), a statement for every 5,000. Raises `InvalidArgument` for
        anything but a list of ids.
        """
        entry_ids = checked_ids(ids)
        return await self._ask(self._backend.get_entries, entry_ids)

    async def entries(
        self, *, kind: str | None = None, after: str | None = None, newest_first: bool = False, limit: int = 100
    ) -> list[Entry]:
        """Return a page of up to ``limit`` (1 to 1000) of the entries of `get_tree`: of all, or of one kind.

        They come in its order, or from the end with ``newest_first``. A page begins behind ``after``, the id of the
        last entry of the page before, which may have been retracted since; one that is not full is the last. Entries
        that are added meanwhile are met at the end.

        O(limit) for each branch the session made, however long it is. With ``kind``, O(entries behind ``after``),
        though not their payloads; compactions and exclusions are found by an index. Raises `EntryNotFound` for an
        ``after`` that the session never saw, `InvalidArgument` for a text that is no kind, and for another ``limit``.
        """
        optional(checked_kind_name, kind, "kind")
        checked_place(after, "after")
        checked_flag(newest_first, "newest_first")
        checked_limit(limit)
        return await self._ask(
            self._backend.read_entries, kind=kind, after=after, newest_first=newest_first, limit=limit
        )

    async def resolve_entry_id(self, prefix: str) -> str:
        """Return the id of the one entry the session sees whose id is, or begins with, ``prefix``.

        Of the parts of an imported row, ``7ce96d:1`` is the entry ``7ce96d...:1``, and ``7ce96d`` the one without a
        number. Raises `EntryNotFound`, `AmbiguousId`.
        """
        checked_prefix(prefix)
        row, colon, part = prefix.rpartition(":")
        async with self._turn:
            matches = await self._backend.match_entry_ids(self._ref, prefix, _MATCHES)
            if not matches and row and part.isdecimal():
                parts = await self._backend.match_entry_ids(self._ref, row, _MATCHES)
                matches = [entry_id for entry_id in parts if entry_id.endswith(colon + part)]
        if not matches:
            raise EntryNotFound(self.id, prefix)
        if len(matches) > 1 and matches[0] != prefix and not _is_row_of(matches[0], matches[1:]):
            raise AmbiguousId(prefix, tuple(matches[:_AMBIGUOUS]))
        return matches[0]

    async def get_tree(self) -> list[Entry]:
        """Return every entry the session sees, all branches: inherited ones root first, then its own as added.

        Retracted entries are left out. O(entries).
        """
        return await self._ask(self._backend.read_tree)

    async def build_context_entries(
        self, *, leaf: LeafChoice = sessions.STORED, limit: int | None = None
    ) -> list[ContextEntry]:
        """Return the items that the model sees, in order, with the entry behind each.

        The faithful projection of the active path, and of nothing else: the same leaf gives the same items, in
        every process. With ``limit``, the last of these items, at most so many: the summary of a compaction, which
        comes first, is among them only where all the others are. As in `get_active_path`, they never begin between a
        tool call and its result.

        O(kept entries + forks on the path), or O(new entries) and list copies where it goes on from the one read
        before, without exclusions. With ``limit``: O(entries behind the items + forks on the path), plus the entries
        between its results and their calls. Raises `EntryNotFound` for a ``leaf`` the session does not see,
        `InvalidArgument` for a ``limit`` below 1.
        """
        if limit is not None:
            return list(await self._context_end(limit, leaf))
        return list((await self._read_context(leaf, is_base=True)).items)

    async def build_context(self, *, leaf: LeafChoice = sessions.STORED, limit: int | None = None) -> list[JsonObject]:
        """Return the messages the model sees as JSON objects, fresh at each call and the caller's to change.

        With ``limit``, the last of them, at most so many, which begin and cost as `build_context_entries` says. Raises
        as that does.
        """
        checked_leaf(leaf)
        if limit is not None:
            return [item.data for item in await self._context_end(limit, leaf)]
        if self._context is not None and isinstance(leaf, sessions.Stored):
            return [item.data for item in (await self._read_context(leaf, is_base=True)).items]
        async with self._turn:
            read = await self._backend.read_messages(self._ref, leaf=leaf)
            self._note_read(read, leaf)
            return read.messages

    async def _context_end(self, limit: int, leaf: LeafChoice) -> Sequence[ContextEntry]:
        checked_leaf(leaf)
        checked_end(limit)
        async with self._turn:
            read = await self._backend.read_context_end(self._ref, limit, leaf=leaf)
            self._note_read(read, leaf)
            return read.items

    async def _settings_of(self, context: KnownContext) -> PathSettings:
        """Return `settings` at the leaf of a context: read once, since the path to it never changes."""
        if not context.settings:
            context.settings.append(await self.settings(leaf=context.stamp.leaf_id))
        return context.settings[0]

    async def _read_context(self, leaf: LeafChoice, *, is_base: bool = False) -> KnownContext:
        """Return the context; ``is_base`` says that the caller is about to answer it, and builds on it from here on."""
        checked_leaf(leaf)
        async with self._turn:
            cache = self._context
            read = await self._backend.read_context(self._ref, leaf=leaf, unless=None if cache is None else cache.stamp)
            if is_base:
                self._note_read(read, leaf)
            items, compaction, tail = None, read.compaction, read.entries
            if cache is not None and read.goes_on:
                if not read.entries:
                    return cache
                compaction, tail = cache.compaction, [*cache.tail, *read.entries]
                # Only an exclusion may change what an entry behind it adds.
                if all(entry.kind != EXCLUSION for entry in tail):
                    items = [*cache.items, *project_kept(read.entries)]
            context = KnownContext(read.stamp, items or context_of(tail, compaction), compaction, tail)
            if isinstance(leaf, sessions.Stored):
                self._context = context
            return context

    async def _rewind_target(self, to: LeafChoice, turns: int | None, leaf: str | None) -> str | None:
        """Return the leaf that `rewind` goes to. Raises `InvalidArgument` where ``to`` is not on the path."""
        if turns is not None:
            started = await self._backend.read_turns(self._ref, leaf=leaf)
            turn_count = max(0, min(turns if turns >= 0 else len(started) + turns, len(started)))
            return started[turn_count].parent_id if turn_count < len(started) else leaf
        target = cast("str | None", to)
        await self._check_on_path(target, leaf)
        return target

    async def _check_on_path(self, entry_id: str | None, leaf: str | None) -> None:
        if entry_id is None or entry_id == leaf:
            return
        if leaf is None:
            if await self._backend.get_entry(self._ref, entry_id) is None:
                raise EntryNotFound(self.id, entry_id)
        elif await self._backend.is_ancestor(self._ref, entry_id, leaf):
            return
        raise InvalidArgument(f"to: entry {shown(entry_id)} is not on the path to {leaf!r}; move_leaf() goes anywhere")


Of_co = TypeVar("Of_co", bound=Handle, covariant=True)


class Group(Generic[Of_co]):
    """A group of the methods of a session, such as ``session.marks``."""

    __slots__ = ("_session",)

    def __init__(self, session: Of_co) -> None:
        self._session = session

    @property
    def _backend(self) -> Backend:
        return self._session._backend

    @property
    def _ref(self) -> SessionRef:
        return self._session._ref

    async def _ask(
        self, method: Callable[Concatenate[str, P], Awaitable[Result]], *args: P.args, **kwargs: P.kwargs
    ) -> Result:
        return await self._session._ask(method, *args, **kwargs)


def _is_row_of(row: str, others: Sequence[str]) -> bool:
    """Return whether the other ids, of which none was left out, are of parts of the same imported row."""
    return len(others) < _MATCHES - 1 and all(re.fullmatch(rf"{re.escape(row)}:\d+", part_id) for part_id in others)


async def shown_context(session: Handle) -> KnownContext:
    """Return the context for a reader who answers nothing: the session keeps its leaf."""
    return await session._read_context(sessions.STORED)


async def latest_answer(session: Handle, leaf: LeafChoice) -> Entry | None:
    """Return the last assistant message on the path; None if there is none."""
    context = await session._read_context(leaf)
    answer = _last_assistant(context.tail)
    if answer is None and context.compaction is not None:
        answer = _last_assistant(await session.get_active_path(leaf=context.stamp.leaf_id))
    return answer


def _last_assistant(entries: Sequence[Entry]) -> Entry | None:
    """Return the last assistant message of the end of a path; pinned entries from before the end do not count."""
    depth = None
    for entry in reversed(entries):
        if depth is not None and entry.depth != depth - 1:
            break
        depth = entry.depth
        if entry.kind == MESSAGE and entry.role == "assistant":
            return entry
    return None


def reach_by(handle: Handle, backend: Backend) -> None:
    """Let a handle reach its session by another backend of the same store."""
    handle._backend = backend
    handle._turn = backend.waiting.turn()


@asynccontextmanager
async def turns_of(handles: Iterable[Handle]) -> AsyncIterator[None]:
    """Wait for the turns of several handles, in one order for everybody, so that no two wait for each other."""
    async with AsyncExitStack() as turns:
        for handle in sorted(handles, key=lambda handle: (handle.id, id(handle))):
            await turns.enter_async_context(handle._turn)
        yield


class Pages(Protocol):
    """Returns a page of a listing of sessions: `Store.list_sessions` with all but its cursor."""

    async def __call__(self, *, cursor: str | None) -> SessionPage: ...


async def listed_sessions(pages: Pages, damaged: list[str] | None = None) -> AsyncGenerator[SessionInfo, None]:
    """Yield the sessions of a listing, page by page. O(sessions).

    The ids of damaged ones are added to ``damaged``; without it, they raise `CorruptStore`.
    """
    cursor: str | None = None
    while True:
        page = await pages(cursor=cursor)
        if damaged is not None:
            damaged += [session_id for session_id in page.damaged if session_id not in damaged]
        elif page.damaged:
            raise damaged_session(page.damaged[0])
        for info in page.sessions:
            yield info
        cursor = page.next_cursor
        if cursor is None:
            return


async def whole_list(
    read: Callable[..., Awaitable[Sequence[T]]], page_size: int, id_of: Callable[[T], object]
) -> list[T]:
    """Return all of a listing, which is read in pages, each behind the id of the last item of the one before."""
    items: list[T] = []
    while True:
        page = await read(after=id_of(items[-1]) if items else None, limit=page_size)
        items += page
        if len(page) < page_size:
            return items


async def refuse_others(backend: Backend, scope: str | None, ids: Iterable[str]) -> None:
    """Raise `SessionNotFound` for an id whose session is of another scope; None is all, where nothing is read."""
    for session_id in () if scope is None else ids:
        info = await backend.get_session(session_id)
        if info is not None and info.scope != scope:
            raise SessionNotFound(str(session_id))


class Scoped:
    """The part of a `Store` that knows whose sessions it is for."""

    __slots__ = ()
    _backend: Backend
    _scope: str | None

    @property
    def scope(self) -> str | None:
        """The scope that it is narrowed to (see `in_scope`); None is all of them."""
        return self._scope

    def _meant(self, scope: str | None) -> str | None:
        return sessions.scope_meant(self._scope, scope)

    def _place(self, scope: str | None) -> str:
        """Return the scope that something is made in, or named in."""
        place = self._meant(scope) or ""
        sessions.check_scope(place)
        return place

    async def _own(self, session: HasId | str) -> str:
        """Return the id of a session that was named. Raises `SessionNotFound` where it is of a scope of others."""
        session_id = checked_session(session)
        await refuse_others(self._backend, self._scope, [session_id])
        return session_id


# ---------------------------------------------------------------------------------------------------------------------
# Which session a name means: an id or a key, or the beginning of one.

_SESSIONS_MATCHED = 200
_SESSIONS_LISTED = 1000


async def find_named(backend: Backend, name: str, scope: str | None) -> SessionInfo:
    """Return the session that ``name`` means, as `Store.find_session` says. Raises as that does."""
    if not isinstance(name, str):
        raise InvalidArgument(f"name: should be the id or key of a session, not {type(name).__name__}")
    info = await _with_id(backend, name, scope) or await backend.get_session_by_key(name, scope or "")
    if info is None and name:
        info = await _with_beginning_of_id(backend, name, scope)
    if info is None:
        info = await _with_beginning_of_key(backend, name, scope)
    if info is None:
        raise SessionNotFound(name, detail=f"no session has the id or key {shown(name)}, or one that begins with it")
    return info


async def all_sessions(
    backend: Backend, *, scope: str | None = None, kind: SessionKind | None = None, damaged: list[str] | None = None
) -> list[SessionInfo]:
    """Return every session, or those of a scope or kind, most recently active first (see `listed_sessions`)."""
    pages = partial(backend.list_sessions, scope=scope, kind=kind, limit=_SESSIONS_LISTED)
    return [info async for info in listed_sessions(pages, damaged)]


def _spellings(name: str) -> list[str]:
    """Return the spellings of a name: ids that this library makes are hexadecimal, in lower case."""
    is_hexadecimal = all(char in "0123456789abcdefABCDEF-" for char in name)
    return list(dict.fromkeys((name, name.lower()))) if is_hexadecimal else [name]


async def _with_id(backend: Backend, name: str, scope: str | None) -> SessionInfo | None:
    for spelling in _spellings(name):
        info = await backend.get_session(spelling, scope)
        if info is not None:
            return info
    return None


async def _with_beginning_of_id(backend: Backend, name: str, scope: str | None) -> SessionInfo | None:
    for spelling in _spellings(name):
        ids = await backend.match_session_ids(spelling, _SESSIONS_MATCHED)
        if scope is not None and len(ids) < _SESSIONS_MATCHED:
            ids = [match for match in ids if await backend.get_session(match, scope) is not None]
        elif scope is not None:
            # Not all are here: those of others may stand before the one that is meant.
            everything = await all_sessions(backend, scope=scope, damaged=[])
            ids = sorted(info.id for info in everything if info.id.startswith(spelling))[:_SESSIONS_MATCHED]
        if not ids:
            continue
        # Imported task sessions are called by their parent's id, a colon and more: alone, it means the parent.
        of_one = all(match.startswith(f"{ids[0]}:") for match in ids[1:])
        if len(ids) == _SESSIONS_MATCHED or not of_one:
            raise AmbiguousId(name, tuple(ids[:_AMBIGUOUS]))
        return await backend.get_session(ids[0], scope)
    return None


async def _with_beginning_of_key(backend: Backend, name: str, scope: str | None) -> SessionInfo | None:
    """Look through all keys: a key is unique within a scope only, and people do not think of scopes."""
    everything = await all_sessions(backend, scope=scope, damaged=[])
    whole = [info for info in everything if info.key == name]
    begun = [info for info in everything if name and info.key is not None and info.key.startswith(name)]
    matches = whole or begun
    if len(matches) > 1:
        raise AmbiguousId(name, tuple(info.id for info in matches[:_AMBIGUOUS]))
    return matches[0] if matches else None


# ---------------------------------------------------------------------------------------------------------------------
# Forks and the sessions they came from: their names, and where they begin.


async def source_of(backend: Backend, info: SessionInfo) -> SessionInfo | None:
    """Return the session that a fork without a name of its own is known by; None if it is gone or damaged."""
    source = info.forked_from_session if views.needs_source(info) else None
    with suppress(CorruptStore):
        return None if source is None else await backend.get_session(source)
    return None


async def names_of(backend: Backend, listed: Sequence[SessionInfo]) -> dict[str, str]:
    """Return the names that people know sessions by, by id. O(listed); the sources of nameless forks are read."""
    there = {info.id: info for info in listed}
    for info in listed:
        if info.forked_from_session not in there and (source := await source_of(backend, info)) is not None:
            there[source.id] = source
    return {info.id: views.session_name(info, there.get(info.forked_from_session or "")) for info in listed}


async def forks_seen(backend: Backend, info: SessionInfo, seen: Collection[str]) -> dict[str | None, list[SessionInfo]]:
    """Return the forks, and forks of forks, that begin at an entry the session sees, oldest first. O(forks).

    ``seen`` are the ids of those entries. They are by the id of the entry, None for forks from before the first one.
    """
    forks = {fork.id: fork for fork in await all_sessions(backend, kind="fork", damaged=[])}
    origins: dict[str, str] = {}

    def origin_of(session_id: str) -> str:
        climbed = []
        at = session_id
        while at not in origins and at in forks and at not in climbed:
            climbed.append(at)
            at = forks[at].forked_from_session or at
        origins.update(dict.fromkeys(climbed, origins.get(at, at)))
        return origins.get(at, at)

    family = [fork for fork in forks.values() if fork.id != info.id and origin_of(fork.id) == origin_of(info.id)]
    forks_by_source: dict[str | None, list[SessionInfo]] = {}
    for fork in sorted(family, key=lambda fork: (fork.created_us, fork.id)):
        begins = fork.forked_from_entry
        if begins in seen if begins else fork.forked_from_session == info.id:
            forks_by_source.setdefault(begins, []).append(fork)
    return forks_by_source
