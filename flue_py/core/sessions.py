"""What a store tells about sessions: rows of the listing, results of operations, changes, reports."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from datetime import datetime
from decimal import Decimal
from typing import Literal, NamedTuple, TypeAlias

from flue_py.core.calls import CallDifference
from flue_py.core.entries import Entry, from_microseconds, is_moment
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, decode_object
from flue_py.core.shapes import Shape
from flue_py.core.task_names import NO_TASK_NAMES, TaskNames
from flue_py.core.usage import known_cost, picodollars_to_usd
from flue_py.errors import InvalidArgument, InvalidEntry, SessionNotFound, shown

SessionKind: TypeAlias = Literal["root", "fork", "task"]
OnConflict: TypeAlias = Literal["raise", "branch", "rebase"]
MoveReason: TypeAlias = Literal["move", "rewind", "retract", "undo", "redo", "branch", "import", "back"]
EntryPlace: TypeAlias = Literal["active", "abandoned", "compacted"]
"""Where an entry lies: in the context, on another branch than the leaf's, or on its path, but compacted away."""


class Stored:
    """The type of `STORED`: "whatever leaf is stored", where None already means "before the first entry"."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "STORED"


STORED = Stored()
LeafChoice: TypeAlias = str | None | Stored


@frozen
class Seen:
    """What a caller has seen of a session, which a write compares with what is stored, in its own transaction.

    ``leaf`` is the leaf (`STORED`: whatever is stored), ``revision`` the revision (None: any).
    """

    leaf: LeafChoice = STORED
    revision: int | None = None


NOTHING_SEEN = Seen()
Expected: TypeAlias = LeafChoice | Seen
"""What a write compares: a leaf, or what was seen."""


def leaf_of(expected: Expected) -> LeafChoice:
    """Return the leaf that is expected."""
    return expected.leaf if isinstance(expected, Seen) else expected


EditMetadata: TypeAlias = Callable[[str], str]
"""Makes new metadata of those that are stored: JSON text of each."""


@frozen
class SessionInfo:
    """A session as its row describes it, without its history.

    ``entry_count`` and ``message_count`` count what this session itself added (retracted entries excluded);
    ``spent_tokens`` and ``spent_picodollars`` are the paid calls it reported, of which ``unpriced_calls`` are not in
    the cost because it is unknown. Of ``unknown_calls`` among them the tokens are unknown, too. ``title`` was
    given by a person, ``auto_title`` made by a program. ``active_us`` is the time of the newest entry that it added, by
    the entries' own times, so that an imported session was last active when its file says; of a session that has added
    none, a fork for one, it is that of its creation. ``task_names`` are what links say of it, which is not compared: it
    is no part of the row.
    """

    id: str
    scope: str = ""
    key: str | None = None
    title: str | None = None
    kind: SessionKind = "root"
    forked_from_session: str | None = None
    forked_from_entry: str | None = None
    leaf_id: str | None = None
    revision: int = 0
    metadata_text: str = "{}"
    cwd: str | None = None
    config_path: str | None = None
    completed_us: int | None = None
    trashed_us: int | None = None
    entry_count: int = 0
    message_count: int = 0
    first_message: str | None = None
    spent_tokens: int = 0
    spent_picodollars: int = 0
    created_us: int = 0
    updated_us: int = 0
    auto_title: str | None = None
    unpriced_calls: int = 0
    active_us: int = 0
    unknown_calls: int = 0
    session_key: int = field(default=0, compare=False, repr=False)
    task_names: TaskNames = field(default=NO_TASK_NAMES, compare=False, repr=False)

    @property
    def ref(self) -> SessionRef:
        """The id, good for this session only, should it be deleted and its id be used again."""
        return SessionRef(self.id, self.session_key)

    @property
    def metadata(self) -> JsonObject:
        """The session's metadata, decoded afresh, with the names of task sessions that its links say.

        ``taskSessions`` has a ``session``, ``taskId`` and ``storageKey`` for each link to a task session, deleted ones
        among them: both names are the session's id. A session that is linked to has its ``parentSession`` (of several,
        the first by id) and the ``taskId`` there, and a task the ``depth`` at which it is nested. None of that is
        stored: ``metadata_text`` is the text that is. What was stored under these names stands before it.
        """
        return self.task_names.added_to(decode_object(self.metadata_text))

    @property
    def created_at(self) -> datetime:
        """When the session was created (UTC)."""
        return from_microseconds(self.created_us)

    @property
    def updated_at(self) -> datetime:
        """When the session last changed (UTC)."""
        return from_microseconds(self.updated_us)

    @property
    def active_at(self) -> datetime:
        """When the session was last active (UTC): the time of its newest entry, or of its creation."""
        return from_microseconds(self.active_us)

    @property
    def shown_title(self) -> str | None:
        """What the session is known by: the title it was given, else the one that was made, its key, how it begins.

        None if it has none of them: a fork is then known by what it was forked from.
        """
        return self.title or self.auto_title or self.key or self.first_message

    @property
    def spent(self) -> Decimal:
        """What the session's own paid calls cost, in US dollars, exact; without those that have no price."""
        return picodollars_to_usd(self.spent_picodollars)

    @property
    def known_spent(self) -> Decimal | None:
        """`spent`, or None if all of it is unknown: no call has a price, or no call was reported for the messages."""
        return None if self.is_untold else known_cost(self.spent_picodollars, self.unpriced_calls)

    @property
    def known_tokens(self) -> int | None:
        """``spent_tokens``, or None if all are unknown: no call reported any, or no call was reported at all."""
        return None if self.is_untold or (self.unknown_calls and not self.spent_tokens) else self.spent_tokens

    @property
    def is_untold(self) -> bool:
        """Whether something was said here, and nothing told what that used: no call is known, which is not to say 0."""
        return bool(self.message_count) and not (self.spent_tokens or self.spent_picodollars or self.unpriced_calls)


