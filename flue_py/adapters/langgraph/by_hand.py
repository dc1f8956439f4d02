"""A session with messages and no checkpoint, which somebody began without the framework, as a thread."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from flue_py.adapters.langgraph.records import Line, Record
from flue_py.errors import InvalidArgument

if TYPE_CHECKING:
    from flue_py.core.jsontext import JsonObject
    from flue_py.sessions.session import Session

_VERSION = f"{1:032}"


async def begun_by_hand(session: Session) -> Record | None:
    """Return the checkpoint that stands for the context of a session; None if there are no messages in it.

    Its id follows from the last message, and is less than any that the framework makes. Raises `InvalidArgument` for
    a context with something else than whole messages, such as a summary. The cost of the context.
    """
    if session.leaf_id is None:
        return None
    items = await session.build_context_entries()
    if not items:
        return None
    if any(item.kind != "message" or item.excluded_parts for item in items):
        raise InvalidArgument(
            f"session {session.id!r} cannot be opened as a thread: its context has more than whole messages (a "
            "summary, or a message of which a part is left out); fork it at an entry before that"
        )
    ids = tuple(item.entry_id for item in items)
    id = f"00000000-0000-6000-8000-{sha256(ids[-1].encode()).hexdigest()[:12]}"
    checkpoint: JsonObject = {
        "v": 4,
        "ts": items[-1].entry.created_at.isoformat(),
        "channel_versions": {"messages": _VERSION},
        "versions_seen": {},
        "updated_channels": None,
    }
    return Record(
        id,
        id,
        None,
        {"json": checkpoint},
        {"json": {"source": "update", "step": -1, "parents": {}}},
        {"messages": _VERSION},
        {"messages": {"line": True}},
        Line(len(ids), None, ids),
        high=id,
    )
