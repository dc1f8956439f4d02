"""Parsed sessions as trees of entries, as a store would hand them out, and the contexts in them."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from flue_py.core.context import ContextEntry, project
from flue_py.core.entries import Entry
from flue_py.core.sessions import SessionInfo
from flue_py.formats.kit import SessionPart
from flue_py.formats.noumen import EXCLUSION


def tree_of(parsed: SessionPart) -> list[Entry]:
    """Return the entries of a parsed session as the tree that a store hands out."""
    depths: dict[str | None, int] = {None: -1}
    tree = []
    for ordinal, new in enumerate(parsed.entries):
        depths[new.id] = depths[new.parent_id] + 1
        tree.append(
            Entry(
                id=str(new.id),
                parent_id=new.parent_id,
                session_id=str(parsed.session.id),
                kind=new.kind,
                role=new.role,
                source=new.source,
                depth=depths[new.id],
                revision=1,
                ordinal=ordinal,
                created_us=new.created_us or 0,
                payload=new.payload,
                extra=new.extra,
            )
        )
    return tree


def path_in(tree: list[Entry], leaf: str | None) -> list[Entry]:
    """Return the path to a leaf, root first."""
    by_id = {entry.id: entry for entry in tree}
    path = []
    while leaf is not None:
        path.append(by_id[leaf])
        leaf = by_id[leaf].parent_id
    return path[::-1]


def items_of(parsed: SessionPart, leaf: str | None = "") -> list[ContextEntry]:
    """Return the context of a parsed session, at its own leaf unless another is given, without what is excluded."""
    path = path_in(tree_of(parsed), parsed.leaf if leaf == "" else leaf)
    excluded = {entry.fields["entryId"] for entry in path if entry.kind == EXCLUSION}
    return [item for item in project(path) if item.entry_id not in excluded]


def context_of(parsed: SessionPart, leaf: str | None = "") -> list[dict[str, Any]]:
    """Return the messages of that context."""
    return [item.data for item in items_of(parsed, leaf)]


def shown(parsed: SessionPart) -> list[tuple[Any, Any]]:
    """Return roles and texts of the context."""
    return [(message["role"], text_of(message)) for message in context_of(parsed)]


def text_of(message: dict[str, Any]) -> Any:
    """Return the content of a message: its text where it has only text, its parts otherwise."""
    content = message.get("content")
    if isinstance(content, list) and len(content) == 1 and content[0]["type"] == "text":
        return content[0]["text"]
    return content


def info_of(parsed: SessionPart, **fields: Any) -> SessionInfo:
    """Return the row that a store would have of a parsed session."""
    new = parsed.session
    info = SessionInfo(
        id=str(new.id),
        title=new.title,
        cwd=new.cwd,
        metadata_text=new.metadata_text,
        created_us=new.created_us or 0,
        updated_us=new.created_us or 0,
        leaf_id=parsed.leaf,
    )
    return replace(info, **fields)


def labels_of(parsed: SessionPart) -> dict[str, str]:
    """Return the labels that a store has after the import."""
    labels: dict[str, str] = {}
    for change in parsed.labels:
        labels.pop(change.target_id, None)
        if change.label is not None:
            labels[change.target_id] = change.label
    return labels


def document(value: Any) -> bytes:
    """Return a value as the bytes of a JSON document."""
    return json.dumps(value, ensure_ascii=False).encode()