@frozen
class NewSession:
    """A session to be created. ``id`` is chosen by the store where it is None.

    ``kind`` is what an import makes of it: a task session may come before the session whose task it is. Forks and the
    tasks of `create_task` are what they are.
    """

    key: str | None = None
    title: str | None = None
    scope: str = ""
    metadata_text: str = "{}"
    cwd: str | None = None
    config_path: str | None = None
    id: str | None = None
    created_us: int | None = None
    auto_title: str | None = None
    kind: Literal["root", "task"] = "root"

    def __post_init__(self) -> None:
        if self.kind not in ("root", "task"):
            raise InvalidArgument(f"kind: {shown(self.kind)} is not 'root' or 'task'")
        check_name(self.key, "key")
        object.__setattr__(self, "title", checked_title(self.title, "title"))
        object.__setattr__(self, "auto_title", checked_title(self.auto_title, "auto_title"))
        check_scope(self.scope)
        check_label(self.cwd, "cwd")
        check_label(self.config_path, "config_path")
        check_new_name(self.id, "session id")
        if not isinstance(self.metadata_text, str):
            raise InvalidArgument(f"metadata_text: should be JSON text, not {type(self.metadata_text).__name__}")
        if self.created_us is not None and not is_moment(self.created_us):
            raise InvalidArgument(f"created_us: {shown(self.created_us)} is not a time in microseconds since 1970 UTC")
        if self.id == "":
            raise InvalidArgument("session id: must not be empty; leave it out to have one made")


def checked_title(title: str | None, what: str = "title") -> str | None:
    """Return a title, or None if it is only white space. Raises `InvalidArgument`."""
    check_label(title, what)
    return title if title is not None and title.strip() else None


def check_label(text: str | None, what: str) -> None:
    """Refuse what no backend could store as a short text: NUL and lone surrogates. Raises `InvalidArgument`."""
    if text is None:
        return
    if not isinstance(text, str):
        raise InvalidArgument(f"{what}: should be a string, not {type(text).__name__}")
    if not is_storable(text):
        raise InvalidArgument(f"{what}: holds a NUL character or a lone surrogate; remove it")


MAX_LABEL_CHARACTERS = 200


def check_entry_label(label: str | None) -> None:
    """Refuse what no backend takes as the label of an entry. Raises `InvalidArgument`."""
    check_label(label, "label")
    if label is not None and len(label) > MAX_LABEL_CHARACTERS:
        raise InvalidArgument(
            f"label: {len(label)} characters are too many; a label has at most {MAX_LABEL_CHARACTERS}"
        )


