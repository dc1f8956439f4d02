"""Where to cut: the plan of a compaction, made without a model and without I/O.

The end of the context is kept word for word; everything before it goes to a summarizer. Messages are counted
from the end until the budget is used up, and the cut is made at the first user or assistant message from
there on that does not separate a tool call from its result. A tool result is never the first message kept: its
call would be gone. If the first kept message is not a user message, the cut splits a turn, and the beginning
of that turn is summarized on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from operator import attrgetter
from typing import ClassVar, Literal, Protocol, TypeAlias, TypeVar, cast, overload

from msgspec.structs import replace

from flue_py.compaction.settings import (
    CompactionSettings,
    FileLists,
    appended_file_lists,
    collect_file_lists,
    file_lists,
    listed_files,
    stored_count,
    without_tags,
)
from flue_py.core import entries
from flue_py.core.context import (
    TRAITS,
    ContextEntry,
    Traits,
    Turns,
    is_note,
    part_in,
    pending_in,
    pinned_ids,
    reported_tokens,
    traits_in,
    usage_start,
)
from flue_py.core.json import Frozen, JsonObject, JsonValue, Selective, decode_object
from flue_py.core.kinds import (
    ASSISTANT,
    COMPACTION,
    EXCLUSION,
    MESSAGE,
    TOOL_RESULT,
    USER,
    Message,
    faithful_tokens,
    string_field,
    words_of,
)
from flue_py.core.sessions import Appended
from flue_py.errors import InvalidArgument, shown

# ---------------------------------------------------------------------------------------------------------------------
# Estimates, in tokens, of how large a context is, and whether it is time to compact it.


class ContextEstimate(Frozen):
    """The size of a context in tokens.

    ``usage_tokens`` is the provider's count up to and including message ``last_usage_index``,
    ``trailing_tokens`` the estimate of the rest, ``tokens`` their sum. ``last_usage_index`` is None if
    no message reports usage; everything is then estimated.
    """

    tokens: int
    usage_tokens: int
    trailing_tokens: int
    last_usage_index: int | None


estimate_tokens = faithful_tokens


def estimate_context_tokens(
    context: Sequence[Message] | Sequence[ContextEntry], *, usage_from: int | None = None
) -> ContextEstimate:
    """Return the size of a context: the last reported usage plus an estimate of the messages after it.

    Reports of aborted and failed assistant messages are ignored, and so are those of messages older than the latest
    compaction, which were kept by it: they are of the context before it. Pass the items of
    `Session.build_context_entries`, which say exactly which are older; plain messages are compared by ``timestamp``.
    ``usage_from`` is the index of the first message whose report counts, for a caller that knows it.
    Cost: O(messages after the last report).
    """
    if usage_from is None:
        usage_from = usage_start(context)
    messages = [item.data if isinstance(item, ContextEntry) else item for item in context]
    return estimate_messages(messages, usage_from)


def estimate_messages(messages: Sequence[Message], usage_from: int) -> ContextEstimate:
    """Return the estimate of `estimate_context_tokens`; looks only at messages from the last report on."""
    for index in range(len(messages) - 1, usage_from - 1, -1):
        reported = reported_tokens(messages[index])
        if not reported:
            continue
        trailing = sum(estimate_tokens(messages[at]) for at in range(index + 1, len(messages)))
        return ContextEstimate(reported + trailing, reported, trailing, index)
    estimated = sum(map(estimate_tokens, messages))
    return ContextEstimate(estimated, 0, estimated, None)


def should_compact(context_tokens: int, context_window: int, settings: CompactionSettings) -> bool:
    """Return whether a context is large enough to compact: above the window minus the reserve.

    Never when compaction is off, nor when the window is zero or negative, which stands for unknown.
    """
    if not settings.enabled or context_window <= 0:
        return False
    return context_tokens > context_window - settings.reserve_tokens


# ---------------------------------------------------------------------------------------------------------------------
# The messages of a context, decoded when somebody looks at one, and then once.
#
# Most of a plan needs no message: the role is beside the payload of an entry, and counts are remembered.

Item = TypeVar("Item")


class Outline(Frozen):
    """The roles and traits of messages, by the traits of their entries.

    ``last_said`` is the place of the last of those that call nothing in which the user or the model says something, -1
    for none; ``callers`` are the places of those that call tools, ``results`` those of the results of tools.
    """

    roles: list[JsonValue]
    traits: list[Traits]
    last_said: int
    callers: list[int]
    results: list[int]


class Messages(Sequence[Message]):
    """The messages of the items of a context, or messages as they are.

    ``made_at`` is the depth of the latest compaction where none of the items is its summary.
    """

    __slots__ = ("_found", "_items", "_made_at")

    def __init__(
        self, items: Sequence[ContextItem] | None, messages: Sequence[Message] = (), made_at: int | None = None
    ) -> None:
        self._items = items
        self._made_at = made_at
        self._found: list[Message | None] = list(messages) if items is None else [None] * len(items)

    def __len__(self) -> int:
        return len(self._found)

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...

    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, int):
            message = self._found[index]
            if message is None:
                assert self._items is not None, "messages without items are there from the start"
                message = self._found[index] = _decoded(self._items[index])
            return message
        return [self[at] for at in range(*index.indices(len(self)))]

    def turn_of(self, at: int, turns: Turns) -> int:
        """Return the turn of a message, the next one that is counted. O(1) for most that are of entries."""
        item = None if self._items is None else self._items[at]
        return turns.add_entry(item.entry) if isinstance(item, ContextEntry) else turns.add(part_in(self[at]))

    def role(self, at: int) -> JsonValue:
        """Return the role of a message. O(1) for that of an entry."""
        item = None if self._items is None else self._items[at]
        return item.role if isinstance(item, ContextEntry) else self[at].get("role")

    def begins_turn(self, at: int) -> bool:
        """Return whether a turn begins with a message, as `is_note` says. O(1) for that of an entry."""
        item = None if self._items is None else self._items[at]
        return self.role(at) == USER and not (isinstance(item, ContextEntry) and is_note(item.entry))

    def calling(self, among: Iterable[int]) -> Iterator[int]:
        """Yield those of some messages that may call tools."""
        items = self._items
        for at in among:
            item = None if items is None else items[at]
            if isinstance(item, ContextEntry):
                if item.entry.role == ASSISTANT and entries.CALLS in item.entry.payload:
                    yield at
            elif self[at].get("role") == ASSISTANT:
                yield at

    def outline(self, among: Sequence[int]) -> Outline:
        """Return the outline of some messages, by their places among these. O(1) for most that are of entries."""
        items, remembered = self._items, TRAITS.known
        roles: list[JsonValue] = []
        all_traits: list[Traits] = []
        for at in among:
            # Written out, since this is all that happens for most of ten thousand messages.
            item = None if items is None else items[at]
            if isinstance(item, ContextEntry) and item.entry.kind == MESSAGE and not item.excluded_parts:
                entry = item.entry
                traits = remembered(entry.id)
                if traits is None or traits[0] != hash(entry.payload):  # by its place, which takes half as long
                    traits = TRAITS.of(entry)
                roles.append(entry.role or USER)
            else:
                traits = traits_in(self[at])
                if item is not None and item.kind != MESSAGE:
                    traits = traits._replace(is_spoken=False)
                roles.append(self.role(at))
            all_traits.append(traits)
        callers = [place for place, traits in enumerate(all_traits) if traits.calls and roles[place] == ASSISTANT]
        results = [place for place, role in enumerate(roles) if role == TOOL_RESULT]
        return Outline(roles, all_traits, _last_said(roles, all_traits), callers, results)

    def pairing(self, among: Sequence[int], outline: Outline | None = None) -> entries.Pairing:
        """Return which of some messages answer which calls, by their places among these."""
        shape = outline or self.outline(among)
        # Both are in order, so that sorting them merges them.
        places = sorted([*shape.callers, *shape.results])
        return entries.Pairing([shape.traits[place].exchange for place in places], places, shape.last_said)

    def usage_start(self) -> int:
        """Return the index of the first message that is newer than the latest compaction; 0 if there is none."""
        items = self._items
        if items and isinstance(items[0], ContextEntry):
            return usage_start(cast("Sequence[ContextEntry]", items), self._made_at)
        return usage_start(self)

    def may_have(self, at: int, text: str) -> bool:
        """Return whether a message may have a text in it, of letters and signs that JSON writes as they are."""
        item = None if self._items is None else self._items[at]
        return not isinstance(item, ContextEntry) or text in item.entry.payload


def _last_said(roles: Sequence[JsonValue], traits: Sequence[Traits]) -> int:
    for at in range(len(roles) - 1, -1, -1):
        if roles[at] == USER or (roles[at] == ASSISTANT and not traits[at].calls):
            return at
    return -1


def _decoded(item: ContextItem) -> Message:
    # As `ContextEntry.data` does for most of ten thousand messages, without four calls for each.
    if isinstance(item, ContextEntry) and item.entry.kind == MESSAGE and not item.excluded_parts:
        return decode_object(item.entry.payload)
    return item.data


class PlannedContent:
    """The part of a context that a plan summarizes; each value is computed when it is first needed."""

    def __init__(
        self,
        messages: Messages,
        history: Sequence[int],
        prefix: Sequence[int],
        earlier: FileLists,
        counts: Sequence[int] | None = None,
    ) -> None:
        self._messages, self._counts = messages, counts
        self._history, self._prefix = history, prefix
        self._earlier = earlier

    def without(self, left_out: Collection[int], earlier: FileLists) -> PlannedContent:
        """Return the same without some of the messages, with other files of earlier compactions."""
        history, prefix = ([at for at in part if at not in left_out] for part in (self._history, self._prefix))
        return PlannedContent(self._messages, history, prefix, earlier, self._counts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlannedContent):
            return NotImplemented
        mine = self.history, self.prefix, self.files, self.tokens_before
        return mine == (other.history, other.prefix, other.files, other.tokens_before)

    __hash__ = None  # type: ignore[assignment] # messages are dicts

    @cached_property
    def indices(self) -> Sequence[int]:
        """Where the messages that leave are in the context, in order."""
        if isinstance(self._history, range) and isinstance(self._prefix, range):
            return range(self._history.start, self._prefix.stop)
        return (*self._history, *self._prefix)

    def those_of(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return the items that leave, of the context or of a list beside it. O(messages)."""
        indices = self.indices
        return items[indices.start : indices.stop] if isinstance(indices, range) else [items[at] for at in indices]

    @cached_property
    def history(self) -> tuple[Message, ...]:
        """The messages that leave, without the beginning of a split turn."""
        return tuple(map(self._messages.__getitem__, self._history))

    @cached_property
    def prefix(self) -> tuple[Message, ...]:
        """The beginning of a split turn."""
        return tuple(map(self._messages.__getitem__, self._prefix))

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """The messages that leave, in order."""
        return self.history + self.prefix

    @cached_property
    def _outline(self) -> Outline:
        return self._messages.outline(self.indices)

    @property
    def roles(self) -> list[JsonValue]:
        """The role of each message that leaves."""
        return self._outline.roles

    @property
    def turns(self) -> list[int]:
        """The turn of each message that leaves, from 1."""
        return self._turns[0]

    @property
    def turns_ended(self) -> int:
        """How many turns leave whole: the first message that stays belongs to the next one."""
        return self._turns[1]

    @cached_property
    def _turns(self) -> tuple[list[int], int]:
        counter, turn_of = Turns(), self._messages.turn_of
        numbers = [turn_of(at, counter) for at in self.indices]
        following = self.indices[-1] + 1 if numbers else 0
        stays = following < len(self._messages)
        return numbers, turn_of(following, counter) - 1 if stays else counter.ended

    @cached_property
    def spoken(self) -> list[int]:
        """Where among the messages that leave are those of the user in which a person said something."""
        traits = self._outline.traits
        return [
            at
            for at, role in enumerate(self.roles)
            if role == USER and ((is_spoken := traits[at].is_spoken) or (is_spoken is None and self.words(at)))
        ]

    def words(self, at: int) -> str:
        """Return a person's own words in one of the messages that leave, a message of the user; "" for none."""
        return words_of(self.message(at))

    @cached_property
    def failed(self) -> frozenset[int]:
        """Where among the messages that leave are the results of calls that failed."""
        traits = self._outline.traits
        return frozenset(
            at
            for at in self._outline.results
            if (has_failed := traits[at].has_failed) or (has_failed is None and self.message(at).get("isError") is True)
        )

    @cached_property
    def pairing(self) -> entries.Pairing:
        """The results and calls that belong together, among the messages that leave."""
        return self._messages.pairing(self.indices, self._outline)

    @cached_property
    def files(self) -> FileLists:
        """The files that messages which leave have read and modified, and those of earlier compactions."""
        traits, callers = self._outline.traits, self._outline.callers
        lists = collect_file_lists((traits[place].exchange for place in callers), self._earlier)
        if lists.modified_files == self._earlier.modified_files or not self.failed:
            return lists
        return collect_file_lists(
            (self._without_failed(place, traits[place].exchange) for place in callers), self._earlier
        )

    def _without_failed(self, place: int, message: Message) -> Message:
        """Return the calls of one of the messages that leave, without those that failed to modify a file."""
        exchanges = self.pairing.results_of(place).items()
        failed = {call.part for call, results in exchanges if results and results[0] in self.failed}
        content = message.get("content")
        if not failed or not isinstance(content, list):
            return message
        return {"role": ASSISTANT, "content": [None if at in failed else part for at, part in enumerate(content)]}

    @cached_property
    def tokens_before(self) -> int:
        """The estimated size of the whole context."""
        return estimate_messages(self._messages, self._messages.usage_start()).tokens

    def tokens(self, at: int) -> int | None:
        """Return how many tokens one of the messages that leave takes, by the counter of the plan; None without one."""
        return None if self._counts is None else self._counts[self.indices[at]]

    def may_have(self, at: int, text: str) -> bool:
        """Return whether one of the messages that leave may have a text in it. It is not decoded for it."""
        return self._messages.may_have(self.indices[at], text)

    def message(self, at: int) -> Message:
        """Return one of the messages that leave, by its place among them."""
        return self._messages[self.indices[at]]


