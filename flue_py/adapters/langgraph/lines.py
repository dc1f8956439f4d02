"""The messages of a graph as entries of a path: each is stored once, however many checkpoints have it.

A checkpoint names the messages that came last, and a listing with those before them; a new listing is written from time
to time, so that neither grows with each turn. Where a message was changed or removed, exclusions take it out of the
context, and a listing names those that are left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from flue_py.adapters.langgraph.known import Known
from flue_py.adapters.langgraph.messages import entry_of, fresh, message_of, same
from flue_py.adapters.langgraph.records import LISTING, Line, Record
from flue_py.adapters.langgraph.values import Values
from flue_py.adapters.shown import PROMPT, context
from flue_py.core.entries import Entry, NewEntry
from flue_py.core.jsontext import JsonValue
from flue_py.core.kinds import COMPACTION
from flue_py.core.projection import latest_compaction, project_kept
from flue_py.core.uncompacting import uncompaction
from flue_py.errors import CorruptStore
from flue_py.sessions.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_core.messages import BaseMessage

    from flue_py.adapters.langgraph.places import Place

Kept: TypeAlias = "tuple[BaseMessage, str]"
"""A message that is stored, which nobody else has, and the id of its entry."""

Message = TypeVar("Message")

_LINES = 64
_TAIL = 16
"""So many messages a checkpoint names by itself, and one more for each so many that there are."""


@dataclass(frozen=True, slots=True)
class NewLine(Generic[Message]):
    """The entries to write for a new value of the channel, one below the other, and where it then is."""

    entries: list[NewEntry]
    line: Line
    kept: tuple[tuple[Message, str], ...]


class Lines:
    """The lines of messages that this process knows."""

    def __init__(self) -> None:
        self._known: Known[tuple[Kept, ...]] = Known(_LINES)

    def note(self, session: Session | Place, entry_id: str, kept: tuple[Kept, ...]) -> None:
        """Remember the line of a checkpoint."""
        self._known.put((session.id, entry_id), kept)

    def known(self, session: Session | Place, record: Record) -> tuple[Kept, ...] | None:
        """Return the line of a checkpoint if it is remembered."""
        return self._known.get((session.id, record.entry_id))

    async def of(self, session: Session | Place, record: Record, values: Values) -> tuple[Kept, ...]:
        """Return the line of a checkpoint. O(messages), and O(1) where it is known. Raises `CorruptStore`."""
        if not record.line.count:
            return ()
        found = self.known(session, record)
        if found is None:
            entries = await entries_of(session, record)
            found = tuple((message_of(entry, values), entry.id) for entry in entries)
            self.note(session, record.entry_id, found)
        return found


async def entries_of(session: Session | Place, record: Record) -> list[Entry]:
    """Return the entries of a checkpoint's messages. Raises `CorruptStore`. O(messages)."""
    line = record.line
    ids = [*([] if line.listing is None else await _listed(session, line.listing)), *line.tail]
    shown = (
        {} if line.base is None else {each.id: each for each in context(await session.get_active_path(leaf=line.base))}
    )
    found = zip(ids, await session.get_entries(ids), strict=True)
    entries = [entry for id, stored in found if (entry := shown.get(id, stored)) is not None]
    if len(entries) != line.count:
        raise CorruptStore(
            f"checkpoint {record.id!r} has {line.count} messages, and {len(entries)} are there; run verify()"
        )
    return entries


async def path_behind(session: Session | Place, line: Line, below: str | None) -> Sequence[Entry]:
    """Return the path to an entry where a summary may be among the messages of its line, else nothing. O(path)."""
    return () if line.base is None or below is None else await session.get_active_path(leaf=below)


async def _listed(session: Session | Place, listing: str) -> list[str]:
    (entry,) = await session.get_entries([listing])
    ids = None if entry is None else entry.fields.get("ids")
    if not isinstance(ids, list):
        raise CorruptStore(f"the listing {listing!r} of a checkpoint's messages is missing; run verify()")
    return [str(id) for id in ids]