MAX_NAME_BYTES = 1_000
"""How long a name may be, in UTF-8: what indexes of every database take."""


def check_name(text: str | None, what: str) -> None:
    """Refuse what no backend could store as an id or a key. Raises `InvalidArgument`."""
    check_label(text, what)
    if text is not None and 4 * len(text) > MAX_NAME_BYTES and len(text.encode()) > MAX_NAME_BYTES:
        raise InvalidArgument(f"{what}: {text[:40]!r}... is longer than {MAX_NAME_BYTES} bytes; shorten it")


def check_new_name(text: str | None, what: str) -> None:
    """Refuse a bad name for something new, with control characters, too, which a terminal would act on.

    What is there already under such a name goes on being found. Raises `InvalidArgument`.
    """
    check_name(text, what)
    if text is not None and not text.isprintable() and _CONTROLS.search(text):
        raise InvalidArgument(f"{what}: {shown(text)} holds a control character; leave it out")


def above_prefix(prefix: str) -> str:
    """Return a text that every scope which begins with ``prefix`` is below, in the order of databases."""
    return prefix + "\U0010ffff" * (MAX_NAME_BYTES // 4 + 1)


def check_scope(scope: str) -> None:
    """Refuse a bad scope; "" is the default one. Raises `InvalidArgument`."""
    if scope is None:
        raise InvalidArgument("scope: should be a string, not None; the default scope is ''")
    check_name(scope, "scope")


def scope_meant(own: str | None, scope: str | None) -> str | None:
    """Return the scope that a call on a store means; None is all. Raises `InvalidArgument` for another than its own."""
    check_label(scope, "scope")
    if own is not None and scope not in (None, own):
        raise InvalidArgument(f"scope: this store is of scope {shown(own)}, not of {shown(scope)}")
    return own if scope is None else scope


def check_entry_id(text: str) -> None:
    """Refuse a bad id for a new entry. Raises `InvalidEntry`."""
    if type(text) is str and 0 < len(text) <= MAX_NAME_BYTES and text.isascii() and text.isprintable():
        return
    if text == "" or text is None:
        raise InvalidEntry("entry id: must not be empty; leave it out to have one made")
    try:
        check_new_name(text, "entry id")
    except InvalidArgument as error:
        raise InvalidEntry(str(error)) from error


def is_storable(text: str) -> bool:
    """Return whether a text can be an id, a key or a title: it holds neither NUL nor a lone surrogate."""
    return "\0" not in text and (text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text))


