"""Exporting a session of a store into the format of another program."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import datetime, tzinfo
from functools import partial
from os import PathLike
from pathlib import Path
from stat import S_IMODE
from typing import Literal

from msgspec.structs import replace

from flue_py import errors
from flue_py.context.artifacts import extract_text
from flue_py.context.document_texts import MOST_BYTES, is_document
from flue_py.core.context import part_of, turn_numbers
from flue_py.core.entries import Entry
from flue_py.core.json import Frozen, unchecked_json
from flue_py.core.ledger import UsageRow
from flue_py.core.sessions import STORED, DocumentInfo, LeafChoice, Limits, SessionInfo, Stored, made_id
from flue_py.db.files import Part, make_private_folder, write_whole
from flue_py.formats.kit import Exported, SessionTree
from flue_py.formats.registry import export_names, known_format
from flue_py.providers.base import ExportNote
from flue_py.render.report import SUMS, overview_data, overview_page
from flue_py.render.transcript import WrittenUpTo, rewound_note, transcript_body, transcript_head, written_up_to
from flue_py.render.views import ListedSession
from flue_py.sessions import handle
from flue_py.sessions.money import listed_rows, price_parts
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.system import in_full, read_whole

# Exporting a session of a store into the format of another program.

_PAGE = 1000


async def export_session(
    session: Session,
    format: str,  # noqa: A002
    *,
    leaf: LeafChoice = STORED,
    folder: str | PathLike[str] | None = None,
) -> Exported:
    """Return a session in the format of another program, and notes on the parts that have no place in that format.

    ``format`` is one of `flue_py.formats.registry.export_names`: "pi" and "flue" hold the whole tree, with ``leaf`` as
    its leaf; the others hold the context at ``leaf``. The session works in ``folder`` there, if it is
    given. Nothing is changed. Raises `InvalidArgument` for another format, `EntryNotFound` for a leaf the session does
    not see. O(entries).
    """
    form = known_format(format) if isinstance(format, str) else None
    if form is None or form.write is None or form.name != format:
        raise errors.InvalidArgument(f"format: {errors.shown(format)} is not one of {', '.join(export_names())}")
    info = await session.refresh()
    at = info.leaf_id if isinstance(leaf, Stored) else leaf
    if folder is not None:
        info = replace(info, cwd=str(handle.checked_path(folder, "folder").absolute()))
    entries = await session.get_tree()
    if at is not None and all(entry.id != at for entry in entries):
        raise errors.EntryNotFound(session.id, at)
    labels, tasks = await session.marks.labels(), await session.tasks.links()
    costs = await session.money.entry_costs()
    parts = partial(price_parts, session._pricer)  # noqa: SLF001 - public, it would be a method of every session
    tree = SessionTree(info, entries, at, labels, tasks, costs, parts)
    exported = form.written(tree)
    if form.holds == "tree":
        left = {"a retracted entry": await _retracted(session, {entry.id for entry in entries})}
    else:
        outside = len(entries) - len(tree.context())
        left = {
            "an entry that is not in the context": outside,
            "the title": int(bool(info.title) and not form.is_resumed),
            "a label": len(labels),
        }
    notes = (ExportNote(f"left out: {reason}", count) for reason, count in left.items() if count)
    text = unchecked_json(exported.text) if handle.is_unchecked(session) else exported.text
    return replace(exported, text=text, notes=(*exported.notes, *notes))


async def _retracted(session: Session, seen: set[str]) -> int:
    """Return how many entries the session has added and does not see now."""
    retracted: set[str] = set()
    after = 0
    while page := await session.changes(after=after, limit=_PAGE):
        retracted.update(entry.id for change in page for entry in change.entries if entry.id not in seen)
        after = page[-1].revision
    return len(retracted)


# Going on with a session in another program: its file is put where the program looks for it.


class ContinuationReport(Frozen):
    """The file of a session for another program, and the ``line`` to type there.

    Without ``is_new`` the session was put there before, at the same leaf: the file is as it was, or as the program has
    gone on with it. ``notes`` name every part that was left out or changed.
    """

    path: Path
    line: str
    is_new: bool
    notes: tuple[ExportNote, ...] = ()


async def write_continuation(
    session: Session,
    program: str,
    *,
    leaf: LeafChoice = STORED,
    folder: str | PathLike[str] | None = None,
    home: str | PathLike[str] | None = None,
) -> ContinuationReport:
    """Write a session where a program keeps its own, so that it goes on with the context at ``leaf``.

    ``program`` is one of `flue_py.formats.registry.export_names` with ``resumed``. It works in ``folder`` there, by
    default where it did. ``home`` takes the place of the user's; otherwise the variables count by which the programs
    are told of another place. No file is written over. Raises `InvalidArgument`, `EntryNotFound`, `StoreUnavailable`.
    O(entries).
    """
    if program not in export_names(resumed=True):
        raise errors.InvalidArgument(
            f"program: {errors.shown(program)} is not one of {', '.join(export_names(resumed=True))}"
        )
    exported = await export_session(session, program, leaf=leaf, folder=folder)
    way = exported.continuation
    assert way is not None
    path = place_in_home(way.place, None if home is None else handle.checked_path(home, "home"))
    is_new = await handle.waiting_of(session).call(partial(_write_once, path, exported.text, way.beside))
    return ContinuationReport(path, way.line(str(path)), is_new, exported.notes)


def place_in_home(place: str, home: Path | None) -> Path:
    """Return a place below ``~`` in full: in ``home``, or else where the program's variable says, or in the home."""
    if home is not None:
        return home / place.removeprefix("~/")
    for folder, variable in _FOLDERS.items():
        if place.startswith(folder) and (value := os.environ.get(variable)):
            return Path(value) / place.removeprefix(folder)
    return Path(in_full(place))


