"""The context of a path, and the values made of it: copies, costs, sizes, traits, turns, pins, digests."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter as collection_Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache, reduce
from hashlib import blake2b
from operator import add, attrgetter
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec.structs import astuple, replace

from flue_py.core.entries import (
    BASE,
    NO_GAP,
    RANGES,
    REPLACEMENT,
    SHELL,
    WHOLE,
    Entry,
    Gap,
    Layout,
    NewEntry,
    Pairing,
    answered_id,
    excluded_parts,
    gaps_of,
    is_silent,
    layout_of,
    messages_of,
    replacements,
    tool_calls,
    undecoded_exchange,
    with_replacement,
    without_parts,
)
from flue_py.core.json import Frozen, JsonObject, JsonValue, NamedTuple, decode_object, encode_json
from flue_py.core.kinds import (
    ASSISTANT,
    BRANCH_SUMMARY,
    COMPACTION,
    CONTEXT_KINDS,
    CUSTOM_MESSAGE,
    EXCLUSION,
    MESSAGE,
    NATIVE,
    SHOWN_KINDS,
    USER,
    Message,
    adds_usage,
    has_words,
    is_answer,
    is_spoken,
    kind_of,
    may_be_paid,
    message_text,
    native_beside,
    prompt_text,
    words_of,
)
from flue_py.core.usage import (
    PARTS,
    ReportedUsage,
    Usage,
    UsageWindow,
    agent_of,
    known_cost,
    picodollars_to_usd,
    read_reported,
)
from flue_py.errors import CorruptStore, InvalidArgument, InvalidEntry, shown
from flue_py.lazy import expression, lazy_module

if TYPE_CHECKING:
    from flue_py.core import messages
    from flue_py.core.messages import Message as messages_Message
else:
    messages = lazy_module("flue_py.core.messages")


# ---------------------------------------------------------------------------------------------------------------------
# Bringing history from one leaf to another: copies with their provenance, and the groups that are copied together.
#
# A copy has an id of its own and adds nothing to the usage of its path: each call was paid once, at the first of its
# entries. Its origin is in its ``extra``, under `PROVENANCE`.

PROVENANCE = "copiedFrom"
"""The name, among the extra fields of a copy, of its origin: ``{"session": ..., "entry": ...}``."""

MERGED = "mergedFrom"
"""The name, among the details of a merged summary, of the stretch it sums up: session, after, leaf, entries."""


class Provenance(Frozen):
    """The origin of a copied entry: its session, and its id there."""

    session_id: str
    entry_id: str


class MergedRange(Frozen):
    """The stretch of history that a merged summary stands for: the entries after ``after``, up to ``leaf``.

    ``after`` is None if it is the whole path. ``entries`` is how many there are.
    """

    session_id: str
    after: str | None
    leaf_id: str
    entries: int

    @property
    def as_json(self) -> JsonObject:
        """The range as the details of a summary keep it."""
        return {"session": self.session_id, "after": self.after, "leaf": self.leaf_id, "entries": self.entries}


def provenance_of(entry: Entry) -> Provenance | None:
    """Return the origin of a copied entry; None for any other."""
    return _read_provenance(entry.extra_fields.get(PROVENANCE)) if entry.extra is not None else None


def _read_provenance(value: JsonValue) -> Provenance | None:
    match value:
        case {"session": str(session_id), "entry": str(entry_id)}:
            return Provenance(session_id, entry_id)
    return None


def merged_range_of(entry: Entry) -> MergedRange | None:
    """Return the stretch of history that a merged summary stands for; None for any other entry."""
    details = entry.fields.get("details") if entry.kind == BRANCH_SUMMARY else None
    value = details.get(MERGED) if isinstance(details, Mapping) else None
    if not isinstance(value, Mapping):
        return None
    session_id, after, leaf_id, entries = (value.get(name) for name in ("session", "after", "leaf", "entries"))
    if not isinstance(session_id, str) or not isinstance(leaf_id, str) or not isinstance(entries, int):
        return None
    return MergedRange(session_id, after if isinstance(after, str) else None, leaf_id, entries)


def copy_of(entry: Entry, session_id: str) -> NewEntry:
    """Return an entry ready to be written again elsewhere, byte for byte, with its origin.

    ``session_id`` is the session it was read in, which counts if its creator is gone. The copy of a copy names the
    first of them: that is whose history it is. Raises `InvalidArgument` for a compaction, which stands for a path
    that is not the new one's, and for an exclusion, which names an entry there.
    """
    if entry.kind == EXCLUSION:
        raise InvalidArgument(
            f"entry {entry.id!r} is an exclusion, which names an entry of its own path, and would leave nothing out "
            "here; pick without it, then exclude() the copy"
        )
    if entry.kind == COMPACTION:
        raise InvalidArgument(
            f"entry {entry.id!r} is a compaction, which stands for what lies before it on its own path; merge its "
            "summary back instead"
        )
    return _copied(entry, session_id)


def same_entry(entry: Entry, session_id: str) -> NewEntry:
    """Return an entry ready to be written in another tree, with all around it: under its id, parent and time."""
    copied = _copied(entry, session_id)
    return replace(copied, id=entry.id, parent_id=entry.parent_id, created_us=entry.created_us)


def _copied(entry: Entry, session_id: str) -> NewEntry:
    extra_fields = entry.extra_fields
    if provenance_of(entry) is None:
        extra_fields[PROVENANCE] = {"session": entry.session_id or session_id, "entry": entry.id}
    extra, _ = encode_json(extra_fields, "extra")
    return NewEntry(entry.kind, entry.payload, entry.role, entry.source, extra=extra, counted=False, built=True)


def range_key(*parts: str | None) -> str:
    """Return a name for a stretch of history, by which a repeated merge is recognised."""
    text, _ = encode_json(list(parts), "range")
    return f"merged:{blake2b(text.encode(), digest_size=16).hexdigest()}"


def check_whole_exchanges(path: Sequence[Entry], picked: Collection[str]) -> None:
    """Raise `InvalidArgument` if a tool call is chosen without its result, or a result without its call.

    No provider takes the one without the other. ``path`` holds the chosen entries and all between the first and the
    last of them.
    """
    pairing = Pairing(messages_of(path))
    for call, results in pairing.results.items():
        caller = path[call.at].id
        if caller in picked and not any(path[result].id in picked for result in results[:1]):
            raise InvalidArgument(
                f"entry {caller!r} makes the tool call {shown(call.id)}, and its result is not among the chosen "
                "entries; choose both, or neither"
            )
    for at, entry in enumerate(path):
        group = pairing.group_of(at) if entry.id in picked else None
        if group is not None and (group.caller is None or path[group.caller].id not in picked):
            raise InvalidArgument(
                f"entry {entry.id!r} is the result of the tool call {shown(answered_id(entry.fields))}, which is not "
                "among the chosen entries; choose both, or neither"
            )


# ---------------------------------------------------------------------------------------------------------------------
# The cost of entries as far as it is known: by the ledger, or, if it has no row of theirs, by their own reports.


class EntryCost(Frozen):
    """The cost of the paid calls behind an entry, or behind several.

    ``picodollars`` (1e-12 US dollars) sums the costs that are known; ``unpriced_calls`` of the ``calls`` have none.
    ``untold`` counts the answers that came without a report of their usage: the ledger has no call of those, and they
    are in none of the other numbers.
    """

    calls: int = 0
    unpriced_calls: int = 0
    picodollars: int = 0
    untold: int = 0

    @property
    def usd(self) -> Decimal | None:
        """The sum of the known costs in US dollars, exact; None if something was called and no cost is known."""
        return picodollars_to_usd(self.picodollars) if self.is_known else None

    @property
    def is_known(self) -> bool:
        """Whether the sum is known: not if the only known costs of calls or answers are 0."""
        is_told = self.calls > 0 or not self.untold
        return is_told and known_cost(self.picodollars, self.unpriced_calls) is not None

    @property
    def is_whole(self) -> bool:
        """Whether the sum is of all calls that there are."""
        return self.is_known and not self.unpriced_calls

    def plus(self, other: EntryCost) -> EntryCost:
        """Return the sum of two."""
        return EntryCost(*map(add, astuple(self), astuple(other)))


NO_CALLS = EntryCost()
UNKNOWN_COST = EntryCost(1, 1)
UNTOLD = EntryCost(untold=1)


def entry_cost(entry: Entry, paid: Mapping[str, EntryCost]) -> EntryCost | None:
    """Return the cost of an entry; None if no call made it, or if it is a copy, which was paid for elsewhere.

    ``paid`` has the costs of the ledger, by entry id. An entry without a row there, whose call another session reported
    first, counts as it reports itself. The cost of an answer without usage is unknown; yet it is not counted
    as a call, because many programs report the usage of a call with one of its several answers.
    """
    booked = paid.get(entry.id)
    if booked is not None:
        return booked
    if not may_be_paid(entry.kind, entry.role) or provenance_of(entry) is not None:
        return None
    value = entry.data
    usage = value.get("usage") if isinstance(value, dict) else None
    if not isinstance(usage, dict):
        # A summary without usage came without a call.
        return UNTOLD if is_answer(entry.kind, entry.role) else None
    cost = read_reported(usage).cost
    return UNKNOWN_COST if cost is None else EntryCost(1, 0, cost)


def entry_costs(entries: Iterable[Entry], paid: Mapping[str, EntryCost]) -> dict[str, EntryCost]:
    """Return the costs of entries, by id; entries without a call are left out. O(entries)."""
    costs = {entry.id: entry_cost(entry, paid) for entry in entries}
    return {entry_id: cost for entry_id, cost in costs.items() if cost is not None}


def total_cost(costs: Iterable[EntryCost]) -> EntryCost:
    """Return the sum of costs."""
    return reduce(EntryCost.plus, costs, NO_CALLS)


def window_costs(window: UsageWindow) -> tuple[int | None, ...]:
    """Return the costs of a window in picodollars: input, output, cache reads, cache writes, and all of it.

    All of it is the sum of the ledger, or that of the entries' reports if it is larger: another session may have paid.
    None is unknown, for example the cost of one kind of tokens if only the total was reported or priced.
    """
    usage, cost = window.usage, window.usage.cost
    total = max(cost.total, window.reported_cost)
    parts = (cost.input, cost.output, cost.cache_read, cost.cache_write)
    # Without calls of its own and without a cost that was reported, a path is known to cost nothing if it used nothing.
    used_nothing = not any(usage.totals) and bool(window.told)
    is_told = total > 0 or (window.cost is not None and (window.calls > 0 or used_nothing))
    is_split = is_told and sum(parts) == total and not window.unpriced_calls
    kinds = zip(window.known.values(), parts, strict=False)
    return (*(part if part or is_split or tokens == 0 else None for tokens, part in kinds), total if is_told else None)


def is_unknown(window: UsageWindow) -> bool:
    """Return whether there are calls in a window, and the usage of all of them is unknown."""
    return window.calls > 0 and window.unknown_calls == window.calls and not any(window.usage.totals)


# ---------------------------------------------------------------------------------------------------------------------
# The projection: from the entries of an active path to the messages that the model sees.
#
# Without a compaction on the path, the context is every message and branch summary. With one, it is the latest
# compaction's summary, then the entries that it has pinned, then the entries between its first kept one and itself,
# then those after it. A range that it names among these is one summary and the pinned entries there (see
# `flue_py.core.entries`). Other compactions emit nothing, and neither does one that takes another back: the context is
# that of the one it restores. Entries that exclusions on the path name are left out. The same path gives the same
# items, in every process.

CONTEXT_PREFIX = kind_of(COMPACTION).prefix
RESTORES = "restoresCompactionId"
"""The field of an entry of this kind that takes a compaction back: the id of the one in effect before, or null."""
PROMPT = "systemMessage"
"""The field of a compaction, in files of pi, with the system message from then on, in place of the earlier ones."""


class ContextEntry(Frozen):
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
        """The role the model sees: the message's own, or ``user`` for a message made from an entry."""
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
    def message(self) -> messages_Message:
        """The message, typed and frozen."""
        return messages.parse_message(self.data)


