"""The projection: from the entries of an active path to what the model sees (rows E07 to E11).

Without a compaction on the path, the context is every message and branch summary. With one, it is the latest
compaction's summary, then what lies between its first kept entry and itself, then what follows it. Earlier
compactions emit nothing. The same path gives the same items, in every process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flue_py.core.entries import BRANCH_SUMMARY, COMPACTION, CUSTOM_MESSAGE, MESSAGE, Entry
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json
from flue_py.errors import CorruptStore, InvalidEntry

if TYPE_CHECKING:
    from flue_py.core.messages import Message

CONTEXT_PREFIX = "[Context Summary]"
BRANCH_PREFIX = "[Branch Summary]"
CONTEXT_KINDS = frozenset({MESSAGE, BRANCH_SUMMARY, CUSTOM_MESSAGE})


@dataclass(frozen=True, slots=True)
class ContextEntry:
    """One item of the context, with the entry behind it.

    ``kind`` is that of the entry. A message is the entry's own, unchanged; every other kind becomes a user
    message whose text is made from the entry.
    """

    entry: Entry

    @property
    def entry_id(self) -> str:
        """The id of the entry behind this item."""
        return self.entry.id

    @property
    def kind(self) -> str:
        """The kind of the entry behind this item."""
        return self.entry.kind

    @property
    def role(self) -> str:
        """The role the model sees: the message's own, or ``user`` for what was made from an entry."""
        return self.entry.role or "user" if self.entry.kind == MESSAGE else "user"

    @property
    def data(self) -> JsonObject:
        """The message as JSON, decoded afresh at each call, so that it is the caller's to change."""
        if self.entry.kind == MESSAGE:
            return self.entry.fields
        return synthetic_message(self.entry.kind, self.entry.data, self.entry.created_us)

    @property
    def message(self) -> Message:
        """The message, typed and frozen."""
        from flue_py.core.messages import parse_message  # noqa: PLC0415 - pydantic models are only needed here

        return parse_message(self.data)


def synthetic_message(kind: str, data: JsonValue, created_us: int) -> JsonObject:
    """Return the user message that stands for a compaction, a branch summary or a custom message (row E11).

    A custom message may carry any JSON: what can be no content of a message is shown as its JSON text. Raises
    `CorruptStore` for a summary that is no object.
    """
    timestamp = created_us // 1000
    if kind == CUSTOM_MESSAGE:
        return {"role": "user", "content": _custom_content(data), "timestamp": timestamp}
    if not isinstance(data, dict):
        raise CorruptStore(f"the payload of a {kind} is a {type(data).__name__}, not an object; run verify()")
    summary = str(data.get("summary", ""))
    text = compaction_text(summary) if kind == COMPACTION else f"{BRANCH_PREFIX}\n\n{summary}"
    return {"role": "user", "content": [{"type": "text", "text": text}], "timestamp": timestamp}


def _custom_content(data: JsonValue) -> JsonValue:
    content = data.get("content", "") if isinstance(data, dict) else "" if data is None else data
    if not isinstance(content, str):
        from flue_py.core.messages import validate_message  # noqa: PLC0415 - pydantic models are only needed here

        try:
            validate_message({"role": "user", "content": content})
        except InvalidEntry:
            content = encode_json(content, CUSTOM_MESSAGE)[0]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def compaction_text(summary: str) -> str:
    """Return the text the model sees for a compaction; the prefix is not doubled."""
    return summary if summary.startswith(CONTEXT_PREFIX) else f"{CONTEXT_PREFIX}\n\n{summary}"


def latest_compaction(path: Sequence[Entry]) -> Entry | None:
    """Return the last compaction of a path (root to leaf), or None."""
    for entry in reversed(path):
        if entry.kind == COMPACTION:
            return entry
    return None


def project(path: Sequence[Entry]) -> list[ContextEntry]:
    """Return the context of a path (entries from root to leaf). Cost: O(path)."""
    compaction = latest_compaction(path)
    if compaction is None:
        return [ContextEntry(entry) for entry in path if entry.kind in CONTEXT_KINDS]
    return project_compacted(compaction, path)


def project_compacted(compaction: Entry, path: Sequence[Entry]) -> list[ContextEntry]:
    """Return the context of a path whose latest compaction is known.

    ``path`` needs to hold only what may be kept: entries from at or before the first kept one, or from the
    compaction on. A first kept entry that is not before the compaction on the path keeps nothing (row E09).
    """
    first_kept = compaction.fields.get("firstKeptEntryId")
    items = [ContextEntry(compaction)]
    keeping = False
    for entry in path:
        if entry.depth < compaction.depth:
            keeping = keeping or entry.id == first_kept
            wanted = keeping
        else:
            wanted = entry.depth > compaction.depth
        if wanted and entry.kind in CONTEXT_KINDS:
            items.append(ContextEntry(entry))
    return items
