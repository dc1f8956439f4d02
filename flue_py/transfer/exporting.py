"""Exporting a session of a store into the format of another program."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from flue_py.core.sessions import STORED, LeafChoice, Stored
from flue_py.errors import EntryNotFound, InvalidArgument, shown
from flue_py.formats.kit.exported import Exported, SessionTree
from flue_py.formats.registry import export_names, known_format
from flue_py.sessions.repricing import price_parts
from flue_py.sessions.session import Session
from flue_py.wire.leftovers import ExportNote

_PAGE = 1000


async def export_session(session: Session, format: str, *, leaf: LeafChoice = STORED) -> Exported:  # noqa: A002
    """Return a session in the format of another program, and notes on what that format had no place for.

    ``format`` is one of `flue_py.formats.registry.export_names`: "pi" and "flue" hold the whole tree, with ``leaf`` as
    its leaf; "openai-chat", "openai-responses" and "anthropic" hold what the model sees at ``leaf``. Nothing is
    changed. Raises `InvalidArgument` for another format, `EntryNotFound` for a leaf the session does not see.
    O(entries).
    """
    found = known_format(format) if isinstance(format, str) else None
    if found is None or found.write is None or found.name != format:
        raise InvalidArgument(f"format: {shown(format)} is not one of {', '.join(export_names())}")
    info = await session.refresh()
    at = info.leaf_id if isinstance(leaf, Stored) else leaf
    entries = await session.get_tree()
    if at is not None and all(entry.id != at for entry in entries):
        raise EntryNotFound(session.id, at)
    labels, tasks = await session.labels(), await session.task_links()
    costs = await session.entry_costs()
    parts = partial(price_parts, session._pricer)  # noqa: SLF001 - public, it would be a method of every session
    tree = SessionTree(info, entries, at, labels, tasks, costs, parts)
    exported = found.written(tree)
    if found.holds == "tree":
        left = {"a retracted entry": await _retracted(session, {entry.id for entry in entries})}
    else:
        outside = len(entries) - len(tree.context())
        left = {
            "an entry that is not in the context": outside,
            "the title": int(bool(info.title)),
            "a label": len(labels),
        }
    notes = (ExportNote(f"left out: {what}", count) for what, count in left.items() if count)
    return replace(exported, notes=(*exported.notes, *notes))


async def _retracted(session: Session, seen: set[str]) -> int:
    """Return how many entries the session has added and does not see now."""
    gone: set[str] = set()
    after = 0
    while page := await session.changes(after=after, limit=_PAGE):
        gone.update(entry.id for change in page for entry in change.entries if entry.id not in seen)
        after = page[-1].revision
    return len(gone)
