"""Sessions as values: ids, limits, rows of the listing, results of operations, documents, the log."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from hashlib import blake2b
from typing import ClassVar, Literal, TypeAlias, cast, get_args

from msgspec import field
from msgspec.structs import asdict, force_setattr, replace

from flue_py.core.entries import Entry, NewEntry, from_microseconds, is_moment
from flue_py.core.json import (
    Frozen,
    JsonObject,
    JsonValue,
    NamedTuple,
    Selective,
    decode_json,
    decode_object,
    encode_json,
    payload_digest,
    to_json,
)
from flue_py.core.kinds import COMPACTION, EXCLUSION, MESSAGE, Shape, kind_of, message_preview, message_text
from flue_py.core.usage import CallDifference, is_whole, known_cost, picodollars_to_usd
from flue_py.errors import CorruptStore, InvalidArgument, InvalidEntry, SessionNotFound, shown
from flue_py.lazy import expression

# ---------------------------------------------------------------------------------------------------------------------
# Ids that are made from the names of a thing, so that the same thing always has the same one.
#
# They are stored: the hashed names, and the way of hashing, cannot change.


def made_id(*parts: str) -> str:
    """Return an id made from texts: 16 hex characters, the same every time."""
    return _hex("\0".join(parts).encode(errors="surrogatepass"), 8)


def derived_id(*parts: str | int) -> str:
    """Return the id of a row of a file that has none, from the fields that set it apart: 16 hex characters."""
    return _hex("\n".join(map(str, parts)).encode(errors="replace"), 8)


def call_id(format_name: str, identity: bytes) -> str:
    """Return the id of a paid call that its file gives none, from its identifying bytes: ``pi:`` and 24 hex."""
    return f"{format_name}:{_hex(identity, 12)}"


def _hex(data: bytes, size: int) -> str:
    return blake2b(data, digest_size=size).hexdigest()


# ---------------------------------------------------------------------------------------------------------------------
# How much one call may bring: bounds that a mistake runs into before the database does.

_WIDEST_CHARACTER = 4
# The limits of SQLite (1 GB for a row) and PostgreSQL (1 GB for a statement), with room for the rest of the row.
# A store's own reads unpack up to this: whatever was stored under some limits is read under all others.
LARGEST_ENTRY = 512 * 2**20

_LARGEST = 2**31 - 1  # every database counts that far


class Limits(Frozen, kw_only=True):
    """The most that one call may bring. Raises `InvalidArgument` if one is not a limit.

    They are of the store that was opened, not of the database: an entry of another process is read whatever
    its size, up to the 512 MiB that no limit exceeds. Bytes are those of the JSON in UTF-8, before compression. Files
    to import and bundles are held to them before anything of them is unpacked.
    """

    entry_bytes: int = 64 * 2**20
    """One entry: its payload, and the fields that an import keeps with it; or one document. 1 to 512 MiB."""
    batch_entries: int = 100_000
    """The entries of one append or import, which are one transaction."""
    metadata_bytes: int = 2**20
    """The metadata of one session."""
    document_bytes: int = 512 * 2**20
    """A file to import of a format that is read as a whole. The values in it may take three times as much memory."""
    extraction_bytes: int = 2**30
    """The memory that extracting the text of a document may take, beside that of its library. On Linux."""
    extraction_seconds: int = 60
    """The time on a processor that extracting the text of a document may take."""
    task_depth: int = 4
    """How many levels of tasks may be below a session that is not a task."""
    sessions_per_page: int = 1_000
    """The sessions of one page of `Store.list_sessions`."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not is_whole(value, 1, _LARGEST):
                raise InvalidArgument(f"limits: {name}: {shown(value)} is not a whole number from 1 to {_LARGEST}")
        if self.entry_bytes > LARGEST_ENTRY:
            raise InvalidArgument(
                f"limits: entry_bytes: {shown(self.entry_bytes)} is more than databases take in a row; "
                f"give at most {LARGEST_ENTRY}"
            )

    def check_entries(self, entries: Sequence[NewEntry]) -> None:
        """Raise `InvalidEntry` for too many entries, or for one that is too large, by its position. O(entries)."""
        if len(entries) > self.batch_entries:
            raise InvalidEntry(
                f"{len(entries)} entries at once are more than {self.batch_entries}; bring them in smaller batches, "
                "or open the store with other limits (batch_entries)"
            )
        for position, entry in enumerate(entries):
            length = len(entry.payload) + len(entry.extra) if entry.extra else len(entry.payload)
            if _WIDEST_CHARACTER * length <= self.entry_bytes:
                continue
            size = self._excess(entry.payload, entry.extra or "", self.entry_bytes)
            if size is not None:
                raise InvalidEntry(
                    f"entry {position} of {len(entries)} ({entry.kind}): {size} bytes are more than "
                    f"{self.entry_bytes}; keep large content elsewhere and refer to it, or open the store with "
                    "other limits (entry_bytes)"
                )

    def check_metadata(self, text: str) -> None:
        """Raise `InvalidArgument` if the JSON text of a session's metadata is too long."""
        self._check_length("metadata", text, "metadata_bytes", "append a custom entry instead")

    def check_document(self, body: str) -> None:
        """Raise `InvalidArgument` if the text of a memory or of a file is too long."""
        self._check_length("body", body, "entry_bytes", "store a part of it")

    def _check_length(self, name: str, text: str, limit: str, remedy: str) -> None:
        size = self._excess(text, "", getattr(self, limit))
        if size is not None:
            raise InvalidArgument(
                f"{name}: {size} bytes are more than {getattr(self, limit)}; {remedy}, or open the store with other "
                f"limits ({limit})"
            )

    def check_page(self, limit: int) -> None:
        """Raise `InvalidArgument` if ``limit`` is not a number of sessions for one page."""
        if not is_whole(limit, 1, self.sessions_per_page):
            raise InvalidArgument(
                f"limit: {shown(limit)} is not a number from 1 to {self.sessions_per_page}; read page by page"
            )

    @staticmethod
    def _excess(text: str, extra: str, most: int) -> int | None:
        """Return how many bytes two texts take, or None if that is not more than ``most``."""
        if _WIDEST_CHARACTER * (len(text) + len(extra)) <= most:
            return None
        size = len(text.encode()) + len(extra.encode())
        return size if size > most else None


