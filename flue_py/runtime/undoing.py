"""Undo and redo as a person means them: the last thing that was done, be it a move of the leaf or an edit beside it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeAlias

from flue_py.core.jsontext import decode_object, to_json
from flue_py.core.log import MAX_BY_CHARACTERS, RESTORABLE, LogLine, restorable
from flue_py.core.sessions import Moved
from flue_py.sessions.session import Session

_UNDO, _REDO = ", undo", ", redo"
"""How those are called in the log who take an edit back, or make it again: the next one knows by it what is undone."""
_AT_ONCE = 50

_Place: TypeAlias = tuple[str, str | None, str | None]
"""What an edit changes: its kind, the entry, and the key of metadata."""
_Changes: TypeAlias = dict[_Place, tuple[str | None, str | None]]
"""What was at places before and after."""


@dataclass(slots=True)
class _Now:
    """What is stored at the places that the lines read so far have changed."""

    values: dict[_Place, str | None] = field(default_factory=dict)
    metadata: str | None = None
    revision: int | None = None

    def note(self, line: LogLine) -> None:
        """Take in the next older line."""
        self.revision = line.revision if self.revision is None else self.revision
        for place, (_, after) in _changes(line).items():
            self.values.setdefault(place, after)
        for edit in line.edits:
            if edit.what == "metadata" and self.metadata is None:
                self.metadata = edit.after or "{}"

    def standing(self, line: LogLine) -> _Changes:
        """Return what can be taken back of a line: what nobody has changed since; of several values, all or none."""
        changes = _changes(line)
        standing = {place: change for place, change in changes.items() if self.values[place] == change[1]}
        is_metadata = all(edit.what == "metadata" for edit in restorable(line.edits))
        return standing if is_metadata or (len(standing) == len(changes) and self.is_whole(line)) else {}

    def is_whole(self, line: LogLine) -> bool:
        """Return whether the metadata, too, are as a line left them."""
        return all(edit.what != "metadata" or (edit.after or "{}") == self.metadata for edit in line.edits)


def _changes(line: LogLine) -> _Changes:
    changes: _Changes = {}
    for edit in restorable(line.edits):
        if edit.what != "metadata":
            changes[edit.what, edit.entry_id, None] = (edit.before, edit.after)
            continue
        before, after = (decode_object(text or "{}") for text in (edit.before, edit.after))
        for key in before.keys() | after.keys():
            texts = [to_json(side[key]).decode() if key in side else None for side in (before, after)]
            changes[edit.what, None, key] = (texts[0], texts[1])
    return {place: (before, after) for place, (before, after) in changes.items() if before != after}


async def undo_last(session: Session, *, by: str, why: str | None = None) -> Moved | LogLine | None:
    """Take back the last operation, or the last edit that somebody is named for; return the move, or the edit's line.

    Edits are those of titles, metadata, completion, labels and pins; what a program set on the way (nobody is named)
    is passed over, and stays: an edit whose value was changed since is passed over, too, and of metadata only the keys
    come back that it changed. None if there is nothing to undo. Raises as `Session.undo`. O(log lines since).
    """
    now = _Now()
    line = await _last(session, now)
    if line is None or not _is_edit(line):
        return await session.undo(by=by, why=why)
    return await _take_back(session, line, now, by + _UNDO, why)


async def redo_last(session: Session, *, by: str, why: str | None = None) -> Moved | LogLine | None:
    """Do again what `undo_last` took back last; None if nothing was, or something was done since."""
    now = _Now()
    async with aclosing(_lines(session, now)) as lines:
        line = await anext(lines, None)
    if line is None or not _is_edit(line):
        return await session.redo(by=by, why=why)
    return await _take_back(session, line, now, by + _REDO, why) if _ends_in(line, _UNDO) else None


async def _take_back(session: Session, line: LogLine, now: _Now, by: str, why: str | None) -> LogLine | None:
    standing, by = now.standing(line), by[-MAX_BY_CHARACTERS:]
    if not standing:
        return None
    if now.is_whole(line):
        return await session.go_back(to=line.revision, before=True, by=by, why=why)
    metadata = decode_object(now.metadata or "{}")
    was = next(decode_object(edit.before or "{}") for edit in line.edits if edit.what == "metadata")
    for _, _, key in standing:
        if key in was:
            metadata[key] = was[key]
        elif key is not None:
            del metadata[key]
    await session.set_metadata(metadata, by=by, why=why, expected_revision=now.revision)
    return (await session.log(limit=1))[0]


async def _last(session: Session, now: _Now) -> LogLine | None:
    """Return the line of what was done last, is not undone and can be."""
    undone: set[int] = set()
    edits_undone: list[_Changes] = []
    async with aclosing(_lines(session, now)) as lines:
        async for line in lines:
            if not _is_edit(line):
                if line.what == "undo":
                    undone.add(line.refers_to or 0)
                elif line.revision not in undone:
                    return line
            elif _ends_in(line, _UNDO):
                edits_undone.append(_changes(line))
            else:
                changes = _changes(line)
                undoing = next((undo for undo in reversed(edits_undone) if _takes_back(undo, changes)), None)
                if undoing is not None:
                    edits_undone.remove(undoing)
                elif now.standing(line):
                    return line
    return None


def _takes_back(undoing: _Changes, changes: _Changes) -> bool:
    return bool(undoing) and all(changes.get(place) == (after, before) for place, (before, after) in undoing.items())


async def _lines(session: Session, now: _Now) -> AsyncGenerator[LogLine, None]:
    """Yield the lines of the log that can be taken back, newest first, and note what all have left.

    What was undone and then done again is as it was: neither of these two lines is yielded.
    """
    redone: set[int] = set()
    edits_redone = 0
    before: int | None = None
    while lines := await session.log(limit=_AT_ONCE, before=before):
        for line in lines:
            now.note(line)
            is_edit = _is_edit(line)
            if line.what in ("branch", "other") or not (is_edit or not line.edits or line.moved_leaf):
                continue
            if line.what == "redo":
                redone.add(line.refers_to or 0)
            elif line.what == "undo" and line.refers_to in redone:
                redone.discard(line.refers_to)
            elif is_edit and _ends_in(line, _REDO):
                edits_redone += 1
            elif is_edit and edits_redone and _ends_in(line, _UNDO):
                edits_redone -= 1
            else:
                yield line
        before = lines[-1].revision


def _ends_in(line: LogLine, way: str) -> bool:
    return (line.by or "").endswith(way)


def _is_edit(line: LogLine) -> bool:
    edits = restorable(line.edits)
    return (
        line.by is not None
        and (line.what in RESTORABLE or line.what == "edit")
        and any(edit.before != edit.after for edit in edits)
    )
