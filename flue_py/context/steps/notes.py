"""Where the whole of a message is that a step cut or replaced: its entry, or the artifact that it is a stub of."""

from __future__ import annotations

from collections.abc import Callable

from flue_py.context.items import Item
from flue_py.core.artifacts import referred_artifact


def address(item: Item, *, wanted: bool) -> str:
    """Return the line by which a note says where the whole content is; "" if it is not wanted, or no entry has it."""
    artifact_id = referred_artifact(item.message)
    if wanted and artifact_id is not None:
        return f"\n[whole content: artifact {artifact_id}]"
    return f"\n[whole content: entry {item.entry_id}]" if wanted and item.entry_id else ""


def with_address(note: Callable[[int], str], item: Item, wanted: bool, missing: int) -> str:
    """Return a note about what is missing of a message, with the address of the whole."""
    return note(missing) + address(item, wanted=wanted)