DEFAULT_LIMITS = Limits()


# ---------------------------------------------------------------------------------------------------------------------
# Task sessions in metadata, in the way of the reference.

OF_PARENT = ("parentSession", "taskId", "depth")
"""The names under which a task session's metadata say whose task it is."""
TASKS = "taskSessions"
OF_TASKS = frozenset({*OF_PARENT, TASKS})
"""The names that are made of links."""


class TaskReference(Frozen):
    """A task session in a parent's metadata: its storage key, its name, and the task's id."""

    storage_key: str
    session: str
    task_id: str


def task_references(metadata: Mapping[str, JsonValue]) -> tuple[TaskReference, ...]:
    """Return the task sessions that a document's metadata names, in order.

    An item without a storage key is passed over, as the reference does when it deletes.
    """
    items = (item for item in _listed(metadata) if isinstance(item, dict))
    return tuple(
        TaskReference(key, _text(item.get("session")), _text(item.get("taskId")))
        for item in items
        if isinstance(key := item.get("storageKey"), str)
    )


def session_of(storage_key: str) -> str:
    """Return the session that the document of a storage key becomes: it has the name of its file."""
    return storage_key.rpartition("/")[2].removesuffix(".json")


class TaskNames(Frozen):
    """The names that the links of a session give: the task sessions it started, and the session that started it.

    ``tasks`` has the task's id and the session's id of each link, in the order they were made. ``parent`` is the first
    parent by id, with the task's id there, and ``depth`` how deep the session is nested, if it is of kind ``task``.
    """

    tasks: tuple[tuple[str, str], ...] = ()
    parent: tuple[str, str] | None = None
    depth: int | None = None

    def with_task(self, task_id: str, child_id: str) -> TaskNames:
        """Return the names with those of one more task, unless it is there."""
        if any(child_id == task_child for _, task_child in self.tasks):
            return self
        return replace(self, tasks=(*self.tasks, (task_id, child_id)))

    def added_to(self, metadata: JsonObject) -> JsonObject:
        """Return metadata as they are shown: with the names of the links that they do not have themselves."""
        if self == NO_TASK_NAMES:
            return metadata
        named = {session_of(task.storage_key) for task in task_references(metadata)}
        tasks = [item for item in self._items() if item["session"] not in named]
        shown: JsonObject = {**metadata}
        if tasks and isinstance(metadata.get(TASKS, []), list):
            shown[TASKS] = [*_listed(metadata), *tasks]
        # A parent that is stored may be another one, whose task has another id and depth.
        parent = {} if "parentSession" in metadata else self._of_parent()
        return {**shown, **{name: value for name, value in parent.items() if name not in metadata}}

    def taken_from(self, text: str, stored: str) -> str:
        """Return metadata as they are to be stored: without the names of the links, unless it is ``stored`` already."""
        if self == NO_TASK_NAMES or not any(f'"{name}"' in text for name in OF_TASKS):
            return text
        metadata, before = decode_object(text), decode_object(stored)
        linked_names = [
            name
            for name, value in self._of_parent().items()
            if _says(metadata, name, value) and not _says(before, name, value)
        ]
        # Beside another parent the rest of them would not be shown.
        left_out = linked_names if "parentSession" in linked_names else []
        remaining = {name: value for name, value in metadata.items() if name not in left_out}
        listed, linked, stored_items = _listed(metadata), [*self._items()], _listed(before)
        left = [item for item in listed if item in stored_items or item not in linked]
        if left or (listed and before.get(TASKS) == []):
            remaining[TASKS] = left
        elif listed:
            del remaining[TASKS]
        return text if remaining == metadata else encode_json(remaining, "metadata")[0]

    def _items(self) -> Iterator[JsonObject]:
        for task_id, child_id in self.tasks:
            yield {"session": child_id, "taskId": task_id, "storageKey": child_id}

    def _of_parent(self) -> JsonObject:
        if self.parent is None:
            return {}
        parent_id, task_id = self.parent
        depth: JsonObject = {} if self.depth is None else {"depth": self.depth}
        return {"parentSession": parent_id, "taskId": task_id, **depth}


NO_TASK_NAMES = TaskNames()


def without_parent(text: str) -> str:
    """Return the metadata of a new task session, without the names that its link will give."""
    metadata = decode_object(text)
    own = {name: value for name, value in metadata.items() if name not in OF_PARENT}
    return text if own == metadata else encode_json(own, "metadata")[0]


def without_tasks(metadata: JsonObject) -> JsonObject:
    """Return the metadata of a session for another one, which is nobody's task, and has none.

    A ``taskId`` or ``depth`` beside no ``parentSession`` is the application's own, and stays.
    """
    of_tasks = OF_TASKS if "parentSession" in metadata else {TASKS}
    return {name: value for name, value in metadata.items() if name not in of_tasks}


def _listed(metadata: Mapping[str, JsonValue]) -> list[JsonValue]:
    listed = metadata.get(TASKS)
    return listed if isinstance(listed, list) else []


def _says(metadata: Mapping[str, JsonValue], name: str, value: JsonValue) -> bool:
    stored = metadata.get(name)
    return type(stored) is type(value) and stored == value


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


# ---------------------------------------------------------------------------------------------------------------------
# Sessions: rows of the listing, results of operations, changes, reports.

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


class Seen(Frozen):
    """The state of a session that a caller has seen: a write compares it with the stored one, in its own transaction.

    ``leaf`` is the leaf (`STORED`: whatever is stored), ``revision`` the revision (None: any).
    """

    leaf: LeafChoice = STORED
    revision: int | None = None