_CONTROLS = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Control characters other than tab and line ends; a person does not type them into a name."""


def is_usable(name: str) -> bool:
    """Return whether a name can be stored, typed and shown."""
    return is_name(name) and _CONTROLS.search(name) is None


def is_name(text: object) -> bool:
    """Return whether something can be an id or a key: a text that is storable, not empty, and not too long."""
    return isinstance(text, str) and text != "" and is_storable(text) and len(text.encode()) <= MAX_NAME_BYTES


class SessionRef(str):
    """The id of a session, and which of those that ever had it is meant: an id may be used again after a deletion.

    It is the id wherever an id is wanted; a store that is given one raises `SessionNotFound` for any other session.
    """

    __slots__ = ("session_key",)

    session_key: int

    def __new__(cls, session_id: str, session_key: int) -> SessionRef:
        """Return the id of the session with this key."""
        ref = super().__new__(cls, session_id)
        ref.session_key = session_key
        return ref


def is_meant(session_id: str, session_key: int) -> bool:
    """Return whether the session with this key, which has the id now, is the one that was asked for."""
    return type(session_id) is not SessionRef or session_id.session_key == session_key


def all_meant(names: Iterable[str]) -> Callable[[str, int], bool]:
    """Return what tells by id and key whether a session is meant by one of the names.

    A `SessionRef` among them means its own session, another text whichever ones ever had the id.
    """
    keys: dict[str, set[int]] = {}
    for name in names:
        if type(name) is SessionRef:
            keys.setdefault(str(name), set()).add(name.session_key)
    return lambda session_id, key: session_id not in keys or key in keys[session_id]


def require_meant(session_id: str, session_key: int) -> None:
    """Raise `SessionNotFound` if the id was used again, and another session is meant."""
    if not is_meant(session_id, session_key):
        raise SessionNotFound(
            session_id,
            detail=f"session {str(session_id)!r} was deleted, and its id has been used again, for another session, "
            "which this handle does not touch; get a handle on that one with get_session()",
        )


@frozen
class SessionPage:
    """One page of sessions, in the order that was asked for; ``next_cursor`` is None on the last."""

    sessions: tuple[SessionInfo, ...]
    next_cursor: str | None = None


TaskEnd: TypeAlias = Literal["done", "failed"]
TaskStatus: TypeAlias = Literal["running"] | TaskEnd
TASK_ENDS: tuple[TaskEnd, ...] = ("done", "failed")

MAX_TASK_SUMMARY_CHARACTERS = 20_000


def check_task_end(status: TaskEnd, summary: str | None) -> None:
    """Refuse what is no end of a task, and a summary that cannot be stored. Raises `InvalidArgument`."""
    if status not in TASK_ENDS:
        raise InvalidArgument(f"status: {shown(status)} is not 'done' or 'failed'")
    check_label(summary, "summary")
    if summary is not None and len(summary) > MAX_TASK_SUMMARY_CHARACTERS:
        raise InvalidArgument(
            f"summary: {len(summary)} characters are too many; at most {MAX_TASK_SUMMARY_CHARACTERS} are kept. "
            "What the task said stands in its own history"
        )


@frozen
class TaskLink:
    """A parent's link to a task session, in the order they were made. A link outlives its child.

    ``entry_id`` is the entry of the parent below which the task began, where that is known: the leaf when it was made.
    ``status`` is ``running`` from `create_task` on, and ``done`` or ``failed``, with a ``summary``, once `end_task`
    said so; None where nobody said, as of links that were made alone or by older versions.
    """

    parent_id: str
    position: int
    task_id: str
    child_id: str
    entry_id: str | None = None
    status: TaskStatus | None = None
    summary: str | None = None


@frozen
class ConvertedMessage:
    """A message that came in the form of a provider (``shape``), and was converted into ours.

    ``index`` is its place among the messages of the call, ``entry_ids`` what it became: one or more entries.
    """

    index: int
    shape: Shape
    entry_ids: tuple[str, ...]


@frozen
class Appended:
    """The result of an append.

    ``leaf_id`` is the session's leaf afterwards: the last new entry, or the unmoved leaf where the entries
    landed on a sibling branch (``on_branch``). ``parent_id`` is the entry that the first new one was appended below:
    None for a root, and for an import. ``replayed`` says that this was the retry of an earlier call.
    ``call_conflicts`` are paid calls that an import met again with other numbers; the ledger keeps the first ones.
    ``oddities`` say what of the usage that came with the entries was not counted as it was reported, and why, and from
    where a compaction keeps, if not from where it was asked to.
    ``converted`` are the messages that came in a provider's form, each with the entries it became.
    """

    entry_ids: tuple[str, ...]
    leaf_id: str | None
    revision: int
    on_branch: bool = False
    replayed: bool = False
    surrogates_replaced: int = 0
    call_conflicts: tuple[CallDifference, ...] = ()
    oddities: tuple[str, ...] = ()
    converted: tuple[ConvertedMessage, ...] = ()
    parent_id: str | None = None

    @property
    def entry_id(self) -> str:
        """The id of the last new entry. Raises `ValueError` if nothing was appended."""
        if not self.entry_ids:
            raise ValueError("nothing was appended, so there is no entry id")
        return self.entry_ids[-1]


@frozen
class Moved:
    """The result of a leaf move, a retraction, an undo or a redo."""

    from_id: str | None
    to_id: str | None
    revision: int
    reason: MoveReason
    replayed: bool = False


@frozen
class Navigated:
    """The result of a navigation: the leaf before and after it, and the session's revision.

    ``summary_id`` is the summary of what was left, if one was appended: it is the leaf then. ``draft`` is the text of
    what a person wrote, if that was the target, for an editor. ``cancelled`` says that the callback kept it from
    happening.
    """

    from_id: str | None
    to_id: str | None
    revision: int
    summary_id: str | None = None
    draft: str | None = None
    cancelled: bool = False


@frozen
class ReadStamp:
    """What a read depended on. While it is unchanged, so is the answer."""

    leaf_id: str | None
    epoch: int


@frozen
class PathRead:
    """Entries from root to leaf (or after an anchor, or the kept part of a context), with the state read.

    ``entries`` is None if the caller's stamp still held. ``compaction`` is the latest one on the path, where
    a context was asked for; where it has pinned entries, these come before the kept part, and with them the
    exclusions of the path up to there.
    """

    leaf_id: str | None
    stored_leaf_id: str | None
    revision: int
    stamp: ReadStamp
    entries: Sequence[Entry] | None
    compaction: Entry | None = None


@frozen
class MessagesRead:
    """What the model sees at a leaf, as JSON messages that are the reader's own, with the state read."""

    leaf_id: str | None
    stored_leaf_id: str | None
    revision: int
    messages: list[JsonObject]


