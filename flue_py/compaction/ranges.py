"""What to summarize of a context where the caller says from where to where, and how that is stored.

The range is made wide enough that no tool call is separated from its results. What is pinned in it stays, after the
summary; summaries of earlier compactions in it are taken over. A range from the beginning of the context on is a
compaction like any other, cut at the place that was asked for, unless it goes to the leaf: then what is appended
meanwhile has to be told from it by its end.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from flue_py.compaction.content import ASSISTANT, USER
from flue_py.compaction.joining import TURNS_BEFORE, Told, joined
from flue_py.compaction.plan import CompactionPlan, NoCompaction, SessionCompactionPlan
from flue_py.compaction.policy import DEFAULT_POLICY, CompactionSettings
from flue_py.compaction.reading import Messages, PlannedContent
from flue_py.compaction.serialize import listed_files
from flue_py.compaction.split import split_exchanges
from flue_py.core.entries import Entry, NewEntry
from flue_py.core.jsontext import JsonObject
from flue_py.core.kinds import COMPACTION
from flue_py.core.layout import Layout, Range, laid_out, layout_of, without_summary
from flue_py.core.projection import ContextEntry
from flue_py.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class RangePlan(SessionCompactionPlan):
    """A plan for a range of the context, from the first to the last item that the summary will stand for.

    ``is_widened`` says that the range is larger than what was asked for. ``head`` is whose summary comes first, and
    from where the path is kept, ``ranges`` are what stays summarized, the new one without a compaction, and ``pinned``
    are the entries that stay in or before them; ``head`` is None where the range begins with the context, and
    something comes after it: that is stored as any other compaction, with ``pinned`` only where it has to name what
    was unpinned and is not in the range.
    """

    first_entry_id: str = ""
    last_entry_id: str = ""
    is_widened: bool = False
    head: Layout | None = None
    ranges: tuple[Range, ...] = ()
    pinned: tuple[str, ...] = field(default=(), repr=False)


def plan_range(
    items: Sequence[ContextEntry],
    latest: Entry | None,
    path: Sequence[Entry],
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
    planning = _Planning(items, latest, path, frozenset(pinned), frozenset(live))
    found = planning.stretch(first, last)
    return NoCompaction("no_cut_point") if found is None else planning.plan(*found, settings)


class _Planning:
    def __init__(
        self,
        items: Sequence[ContextEntry],
        latest: Entry | None,
        path: Sequence[Entry],
        pinned: frozenset[str],
        live: frozenset[str],
    ) -> None:
        self._items = items
        self._messages = Messages(items)
        self._pairing = self._messages.pairing(range(len(items)))
        self._latest = latest
        self._layout = None if latest is None else layout_of(latest.id, latest.fields)
        self._path = path
        self._live = live
        self._pins = self._groups([at for at, item in enumerate(items) if item.entry_id in pinned])
        self._carried = self._groups([at for at, item in enumerate(items) if item.is_pinned])
        self._summaries = [at for at, item in enumerate(items) if item.kind == COMPACTION]
        self._split = self._with_hidden()

    def _with_hidden(self) -> list[tuple[int, int, tuple[Entry, ...]]]:
        """Return the exchanges of which an exclusion hides a part: between which items they lie, and what is hidden."""
        exchanges = split_exchanges(self._path, (item.entry_id for item in self._items))
        depths = [self._depths(at) for at in range(len(self._items))] if exchanges else []
        found = []
        for each in exchanges:
            between = [at for at, (first, last) in enumerate(depths) if each.first <= first and last <= each.last]
            if between:
                found.append((between[0], between[-1], each.hidden))
        return found

    def _depths(self, at: int) -> tuple[int, int]:
        """Return from where to where on the path an item stands; that of the summary that comes first, before it."""
        if self._items[at].kind != COMPACTION:
            return (self._items[at].entry.depth,) * 2
        first, last = self._span(at)
        if first == self._items[at].entry_id:
            return -1, -1
        on_path = {entry.id: entry.depth for entry in self._path if entry.id in (first, last)}
        return on_path.get(first, -1), on_path.get(last, -1)

    def _groups(self, places: Sequence[int]) -> frozenset[int]:
        """Return these places, each with those of the tool call or the results that it is kept with."""
        groups = {at: self._pairing.group_of(at) for at in places}
        return frozenset(each for at, group in groups.items() for each in ([at] if group is None else group.members))

    # -- from where to where -------------------------------------------------------------------------------------

    def stretch(self, first: str | None, last: str | None) -> tuple[int, int, bool] | None:
        """Return the places of the first and the last item, and whether that is more than was asked for."""
        begin = 0 if first is None else self._place(first, "first")
        end = len(self._items) - 1 if last is None else self._place(last, "last")
        if begin > end:
            raise InvalidArgument(
                f"first: {first!r} comes after {last!r} in the context; name them the other way round"
            )
        asked = begin, end
        begin, end = self._widened(begin, end)
        opened = [call.at for call in self._pairing.results if begin <= call.at <= end and self._is_open(call.at)]
        if opened and last is not None:
            raise InvalidArgument(
                f"last: entry {self._items[opened[0]].entry_id!r} calls a tool whose result is still to come; end the "
                "range before it, or compact when that is there"
            )
        if opened:
            end = min(opened) - 1
            asked = asked[0], end
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
        return begin, end, (begin, end) != asked

    def _place(self, entry_id: str, name: str) -> int:
        found = next((at for at, item in enumerate(self._items) if item.entry_id == entry_id), None)
        if found is None:
            raise InvalidArgument(
                f"{name}: entry {entry_id!r} is not in the context; name one that `build_context_entries` returns"
            )
        return found

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
            # What was unpinned leaves only with the summary that comes first; otherwise it stays where it is.
            free = [span for span in spans if begin == 0 or span[0] not in self._carried]
            cut = [span for span in free if span[0] <= end and span[1] >= begin]
            wider = min([begin, *(low for low, _ in cut)]), max([end, *(high for _, high in cut)])
            if wider == (begin, end):
                return wider
            begin, end = wider

    # -- what that comes to --------------------------------------------------------------------------------------

    def plan(self, begin: int, end: int, is_widened: bool, settings: CompactionSettings) -> RangePlan | NoCompaction:
        """Return the plan for the items between two places."""
        after = end + 1
        while after < len(self._items) and self._items[after].is_pinned:
            after += 1
        if begin == 0 and after < len(self._items):
            # What was unpinned and is not in the range stays as it is: nobody asked to summarize it.
            held = self._pins | set(range(end + 1, after))
            return self._planned(0, after - 1, held, settings, is_widened, None, names_pinned=not held <= self._pins)
        # Pinned items from before the kept part, or from a range, stay where they are.
        absorbs = begin == 0 and self._has_head
        begin += absorbs
        while begin <= end and self._items[begin].is_pinned:
            begin += 1
        while begin <= end and self._items[end].is_pinned:
            end -= 1
        if begin > end:
            return NoCompaction("no_cut_point")
        held = self._pins | self._carried
        return self._planned(begin, end, held, settings, is_widened, self._head(absorbs), absorbs=absorbs)

    @property
    def _has_head(self) -> bool:
        """Whether the first item is the summary of everything before the others."""
        return self._layout is not None and self._layout.head_id == self._items[0].entry_id

    def _head(self, absorbs: bool) -> Layout:
        """Return whose summary comes first, and from where the path is kept."""
        if self._layout is None or self._latest is None:
            # Not from the first item on: what an exclusion hides before it can be shown again.
            return Layout(None, self._path[0].id)
        wanted, depth = self._layout.first_kept_id, self._latest.depth
        is_there = any(entry.id == wanted and entry.depth < depth for entry in self._path)
        return Layout(None if absorbs else self._layout.head_id, wanted if is_there else self._latest.id)

    def _planned(
        self,
        begin: int,
        end: int,
        held: frozenset[int],
        settings: CompactionSettings,
        is_widened: bool,
        head: Layout | None,
        *,
        absorbs: bool = False,
        names_pinned: bool = True,
    ) -> RangePlan | NoCompaction:
        summaries = [at for at in self._summaries if (0 if absorbs else begin) <= at <= end and at not in held]
        elsewhere = held.union(summaries)
        gone = [at for at in range(begin, end + 1) if at not in elsewhere]
        if not gone:
            return NoCompaction("no_cut_point")
        told = joined(
            [Told.of(self._items[at].entry) for at in summaries], is_first=min([*gone, *summaries]) in summaries
        )
        previous = self._continued(told, min([*gone, *summaries]))
        left = {*gone, *summaries}
        files = listed_files(previous.details)
        plan = CompactionPlan(
            first_kept_index=end + 1,
            is_split_turn=False,
            content=PlannedContent(self._messages, gone, (), files, DEFAULT_POLICY),
            previous_summary=previous.summary or None,
            settings=settings,
            policy=DEFAULT_POLICY,
        )
        return RangePlan(
            plan,
            self._span(end + 1)[0] if end + 1 < len(self._items) else "",
            tuple(self._items[at] for at in gone),
            tuple(item for at, item in enumerate(self._items) if at not in left),
            previous,
            tuple(summaries),
            first_entry_id=self._items[0 if absorbs else begin].entry_id,
            last_entry_id=self._items[end].entry_id,
            is_widened=is_widened,
            head=head,
            ranges=self._ranges(begin, end, has_own=head is not None) if names_pinned else (),
            pinned=self._pinned(begin, end, held) if names_pinned else (),
        )

    def _continued(self, told: Told | None, start: int) -> Told:
        """Return what the new summary takes over, with the number of turns that lie before it."""
        earlier = [Told.of(self._items[at].entry) for at in self._summaries if at < start]
        others = set(range(start)).difference(self._summaries)
        spoken = sum(self._messages.role(at) in (USER, ASSISTANT) for at in others)
        before = spoken + sum(each.own_turns for each in earlier)
        details: JsonObject = {} if told is None else {**(told.details or {})}
        details |= {"turns": before + (0 if told is None else told.own_turns), TURNS_BEFORE: before}
        return Told("" if told is None else told.summary, details)

    def _span(self, at: int) -> tuple[str, str]:
        """Return the first and the last entry of the path that an item stands for in what is kept."""
        entry_id = self._items[at].entry_id
        ranges = () if self._layout is None else self._layout.ranges
        found = next((each for each in ranges if each.compaction_id == entry_id), None)
        return (entry_id, entry_id) if found is None else (found.first_id, found.last_id)

    def _ranges(self, begin: int, end: int, *, has_own: bool) -> tuple[Range, ...]:
        """Return what stays summarized, in the order of the path: the ranges outside of the new one, and that."""
        known = {} if self._layout is None else {each.compaction_id: each for each in self._layout.ranges}
        shown = {at: known[self._items[at].entry_id] for at in self._summaries if self._items[at].entry_id in known}
        new = [Range(*self._ends(begin, end), None)] if has_own else []
        before = [each for at, each in shown.items() if at < begin]
        return (*before, *new, *(each for at, each in shown.items() if at > end))

    def _ends(self, begin: int, end: int) -> tuple[str, str]:
        """Return the first and the last entry of a range, with what is hidden of the exchanges in it."""
        first, last = self._span(begin)[0], self._span(end)[1]
        hidden = [each for low, high, some in self._split if begin <= low and high <= end for each in some]
        (lowest, _), (_, highest) = self._depths(begin), self._depths(end)
        before = min((each for each in hidden if each.depth < lowest), key=lambda each: each.depth, default=None)
        after = max((each for each in hidden if each.depth > highest), key=lambda each: each.depth, default=None)
        return first if before is None else before.id, last if after is None else after.id

    def _pinned(self, begin: int, end: int, held: frozenset[int]) -> tuple[str, ...]:
        """Return what stays in the ranges and before the kept part."""
        return tuple(
            item.entry_id
            for at, item in enumerate(self._items)
            if (at in held if begin <= at <= end else item.is_pinned)
        )


def entry_of(
    planned: SessionCompactionPlan,
    text: str,
    details: JsonObject,
    calls: Sequence[JsonObject],
    *,
    from_hook: bool = False,
) -> NewEntry:
    """Return the compaction to append for a plan of any kind."""
    head = planned.head if isinstance(planned, RangePlan) else None
    entry = NewEntry.compaction(
        text,
        first_kept_entry_id=planned.first_kept_entry_id if head is None else head.first_kept_id or "",
        tokens_before=planned.plan.tokens_before,
        details=details if head is None else _noted_turns(planned, details),
        calls=calls,
        from_hook=from_hook,
    )
    if not text and not isinstance(planned, RangePlan):
        entry = without_summary(entry)
    if isinstance(planned, RangePlan) and (head is not None or planned.pinned):
        entry = laid_out(entry, planned.ranges, pinned=planned.pinned, head=head)
    return entry


def _noted_turns(planned: SessionCompactionPlan, details: JsonObject) -> JsonObject:
    """Return what is stored beside the summary of a range, with how many turns lie before it."""
    before = (planned.previous.details or {}).get(TURNS_BEFORE) if planned.previous is not None else None
    return {**details, TURNS_BEFORE: before}