NOTHING_SEEN = Seen()
Expected: TypeAlias = LeafChoice | Seen
"""The state that a write compares: a leaf, or a leaf and a revision."""


def leaf_of(expected: Expected) -> LeafChoice:
    """Return the leaf that is expected."""
    return expected.leaf if isinstance(expected, Seen) else expected


EditMetadata: TypeAlias = Callable[[str], str]
"""Makes new metadata of those that are stored: JSON text of each."""


HARNESS = "pydanticAiHarness"
"""The field of a session's metadata that says what pydantic-ai's harness keeps in it: a run, a window, media."""


class SessionInfo(Selective, array_like=True):
    """A session as its row describes it, without its history.

    ``entry_count`` and ``message_count`` count what this session itself added (retracted entries excluded);
    ``spent_tokens`` and ``spent_picodollars`` are the paid calls it reported, of which ``unpriced_calls`` are not in
    the cost because it is unknown. Of ``unknown_calls`` among them the tokens are unknown, too. ``title`` was given by
    a person, ``auto_title`` made by a program. ``active_us`` is the time of the newest entry that it added, by the
    entries' own times, so that an imported session was last active when its file says; of a session that has added
    none, a fork for one, it is that of its creation. ``completed_us`` is the time that `Session.set_completed` was
    given, None of one that goes on. Each ``..._us`` is in microseconds since 1970 (UTC). ``task_names`` are the names
    of its links, which are not compared: they are no part of the row.
    """

    _not_compared: ClassVar[tuple[str, ...]] = ("session_key", "task_names")
    _not_shown: ClassVar[tuple[str, ...]] = ("session_key", "task_names")

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
    session_key: int = 0
    task_names: TaskNames = NO_TASK_NAMES

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
        stored: ``metadata_text`` is the text that is. A value stored under one of these names stands before it.
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
    def is_aside(self) -> bool:
        """Whether the session is no conversation of its own: a task, or what pydantic-ai's harness keeps."""
        return self.kind == "task" or HARNESS in self.metadata

    @property
    def shown_title(self) -> str | None:
        """The title of the session in lists: the given one, else the one that was made, its key, its beginning.

        None if it has none of them: a fork is then known by its origin.
        """
        return self.title or self.auto_title or self.key or self.first_message

    @property
    def spent(self) -> Decimal:
        """The cost of the session's own paid calls in US dollars, exact; without those that have no price."""
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
        """Whether there are messages, and no report of their usage: no call is known, which is not the same as 0."""
        return bool(self.message_count) and not (self.spent_tokens or self.spent_picodollars or self.unpriced_calls)


class NewSession(Frozen):
    """A session to be created. ``id`` is chosen by the store if it is None.

    ``kind`` is for imports: a task session may come before the session whose task it is. Forks and the
    tasks of `Session.tasks.create` have their own kinds.
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
        force_setattr(self, "title", checked_title(self.title, "title"))
        force_setattr(self, "auto_title", checked_title(self.auto_title, "auto_title"))
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


def checked_title(title: str | None, name: str = "title") -> str | None:
    """Return a title, or None if it is only white space. Raises `InvalidArgument`."""
    check_label(title, name)
    return title if title is not None and title.strip() else None


def check_choice(value: object, name: str, choices: tuple[str, ...]) -> None:
    """Raise `InvalidArgument` if ``value`` is not one of ``choices``."""
    if value not in choices:
        raise InvalidArgument(f"{name}: {shown(value)} is not one of {', '.join(choices)}")


def check_label(text: str | None, name: str) -> None:
    """Refuse a short text that no backend could store, with NUL or a lone surrogate. Raises `InvalidArgument`."""
    if text is None:
        return
    if not isinstance(text, str):
        raise InvalidArgument(f"{name}: should be a string, not {type(text).__name__}")
    if not is_storable(text):
        raise InvalidArgument(f"{name}: holds a NUL character or a lone surrogate; remove it")


MAX_LABEL_CHARACTERS = 200


def check_entry_label(label: str | None) -> None:
    """Refuse a label of an entry that no backend takes. Raises `InvalidArgument`."""
    check_label(label, "label")
    if label is not None and len(label) > MAX_LABEL_CHARACTERS:
        raise InvalidArgument(
            f"label: {len(label)} characters are too many; a label has at most {MAX_LABEL_CHARACTERS}"
        )


MAX_NAME_BYTES = 1_000
"""How long a name may be, in UTF-8: indexes of every database take that."""


def check_name(text: str | None, name: str) -> None:
    """Refuse an id or a key that no backend could store. Raises `InvalidArgument`."""
    check_label(text, name)
    if text is not None and 4 * len(text) > MAX_NAME_BYTES and len(text.encode()) > MAX_NAME_BYTES:
        raise InvalidArgument(f"{name}: {text[:40]!r}... is longer than {MAX_NAME_BYTES} bytes; shorten it")


def check_new_name(text: str | None, name: str) -> None:
    """Refuse a bad name for something new, with control characters, too, which a terminal would act on.

    A session that has such a name already is still found by it. Raises `InvalidArgument`.
    """
    check_name(text, name)
    if text is not None and not text.isprintable() and _CONTROLS.search(text):
        raise InvalidArgument(f"{name}: {shown(text)} holds a control character; leave it out")


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


_CONTROLS = expression("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
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
    """Return a function that tells by id and key whether a session is meant by one of the names.

    A `SessionRef` among them means its own session, another text whichever ones ever had the id.
    """
    keys: dict[str, set[int]] = {}
    for name in names:
        if type(name) is SessionRef:
            keys.setdefault(str(name), set()).add(name.session_key)
    return lambda session_id, key: session_id not in keys or key in keys[session_id]


def require_meant(session_id: str, session_key: int) -> None:
    """Raise `SessionNotFound` if the id was used again, and another session is meant."""
    if type(session_id) is SessionRef and session_id.session_key != session_key:
        raise SessionNotFound(
            session_id,
            detail=f"session {str(session_id)!r} was deleted, and its id has been used again, for another session, "
            "which this handle does not touch; get a handle on that one with get_session()",
        )


class SessionPage(Frozen):
    """One page of sessions, in the order that was asked for; ``next_cursor`` is None on the last.

    ``damaged`` are the ids of those there that were changed by other means: nothing else is known of them. One may be
    on two pages. ``unchecked`` says that none was looked for: the store was opened without its key.
    """

    sessions: tuple[SessionInfo, ...]
    next_cursor: str | None = None
    damaged: tuple[str, ...] = ()
    unchecked: bool = False


TaskEnd: TypeAlias = Literal["done", "failed"]
TaskStatus: TypeAlias = Literal["running"] | TaskEnd
TASK_ENDS: tuple[TaskEnd, ...] = ("done", "failed")

MAX_TASK_SUMMARY_CHARACTERS = 20_000


def check_task_end(status: TaskEnd, summary: str | None) -> None:
    """Refuse a status that is no end of a task, and a summary that cannot be stored. Raises `InvalidArgument`."""
    if status not in TASK_ENDS:
        raise InvalidArgument(f"status: {shown(status)} is not 'done' or 'failed'")
    check_label(summary, "summary")
    if summary is not None and len(summary) > MAX_TASK_SUMMARY_CHARACTERS:
        raise InvalidArgument(
            f"summary: {len(summary)} characters are too many; at most {MAX_TASK_SUMMARY_CHARACTERS} are kept. "
            "What the task said stands in its own history"
        )


class TaskLink(Frozen):
    """A parent's link to a task session, in the order they were made. A link outlives its child.

    ``entry_id`` is the entry of the parent below which the task began, if it is known: the leaf when it was made.
    ``status`` is ``running`` at first, and ``done`` or ``failed``, with a ``summary``, once `Session.tasks.end`
    said so; None if nobody said, as of links that were made alone or by older versions.
    """

    parent_id: str
    position: int
    task_id: str
    child_id: str
    entry_id: str | None = None
    status: TaskStatus | None = None
    summary: str | None = None


class ConvertedMessage(Frozen):
    """A message that came in the form of a provider (``shape``), and was converted into ours.

    ``index`` is its place among the messages of the call, ``entry_ids`` has the one or more entries that it became.
    """

    index: int
    shape: Shape
    entry_ids: tuple[str, ...]


class Appended(Frozen):
    """The result of an append.

    ``leaf_id`` is the session's leaf afterwards: the last new entry, or the unmoved leaf where the entries
    landed on a sibling branch (``on_branch``). ``parent_id`` is the entry that the first new one was appended below:
    None for a root, and for an import. ``replayed`` says that this was the retry of an earlier call.
    ``call_conflicts`` are paid calls that an import met again with other numbers; the ledger keeps the first ones.
    ``oddities`` say which part of the entries' usage was not counted as it was reported, and why, and from
    where a compaction keeps, if not from the entry it was asked to.
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


