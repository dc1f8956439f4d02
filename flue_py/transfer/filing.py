"""Adding files of the disk to a store, for agents to read: texts as they are, and of documents the text."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from os import PathLike
from pathlib import Path

from flue_py.context.document_texts import MOST_BYTES, is_document
from flue_py.context.extracting import extract_text
from flue_py.core.documents import DocumentInfo
from flue_py.core.frozen import frozen
from flue_py.core.limits import Limits
from flue_py.errors import FlueError, InvalidArgument, StoreClosed, StoreUnavailable, UnreadableFile, shown
from flue_py.plain_files import read_beginning
from flue_py.sessions.arguments import checked_path, checked_text
from flue_py.sessions.store import Store

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


@frozen
class FileRefusal:
    """A file that was not added, and why."""

    name: str
    reason: str


@frozen
class FilesReport:
    """What was added, in order of names; what was not, and why; and notes about texts that are cut."""

    added: tuple[DocumentInfo, ...]
    refused: tuple[FileRefusal, ...] = ()
    notes: tuple[str, ...] = ()


async def add_files(
    store: Store, path: str | PathLike[str], *, name: str | None = None, project: str = "", scope: str | None = None
) -> FilesReport:
    """Add a file, or what a folder has, to a store for agents to read, and return what became of each.

    A text in UTF-8 is stored as it is. Of a ``.pdf``, ``.docx``, ``.pptx`` or ``.xlsx`` the text is, with the extra
    ``documents``. ``name`` takes the place of the path's own; files of a folder have it in front, as in
    ``docs/guide/start.md``. Hidden ones and links in a folder are passed over. Each file is a transaction of its own,
    and adding it again replaces it.

    Raises `UnreadableFile` and `MissingExtra` for a single file; those of a folder are among the refused.
    `InvalidArgument` for a folder of more than 1,000 files. O(size).
    """
    start = checked_path(path, "path")
    checked_text(name, "name")
    waiting = store.backend.waiting
    found, is_folder = await waiting.call(partial(_listed, start, name))
    added: list[DocumentInfo] = []
    refused: list[FileRefusal] = []
    notes: list[str] = []
    for called, file in found:
        try:
            text, missing = await waiting.call(partial(_text_of, file, store.limits))
            media = _TYPES.get(file.suffix.lower(), "text/plain")
            info = await store.add_file(
                called, text, media_type=media, source=str(file.absolute()), project=project, scope=scope
            )
        except (StoreClosed, StoreUnavailable):
            raise
        except (FlueError, OSError) as error:
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
    found: list[tuple[str, Path]] = []
    for file in _within(start):
        found.append((f"{prefix}/{file.relative_to(start).as_posix()}".lstrip("/"), file))
        if len(found) > MOST_FILES:
            raise InvalidArgument(f"path: {shown(str(start))} has more than {MOST_FILES:,} files; add a part of it")
    return sorted(found), True


def _within(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if not each.startswith(".")]
        for each in files:
            file = Path(root, each)
            if not each.startswith(".") and not file.is_symlink():
                yield file


def _text_of(file: Path, limits: Limits) -> tuple[str, tuple[str, ...]]:
    data = _content(file)
    if is_document(file.name):
        extracted = extract_text(data, file.name, limits=limits)
        # What no store takes is none of the text of a document.
        return extracted.text.replace("\0", "").encode(errors="replace").decode(), extracted.notes
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnreadableFile(f"{shown(file.name)} is not a text in UTF-8") from None
    if "\0" in text:
        raise UnreadableFile(f"{shown(file.name)} is not a text: it has NUL characters")
    return text, ()


def _content(file: Path) -> bytes:
    try:
        data = read_beginning(file, MOST_BYTES + 1)
    except OSError as error:
        raise UnreadableFile(f"{shown(str(file))} cannot be read: {error.strerror}") from error
    if data is None:
        raise UnreadableFile(f"{shown(str(file))} is not a file")
    if len(data) > MOST_BYTES:
        raise UnreadableFile(f"{shown(file.name)} has more than {MOST_BYTES:,} bytes")
    return data
