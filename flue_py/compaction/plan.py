"""Where to cut: the plan of a compaction, made without a model and without I/O.

The end of the context is kept word for word; what comes before it goes to a summarizer. Messages are counted
from the end until the budget is used up, and the cut is made at the first user or assistant message from
there on that does not separate a tool call from its result. A tool result is never the first message kept: its
call would be gone. If the first kept message is not a user message, the cut splits a turn, and the beginning
of that turn is summarized on its own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeAlias, cast

from flue_py.compaction.content import ASSISTANT, USER, Message
from flue_py.compaction.estimate import estimate_context_tokens, estimate_tokens, usage_start
from flue_py.compaction.joining import Told, joined
from flue_py.compaction.policy import DEFAULT_POLICY, FAITHFUL_POLICY, CompactionPolicy, CompactionSettings
from flue_py.compaction.serialize import FileLists, appended_file_lists, collect_file_lists, listed_files
from flue_py.core.entries import Entry
from flue_py.core.exchange import Pairing
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.kinds import COMPACTION
from flue_py.core.projection import ContextEntry, pinned_ids
from flue_py.errors import InvalidArgument, shown

__all__ = [
    "DEFAULT_POLICY",
    "FAITHFUL_POLICY",
    "CompactionPlan",
    "CompactionPolicy",
    "CompactionSettings",
    "ContextItem",
    "LatestCompaction",
    "NoCompaction",
    "NoCompactionReason",
    "PreviousCompaction",
    "SessionCompactionPlan",
    "plan_session_compaction",
    "prepare_compaction",
]

NO_PRIOR_HISTORY = "No prior history."

CountTokens: TypeAlias = Callable[[Message], int]
"""Says how many tokens a message takes."""

NoCompactionReason: TypeAlias = Literal["no_cut_point", "first_kept_not_message"]


@dataclass(frozen=True, slots=True)
class PreviousCompaction:
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


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What to summarize and what to keep.

    ``messages_to_summarize`` and ``turn_prefix`` are, in order, everything between the previous compaction and
    the message at ``first_kept_index``; the prefix is empty unless ``is_split_turn``. ``tokens_before`` is the
    estimated size of the context now. The file lists are those of all compactions so far. ``carried_history``
    is None, or the text that stands for the history of a split turn that has none to summarize.
    """

    first_kept_index: int
    is_split_turn: bool
    messages_to_summarize: tuple[Message, ...] = field(repr=False)
    turn_prefix: tuple[Message, ...] = field(repr=False)
    tokens_before: int
    previous_summary: str | None
    files: FileLists
    settings: CompactionSettings
    policy: CompactionPolicy
    carried_history: str | None = None

    @property
    def read_files(self) -> tuple[str, ...]:
        """Paths that were read and not modified, each once, in UTF-16 order."""
        return self.files.read_files

    @property
    def modified_files(self) -> tuple[str, ...]:
        """Paths that were written or edited, each once, in UTF-16 order."""
        return self.files.modified_files


def prepare_compaction(
    messages: Sequence[Message],
    settings: CompactionSettings,
    previous: PreviousCompaction | None = None,
    policy: CompactionPolicy = DEFAULT_POLICY,
) -> CompactionPlan | None:
    """Return the plan for a context, or None if nothing before the cut is new.

    ``messages`` is the whole context. With ``previous``, its first kept message is where the new part begins;
    what comes before it is not summarized again. `should_compact` says whether a compaction is
    due. Cost: O(messages), and O(text) of those that are counted.
    """
    start = previous.first_kept_index if previous else 0
    cut_points = [n for n in range(start, len(messages)) if _is_cut_point(messages[n])]
    if policy.keep_exchanges_whole:
        cut_points = Pairing(messages).whole_cuts(cut_points)
    return _plan(messages, cut_points, settings, previous, policy)


def _is_cut_point(message: Message) -> bool:
    return message.get("role") in (USER, ASSISTANT)