_FOLDERS = {"~/.claude/": "CLAUDE_CONFIG_DIR", "~/.codex/": "CODEX_HOME", "~/.pi/agent/": "PI_CODING_AGENT_DIR"}
"""The folders of programs, and the variables that name others in their place."""


def _write_once(path: Path, text: str, beside: Mapping[str, str]) -> bool:
    if os.path.exists(path):  # unlike Path.exists, it has no opinion on names that no file can have
        return False
    make_private_folder(path.parent)
    # The file itself last: with it the session is there.
    for place, content in {**beside, path.name: text}.items():
        if not os.path.exists(path.parent / place):
            write_whole(path.parent / place, content.encode(errors="replace"))
    return True


# All sessions as a folder of pages: a list, and a page for each session with its tasks.

_INDEX = "index.html"


class PagesReport(Frozen):
    """The folder of pages: the list, how many pages of sessions, and their bytes; damaged sessions have none."""

    index: Path
    sessions: int
    size_bytes: int
    damaged: tuple[str, ...] = ()


async def write_pages(
    store: Store,
    folder: str | PathLike[str],
    sessions: Sequence[SessionInfo] | None = None,
    *,
    damaged: Sequence[str] = (),
    sizes: bool = False,
    overwrite: bool = False,
    made_at: datetime | None = None,
    tz: tzinfo | str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PagesReport:
    """Write a page for each session, with its tasks, and `index.html`, the list of them with what they cost.

    ``sessions`` are all but those `SessionInfo.is_aside` if left out, and stand in their order. Of ``damaged`` ones the
    list has the ids alone. Days are those of ``tz``.
    ``sizes`` counts tokens, which takes time. Files are for their owner alone. Raises `InvalidArgument` if a file is
    there and ``overwrite`` is False, `StoreUnavailable`. O(entries).
    """
    target = handle.checked_path(folder, "folder")
    if sessions is None:
        damaged = ids = list[str]()
        listed = handle.listed_sessions(partial(store.list_sessions, limit=_PAGE), ids)
        sessions = [info async for info in listed if not info.is_aside]
    waiting, size = store.backend.waiting, 0
    if not handle.checked_flag(overwrite, "overwrite") and (target / _INDEX).exists():
        raise errors.InvalidArgument(f"{target / _INDEX} is there already; name another folder, or overwrite it")
    await waiting.call(partial(make_private_folder, target))
    pages: dict[str, ListedSession] = {}
    unread = [*damaged]
    for number, row in enumerate(await listed_rows(store, sessions), 1):
        session = await store.get_session(row.info.id)
        if session is None:
            continue  # it was deleted meanwhile
        try:
            data = (await session.reports.html(sizes=sizes, made_at=made_at)).encode(errors="backslashreplace")
        except errors.CorruptStore:
            unread.append(session.id)
            continue
        name = f"session-{_file_name(row.info.id)}.html"
        await waiting.call(partial(write_whole, target / name, data, overwrite=overwrite))
        pages[name] = row
        size += len(data)
        if progress is not None:
            progress(number, len(sessions))
    payers = [row.info for row in pages.values()]
    sums: dict[str, Sequence[UsageRow]] = {}
    total = UsageRow()
    for name in SUMS:
        usage = await store.usage(payers, group_by=[name], tz=tz)
        sums[name], total = usage.rows, usage.total
    listing = overview_data(pages, sums, total, damaged=unread, unchecked=store.unchecked, made_at=made_at)
    data = overview_page(listing).encode(errors="backslashreplace")
    await waiting.call(partial(write_whole, target / _INDEX, data, overwrite=overwrite))
    return PagesReport(target / _INDEX, len(pages), size + len(data), tuple(unread))


def _file_name(session_id: str) -> str:
    plain = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", session_id)
    return session_id if plain else made_id("page", session_id)


# Adding files of the disk to a store, for agents to read: texts as they are, and of documents the text.

MOST_FILES = 1_000
"""How many files one folder may have."""

_TYPES = {
    ".md": "text/markdown",
    ".csv": "text/csv",
    ".html": "text/html",
    ".json": "application/json",
    ".xml": "application/xml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".pdf": "application/pdf",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}


class FileRefusal(Frozen):
    """A file that was not added, and why."""

    name: str
    reason: str


class FilesReport(Frozen):
    """The files that were added, by name; those that were not, and why; and notes about texts that are cut."""

    added: tuple[DocumentInfo, ...]
    refused: tuple[FileRefusal, ...] = ()
    notes: tuple[str, ...] = ()


async def add_files(
    store: Store, path: str | PathLike[str], *, name: str | None = None, project: str = "", scope: str | None = None
) -> FilesReport:
    """Add a file, or those of a folder, to a store for agents to read, and return the outcome of each.

    A text in UTF-8 is stored as it is. Of a ``.pdf``, ``.docx``, ``.pptx`` or ``.xlsx`` the text is, with the extra
    ``documents``. ``name`` takes the place of the path's own; files of a folder have it in front, as in
    ``docs/guide/start.md``. Hidden ones and links in a folder are passed over. Each file is a transaction of its own,
    and adding it again replaces it.

    Raises `UnreadableFile` and `MissingExtra` for a single file; those of a folder are among the refused.
    `InvalidArgument` for a folder of more than 1,000 files. O(size).
    """
    start = handle.checked_path(path, "path")
    handle.checked_text(name, "name")
    waiting = store.backend.waiting
    files, is_folder = await waiting.call(partial(_listed, start, name))
    added: list[DocumentInfo] = []
    refused: list[FileRefusal] = []
    notes: list[str] = []
    for called, file in files:
        try:
            text, missing = await waiting.call(partial(_text_of, file, store.limits))
            media = _TYPES.get(file.suffix.lower(), "text/plain")
            info = await store.add_file(
                called, text, media_type=media, source=str(file.absolute()), project=project, scope=scope
            )
        except (errors.StoreClosed, errors.StoreUnavailable):
            raise
        except (errors.FlueError, OSError) as error:
            if not is_folder:
                raise
            refused.append(FileRefusal(called, str(error)))
        else:
            added.append(info)
            notes += [f"{called}: {note}" for note in missing]
    return FilesReport(tuple(added), tuple(refused), tuple(notes))


def _listed(start: Path, name: str | None) -> tuple[list[tuple[str, Path]], bool]:
    """Return the files with the names they are to have, in their order, and whether they are of a folder."""
    if not start.is_dir():
        return [(start.name if name is None else name, start)], False
    prefix = start.resolve().name if name is None else name.rstrip("/")
    files: list[tuple[str, Path]] = []
    for file in _within(start):
        files.append((f"{prefix}/{file.relative_to(start).as_posix()}".lstrip("/"), file))
        if len(files) > MOST_FILES:
            raise errors.InvalidArgument(
                f"path: {errors.shown(str(start))} has more than {MOST_FILES:,} files; add a part of it"
            )
    return sorted(files), True


def _within(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            file = Path(root, name)
            if not name.startswith(".") and not file.is_symlink():
                yield file


def _text_of(file: Path, limits: Limits) -> tuple[str, tuple[str, ...]]:
    data = read_whole(file, MOST_BYTES)
    if is_document(file.name):
        extracted = extract_text(data, file.name, limits=limits)
        # What no store takes is none of the text of a document.
        return extracted.text.replace("\0", "").encode(errors="replace").decode(), extracted.notes
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise errors.UnreadableFile(f"{errors.shown(file.name)} is not a text in UTF-8") from None
    if "\0" in text:
        raise errors.UnreadableFile(f"{errors.shown(file.name)} is not a text: it has NUL characters")
    return text, ()


# Transcripts of sessions: as text, and as files that are continued as the session grows.


class TranscriptReport(Frozen):
    """The effect of writing a transcript: a ``new`` file, or one ``continued``, ``rewound`` or ``unchanged``.

    ``entries`` is how many entries of the path were written, ``leaf_id`` where the transcript now ends.
    """

    path: Path
    outcome: Literal["new", "continued", "rewound", "unchanged"]
    entries: int
    leaf_id: str | None


async def transcript(session: Session, *, leaf: LeafChoice = STORED) -> str:
    """Return the path to a leaf as Markdown: all that is stored, compactions marked where they are. O(path)."""
    path = await session.get_active_path(leaf=handle.checked_leaf(leaf))
    return await _head(session) + transcript_body(session.id, path, costs=await session.money.entry_costs())


async def _head(session: Session, *, task_of: str | None = None) -> str:
    return transcript_head(
        await session.refresh(), await session.reports.name(), task_of=task_of, unchecked=handle.is_unchecked(session)
    )


async def transcripts_of_tasks(store: Store, session: Session) -> AsyncIterator[str]:
    """Yield the transcripts of a session's task sessions, and of theirs, each once, in the order they were started."""
    seen = {session.id}
    waiting = [(session.id, link.child_id) for link in await session.tasks.links()]
    while waiting:
        parent_id, child_id = waiting.pop(0)
        child = None if child_id in seen else await store.get_session(child_id)
        if child is None:
            continue
        seen.add(child_id)
        head = await _head(child, task_of=parent_id)
        yield head + transcript_body(child.id, await child.get_active_path(), costs=await child.money.entry_costs())
        waiting = [(child.id, link.child_id) for link in await child.tasks.links()] + waiting


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
    target = handle.checked_path(path, "path")
    handle.checked_leaf(leaf)
    if handle.checked_flag(append, "append") and handle.checked_flag(overwrite, "overwrite"):
        raise errors.InvalidArgument("append and overwrite: a transcript is either continued or written anew")
    there = await handle.waiting_of(session).call(partial(_read_text, target)) if append else None
    if there is not None:
        return await _continue(session, target, there, leaf)
    entries = await session.get_active_path(leaf=leaf)
    text = await _head(session) + transcript_body(session.id, entries, costs=await session.money.entry_costs())
    data = text.encode(errors="replace")
    await handle.waiting_of(session).call(partial(write_whole, target, data, overwrite=overwrite))
    return TranscriptReport(target, "new", len(entries), entries[-1].id if entries else None)


async def _continue(session: Session, target: Path, there: str, leaf: LeafChoice) -> TranscriptReport:
    written = _last_marker(session, target, there)
    info = await session.refresh()
    at = info.leaf_id if isinstance(leaf, Stored) else leaf
    since: str | None = None
    rewound = False
    if written is not None:
        since = await _where_it_goes_on(session, written, at)
        rewound = since != written.entry_id
    entries: list[Entry] = await session.get_active_path(since=since, leaf=at)
    if not entries:
        # A session that went back is noted when it goes on: until then there is nowhere to say so from.
        return TranscriptReport(target, "unchanged", 0, written.entry_id if written else at)
    before = [] if since is None else await session.get_active_path(leaf=since)
    note = rewound_note(max(turn_numbers(map(part_of, before)), default=0)) if rewound else ""
    body = transcript_body(session.id, entries, before=before, costs=await session.money.entry_costs())
    await handle.waiting_of(session).call(partial(_append_text, target, note + body))
    return TranscriptReport(target, "rewound" if rewound else "continued", len(entries), at)


def _last_marker(session: Session, target: Path, text: str) -> WrittenUpTo | None:
    """Return how far a transcript goes; None if it has no entries yet. Raises `InvalidArgument` for another's."""
    written = written_up_to(text)
    if written is None and text.strip() and f"`{session.id}`" not in text.partition("\n---\n")[0]:
        raise errors.InvalidArgument(f"{target} is not a transcript of session {session.id!r}; name another file")
    if written is not None and written.session_id != session.id:
        raise errors.InvalidArgument(
            f"{target} is the transcript of session {written.session_id!r}, not of {session.id!r}; name another file"
        )
    return written


async def _where_it_goes_on(session: Session, written: WrittenUpTo, leaf: str | None) -> str | None:
    """Return the deepest entry that the transcript ends at or after, and that is on the path to the leaf."""
    try:
        return await session.branches.common_ancestor(leaf=written.entry_id, other_leaf=leaf)
    except errors.EntryNotFound as error:
        raise errors.InvalidArgument(
            f"the transcript ends at entry {written.entry_id!r}, which session {session.id!r} does not see any more; "
            "write it anew"
        ) from error


# files


def _read_text(target: Path) -> str | None:
    """Return the text of a file, or None if it does not exist. Raises `StoreUnavailable`."""
    try:
        return target.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise errors.StoreUnavailable(f"{target} cannot be read: {error.strerror or error}") from error


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
        raise errors.StoreUnavailable(f"{target} cannot be written: {error.strerror or error}") from error
