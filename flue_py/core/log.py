"""The log of a session: one line for each revision, who was behind it and why."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from flue_py.core.entries import from_microseconds
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, decode_json, to_json
from flue_py.core.kinds import COMPACTION, EXCLUSION, MESSAGE, kind_of
from flue_py.core.sessions import SessionInfo, check_label
from flue_py.core.spoken import message_preview, message_text
from flue_py.errors import CorruptStore, InvalidArgument

MAX_BY_CHARACTERS = 200
MAX_WHY_CHARACTERS = 2_000
GUARD_KEY = "compactionGuard"
"""What a guard remembers among the metadata of a session. Who replaces these leaves it, unless it is named."""
LOGGED_IDS = 20
"""How many of the entries that a revision added its line names."""

EditKind: TypeAlias = Literal[
    "title", "auto_title", "metadata", "completed", "label", "pin", "task", "ended", "depth", "retracted"
]
RESTORABLE: frozenset[str] = frozenset({"title", "auto_title", "metadata", "completed", "label", "pin"})
"""The edits whose values can be gone back to by themselves."""


@frozen
class Note:
    """Who did something, and why. Raises `InvalidArgument` if a text cannot be stored or is too long."""

    by: str | None = None
    why: str | None = None

    def __post_init__(self) -> None:
        for what, text, most in (("by", self.by, MAX_BY_CHARACTERS), ("why", self.why, MAX_WHY_CHARACTERS)):
            check_label(text, what)
            if text is not None and len(text) > most:
                raise InvalidArgument(f"{what}: {len(text)} characters are too many; at most {most} are kept")

    @classmethod
    def stored(cls, by: str | None, why: str | None) -> Note:
        """Return one that was stored, whatever its length: other bounds may have held then."""
        note = object.__new__(cls)
        object.__setattr__(note, "by", by)
        object.__setattr__(note, "why", why)
        return note


NO_NOTE = Note()


@frozen
class Edit:
    """One change beside the history, as text before and after it (None: there was or is nothing).

    ``what``: the ``title``; the ``metadata`` (JSON); ``completed`` (microseconds since 1970 UTC, in digits); the
    ``label`` or the ``pin`` (``on``, ``off``) of entry ``entry_id``; a ``task`` that was linked (its id); how a task of
    the session ``ended`` (JSON with ``childId``, ``status`` and ``summary``); the ``depth`` of a task session, in
    digits, once it is known whose task its parent is; entries (a JSON list of ids) that were ``retracted`` and that
    going back brought back.
    """

    what: EditKind
    entry_id: str | None = None
    before: str | None = None
    after: str | None = None


def ended_task(child_id: str, status: str | None, summary: str | None) -> str:
    """Return what an edit keeps of how a task ended."""
    return to_json({"childId": child_id, "status": status, "summary": summary}).decode()


def row_value(info: SessionInfo, what: str) -> str | None:
    """Return a value of a session's row as the text that an edit keeps; None if there is none."""
    completed = None if info.completed_us is None else str(info.completed_us)
    values = {"title": info.title, "auto_title": info.auto_title, "metadata": info.metadata_text}
    return completed if what == "completed" else values[what]


@frozen
class LogLine:
    """What one revision of a session did.

    ``what`` is ``append``, ``compaction``, ``exclusion`` or ``inclusion`` for entries below the leaf, the reason of
    a leaf move (``move``, ``rewind``, ``retract``, ``undo``, ``redo``, ``back``, ``import``, ``branch``), the kind of
    an edit (``edit`` where there were several), or ``other`` where nothing that is stored tells.
    ``from_id`` and ``to_id`` are the leaf before and after, of lines that tell of the leaf. ``entry_ids`` name the
    first 20 of ``entry_count`` entries, ``kinds`` the kinds among these. ``refers_to`` is the revision that was
    undone, done again or gone back to. ``words`` is the first line of what was said.
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


class LoggedEntries(NamedTuple):
    """The entries of one revision, for its line. ``payload`` is the first one's, ``parent_id`` too."""

    number: int
    ids: tuple[str, ...]
    kinds: tuple[str, ...]
    payload: str
    parent_id: str | None
    last_id: str
    at_us: int


class LoggedEdits(NamedTuple):
    """The edits of one revision, for its line."""

    edits: tuple[Edit, ...]
    note: Note
    at_us: int


def make_line(
    session_id: str, revision: int, moved: LoggedMove | None, added: LoggedEntries | None, edited: LoggedEdits | None
) -> LogLine:
    """Return the line of a revision from what is stored of it."""
    edits = () if edited is None else edited.edits
    what: str
    if added is None and moved is None:
        if edited is None:
            return LogLine(session_id, revision, "other")
        what = edits[0].what if len(edits) == 1 else "edit"
        words = None if edits[0].after is None else message_preview(edits[0].after)
        by, why = edited.note.by, edited.note.why
        return LogLine(session_id, revision, what, edited.at_us, edits=edits, by=by, why=why, words=words)
    note, words = NO_NOTE, None
    what = "append"
    count, ids, kinds = (0, (), ()) if added is None else (added.number, added.ids, tuple(dict.fromkeys(added.kinds)))
    from_id = to_id = refers_to = at_us = None
    if added is not None:
        what, note, words = _told(added)
        from_id, to_id, at_us = added.parent_id, added.last_id, added.at_us
    if moved is not None:
        what, refers_to, from_id, to_id, note, at_us = moved
    return LogLine(
        session_id, revision, what, at_us, from_id, to_id, count, ids, kinds, edits, refers_to, note.by, note.why, words
    )


def _told(added: LoggedEntries) -> tuple[str, Note, str | None]:
    """Return what entries are called in the log, who says to have added them and why, and their first words."""
    kind = added.kinds[0]
    value = decode_json(added.payload)
    fields: JsonObject = value if isinstance(value, dict) else {}
    if kind == MESSAGE:
        return "append", NO_NOTE, message_preview(message_text(fields))
    if kind == EXCLUSION and set(added.kinds) == {EXCLUSION}:
        return "inclusion" if fields.get("excluded") is False else "exclusion", _note_of(fields), None
    if kind_of(kind).says == "summary":
        what = COMPACTION if kind == COMPACTION and added.number == 1 else "append"
        return what, NO_NOTE, message_preview(str(fields.get("summary", "")))
    return "append", NO_NOTE, None


def _note_of(fields: JsonObject) -> Note:
    """Return who excluded something and why, as the entry says it; an imported one may say anything."""
    by, why = fields.get("by"), fields.get("why")
    return Note.stored(by if isinstance(by, str) else None, why if isinstance(why, str) else None)


def decode_ids(text: str | None) -> list[str]:
    """Return the ids of an edit that holds a list of them. Raises `CorruptStore` if it holds something else."""
    value = [] if text is None else decode_json(text)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise CorruptStore("an edit of the log should hold a list of entry ids; run verify()")
    return [str(each) for each in value]


def restorable(edits: Sequence[Edit]) -> list[Edit]:
    """Return the edits whose values can be gone back to by themselves."""
    return [edit for edit in edits if edit.what in RESTORABLE]
