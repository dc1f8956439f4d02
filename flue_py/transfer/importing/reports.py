"""What an import did, file by file and session by session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flue_py.core.calls import CallDifference
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.formats.kit.report import LineNote


@dataclass(frozen=True, slots=True)
class SessionImport:
    """What became of one session of a file.

    ``added`` entries are new, ``already_there`` were imported before. ``leaf_kept`` says that the session had moved on
    since the last import, so that its leaf was left where it is. ``task_of`` is the session whose task it is. Of
    ``booked`` paid calls the ledger has learnt apart from entries: they are new, or have other numbers now.
    ``deleted`` says that the session, or the one whose task it is, was deleted here before, and nothing was imported.
    ``oddities`` say what usage was kept without being counted, as sums would be too large with it (the first thousand).
    """

    session_id: str
    created: bool
    added: int
    already_there: int
    leaf_id: str | None
    leaf_kept: bool = False
    task_of: str | None = None
    booked: int = 0
    oddities: tuple[str, ...] = ()
    deleted: bool = False

    def to_json(self) -> JsonObject:
        """Return it as JSON."""
        return {
            "sessionId": self.session_id,
            "created": self.created,
            "added": self.added,
            "alreadyThere": self.already_there,
            "leafId": self.leaf_id,
            "leafKept": self.leaf_kept,
            "taskOf": self.task_of,
            "booked": self.booked,
            "oddities": list(self.oddities),
            "deleted": self.deleted,
        }


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What importing one file did.

    ``sessions`` are those of the file, the first one being what the file is of; the fields that describe one session
    are about that one, ``added`` and ``already_there`` about all of them. ``rows`` counts the lines that are not blank,
    a header among them; ``skipped`` rows made no entry, ``repaired`` ones differ from what the file says (the first
    thousand of each, while ``skipped_rows`` and ``repaired_rows`` count them all), ``merged`` ones became part of
    another row's entry, ``left_out`` ones, by reason, say nothing of their own. ``held_back`` rows, from the line
    ``held_back_from`` on, belong to a message that may not be complete. ``unknown_kinds`` counts entries kept although
    their kind has no meaning here. ``call_conflicts`` are paid calls that the ledger has with other numbers; it keeps
    those.
    """

    file: str
    format: str
    sessions: tuple[SessionImport, ...]
    rows: int
    skipped: tuple[LineNote, ...] = ()
    repaired: tuple[LineNote, ...] = ()
    unknown_kinds: Mapping[str, int] = field(default_factory=dict)
    surrogates_replaced: int = 0
    skipped_rows: int = 0
    repaired_rows: int = 0
    merged: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    held_back: int = 0
    held_back_from: int | None = None
    call_conflicts: tuple[CallDifference, ...] = ()

    @property
    def session_id(self) -> str:
        """The id of the session that the file is of."""
        return self.sessions[0].session_id

    @property
    def created(self) -> bool:
        """Whether that session was not there before."""
        return self.sessions[0].created

    @property
    def leaf_id(self) -> str | None:
        """The leaf of that session after the import."""
        return self.sessions[0].leaf_id

    @property
    def leaf_kept(self) -> bool:
        """Whether a session of the file had moved on, so that its leaf was left where it is."""
        return any(session.leaf_kept for session in self.sessions)

    @property
    def added(self) -> int:
        """The new entries, of all sessions."""
        return sum(session.added for session in self.sessions)

    @property
    def already_there(self) -> int:
        """The entries that were imported before, of all sessions."""
        return sum(session.already_there for session in self.sessions)

    @property
    def changed(self) -> bool:
        """Whether the store is not as it was before."""
        return any(session.created or session.added or session.booked for session in self.sessions)

    def to_json(self) -> JsonObject:
        """Return the report as JSON."""
        sessions: list[JsonValue] = [session.to_json() for session in self.sessions]
        return {
            "file": self.file,
            "format": self.format,
            "sessionId": self.session_id,
            "created": self.created,
            "changed": self.changed,
            "rows": self.rows,
            "added": self.added,
            "alreadyThere": self.already_there,
            "leafId": self.leaf_id,
            "leafKept": self.leaf_kept,
            "skipped": _notes_json(self.skipped),
            "skippedRows": self.skipped_rows,
            "repaired": _notes_json(self.repaired),
            "repairedRows": self.repaired_rows,
            "mergedRows": self.merged,
            "leftOut": dict(self.left_out),
            "heldBackRows": self.held_back,
            "heldBackFromLine": self.held_back_from,
            "unknownKinds": dict(self.unknown_kinds),
            "surrogatesReplaced": self.surrogates_replaced,
            "callConflicts": [str(conflict) for conflict in self.call_conflicts],
            "sessions": sessions,
        }


def _notes_json(notes: tuple[LineNote, ...]) -> list[JsonValue]:
    return [{"line": note.line, "text": note.text} for note in notes]