class ContextRead(Frozen):
    """The last items of the context at a leaf, in order, with the state read."""

    leaf_id: str | None
    stored_leaf_id: str | None
    revision: int
    items: Sequence[ContextEntry]


def synthetic_message(kind: str, data: JsonValue, created_us: int) -> JsonObject:
    """Return the user message that stands for an entry that is not a message itself.

    A summary is one text behind the prefix of its kind; a provider's own compaction stands beside it, in the field
    ``native``, for that provider. Other content may be any JSON: if it is not the content of a
    message, it is shown as its JSON text. Raises `CorruptStore` for a summary that is not an object.
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
            messages.validate_message({"role": "user", "content": content})
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

    ``path`` needs to hold only entries that may stay: entries from at or before the first kept one, or from the
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
    listed = fields.get("pinnedEntryIds")
    return frozenset(item for item in listed if isinstance(item, str)) if isinstance(listed, list) else frozenset()


def context_of(path: Sequence[Entry], compaction: Entry | None) -> list[ContextEntry]:
    """Return the context of the entries of a read and the latest compaction among them."""
    return project(path) if compaction is None else project_compacted(compaction, path)


def _without_excluded(items: list[ContextEntry], path: Sequence[Entry]) -> list[ContextEntry]:
    """Return the items that the exclusions on the path leave. The summary of a compaction always stays.

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
        # An exclusion before an entry says nothing of it: the kept part alone would not know of that.
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
    """Return items with the contents that exclusions put in their places. A summary stays."""
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