def new_line(
    old: tuple[Kept, ...],
    line: Line,
    messages: Sequence[BaseMessage],
    *,
    path: Sequence[Entry],
    below: str | None,
    new_id: Callable[[], str],
    values: Values,
    call_scope: str,
) -> NewLine[BaseMessage]:
    """Return what to write below an entry whose line is ``old``, so that it becomes ``messages``. O(messages)."""

    def build(
        message: BaseMessage, gone: Sequence[BaseMessage], id: str, parent: str | None
    ) -> tuple[BaseMessage, NewEntry]:
        # A copy, since the graph may change the message that it holds.
        held = fresh(message)
        entry = entry_of(held, values, id=id, parent_id=parent, call_scope=call_scope)
        if message.id is not None and any(message.id == each.id for each in gone):
            # It only changes its place, or was paid for as it was before.
            entry = replace(entry, calls=(), unpaid=True)
        return held, entry

    return changed_line(old, line, messages, path=path, below=below, new_id=new_id, is_same=same, build=build)


def changed_line(
    old: Sequence[tuple[Message, str]],
    line: Line,
    wanted: Sequence[Message],
    *,
    path: Sequence[Entry],
    below: str | None,
    new_id: Callable[[], str],
    is_same: Callable[[Message, Message], bool],
    build: Callable[[Message, Sequence[Message], str, str | None], tuple[Message, NewEntry]],
) -> NewLine[Message]:
    """Return what makes one line of another. ``build`` is given a message, and those that go. O(messages).

    ``path`` is that of `path_behind`. Where a summary goes, its compaction is taken back, and what it stood for is left
    out: no exclusion leaves out a summary.
    """
    kept, gone = _kept_and_gone(old, wanted, is_same)
    entries: list[NewEntry] = []

    def place() -> tuple[str, str | None]:
        return new_id(), entries[-1].id if entries else below

    gone_ids = [id for _, id in gone]
    summaries = {each.id for each in path if each.kind == COMPACTION}
    compaction = latest_compaction(path)
    if compaction is not None and any(id.removesuffix(PROMPT) in summaries for id in gone_ids):
        # The other summaries go with it, and come back as messages with what is behind them.
        first = next((at for at, (_, id) in enumerate(kept) if id.removesuffix(PROMPT) in summaries), len(kept))
        kept, gone = kept[:first], [*kept[first:], *gone]
        stays = {id for _, id in kept}
        gone_ids = [each.entry_id for each in project_kept(path) if each.entry_id not in stays]
        id, parent = place()
        tokens = compaction.fields.get("tokensBefore")
        taken_back = uncompaction(compaction, None, path[0].id, tokens if isinstance(tokens, int) else 0)
        entries.append(replace(taken_back, id=id, parent_id=parent))
    for gone_id in gone_ids:
        id, parent = place()
        entries.append(NewEntry.exclusion(gone_id, by="langgraph", id=id, parent_id=parent))
    stayed = len(kept)
    for message in wanted[stayed:]:
        id, parent = place()
        held, entry = build(message, [each for each, _ in gone], id, parent)
        entries.append(entry)
        kept.append((held, id))
    tail = (*line.tail, *(id for _, id in kept[stayed:]))
    line = replace(line, count=len(kept), tail=tail)
    if gone or len(tail) > _TAIL + len(kept) // _TAIL:
        id, parent = place()
        ids: list[JsonValue] = [each for _, each in kept]
        entries.append(NewEntry.custom(LISTING, {"ids": ids}, id=id, parent_id=parent))
        line = Line(len(kept), id, (), id if gone else line.epoch, line.base)
    return NewLine(entries, line, tuple(kept))


def _kept_and_gone(
    old: Sequence[tuple[Message, str]], wanted: Sequence[Message], is_same: Callable[[Message, Message], bool]
) -> tuple[list[tuple[Message, str]], list[tuple[Message, str]]]:
    stays = 0
    # As a rule all old ones stay, and looking at each of them takes most of the time.
    for (one, _), other in zip(old, wanted, strict=False):
        if not is_same(one, other):
            break
        stays += 1
    kept, gone = list(old[:stays]), []
    for each in old[stays:]:
        if len(kept) < len(wanted) and is_same(each[0], wanted[len(kept)]):
            kept.append(each)
        else:
            gone.append(each)
    return kept, gone
