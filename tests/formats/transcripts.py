"""Transcripts of other agents for the tests: real ones, hand-made rows, and short ways to import and compare."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import flue_py
from flue_py.core.kinds import message_text
from flue_py.sessions.store import Store
from flue_py.transfer.imports import ImportReport, import_file
from tests.values import existing

DATA = Path(__file__).parent.parent / "data"
CLAUDE = "claude_code/entire-ca-fca7ea73ac-0.jsonl.gz"
CODEX_REAL = "codex/agent-history-real-session-01.jsonl.gz"
CODEX_MADE = "codex/agent-sessions-codex-large.jsonl.gz"


def lines_of(name: str) -> list[bytes]:
    """Return the lines of a stored transcript."""
    return gzip.decompress((DATA / name).read_bytes()).splitlines(keepends=True)


def facts_of(name: str) -> Any:
    """Return what an independent script says of a stored transcript."""
    folder, _, file = name.partition("/")
    return json.loads((DATA / folder / "facts.json").read_bytes())["files"][file.removesuffix(".gz")]


def as_lines(rows: Iterable[Any]) -> list[bytes]:
    """Return rows as lines; what is bytes already stays as it is."""
    return [row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n" for row in rows]


def spoken(messages: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return roles and texts of messages."""
    return [(message["role"], message_text(message)) for message in messages]


async def import_lines(
    store: Store, folder: Path, lines: Sequence[bytes], name: str = "session.jsonl", **options: Any
) -> ImportReport:
    """Write lines to a file, import it, and return the report."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"".join(lines))
    return await import_file(store, file, **options)


@dataclass(frozen=True)
class Seen:
    """All that can be seen of a session: entries by id, its leaf, the context, the usage of the path."""

    entries: dict[str, tuple[Any, ...]]
    leaf: str | None
    title: str | None
    context: list[Any]
    usage: Any
    spent_tokens: int


async def seen(store: Store, session_id: str) -> Seen:
    """Return all that can be seen of a session."""
    session = existing(await store.get_session(session_id))
    entries = {
        entry.id: (entry.parent_id, entry.kind, entry.role, entry.created_us, entry.payload, entry.extra)
        for entry in await session.get_tree()
    }
    window = await session.money.aggregate_usage_since(None)
    return Seen(
        entries, session.leaf_id, session.title, await session.build_context(), window.usage, session.info.spent_tokens
    )


async def all_seen(store: Store) -> dict[str, Seen]:
    """Return all that can be seen of all sessions."""
    page = await store.list_sessions(limit=1000)
    return {info.id: await seen(store, info.id) for info in page.sessions}


async def seen_at_once(folder: Path, lines: Sequence[bytes], name: str = "session.jsonl", **options: Any) -> Any:
    """Return what can be seen of a file that is imported into a store of its own, and the report."""
    async with flue_py.open(":memory:") as store:
        report = await import_lines(store, folder, lines, name, **options)
        assert (await store.verify()).problems == []
        return await all_seen(store), report


async def check_growth(folder: Path, lines: Sequence[bytes], name: str = "session.jsonl", first: int = 1) -> None:
    """Check that a file that is imported at each length, from ``first`` on, ends as it does at once."""
    whole, _ = await seen_at_once(folder / "whole", lines, name)
    async with flue_py.open(":memory:") as store:
        for end in range(first, len(lines) + 1):
            await import_lines(store, folder / "grown", lines[:end], name)
        again = await import_lines(store, folder / "grown", lines, name)
        assert (again.added, again.changed) == (0, False)
        assert (await store.verify()).problems == []
        assert await all_seen(store) == whole


def rows_are_accounted_for(report: ImportReport, *, several_entries: int = 0) -> bool:
    """Return whether every row of a file is an entry, was merged, left out, skipped or held back, and said to be so."""
    entries = report.added + report.already_there - several_entries
    told = report.merged + sum(report.left_out.values()) + report.skipped_rows + report.held_back
    return report.rows == entries + told


def sequence_hash(messages: Iterable[Any]) -> str:
    """Return the SHA-256 over the roles and texts of messages, as the facts have it."""
    lines = [f"{message['role']}:{sha256(message_text(message).encode()).hexdigest()}" for message in messages]
    return sha256("\n".join(lines).encode()).hexdigest()
