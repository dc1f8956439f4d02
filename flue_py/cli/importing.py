"""Importing a pi session file into a store, once and again (row I03).

The session keeps the id of the file. Importing the same file again changes nothing; importing it after it has
grown adds what is new, below the entries that are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from flue_py.core.calls import CallDifference
from flue_py.core.entries import NewEntry
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.errors import SessionExists, UnreadableFile
from flue_py.formats.parsed import ParsedSession
from flue_py.formats.pi import FORMAT, SESSION_INFO, parse_pi
from flue_py.formats.report import LineNote, ParseReport
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What importing one file did.

    ``added`` entries are new, ``already_there`` were imported before. ``rows`` counts the lines that are not
    blank, the header among them; ``skipped`` rows made no entry, ``repaired`` ones differ from what the file
    says. ``unknown_kinds`` counts entries kept although their kind has no meaning here. ``leaf_kept`` says that
    the session had moved on since the last import, so that its leaf was left where it is. ``call_conflicts`` are paid
    calls that the ledger has with other numbers; it keeps those.
    """

    file: str
    format: str
    session_id: str
    created: bool
    rows: int
    added: int
    already_there: int
    leaf_id: str | None
    leaf_kept: bool = False
    skipped: tuple[LineNote, ...] = ()
    repaired: tuple[LineNote, ...] = ()
    unknown_kinds: Mapping[str, int] | None = None
    surrogates_replaced: int = 0
    call_conflicts: tuple[CallDifference, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether the store is not as it was before."""
        return self.created or self.added > 0

    def to_json(self) -> JsonObject:
        """Return the report as JSON."""
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
            "repaired": _notes_json(self.repaired),
            "unknownKinds": dict(self.unknown_kinds or {}),
            "surrogatesReplaced": self.surrogates_replaced,
            "callConflicts": [str(conflict) for conflict in self.call_conflicts],
        }


def _notes_json(notes: tuple[LineNote, ...]) -> list[JsonValue]:
    return [{"line": note.line, "text": note.text} for note in notes]


def read_pi_file(path: Path) -> ParsedSession:
    """Return what is in a pi session file. Raises `UnreadableFile`."""
    try:
        with path.open("rb") as lines:
            return parse_pi(lines, path.name)
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror or error}") from error


async def import_pi(store: Store, path: Path, *, scope: str = "") -> ImportReport:
    """Import a pi session file, as `import_parsed` does. Raises `UnreadableFile` for a file that is none."""
    return await import_parsed(store, read_pi_file(path), path, scope=scope)


async def import_parsed(store: Store, parsed: ParsedSession, path: Path, *, scope: str = "") -> ImportReport:
    """Import what is in a file, or what it has gained since it was imported last, and report what was done.

    Raises `UnreadableFile` where the file has nothing in common with the session of its id, `SessionExists`
    where another scope has that session. What raises has changed nothing. O(entries of the file).
    """
    session_id = str(parsed.session.id)
    session = await store.get_session(session_id)
    if session is None:
        session = await store.import_session(replace(parsed.session, scope=scope), parsed.entries, leaf=parsed.leaf)
        await _set_labels(session, parsed, parsed.entries)
        conflicts = await store.call_conflicts(parsed.entries, scope=scope)
        report = _report(path, parsed, session, created=True, added=len(parsed.entries))
        return replace(report, call_conflicts=conflicts)
    if session.scope != scope:
        raise SessionExists(
            session_id, detail=f"{path.name}: session {session_id!r} is already here, in scope {session.scope!r}"
        )
    return await _import_again(session, path, parsed)


async def _import_again(session: Session, path: Path, parsed: ParsedSession) -> ImportReport:
    known = await _known_ids(session)
    missing = [entry for entry in parsed.entries if entry.id not in known]
    if known and len(missing) == len(parsed.entries) > 0:
        raise UnreadableFile(
            f"{path.name} and session {session.id!r} have no entry in common: the file was rewritten with new ids "
            "(pi does so when it takes over an old version); delete the session, then import the file"
        )
    if not missing:
        return _report(path, parsed, session, added=0)
    newest_known = max((line for entry_id, line in parsed.lines.items() if entry_id in known), default=0)
    followed = not known or parsed.lines.get(session.leaf_id or "") == newest_known
    added = await session.import_entries(missing, leaf=parsed.leaf if followed else session.leaf_id)
    await _set_labels(session, parsed, missing)
    if parsed.session.title and any(entry.kind == SESSION_INFO for entry in missing):
        await session.set_title(parsed.session.title)
    report = _report(path, parsed, session, added=len(missing), leaf_kept=not followed)
    return replace(report, call_conflicts=added.call_conflicts)


async def _known_ids(session: Session) -> set[str]:
    """Return the ids of all entries the session sees or ever added: retracted ones are known, too."""
    known = {entry.id for entry in await session.get_tree()}
    after = 0
    while page := await session.changes(after=after, limit=_PAGE):
        known.update(entry.id for change in page for entry in change.entries)
        after = page[-1].revision
    return known


async def _set_labels(session: Session, parsed: ParsedSession, added: tuple[NewEntry, ...] | list[NewEntry]) -> None:
    """Set the labels that added label entries leave behind. Others may have been changed here since."""
    ids = {entry.id for entry in added}
    latest = {change.target_id: change.label for change in parsed.labels if change.entry_id in ids}
    there = await session.labels() if latest else {}
    for target, label in latest.items():
        if there.get(target) != label:
            await session.set_label(target, label)


def _report(
    path: Path, parsed: ParsedSession, session: Session, *, added: int, created: bool = False, leaf_kept: bool = False
) -> ImportReport:
    notes: ParseReport = parsed.report
    return ImportReport(
        file=str(path),
        format=FORMAT,
        session_id=session.id,
        created=created,
        rows=notes.rows,
        added=added,
        already_there=len(parsed.entries) - added,
        leaf_id=session.leaf_id,
        leaf_kept=leaf_kept,
        skipped=notes.skipped,
        repaired=notes.repaired,
        unknown_kinds=notes.unknown_kinds,
        surrogates_replaced=notes.surrogates_replaced,
    )