class Moved(Frozen):
    """The result of a leaf move, a retraction, an undo or a redo."""

    from_id: str | None
    to_id: str | None
    revision: int
    reason: MoveReason
    replayed: bool = False


class Navigated(Frozen):
    """The result of a navigation: the leaf before and after it, and the session's revision.

    ``summary_id`` is the summary of the branch that was left, if one was appended: it is the leaf then. ``draft`` is
    the text of a person's message, if that was the target, for an editor. ``cancelled`` says that the callback kept it
    from happening.
    """

    from_id: str | None
    to_id: str | None
    revision: int
    summary_id: str | None = None
    draft: str | None = None
    cancelled: bool = False


class ReadStamp(Frozen):
    """The state that a read depends on. While leaf and epoch are unchanged, so is the answer.

    A longer path is read behind the leaf, at ``depth``, as long as the context's ``compaction_id`` is the same; behind
    one without a depth (-1), it is read whole.
    """

    leaf_id: str | None
    epoch: int
    depth: int = -1
    compaction_id: str | None = None


class LeafRead(Frozen):
    """The state of a session that was read: the leaf, the stored one, and the revision."""

    leaf_id: str | None
    stored_leaf_id: str | None
    revision: int


class PathRead(LeafRead):
    """Entries from root to leaf (or after an anchor, or the kept part of a context), with the state read.

    ``entries`` are, if the read ``goes_on``, those behind the leaf of the caller's stamp, none if all is as it was.
    ``compaction`` is the latest one on the path, where a context was asked for; where it has pinned entries, these come
    before the kept part, and with them the exclusions of the path up to there.
    """

    stamp: ReadStamp
    entries: Sequence[Entry]
    compaction: Entry | None = None
    goes_on: bool = False


class MessagesRead(LeafRead):
    """The messages of the context at a leaf, as JSON that are the reader's own, with the state read."""

    messages: list[JsonObject]


class SessionHead(NamedTuple):
    """The part of a session's row that a search needs: its identity, its revision, and the values of its filters."""

    session_key: int
    id: str
    revision: int
    scope: str
    cwd: str | None
    entry_count: int
    forked_from_session: str | None
    updated_us: int


class Change(Frozen):
    """One revision of a session: the entries that were added, and the leaf afterwards.

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


class Mark(Frozen):
    """A session's mark on an entry: a ``label`` (with its text), a ``pin`` (``on``, ``off``), or ``retracted``."""

    entry_id: str
    kind: str
    value: str | None = None


def retracted_in(marks: Iterable[Mark]) -> frozenset[str]:
    """Return the entries that a session has retracted, of its marks: they are in none of its views."""
    return frozenset(mark.entry_id for mark in marks if mark.kind == "retracted")


