"""Where to cut: the plan of a compaction, made without a model and without I/O.

The end of the context is kept word for word; what comes before it goes to a summarizer. Messages are counted
from the end until the budget is used up, and the cut is made at the first user or assistant message from
there on that does not separate a tool call from its result. A tool result is never the first message kept: its
call would be gone. If the first kept message is not a user message, the cut splits a turn, and the beginning
of that turn is summarized on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, Protocol, TypeAlias

from flue_py.compaction.content import ASSISTANT, USER, Message
from flue_py.compaction.cuts import Cuts
from flue_py.compaction.estimate import estimate_tokens
from flue_py.compaction.joining import Told, joined
from flue_py.compaction.policy import DEFAULT_POLICY, FAITHFUL_POLICY, CompactionPolicy, CompactionSettings
from flue_py.compaction.reading import Messages, PlannedContent
from flue_py.compaction.serialize import FileLists, appended_file_lists, listed_files
from flue_py.compaction.split import SplitExchange, Uncut
from flue_py.core.entries import Entry
from flue_py.core.exchange import tool_calls
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.kinds import COMPACTION
from flue_py.core.layout import RANGES, is_silent
from flue_py.core.pending import pending_in
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
    is None, or the text that stands for the history of a split turn that has none to summarize. What takes reading the
    messages is worked out when it is first asked for.
    """

    first_kept_index: int
    is_split_turn: bool
    content: PlannedContent = field(repr=False)
    previous_summary: str | None
    settings: CompactionSettings
    policy: CompactionPolicy
    carried_history: str | None = None

    @property
    def messages_to_summarize(self) -> tuple[Message, ...]:
        """What leaves, without the beginning of a split turn."""
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
    found = Messages(None, messages)
    start = previous.first_kept_index if previous else 0
    cuts = Cuts(found, start, partial(_may_cut, found), frozenset(), whole=policy.keep_exchanges_whole)
    keeps_none = settings.keep_recent_messages == 0 and bool(messages)
    keeps_none = keeps_none and messages[-1].get("role") == ASSISTANT and not tool_calls(messages[-1])
    return _plan(found, cuts, settings, previous, policy, owed=0 if keeps_none else None)


def _may_cut(messages: Messages, at: int) -> bool:
    return messages.role(at) in (USER, ASSISTANT)


def _plan(
    messages: Messages,
    cuts: Cuts,
    settings: CompactionSettings,
    previous: PreviousCompaction | None,
    policy: CompactionPolicy,
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
    count = (lambda index: estimate_tokens(messages[index], policy)) if counts is None else counts.__getitem__
    held = sum(map(count, pinned))
    if owed is None:
        cut = _find_cut(len(messages), start, cuts, settings, held, policy, pinned, count)
    else:
        cut = cuts.following(len(messages) - owed) if owed else len(messages)
    if most is not None and cut is not None:
        cut = _fitting_cut(len(messages), cut, cuts, most - held, pinned, count)
    if cut is None or cut <= start:
        return None
    turn_start = _turn_start(messages, start, cut)
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
        content=PlannedContent(messages, history, prefix, earlier, policy, counts),
        previous_summary=previous.summary if previous else None,
        settings=settings,
        policy=policy,
        carried_history=None if history else _carried_history(previous, policy),
    )


def _find_cut(
    end: int,
    start: int,
    cuts: Cuts,
    settings: CompactionSettings,
    held: int,
    policy: CompactionPolicy,
    pinned: frozenset[int],
    count: Callable[[int], int],
) -> int | None:
    """Return the index of the first message to keep; None without a cut point.

    ``held`` are the tokens of the pinned; ``count`` says how many tokens the message at an index takes.
    """
    limit = settings.keep_recent_messages
    budget, most = settings.keep_recent_tokens - held, end if limit is None else limit
    kept = messages = 0
    for index in range(end - 1, start - 1, -1):
        if index not in pinned:
            kept += count(index)
            messages += 1
        if kept >= budget or messages >= most:
            following = cuts.following(index)
            if following is not None:
                return following
            return cuts.last_before(index) if policy.cut_before_large_tail else cuts.first()
    return cuts.first()


def _fitting_cut(end: int, cut: int, cuts: Cuts, most: int, pinned: frozenset[int], count: Callable[[int], int]) -> int:
    """Return a cut, or the first after it from which on at most so many tokens are kept; itself where none is.

    The message at which a budget is used up is kept, however large it is: with it there may be no room for anything.
    """
    kept = sum(count(index) for index in range(cut, end) if index not in pinned)
    if kept <= most:
        return cut
    at = cut
    for later in cuts.after(cut):
        kept -= sum(count(index) for index in range(at, later) if index not in pinned)
        at = later
        if kept <= most:
            return later
    return cut