# ---------------------------------------------------------------------------------------------------------------------
# The size of a context: the counter of its tokens, the report of a provider, and which of the two is believed.

MOST_ABOVE_ESTIMATE = 1.5
"""A report of more than so many times our own estimate is not believed: some gateways report sums of several calls."""

UNSEEN_SHARE = 5
"""If the system prompt or the tools were not given, a report may also be larger by one in so many of the window."""

USUAL_WINDOW = 200_000
"""The window that such a share is taken of if the model's is unknown."""

_FAILED = ("aborted", "error")
_KIND = attrgetter("entry.kind")
_RELEASE = expression(r"[-@](?:20\d\d-?[01]\d-?[0-3]\d|latest)\Z")


class Counter(Protocol):
    """Counts the tokens of a message."""

    @property
    def name(self) -> str:
        """The name of the counter, for events and reports: ``tiktoken:o200k_base``, ``bytes/3``, ``faithful``."""

    @property
    def is_estimate(self) -> bool:
        """False if text is counted with the model's own vocabulary."""

    def count(self, message: Mapping[str, JsonValue], /) -> int:
        """Return how many tokens one message takes. Cost: O(size)."""


class EntryCounter(Counter, Protocol):
    """A counter that remembers the counts of items."""

    def count_entry(self, item: ContextEntry, /) -> int:
        """Return the `count` of the item's message. O(1) if it was counted before, else O(size)."""


class ReportedSize(Frozen):
    """The count of a provider: the context up to and including the answer ``entry_id``, the answer included.

    ``place`` is the index of the answer among the items that were measured. The system prompt and the tools of that
    call are in ``tokens``. ``provider`` and ``model`` are those that the answer names, None where it names none.
    ``cleared`` is how many tokens of it the provider says that it left out itself before it counted, which are not in
    ``tokens``; None where it does not say.
    """

    tokens: int
    entry_id: str
    place: int
    provider: str | None = None
    model: str | None = None
    cleared: int | None = None


class ContextSize(Frozen):
    """The size of a context in tokens: our own count, and the report of the provider if it is fresh.

    ``counter`` is the name of the counter. It counted ``messages`` for all messages, ``trailing`` for those of them
    that come after the report (all, where there is none), ``system`` for the system prompt and ``tools`` for the tools:
    None where these were not given. ``is_counted_estimate`` says that any of this is an estimate,
    ``is_trailing_estimate`` that the count of the messages after the report is one. ``window`` is the model's, None if
    it is unknown.
    """

    counter: str
    messages: int
    trailing: int
    system: int | None = None
    tools: int | None = None
    reported: ReportedSize | None = None
    window: int | None = None
    is_counted_estimate: bool = True
    is_trailing_estimate: bool = True

    @property
    def tokens(self) -> int:
        """The size: the report plus our count of the rest if the report is trusted, else `counted`."""
        if self.reported is None or self.distrust is not None:
            return self.counted
        return self.reported.tokens + self.trailing

    @property
    def counted(self) -> int:
        """Our own count: messages, and system prompt and tools where these were given."""
        return self.messages + (self.system or 0) + (self.tools or 0)

    @property
    def trusts_reported(self) -> bool:
        """Whether `tokens` builds on the provider's report."""
        return self.reported is not None and self.distrust is None

    @property
    def distrust(self) -> Literal["above_window", "above_estimate"] | None:
        """Why the report is not believed; None if it is, or if there is none.

        It is larger than the model's window, or more than `MOST_ABOVE_ESTIMATE` times our count of the same. Where the
        system prompt or the tools were not given, they are allowed a fifth of the window on top of that.
        """
        if self.reported is None:
            return None
        if self.window is not None and self.reported.tokens > self.window:
            return "above_window"
        is_whole = self.system is not None and self.tools is not None
        unseen = 0 if is_whole else (self.window or USUAL_WINDOW) // UNSEEN_SHARE
        most = MOST_ABOVE_ESTIMATE * (self.counted - self.trailing) + unseen
        return "above_estimate" if self.reported.tokens > most else None

    @property
    def is_estimate(self) -> bool:
        """Whether any part of `tokens` is an estimate of ours."""
        return self.is_trailing_estimate if self.trusts_reported else self.is_counted_estimate


def calculate_context_tokens(usage: Mapping[str, JsonValue]) -> int:
    """Return how large the context was in the call that reported ``usage``.

    That is ``totalTokens``, or, if it is zero or missing, the sum of ``input``, ``output``, ``cacheRead`` and
    ``cacheWrite``; usage in a provider's own shape is read as the ledger reads it. Anything but a finite number counts
    as zero.
    """
    if total := _count(usage.get("totalTokens")):
        return total
    names = ("input", "output", "cacheRead", "cacheWrite")
    return sum(_count(usage.get(name)) for name in names) or read_reported(usage).totals.tokens