class Deletion(Frozen):
    """The result of deleting a session tree, or of its dry run.

    ``session_ids``: the session and the closure of its task links, in no particular order. ``missing_ids``:
    linked children that were not there. ``entries_kept`` counts entries of these sessions that stay because
    another session sees them. ``links`` are the links that were followed, as (parent, child): of each session that
    goes, in the order they were made. In an erasure, ``shared`` are the entries, as
    (session, entry), that these sessions have added and others see.
    """

    session_ids: tuple[str, ...]
    missing_ids: tuple[str, ...] = ()
    entries_deleted: int = 0
    entries_kept: int = 0
    links: tuple[tuple[str, str], ...] = ()
    shared: tuple[tuple[str, str], ...] = ()


class ScopeContents(NamedTuple):
    """The numbers of a scope's rows beside sessions; the calls are those that its sessions paid for."""

    memories: int
    files: int
    budgets: int
    calls: int


class Problem(Frozen):
    """One disagreement that `verify` found: its kind, its place, and the two sides."""

    kind: str
    where: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.where}: {self.detail}"


class VerifyReport(Frozen):
    """The numbers of rows that `verify` checked, and the disagreements (``problems`` is empty when all is well).

    ``unchecked`` says that no digest was compared: the store was opened without its key.
    """

    sessions: int
    entries: int
    problems: list[Problem] = field(default_factory=list)
    unchecked: bool = False


class KeyChange(Frozen):
    """A change of the key of a store: the fingerprints before and after, None for no key.

    ``entries`` have another digest, in the ``trees`` that were gone through.
    """

    before: str | None
    after: str | None
    trees: int
    entries: int


class StoreInfo(Frozen):
    """A description of a store. ``size_bytes`` is None if there is no file.

    ``key`` is the fingerprint of its key, None without one; ``unchecked`` says that it was opened without.
    """

    backend: str
    location: str
    format_version: int
    sessions: int
    entries: int
    ledger_rows: int
    size_bytes: int | None
    documents: int = 0
    key: str | None = None
    unchecked: bool = False


# ---------------------------------------------------------------------------------------------------------------------
# Documents: texts with a name that belong to a store and not to a session.
#
# They are memories of agents, or files that somebody has added for agents to read.

DocumentKind: TypeAlias = Literal["memory", "file"]
KINDS: tuple[DocumentKind, ...] = ("memory", "file")

DocumentState: TypeAlias = Literal["written", "same", "later", "other"]
"""The outcome of copying a document: it was written; the target has it as it is, in a later state, or as another one
that was changed at the same time."""

# An index of PostgreSQL takes 2,704 bytes for all parts of a key, of which a scope may have 1,000.
MAX_DOCUMENT_NAME = 500
MAX_SPACE = 200
MAX_PROJECT = 800
MAX_TYPE = 100
MAX_SOURCE = 4_096

IMPORTED_FILES = "imported files"
"""The space of the documents in which imports remember files: nobody's, neither counted nor copied."""

LEGAL_HOLDS = "legal holds"
"""The space of the documents that are legal holds, each in the scope that it is on, or of the session."""

WHOLE_SCOPE = "scope"

SEARCHED = 1_000
"""How many documents one call of `Backend.search_documents` reads at most."""


class DocumentName(NamedTuple):
    """The identity of a document: its scope, its kind, its space, its project, and its own name."""

    scope: str
    kind: DocumentKind
    space: str
    project: str
    name: str


class DocumentRow(NamedTuple):
    """A document as it is stored, and as it crosses from one store to another."""

    scope: str
    kind: DocumentKind
    space: str
    project: str
    name: str
    type: str
    source: str | None
    created_at: int
    changed_at: int
    chars: int
    digest: bytes
    body: str
    seal: int = 0
    gap: int = 0

    @property
    def id(self) -> DocumentName:
        """The identity of the document."""
        return DocumentName._make(self[:5])


class NewDocument(Frozen):
    """A document to be stored. Raises `InvalidArgument` for one that no store takes, and never shows its text.

    ``space`` is the owner of a memory: ``repl``, or ``agents/`` and a name; ``project`` the folder it is for, "" for
    all. ``type`` is one word: the topic of a memory, the media type of a file. ``source`` is its origin.
    """

    kind: DocumentKind
    name: str
    body: str
    type: str
    scope: str = ""
    space: str = ""
    project: str = ""
    source: str | None = None

    def __post_init__(self) -> None:
        check_document_name(self.id)
        _check_line(self.type, "type", MAX_TYPE)
        if not self.type or any(character.isspace() for character in self.type):
            raise InvalidArgument(f"type: {shown(self.type)} is not one word")
        if self.source is not None:
            _check_line(self.source, "source", MAX_SOURCE)
            if not self.source:
                raise InvalidArgument("source: is empty; leave it out where there is none")
        if not isinstance(self.body, str):
            raise InvalidArgument(f"body: should be a string, not {type(self.body).__name__}")
        if not is_storable(self.body):
            raise InvalidArgument("body: holds a NUL character or a lone surrogate; remove it")
        if 4 * len(self.body) > LARGEST_ENTRY and len(self.body.encode()) > LARGEST_ENTRY:
            raise InvalidArgument(f"body: is longer than {LARGEST_ENTRY} bytes; store a part of it")

    @property
    def id(self) -> DocumentName:
        """The identity of the document."""
        return DocumentName(self.scope, self.kind, self.space, self.project, self.name)

    def row(self, now_us: int) -> DocumentRow:
        """Return the row of it as a new one."""
        digest = payload_digest(self.body)
        return DocumentRow(*self.id, self.type, self.source, now_us, now_us, len(self.body), digest, self.body)


def deletion_of(session_id: str, scope: str) -> NewDocument:
    """Return the document by which an imported session that was deleted in a scope stays deleted.

    Its identity is of digests, that of the id as the project: an id is no name that each document could have.
    """
    body, _ = encode_json({"deleted": session_id, "scope": scope}, "body")
    return NewDocument("file", derived_id(scope), body, "json", "", IMPORTED_FILES, derived_id(session_id))