def _turn_start(messages: Messages, start: int, cut: int) -> int | None:
    """Return where the turn that a cut splits begins; None if it splits none that began after ``start``."""
    if cut == len(messages) or messages.role(cut) == USER:
        return None
    return next((n for n in range(cut, start - 1, -1) if messages.role(n) == USER), None)


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
    """A plan for a session, and the id of the entry behind the first kept message, "" where none is kept.

    ``leaving`` are the items of the context that the summary will stand for, in order, ``staying`` those that stay
    after it: what is pinned, then everything from the first kept entry on. In the plan of a session, what was pinned
    after it was summarized comes before all of these: it is not in the context now, and comes back. The summary of an
    earlier compaction is neither: it is ``plan.previous_summary``, and ``previous`` with what is stored beside it. So
    is that of a range that leaves. A pinned summary stays like any pinned entry. ``taken_over`` is where these
    summaries are among the items.
    """

    plan: CompactionPlan
    first_kept_entry_id: str
    leaving: tuple[ContextItem, ...] = field(default=(), repr=False)
    staying: tuple[ContextItem, ...] = field(default=(), repr=False)
    previous: Told | None = field(default=None, repr=False)
    taken_over: tuple[int, ...] = field(default=(), repr=False)


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
    most: int | None = None,
    split: Sequence[SplitExchange] = (),
    whole_turns: bool = False,
) -> SessionCompactionPlan | NoCompaction:
    """Return the plan for a session's context, or why there is none.

    ``items`` is the context as the session projects it, ``latest`` what `Session.latest_compaction` returns. If there
    is one, its item comes first, and each item after it is pinned by it (``carried``, which is read from its entry),
    kept by it, or newer. The entry of the first kept item is always a message. ``pinned`` are the entries that are kept
    wherever they are (`Session.pins`): they are not summarized, and count as kept. Entries that ``latest`` had pinned
    and that are no longer pinned are summarized now. ``counts`` says how many tokens each item takes, by default what
    `estimate_tokens` says. ``live`` are entries that must not be summarized: everything from the first of them on is
    kept, however much that is. ``most`` is how many tokens may stay: where the message that uses up what is kept makes
    it more, the cut is made after it, if there is one. ``split`` are exchanges of which a part is not among the items:
    no cut separates them. With ``whole_turns``, what is kept begins with a message of the user, if there is one in it.
    Each item's ``data`` is read once. Cost: as
    `prepare_compaction`.
    """
    silent = latest.depth if isinstance(latest, Entry) and is_silent(latest) else None
    messages = Messages(items, made_at=silent)
    summaries: Mapping[int, Told] = {}
    if isinstance(latest, Entry):
        carried = pinned_ids(latest.fields) if carried is None else carried
        latest, summaries = _summaries(items, latest)
    carried = carried or ()
    start = first = int(latest is not None and silent is None)
    while start and start < len(items) and items[start].entry_id in carried:
        start += 1
    staying = _pinned_indices(items, messages, pinned) if pinned else frozenset()
    first_told = None if latest is None else _first_told(latest, stays=first == 1 and 0 in staying)
    previous = None if first_told is None else PreviousCompaction(first_told.summary, start, first_told.details)
    held = [at for at in summaries if at in staying]
    if first and 0 in staying:
        held.append(0)
    summaries = {at: each for at, each in summaries.items() if at not in staying}
    released = [n for n in range(1, start) if n not in staying]
    uncut = Uncut(split, pinned)
    first_live = next((n for n in range(start, len(items)) if items[n].entry_id in live), len(items)) if live else None

    def may_cut(at: int) -> bool:
        if first_live is not None and at > first_live:
            return False
        item = items[at]
        if split and isinstance(item, ContextEntry) and uncut.holds(item.entry.depth):
            return False
        if getattr(items[at], "is_pinned", False):
            return False
        if held and not _carries(held, items, at):
            return False
        return _may_cut(messages, at) and (items[at].kind == "message" or not policy.cut_at_message_entries)

    def preferred(at: int) -> bool:
        return not whole_turns or messages.role(at) == USER

    cuts = Cuts(messages, start, may_cut, staying, whole=policy.keep_exchanges_whole, preferred=preferred)
    keeps_none = settings.keep_recent_messages == 0 and not (held or live or split)
    owed = _owed(items) if keeps_none else None
    plan = _plan(messages, cuts, settings, previous, policy, staying, released, counts, most, owed)
    if plan is None:
        return NoCompaction("no_cut_point")
    cut = plan.first_kept_index
    if cut < len(items) and items[cut].kind != "message":
        return NoCompaction("first_kept_not_message")
    gone = [at for at in summaries if at < cut]
    told = [] if first_told is None else [first_told]
    previous_told = joined([*told, *(summaries[at] for at in gone)], is_first=latest is not None)
    if gone and previous_told is not None:
        plan = _taking_over(plan, previous_told, gone)
        if plan is None:
            return NoCompaction("no_cut_point")
    if not first or 0 in staying:
        plan = replace(plan, previous_summary=plan.previous_summary or None)
    pinned_before = tuple(items[n] for n in range(cut) if n in staying) if staying else ()
    return SessionCompactionPlan(
        plan,
        items[cut].entry_id if cut < len(items) else "",
        tuple(plan.content.those_of(items)),
        (*pinned_before, *items[cut:]),
        previous=previous_told,
        taken_over=(*([0] if first and 0 not in staying else []), *gone),
    )


