"""The projection: from the entries of an active path to what the model sees.

Without a compaction on the path, the context is every message and branch summary. With one, it is the latest
compaction's summary, then the entries that it has pinned, then what lies between its first kept entry and itself,
then what follows it. A range that it names in what it keeps is one summary and what is pinned there (see
`flue_py.core.layout`). Other compactions emit nothing, and neither does one that takes another back: the context is
that of the one it restores. What exclusions on the path leave out is left out. The same path gives the same items, in
every process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from flue_py.core.entries import Entry
from flue_py.core.exchange import Pairing
from flue_py.core.exclusions import (
    REPLACEMENT,
    WHOLE,
    excluded_parts,
    replacements,
    with_replacement,
    without_parts,
)
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue, decode_object, encode_json
from flue_py.core.kinds import COMPACTION, CONTEXT_KINDS, EXCLUSION, MESSAGE, SHOWN_KINDS, kind_of
from flue_py.core.layout import NO_GAP, Gap, Layout, gaps_of, is_silent, layout_of
from flue_py.core.native import NATIVE, native_beside
from flue_py.core.spoken import prompt_text
from flue_py.errors import CorruptStore, InvalidEntry
from flue_py.lazy import lazy_module

if TYPE_CHECKING:
    from flue_py.core import messages as models
    from flue_py.core.messages import Message
else:
    models = lazy_module("flue_py.core.messages")

CONTEXT_PREFIX = kind_of(COMPACTION).prefix
RESTORES = "restoresCompactionId"
"""The field of an entry of this kind that takes a compaction back: the id of the one in effect before, or null."""
PROMPT = "systemMessage"
"""The field of a compaction, in files of pi, that has the system message from then on, instead of those before."""


@frozen
class ContextEntry:
    """One item of the context, with the entry behind it.

    ``kind`` is that of the entry. A message is the entry's own, unchanged; every other kind becomes a user
    message whose text is made from the entry. ``is_pinned`` says that it comes from before the kept part, because it
    is pinned; ``excluded_parts`` names the parts of its content that exclusions leave out, and ``replaced_by`` is the
    one that puts another content in its place: its id is then among those names. ``is_prompt`` says that it is the
    system message that a compaction has, beside its summary.
    """

    entry: Entry
    is_pinned: bool = False
    excluded_parts: frozenset[int | str] = frozenset()
    replaced_by: Entry | None = None
    is_prompt: bool = False

    @property
    def entry_id(self) -> str:
        """The id of the entry behind this item."""
        return self.entry.id

    @property
    def kind(self) -> str:
        """The kind of the entry behind this item; of a system message that a compaction has, that of a message."""
        return MESSAGE if self.is_prompt else self.entry.kind

    @property
    def role(self) -> str:
        """The role the model sees: the message's own, or ``user`` for what was made from an entry."""
        if self.is_prompt:
            return "system"
        return self.entry.role or "user" if self.entry.kind == MESSAGE else "user"

    @property
    def data(self) -> JsonObject:
        """The message as JSON, decoded afresh at each call, so that it is the caller's to change."""
        entry = self.entry
        if self.is_prompt:
            return {"role": "system", "content": _prompt_of(entry.fields)}
        if entry.kind == MESSAGE:
            message = decode_object(entry.payload)
        else:
            message = synthetic_message(entry.kind, entry.data, entry.created_us)
        if self.replaced_by is not None:
            message = with_replacement(message, self.replaced_by.fields[REPLACEMENT])
        return without_parts(message, self.excluded_parts) if self.excluded_parts else message

    @property
    def message(self) -> Message:
        """The message, typed and frozen."""
        return models.parse_message(self.data)


@frozen
class ContextRead:
    """The last items of what the model sees at a leaf, in order, with the state read."""

    leaf_id: str | None
    stored_leaf_id: str | None
    revision: int
    items: Sequence[ContextEntry]