# ---------------------------------------------------------------------------------------------------------------------
# Where a context may be cut: looked for at its end, so that messages long before the cut cost nothing.

_LEAST_STEP = 64


class Cuts:
    """The places from ``start`` on where a context may be cut.

    ``allowed`` says of an index whether a cut may fall there at all. No call lies before a cut and its result at or
    after it, unless the message of the call is in ``pinned`` and stays anyway. ``preferred`` says which of the cuts
    after a place is taken: the first of those, if there is any.
    """

    def __init__(
        self,
        messages: Messages,
        start: int,
        allowed: Callable[[int], bool],
        pinned: frozenset[int],
        *,
        preferred: Callable[[int], bool] = lambda _: True,
    ) -> None:
        self._messages = messages
        self._start = start
        self._allowed = allowed
        self._pinned = pinned
        self._preferred = preferred

    def first(self) -> int | None:
        """Return the first cut."""
        cut = next((at for at in range(self._start, len(self._messages)) if self._allowed(at)), None)
        # Before the start there may be pinned calls; the summary, which comes first, calls nothing.
        if cut is None or cut == self._start <= 1:
            return cut
        return next(iter(self._from(self._start)), None)

    def following(self, index: int) -> int | None:
        """Return the first cut at an index or after it that is preferred, or else the first. O(messages after it)."""
        cuts = self._from(index)
        return next(filter(self._preferred, cuts), next(iter(cuts), None))

    def keeping(self, settings: CompactionSettings, pinned_tokens: int, count: Callable[[int], int]) -> int | None:
        """Return the index of the first message to keep by the settings; None without a cut.

        ``count`` says how many tokens the message at an index takes, ``pinned_tokens`` those that are pinned.
        """
        end, limit = len(self._messages), settings.keep_recent_messages
        budget, most = settings.keep_recent_tokens - pinned_tokens, end if limit is None else limit
        tokens = messages = 0
        for index in range(end - 1, self._start - 1, -1):
            if index not in self._pinned:
                tokens += count(index)
                messages += 1
            if tokens >= budget or messages >= most:
                following = self.following(index)
                return self.last_before(index) if following is None else following
        return self.first()

    def fitting(self, cut: int, most: int, count: Callable[[int], int]) -> int:
        """Return a cut, or the first after it that keeps at most so many tokens; itself where none does.

        The message at which a budget is used up is kept, however large it is: with it there may be no room for
        anything.
        """
        end, pinned = len(self._messages), self._pinned
        tokens = sum(count(index) for index in range(cut, end) if index not in pinned)
        at = cut
        for later in self._from(cut + 1) if tokens > most else ():
            tokens -= sum(count(index) for index in range(at, later) if index not in pinned)
            at = later
            if tokens <= most:
                return later
        return cut

    def last_before(self, index: int) -> int | None:
        """Return the last cut before an index from which on there is none. O(messages from the cut on)."""
        first = index
        while first > self._start:
            first = max(self._start, first - max(len(self._messages) - first, _LEAST_STEP))
            if cuts := self._from(first):
                return ([*filter(self._preferred, cuts)] or cuts)[-1]
        return None

    def _from(self, first: int) -> list[int]:
        """Return the cuts from an index on."""
        cuts = [at for at in range(first, len(self._messages)) if self._allowed(at)]
        if not cuts:
            return cuts
        pairing = self._messages.pairing(range(first, len(self._messages)))
        pinned = {at - first for at in self._pinned}
        whole = [first + at for at in pairing.whole_cuts([cut - first for cut in cuts], pinned)]
        reached = self._last_called_before(first, pairing)
        return [cut for cut in whole if cut > reached]

    def _last_called_before(self, first: int, pairing: entries.Pairing) -> int:
        """Return the last result from an index on whose call lies before that, and may be parted from it; else -1."""
        latest: dict[str, int] = {}
        for at in sorted(pairing.unpaired):
            called = entries.answered_id(self._messages[first + at])
            if called is not None:
                latest[called] = first + at
        if not latest:
            return -1
        reached = -1
        for at in self._messages.calling(range(first - 1, -1, -1)):
            if not latest:
                break
            for called in entries.called_ids(self._messages[at]):
                result = latest.pop(called, -1)
                reached = reached if at in self._pinned else max(reached, result)
        return reached


