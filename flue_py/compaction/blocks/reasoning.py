"""Excerpts of what the model thought: why something was done is often said nowhere else."""

from __future__ import annotations

from flue_py.compaction.blocks.block import Block
from flue_py.compaction.content import ASSISTANT, content_parts, string_field
from flue_py.compaction.material import Material
from flue_py.compaction.quoting import attribute, fenced

TOKENS_A_TURN = 500
TOKENS_IN_ALL = 4_000
_WINDOW_PART = 16
_TAG_TOKENS = 40
"""What the tags around an excerpt take, and the heading."""


def reasoning_excerpts(material: Material, *, per_turn: int = TOKENS_A_TURN, in_all: int = TOKENS_IN_ALL) -> Block:
    """Return the newest thinking in what leaves, oldest first, each under the id of its entry.

    At most ``per_turn`` tokens of a message and ``in_all`` together, and a sixteenth of the window. No block without
    any. O(messages).
    """
    found: list[str] = []
    left = material.at_most(in_all, _WINDOW_PART)
    for at in range(len(material.leaving) - 1, -1, -1):
        most = min(per_turn, left - _TAG_TOKENS)
        if most <= 0:
            break
        item, message = material.leaving[at], material.message(at)
        text = _cut(material, _thinking(material, message), most) if _may_think(message) else ""
        if text:
            shown = fenced("reasoning", text, attribute("entry", item.entry_id))
            found.append(shown)
            left -= material.tokens_of(shown)
    return Block("\n".join(["[REASONING EXCERPTS]", *reversed(found)])) if found else Block()


def _may_think(message: object) -> bool:
    return isinstance(message, dict) and message.get("role") == ASSISTANT


def _thinking(material: Material, message: object) -> str:
    assert isinstance(message, dict)
    parts = content_parts(message, material.planned.plan.policy)
    return "\n".join(string_field(part, "thinking") for part in parts if part.get("type") == "thinking").strip()


def _cut(material: Material, text: str, most: int) -> str:
    begun = material.begun(text, most)
    return text if begun == text else f"{begun[:-1].rstrip()}…"