def _count(value: JsonValue) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    # An integer is finite however large; asking would make a float of it.
    return int(value) if isinstance(value, int) or math.isfinite(value) else 0


def reported_tokens(message: Message) -> int | None:
    """Return the size of the context that an answer reports; None if it reports none, was aborted or failed."""
    if message.get("role") != ASSISTANT or message.get("stopReason") in _FAILED:
        return None
    usage = message.get("usage")
    return calculate_context_tokens(usage) if isinstance(usage, Mapping) else None


def usage_start(context: Sequence[Message] | Sequence[ContextEntry], made_at: int | None = None) -> int:
    """Return the index of the first message that is newer than the latest compaction; 0 if there is none.

    ``made_at`` is the depth of that where none of the items is its summary.
    """
    if not context:
        return 0
    first = context[0]
    if isinstance(first, ContextEntry):
        if made_at is None and COMPACTION not in map(_KIND, context):
            return 0
        # The latest one is not the first where it stands for a range.
        entries = [item.entry for item in context if isinstance(item, ContextEntry)]
        if made_at is None:
            made_at = max(entry.depth for entry in entries if entry.kind == COMPACTION)
        newer = (entry.depth > made_at for entry in entries)
    elif _is_summary(first):
        made_ms = first.get("timestamp")
        newer = (not isinstance(item, ContextEntry) and _is_after(item.get("timestamp"), made_ms) for item in context)
    else:
        return 0
    return next((index for index, is_newer in enumerate(newer) if is_newer), len(context))


def _is_summary(message: Message) -> bool:
    content = message.get("content")
    if isinstance(content, (list, tuple)) and content and isinstance(content[0], Mapping):
        content = content[0].get("text")
    return message.get("role") == USER and isinstance(content, str) and content.startswith(f"{CONTEXT_PREFIX}\n")


def _is_after(moment: JsonValue, since: JsonValue) -> bool:
    return isinstance(moment, (int, float)) and isinstance(since, (int, float)) and moment > since


@lru_cache(maxsize=1024)
def is_same_model(name: str, other_name: str) -> bool:
    """Return whether two names are of one model, as far as names tell.

    The provider before the name does not matter (``openai:gpt-5``, ``openai/gpt-5``), nor does the date of a release
    behind it, if only one of the two has it.
    """
    if name == other_name:
        return True
    bare, other_bare = _without_provider(name), _without_provider(other_name)
    return bare == other_bare or _RELEASE.sub("", bare) == other_bare or bare == _RELEASE.sub("", other_bare)


def model_names(model: str) -> tuple[str, ...]:
    """Return the names of a model: its own, and that without the provider before it."""
    bare = _without_provider(model)
    return (model,) if bare == model else (model, bare)


def _without_provider(model: str) -> str:
    bare = model.rpartition("/")[2]
    before, colon, after = bare.partition(":")
    # `llama3:8b` is a model and its size, `gpt-4o:free` a model and its plan.
    is_provider = before.replace("-", "").isalpha() and after[:1].isalpha() and any(map(str.isdigit, after))
    return after if colon and is_provider else bare


# ---------------------------------------------------------------------------------------------------------------------
# Tell a reported 0 from an unknown number of tokens.

EVERYTHING = frozenset(PARTS)


def told_by(entries: Iterable[Entry]) -> frozenset[str]:
    """Return the numbers of tokens that are 0 because entries report it, and all if nothing was called.

    A number that an entry reports as more than 0, and that is 0 in the sum, was not counted: it is unknown, too.
    Counted are the entries that add to the sums of a path: answers and compactions, but for copies. O(entries): it
    decodes them.
    """
    zeros: set[str] = set()
    counted: set[str] = set()
    is_called = False
    for entry in entries:
        if not adds_usage(entry.kind, entry.role) or provenance_of(entry) is not None:
            continue
        usage = entry.fields.get("usage")
        # A summary without usage came without a call.
        is_called = is_called or usage is not None or is_answer(entry.kind, entry.role)
        for name, count in reported_counts(read_reported(usage)).items():
            if count is not None:
                (counted if count else zeros).add(name)
    return frozenset(zeros - counted) if is_called else EVERYTHING


def reported_counts(usage: ReportedUsage) -> dict[str, int | None]:
    """Return the tokens of a usage object by kind, and all of them; None is an unknown number."""
    return usage.totals.known(usage.told)


# ---------------------------------------------------------------------------------------------------------------------
# The difference of two leaves: the common ancestor, and the messages, tools and cost of each side.


class ToolUse(Frozen):
    """How often a tool was called, and how many of its results were errors."""

    calls: int
    errors: int = 0


class DiffSide(Frozen):
    """One side of a difference: the entries after the common ancestor, root to leaf.

    ``usage`` is the usage that their path reports (`aggregate_usage_since`): a copied entry adds nothing. ``cost`` is
    their cost by the ledger, which also has calls that were priced, and those behind branch summaries.
    """

    session_id: str
    leaf_id: str | None
    entries: Sequence[Entry]
    usage: Usage
    cost: EntryCost = NO_CALLS

    @property
    def messages(self) -> Mapping[str, int]:
        """How many messages there are of each role, in order of role."""
        return _counted(entry.role or "" for entry in self.entries if entry.kind == MESSAGE)

    @property
    def told(self) -> frozenset[str]:
        """The numbers of tokens in ``usage`` that are 0 as they were reported, or nothing was called. O(entries)."""
        return told_by(self.entries)

    @property
    def kinds(self) -> Mapping[str, int]:
        """How many entries there are of each kind, in order of kind."""
        return _counted(entry.kind for entry in self.entries)

    @property
    def compactions(self) -> int:
        """How many compactions there are."""
        return sum(entry.kind == COMPACTION for entry in self.entries)

    @property
    def tools(self) -> Mapping[str, ToolUse]:
        """The tools that were called, most often called first, then by name. O(entries): it decodes them."""
        calls: collection_Counter[str] = collection_Counter()
        errors: collection_Counter[str] = collection_Counter()
        for entry in self.entries:
            if entry.kind != MESSAGE:
                continue
            if entry.role == "assistant":
                calls.update(str(call.get("name", "")) for call in tool_calls(entry.fields))
            elif entry.role == "toolResult" and entry.fields.get("isError") is True:
                errors[str(entry.fields.get("toolName", ""))] += 1
        names = sorted(calls | errors, key=lambda name: (-calls[name], name))
        return {name: ToolUse(calls[name], errors[name]) for name in names}


