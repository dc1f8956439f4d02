"""Notes in place of content, or behind what was cut: each says where the whole is, an entry or an artifact."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from flue_py.context.items import Item
from flue_py.context.steps.content import cut_to, with_text
from flue_py.context.steps.protocol import View
from flue_py.core.artifacts import referred_artifact


def stubbed(item: Item, note: str, view: View, *, addresses: bool) -> Item:
    """Return an item with a note in place of its content; as it is where that takes no fewer tokens, or is pinned."""
    text = note + address(item, wanted=addresses)
    return view.smaller(item.replaced(with_text(item.message, text)), item)


def cut_after(item: Item, limit: int, note: Callable[[int], str], *, addresses: bool) -> Item:
    """Return an item whose texts are cut after so many characters, with a note behind; as it is if they are not longer.

    ``note`` makes the note from how many characters are missing.
    """
    shorter = cut_to(item.message, limit, partial(with_address, note, item, addresses))
    return item if shorter is None else item.cut(shorter)


def address(item: Item, *, wanted: bool) -> str:
    """Return the line by which a note says where the whole content is; "" if it is not wanted, or no entry has it."""
    artifact_id = referred_artifact(item.message)
    if wanted and artifact_id is not None:
        return f"\n[whole content: artifact {artifact_id}]"
    return f"\n[whole content: entry {item.entry_id}]" if wanted and item.entry_id else ""


def with_address(note: Callable[[int], str], item: Item, wanted: bool, missing: int) -> str:
    """Return a note about what is missing of a message, with the address of the whole."""
    return note(missing) + address(item, wanted=wanted)
