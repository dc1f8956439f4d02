"""Notes in place of content, or behind what was cut: each says where the whole is, an entry or an artifact."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from flue_py.context.items import Item
from flue_py.context.steps.content import cut_to, text_length, with_text
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


def address(item: Item, *, wanted: bool, after: int = -1) -> str:
    """Return the line by which a note says where the whole content is; "" if it is not wanted, or no entry has it.

    Of an item that was made of several there is one for each, or for each with text ``after`` so many characters.
    """
    artifact_id = referred_artifact(item.message)
    if wanted and artifact_id is not None:
        return f"\n[whole content: artifact {artifact_id}]"
    entries = _entries_after(item, after) if wanted else ()
    return "".join(f"\n[whole content: entry {entry_id}]" for entry_id in entries)


def _entries_after(item: Item, after: int) -> Iterator[str]:
    end = 0
    for each in item.made_of:
        end += text_length(each.message)
        if each.entry_id and end > after:
            yield each.entry_id
    if not item.made_of and item.entry_id:
        yield item.entry_id


def with_address(note: Callable[[int], str], item: Item, wanted: bool, missing: int) -> str:
    """Return a note about what is missing of a message, with the address of the whole."""
    return note(missing) + address(item, wanted=wanted, after=text_length(item.message) - missing)