class LeafDiff(Frozen):
    """Two leaves: their deepest common ancestor (None if there is none), and the entries after it on either side."""

    ancestor_id: str | None
    left: DiffSide
    right: DiffSide

    @property
    def is_same(self) -> bool:
        """Whether both leaves are the same entry, or both are before the first one."""
        return not self.left.entries and not self.right.entries


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(collection_Counter(names).items()))


# ---------------------------------------------------------------------------------------------------------------------
# A cache of message properties, by entry id.
#
# Of ten thousand messages a compaction asks which call tools, which answer, and in which a person speaks. An entry
# never changes, so that each is read for it once.

MOST_REMEMBERED = 100_000
"""The number of entries whose traits are remembered, the newest. They take some 40 MB."""
MOST_CHARS = 4_000
"""A longer message that calls tools is read anew each time: the arguments of its calls are kept with it."""
_FAILS = '"isError":true'
_NAMES_AGENT = '"agent'


class Traits(NamedTuple):
    """The traits of a message, beside its role.

    ``exchange`` is the part of it that `flue_py.core.entries.Pairing` reads: of its content, its calls in their places,
    and None in all others; nobody may change it. ``calls`` says whether it calls a tool, ``is_spoken`` whether it is
    one of the user with words of a person, and ``has_failed`` whether it is the result of a call that failed. These two
    are None if the message was not decoded to tell. ``agent`` is who answers, if it says.
    """

    payload_hash: int
    exchange: Mapping[str, JsonValue]
    calls: bool = False
    is_spoken: bool | None = False
    has_failed: bool | None = False
    agent: str | None = None


def traits_in(message: Mapping[str, JsonValue], payload_hash: int = 0) -> Traits:
    """Return the traits of a message. O(size)."""
    role, content = message.get("role"), message.get("content")
    parts = content if role == "assistant" and isinstance(content, (list, tuple)) else ()
    calls: list[JsonValue] = [
        part if isinstance(part, Mapping) and part.get("type") == "toolCall" else None for part in parts
    ]
    exchange: JsonObject = {"role": role, "content": calls}
    if role == "toolResult":
        exchange = {"role": role, "toolCallId": message.get("toolCallId")}
    return Traits(
        payload_hash,
        exchange,
        calls=any(call is not None for call in calls),
        is_spoken=role == "user" and bool(words_of(message)),
        has_failed=role == "toolResult" and message.get("isError") is True,
        agent=agent_of(message) if role == "assistant" else None,
    )