def synthetic_message(kind: str, data: JsonValue, created_us: int) -> JsonObject:
    """Return the user message that stands for an entry that is not a message itself.

    A summary is one text behind the prefix of its kind; what a provider made of the same stands beside it, in the field
    ``native``, for that provider. Other content may be any JSON: what is not the content of a
    message is shown as its JSON text. Raises `CorruptStore` for a summary that is not an object.
    """
    timestamp = created_us // 1000
    if kind_of(kind).says != "summary":
        return {"role": "user", "content": _content(kind, data), "timestamp": timestamp}
    if not isinstance(data, dict):
        raise CorruptStore(f"the payload of a {kind} is a {type(data).__name__}, not an object; run verify()")
    text = summary_text(kind, str(data.get("summary", "")))
    message: JsonObject = {"role": "user", "content": [{"type": "text", "text": text}], "timestamp": timestamp}
    native = native_beside(data.get("details"), str(data.get("summary", "")))
    return message if native is None else {**message, NATIVE: native}


def _content(kind: str, data: JsonValue) -> JsonValue:
    content = data.get("content", "") if isinstance(data, dict) else "" if data is None else data
    if not isinstance(content, str):
        try:
            models.validate_message({"role": "user", "content": content})
        except InvalidEntry:
            content = encode_json(content, kind)[0]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def summary_text(kind: str, summary: str) -> str:
    """Return the text that the model sees for a summary. The prefix of a compaction is not doubled."""
    prefix = kind_of(kind).prefix
    return summary if kind == COMPACTION and summary.startswith(prefix) else f"{prefix}\n\n{summary}"


def latest_compaction(path: Sequence[Entry]) -> Entry | None:
    """Return the compaction in effect at the end of a path (root to leaf), or None.

    That is the last one, or the one that the last one restores.
    """
    last = next((entry for entry in reversed(path) if entry.kind == COMPACTION), None)
    if last is None or RESTORES not in (fields := last.fields):
        return last
    return next((entry for entry in path if entry.id == fields[RESTORES]), None)


def project(path: Sequence[Entry]) -> list[ContextEntry]:
    """Return the context of a path (entries from root to leaf). Cost: O(path)."""
    compaction = latest_compaction(path)
    return project_kept(path) if compaction is None else project_compacted(compaction, path)


def project_kept(path: Sequence[Entry]) -> list[ContextEntry]:
    """Return the items that the end of a path adds to a context which keeps all of it; compactions add none."""
    return _without_excluded([ContextEntry(entry) for entry in path if entry.kind in CONTEXT_KINDS], path)


def project_compacted(compaction: Entry, path: Sequence[Entry]) -> list[ContextEntry]:
    """Return the context of a path whose latest compaction is known.

    ``path`` needs to hold only what may be kept: entries from at or before the first kept one, or from the
    compaction on; of each range its first and last entry, and the compaction that stands for it; and where the
    compaction has pinned entries or ranges, the pinned ones, and the exclusions of the path. A first kept entry that is
    not before the compaction on the path keeps nothing.
    """
    fields = compaction.fields
    layout = layout_of(compaction.id, fields)
    pinned = pinned_ids(fields)
    head, gaps = ([compaction], iter(())) if layout.is_plain else _placed(compaction, layout, path)
    gap, summary = next(gaps, (NO_GAP, compaction))
    before: list[ContextEntry] = []
    kept: list[ContextEntry] = []
    keeping = False
    prompt = _prompt_of(fields)
    for entry in path:
        if prompt and entry.role == "system" and entry.depth < compaction.depth:
            continue
        if entry.depth < compaction.depth:
            keeping = keeping or entry.id == layout.first_kept_id
            if entry.depth > gap.last:
                gap, summary = next(gaps, (NO_GAP, compaction))
            if entry.depth == gap.first:
                kept.append(ContextEntry(summary))
            wanted = keeping and entry.depth < gap.first
            if not wanted and entry.id in pinned and entry.kind in SHOWN_KINDS and not is_silent(entry):
                (kept if keeping else before).append(ContextEntry(entry, is_pinned=True))
        else:
            wanted = entry.depth > compaction.depth
        if wanted and entry.kind in CONTEXT_KINDS:
            kept.append(ContextEntry(entry))
    prompts = [ContextEntry(compaction, excluded_parts=frozenset({PROMPT}), is_prompt=True)] if prompt else []
    return _without_excluded([*prompts, *map(ContextEntry, head), *before, *kept], path)