class LegalHold(Frozen, rename="camel"):
    """A hold on a session, or on all of a scope (``session_id`` is None): it is not deleted until that is lifted."""

    scope: str
    session_id: str | None
    by: str | None
    why: str | None
    at_us: int = 0

    @property
    def name(self) -> str:
        """The id of the session, or ``scope:`` and the name of the scope."""
        return f"scope:{self.scope}" if self.session_id is None else self.session_id

    def __str__(self) -> str:
        of = f"scope {self.scope!r}" if self.session_id is None else f"session {self.session_id!r}"
        notes = ": ".join(note for note in (f"by {self.by}" * bool(self.by), self.why) if note)
        return f"{of} is on hold since {from_microseconds(self.at_us):%Y-%m-%d}{f' ({notes})' if notes else ''}"

    def document(self) -> NewDocument:
        """Return the document that it is stored as."""
        body, _ = encode_json({"session": self.session_id, "by": self.by, "why": self.why}, "why")
        return NewDocument("file", hold_name(self.session_id), body, "json", self.scope, LEGAL_HOLDS)


def hold_name(session_id: str | None) -> str:
    """Return the name of the document of a hold: an id is no name that each document could have."""
    return WHOLE_SCOPE if session_id is None else derived_id(session_id)


class DocumentInfo(Frozen):
    """The description of a document without its text. ``chars`` is the number of characters of that.

    Times are microseconds since 1970 UTC; ``changed_us`` grows with each change of it, so that of two copies the later
    one is known.
    """

    scope: str
    kind: DocumentKind
    space: str
    project: str
    name: str
    type: str
    source: str | None
    created_us: int
    changed_us: int
    chars: int

    @property
    def id(self) -> DocumentName:
        """The identity of the document."""
        return DocumentName(self.scope, self.kind, self.space, self.project, self.name)


class Document(Frozen):
    """A document, whole: its description and its text."""

    info: DocumentInfo
    body: str

    @property
    def name(self) -> str:
        """Its name."""
        return self.info.name

    @property
    def type(self) -> str:
        """Its type: the topic of a memory, the media type of a file."""
        return self.info.type


class DocumentFilter(Frozen):
    """Which documents are meant: those of a scope and a kind, of one space and project if they are named."""

    kind: DocumentKind
    scope: str = ""
    space: str | None = None
    project: str | None = None


class DocumentsFound(Frozen):
    """Documents that a search has found, in order of space, project and name, and how many it has read.

    ``after`` is the document to go on after; None at the end.
    """

    documents: tuple[Document, ...]
    searched: int
    after: DocumentName | None


def check_document_name(name: DocumentName) -> None:
    """Refuse a name that no document can have. Raises `InvalidArgument`."""
    check_choice(name.kind, "kind", KINDS)
    check_scope(name.scope)
    _check_line(name.space, "space", MAX_SPACE)
    _check_line(name.project, "project", MAX_PROJECT)
    _check_line(name.name, "name", MAX_DOCUMENT_NAME)
    if not name.name.strip():
        raise InvalidArgument("name: must not be empty")


def _check_line(text: str, name: str, most: int) -> None:
    """Refuse a text that is not a line that can be stored, or is longer than ``most`` bytes."""
    if not isinstance(text, str):
        raise InvalidArgument(f"{name}: should be a string, not {type(text).__name__}")
    if not is_line(text):
        raise InvalidArgument(f"{name}: {shown(text)} holds a line end or a control character; leave it out")
    if 4 * len(text) > most and len(text.encode()) > most:
        raise InvalidArgument(f"{name}: {shown(text[:40])}... is longer than {most} bytes; shorten it")


def is_line(text: object) -> bool:
    """Return whether something is text that can be stored and stands on one line."""
    return isinstance(text, str) and is_storable(text) and text.isprintable()


def searched_words(text: str) -> tuple[str, ...]:
    """Return the words of a search, as they are compared. Raises `InvalidArgument` if there are none."""
    check_name(text, "words")
    words = tuple(text.casefold().split()) if isinstance(text, str) else ()
    if not words:
        raise InvalidArgument("words: should be one word at least")
    return words


def has_words(document: Document, words: tuple[str, ...]) -> bool:
    """Return whether the name or the text has every word, in any case. O(its size)."""
    name, body = document.name.casefold(), document.body.casefold()
    return all(word in name or word in body for word in words)


def state_of_document(copied: DocumentRow, changed_at: int, digest: bytes) -> DocumentState:
    """Return how a copied document that was not written stands to the one in its place."""
    if changed_at != copied.changed_at:
        return "later"
    return "same" if digest == copied.digest else "other"


# ---------------------------------------------------------------------------------------------------------------------
# Listings of sessions: which of them, in which order, and where a page ended. All from the session's row alone.

SessionOrder: TypeAlias = Literal["activity", "updated", "created", "title", "messages", "entries", "tokens", "cost"]
"""The values that sessions are listed by. ``title`` is the given one, else the one that was made, else "": the first
`SORTED_CHARACTERS` of it, compared byte by byte in UTF-8. Equal ones are in the order in which they were made."""

SORTED_CHARACTERS = 200
"""The number of characters of a title that sessions are sorted by."""

SLOT_BITS = 28
"""The number of bits of a time in microseconds that its slot leaves out: a slot is 4.5 minutes."""

ORDERS: tuple[SessionOrder, ...] = get_args(SessionOrder)
SortValue: TypeAlias = int | str

Scalar: TypeAlias = str | int | float | bool | None
"""A value in JSON that holds no others."""

_LISTING_LARGEST = 2**63
# Characters that every JSON encoder writes as they are.
_PLAIN = expression(r"[0-9A-Za-z_.,:;@ +-]+")
_LOWER = str.maketrans({chr(code): chr(code + 32) for code in range(ord("A"), ord("Z") + 1)})