def _plan(
    messages: Sequence[Message],
    cut_points: Sequence[int],
    settings: CompactionSettings,
    previous: PreviousCompaction | None,
    policy: CompactionPolicy,
    pinned: frozenset[int] = frozenset(),
    released: Sequence[int] = (),
    usage_from: int | None = None,
    counts: Sequence[int] | None = None,
) -> CompactionPlan | None:
    """Return the plan; ``pinned`` and ``released`` are indices: always kept, no longer kept."""
    start = previous.first_kept_index if previous else 0
    count = (lambda index: estimate_tokens(messages[index], policy)) if counts is None else counts.__getitem__
    budget = settings.keep_recent_tokens - sum(map(count, pinned))
    cut = _find_cut(len(messages), start, cut_points, budget, policy, pinned, count)
    if cut is None or cut <= start:
        return None
    turn_start = _turn_start(messages, start, cut)
    middle = cut if turn_start is None else turn_start
    history = tuple(messages[n] for n in (*released, *range(start, middle)) if n not in pinned)
    prefix = tuple(messages[n] for n in range(middle, cut) if n not in pinned)
    if not history and not prefix:
        return None
    earlier = listed_files(previous.details if previous else None)
    return CompactionPlan(
        first_kept_index=cut,
        is_split_turn=turn_start is not None,
        messages_to_summarize=history,
        turn_prefix=prefix,
        tokens_before=estimate_context_tokens(messages, policy, usage_from=usage_from).tokens,
        previous_summary=previous.summary if previous else None,
        files=collect_file_lists(history + prefix, earlier),
        settings=settings,
        policy=policy,
        carried_history=None if history else _carried_history(previous, policy),
    )


def _find_cut(
    end: int,
    start: int,
    cut_points: Sequence[int],
    budget: int,
    policy: CompactionPolicy,
    pinned: frozenset[int],
    count: Callable[[int], int],
) -> int | None:
    """Return the index of the first message to keep; None without a cut point.

    ``budget`` is without the pinned; ``count`` says how many tokens the message at an index takes.
    """
    if not cut_points:
        return None
    kept = 0
    for index in range(end - 1, start - 1, -1):
        kept += 0 if index in pinned else count(index)
        if kept >= budget:
            following = bisect_left(cut_points, index)
            if following < len(cut_points):
                return cut_points[following]
            return cut_points[-1] if policy.cut_before_large_tail else cut_points[0]
    return cut_points[0]


def _turn_start(messages: Sequence[Message], start: int, cut: int) -> int | None:
    """Return where the turn that a cut splits begins; None if it splits none that began after ``start``."""
    if messages[cut].get("role") == USER:
        return None
    return next((n for n in range(cut, start - 1, -1) if messages[n].get("role") == USER), None)


def _carried_history(previous: PreviousCompaction | None, policy: CompactionPolicy) -> str:
    """Return the text for a history with no new messages, without the file lists: those are appended anew."""
    if previous is None or not previous.summary or not policy.keep_previous_summary:
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
    """What planning needs to know of the latest compaction on a session's path."""

    @property
    def summary(self) -> str: ...

    @property
    def details(self) -> Mapping[str, JsonValue] | None: ...


@dataclass(frozen=True, slots=True)
class SessionCompactionPlan:
    """A plan for a session, and the id of the entry behind the first kept message.

    ``leaving`` are the items of the context that the summary will stand for, in order, ``staying`` those that stay
    after it: what is pinned, then everything from the first kept entry on. The summary of an earlier compaction is
    neither: it is ``plan.previous_summary``, and ``previous`` with what is stored beside it. So is that of a range that
    leaves.
    """

    plan: CompactionPlan
    first_kept_entry_id: str
    leaving: tuple[ContextItem, ...] = field(default=(), repr=False)
    staying: tuple[ContextItem, ...] = field(default=(), repr=False)
    previous: Told | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class NoCompaction:
    """Why a session is not compacted.

    ``no_cut_point``: nothing can be cut off, or nothing new. ``first_kept_not_message``: the cut falls on an
    entry of another kind, and the policy has no ``cut_at_message_entries``.
    """

    reason: NoCompactionReason