class KnownTraits:
    """The traits of entries that are messages: of at most ``most``, the newest. All threads may use one object."""

    def __init__(self, limit: int = MOST_REMEMBERED, max_chars: int = MOST_CHARS) -> None:
        self._most, self._most_chars = limit, max_chars
        self._known: dict[str, Traits] = {}
        self.known = self._known.get
        """Return the traits under an id, which are good for a payload of the same hash; None if there are none."""

    def of(self, entry: Entry) -> Traits:
        """Return the traits of an entry. O(size) of a message that calls tools, and O(1) if it is remembered."""
        traits = self.known(entry.id)
        # Another store may have the same id for something else. Python keeps the hash of a text beside it.
        if traits is None or traits.payload_hash != hash(entry.payload):
            traits = self._keep(entry, _undecoded(entry) or traits_in(entry.fields, hash(entry.payload)))
        return traits

    def note(self, entry: Entry, message: Mapping[str, JsonValue]) -> None:
        """Remember the traits of an entry, which was decoded for another reason. O(parts)."""
        self._keep(entry, traits_in(message, hash(entry.payload)))

    def clear(self) -> None:
        """Forget all of them."""
        self._known.clear()

    def _keep(self, entry: Entry, traits: Traits) -> Traits:
        if not traits.calls or len(entry.payload) <= self._most_chars:
            if len(self._known) >= self._most:
                for oldest in list(self._known)[: len(self._known) // 2 + 1]:
                    self._known.pop(oldest, None)
            self._known[entry.id] = traits
        return traits


def _undecoded(entry: Entry) -> Traits | None:
    """Return the traits of an entry that can be told without decoding it; None if it has to be."""
    exchange = undecoded_exchange(entry)
    if exchange is None or (entry.role == "assistant" and _NAMES_AGENT in entry.payload):
        return None
    is_spoken = (has_words(entry.payload) or None) if entry.role == "user" else False
    # Written without spaces, as every payload is.
    has_failed = None if entry.role == "toolResult" and _FAILS in entry.payload else False
    return Traits(hash(entry.payload), exchange, False, is_spoken, has_failed)


TRAITS = KnownTraits()
"""The traits that all sessions of the process share."""


# ---------------------------------------------------------------------------------------------------------------------
# Turns of agents, and the prompts by which people count when they go back.
#
# A turn is one agent's answers and results, until an answer without calls, another agent or a person; the messages
# before the first of these answers are part of it.

PREVIEW_CHARACTERS = 80
_NUMBER = expression(r"-?[0-9]+")
_MOST_DIGITS = 18


class Turn(Frozen):
    """One turn of a path: its number from 1, its user message, and whether a compaction has taken it out of sight."""

    number: int
    entry: Entry
    is_compacted: bool = False

    @property
    def text(self) -> str:
        """The words of the user; "" if there are none."""
        return message_text(self.entry.fields)

    @property
    def preview(self) -> str:
        """The first 80 characters of the user's words, on one line; … if there are more."""
        return preview(self.text)


def begins_turn(entry: Entry) -> bool:
    """Return whether an entry is a message of the user that a turn begins with: not one that a program wrote."""
    return entry.kind == MESSAGE and entry.role == "user" and (has_words(entry.payload) or is_spoken(entry.fields))


HANDOFF = "handoff"
"""The ``customType`` of a handoff."""


def is_note(entry: Entry) -> bool:
    """Return whether an entry is a note to the model that no turn begins with, such as a block: no handoff."""
    note = entry.data if entry.kind == CUSTOM_MESSAGE else None
    return isinstance(note, dict) and note.get("customType") != HANDOFF


class TurnPart(NamedTuple):
    """The part of a message in a turn: an agent's ``answer``, perhaps with calls, a ``result``, a ``prompt``, or ""."""

    kind: str
    calls: bool = False
    agent: str | None = None


_OTHER, _PROMPT, _RESULT = TurnPart(""), TurnPart("prompt"), TurnPart("result")
_ANSWER, _CALLING = TurnPart("answer"), TurnPart("answer", True)


def part_of(entry: Entry) -> TurnPart:
    """Return the part of an entry in a turn. O(1) for most: the traits of an answer are remembered."""
    if entry.kind != MESSAGE:
        return _OTHER
    if entry.role == "toolResult":
        return _RESULT
    if entry.role != "assistant":
        return _PROMPT if begins_turn(entry) else _OTHER
    traits = TRAITS.of(entry)
    if traits.agent is None:
        return _CALLING if traits.calls else _ANSWER
    return TurnPart("answer", traits.calls, traits.agent)


def part_in(message: Mapping[str, JsonValue]) -> TurnPart:
    """Return the part of a message in a turn. O(size)."""
    role = message.get("role")
    if role == "assistant":
        traits = traits_in(message)
        return TurnPart("answer", traits.calls, traits.agent)
    if role == "toolResult":
        return _RESULT
    return _PROMPT if role == "user" and is_spoken(message) else _OTHER


class Turns:
    """Counts turns, message by message. ``before`` are those that came before the first message."""

    __slots__ = ("_agent", "_is_closed", "ended", "number")

    def __init__(self, before: int = 0) -> None:
        self.number = before + 1
        """The turn of the last message."""
        self.ended = before
        """How many turns have ended: by an answer without calls, or because another one has begun."""
        self._agent: str | None = None
        self._is_closed: bool | None = None  # None before the first answer of the turn

    def add_entry(self, entry: Entry) -> int:
        """Return the turn of the next message, from 1. O(1) for most."""
        if entry.role == "toolResult":
            return self.number
        # Only within a round of tools it matters whether a person or a program wrote in the user's name.
        is_any = entry.role == "user" and self._is_closed is not False
        return self.add(_OTHER if is_any else part_of(entry))

    def goes_on(self, agent: str = "") -> bool:
        """Return whether an answer now, of an agent ("": of whoever answered last), is of a turn that has answers."""
        return self._is_closed is False and (not agent or self._agent in (None, agent.casefold()))

    def add(self, part: TurnPart) -> int:
        """Return the turn of the next message, from 1."""
        kind, calls, agent = part
        if kind == "result":
            return self.number
        name = agent.casefold() if agent else self._agent
        is_other = kind == "answer" and self._agent is not None and name != self._agent
        if self._is_closed is not None and (self._is_closed or is_other or kind == "prompt"):
            self.ended, self.number = self.number, self.number + 1
            self._is_closed, self._agent = None, None
            name = agent.casefold() if agent else None
        if kind == "answer":
            self._agent, self._is_closed = name, not calls
            if not calls:
                self.ended = self.number
        return self.number


def turn_numbers(parts: Iterable[TurnPart], before: int = 0) -> list[int]:
    """Return the turn of each of some messages, in order, from ``before`` + 1. O(messages)."""
    return [*map(Turns(before).add, parts)]


def last_turns(parts: Sequence[TurnPart], count: int) -> int:
    """Return where the last ``count`` turns that have an answer begin; 0 if there are no more. O(messages)."""
    numbers = turn_numbers(parts)
    last = next((numbers[at] for at in range(len(parts) - 1, -1, -1) if parts[at].kind == "answer"), 0)
    return bisect_left(numbers, last - count + 1)


def numbered_turns(messages: Sequence[Entry], seen: Collection[str]) -> list[Turn]:
    """Return the turns of a path from its user messages, given the ids of the entries that the model sees."""
    return [Turn(number, entry, entry.id not in seen) for number, entry in enumerate(messages, 1)]


def preview(text: str) -> str:
    """Return the first 80 characters of a text on one line, with … behind them if there are more."""
    line = " ".join(text[: PREVIEW_CHARACTERS * 20].split())
    return line if len(line) <= PREVIEW_CHARACTERS else line[:PREVIEW_CHARACTERS] + "…"


def kept_turns(wanted: str | int, total: int) -> int:
    """Return how many of ``total`` turns a rewind keeps: n keeps n, -n drops the last n, 0 drops all.

    The text "-0" drops none. A number out of range is clamped. Raises `InvalidArgument` if it is not a whole number.
    """
    if isinstance(wanted, int) and not isinstance(wanted, bool):
        return max(0, min(wanted if wanted >= 0 else total + wanted, total))
    text = wanted.strip() if isinstance(wanted, str) else ""
    if not _NUMBER.fullmatch(text):
        raise InvalidArgument(
            f"{shown(wanted)} is not a number of turns; n keeps the first n, -n drops the last n, 0 drops all"
        )
    digits = text.removeprefix("-").lstrip("0") or "0"
    number = int(digits) if len(digits) <= _MOST_DIGITS else total
    return max(0, total - number) if text.startswith("-") else min(number, total)


def is_editable(entry: Entry) -> bool:
    """Return whether a person wrote an entry and may want to write it anew: a fork of it begins before it.

    That is a message of the user, or a ``custom_message``.
    """
    return entry.kind == CUSTOM_MESSAGE or (entry.kind == MESSAGE and entry.role == "user")


# ---------------------------------------------------------------------------------------------------------------------
# The debt of a turn whose program died: an answer of the model, or the results of tool calls.

_PAUSED = "pause_turn"
"""The stop reason of an answer that its provider goes on with when it is sent back."""


class PendingCall(Frozen):
    """A tool call without a result: the id that its result names, the tool, its arguments, and the entry it is in."""

    id: str
    name: str
    arguments: JsonValue
    entry_id: str


class PendingTurn(Frozen):
    """The debt of a turn: the results of ``calls``, in order, or else an answer to ``unanswered``, or nothing.

    ``unanswered`` is the user's message, the last result where all calls of an answer have theirs, or an answer that
    its provider paused (``pause_turn``).
    """

    unanswered: Entry | None = None
    calls: tuple[PendingCall, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether nothing is owed."""
        return self.unanswered is None and not self.calls


def pending_in(items: Sequence[ContextEntry]) -> PendingTurn:
    """Return the debt of the last turn of a context. O(turn).

    A failed or aborted answer is none, and its calls are not to be run. Left out of account are shell commands of a
    person, messages of programs in the user's name, and entries of other kinds.
    """
    turn: list[ContextEntry] = []
    for item in reversed(items):
        if item.kind != MESSAGE or item.entry.source == SHELL or item.is_pinned:
            continue
        if item.role == "user" and begins_turn(item.entry):
            turn.append(item)
            break
        if item.role == "toolResult" or (item.role == "assistant" and item.data.get("stopReason") not in _FAILED):
            turn.append(item)
    turn.reverse()
    messages = [item.data for item in turn]
    pairing = Pairing(messages)
    # The result of a call that failed, or of none, is not part of the turn.
    while turn and len(turn) - 1 in pairing.unpaired:
        pairing.unpaired.discard(len(turn) - 1)
        turn.pop()
    if not turn:
        return PendingTurn()
    last = turn[-1]
    open_calls = [call for call, results in pairing.results.items() if not results]
    if last.role == "assistant" and not pairing.results_of(len(turn) - 1):
        return PendingTurn(last.entry if last.data.get("stopReason") == _PAUSED else None)
    if not open_calls:
        return PendingTurn(last.entry)
    calls = [(turn[call.at].entry_id, call.id, pairing.parts[call]) for call in open_calls]
    return PendingTurn(
        calls=tuple(
            PendingCall(id, str(part.get("name") or ""), part.get("arguments"), entry_id)
            for entry_id, id, part in calls
        )
    )


# ---------------------------------------------------------------------------------------------------------------------
# Pins: entries that every later compaction keeps word for word, named in its payload.


QUESTION = "lastQuestion"
"""The detail of a compaction that cut within a turn: the message of the user that it keeps, until the next one."""


def _question_of(fields: JsonObject) -> frozenset[str]:
    details = fields.get("details")
    asked = details.get(QUESTION) if isinstance(details, dict) else None
    return frozenset([asked] if isinstance(asked, str) else ())


def effective_pins(own: Mapping[str, str], latest: JsonObject | None) -> set[str]:
    """Return the ids of the entries that the next compaction keeps, wherever they lie.

    ``own`` are a session's marks, ``on`` or ``off`` by entry; ``latest`` are the fields of the latest compaction on
    the path: its pins hold until they are taken off, also in a fork, which has no marks of its own yet.
    """
    carried = frozenset[str]() if latest is None else pinned_ids(latest) - _question_of(latest)
    return {entry_id for entry_id in {*carried, *own} if own.get(entry_id, "on") == "on"}


class Looking(Protocol):
    """The path that a compaction is appended to, asked for the places of entries."""

    def named(self, ids: Iterable[str], /) -> Mapping[str, Entry]:
        """Return those of some entries that are on the path, by id, root first."""

    def group_of(self, entry_id: str, /) -> Iterable[str]:
        """Return the ids that are pinned together with an entry."""


def keeping(
    new: NewEntry, own: Mapping[str, str], latest: tuple[str, JsonObject] | None, looking: Looking, end: int
) -> NewEntry:
    """Return a compaction with its pinned entries, and with the ranges of the one in effect before.

    ``own`` are the marks of the session, ``latest`` the id and the fields of that compaction, ``end`` the depth that
    the new one will have. One that names its pins itself stays as it is; one of a range also gets the pins
    in that. The same one where there is nothing to add.
    """
    fields = decode_object(new.payload)
    first_kept, is_of_range = fields.get("firstKeptEntryId"), BASE in fields and RANGES in fields
    if RESTORES in fields or not isinstance(first_kept, str) or ("pinnedEntryIds" in fields and not is_of_range):
        return new
    pinned = effective_pins(own, None if latest is None else latest[1]) | _question_of(fields)
    before = None if latest is None else layout_of(*latest)
    if not pinned and (before is None or not before.ranges or is_of_range):
        return new
    if is_of_range:
        begin, last = _own_stretch(fields, looking)
        # An excluded part of an exchange is not among the planned pins, and can be shown again.
        range_pins = [member for pin in looking.named(pinned_ids(fields)) for member in looking.group_of(pin)]
    else:
        named = looking.named({first_kept, *(() if before is None else before.named)})
        begin, last = 0, named[first_kept].depth - 1 if first_kept in named else end - 1
        gaps = [] if before is None else gaps_of(before, named, last + 1, end)
        range_pins = _inside(gaps, () if latest is None else pinned_ids(latest[1]), looking)
        if gaps:
            fields[RANGES] = [gap.of.as_json for gap in gaps]
    own_pins = [entry for entry in looking.named(pinned).values() if begin <= entry.depth <= last]
    members = {member for entry in own_pins if entry.kind in SHOWN_KINDS for member in looking.group_of(entry.id)}
    pins = [entry.id for entry in looking.named(members).values() if begin <= entry.depth <= last]
    if pins or range_pins:
        fields["pinnedEntryIds"] = list(looking.named({*pins, *range_pins}))
    return replace(new, payload=encode_json(fields, COMPACTION)[0])


def _own_stretch(fields: JsonObject, looking: Looking) -> tuple[int, int]:
    """Return the depths of the first and the last entry that a compaction of a range stands for itself."""
    own = next((item for item in layout_of("", fields).ranges if item.compaction_id == ""), None)
    named = {} if own is None else looking.named([own.first_id, own.last_id])
    if own is None or own.first_id not in named or own.last_id not in named:
        return 0, -1
    return named[own.first_id].depth, named[own.last_id].depth


def _inside(gaps: Sequence[Gap], ids: Iterable[str], looking: Looking) -> list[str]:
    """Return the ids of the entries that lie in ranges."""
    entries = looking.named(ids).values() if gaps else ()
    return [entry.id for entry in entries if any(gap.first <= entry.depth <= gap.last for gap in gaps)]


# ---------------------------------------------------------------------------------------------------------------------
# The common beginning of two contexts, byte for byte: a digest that runs along the items of a context.
#
# A provider reads from its cache the common beginning of a request and an earlier one. Of two contexts that are the
# same up to an item, the digests there are the same, and nowhere after it.

_SIZE = 16


class CommonPrefix(Frozen):
    """The common beginning of two contexts, byte for byte.

    ``items`` is the number of its items, of ``items_a`` and ``items_b``; ``entry_id`` is the entry behind the last of
    them in the first context, None where they have nothing in common. ``digest`` tells this prefix from every other.
    """

    items: int
    entry_id: str | None
    digest: str
    items_a: int
    items_b: int

    @property
    def is_whole(self) -> bool:
        """Whether one of the two is the beginning of the other, or the same."""
        return self.items == min(self.items_a, self.items_b)


class PrefixChain(Frozen):
    """The running digests of a context.

    ``ends`` holds the digest after each item, one after the other, ``ids`` the entry behind each, ``depths`` its depth,
    -1 for the summary of a compaction. ``changed_at`` is the depth of the last entry on the path that changed the items
    before it, -1 for none; ``can_grow`` says that later entries only add items.
    """

    ends: bytes
    ids: tuple[str, ...]
    depths: tuple[int, ...]
    changed_at: int = -1
    can_grow: bool = True

    def digest(self, items: int) -> bytes:
        """Return the digest after so many items; that of no items is all zero."""
        return self.ends[(items - 1) * _SIZE : items * _SIZE] if items else bytes(_SIZE)

    def common_items(self, chain: PrefixChain) -> int:
        """Return how many items two contexts begin with alike. O(log items)."""
        low, high = 0, min(len(self.ids), len(chain.ids))
        while low < high:
            middle = (low + high + 1) // 2
            if self.digest(middle) == chain.digest(middle):
                low = middle
            else:
                high = middle - 1
        return low

    def common(self, chain: PrefixChain) -> CommonPrefix:
        """Return the common beginning of two contexts. O(log items)."""
        items = self.common_items(chain)
        last = self.ids[items - 1] if items else None
        return CommonPrefix(items, last, self.digest(items).hex(), len(self.ids), len(chain.ids))

    def grown(self, depth: int, added: Sequence[ContextEntry]) -> PrefixChain:
        """Return the chain of the items up to a depth, where nothing after it changes them, and of those added to it.

        O(added).
        """
        count = bisect_right(self.depths, depth)
        start = PrefixChain(self.ends[: count * _SIZE], self.ids[:count], self.depths[:count], self.changed_at)
        return _chained(start, added)


def item_bytes(item: ContextEntry) -> bytes:
    """Return the message of an item as JSON text, in UTF-8, as in the projection. O(size)."""
    entry = item.entry
    if entry.kind == MESSAGE and not item.excluded_parts:
        # The stored text is what `encode_json` makes of the message.
        return entry.payload.encode()
    return encode_json(item.data, item.kind)[0].encode()


def chain_of(items: Sequence[ContextEntry], path: Iterable[Entry] = ()) -> PrefixChain:
    """Return the chain of a context. ``path`` has the entries that it was read from. O(size)."""
    changes = [entry for entry in path if entry.kind in (COMPACTION, EXCLUSION)]
    changed_at = max((entry.depth for entry in changes), default=-1)
    # An exclusion is found by the whole path: later entries alone do not tell.
    can_grow = all(entry.kind != EXCLUSION for entry in changes)
    return _chained(PrefixChain(b"", (), (), changed_at, can_grow), items)


def _chained(start: PrefixChain, items: Sequence[ContextEntry]) -> PrefixChain:
    end = start.digest(len(start.ids))
    ends = [start.ends]
    for item in items:
        end = blake2b(end + item_bytes(item), digest_size=_SIZE).digest()
        ends.append(end)
    ids = (*start.ids, *(item.entry.id for item in items))
    depths = (*start.depths, *(-1 if item.kind == COMPACTION else item.entry.depth for item in items))
    return PrefixChain(b"".join(ends), ids, depths, start.changed_at, start.can_grow)


# ---------------------------------------------------------------------------------------------------------------------
# Taking a compaction back by an entry: nothing is removed, and the entries after it stay.

TAKES_BACK = "takesBackCompactionId"
"""The field that names the compaction which is taken back."""


def uncompaction(taken_back: Entry, restored: Entry | None, first_entry_id: str, tokens_before: int) -> NewEntry:
    """Return the entry that takes a compaction back and puts the one before it in effect again, None for no other.

    It is of the kind ``compaction``, with the summary and the kept part of the restored one. A program that does not
    know the field `RESTORES` therefore reads the same history; without an earlier compaction it keeps everything, from
    ``first_entry_id`` on, below an empty summary.
    """
    fields: JsonObject = {} if restored is None else restored.fields
    summary, first_kept = fields.get("summary"), fields.get("firstKeptEntryId")
    compaction = NewEntry.compaction(
        summary if isinstance(summary, str) else "",
        first_kept_entry_id=first_kept if isinstance(first_kept, str) else first_entry_id,
        tokens_before=tokens_before,
    )
    added: JsonObject = {
        "pinnedEntryIds": fields.get("pinnedEntryIds", []),
        RESTORES: None if restored is None else restored.id,
        TAKES_BACK: taken_back.id,
    }
    payload, _ = encode_json(decode_object(compaction.payload) | added, "compaction")
    return replace(compaction, payload=payload)
