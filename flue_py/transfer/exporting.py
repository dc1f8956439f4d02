"""Exporting a session of a store into the format of another program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, cast

from flue_py.core.entries import Entry
from flue_py.core.sessions import STORED, LeafChoice, SessionInfo, Stored
from flue_py.errors import EntryNotFound, InvalidArgument, shown
from flue_py.formats.kit.exported import Exported
from flue_py.sessions.session import Session
from flue_py.wire.leftovers import ExportNote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from flue_py.core.projection import ContextEntry

_LISTS = {
    "openai-chat": ("flue_py.formats.openai.write_chat", "export_openai_chat"),
    "openai-responses": ("flue_py.formats.openai.write_responses", "export_openai_responses"),
    "anthropic": ("flue_py.formats.anthropic.write", "export_anthropic"),
}
_TREES = ("pi", "flue")
EXPORT_FORMATS = (*_TREES, *_LISTS)
"""The formats that a session can be exported to: files with the whole tree, then lists of what the model sees."""

_PAGE = 1000


async def export_session(session: Session, format: str, *, leaf: LeafChoice = STORED) -> Exported:  # noqa: A002
    """Return a session in the format of another program, and notes on what that format had no place for.

    ``format`` is one of `EXPORT_FORMATS`: "pi" and "flue" hold the whole tree, with ``leaf`` as its leaf;
    "openai-chat", "openai-responses" and "anthropic" hold what the model sees at ``leaf``. Nothing is changed. Raises
    `InvalidArgument` for another format, `EntryNotFound` for a leaf the session does not see. O(entries).
    """
    if format not in EXPORT_FORMATS:
        raise InvalidArgument(f"format: {shown(format)} is none of {', '.join(EXPORT_FORMATS)}")
    info = await session.refresh()
    at = info.leaf_id if isinstance(leaf, Stored) else leaf
    tree = await session.get_tree()
    if at is not None and all(entry.id != at for entry in tree):
        raise EntryNotFound(session.id, at)
    if format in _LISTS:
        return await _export_list(session, format, info, tree, at)
    return await _export_tree(session, format, info, tree, at)


async def _export_list(
    session: Session, format_name: str, info: SessionInfo, tree: Sequence[Entry], leaf: str | None
) -> Exported:
    module, name = _LISTS[format_name]
    export = cast("Callable[[Iterable[ContextEntry]], Exported]", getattr(import_module(module), name))
    context = await session.build_context_entries(leaf=leaf)
    exported = export(context)
    notes = list(exported.notes)
    if outside := len(tree) - len(context):
        notes.append(ExportNote("left out: an entry that is not in the context", outside))
    if info.title:
        notes.append(ExportNote("left out: the title"))
    if labels := await session.labels():
        notes.append(ExportNote("left out: a label", len(labels)))
    return replace(exported, notes=tuple(notes))


async def _export_tree(
    session: Session, format_name: str, info: SessionInfo, tree: Sequence[Entry], leaf: str | None
) -> Exported:
    labels, tasks = await session.labels(), await session.task_links()
    notes: list[ExportNote] = []
    if format_name == "pi":
        from flue_py.formats.pi.write import export_pi  # noqa: PLC0415 - only when asked for

        exported = export_pi(info, tree, leaf, labels, await session.entry_costs())
        if tasks:
            notes.append(ExportNote("left out: a link to a task session", len(tasks)))
    else:
        from flue_py.formats.flue.write import export_flue  # noqa: PLC0415 - only when asked for

        exported = export_flue(info, tree, leaf, labels, tasks)
    if retracted := await _retracted(session, {entry.id for entry in tree}):
        notes.append(ExportNote("left out: a retracted entry", retracted))
    return replace(exported, notes=(*exported.notes, *notes))


async def _retracted(session: Session, seen: set[str]) -> int:
    """Return how many entries the session has added and does not see now."""
    gone: set[str] = set()
    after = 0
    while page := await session.changes(after=after, limit=_PAGE):
        gone.update(entry.id for change in page for entry in change.entries if entry.id not in seen)
        after = page[-1].revision
    return len(gone)