# ---------------------------------------------------------------------------------------------------------------------
# Several summaries as one, for a compaction that takes over from all of them.

TURNS_BEFORE = "turnsBefore"
"""The detail of a summary of a range that says how many turns lie before it."""

WRITTEN = frozenset({"mode", "turns", "originals", "own", TURNS_BEFORE, entries.REGISTERED})
"""The details that are written beside every summary, whoever made it."""


class Told(Frozen):
    """The text of a compaction, and its details."""

    summary: str
    details: Mapping[str, JsonValue] | None

    @classmethod
    def of(cls, entry: entries.Entry) -> Told:
        """Return the text and the details of a compaction, without details of a hook's own."""
        fields = entry.fields
        details = fields.get("details")
        stored = details if isinstance(details, Mapping) else None
        if stored is not None and fields.get(entries.FROM_HOOK) is True:
            stored = {name: value for name, value in stored.items() if name in WRITTEN}
        return cls(string_field(fields, "summary"), stored)

    @property
    def own_text(self) -> str:
        """The text without the blocks around it and the lists of files, which a later compaction writes anew."""
        details = self.details or {}
        own = text_in(self.summary, details.get("own"))
        # Another program's summary may quote anything.
        return (
            without_tags(self.summary.removesuffix(appended_file_lists(listed_files(details)))) if own is None else own
        )

    @property
    def own_turns(self) -> int:
        """How many turns it stands for itself, as far as it says."""
        details = self.details or {}
        return max(stored_count(details.get("turns")) - stored_count(details.get(TURNS_BEFORE)), 0)


def text_in(text: str, span: JsonValue) -> str | None:
    """Return the part of a text that a span names, None where it is no span of it."""
    if not isinstance(span, (list, tuple)) or len(span) != 2:
        return None
    start, end = span
    if not isinstance(start, int) or not isinstance(end, int) or not 0 <= start <= end <= len(text):
        return None
    return text[start:end]


