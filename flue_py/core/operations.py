"""Operations on sessions as values, to be done together.

Each has the fields of the method of `Backend` that it stands for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from flue_py.core.entries import NewEntry
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import to_json
from flue_py.core.limits import DEFAULT_LIMITS
from flue_py.core.log import NO_NOTE, Note
from flue_py.core.sessions import (
    STORED,
    Appended,
    Deletion,
    EditMetadata,
    Expected,
    LeafChoice,
    Moved,
    MoveReason,
    Navigated,
    NewSession,
    OnConflict,
    Seen,
    SessionInfo,
    Stored,
    TaskEnd,
    leaf_of,
)


@frozen
class AppendEntries:
    """`Backend.append`."""

    session_id: str
    entries: Sequence[NewEntry]
    expected: Expected = STORED
    on_conflict: OnConflict = "raise"
    idempotency_key: str | None = None


@frozen
class CreateSession:
    """`Backend.create_session`. ``drawn_id`` is the id of a session that is not to choose its own."""

    new: NewSession
    drawn_id: str | None = None

    @property
    def session_made(self) -> str | None:
        """The id of what it makes, as far as it is known."""
        return self.new.id if self.drawn_id is None else self.drawn_id


@frozen
class ForkSession:
    """`Backend.fork`. ``drawn_id`` is the id of the fork, but not part of what is asked for, as ``new.id`` is."""

    session_id: str
    at: LeafChoice
    new: NewSession
    scope: str | None = None
    expected: Expected = STORED
    idempotency_key: str | None = None
    drawn_id: str | None = None

    @property
    def session_made(self) -> str | None:
        """The id of what it makes, as far as it is known."""
        return self.new.id if self.drawn_id is None else self.drawn_id


@frozen
class CreateTask:
    """`Backend.create_task`; ``session_id`` is the parent, ``drawn_id`` as for `ForkSession`."""

    session_id: str
    task_id: str
    new: NewSession
    expected: Expected = STORED
    idempotency_key: str | None = None
    max_depth: int = DEFAULT_LIMITS.task_depth
    drawn_id: str | None = None

    @property
    def session_made(self) -> str | None:
        """The id of what it makes, as far as it is known."""
        return self.new.id if self.drawn_id is None else self.drawn_id


@frozen
class LinkTask:
    """`Backend.link_task`; ``session_id`` is the parent."""

    session_id: str
    child_id: str
    task_id: str
    entry_id: str | None = None
    expected: Expected = STORED


@frozen
class EndTask:
    """`Backend.end_task`."""

    session_id: str
    status: TaskEnd
    summary: str | None = None
    expected: Expected = STORED
    note: Note = NO_NOTE


@frozen
class MoveLeaf:
    """`Backend.move`."""

    session_id: str
    to: str | None
    expected: Expected = STORED
    reason: MoveReason = "move"
    note: Note = NO_NOTE
    idempotency_key: str | None = None


@frozen
class Navigate:
    """Going to an entry, as `flue_py.Session.navigate` does: `Backend.navigate`, to where that entry leads.

    ``summary`` is a branch summary with an id of its own; what it lies below and what was left are filled in.
    """

    session_id: str
    entry_id: str
    summary: NewEntry | None = None
    label: str | None = None
    expected: Expected = STORED
    note: Note = NO_NOTE


@frozen
class Undo:
    """`Backend.undo`."""

    session_id: str
    expected: Expected = STORED
    note: Note = NO_NOTE


@frozen
class Redo:
    """`Backend.redo`."""

    session_id: str
    expected: Expected = STORED
    note: Note = NO_NOTE


@frozen
class UpdateSession:
    """`Backend.update_session`."""

    session_id: str
    title: str | None | Stored = STORED
    auto_title: str | None | Stored = STORED
    metadata_text: str | EditMetadata | None = None
    completed_us: int | None | Stored = STORED
    expected: Expected = STORED
    note: Note = NO_NOTE


@frozen
class SetLabel:
    """`Backend.set_label`."""

    session_id: str
    entry_id: str
    label: str | None
    expected: Expected = STORED
    note: Note = NO_NOTE


@frozen
class SetPin:
    """`Backend.set_pin`."""

    session_id: str
    entry_id: str
    pinned: bool
    expected: Expected = STORED
    note: Note = NO_NOTE


@frozen
class DeleteTree:
    """`Backend.delete_tree`."""

    session_id: str
    scope: str | None = None
    expected: Expected = STORED


OnSession: TypeAlias = (
    AppendEntries
    | ForkSession
    | CreateTask
    | LinkTask
    | EndTask
    | MoveLeaf
    | Navigate
    | Undo
    | Redo
    | UpdateSession
    | SetLabel
    | SetPin
    | DeleteTree
)
"""An operation on a session that is named."""
Operation: TypeAlias = CreateSession | OnSession
Outcome: TypeAlias = Appended | SessionInfo | Moved | Navigated | Deletion | tuple[str, ...] | None
"""What an operation came to: what the method of `Backend` returns."""


@frozen
class Left:
    """A session as a batch left it."""

    leaf_id: str | None
    revision: int


@frozen
class Committed:
    """What a batch of operations came to.

    ``outcomes`` has one for each operation, in their order; ``left`` the sessions that they named or made and that are
    still there, by id. ``replayed`` says that this was the retry of an earlier batch.
    """

    outcomes: tuple[Outcome, ...]
    left: dict[str, Left]
    replayed: bool = False


_NAMES = {
    AppendEntries: "append to",
    CreateSession: "create",
    ForkSession: "fork",
    CreateTask: "create a task of",
    LinkTask: "link a task to",
    EndTask: "end the task of",
    MoveLeaf: "move the leaf of",
    Navigate: "navigate in",
    Undo: "undo in",
    Redo: "redo in",
    UpdateSession: "change",
    SetLabel: "label an entry of",
    SetPin: "pin an entry of",
    DeleteTree: "delete",
}


def named(operation: Operation) -> str:
    """Return what an operation does, for people."""
    session = operation.session_made if isinstance(operation, CreateSession) else str(operation.session_id)
    return f"{_NAMES[type(operation)]} session {'' if session is None else repr(session)}".strip()


def sessions_named(operations: Sequence[Operation]) -> list[str]:
    """Return the ids of the sessions that operations name and do not make themselves, in order of first mention."""
    made: set[str] = set()
    found: dict[str, None] = {}
    for operation in operations:
        if not isinstance(operation, CreateSession) and operation.session_id not in made:
            found[operation.session_id] = None
        if isinstance(operation, (CreateSession, ForkSession, CreateTask)) and operation.session_made is not None:
            made.add(operation.session_made)
    return list(found)


def ids_drawn(operations: Sequence[Operation]) -> Iterator[str]:
    """Yield the ids that operations bring along for what they make, in their order: a retry has others."""
    for operation in operations:
        if isinstance(operation, AppendEntries):
            yield from (entry.id for entry in operation.entries if entry.id is not None)
        elif isinstance(operation, (CreateSession, ForkSession, CreateTask)) and operation.drawn_id is not None:
            yield operation.drawn_id
        elif isinstance(operation, Navigate) and operation.summary is not None and operation.summary.id is not None:
            yield operation.summary.id


def content_of(operations: Sequence[Operation]) -> str:
    """Return what operations ask for as a text, which a retry has, too: without the ids that it makes, or the clock."""
    text = to_json([_described(operation) for operation in operations]).decode()
    for number, made in enumerate(ids_drawn(operations)):
        # Also in a payload, which is a text of JSON itself.
        quoted = to_json(made).decode()
        escaped = to_json(quoted).decode()[1:-1]
        text = text.replace(quoted, f'"#{number}"').replace(escaped, f'\\"#{number}\\"')
    return text


def _described(operation: Operation) -> list[object]:
    asked: list[object] = [type(operation).__name__]
    if not isinstance(operation, CreateSession):
        asked.append(str(operation.session_id))
    if isinstance(operation, (CreateSession, ForkSession, CreateTask)):
        new = operation.new
        asked += [new.id, new.key, new.title, new.scope, new.metadata_text]
    match operation:
        case AppendEntries(entries=entries):
            asked += [operation.on_conflict, [(new.kind, new.payload, new.source, new.extra) for new in entries]]
        case ForkSession(at=at):
            asked += ["stored leaf" if isinstance(at, Stored) else [at], operation.scope]
        case CreateTask(task_id=name) | MoveLeaf(to=name) | DeleteTree(scope=name):
            asked.append(name)
        case LinkTask():
            asked += [str(operation.child_id), operation.task_id, operation.entry_id]
        case EndTask():
            asked += [operation.status, operation.summary]
        case Navigate(summary=summary):
            asked += [operation.entry_id, None if summary is None else summary.payload, operation.label]
        case UpdateSession():
            values = (operation.title, operation.auto_title, operation.metadata_text, operation.completed_us)
            asked += [each if isinstance(each, (str, int, type(None))) else repr(each) for each in values]
        case SetLabel():
            asked += [operation.entry_id, operation.label]
        case SetPin():
            asked += [operation.entry_id, operation.pinned]
    return asked


def renamed(operation: Operation, names: dict[str, str]) -> Operation:
    """Return an operation with other ids in place of those that an earlier one did not use, being a retry."""
    if not names or isinstance(operation, CreateSession):
        return operation

    def of(name: str) -> str:
        return names.get(name, name)

    def place(leaf: LeafChoice) -> LeafChoice:
        return of(leaf) if isinstance(leaf, str) else leaf

    expected = operation.expected
    leaf = place(leaf_of(expected))
    expected = replace(expected, leaf=leaf) if isinstance(expected, Seen) else leaf
    made = replace(operation, session_id=of(operation.session_id), expected=expected)
    match made:
        case ForkSession(at=at):
            return replace(made, at=place(at))
        case LinkTask(child_id=child, entry_id=entry_id):
            return replace(made, child_id=of(child), entry_id=None if entry_id is None else of(entry_id))
        case MoveLeaf(to=to):
            return replace(made, to=None if to is None else of(to))
        case SetLabel(entry_id=entry_id) | SetPin(entry_id=entry_id) | Navigate(entry_id=entry_id):
            return replace(made, entry_id=of(entry_id))
    return made
