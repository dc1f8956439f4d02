"""Transcripts of sessions: as text, and as files that are continued as the session grows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from stat import S_IMODE
from typing import Literal

from flue_py.core.entries import Entry
from flue_py.core.sessions import STORED, LeafChoice, Stored
from flue_py.core.turns import part_of, turn_numbers
from flue_py.errors import EntryNotFound, InvalidArgument, StoreUnavailable
from flue_py.render.transcript import (
    WrittenUpTo,
    rewound_note,
    transcript_body,
    transcript_head,
    written_up_to,
)
from flue_py.sessions.arguments import checked_flag, checked_leaf, checked_path
from flue_py.sessions.handle import waiting_of
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.store.files.private import Part, write_whole


@dataclass(frozen=True, slots=True)
class TranscriptReport:
    """What writing a transcript did: a ``new`` file, or one ``continued``, ``rewound`` or ``unchanged``.

    ``entries`` is how many entries of the path were written, ``leaf_id`` where the transcript now ends.
    """

    path: Path
    outcome: Literal["new", "continued", "rewound", "unchanged"]
    entries: int
    leaf_id: str | None


async def transcript(session: Session, *, leaf: LeafChoice = STORED) -> str:
    """Return the path to a leaf as Markdown: all that is stored, compactions marked where they are. O(path)."""
    path = await session.get_active_path(leaf=checked_leaf(leaf))
    return await _head(session) + transcript_body(session.id, path, costs=await session.entry_costs())


async def _head(session: Session, *, task_of: str | None = None) -> str:
    return transcript_head(await session.refresh(), await session.name(), task_of=task_of)


async def transcripts_of_tasks(store: Store, session: Session) -> AsyncIterator[str]:
    """Yield the transcripts of a session's task sessions, and of theirs, each once, in the order they were started."""
    seen = {session.id}
    waiting = [(session.id, link.child_id) for link in await session.task_links()]
    while waiting:
        parent_id, child_id = waiting.pop(0)
        child = None if child_id in seen else await store.get_session(child_id)
        if child is None:
            continue
        seen.add(child_id)
        head = await _head(child, task_of=parent_id)
        yield head + transcript_body(child.id, await child.get_active_path(), costs=await child.entry_costs())
        waiting = [(child.id, link.child_id) for link in await child.task_links()] + waiting


async def write_transcript(
    session: Session,
    path: str | PathLike[str],
    *,
    leaf: LeafChoice = STORED,
    append: bool = False,
    overwrite: bool = False,
) -> TranscriptReport:
    """Write the transcript of a session to a file of its owner's; with ``append`` continue the one that is there.

    A file is continued from the entry that its last marker names. If the session has left that entry's path, the
    transcript says to which turn it went back, and goes on from there. The text in the file is never changed. Raises
    `InvalidArgument` if the file exists and neither ``append`` nor ``overwrite`` is given, or if it is not a
    transcript of this session; `StoreUnavailable` if it cannot be read or written. O(path).
    """
    target = checked_path(path, "path")
    checked_leaf(leaf)
    if checked_flag(append, "append") and checked_flag(overwrite, "overwrite"):
        raise InvalidArgument("append and overwrite: a transcript is either continued or written anew")
    there = await waiting_of(session).call(partial(_read_text, target)) if append else None
    if there is not None:
        return await _continue(session, target, there, leaf)
    entries = await session.get_active_path(leaf=leaf)
    text = await _head(session) + transcript_body(session.id, entries, costs=await session.entry_costs())
    await waiting_of(session).call(partial(_write_new, target, text, overwrite))
    return TranscriptReport(target, "new", len(entries), entries[-1].id if entries else None)


async def _continue(session: Session, target: Path, there: str, leaf: LeafChoice) -> TranscriptReport:
    known = _last_marker(session, target, there)
    info = await session.refresh()
    at = info.leaf_id if isinstance(leaf, Stored) else leaf
    since: str | None = None
    rewound = False
    if known is not None:
        since = await _where_it_goes_on(session, known, at)
        rewound = since != known.entry_id
    entries: list[Entry] = await session.get_active_path_since(since, leaf=at)
    if not entries:
        # A session that went back is noted when it goes on: until then there is nowhere to say so from.
        return TranscriptReport(target, "unchanged", 0, known.entry_id if known else at)
    before = [] if since is None else await session.get_active_path(leaf=since)
    note = rewound_note(max(turn_numbers(map(part_of, before)), default=0)) if rewound else ""
    body = transcript_body(session.id, entries, before=before, costs=await session.entry_costs())
    await waiting_of(session).call(partial(_append_text, target, note + body))
    return TranscriptReport(target, "rewound" if rewound else "continued", len(entries), at)


def _last_marker(session: Session, target: Path, text: str) -> WrittenUpTo | None:
    """Return how far a transcript goes; None if it has no entries yet. Raises `InvalidArgument` for another's."""
    known = written_up_to(text)
    if known is None and text.strip() and f"`{session.id}`" not in text.partition("\n---\n")[0]:
        raise InvalidArgument(f"{target} is not a transcript of session {session.id!r}; name another file")
    if known is not None and known.session_id != session.id:
        raise InvalidArgument(
            f"{target} is the transcript of session {known.session_id!r}, not of {session.id!r}; name another file"
        )
    return known


async def _where_it_goes_on(session: Session, known: WrittenUpTo, leaf: str | None) -> str | None:
    """Return the deepest entry that the transcript ends at or after, and that is on the path to the leaf."""
    try:
        return await session.common_ancestor(leaf=known.entry_id, other_leaf=leaf)
    except EntryNotFound as error:
        raise InvalidArgument(
            f"the transcript ends at entry {known.entry_id!r}, which session {session.id!r} does not see any more; "
            "write it anew"
        ) from error


# -- files ------------------------------------------------------------------------------------------------------------


def _write_new(target: Path, text: str, overwrite: bool) -> None:
    write_whole(target, text.encode(errors="replace"), overwrite=overwrite)


def _read_text(target: Path) -> str | None:
    """Return the text of a file, or None if it does not exist. Raises `StoreUnavailable`."""
    try:
        return target.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnavailable(f"{target} cannot be read: {error.strerror or error}") from error


def _append_text(target: Path, text: str) -> None:
    """Continue a file, which has all of the text or nothing of it even where the process is killed. O(file)."""
    whole = target.resolve()  # what a link leads to, not the link
    try:
        there, mode = whole.read_bytes(), whole.stat().st_mode
        with Part(whole, overwrite=True) as part:
            part.write(there + text.encode(errors="replace"))
            part.path.chmod(S_IMODE(mode))
            part.publish()
    except OSError as error:
        raise StoreUnavailable(f"{target} cannot be written: {error.strerror or error}") from error