def joined(summaries: Sequence[Told], *, is_first: bool) -> Told | None:
    """Return several summaries as one, in their order; None for none.

    The only one, where nothing else is summarized that came before it (``is_first``), is continued as it is. Otherwise
    the texts follow each other, and count as those of another mode: no list goes on in the order of the conversation.
    """
    if not summaries or (len(summaries) == 1 and is_first):
        return summaries[0] if summaries else None
    lists = [listed_files(summary.details) for summary in summaries]
    files = file_lists(
        chain.from_iterable(summary.read_files for summary in lists),
        chain.from_iterable(summary.modified_files for summary in lists),
        (),
    )
    details: JsonObject = {
        **_carried(summaries),
        **files.details,
        "turns": sum(summary.own_turns for summary in summaries),
    }
    text = "\n\n".join(filter(None, (summary.own_text for summary in summaries))) + appended_file_lists(files)
    return Told(text, details)


def _carried(summaries: Sequence[Told]) -> JsonObject:
    """Return the details that each compaction hands on: the user's words, key facts, and the last handoff."""
    facts: dict[str, list[JsonValue]] = {}
    words_said: list[JsonValue] = []
    left_out, carried = 0, JsonObject()
    for summary in summaries:
        details = summary.details or {}
        words = details.get("userWords")
        if isinstance(words, Mapping):
            stored_words = words.get("said")
            words_said += stored_words if isinstance(stored_words, (list, tuple)) else ()
            left_out += stored_count(words.get("leftOut"))
        if "lastHandoff" in details:
            carried["lastHandoff"] = details["lastHandoff"]
        stored = details.get("keyFacts")
        for name, listed in stored.items() if isinstance(stored, Mapping) else ():
            # They are stored with the newest first.
            facts[name] = [*(listed if isinstance(listed, (list, tuple)) else ()), *facts.get(name, ())]
    if facts:
        carried["keyFacts"] = {**facts}
    return {**carried, "userWords": {"said": words_said, "leftOut": left_out}} if words_said else carried


# ---------------------------------------------------------------------------------------------------------------------
# Exchanges of which an exclusion hides a part: it can be shown again, and must not be without the rest then.

_KIND = attrgetter("kind")


class SplitExchange(Frozen):
    """A call with its results: the depths of the first and the last of them, the caller, and the hidden entries."""

    first: int
    last: int
    caller_id: str
    hidden: tuple[entries.Entry, ...]


def split_exchanges(path: Sequence[entries.Entry], shown: Iterable[str]) -> list[SplitExchange]:
    """Return the exchanges on a path of which only some entries, or none, are shown, by their ids. O(path)."""
    if EXCLUSION not in map(_KIND, path):
        return []
    ids = frozenset(shown)
    pairing = entries.Pairing(map(entries.exchange_of, path))
    exchanges = []
    for caller in dict.fromkeys(call.at for call in pairing.results):
        group = pairing.group_of(caller)
        members = [] if group is None else [path[at] for at in group.members]
        hidden = tuple(entry for entry in members if entry.id not in ids)
        if hidden:
            exchanges.append(SplitExchange(members[0].depth, members[-1].depth, path[caller].id, hidden))
    return exchanges


def uncut_depths(exchanges: Sequence[SplitExchange], pinned: Collection[str]) -> set[int]:
    """Return the depths within such exchanges: an entry there cannot be the first that is kept.

    Pinned messages stay, wherever it is cut. O(depths within them).
    """
    depths: set[int] = set()
    end = 0
    for first, last in sorted((span.first, span.last) for span in exchanges if span.caller_id not in pinned):
        depths.update(range(max(first + 1, end), last + 1))
        end = max(end, last + 1)
    return depths


# ---------------------------------------------------------------------------------------------------------------------
# The plan.

NO_PRIOR_HISTORY = "No prior history."

CountTokens: TypeAlias = Callable[[Message], int]
"""Says how many tokens a message takes."""

NoCompactionReason: TypeAlias = Literal["no_cut_point"]


class PreviousCompaction(Frozen):
    """The compaction a new one continues: its summary, and the index of the first message not in it.

    ``details`` are the file lists it stored. Raises `InvalidArgument` for a negative index.
    """

    summary: str
    first_kept_index: int
    details: Mapping[str, JsonValue] | None = None

    def __post_init__(self) -> None:
        index = self.first_kept_index
        if isinstance(index, bool) or not isinstance(index, int) or index < 0:
            raise InvalidArgument(f"first_kept_index: {shown(index)} is negative or no index; give that of a message")
        if not isinstance(self.summary, str):
            raise InvalidArgument(f"summary: should be a string, not {type(self.summary).__name__}")


class CompactionPlan(Selective):
    """The messages to summarize and the first to keep.

    ``messages_to_summarize`` and ``turn_prefix`` are, in order, everything between the previous compaction and
    the message at ``first_kept_index``; the prefix is empty unless ``is_split_turn``. ``tokens_before`` is the
    estimated size of the context now. The file lists are those of all compactions so far. ``carried_history``
    is None, or the text that stands for the history of a split turn that has none to summarize. Values that need the
    messages are computed when they are first needed.
    """

    _not_shown: ClassVar[tuple[str, ...]] = ("content",)

    first_kept_index: int
    is_split_turn: bool
    content: PlannedContent
    previous_summary: str | None
    settings: CompactionSettings
    carried_history: str | None = None

    @property
    def messages_to_summarize(self) -> tuple[Message, ...]:
        """The messages that leave, without the beginning of a split turn."""
        return self.content.history

    @property
    def turn_prefix(self) -> tuple[Message, ...]:
        """The beginning of a split turn; nothing if none is split."""
        return self.content.prefix

    @property
    def tokens_before(self) -> int:
        """The estimated size of the context."""
        return self.content.tokens_before

    @property
    def files(self) -> FileLists:
        """The files that were read and modified."""
        return self.content.files

    @property
    def read_files(self) -> tuple[str, ...]:
        """Paths that were read and not modified, each once, in UTF-16 order."""
        return self.files.read_files

    @property
    def modified_files(self) -> tuple[str, ...]:
        """Paths that were written or edited, each once, in UTF-16 order."""
        return self.files.modified_files


def prepare_compaction(
    messages: Sequence[Message], settings: CompactionSettings, previous: PreviousCompaction | None = None
) -> CompactionPlan | None:
    """Return the plan for a context, or None if nothing before the cut is new.

    ``messages`` is the whole context. With ``previous``, its first kept message is where the new part begins;
    messages before it are not summarized again. `should_compact` says whether a compaction is
    due. Cost: O(messages), and O(text) of those that are counted.
    """
    context = Messages(None, messages)
    start = previous.first_kept_index if previous else 0
    cuts = Cuts(context, start, partial(_may_cut, context), frozenset())
    keeps_none = settings.keep_recent_messages == 0 and bool(messages)
    keeps_none = keeps_none and messages[-1].get("role") == ASSISTANT and not entries.tool_calls(messages[-1])
    return _plan(context, cuts, settings, previous, owed=0 if keeps_none else None)


def _may_cut(messages: Messages, at: int) -> bool:
    return messages.role(at) in (USER, ASSISTANT)


