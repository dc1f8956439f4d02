"""The last handoff: which agent the work was passed to, which a router reads from the conversation."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import translate
from functools import cache
from typing import TypeAlias

from flue_py.compaction.blocks.block import Block
from flue_py.compaction.content import Message, string_field
from flue_py.compaction.material import Material
from flue_py.compaction.operations import part_of
from flue_py.compaction.quoting import quoted, shown_id, without_tags
from flue_py.core.exchange import tool_calls
from flue_py.core.javascript import js_json
from flue_py.core.jsontext import JsonObject

HANDOFFS = ("handoff*", "transfer_to_*", "route_to_*", "delegate_to_*")
"""How the tools are named that pass the work on, as shell patterns."""
_MOST_CHARS = 2_000
Matches: TypeAlias = Callable[[str], object]


def last_handoff(material: Material, names: Sequence[str] = HANDOFFS) -> Block:
    """Return the last call in what leaves whose tool's name matches, or else the one that was carried on.

    No block where a later handoff stays in the context, or none was made. O(messages).
    """
    # A conversation of ten thousand calls has a few tools.
    matches = cache(re.compile("|".join(map(translate, names)) or r"(?!)").match)
    if any(_handed_on(item.data, item.entry_id, matches) for item in reversed(material.staying)):
        return Block()
    line = None
    for call in reversed(material.pairing.results):
        line = _line(part_of(material, call), material.leaving[call.at].entry_id, matches)
        if line is not None:
            break
    if line is None:
        carried = (material.earlier or {}).get("lastHandoff")
        line = without_tags(carried) if isinstance(carried, str) else None
    return Block() if line is None else Block(f"[LAST HANDOFF]\n{line}", {"lastHandoff": line})


def _handed_on(message: Message, entry_id: str, matches: Matches) -> bool:
    return any(_line(call, entry_id, matches) is not None for call in tool_calls(message))


def _line(call: JsonObject, entry_id: str, matches: Matches) -> str | None:
    name = string_field(call, "name")
    if not matches(name):
        return None
    arguments = quoted(js_json(call.get("arguments")), _MOST_CHARS)
    return f"{quoted(name, 80)}({arguments}) (entry {shown_id(entry_id)})"
