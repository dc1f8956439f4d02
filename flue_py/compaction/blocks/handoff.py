"""The last handoff: which agent the work was passed to, which a router reads from the conversation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate
from functools import cache

from flue_py.compaction.blocks.block import Block
from flue_py.compaction.content import string_field
from flue_py.compaction.material import Material
from flue_py.compaction.quoting import quoted, shown_id, without_tags
from flue_py.core.exchange import tool_calls
from flue_py.core.javascript import js_json
from flue_py.core.jsontext import JsonObject

HANDOFFS = ("handoff*", "transfer_to_*", "route_to_*", "delegate_to_*")
"""How the tools are named that pass the work on, as shell patterns."""
_MOST_CHARS = 2_000
_MOST_TOKENS = 1_000
"""What is shown of it in a large window; in a small one no more than a sixteenth of it."""
_WINDOW_PART = 16
_LEAST_CHARS = 120
"""What is shown of it in a window however small: to whom the work was passed."""


def last_handoff(material: Material, names: Sequence[str] = HANDOFFS) -> Block:
    """Return the last call in what leaves whose tool's name matches, or else the one that was carried on.

    No block where a later handoff stays in the context, or none was made. O(messages).
    """
    # A conversation of ten thousand calls has a few tools.
    matches = cache(re.compile("|".join(map(translate, names)) or r"(?!)").match)
    if any(matches(string_field(call, "name")) for item in material.staying for call in tool_calls(item.data)):
        return Block()
    carried = (material.earlier or {}).get("lastHandoff")
    line = without_tags(carried) if isinstance(carried, str) else None
    for call, part in reversed(material.pairing.parts.items()):
        if matches(string_field(part, "name")):
            line = _line(part, material.leaving[call.at].entry_id)
            break
    if line is None:
        return Block()
    begun = material.begun(line, material.at_most(_MOST_TOKENS, _WINDOW_PART))
    shown = line if begun == line else f"{begun or line[:_LEAST_CHARS]}…"
    return Block(f"[LAST HANDOFF]\n{shown}", {"lastHandoff": line})


def _line(call: JsonObject, entry_id: str) -> str:
    name, arguments = string_field(call, "name"), js_json(call.get("arguments"))
    return f"{quoted(name, 80)}({quoted(arguments, _MOST_CHARS)}) (entry {shown_id(entry_id)})"