def _plan(
    messages: Messages,
    cuts: Cuts,
    settings: CompactionSettings,
    previous: PreviousCompaction | None,
    pinned: frozenset[int] = frozenset(),
    released: Sequence[int] = (),
    counts: Sequence[int] | None = None,
    most: int | None = None,
    owed: int | None = None,
) -> CompactionPlan | None:
    """Return the plan; ``pinned`` and ``released`` are indices: always kept, no longer kept.

    ``owed`` is how many messages of the end stay, and no more, where that is said.
    """
    start = previous.first_kept_index if previous else 0
    count = (lambda index: estimate_tokens(messages[index])) if counts is None else counts.__getitem__
    pinned_tokens = sum(map(count, pinned))
    if owed is None:
        cut = cuts.keeping(settings, pinned_tokens, count)
    else:
        cut = cuts.following(len(messages) - owed) if owed else len(messages)
    if most is not None and cut is not None:
        cut = cuts.fitting(cut, most - pinned_tokens, count)
    if cut is None or cut <= start:
        return None
    turn_start = None
    if cut < len(messages) and messages.role(cut) != USER:
        turn_start = next((n for n in range(cut, start - 1, -1) if messages.begins_turn(n)), None)
    middle = cut if turn_start is None else turn_start
    history: Sequence[int] = range(start, middle)
    prefix: Sequence[int] = range(middle, cut)
    if pinned or released:
        history = [n for n in (*released, *history) if n not in pinned]
        prefix = [n for n in prefix if n not in pinned]
    if not history and not prefix:
        return None
    earlier = listed_files(previous.details if previous else None)
    return CompactionPlan(
        first_kept_index=cut,
        is_split_turn=turn_start is not None,
        content=PlannedContent(messages, history, prefix, earlier, counts),
        previous_summary=previous.summary if previous else None,
        settings=settings,
        carried_history=None if history else _carried_history(previous),
    )


def _carried_history(previous: PreviousCompaction | Told | None) -> str:
    """Return the text for a history with no new messages, without the file lists: those are appended anew."""
    if previous is None or not previous.summary:
        return NO_PRIOR_HISTORY
    return previous.summary.removesuffix(appended_file_lists(listed_files(previous.details)))


