"""Documents as people read them, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.core.documents import Document, DocumentInfo, DocumentName
from flue_py.core.entries import from_microseconds
from flue_py.core.jsontext import JsonObject
from flue_py.render.lines import Line, printable
from flue_py.render.rows import iso


def info_row(info: DocumentInfo) -> JsonObject:
    """Return a document without its text."""
    return {
        "name": info.name,
        "type": info.type,
        "space": info.space,
        "project": info.project or None,
        "scope": info.scope,
        "source": info.source,
        "characters": info.chars,
        "createdAt": iso(from_microseconds(info.created_us)),
        "changedAt": iso(from_microseconds(info.changed_us)),
    }


def document_row(document: Document) -> JsonObject:
    """Return a document with its text."""
    return {**info_row(document.info), "text": document.body}


def place_of(document: DocumentInfo | DocumentName) -> str:
    """Return in words whose memory it is, and for which folder; "" for that of the REPL for all folders."""
    agent = document.space.removeprefix("agents/")
    whose = f" of agent {printable(agent)}" if agent != document.space else ""
    return f"{whose} for {printable(document.project)}" if document.project else whose


def memory_lines(memories: Sequence[Document]) -> list[Line]:
    """Return memories: a head for each agent and folder, and below it each memory, with the lines of its text."""
    lines: list[Line] = []
    last = None
    for memory in memories:
        if (memory.info.space, memory.info.project) != last:
            last = (memory.info.space, memory.info.project)
            lines.append(((f"memory{place_of(memory.info)}", "dim"),))
        first, *others = memory.body.strip().splitlines() or [""]
        lines.append(
            (
                (f"  [{printable(memory.type)}] ", "dim"),
                (f"{printable(memory.name)}: ", "bold"),
                (printable(first), ""),
            )
        )
        lines += [((f"    {printable(line)}", ""),) for line in others]
    return lines
