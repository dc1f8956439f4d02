"""What the entries of a thread say: checkpoints, the writes of tasks, values, and the ids by which they are found.

A checkpoint is found by its id alone, so its entry has that id, and the writes below it have it with a number. An id
that is taken in the tree (a checkpoint that is put again, or in a copy of its thread) gets a number of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

from flue_py.core.entries import Entry
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.errors import CorruptStore

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKPOINT = "langgraph.checkpoint"
WRITES = "langgraph.writes"
VALUE = "langgraph.value"
LISTING = "langgraph.messages"
KINDS = frozenset({CHECKPOINT, WRITES, VALUE, LISTING})

LINE: JsonObject = {"line": True}
"""What a checkpoint says of the channel whose value is its line of messages."""

FRAMEWORK = "framework"
"""The field of a session's metadata that says it is a thread."""

PUTS = 4
"""In how many ids a checkpoint is looked for, unless its session notes more: it may have been put again."""
WINDOW = 6
"""How many writes of a checkpoint are asked for at once; more where all of these are there, or where it is noted."""

_LONGEST_ID = 900


@dataclass(frozen=True, slots=True)
class Line:
    """Which messages are the value of the channel: those that a listing names, and then those of ``tail``, by entry.

    ``count`` is how many they are. Of two checkpoints of one ``epoch``, one above the other, the lower one has all
    messages of the upper one, and perhaps more behind them. With ``base``, those in the context at that entry are as
    they are there (see `flue_py.adapters.shown`): a summary, or a message of which a part is left out.
    """

    count: int = 0
    listing: str | None = None
    tail: tuple[str, ...] = ()
    epoch: str | None = None
    base: str | None = None

    def to_json(self) -> JsonObject:
        """Return it as a checkpoint has it."""
        stored: JsonObject = {"count": self.count, "tail": list(self.tail)}
        if self.listing is not None:
            stored["listing"] = self.listing
        if self.epoch is not None:
            stored["epoch"] = self.epoch
        if self.base is not None:
            stored["base"] = self.base
        return stored


@dataclass(frozen=True, slots=True)
class Record:
    """A checkpoint as its entry has it: its values are not loaded."""

    entry_id: str
    id: str
    parent: str | None
    checkpoint: JsonValue
    metadata: JsonValue
    versions: Mapping[str, JsonValue]
    values: Mapping[str, JsonValue]
    line: Line = field(default_factory=Line)
    high: str = ""
    """The largest id so far."""

    def to_json(self) -> JsonObject:
        stored: JsonObject = {"id": self.id, "parent": self.parent}
        if self.high != self.id:
            stored["high"] = self.high
        stored |= {"checkpoint": self.checkpoint, "metadata": self.metadata, "values": dict(self.values)}
        if self.versions:
            stored["versions"] = dict(self.versions)
        if self.line != Line():
            stored["line"] = self.line.to_json()
        return stored

    @staticmethod
    def of(entry: Entry) -> Record:
        """Return the checkpoint that an entry is. Raises `CorruptStore` if it is not one."""
        stored = entry.fields
        line = stored.get("line")
        values = stored.get("values")
        versions = stored.get("versions", {})
        parent = stored.get("parent")
        if not isinstance(stored.get("id"), str) or not isinstance(values, dict) or not isinstance(versions, dict):
            raise CorruptStore(f"entry {entry.id!r} is not a checkpoint as an adapter writes one; run verify()")
        id = str(stored["id"])
        return Record(
            entry.id,
            id,
            parent if isinstance(parent, str) else None,
            stored.get("checkpoint"),
            stored.get("metadata"),
            versions,
            values,
            _line(line),
            str(stored.get("high") or id),
        )


def _line(stored: JsonValue) -> Line:
    if not isinstance(stored, dict):
        return Line()
    count, listing, tail, epoch, base = (stored.get(name) for name in ("count", "listing", "tail", "epoch", "base"))
    return Line(
        count if isinstance(count, int) else 0,
        listing if isinstance(listing, str) else None,
        tuple(str(id) for id in tail) if isinstance(tail, list) else (),
        epoch if isinstance(epoch, str) else None,
        base if isinstance(base, str) else None,
    )


def entry_id(checkpoint_id: str, number: int) -> str:
    """Return the id that the entry of a checkpoint has: the usual one for 1, another for each larger number."""
    base = checkpoint_id
    is_usable = 0 < len(base) <= _LONGEST_ID and base.isprintable() and "~" not in base and base.isascii()
    if not is_usable or ":w" in base:
        base = f"sha256:{sha256(checkpoint_id.encode('utf-8', 'surrogatepass')).hexdigest()}"
    return base if number == 1 else f"{base}~{number}"


def number_of_put(entry_id: str) -> int:
    """Return the number that the id of a checkpoint's entry was made with."""
    number = entry_id.rpartition("~")[2] if "~" in entry_id else "1"
    return int(number) if number.isdecimal() else 1


def writes_id(entry_id: str, number: int) -> str:
    """Return the id of an entry with writes of a checkpoint, whose entry has this id."""
    return f"{entry_id}:w{number}"


def number_of_writes(writes_id: str) -> tuple[str, int] | None:
    """Return what an id of an entry with writes was made of; None if it is none."""
    base, colon, number = writes_id.rpartition(":w")
    return (base, int(number)) if colon and number.isdecimal() else None