def _prompt_of(fields: Mapping[str, JsonValue]) -> str:
    """Return the text of the system message that a compaction has, "" for none."""
    message = fields.get(PROMPT)
    return prompt_text(message) if isinstance(message, dict) and message.get("role") == "system" else ""


def _placed(
    compaction: Entry, layout: Layout, path: Sequence[Entry]
) -> tuple[list[Entry], Iterator[tuple[Gap, Entry]]]:
    """Return the compaction whose summary comes first, if any, and the ranges, each with the one that stands for it."""
    wanted = {*layout.named, layout.first_kept_id}
    named = {entry.id: entry for entry in path if entry.depth <= compaction.depth and entry.id in wanted}
    first = named.get(layout.head_id or "")
    kept_from = named.get(layout.first_kept_id or "", compaction).depth
    gaps = gaps_of(layout, named, kept_from, compaction.depth)
    head = [first] if first is not None and first.kind == COMPACTION else []
    return head, iter([(gap, named[gap.of.compaction_id or ""]) for gap in gaps])


def pinned_ids(fields: Mapping[str, JsonValue]) -> frozenset[str]:
    """Return the ids of the entries that a compaction has pinned, from its fields."""
    ids = fields.get("pinnedEntryIds")
    return frozenset(each for each in ids if isinstance(each, str)) if isinstance(ids, list) else frozenset()


def context_of(path: Sequence[Entry], compaction: Entry | None) -> list[ContextEntry]:
    """Return the context of what a read of it found: the entries, and the latest compaction among them."""
    return project(path) if compaction is None else project_compacted(compaction, path)


def _without_excluded(items: list[ContextEntry], path: Sequence[Entry]) -> list[ContextEntry]:
    """Return what the exclusions on the path leave of the items. The summary of a compaction always stays.

    The result of a call that is left out is left out with it, also if it came after the exclusion.
    """
    if all(entry.kind != EXCLUSION for entry in path):
        return items
    items = _with_replacements(items, replacements(path))
    excluded = excluded_parts(path)
    lost = _results_of_excluded_calls(items, excluded)
    left = []
    for item in items:
        named = excluded.get(item.entry_id, {})
        # What comes before an entry says nothing of it: the kept part alone would not know of that.
        parts = {part for part, by in named.items() if by.depth > item.entry.depth}
        if item.entry_id in lost:
            continue
        if not parts or item.kind == COMPACTION:
            left.append(item)
        elif WHOLE not in parts:
            named_parts = item.excluded_parts | {part for part in parts if part is not None}
            rest = ContextEntry(item.entry, item.is_pinned, named_parts, item.replaced_by)
            # A message of nothing is refused by providers; a result without content still answers its call.
            if rest.role == "toolResult" or rest.data.get("content") != []:
                left.append(rest)
    return left


def _with_replacements(items: list[ContextEntry], replaced: Mapping[str, Entry]) -> list[ContextEntry]:
    """Return items with what exclusions put in the place of their contents. A summary stays."""
    if not replaced:
        return items
    shown = []
    for item in items:
        by = replaced.get(item.entry_id)
        if by is None or by.depth <= item.entry.depth or item.kind == COMPACTION:
            shown.append(item)
        else:
            shown.append(ContextEntry(item.entry, item.is_pinned, item.excluded_parts | {by.id}, by))
    return shown


def _results_of_excluded_calls(
    items: Sequence[ContextEntry], excluded: Mapping[str, Mapping[int | str | None, Entry]]
) -> set[str]:
    """Return the ids of the results among the items whose call the exclusions leave out."""
    whole = [item.entry.fields if item.kind == MESSAGE else None for item in items]
    pairing = Pairing(whole)
    lost: set[str] = set()
    if any(item.replaced_by is not None for item in items):
        # A call that is not in the new content has no result either.
        left = {call.id for call in Pairing([item.data if item.kind == MESSAGE else None for item in items]).results}
        for call, results in pairing.results.items():
            if items[call.at].replaced_by is not None and call.id not in left:
                lost.update(items[result].entry_id for result in results)
    for call, results in pairing.results.items():
        caller = items[call.at].entry
        named = excluded.get(caller.id, {})
        if any(part in (WHOLE, call.part, call.id) and by.depth > caller.depth for part, by in named.items()):
            lost.update(items[result].entry_id for result in results)
    return lost
