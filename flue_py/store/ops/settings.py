"""The settings in force at a leaf, found from the end of its path."""

from __future__ import annotations

from itertools import pairwise

from flue_py.core.sessions import LeafChoice
from flue_py.core.settings import MODEL_CHANGE, THINKING_LEVEL_CHANGE, PathSettings, settings_on
from flue_py.store.ops.paths import entries_of_rows, spans_of
from flue_py.store.ops.state import place, read_state
from flue_py.store.schema.session_state import Position, SessionState
from flue_py.store.seam import Transaction
from flue_py.store.sql import read as read_sql
from flue_py.store.sql.rows import StoredEntry


def read_settings(tx: Transaction, session_id: str, leaf: LeafChoice) -> PathSettings:
    """Return the settings in force at a leaf (see `Backend.read_settings`)."""
    state = read_state(tx, session_id)
    _, position = place(tx, state, leaf)
    if position is None:
        return PathSettings()
    spans = spans_of(state, position)
    level = tx.first(read_sql.LAST_SETTING, **spans, kind=THINKING_LEVEL_CHANGE)
    change = tx.first(read_sql.LAST_SETTING, **spans, kind=MODEL_CHANGE)
    answer = _last_answer(tx, state, position, -1 if change is None else change.depth)
    return settings_on(entries_of_rows(tx, state, [row for row in (level, change, answer) if row is not None]))


def _last_answer(tx: Transaction, state: SessionState, position: Position, above: int) -> StoredEntry | None:
    """Return the last answer of a path that lies deeper than ``above``, looked for from the leaf."""
    stretches = [*tx.rows(read_sql.SPANS, **spans_of(state, position)), (0, -1)]
    for (lane_id, high), (_, low) in pairwise(stretches):
        within = read_sql.LaneRange(tree_id=state.tree_id, lane_id=lane_id, low=max(low, above), high=high)
        if (found := tx.first(read_sql.LAST_ANSWER, **within)) is not None or low <= above:
            return found
    return None
