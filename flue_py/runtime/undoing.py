"""Undo and redo as a person means them: the last thing that was done, be it a move of the leaf or an edit beside it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from flue_py.core.log import MAX_BY_CHARACTERS, RESTORABLE, LogLine, restorable
from flue_py.core.sessions import Moved
from flue_py.sessions.session import Session

_UNDO, _REDO = ", undo", ", redo"
"""How those are called in the log who take an edit back, or make it again: the next one knows by it what is undone."""
_AT_ONCE = 50


async def undo_last(session: Session, *, by: str, why: str | None = None) -> Moved | LogLine | None:
    """Take back the last operation, or the last edit that somebody is named for; return the move, or the edit's line.

    Edits are those of titles, metadata, completion, labels and pins; what a program set on the way (nobody is named)
    is passed over. None if there is nothing to undo. Raises as `Session.undo`. O(log lines since).
    """
    line = await _last(session)
    if line is None or not _is_edit(line):
        return await session.undo(by=by, why=why)
    return await _take_back(session, line, by + _UNDO, why)


async def redo_last(session: Session, *, by: str, why: str | None = None) -> Moved | LogLine | None:
    """Do again what `undo_last` took back last; None if nothing was, or something was done since."""
    redone = 0
    moves: set[int] = set()
    async with aclosing(_lines(session)) as lines:
        async for line in lines:
            if not _is_edit(line):
                if line.what == "redo":
                    moves.add(line.refers_to or 0)
                elif line.what == "undo" and line.refers_to in moves:
                    moves.discard(line.refers_to)
                else:
                    break
            elif (line.by or "").endswith(_REDO):
                redone += 1
            elif not (line.by or "").endswith(_UNDO):
                return None
            elif redone:
                redone -= 1
            else:
                return await _take_back(session, line, by + _REDO, why)
    return await session.redo(by=by, why=why)


async def _take_back(session: Session, line: LogLine, by: str, why: str | None) -> LogLine | None:
    return await session.go_back(to=line.revision, before=True, by=by[-MAX_BY_CHARACTERS:], why=why)


async def _last(session: Session) -> LogLine | None:
    """Return the line of what was done last and is not undone."""
    undone: set[int] = set()
    redone: set[int] = set()
    edits_undone = edits_redone = 0
    async with aclosing(_lines(session)) as lines:
        async for line in lines:
            if not _is_edit(line):
                if line.what == "redo":
                    redone.add(line.refers_to or 0)
                elif line.what == "undo" and line.refers_to in redone:
                    redone.discard(line.refers_to)
                elif line.what == "undo":
                    undone.add(line.refers_to or 0)
                elif line.revision not in undone:
                    return line
            elif (line.by or "").endswith(_REDO):
                edits_redone += 1
            elif not (line.by or "").endswith(_UNDO):
                if not edits_undone:
                    return line
                edits_undone -= 1
            elif edits_redone:
                edits_redone -= 1
            else:
                edits_undone += 1
    return None


async def _lines(session: Session) -> AsyncGenerator[LogLine, None]:
    """Yield the lines of the log that can be taken back, newest first."""
    before: int | None = None
    while lines := await session.log(limit=_AT_ONCE, before=before):
        for line in lines:
            if line.what not in ("branch", "other") and (_is_edit(line) or not line.edits or line.moved_leaf):
                yield line
        before = lines[-1].revision


def _is_edit(line: LogLine) -> bool:
    edits = restorable(line.edits)
    return (
        line.by is not None
        and (line.what in RESTORABLE or line.what == "edit")
        and any(edit.before != edit.after for edit in edits)
    )
