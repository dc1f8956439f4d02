"""What others have added to a session since its last checkpoint, or before there was one, as a checkpoint."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, cast

from flue_py.adapters.langgraph.records import LINE, Line, Record
from flue_py.adapters.shown import context, is_plain
from flue_py.core.kinds import EXCLUSION, SHOWN_KINDS
from flue_py.errors import InvalidArgument

if TYPE_CHECKING:
    from typing import Any

    from flue_py.adapters.langgraph.places import Place
    from flue_py.adapters.langgraph.values import Values
    from flue_py.core.entries import Entry
    from flue_py.sessions.session import Session

MESSAGES = "messages"
"""The channel whose value is the conversation."""

_FIRST = "00000000-0000-6000-8000-"
_AFTER = "-ffff-"
"""What comes after every id that the framework makes at the same time."""


async def begun_by_hand(session: Session | Place, last: Record | None, values: Values) -> Record | None:
    """Return the checkpoint that stands for the context at the leaf; None where others have added nothing to it.

    It is ``last``, the one above, with the context as its messages. Its id follows from the leaf: it is greater than
    that of ``last``, and less than any that the framework makes later. Raises `InvalidArgument` where ``last`` has its
    messages in a form that cannot be gone on with. O(path).
    """
    leaf = session.leaf_id
    if leaf is None:
        return None
    path = await session.get_active_path(leaf=leaf)
    since = next((at for at, entry in enumerate(path, 1) if last is not None and entry.id == last.entry_id), 0)
    added = [entry.id for entry in path[since:] if _is_of_others(entry)]
    if not added:
        return None
    ids = tuple(entry.id for entry in context(path))
    line = Line(len(ids), None, ids, added[-1], None if all(map(is_plain, path)) else leaf)
    number = int(sha256(added[-1].encode()).hexdigest()[:10], 16) + 1
    if last is None:
        id = f"{_FIRST}{number:012x}"
        checkpoint: dict[str, Any] = {"v": 4, "versions_seen": {}, "channel_versions": {}}
        metadata: dict[str, Any] = {"parents": {}}
        last = Record(id, id, None, None, None, {}, {})
    else:
        base, node = last.high[:18] + _AFTER, last.high[24:]
        id = f"{base}{number + (int(node, 16) if last.high.startswith(base) else 0):012x}"
        checkpoint = cast("dict[str, Any]", values.loaded(last.checkpoint))
        metadata = cast("dict[str, Any]", values.loaded(last.metadata))
        is_delta = MESSAGES in (metadata.get("counters_since_delta_snapshot") or ())
        if is_delta or last.values.get(MESSAGES, LINE) not in (LINE, values.stored([])):
            raise InvalidArgument(
                f"session {session.id!r}: messages were added to a thread whose own ones are in no form that these can "
                "be added to (another serializer, or a delta channel); undo that, or move the leaf to a checkpoint"
            )
        # It is of no run: to delete one leaves it.
        metadata.pop("run_id", None)
    versions = checkpoint["channel_versions"]
    numbers = [int(str(each).partition(".")[0]) for each in versions.values()]
    version = f"{max(numbers, default=0) + 1:032}"
    versions = {**versions, MESSAGES: version}
    checkpoint |= {"ts": path[-1].created_at.isoformat(), "channel_versions": versions, "updated_channels": None}
    metadata |= {"source": "update", "step": metadata.get("step", -2) + 1}
    return replace(
        last,
        entry_id=id,
        id=id,
        parent=None if last.id == id else last.id,
        checkpoint=values.stored(checkpoint),
        metadata=values.stored(metadata),
        versions={**last.versions, MESSAGES: version},
        values={**last.values, MESSAGES: LINE},
        line=line,
        high=max(last.high, id),
    )


def _is_of_others(entry: Entry) -> bool:
    if entry.kind == EXCLUSION:
        return entry.fields.get("by") != "langgraph"
    return entry.kind in SHOWN_KINDS
