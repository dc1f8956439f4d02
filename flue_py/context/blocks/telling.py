"""Blocks as entries: how one is stored, which ones a context shows, and which are to be told again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from flue_py.context.blocks.protocol import Block, BlockFailure, BlockText
from flue_py.context.blocks.reading import Said
from flue_py.core.entries import NewEntry
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue, payload_digest
from flue_py.core.kinds import CUSTOM_MESSAGE
from flue_py.core.projection import ContextEntry

TYPE_PREFIX = "block:"
_TYPE, _DETAILS, _SAME, _WITHDRAWN = "customType", "details", "same", "withdrawn"


class ShownBlock(NamedTuple):
    """A block as the payload of its entry has it: its name, and the digest of what counted as a change; "" if empty."""

    name: str
    same: str


@frozen
class ToTell:
    """What is to be done about blocks: entries to append, each with its name and whether it withdraws the block."""

    entries: tuple[tuple[str, NewEntry, bool], ...]
    unchanged: tuple[str, ...]
    failures: tuple[BlockFailure, ...]


def shown_block(data: JsonValue) -> ShownBlock | None:
    """Return the block that the payload of a ``custom_message`` tells; None if it tells none."""
    kind = data.get(_TYPE) if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(kind, str) or not kind.startswith(TYPE_PREFIX):
        return None
    details = data.get(_DETAILS)
    same = details.get(_SAME) if isinstance(details, dict) else None
    withdrawn = isinstance(details, dict) and details.get(_WITHDRAWN) is True
    # Of one that an application wrote itself nothing is known: it is told anew.
    return ShownBlock(kind.removeprefix(TYPE_PREFIX), "" if withdrawn else same if isinstance(same, str) else "?")


def shown_blocks(items: Iterable[ContextEntry]) -> dict[str, str]:
    """Return the digest of what each block last said, by its name, as far as a context still shows it whole."""
    found: dict[str, str] = {}
    for item in items:
        if item.kind == CUSTOM_MESSAGE and not item.excluded_parts:
            block = shown_block(item.entry.data)
            if block is not None:
                found[block.name] = block.same
    return found


def to_tell(blocks: Sequence[Block], said: Sequence[Said], shown: Mapping[str, str]) -> ToTell:
    """Return what to append so that a context which shows these blocks has what they say now."""
    entries: list[tuple[str, NewEntry, bool]] = []
    unchanged: list[str] = []
    failures: list[BlockFailure] = []
    for name, now in zip([block.name for block in blocks], said, strict=True):
        if isinstance(now, BlockFailure):
            failures.append(now)
        elif now is None and not shown.get(name):
            unchanged.append(name)
        elif now is None:
            entries.append((name, _entry(name, _withdrawal(name), {_WITHDRAWN: True}), True))
        elif (same := _digest(now)) == shown.get(name):
            unchanged.append(name)
        else:
            entries.append((name, _entry(name, now.text, {_SAME: same}), False))
    return ToTell(tuple(entries), tuple(unchanged), tuple(failures))


def _digest(said: BlockText) -> str:
    same = said.text if said.same is None else said.same
    return payload_digest(same.encode(errors="surrogatepass")).hex()


def _withdrawal(name: str) -> str:
    return f"[The block {name!r} above no longer holds: there is nothing of it now.]"


def _entry(name: str, text: str, details: JsonObject) -> NewEntry:
    return NewEntry.custom(CUSTOM_MESSAGE, {_TYPE: f"{TYPE_PREFIX}{name}", "content": text, _DETAILS: details})