class SessionHead(NamedTuple):
    """What a search needs of a session: which it is, how far it has come, and by what it can be left out."""

    session_key: int
    id: str
    revision: int
    scope: str
    cwd: str | None
    entry_count: int
    forked_from_session: str | None
    updated_us: int


@frozen
class Change:
    """One revision of a session: what was added, and where the leaf was afterwards.

    ``reason`` is ``append`` or that of a leaf move, ``None`` for a change of the session row alone. An append
    that was retracted later keeps its entries here.
    """

    session_id: str
    revision: int
    reason: Literal["append"] | MoveReason | None
    entries: tuple[Entry, ...] = ()
    from_id: str | None = None
    to_id: str | None = None
    at_us: int | None = None


@frozen
class Mark:
    """A session's mark on an entry: a ``label`` (with its text), a ``pin`` (``on``, ``off``), or ``retracted``."""

    entry_id: str
    kind: str
    value: str | None = None


def retracted_in(marks: Iterable[Mark]) -> frozenset[str]:
    """Return the entries that a session has retracted, of its marks: they are in none of its views."""
    return frozenset(mark.entry_id for mark in marks if mark.kind == "retracted")


@frozen
class Deletion:
    """What deleting a session tree removes or removed.

    ``session_ids``: the session and the closure of its task links, in no particular order. ``missing_ids``:
    linked children that were not there. ``entries_kept`` counts entries of these sessions that stay because
    another session sees them. ``links`` are the links that were followed, as (parent, child): of each session that
    goes, in the order they were made.
    """

    session_ids: tuple[str, ...]
    missing_ids: tuple[str, ...] = ()
    entries_deleted: int = 0
    entries_kept: int = 0
    links: tuple[tuple[str, str], ...] = ()


class ScopeContents(NamedTuple):
    """What the store has in a scope beside sessions; the calls are those that its sessions paid for."""

    memories: int
    files: int
    budgets: int
    calls: int


@frozen
class ScopeDeletion:
    """What deleting a scope removes or removed.

    ``calls`` is how many paid calls stay in the ledger, without their agents and folders. ``entries_kept`` counts
    entries that stay because a session of another scope sees them. The numbers of entries are None in a dry run.
    """

    session_ids: tuple[str, ...]
    entries_deleted: int | None
    entries_kept: int | None
    memories: int
    files: int
    budgets: int
    calls: int


@frozen
class Problem:
    """One disagreement that `verify` found: what kind, where, and what disagrees."""

    kind: str
    where: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.where}: {self.detail}"


@frozen
class VerifyReport:
    """What `verify` looked at, and what disagrees (``problems`` is empty when all is well)."""

    sessions: int
    entries: int
    problems: list[Problem] = field(default_factory=list)


@frozen
class StoreInfo:
    """What a store says of itself. ``size_bytes`` is None if there is no file."""

    backend: str
    location: str
    format_version: int
    sessions: int
    entries: int
    ledger_rows: int
    size_bytes: int | None
    documents: int = 0
