"""The reference's stored session documents as a format to import (see `flue`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

import pydantic_core

from flue_py.core.ids import derived_id
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json
from flue_py.core.sessions import NewSession
from flue_py.core.task_names import session_of, task_references
from flue_py.errors import InvalidEntry, UnreadableFile
from flue_py.formats.flue.document import VERSION, parse_session_document
from flue_py.formats.kit.parsed import ParsedSession, TaskOf
from flue_py.formats.kit.rows import Notes, is_name
from flue_py.formats.kit.streaming import DocumentReader
from flue_py.formats.kit.values import one_text

FORMAT = "flue"


def looks_like_flue(first_bytes: bytes, path: str) -> bool:
    """Return whether a file begins like a session document of the reference."""
    start = first_bytes.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not start.startswith(b"{"):
        return False
    head = start.replace(b" ", b"").replace(b"\n", b"").replace(b"\r", b"").replace(b"\t", b"")
    return b'"version":3' in head and b'"entries":[' in head and b'"type":"session"' not in head[:200]


def parse_flue(data: bytes, name: str = "the file") -> Sequence[ParsedSession]:
    """Return the session of a document. Its id is derived from the file's name, since the document has none.

    Raises `UnreadableFile`. Cost: O(size).
    """
    document = parse_session_document(_decoded(data, name))
    stem = one_text(name.rpartition("/")[2]) or "document"
    stem = stem.removesuffix(".json")
    session_id = stem if is_name(stem) and len(stem.encode()) <= 200 else f"flue-{derived_id(stem)}"
    imported: JsonObject = {"format": FORMAT, "version": VERSION, "file": one_text(name) or ""}
    imported["leafId"] = document.leaf_id
    # By these the next import knows what was the document's, and what was set here since.
    imported["keys"] = [name for name in document.metadata if name != "imported"]
    if document.updated_us is not None:
        imported["updatedUs"] = document.updated_us
    if "imported" in document.metadata:
        imported["imported"] = document.metadata["imported"]
    try:
        metadata, replaced = encode_json({**document.metadata, "imported": imported}, "metadata")
    except InvalidEntry as error:
        raise UnreadableFile(f"{name}: {error}; nothing was imported") from error
    replaced += sum(entry.surrogates_replaced for entry in document.entries)
    notes = Notes(rows=len(document.entries), surrogates_replaced=replaced)
    for note in document.notes:
        notes.repair(1, note)
    parent = _task_of(document.metadata)
    session = NewSession(
        id=session_id,
        metadata_text=metadata,
        created_us=document.created_us,
        kind="root" if parent is None else "task",
    )
    lines = {str(entry.id): number for number, entry in enumerate(document.entries, start=1)}
    tasks = [
        TaskOf(child, task.task_id)
        for task in task_references(document.metadata)
        if is_name(child := session_of(task.storage_key)) and (not task.task_id or is_name(task.task_id))
    ]
    return [
        ParsedSession(
            FORMAT, str(VERSION), session, document.entries, document.leaf_id, lines, notes.report(),
            parent=parent, tasks=tuple(tasks), restates=True,
        )
    ]  # fmt: skip


read_flue = partial(DocumentReader, parse_flue)


def _task_of(metadata: JsonObject) -> TaskOf | None:
    """Return the session that metadata name as the parent, and the task's name there."""
    parent, task_id = metadata.get("parentSession"), metadata.get("taskId")
    return TaskOf(parent, task_id) if is_name(parent) and is_name(task_id) else None


def _decoded(data: bytes, name: str) -> JsonValue:
    text = data.removeprefix(b"\xef\xbb\xbf")
    try:
        value: JsonValue = pydantic_core.from_json(text, allow_inf_nan=False)
    except (ValueError, TypeError):
        try:
            value = json.loads(text.decode(errors="replace"), parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise UnreadableFile(f"{name} is not JSON ({error}); nothing was imported") from error
    return value


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")
