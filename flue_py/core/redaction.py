"""Redactions: the tombstone that stands in the place of an entry's payload, and what a redaction came to.

A tombstone is a payload of the same kind and role, with nothing of the text: a line that says who redacted it and why,
the fields that hold a context together (ids of tool calls and of entries, numbers of usage), and an object that says
it once more, with a seal of the store's chain. So every reader shows the line, and knows nothing of tombstones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flue_py.core.context import PROVENANCE
from flue_py.core.entries import FROM_HOOK, from_microseconds, tool_calls
from flue_py.core.erasure import Look
from flue_py.core.json import Frozen, JsonObject, JsonValue, decode_json, to_json
from flue_py.core.kinds import BRANCH_SUMMARY, COMPACTION, CUSTOM_MESSAGE, EXCLUSION, MESSAGE, kind_of
from flue_py.core.sessions import Note

REDACTED = "redacted"
"""The field of a tombstone that says who redacted it, why and when."""

_LONGEST_NAME = 256
_USAGE = "usage"
_KEPT: Mapping[str, tuple[str, ...]] = {
    MESSAGE: (
        "role", "timestamp", "api", "provider", "model", "stopReason", "toolCallId", "toolName", "isError", "isMeta",
        _USAGE,
    ),
    COMPACTION: ("tokensBefore", FROM_HOOK, _USAGE),
    BRANCH_SUMMARY: (_USAGE,),
    CUSTOM_MESSAGE: ("customType", "display"),
    EXCLUSION: ("part", "excluded"),
}  # fmt: skip
"""The fields that stay of a payload, by kind, beside those that name entries."""
_EXTRA = frozenset(("line", "rows", "parentUuid", PROVENANCE))
"""The fields beside a payload that have nothing of its text."""


class Redaction(Frozen):
    """What a redaction took, and what it left.

    ``entry_ids`` are the entries whose payload is gone, the artifacts of tool results among them; ``already`` are those
    that were tombstones before. ``may_quote`` are summaries in the same tree that were made over one of them: redact
    them, too, if they say it. ``seen_by`` are the sessions that see one of them, this one first: forks go on with the
    tombstone. ``copies`` are entries elsewhere with the same id or the same text, by the id of a session: they stay.
    ``revision`` is that of the session afterwards. ``look`` says where the ``size`` bytes that went
    were looked for, and found no more (`Look.is_clean`); None in a dry run, and if there was nothing to redact.
    """

    session_id: str
    entry_ids: tuple[str, ...]
    already: tuple[str, ...]
    may_quote: tuple[str, ...]
    seen_by: tuple[str, ...]
    copies: tuple[tuple[str, str], ...]
    revision: int
    size: int = 0
    look: Look | None = None


def mark_of(note: Note, at_us: int) -> JsonObject:
    """Return what a tombstone says of its redaction."""
    return {"by": note.by, "why": note.why, "at": from_microseconds(at_us).isoformat()}


def line_of(mark: JsonObject) -> str:
    """Return the text that a tombstone shows."""
    by = "" if mark["by"] is None else f" by {mark['by']}"
    return f"[redacted{by}: {mark['why']}]"


def tombstone(kind: str, payload: JsonValue, mark: JsonObject) -> JsonObject:
    """Return the payload that stands in the place of another one. O(size)."""
    line = line_of(mark)
    fields = payload if isinstance(payload, dict) else {}
    names = (*_KEPT.get(kind, ()), *kind_of(kind).references)
    left = {name: _without_texts(fields[name]) for name in names if name in fields}
    if kind == MESSAGE:
        left["content"] = _content(fields, line)
    elif (says := kind_of(kind).says) is not None:
        left[says] = line
    return {**left, REDACTED: mark}


def _content(message: JsonObject, line: str) -> JsonValue:
    text: JsonValue = {"type": "text", "text": line}
    if message.get("role") == "assistant":
        ids = ({name: call[name] for name in ("type", "id", "name") if name in call} for call in tool_calls(message))
        return [text, *({**call, "arguments": {}} for call in ids)]
    return [text] if message.get("role") == "toolResult" else line


def _without_texts(value: JsonValue) -> JsonValue:
    """Return a value without strings that are too long for an id or the name of a model."""
    if isinstance(value, dict):
        return {name: _without_texts(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_texts(item) for item in value]
    return value if not isinstance(value, str) or len(value) <= _LONGEST_NAME else None


def texts_gone(payload: JsonValue, left: JsonObject) -> Iterator[bytes]:
    """Yield the strings of a payload that its tombstone has not, as they are written in JSON. O(size)."""
    there = set(_strings(left))
    return (to_json(text)[1:-1] for text in _strings(payload) if text not in there)


def _strings(value: JsonValue) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        # The types of parts are in every store.
        yield from _strings([item for name, item in value.items() if name != "type"])


def is_tombstone(kind: str, payload: str) -> bool:
    """Return whether a payload is one: nothing is in it that a tombstone would not have. O(size)."""
    value = decode_json(payload)
    mark = value.get(REDACTED) if isinstance(value, dict) else None
    return isinstance(mark, dict) and mark.keys() >= {"by", "why", "at"} and tombstone(kind, value, mark) == value


def extra_left(extra: str | None) -> str | None:
    """Return the fields beside a payload if they have nothing of its text, else those that stand in their place."""
    fields = None if extra is None else decode_json(extra)
    if fields is None or (isinstance(fields, dict) and _EXTRA.issuperset(fields)):
        return extra
    return to_json({REDACTED: {"extra": True}}).decode()
