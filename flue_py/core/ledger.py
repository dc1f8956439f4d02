"""The ledger as values: the row of a paid call, the questions to the ledger, and its answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from datetime import date
from decimal import Decimal
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias, get_args

from flue_py.core.calls import REPORTED, PaidCall
from flue_py.core.entries import NewEntry
from flue_py.core.frozen import changed, frozen
from flue_py.core.jsontext import JsonObject
from flue_py.core.rows import CallRow
from flue_py.core.sessions import STORED, LeafChoice
from flue_py.core.usage import known_cost, picodollars_to_usd
from flue_py.core.usage_shapes import PARTS

DAY_US = 86_400_000_000

Period: TypeAlias = Literal["day", "week", "month"]
Dimension: TypeAlias = Literal[
    "session",
    "scope",
    "project",
    "agent",
    "provider",
    "model",
    "purpose",
    "outcome",
    "price_source",
    "branch",
    "day",
    "week",
    "month",
]
PERIODS: tuple[Period, ...] = get_args(Period)
DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)
BranchState: TypeAlias = Literal["active", "abandoned", "gone", "alone"]
BRANCH_STATES: tuple[BranchState, ...] = get_args(BranchState)
"""Of a call: its entry is on the active path of a session; on none; deleted; it never had one."""

TOKEN_COLUMNS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "reasoning_tokens",
)
_JSON_NAMES = {"price_source": "priceSource"}


class CallId(NamedTuple):
    """What tells a paid call from all others of a scope."""

    provider: str
    call_id: str


def call_row(
    call: PaidCall, *, scope: str, call_id: str, session_key: int, entry_id: str | None, at_us: int
) -> CallRow:
    """Return a paid call as the ledger keeps it; ``at_us`` is when, unless the call itself says so."""
    usage = call.usage
    return CallRow(
        scope,
        call.provider,
        call_id,
        session_key,
        entry_id,
        call.purpose,
        call.model,
        usage.input,
        usage.output,
        usage.cache_read,
        usage.cache_write - call.cache_write_1h,
        call.cache_write_1h,
        call.reasoning,
        usage.total_tokens,
        call.known_cost,
        call.source,
        at_us if call.at_us is None else call.at_us,
        call.outcome,
        int(call.is_unknown),
        call.agent,
        _bits_of(call.told),
    )


@lru_cache(maxsize=256)
def _bits_of(told: frozenset[str]) -> int:
    """Return a number with a bit for each number that was reported, by its place in `PARTS`."""
    return sum(1 << place for place, part in enumerate(PARTS) if part in told)


def calls_of(entries: Iterable[NewEntry], scope: str) -> list[CallRow]:
    """Return the calls of entries that bring their own ids, as rows that no session has paid for yet."""
    return [
        call_row(
            call,
            scope=scope,
            call_id=call.call_id or default_call_id(entry.id or "", number),
            session_key=-1,
            entry_id=entry.id,
            at_us=entry.created_us or 0,
        )
        for entry in entries
        for number, call in enumerate(entry.calls if entry.counted else ())
    ]


def default_call_id(entry_id: str, number: int) -> str:
    """Return what a call without an id is known by: its entry, and its number among the calls of that."""
    return entry_id if number == 0 else f"{entry_id}#{number}"


def differences(known: CallRow, again: CallRow) -> tuple[str, ...]:
    """Return in what two reports of a call differ: none where they have the same numbers.

    Costs are compared where both were reported: one that was computed depends on the prices of its day.
    """
    differing = [
        f"{name} {getattr(known, name):,} and {getattr(again, name):,}"
        for name in TOKEN_COLUMNS
        if getattr(known, name) != getattr(again, name)
    ]
    # Totals that are nothing but sums differ where their parts do, and one that was not reported is a sum.
    if known.tokens != again.tokens and not (differing and known.is_summed and again.is_summed):
        differing.append(f"total_tokens {known.tokens:,} and {again.tokens:,}")
    if known.price_source == again.price_source == REPORTED and known.cost != again.cost:
        differing.append(f"cost {known.cost:,} and {again.cost:,} picodollars")
    return tuple(differing)


def is_part_of(one: CallRow, whole: CallRow) -> bool:
    """Return whether a report of a call counts no more of anything than another: it may be an earlier one."""
    return one.tokens <= whole.tokens and all(getattr(one, name) <= getattr(whole, name) for name in TOKEN_COLUMNS)


def replaced_by(call: CallRow, names: Iterable[str], find: Callable[[str], CallRow | None]) -> list[CallRow]:
    """Return the rows that a report takes the place of: those under these ids that its session paid, and that differ.

    ``find`` gives the row that has an id, of the scope and the provider of the call.
    """
    found = [known for name in dict.fromkeys(names) if (known := find(name)) is not None]
    return [
        known
        for known in found
        if known.session_key == call.session_key
        and (known.call_id != call.call_id or call.entry_id not in (None, known.entry_id) or differences(known, call))
    ]


def is_booked_alone(call: CallRow, known: CallRow | None) -> bool:
    """Return whether the ledger has the call of an entry already, with these numbers, from its session and no entry.

    A summary is paid for before its entry is made: it is booked at once, and on the entry as soon as that is there.
    """
    if known is None or known.entry_id is not None or known.session_key != call.session_key:
        return False
    return not differences(known, call)


@frozen
class Recorded:
    """What recording a paid call did. ``is_new`` is False if it had been reported before, and nothing was changed.

    ``picodollars`` and ``price_source`` are the ledger's. The cost is None if it is not known; its source then says
    what keeps it so (``not priced: speed=fast``), or is None.
    """

    provider: str
    call_id: str
    is_new: bool
    picodollars: int | None
    price_source: str | None
    revision: int

    @property
    def usd(self) -> Decimal | None:
        """The cost in US dollars, exact; None if it is not known."""
        return None if self.picodollars is None else picodollars_to_usd(self.picodollars)

    def plus(self, step: Recorded) -> Recorded:
        """Return this with the cost of a step of the same call; unknown, with the reason, if that of one is unknown."""
        unknown = next((each for each in (self, step) if each.picodollars is None), None)
        cost = None if unknown else (self.picodollars or 0) + (step.picodollars or 0)
        source = (unknown or self).price_source
        is_new = self.is_new or step.is_new
        return changed(self, is_new=is_new, picodollars=cost, price_source=source, revision=step.revision)


class UnpricedCall(NamedTuple):
    """A row of the ledger whose cost is unknown: its number, the id of who paid, and the call."""

    number: int
    session_id: str
    call: CallRow


class CallPrice(NamedTuple):
    """The cost of an unpriced call, in picodollars, and where it is from."""

    number: int
    picodollars: int
    source: str


Unpriced: TypeAlias = Literal["no usage", "no model", "tokens of no kind", "no price"]
"""Why the cost of a call stays unknown:

- ``no usage``: its tokens are unknown
- ``no model``: it does not say by which model it was answered
- ``tokens of no kind``: only their total is known, and input costs other than output
- ``no price``: no price is known for the model, or for what it used
"""


@frozen
class RepricedCalls:
    """The calls of one model whose cost was unknown, and what became of it: a sum, or why it stays so."""

    provider: str
    model: str
    calls: int
    picodollars: int | None
    why: Unpriced | None = None

    @property
    def usd(self) -> Decimal | None:
        """What they cost in US dollars, exact; None where it stays unknown."""
        return None if self.picodollars is None else picodollars_to_usd(self.picodollars)


@frozen
class Repricing:
    """What pricing the calls of unknown cost did, or would do (``dry_run``), by model: first those with a price."""

    rows: tuple[RepricedCalls, ...]
    dry_run: bool

    @property
    def calls(self) -> int:
        """How many calls have a cost now."""
        return sum(row.calls for row in self.rows if row.why is None)

    @property
    def unknown_calls(self) -> int:
        """How many have none still."""
        return sum(row.calls for row in self.rows if row.why is not None)

    @property
    def usd(self) -> Decimal:
        """What was filled in, in US dollars, exact."""
        return picodollars_to_usd(sum(row.picodollars or 0 for row in self.rows))

    def to_json(self) -> JsonObject:
        """Return it as JSON, dollars as decimal text."""
        return {
            "dryRun": self.dry_run,
            "calls": self.calls,
            "costUsd": f"{self.usd:f}",
            "unknownCalls": self.unknown_calls,
            "rows": [
                {
                    "provider": row.provider,
                    "model": row.model,
                    "calls": row.calls,
                    "costUsd": None if row.usd is None else f"{row.usd:f}",
                    "why": row.why,
                }
                for row in self.rows
            ],
        }


# -- asking -----------------------------------------------------------------------------------------------------------


@frozen
class LedgerQuery:
    """Which rows of the ledger, and by what they are summed up (see `Store.usage`). Times are microseconds UTC.

    ``session_ids`` takes what these sessions paid; an id that no session ever had adds nothing. ``project`` takes what
    sessions paid that worked in this folder, or below it.
    """

    session_id: str | None = None
    session_ids: tuple[str, ...] | None = None
    tree: bool = False
    tasks: bool = False
    on_path: bool = False
    leaf: LeafChoice = STORED
    since: str | None = None
    scope: str | None = None
    scope_prefix: str | None = None
    provider: str | None = None
    model: str | None = None
    purpose: str | None = None
    outcome: str | None = None
    agent: str | None = None
    project: str | None = None
    branch: BranchState | None = None
    from_us: int | None = None
    before_us: int | None = None
    group_by: tuple[Dimension, ...] = ()

    @property
    def matches(self) -> dict[str, str]:
        """The columns that have to have a value, and the value."""
        names = ("scope", "provider", "model", "purpose", "outcome", "agent")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def folders(self) -> tuple[str, str, str] | None:
        """The folder of the project, and the first and the last bound of what is below it; None for all projects.

        A path is below it that is not less than the first, and less than the last.
        """
        if self.project is None:
            return None
        stem = self.project.rstrip("/")
        # "0" comes right after the slash.
        return self.project, f"{stem}/", f"{stem}0"

    def fits_project(self, project: str | None) -> bool:
        """Return whether a session that worked there is one of those asked for."""
        if self.folders is None:
            return True
        folder, first, last = self.folders
        return project is not None and (project == folder or first <= project < last)

    def fits(self, call: CallRow) -> bool:
        """Return whether a call has those values, and was made in that time."""
        return (
            all(getattr(call, name) == value for name, value in self.matches.items())
            and call.scope.startswith(self.scope_prefix or "")
            and (self.from_us is None or call.at >= self.from_us)
            and (self.before_us is None or call.at < self.before_us)
        )


@frozen
class UsageRow:
    """What some paid calls used: tokens by kind, and cost.

    ``group`` says what they have in common, by dimension. A ``day`` is a `datetime.date`, a ``week`` the Monday that it
    begins with, a ``month`` text such as ``2026-11``; all in UTC. ``reasoning`` is part of ``output``.
    ``total_tokens`` is as reported, or the sum of the kinds where nothing was. ``picodollars`` sums the
    costs that are known; ``unpriced_calls`` counts the calls without one, ``unknown_calls`` those
    whose tokens are unknown, too: they add nothing to any of the sums. ``reported`` has a bit for each
    number that some of the calls reported (see `known`): a 0 of anything else is unknown.
    """

    group: Mapping[str, str | date | None] = field(default_factory=dict)
    calls: int = 0
    unpriced_calls: int = 0
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0
    reasoning: int = 0
    total_tokens: int = 0
    picodollars: int = 0
    unknown_calls: int = 0
    reported: int = 0

    @property
    def cache_write(self) -> int:
        """Tokens written to a cache, for whatever time."""
        return self.cache_write_5m + self.cache_write_1h

    @property
    def cost(self) -> Decimal | None:
        """The sum of the known costs in US dollars, exact; None if calls have no known cost, and the others none."""
        return known_cost(self.picodollars, self.unpriced_calls)

    @property
    def is_unknown(self) -> bool:
        """Whether there are calls, and the usage of all of them is unknown: show no tokens then."""
        return bool(self.calls) and self.unknown_calls == self.calls

    def plus(self, other: UsageRow) -> UsageRow:
        """Return the sum of two rows, under the group of this one."""
        sums = [mine + theirs for mine, theirs in zip(self.sums, other.sums, strict=True)]
        return UsageRow(self.group, *(*sums, self.reported | other.reported))

    @property
    def known(self) -> dict[str, int | None]:
        """The tokens by kind, as JSON spells it; None if there are calls and none of them reported any."""
        tokens = {
            "input": self.input,
            "output": self.output,
            "cacheRead": self.cache_read,
            "cacheWrite": self.cache_write,
            "cacheWrite5m": self.cache_write_5m,
            "cacheWrite1h": self.cache_write_1h,
            "reasoning": self.reasoning,
            "totalTokens": self.total_tokens,
        }
        told = {part for place, part in enumerate(PARTS) if self.reported >> place & 1}
        told |= {"cacheWrite5m"} if "cacheWrite" in told else set()
        told |= {"totalTokens"} if told else set()
        return {name: count if count or name in told or not self.calls else None for name, count in tokens.items()}

    @property
    def sums(self) -> tuple[int, ...]:
        """The eleven numbers: calls, unpriced calls, tokens by kind, all tokens, picodollars, unknown calls."""
        return (
            self.calls, self.unpriced_calls, self.input, self.output, self.cache_read, self.cache_write_5m,
            self.cache_write_1h, self.reasoning, self.total_tokens, self.picodollars, self.unknown_calls,
        )  # fmt: skip

    def to_json(self) -> JsonObject:
        """Return the row as JSON: ``costUsd`` is the exact decimal as text. What is not known is null, never 0."""
        cost = self.cost
        return {
            **{_JSON_NAMES.get(name, name): _json(value) for name, value in self.group.items()},
            "calls": self.calls,
            "unpricedCalls": self.unpriced_calls,
            "unknownCalls": self.unknown_calls,
            **{name: count for name, count in self.known.items() if name != "cacheWrite"},
            "costPicodollars": None if cost is None else self.picodollars,
            "costUsd": None if cost is None else f"{cost.normalize():f}",
        }


def _json(value: str | date | None) -> str | None:
    return value.isoformat() if isinstance(value, date) else value


@frozen
class UsageReport:
    """What the ledger answers: a row for each group, in the order of the groups, and the sum of all.

    ``on_path`` is False if ``since`` is not on the path that was asked for: the report is then empty.
    """

    rows: tuple[UsageRow, ...]
    total: UsageRow
    on_path: bool = True

    def to_json(self) -> JsonObject:
        """Return the report as JSON."""
        return {"total": self.total.to_json(), "rows": [row.to_json() for row in self.rows], "onPath": self.on_path}


def usage_report(rows: Iterable[UsageRow], group_by: tuple[Dimension, ...], *, on_path: bool = True) -> UsageReport:
    """Return a report of rows in any order. Without groups, there is the total alone."""
    found = sorted(rows, key=lambda row: [_sortable(row.group[name]) for name in group_by])
    total = UsageRow()
    for row in found:
        total = total.plus(row)
    return UsageReport(tuple(found) if group_by else (), total, on_path)


def _sortable(value: str | date | None) -> tuple[bool, str]:
    return (value is not None, value.isoformat() if isinstance(value, date) else value or "")


def day_of(at_us: int) -> int:
    """Return the number of the day, in UTC, that a time is on; 0 is 1 January 1970."""
    return at_us // DAY_US


def date_of(day: int) -> date:
    """Return the day with this number."""
    return date.fromordinal(date(1970, 1, 1).toordinal() + day)


def period_of(day: int, period: Period) -> str | date:
    """Return the period that the day with this number is in, as `UsageRow` names it."""
    if period == "month":
        return date_of(day).isoformat()[:7]
    # 1 January 1970 was a Thursday.
    return date_of(day - (day + 3) % 7 if period == "week" else day)


def number_of(day: date) -> int:
    """Return the number of a day, as `date_of` takes it."""
    return day.toordinal() - date(1970, 1, 1).toordinal()


def summed(calls: Iterable[tuple[CallRow, Mapping[str, str | date | None]]]) -> list[UsageRow]:
    """Return a row for each group that calls were put in."""
    return merged(
        UsageRow(
            group,
            1,
            int(call.cost is None),
            call.input_tokens,
            call.output_tokens,
            call.cache_read_tokens,
            call.cache_write_5m_tokens,
            call.cache_write_1h_tokens,
            call.reasoning_tokens,
            call.tokens,
            call.cost or 0,
            call.unknown,
            call.reported,
        )
        for call, group in calls
    )


def merged(rows: Iterable[UsageRow]) -> list[UsageRow]:
    """Return rows with those of the same group added up, in the order in which the groups came first."""
    found: dict[tuple[object, ...], UsageRow] = {}
    for row in rows:
        group = tuple(row.group.values())
        known = found.get(group)
        found[group] = row if known is None else known.plus(row)
    return list(found.values())


def owners_of_tasks(session_id: str, links: Iterable[tuple[str, str]], payers: Collection[str]) -> dict[str, str]:
    """Return, for each task below a session that is being deleted, whose task it was as far as the ledger knows.

    ``links`` are (parent, task), in any order, with cycles or several parents; ``payers`` are those who have paid. It
    is the nearest session above that has paid, on the shortest way from the one that is being deleted; else that one.
    """
    tasks: dict[str, list[str]] = {}
    for parent, task in links:
        tasks.setdefault(parent, []).append(task)
    owners: dict[str, str] = {}
    waiting = deque([(session_id, session_id)])
    while waiting:
        current, owner = waiting.popleft()
        below = current if current in payers else owner
        for task in tasks.get(current, ()):
            if task != session_id and task not in owners:
                owners[task] = below
                waiting.append((task, below))
    return owners