def _owed(items: Sequence[ContextItem]) -> int | None:
    """Return how many items of the end are a message without an answer and what follows it; None for open calls."""
    shown = [item for item in items if isinstance(item, ContextEntry)]
    pending = pending_in(shown)
    if pending.is_over:
        return 0 if shown and len(shown) == len(items) else None
    last = pending.unanswered
    return None if last is None or last.role != USER else len(shown) - [item.entry_id for item in shown].index(last.id)


def _first_told(latest: LatestCompaction, *, stays: bool) -> Told:
    """Return what is continued of the summary that comes first: of one that stays, no more than the count of turns."""
    details = latest.details
    if not stays:
        return Told(latest.summary, details)
    return Told("", {"turns": details["turns"]} if details is not None and "turns" in details else None)


def _carries(held: Collection[int], items: Sequence[ContextItem], at: int) -> bool:
    """Return whether a compaction that is cut there still shows the pinned summaries.

    It shows what lies after its cut in the context, and pinned entries from before its cut on the path. A summary lies
    where it was appended, which can be long after what it stands for, and after what its compaction kept.
    """
    cut = items[at]
    return all(index >= at or _is_older(items[index], cut) for index in held)


def _is_older(item: ContextItem, than: ContextItem) -> bool:
    return isinstance(item, ContextEntry) and isinstance(than, ContextEntry) and item.entry.depth < than.entry.depth


def _summaries(items: Sequence[ContextItem], latest: Entry) -> tuple[Told | None, dict[int, Told]]:
    """Return what the summary says that comes first, if any, and by index what those of ranges say.

    A compaction of a range has its own in the place of that, and another's comes first, or none.
    """
    if (RANGES not in latest.fields and not is_silent(latest)) or not items or not isinstance(items[0], ContextEntry):
        return Told.of(latest), {}
    found = {
        at: Told.of(item.entry)
        for at, item in enumerate(items)
        if isinstance(item, ContextEntry) and item.entry.kind == COMPACTION
    }
    return Told("", Told.of(latest).details) if is_silent(latest) else found.pop(0, None), found


def _taking_over(plan: CompactionPlan, previous: Told, gone: Collection[int]) -> CompactionPlan | None:
    """Return a plan that takes over from summaries of ranges, too, instead of summarizing them as messages.

    None where nothing else would leave.
    """
    content = plan.content.without(gone, listed_files(previous.details))
    if not content.indices:
        return None
    earlier = PreviousCompaction(previous.summary, 0, previous.details)
    return replace(
        plan,
        is_split_turn=bool(content.prefix),
        content=content,
        previous_summary=previous.summary,
        carried_history=None if content.history else _carried_history(earlier, plan.policy),
    )


def _pinned_indices(items: Sequence[ContextItem], messages: Messages, pinned: Collection[str]) -> frozenset[int]:
    """Return where the pinned items are, each with the tool call or the results that it is kept with."""
    named = [index for index, item in enumerate(items) if item.entry_id in pinned]
    if not named:
        return frozenset()
    pairing = messages.pairing(range(len(items)))
    found: set[int] = set()
    for index in named:
        if index not in found:
            group = pairing.group_of(index)
            found.update([index] if group is None else group.members)
    return frozenset(found)