class SessionFilter(Frozen):
    """The conditions of a listing; None is no condition.

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
        """The conditions, by name; titles in lower case, as they are compared."""
        filters = {name: value for name, value in asdict(self).items() if value is not None}
        return filters if self.title is None else {**filters, "title": lower(self.title)}

    @property
    def can_match(self) -> bool:
        """Whether a store can hold a session of these conditions at all."""
        texts = (self.title, self.key, self.cwd, self.scope_prefix)
        return all(is_storable(text) for text in texts if text is not None)

    @property
    def needle(self) -> str:
        """A text in all stored metadata that fulfil the conditions; "" if there is none."""
        quoted = [
            f'"{part}"'
            for pair in self.metadata or ()
            for part in pair
            if isinstance(part, str) and _PLAIN.fullmatch(part)
        ]
        return max(quoted, key=len, default="")

    @property
    def asks_links(self) -> bool:
        """Whether links may fulfil a condition of metadata, whatever is stored."""
        return any(key in OF_PARENT for key, _ in self.metadata or ())

    def has_metadata(self, info: SessionInfo) -> bool:
        """Return whether a session's metadata fulfil the conditions."""
        if not self.metadata:
            return True
        metadata = info.metadata
        return all(key in metadata and is_same(metadata[key], value) for key, value in self.metadata)

    def matches(self, info: SessionInfo) -> bool:
        """Return whether a session fulfils the conditions."""
        if self.title is not None and lower(self.title) not in lower(info.shown_title or ""):
            return False
        if self.completed is not None and self.completed != (info.completed_us is not None):
            return False
        if self.scopes is not None and info.scope not in self.scopes:
            return False
        if not info.scope.startswith(self.scope_prefix or "") or not self.has_metadata(info):
            return False
        equal = ((self.key, info.key), (self.cwd, info.cwd))
        return all(wanted is None or stored == wanted for wanted, stored in equal)


ANY_SESSION = SessionFilter()


def slot_of(at_us: int) -> int:
    """Return the slot of a time in microseconds: the first key of the listing by activity."""
    return at_us >> SLOT_BITS


def is_same(stored: object, wanted: Scalar) -> bool:
    """Return whether a value is the scalar that was asked for, of the same type."""
    return type(stored) is type(wanted) and stored == wanted


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
    """Return the value that a session is sorted by."""
    return _SORTED_BY[order](info)


class Ordering(NamedTuple):
    """An order, and whether it is descending."""

    order: SessionOrder = "activity"
    descending: bool = True


LAST_ACTIVE_FIRST = Ordering()


class Listing(Frozen):
    """A listing: its scope, its kind of sessions, its conditions, and its order."""

    scope: str | None = None
    kind: SessionKind | None = None
    where: SessionFilter = ANY_SESSION
    ordering: Ordering = LAST_ACTIVE_FIRST


# -- cursors ----------------------------------------------------------------------------------------------------------


class Place(Frozen):
    """The end of a page: the sort value of its last session, and its number, which decides between equal ones."""

    value: SortValue
    number: int


def write_cursor(ordering: Ordering, place: Place) -> str:
    """Return the cursor for the sessions that come after a place: an opaque text."""
    parts = [*ordering, place.value, place.number]
    return urlsafe_b64encode(json.dumps(parts, separators=(",", ":")).encode()).decode()


def read_cursor(cursor: str, ordering: Ordering) -> Place:
    """Return the place that a cursor stands for.

    Raises `InvalidArgument` for one of another order, and for a text that `write_cursor` did not make.
    """
    try:
        fields = json.loads(urlsafe_b64decode(cursor.encode()))
        order, descending, value, number = fields
        is_whole = order in ORDERS and isinstance(descending, bool) and type(number) is int
        is_sound = type(value) is (str if order == "title" else int)
        # Decoding passes over unknown characters, and databases over no number of more than 64 bits.
        in_range = (
            is_whole and abs(number) < _LISTING_LARGEST and (isinstance(value, str) or abs(value) < _LISTING_LARGEST)
        )
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


# ---------------------------------------------------------------------------------------------------------------------
# The log of a session: one line for each revision, its author and the reason.

MAX_BY_CHARACTERS = 200
MAX_WHY_CHARACTERS = 2_000
GUARD_KEY = "compactionGuard"
"""The memory of a guard among the metadata of a session. Replacing these leaves it, unless it is named."""
LOGGED_IDS = 20
"""How many of the entries that a revision added its line names."""

EditKind: TypeAlias = Literal[
    "title", "auto_title", "metadata", "completed", "label", "pin", "task", "ended", "depth", "retracted",
    "redacted",
]  # fmt: skip
RESTORABLE: frozenset[str] = frozenset({"title", "auto_title", "metadata", "completed", "label", "pin"})
"""The edits whose values can be gone back to by themselves."""


class Note(Frozen):
    """The author of a change, and the reason. Raises `InvalidArgument` if a text cannot be stored or is too long."""

    by: str | None = None
    why: str | None = None

    def __post_init__(self) -> None:
        for name, text, most in (("by", self.by, MAX_BY_CHARACTERS), ("why", self.why, MAX_WHY_CHARACTERS)):
            check_label(text, name)
            if text is not None and len(text) > most:
                raise InvalidArgument(f"{name}: {len(text)} characters are too many; at most {most} are kept")

    @classmethod
    def stored(cls, by: str | None, why: str | None) -> Note:
        """Return one that was stored, whatever its length: other bounds may have held then."""
        note = cls()
        force_setattr(note, "by", by)
        force_setattr(note, "why", why)
        return note


NO_NOTE = Note()