def plan_session_compaction(
    items: Sequence[ContextItem],
    latest: Entry | LatestCompaction | None,
    settings: CompactionSettings,
    policy: CompactionPolicy = DEFAULT_POLICY,
    *,
    pinned: Collection[str] = (),
    carried: Collection[str] | None = None,
    counts: Sequence[int] | None = None,
    live: Collection[str] = (),
) -> SessionCompactionPlan | NoCompaction:
    """Return the plan for a session's context, or why there is none.

    ``items`` is the context as the session projects it, ``latest`` what `Session.latest_compaction` returns. If there
    is one, its item comes first, and each item after it is pinned by it (``carried``, which is read from its entry),
    kept by it, or newer. The entry of the first kept item is always a message. ``pinned`` are the entries that are kept
    wherever they are (`Session.pins`): they are not summarized, and count as kept. Entries that ``latest`` had pinned
    and that are no longer pinned are summarized now. ``counts`` says how many tokens each item takes, by default what
    `estimate_tokens` says. ``live`` are entries that must not be summarized: everything from the first of them on is
    kept, however much that is. Each item's ``data`` is read once. Cost: as `prepare_compaction`.
    """
    messages = [item.data for item in items]
    summaries: Mapping[int, Told] = {}
    if isinstance(latest, Entry):
        carried = pinned_ids(latest.fields) if carried is None else carried
        latest, summaries = _summaries(items, latest)
    carried = carried or ()
    start = 0 if latest is None else 1
    while start and start < len(items) and items[start].entry_id in carried:
        start += 1
    previous = None if latest is None else PreviousCompaction(latest.summary, start, latest.details)
    pairing = Pairing(messages)
    staying = _pinned_indices(items, pairing, pinned) - summaries.keys()
    released = [n for n in range(1, start) if n not in staying]
    cut_points = [
        n
        for n in range(start, len(items))
        if _is_cut_point(messages[n])
        and (items[n].kind == "message" or not policy.cut_at_message_entries)
        and not (summaries and getattr(items[n], "is_pinned", False))
    ]
    if policy.keep_exchanges_whole:
        cut_points = pairing.whole_cuts(cut_points, staying)
    if live:
        first_live = next((n for n in range(start, len(items)) if items[n].entry_id in live), len(items))
        cut_points = [n for n in cut_points if n <= first_live]
    usage_from = None
    if policy.ignore_older_usage and items and isinstance(items[0], ContextEntry):
        usage_from = usage_start(cast("Sequence[ContextEntry]", items))
    plan = _plan(messages, cut_points, settings, previous, policy, staying, released, usage_from, counts)
    if plan is None:
        return NoCompaction("no_cut_point")
    first_kept = items[plan.first_kept_index]
    if first_kept.kind != "message":
        return NoCompaction("first_kept_not_message")
    cut = plan.first_kept_index
    told = [] if latest is None else [Told(latest.summary, latest.details)]
    told += [each for at, each in summaries.items() if at < cut]
    previous_told = joined(told, is_first=latest is not None)
    if len(told) > (latest is not None):
        plan = _taking_over(plan, previous_told, [messages[at] for at in summaries])
        if plan is None:
            return NoCompaction("no_cut_point")
    leaving = tuple(items[n] for n in (*released, *range(start, cut)) if n not in staying and n not in summaries)
    pinned_before = tuple(items[n] for n in range(cut) if n in staying)
    return SessionCompactionPlan(
        plan, first_kept.entry_id, leaving, (*pinned_before, *items[cut:]), previous=previous_told
    )


def _summaries(items: Sequence[ContextItem], latest: Entry) -> tuple[Told | None, dict[int, Told]]:
    """Return what the summary says that comes first, if any, and by index what those of ranges say.

    A compaction of a range has its own in the place of that, and another's comes first, or none.
    """
    if not items or not isinstance(items[0], ContextEntry):
        return Told.of(latest), {}
    found = {
        at: Told.of(item.entry)
        for at, item in enumerate(items)
        if isinstance(item, ContextEntry) and item.entry.kind == COMPACTION
    }
    return found.pop(0, None), found


def _taking_over(plan: CompactionPlan, previous: Told | None, summaries: Sequence[Message]) -> CompactionPlan | None:
    """Return a plan that takes over from the summaries of ranges, too, instead of summarizing them as messages.

    None where nothing else would leave.
    """
    told = {id(message) for message in summaries}
    history = tuple(each for each in plan.messages_to_summarize if id(each) not in told)
    prefix = tuple(each for each in plan.turn_prefix if id(each) not in told)
    if previous is None or not (history or prefix):
        return None
    earlier = PreviousCompaction(previous.summary, 0, previous.details)
    return replace(
        plan,
        is_split_turn=bool(prefix),
        messages_to_summarize=history,
        turn_prefix=prefix,
        previous_summary=previous.summary,
        files=collect_file_lists(history + prefix, listed_files(previous.details)),
        carried_history=None if history else _carried_history(earlier, plan.policy),
    )


def _pinned_indices(items: Sequence[ContextItem], pairing: Pairing, pinned: Collection[str]) -> frozenset[int]:
    """Return where the pinned items are, each with the tool call or the results that it is kept with."""
    found: set[int] = set()
    for index, item in enumerate(items):
        if item.entry_id in pinned and index not in found:
            group = pairing.group_of(index)
            found.update([index] if group is None else group.members)
    return frozenset(found)
