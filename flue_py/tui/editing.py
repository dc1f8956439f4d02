"""Editing a prompt: it is appended anew beside the old one, and what followed the old one stays where it is."""

from __future__ import annotations

import time

from flue_py.core.entries import Entry
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.kinds import MESSAGE
from flue_py.core.spoken import message_text
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

MOST_CHARACTERS = 100_000
"""Longer prompts are not edited here: the box would take minutes to show them."""


def is_prompt(entry: Entry) -> bool:
    """Return whether an entry is what a user said."""
    return entry.kind == MESSAGE and entry.role == "user"


def text_of(entry: Entry) -> str:
    """Return the text of a prompt."""
    return message_text(entry.fields)


def edited(message: JsonObject, text: str, now_ms: int) -> JsonObject:
    """Return a message with another text, in place of its texts, where the first of them is. Other parts stay."""
    content = message.get("content")
    if not isinstance(content, list):
        return {**message, "content": text, "timestamp": now_ms}
    parts: list[JsonValue] = []
    is_placed = False
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text":
            parts.append(part)
        elif not is_placed:
            parts.append({**part, "text": text})
            is_placed = True
    new: list[JsonValue] = parts if is_placed else [{"type": "text", "text": text}, *parts]
    return {**message, "content": new, "timestamp": now_ms}


async def branch_off(store: Store, session: Session, entry: Entry, text: str, *, by: str) -> str:
    """Append a prompt with another text beside it, as the leaf; return the id of the new entry.

    One transaction. One `undo` returns the leaf to where it was. Raises `LeafConflict` if the session was written since
    the handle last saw it, and changes nothing then.
    """
    message = edited(entry.fields, text, time.time_ns() // 1_000_000)
    was = session.leaf_id
    if was == entry.parent_id:
        return (await session.append_message(message, source=entry.source)).entry_id
    async with store.atomic() as batch:
        # As a branch beside the old prompt, so that one undo moves the leaf back over the whole way.
        appended = batch.append_message(
            session, message, source=entry.source, on_conflict="branch", expected_leaf=entry.parent_id
        )
        batch.move_leaf(session, to=appended.entry_ids[-1], by=by, why="a prompt was edited", expected_leaf=was)
    return appended.entry_ids[-1]
