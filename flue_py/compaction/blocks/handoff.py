"""The last handoff: which agent the work was passed to, which a router reads from the conversation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import translate

from flue_py.compaction.blocks.block import Block
from flue_py.compaction.content import ASSISTANT, Message, string_field
from flue_py.compaction.material import Material
from flue_py.compaction.quoting import on_one_line
from flue_py.core.exchange import tool_calls
from flue_py.core.javascript import js_json

HANDOFFS = ("handoff*", "transfer_to_*", "route_to_*", "delegate_to_*")
"""How the tools are named that pass the work on, as shell patterns."""
_MOST_CHARS = 2_000


def last_handoff(material: Material, names: Sequence[str] = HANDOFFS) -> Block:
    """Return the last call in what leaves whose tool's name matches, or else the one that was carried on.

    No block where a later handoff stays in the context, or none was made. O(messages).
    """
    if _last(((item.entry_id, item.data) for item in reversed(material.staying)), names) is not None:
        return Block()
    entries = zip(reversed(material.leaving), reversed(material.messages), strict=True)
    line = _last(((item.entry_id, message) for item, message in entries), names)
    if line is None:
        carried = (material.earlier or {}).get("lastHandoff")
        line = carried if isinstance(carried, str) else None
    return Block() if line is None else Block(f"[LAST HANDOFF]\n{line}", {"lastHandoff": line})


def _last(found: Iterable[tuple[str, Message]], names: Sequence[str]) -> str | None:
    matches = re.compile("|".join(map(translate, names)) or r"(?!)").match
    for entry_id, message in found:
        if message.get("role") != ASSISTANT:
            continue
        for call in reversed(tool_calls(message)):
            name = string_field(call, "name")
            if matches(name):
                arguments = on_one_line(js_json(call.get("arguments")), _MOST_CHARS)
                return f"{on_one_line(name, 80)}({arguments}) (entry {entry_id})"
    return None
