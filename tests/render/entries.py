"""Entries for the tests of rendering, made without a store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from flue_py.core.entries import Entry


def made(
    entry_id: str,
    parent: str | None = None,
    *,
    kind: str = "message",
    depth: int = 0,
    role: str | None = "user",
    **fields: Any,
) -> Entry:
    """Return an entry; a message says its own id unless it is given ``content``."""
    payload = {"role": role, "content": f"says {entry_id}", **fields} if kind == "message" else fields
    return Entry(
        id=entry_id,
        parent_id=parent,
        session_id="s",
        kind=kind,
        role=role if kind == "message" else None,
        source=None,
        depth=depth,
        revision=1,
        ordinal=0,
        created_us=1767607200000000,
        payload=json.dumps(payload),
    )


def page_entries(session: Any) -> list[dict[str, Any]]:
    """Return the entries of a session in the data of a page, put together as its scripts do."""
    entries: list[dict[str, Any]] = []
    seconds = 0
    for place, row in enumerate(session["entries"]):
        seconds += row["at"]
        entry = {"parent": place - 1, **session["sorts"][row["sort"]], **row}
        entry["at"] = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
        if entry["parent"] in (None, -1):
            del entry["parent"]
        if "rest" in row:
            entry["rest"] = json.loads(session["rests"][row["rest"]])
        entries.append(entry)
    return entries


def forest(parents: Sequence[int | None], turn_every: int = 0) -> list[Entry]:
    """Return entries ``e00000``, ``e00001`` ... with the given parents, which come before their children.

    The first one is what a user said, and so is every one whose number ``turn_every`` divides.
    """
    return [
        made(
            f"e{n:05d}",
            None if parent is None else f"e{parent:05d}",
            role="user" if n == 0 or (turn_every and n % turn_every == 0) else "assistant",
        )
        for n, parent in enumerate(parents)
    ]
