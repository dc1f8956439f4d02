"""Files that are as they were when they were imported last, so that they need not be read again.

What a store remembers of them is a document, which no list of documents shows and no copy takes along. It is believed
where a file has the size, the times and the place on the disk that it had, and the same end; where the files that it
goes on from are as they were, too; and where the same sessions are there, with no less in them. (Of two times, the one
at which a file was changed in any way cannot be set.)
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from flue_py.core.documents import IMPORTED_FILES, DocumentName, NewDocument
from flue_py.core.jsontext import decode_object, encode_json
from flue_py.core.sessions import SessionInfo
from flue_py.errors import FlueError
from flue_py.formats.kit.report import LineNote
from flue_py.formats.registry import OURS, find_format
from flue_py.sessions.store import Store
from flue_py.transfer.importing.reports import ImportReport, SessionImport
from flue_py.transfer.importing.sources import AUTO, ImportSource, stated
from flue_py.transfer.plain_files import open_plain

_SETTLED_NS = 1_000_000_000
"""How old a change has to be: two in the same moment could have the same time."""
_END = 1 << 12
_MOST = 50_000
"""How many files are remembered."""


class ImportedFiles:
    """What a store remembers of the files that were imported into a scope."""

    def __init__(self, store: Store, scope: str, *, finish: bool, wanted: str, version: str) -> None:
        self._store = store
        self._name = DocumentName(scope, "file", IMPORTED_FILES, "", "unchanged")
        self._finish = finish
        self._wanted = wanted
        self._version = version
        self._files: dict[str, Any] = {}
        self._sessions: dict[str, SessionInfo] = {}
        self._imported: dict[str, Any] = {}
        self._reports: dict[Path, ImportReport | None] = {}

    async def read(self) -> None:
        """Read what is remembered. O(files, and their sessions)."""
        document = await self._store.backend.get_document(self._name)
        known: dict[str, Any] = {} if document is None else {**decode_object(document.body)}
        # Another version may read more of a file.
        files = known.get("files") if known.get("version") == self._version else None
        self._files = files if isinstance(files, dict) else {}
        self._sessions = await self._there({name for each in self._files.values() for name in each["sessions"]})

    async def _there(self, names: set[str]) -> dict[str, SessionInfo]:
        infos = await self._store.backend.get_sessions(sorted(names))
        return {info.id: info for info in infos if info is not None and info.scope == self._name.scope}

    def report(self, path: Path) -> ImportReport | None:
        """Return what importing a file would report, which changes nothing; None if it has to be read.

        It is looked at the first time that it is asked for.
        """
        if path not in self._reports:
            self._reports[path] = self._report(path)
        return self._reports[path]

    def _report(self, path: Path) -> ImportReport | None:
        known = self._files.get(_key(path))
        if known is None or known["finish"] != self._finish or self._wanted not in (AUTO, known["report"]["format"]):
            return None
        counts: dict[str, list[int]] = known["sessions"]
        sessions = {name: self._sessions[name] for name in counts if name in self._sessions}
        if len(sessions) < len(counts) or any(_has_less(info, counts[name]) for name, info in sessions.items()):
            return None
        beside = find_format(known["report"]["format"]).said_beside(path)
        before: dict[str, list[int]] = known.get("before", {})
        if known.get("beside") != beside or any(_stated(each) != state for each, state in before.items()):
            return None
        if known["file"] != _state_of(path):
            return None
        return _reported(str(path), known["report"], sessions)

    def note(self, source: ImportSource, report: ImportReport) -> None:
        """Remember a file that was imported, if all that it brought is known by it alone, and is in the store."""
        made_by = find_format(report.format)
        # A note may be that what comes before is not there, which is not remembered.
        depends = made_by.package != OURS or (made_by.before is not None and report.repaired_rows > 0)
        is_odd = report.call_conflicts or any(
            each.deleted or each.leaf_kept or each.oddities for each in report.sessions
        )
        now = None if depends or is_odd else _state_of(source.path)
        changed_ns = max(time for state in (source.state, *source.before.values()) for time in state[3:])
        is_settled = source.opened_ns - changed_ns > _SETTLED_NS
        if now is not None and now[:-1] == source.state and is_settled:
            known = {"file": now, "finish": self._finish, "report": report.to_json()}
            known |= {"before": source.before, "beside": source.beside}
            self._imported[_key(source.path)] = known

    async def write(self) -> None:
        """Store what was noted, if it can be: an import does not fail by it. O(files that are remembered)."""
        if self._imported:
            with suppress(FlueError):
                await self._write()

    async def _write(self) -> None:
        there = await self._there({each["sessionId"] for known in self._imported.values() for each in _parts(known)})
        for path, known in self._imported.items():
            names = [each["sessionId"] for each in _parts(known)]
            if all(name in there for name in names):
                known["sessions"] = {name: _counts(there[name]) for name in names}
                self._files.pop(path, None)
                self._files[path] = known
        files = dict([*self._files.items()][-_MOST:])
        body = encode_json({"version": self._version, "files": files}, "files")[0]
        new = NewDocument("file", self._name.name, body, "json", self._name.scope, IMPORTED_FILES)
        await self._store.backend.put_document(new)


def _key(path: Path) -> str:
    """Return the name of a file as text, whatever its bytes are."""
    return path.absolute().as_uri()


def _parts(known: dict[str, Any]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = known["report"]["sessions"]
    return parts


def _counts(info: SessionInfo) -> list[int]:
    return [info.session_key, info.entry_count, info.spent_tokens]


def _has_less(info: SessionInfo, counts: list[int]) -> bool:
    """Return whether a session is another one of that id, an older copy, or something was taken back in it."""
    return info.session_key != counts[0] or any(
        now < before for now, before in zip(_counts(info), counts, strict=False)
    )


def _state_of(path: Path) -> list[Any] | None:
    """Return where on the disk a file is, its size, its times, and the digest of its end."""
    try:
        with open_plain(path) as file:
            state = stated(os.fstat(file.fileno()))
            file.seek(max(0, state[2] - _END))
            return [*state, blake2b(file.read(_END), digest_size=16).hexdigest()]
    except (OSError, FlueError):
        return None


def _stated(path: str) -> list[int] | None:
    """Return which file is at a path, and whether it was changed; None where there is none."""
    try:
        return stated(os.stat(path))
    except OSError:
        return None


def _reported(file: str, before: dict[str, Any], sessions: dict[str, SessionInfo]) -> ImportReport:
    def part(each: dict[str, Any]) -> SessionImport:
        leaf = sessions[each["sessionId"]].leaf_id
        there = each["added"] + each["alreadyThere"]
        return SessionImport(each["sessionId"], False, 0, there, leaf, task_of=each["taskOf"])

    return ImportReport(
        file=file,
        format=before["format"],
        sessions=tuple(part(each) for each in before["sessions"]),
        rows=before["rows"],
        skipped=tuple(LineNote(each["line"], each["text"]) for each in before["skipped"]),
        repaired=tuple(LineNote(each["line"], each["text"]) for each in before["repaired"]),
        unknown_kinds=before["unknownKinds"],
        surrogates_replaced=before["surrogatesReplaced"],
        skipped_rows=before["skippedRows"],
        repaired_rows=before["repairedRows"],
        merged=before["mergedRows"],
        left_out=before["leftOut"],
        held_back=before["heldBackRows"],
        held_back_from=before["heldBackFromLine"],
    )
