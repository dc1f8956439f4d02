"""Marks as a session sees them: its own, and on the path that a fork shares with its sources, theirs.

A fork copies nothing when it is made: it looks at the marks of the session it was made of, and through that at those of
its sources. Its own marks win; one without a value hides what a source says. When sources are deleted, the forks that
stay get what they saw as marks of their own.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from itertools import groupby
from operator import attrgetter
from typing import TypeAlias

from flue_py.core.rows import MarkRow
from flue_py.core.sessions import Mark
from flue_py.store.schema.session_state import SessionState
from flue_py.store.seam import Sources, Transaction
from flue_py.store.sql import marks as marks_sql
from flue_py.store.sql import read as read_sql
from flue_py.store.sql.inserts import KEEP_MARK, PUT_MARK
from flue_py.store.sql.marks import MarkOfSource

Spans: TypeAlias = dict[int, int]
"""A path: of each of its lanes the depth down to which it goes there."""

SeenMarks: TypeAlias = dict[tuple[str, str], MarkOfSource]
"""The marks that a fork sees of its sources, by entry and kind. Those without a value hide what is above them."""


def marks_of(tx: Transaction, state: SessionState) -> list[Mark]:
    """Return the marks that a session sees, by entry and kind. O(marks), and of a fork, O(forks above it)."""
    own = {(entry_id, kind): value for entry_id, kind, value in tx.rows(marks_sql.MARKS, session_key=state.key)}
    seen = {**{place: mark.value for place, mark in _inherited(tx, state).items()}, **own}
    found = [Mark(*place, value) for place, value in seen.items() if value is not None or place[1] == "retracted"]
    return sorted(found, key=attrgetter("entry_id", "kind"))


def pins_of(tx: Transaction, state: SessionState) -> dict[str, str]:
    """Return what the session's pins and those of its sources say: ``on`` or ``off``, by entry."""
    seen = {entry_id: mark.value for (entry_id, kind), mark in _inherited(tx, state).items() if kind == "pin"}
    seen |= dict(tx.rows(marks_sql.MARKS_OF_KIND, session_key=state.key, kind="pin"))
    return {entry_id: value for entry_id, value in seen.items() if value is not None}


def mark_of(tx: Transaction, state: SessionState, entry_id: str, kind: str) -> str | None:
    """Return the value of a label or a pin as the session sees it; None without one."""
    own = tx.first(marks_sql.MARK, session_key=state.key, entry_id=entry_id, kind=kind)
    if own is not None:
        return own[0]
    mark = _inherited(tx, state).get((entry_id, kind))
    return None if mark is None else mark.value


def put_marks(
    tx: Transaction, sources: Sources, state: SessionState, entry_ids: Iterable[str], kind: str, value: str | None
) -> None:
    """Give labels or pins a value. Where the session would see that anyway, it has no mark of its own."""
    inherited = _inherited(tx, state)
    for entry_id in entry_ids:
        above = inherited.get((entry_id, kind))
        if value == (None if above is None else above.value):
            tx.run(marks_sql.DROP_MARK, session_key=state.key, entry_id=entry_id, kind=kind)
        else:
            tx.insert(PUT_MARK, [MarkRow(state.key, entry_id, kind, value, sources.now_us())])


def leave_marks(tx: Transaction, keys: str) -> None:
    """Give the forks that stay, of sessions that are about to be deleted, what they see of their marks.

    ``keys`` is a JSON array of the sessions' keys. A constant number of statements, and one for each fork that sees
    marks.
    """
    forks = {key for (key,) in tx.rows(marks_sql.FORKS_THAT_STAY, keys=keys)}
    if not forks:
        return
    if not tx.is_alone:
        # What they mark meanwhile is theirs, and wins.
        tx.lock_sessions(forks)
    kept = [
        MarkRow(fork_key, entry_id, kind, mark.value, mark.at or 0)
        for fork_key, seen in _seen_by(tx, forks).items()
        for (entry_id, kind), mark in seen.items()
        if mark.value is not None
    ]
    if kept:
        tx.insert(KEEP_MARK, kept)


def _inherited(tx: Transaction, state: SessionState) -> SeenMarks:
    if state.forked_from_entry is None:
        return {}
    return _seen_by(tx, [state.key]).get(state.key, {})


def _seen_by(tx: Transaction, keys: Collection[int]) -> dict[int, SeenMarks]:
    """Return what forks see of the marks of their sources. One statement, if none of those has marks."""
    rows = tx.rows(marks_sql.MARKS_OF_SOURCES, keys=json.dumps(sorted(keys)))
    found = {}
    for fork_key, group in groupby(rows, key=attrgetter("fork_key")):
        marks = list(group)
        if any(mark.entry_id is not None for mark in marks):
            found[fork_key] = _on_shared_path(tx, marks)
    return found


def _on_shared_path(tx: Transaction, marks: Iterable[MarkOfSource]) -> SeenMarks:
    """Return those of the marks of a fork's sources that lie on the path it shares with each, the nearest of each."""
    seen: SeenMarks = {}
    shared: Spans | None = None
    for _, group in groupby(marks, key=attrgetter("level")):
        of_level = list(group)
        shared = _shared(tx, shared, of_level[0])
        for mark in of_level:
            if mark.entry_id is None or mark.kind is None or mark.lane_id is None or mark.depth is None:
                continue
            if mark.depth <= shared.get(mark.lane_id, -1):
                seen.setdefault((mark.entry_id, mark.kind), mark)
    return seen


def _shared(tx: Transaction, path: Spans | None, point: MarkOfSource) -> Spans:
    """Return what a path has in common with the one to the place that a source was forked from."""
    lane_id, depth = point.point_lane, point.point_depth
    if path is not None and depth <= path.get(lane_id, -1):
        return {lane: min(low, depth) for lane, low in path.items()}
    other = dict(tx.rows(read_sql.SPANS, tree_id=point.tree_id, lane_id=lane_id, depth=depth))
    if path is None:
        return other
    return {lane: min(low, other[lane]) for lane, low in path.items() if lane in other}