class Edit(Frozen):
    """One change beside the history, as text before and after it (None: there was or is nothing).

    ``what``: the ``title``; the ``metadata`` (JSON); ``completed`` (microseconds since 1970 UTC, in digits); the
    ``label`` or the ``pin`` (``on``, ``off``) of entry ``entry_id``; a ``task`` that was linked (its id); how a task of
    the session ``ended`` (JSON with ``childId``, ``status`` and ``summary``); the ``depth`` of a task session, in
    digits, once it is known whose task its parent is; entries (a JSON list of ids) that were ``retracted`` and that
    going back brought back, or that were ``redacted``.
    """

    what: EditKind
    entry_id: str | None = None
    before: str | None = None
    after: str | None = None


def ended_task(child_id: str, status: str | None, summary: str | None) -> str:
    """Return the text by which an edit keeps the end of a task."""
    return to_json({"childId": child_id, "status": status, "summary": summary}).decode()


def row_value(info: SessionInfo, name: str) -> str | None:
    """Return a value of a session's row as the text that an edit keeps; None if there is none."""
    completed = None if info.completed_us is None else str(info.completed_us)
    values = {"title": info.title, "auto_title": info.auto_title, "metadata": info.metadata_text}
    return completed if name == "completed" else values[name]


class LogLine(Frozen):
    """The change of one revision of a session.

    ``what`` is ``append``, ``compaction``, ``exclusion`` or ``inclusion`` for entries below the leaf, the reason of
    a leaf move (``move``, ``rewind``, ``retract``, ``undo``, ``redo``, ``back``, ``import``, ``branch``), the kind of
    an edit (``edit`` where there were several), or ``other`` where nothing that is stored tells.
    ``from_id`` and ``to_id`` are the leaf before and after, of lines that tell of the leaf. ``entry_ids`` name the
    first 20 of ``entry_count`` entries, ``kinds`` the kinds among these. ``refers_to`` is the revision that was
    undone, done again or gone back to. ``words`` is the first line of the text.
    """

    session_id: str
    revision: int
    what: str
    at_us: int | None = None
    from_id: str | None = None
    to_id: str | None = None
    entry_count: int = 0
    entry_ids: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()
    refers_to: int | None = None
    by: str | None = None
    why: str | None = None
    words: str | None = None

    @property
    def at(self) -> datetime | None:
        """When it happened (UTC), where that is known."""
        return None if self.at_us is None else from_microseconds(self.at_us)

    @property
    def moved_leaf(self) -> bool:
        """Whether the leaf was another one afterwards."""
        return self.from_id != self.to_id


class LoggedMove(NamedTuple):
    """A row of ``leaf_moves``, for its line."""

    reason: str
    refers_to: int | None
    from_id: str | None
    to_id: str | None
    note: Note
    at_us: int


class LoggedEntries(Frozen):
    """The entries of one revision, for its line. ``payload`` is the first one's, ``parent_id`` too."""

    number: int
    ids: tuple[str, ...]
    kinds: tuple[str, ...]
    payload: str
    parent_id: str | None
    last_id: str
    at_us: int


class LoggedEdits(Frozen):
    """The edits of one revision, for its line."""

    edits: tuple[Edit, ...]
    note: Note
    at_us: int


def make_line(
    session_id: str, revision: int, moved: LoggedMove | None, added: LoggedEntries | None, edited: LoggedEdits | None
) -> LogLine:
    """Return the line of a revision from its stored rows."""
    edits = () if edited is None else edited.edits
    name: str
    if added is None and moved is None:
        if edited is None:
            return LogLine(session_id, revision, "other")
        name = edits[0].what if len(edits) == 1 else "edit"
        words = None if edits[0].after is None else message_preview(edits[0].after)
        by, why = edited.note.by, edited.note.why
        return LogLine(session_id, revision, name, edited.at_us, edits=edits, by=by, why=why, words=words)
    note, words = NO_NOTE, None
    name = "append"
    count, ids, kinds = (0, (), ()) if added is None else (added.number, added.ids, tuple(dict.fromkeys(added.kinds)))
    from_id = to_id = refers_to = at_us = None
    if added is not None:
        name, note, words = _named(added)
        from_id, to_id, at_us = added.parent_id, added.last_id, added.at_us
    if moved is not None:
        name, refers_to, from_id, to_id, note, at_us = moved
    return LogLine(
        session_id, revision, name, at_us, from_id, to_id, count, ids, kinds, edits, refers_to, note.by, note.why, words
    )


def _named(added: LoggedEntries) -> tuple[str, Note, str | None]:
    """Return the name of entries in the log, their author and the reason, and their first words."""
    kind = added.kinds[0]
    value = decode_json(added.payload)
    fields: JsonObject = value if isinstance(value, dict) else {}
    if kind == MESSAGE:
        return "append", NO_NOTE, message_preview(message_text(fields))
    if kind == EXCLUSION and set(added.kinds) == {EXCLUSION}:
        return "inclusion" if fields.get("excluded") is False else "exclusion", _note_of(fields), None
    if kind_of(kind).says == "summary":
        name = COMPACTION if kind == COMPACTION and added.number == 1 else "append"
        return name, NO_NOTE, message_preview(str(fields.get("summary", "")))
    return "append", NO_NOTE, None


def _note_of(fields: JsonObject) -> Note:
    """Return the author of an exclusion and the reason; an imported one may say anything."""
    by, why = fields.get("by"), fields.get("why")
    return Note.stored(by if isinstance(by, str) else None, why if isinstance(why, str) else None)


def decode_ids(text: str | None) -> list[str]:
    """Return the ids of an edit that holds a list of them. Raises `CorruptStore` if it holds something else."""
    value = [] if text is None else decode_json(text)
    if not isinstance(value, list) or not all(isinstance(entry_id, str) for entry_id in value):
        raise CorruptStore("an edit of the log should hold a list of entry ids; run verify()")
    return [str(entry_id) for entry_id in value]


def restorable(edits: Sequence[Edit]) -> list[Edit]:
    """Return the edits whose values can be gone back to by themselves."""
    return [edit for edit in edits if edit.what in RESTORABLE]