class ContextItem(Protocol):
    """One item of a session's context, with the entry behind it; ``data`` is the message the model sees."""

    @property
    def entry_id(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def data(self) -> JsonObject: ...


class LatestCompaction(Protocol):
    """The latest compaction on a session's path, as far as planning needs it."""

    @property
    def summary(self) -> str: ...

    @property
    def details(self) -> Mapping[str, JsonValue] | None: ...


class SessionCompactionPlan(Selective):
    """A plan for a session, and the id of the entry behind the first kept message, "" where none is kept.

    ``leaving`` are the items of the context that the summary will stand for, in order, ``staying`` those that stay
    after it: pinned ones, then everything from the first kept entry on. In the plan of a session, entries that were
    pinned after they were summarized come before all of these: they are not in the context now, and come back. The
    summary of an earlier compaction is neither: it is ``plan.previous_summary``, and ``previous`` with its details. So
    is that of a range that leaves. A pinned summary stays like any pinned entry. ``taken_over`` is where these
    summaries are among the items. ``question`` is the last message of the user if it stays although its turn is cut.
    """

    _not_shown: ClassVar[tuple[str, ...]] = ("leaving", "staying", "previous", "taken_over")

    plan: CompactionPlan
    first_kept_entry_id: str
    leaving: tuple[ContextItem, ...] = ()
    staying: tuple[ContextItem, ...] = ()
    previous: Told | None = None
    taken_over: tuple[int, ...] = ()
    question: str = ""


class NoCompaction(Frozen):
    """Why a session is not compacted.

    ``no_cut_point``: nothing can be cut off, or nothing new.
    """

    reason: NoCompactionReason


def plan_session_compaction(
    items: Sequence[ContextItem],
    latest: entries.Entry | LatestCompaction | None,
    settings: CompactionSettings,
    *,
    pinned: Collection[str] = (),
    carried: Collection[str] | None = None,
    counts: Sequence[int] | None = None,
    live: Collection[str] = (),
    most: int | None = None,
    split: Sequence[SplitExchange] = (),
    whole_turns: bool = False,
) -> SessionCompactionPlan | NoCompaction:
    """Return the plan for a session's context, or why there is none.

    ``items`` is the context as the session projects it, ``latest`` the result of `Session.compactions.latest`. If there
    is one, its item comes first, and each item after it is pinned by it (``carried``, which is read from its entry),
    kept by it, or newer. The entry of the first kept item is always a message. ``pinned`` are the entries that are kept
    wherever they are (`Session.marks.pins`): they are not summarized, and count as kept. Entries that ``latest`` had
    pinned and that are no longer pinned are summarized now. ``counts`` says how many tokens each item takes, by default
    by `estimate_tokens`. ``live`` are entries that must not be summarized: everything from the first of them on is
    kept, however much that is. ``most`` is how many tokens may stay: if the message that uses up the budget makes it
    more, the cut is made after it, if there is one. ``split`` are exchanges of which a part is not among the items: no
    cut separates them. With ``whole_turns``, the kept part begins with a message of the user, if it has one. Each
    item's ``data`` is read once. Cost: as `prepare_compaction`.
    """
    silent = latest.depth if isinstance(latest, entries.Entry) and entries.is_silent(latest) else None
    messages = Messages(items, made_at=silent)
    summaries: Mapping[int, Told] = {}
    if isinstance(latest, entries.Entry):
        carried = pinned_ids(latest.fields) if carried is None else carried
        latest, summaries = _summaries(items, latest)
    carried = carried or ()
    start = first = int(latest is not None and silent is None)
    while start and start < len(items) and items[start].entry_id in carried:
        start += 1
    named = [at for at, item in enumerate(items) if item.entry_id in pinned] if pinned else []
    staying = _with_exchanges(named, messages.pairing(range(len(items)))) if named else frozenset()
    stays = first == 1 and 0 in staying
    first_told = None if latest is None else _first_told(latest, stays=stays)
    previous = None if first_told is None else PreviousCompaction(first_told.summary, start, first_told.details)
    pinned_summaries = [at for at in summaries if at in staying]
    if stays:
        pinned_summaries.append(0)
    summaries = {at: summary for at, summary in summaries.items() if at not in staying}
    released = [n for n in range(1, start) if n not in staying]
    uncut = uncut_depths(split, pinned)
    first_live = next((n for n in range(start, len(items)) if items[n].entry_id in live), len(items)) if live else None

    def may_cut(at: int) -> bool:
        if first_live is not None and at > first_live:
            return False
        item = items[at]
        if split and isinstance(item, ContextEntry) and item.entry.depth in uncut:
            return False
        if getattr(item, "is_pinned", False):
            return False
        # A compaction shows the items after its cut in the context, and pinned entries from before its cut on the path.
        # A summary lies where it was appended, which can be long after the entries it stands for, and after those its
        # compaction kept.
        if not all(index >= at or _is_older(items[index], item) for index in pinned_summaries):
            return False
        return _may_cut(messages, at) and item.kind == MESSAGE

    cuts = Cuts(messages, start, may_cut, staying, preferred=lambda at: not whole_turns or messages.role(at) == USER)
    keeps_none = settings.keep_recent_messages == 0 and not (pinned_summaries or live or split)
    owed = _owed(items) if keeps_none else None
    plan = _plan(messages, cuts, settings, previous, staying, released, counts, most, owed)
    if plan is None:
        return NoCompaction("no_cut_point")
    cut = plan.first_kept_index
    leaving = [at for at in summaries if at < cut]
    texts = [] if first_told is None else [first_told]
    previous_told = joined([*texts, *(summaries[at] for at in leaving)], is_first=latest is not None)
    if leaving and previous_told is not None:
        plan = _taking_over(plan, previous_told, leaving)
        if plan is None:
            return NoCompaction("no_cut_point")
    if not first or stays:
        plan = replace(plan, previous_summary=plan.previous_summary or None)
    pinned_before = tuple(items[n] for n in range(cut) if n in staying) if staying else ()
    return SessionCompactionPlan(
        plan,
        items[cut].entry_id if cut < len(items) else "",
        tuple(plan.content.those_of(items)),
        (*pinned_before, *items[cut:]),
        previous=previous_told,
        taken_over=(*([0] if first and not stays else []), *leaving),
    )


def _owed(items: Sequence[ContextItem]) -> int | None:
    """Return how many items of the end are a message without an answer and those after it; None for open calls."""
    shown = [item for item in items if isinstance(item, ContextEntry)]
    pending = pending_in(shown)
    if pending.is_over:
        return 0 if shown and len(shown) == len(items) else None
    last = pending.unanswered
    return None if last is None or last.role != USER else len(shown) - [item.entry_id for item in shown].index(last.id)


def _first_told(latest: LatestCompaction, *, stays: bool) -> Told:
    """Return the part of the first summary that is continued: of one that stays, only the count of turns."""
    details = latest.details
    if not stays:
        return Told(latest.summary, details)
    return Told("", {"turns": details["turns"]} if details is not None and "turns" in details else None)


def _is_older(item: ContextItem, than: ContextItem) -> bool:
    return isinstance(item, ContextEntry) and isinstance(than, ContextEntry) and item.entry.depth < than.entry.depth


def _summaries(items: Sequence[ContextItem], latest: entries.Entry) -> tuple[Told | None, dict[int, Told]]:
    """Return the summary that comes first, if any, and those of ranges by index.

    A compaction of a range has its own in the place of that, and another's comes first, or none.
    """
    if (
        (entries.RANGES not in latest.fields and not entries.is_silent(latest))
        or not items
        or not isinstance(items[0], ContextEntry)
    ):
        return Told.of(latest), {}
    by_place = {
        at: Told.of(item.entry)
        for at, item in enumerate(items)
        if isinstance(item, ContextEntry) and item.entry.kind == COMPACTION
    }
    return Told("", Told.of(latest).details) if entries.is_silent(latest) else by_place.pop(0, None), by_place


def _taking_over(plan: CompactionPlan, previous: Told, places: Collection[int]) -> CompactionPlan | None:
    """Return a plan that takes over from summaries of ranges, too, instead of summarizing them as messages.

    None where nothing else would leave.
    """
    content = plan.content.without(places, listed_files(previous.details))
    if not content.indices:
        return None
    return replace(
        plan,
        is_split_turn=bool(content.prefix),
        content=content,
        previous_summary=previous.summary,
        carried_history=None if content.history else _carried_history(previous),
    )


def _with_exchanges(places: Iterable[int], pairing: entries.Pairing) -> frozenset[int]:
    """Return some places, each with those of the tool call or the results that its message is kept with."""
    members: set[int] = set()
    for place in places:
        if place not in members:
            group = pairing.group_of(place)
            members.update([place] if group is None else group.members)
    return frozenset(members)


# ---------------------------------------------------------------------------------------------------------------------
# A range of a context to summarize, and how that is stored.
#
# The range is made wide enough that no tool call is separated from its results. Pinned entries in it stay, after the
# summary; summaries of earlier compactions in it are taken over. A range from the beginning of the context on is a
# compaction like any other, cut at the place that was asked for, unless it goes to the leaf: then later entries
# have to be told from it by its end.


class RangePlan(SessionCompactionPlan):
    """A plan for a range of the context, from the first to the last item that the summary will stand for.

    ``is_widened`` says that the range is larger than the one asked for. ``head`` is whose summary comes first, and from
    where the path is kept, ``ranges`` are the ranges that stay summarized, the new one without a compaction, and
    ``pinned`` are the entries that stay in or before them; ``head`` is None where the range begins with the context,
    and something comes after it: that is stored as any other compaction, with ``pinned`` only if it has to name entries
    that were unpinned and are not in the range.
    """

    _not_shown: ClassVar[tuple[str, ...]] = ("leaving", "staying", "previous", "taken_over", "pinned")

    first_entry_id: str = ""
    last_entry_id: str = ""
    is_widened: bool = False
    head: entries.Layout | None = None
    ranges: tuple[entries.Range, ...] = ()
    pinned: tuple[str, ...] = ()


def plan_range(
    items: Sequence[ContextEntry],
    latest: entries.Entry | None,
    path: Sequence[entries.Entry],
    settings: CompactionSettings,
    first: str | None,
    last: str | None,
    *,
    pinned: Collection[str] = (),
    live: Collection[str] = (),
) -> RangePlan | NoCompaction:
    """Return the plan for the items of a context from ``first`` to ``last``, or why there is none.

    None is the beginning and the end of the context. ``latest`` is the compaction in effect, ``path`` the entries that
    the context was read from, ``live`` are messages whose calls are still to be answered, like those at the end. Raises
    `InvalidArgument` for an entry that is no item, for ends that are the wrong way round, and for a range that ends
    within an exchange that is not over, or has a pinned summary in it. O(items).
    """
    if not items:
        return NoCompaction("no_cut_point")
    planning = _Planning(items, latest, path, settings, frozenset(pinned), frozenset(live))
    stretch = planning.stretch(first, last)
    return NoCompaction("no_cut_point") if stretch is None else planning.plan(*stretch)


class _Planning:
    def __init__(
        self,
        items: Sequence[ContextEntry],
        latest: entries.Entry | None,
        path: Sequence[entries.Entry],
        settings: CompactionSettings,
        pinned: frozenset[str],
        live: frozenset[str],
    ) -> None:
        self._items = items
        self._messages = Messages(items)
        self._pairing = self._messages.pairing(range(len(items)))
        self._latest = latest
        self._layout = None if latest is None else entries.layout_of(latest.id, latest.fields)
        self._path = path
        self._settings = settings
        self._live = live
        self._pins = _with_exchanges((at for at, item in enumerate(items) if item.entry_id in pinned), self._pairing)
        self._carried = _with_exchanges((at for at, item in enumerate(items) if item.is_pinned), self._pairing)
        self._summaries = [at for at, item in enumerate(items) if item.kind == COMPACTION]
        self._split = self._with_hidden()

    def _with_hidden(self) -> list[tuple[int, int, tuple[entries.Entry, ...]]]:
        """Return the exchanges with a part that an exclusion hides: the items around them, and the hidden entries."""
        exchanges = split_exchanges(self._path, (item.entry_id for item in self._items))
        depths = [self._depths(at) for at in range(len(self._items))] if exchanges else []
        split = []
        for exchange in exchanges:
            between = [
                at for at, (first, last) in enumerate(depths) if exchange.first <= first and last <= exchange.last
            ]
            if between:
                split.append((between[0], between[-1], exchange.hidden))
        return split

    def _depths(self, at: int) -> tuple[int, int]:
        """Return from where to where on the path an item stands; that of the summary that comes first, before it."""
        if self._items[at].kind != COMPACTION:
            return (self._items[at].entry.depth,) * 2
        first, last = self._span(at)
        if first == self._items[at].entry_id:
            return -1, -1
        on_path = {entry.id: entry.depth for entry in self._path if entry.id in (first, last)}
        return on_path.get(first, -1), on_path.get(last, -1)

    # -- from where to where -------------------------------------------------------------------------------------

    def stretch(self, first: str | None, last: str | None) -> tuple[int, int, bool] | None:
        """Return the places of the first and the last item, and whether that is more than was asked for."""
        begin = 0 if first is None else self._place(first, "first")
        end = len(self._items) - 1 if last is None else self._place(last, "last")
        if begin > end:
            raise InvalidArgument(
                f"first: {first!r} comes after {last!r} in the context; name them the other way round"
            )
        wanted = begin, end
        begin, end = self._widened(begin, end)
        opened = [call.at for call in self._pairing.results if begin <= call.at <= end and self._is_open(call.at)]
        if opened and last is not None:
            raise InvalidArgument(
                f"last: entry {self._items[opened[0]].entry_id!r} calls a tool whose result is still to come; end the "
                "range before it, or compact when that is there"
            )
        if opened:
            end = min(opened) - 1
            wanted = wanted[0], end
            if begin > end:
                return None
            begin, end = self._widened(begin, end)
            if end >= min(opened):
                return None
        for at in self._summaries:
            if begin <= at <= end and at in self._pins:
                raise InvalidArgument(
                    f"entry {self._items[at].entry_id!r} is a pinned summary in the range; unpin() it, or choose a "
                    "range before or after it"
                )
        return begin, end, (begin, end) != wanted

    def _place(self, entry_id: str, name: str) -> int:
        place = next((at for at, item in enumerate(self._items) if item.entry_id == entry_id), None)
        if place is None:
            raise InvalidArgument(
                f"{name}: entry {entry_id!r} is not in the context; name one that `build_context_entries` returns"
            )
        return place

    def _is_open(self, at: int) -> bool:
        group = self._pairing.group_of(at)
        return self._items[at].entry_id in self._live or (group is not None and group.is_open)

    def _widened(self, begin: int, end: int) -> tuple[int, int]:
        """Return the places between which no call is without its results, nor a result without its call."""
        spans = [
            (call.at, max(results, default=call.at))
            for call, results in self._pairing.results.items()
            if call.at not in self._pins
        ]
        spans += [(low, high) for low, high, _ in self._split if not {low, high} & self._pins]
        while True:
            # An unpinned entry leaves only with the summary that comes first; otherwise it stays where it is.
            free = [span for span in spans if begin == 0 or span[0] not in self._carried]
            cut = [span for span in free if span[0] <= end and span[1] >= begin]
            wider = min([begin, *(low for low, _ in cut)]), max([end, *(high for _, high in cut)])
            if wider == (begin, end):
                return wider
            begin, end = wider

    # -- the plan of a range --------------------------------------------------------------------------------------

    def plan(self, begin: int, end: int, is_widened: bool) -> RangePlan | NoCompaction:
        """Return the plan for the items between two places."""
        after = end + 1
        while after < len(self._items) and self._items[after].is_pinned:
            after += 1
        if begin == 0 and after < len(self._items):
            # Unpinned entries outside of the range stay as they are: nobody asked to summarize them.
            staying = self._pins | set(range(end + 1, after))
            return self._planned(0, after - 1, staying, is_widened, None, names_pinned=not staying <= self._pins)
        # Pinned items from before the kept part, or from a range, stay where they are.
        absorbs = begin == 0 and self._layout is not None and self._layout.head_id == self._items[0].entry_id
        begin += absorbs
        while begin <= end and self._items[begin].is_pinned:
            begin += 1
        while begin <= end and self._items[end].is_pinned:
            end -= 1
        if begin > end:
            return NoCompaction("no_cut_point")
        staying = self._pins | self._carried
        return self._planned(begin, end, staying, is_widened, self._head(absorbs), absorbs=absorbs)

    def _head(self, absorbs: bool) -> entries.Layout:
        """Return whose summary comes first, and from where the path is kept."""
        if self._layout is None or self._latest is None:
            # Not from the first item on: entries before it that an exclusion hides can be shown again.
            return entries.Layout(None, self._path[0].id)
        wanted, depth = self._layout.first_kept_id, self._latest.depth
        is_there = any(entry.id == wanted and entry.depth < depth for entry in self._path)
        return entries.Layout(None if absorbs else self._layout.head_id, wanted if is_there else self._latest.id)

    def _planned(
        self,
        begin: int,
        end: int,
        staying: frozenset[int],
        is_widened: bool,
        head: entries.Layout | None,
        *,
        absorbs: bool = False,
        names_pinned: bool = True,
    ) -> RangePlan | NoCompaction:
        summaries = [at for at in self._summaries if (0 if absorbs else begin) <= at <= end and at not in staying]
        elsewhere = staying.union(summaries)
        leaving = [at for at in range(begin, end + 1) if at not in elsewhere]
        if not leaving:
            return NoCompaction("no_cut_point")
        left = {*leaving, *summaries}
        texts = joined([Told.of(self._items[at].entry) for at in summaries], is_first=min(left) in summaries)
        previous = self._continued(texts, min(left))
        files = listed_files(previous.details)
        plan = CompactionPlan(
            first_kept_index=end + 1,
            is_split_turn=False,
            content=PlannedContent(self._messages, leaving, (), files),
            previous_summary=previous.summary or None,
            settings=self._settings,
        )
        return RangePlan(
            plan,
            self._span(end + 1)[0] if end + 1 < len(self._items) else "",
            tuple(self._items[at] for at in leaving),
            tuple(item for at, item in enumerate(self._items) if at not in left),
            previous,
            tuple(summaries),
            first_entry_id=self._items[0 if absorbs else begin].entry_id,
            last_entry_id=self._items[end].entry_id,
            is_widened=is_widened,
            head=head,
            ranges=self._ranges(begin, end, has_own=head is not None) if names_pinned else (),
            pinned=self._pinned(begin, end, staying) if names_pinned else (),
        )

    def _continued(self, summary: Told | None, start: int) -> Told:
        """Return the texts that the new summary takes over, with the number of turns before it."""
        earlier = [Told.of(self._items[at].entry) for at in self._summaries if at < start]
        others = set(range(start)).difference(self._summaries)
        spoken = sum(self._messages.role(at) in (USER, ASSISTANT) for at in others)
        before = spoken + sum(text.own_turns for text in earlier)
        own = summary or Told("", None)
        return Told(own.summary, {**(own.details or {}), "turns": before + own.own_turns, TURNS_BEFORE: before})

    def _span(self, at: int) -> tuple[str, str]:
        """Return the first and the last entry of the path that an item of the context stands for."""
        entry_id = self._items[at].entry_id
        ranges = () if self._layout is None else self._layout.ranges
        span = next((summarized for summarized in ranges if summarized.compaction_id == entry_id), None)
        return (entry_id, entry_id) if span is None else (span.first_id, span.last_id)

    def _ranges(self, begin: int, end: int, *, has_own: bool) -> tuple[entries.Range, ...]:
        """Return the summarized ranges, in the order of the path: those outside of the new one, and that."""
        stored = {} if self._layout is None else {span.compaction_id: span for span in self._layout.ranges}
        shown = {at: stored[self._items[at].entry_id] for at in self._summaries if self._items[at].entry_id in stored}
        new = [entries.Range(*self._ends(begin, end), None)] if has_own else []
        before = [span for at, span in shown.items() if at < begin]
        return (*before, *new, *(span for at, span in shown.items() if at > end))

    def _ends(self, begin: int, end: int) -> tuple[str, str]:
        """Return the first and the last entry of a range, with the hidden parts of its exchanges."""
        first, last = self._span(begin)[0], self._span(end)[1]
        hidden = [entry for low, high, some in self._split if begin <= low and high <= end for entry in some]
        (lowest, _), (_, highest) = self._depths(begin), self._depths(end)
        before = min((entry for entry in hidden if entry.depth < lowest), key=lambda entry: entry.depth, default=None)
        after = max((entry for entry in hidden if entry.depth > highest), key=lambda entry: entry.depth, default=None)
        return first if before is None else before.id, last if after is None else after.id

    def _pinned(self, begin: int, end: int, staying: frozenset[int]) -> tuple[str, ...]:
        """Return the entries that stay in the ranges and before the kept part."""
        return tuple(
            item.entry_id
            for at, item in enumerate(self._items)
            if (at in staying if begin <= at <= end else item.is_pinned)
        )


def entry_of(
    planned: SessionCompactionPlan,
    text: str,
    details: JsonObject,
    calls: Sequence[JsonObject],
    *,
    from_hook: bool = False,
) -> entries.NewEntry:
    """Return the compaction to append for a plan of any kind."""
    head = planned.head if isinstance(planned, RangePlan) else None
    if head is not None:
        earlier = None if planned.previous is None else planned.previous.details
        details = {**details, TURNS_BEFORE: (earlier or {}).get(TURNS_BEFORE)}
    entry = entries.NewEntry.compaction(
        text,
        first_kept_entry_id=planned.first_kept_entry_id if head is None else head.first_kept_id or "",
        tokens_before=planned.plan.tokens_before,
        details=details,
        calls=calls,
        from_hook=from_hook,
    )
    if not isinstance(planned, RangePlan):
        return entry if text else entries.without_summary(entry)
    if head is None and not planned.pinned:
        return entry
    return entries.laid_out(entry, planned.ranges, pinned=planned.pinned, head=head)


# ---------------------------------------------------------------------------------------------------------------------
# The result of a compaction, or why it did nothing.

NotCompacted: TypeAlias = Literal[
    "no_cut_point",
    "not_smaller",
    "dry_run",
    "cancelled",
    "elsewhere",
    "leaf_moved",
    "compacted_meanwhile",
    "redacted_meanwhile",
]
"""Why nothing was appended:

- ``no_cut_point``: nothing can be cut off, or nothing new
- ``not_smaller``: the text is not smaller than the messages that it would stand for
- ``dry_run``: the caller asked for the plan alone
- ``cancelled``: a hook wanted none; the notes say why
- ``elsewhere``: somebody else compacts the session now: ask again later
- ``leaf_moved``: meanwhile the leaf was moved to where the planned entries are not on the path
- ``compacted_meanwhile``: another compaction was appended meanwhile
- ``redacted_meanwhile``: an entry that the text was made of was redacted meanwhile
"""

WHY_NOT: Mapping[str, str] = {
    "no_cut_point": "there is nothing to compact beside what is kept",
    "not_smaller": "the summary is not smaller than what it would stand for",
    "elsewhere": "another process compacts the session now",
    "leaf_moved": "the leaf was moved meanwhile",
    "compacted_meanwhile": "the session was compacted meanwhile",
    "redacted_meanwhile": "an entry was redacted meanwhile",
}
"""The reasons in words; those of a hook are in the notes."""


class CompactionResult(Frozen):
    """The result of a compaction: ``appended`` says where it landed, and is None if it did nothing.

    ``reason`` then says why. ``mode`` is the mode that made the text, or was to make it. ``tokens_before`` and
    ``tokens_after`` are the sizes of the context in tokens, both as ``counter`` counts them, which is the one for the
    model of the session. ``tokens_after`` is None if nothing was made; ``tokens_staying`` stay beside the summary.
    ``summary`` is the text. ``calls`` are the paid calls that it took, as the ledger has them, also where nothing was
    appended; ``notes`` are whole sentences about departures from the request. ``from_hook`` says that a hook gave the
    text in place of a mode.
    """

    reason: NotCompacted | None
    mode: str
    tokens_before: int
    tokens_staying: int
    tokens_after: int | None = None
    planned: SessionCompactionPlan | None = None
    counter: str = ""
    summary: str | None = None
    calls: tuple[JsonObject, ...] = ()
    notes: tuple[str, ...] = ()
    appended: Appended | None = None
    from_hook: bool = False

    @property
    def entry_id(self) -> str | None:
        """The id of the compaction's entry; None where nothing was appended."""
        return self.appended.entry_ids[0] if self.appended is not None and self.appended.entry_ids else None

    @property
    def tokens_freed(self) -> int:
        """How many tokens smaller the context has become; 0 where nothing was appended."""
        return self.tokens_before - self.tokens_after if self.appended and self.tokens_after is not None else 0


class Fitted(Frozen):
    """Whether a context fits into the window of a model: its ``tokens``, the ``room`` for them, the compactions."""

    fits: bool
    tokens: int
    room: int
    compactions: tuple[CompactionResult, ...] = ()


class Uncompacted(Frozen):
    """A compaction that was taken back: its id, and that of the one that is in effect again, None for no other.

    ``appended`` says where the entry landed that takes it back. ``tokens_before`` and ``tokens_after`` are the sizes of
    the context.
    """

    compaction_id: str
    restored_id: str | None
    tokens_before: int
    tokens_after: int
    appended: Appended
