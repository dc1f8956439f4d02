"""Budgets and paid calls of stores and sessions."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import partial
from os.path import normpath, realpath
from typing import TYPE_CHECKING, Literal, cast

from msgspec.structs import replace

from flue_py import errors
from flue_py.core import ledger
from flue_py.core.context import EntryCost, told_by
from flue_py.core.entries import Entry, NewEntry, derived_from_payload
from flue_py.core.json import Frozen, JsonObject, JsonValue, decode_json, encode_json
from flue_py.core.ledger import (
    Amounts,
    BranchState,
    Budget,
    BudgetPeriod,
    CallRow,
    Covers,
    Dimension,
    HeldAmount,
    Money,
    Recorded,
    Repricing,
    Reservation,
    SpentSoFar,
    Unit,
    Unpriced,
    UsageReport,
)
from flue_py.core.sessions import STORED, LeafChoice, SessionInfo, Stored, check_choice, check_label, check_scope
from flue_py.core.usage import (
    NAMES_OF_A_CALL,
    Cost,
    PaidCall,
    UsageTotals,
    UsageWindow,
    checked_tag,
    ledger_name,
    picodollars_to_usd,
    program_of,
    read_call,
    read_reported,
    read_steps,
    terms_in,
)
from flue_py.db.backend import Backend
from flue_py.db.runner import committed_before
from flue_py.db.waiting import Waiting
from flue_py.lazy import lazy_module
from flue_py.prices import CallPricer
from flue_py.sessions import handle
from flue_py.sessions.handle import Group, Handle, HasId, Scoped
from flue_py.system import async_once

if TYPE_CHECKING:
    import zoneinfo

    from flue_py.context import tokens
    from flue_py.core import model as model_seam
    from flue_py.core import trees
    from flue_py.core.model import Model, ModelReply, ModelRequest
    from flue_py.render import views
else:
    # It brings the models of messages, which opening a session does not need.
    tokens = lazy_module("flue_py.context.tokens")
    zoneinfo = lazy_module("zoneinfo")
    model_seam = lazy_module("flue_py.core.model")
    trees = lazy_module("flue_py.core.trees")
    views = lazy_module("flue_py.render.views")


class BudgetedCall:
    """A call that is being made on its reservation (see `Session.money.budgeted`)."""

    __slots__ = ("_is_made", "_reservation", "_used")

    def __init__(self, reservation: Reservation) -> None:
        self._reservation = reservation
        self._used = Amounts()
        self._is_made = False

    @property
    def reservation(self) -> Reservation:
        """The reserved amounts."""
        return self._reservation

    @property
    def is_made(self) -> bool:
        """Whether something may have been spent: `made` or `used` was called."""
        return self._is_made

    @property
    def amounts(self) -> Amounts:
        """The amounts used so far, as far as they were said."""
        return self._used

    def made(self) -> None:
        """Say that the call is being made: from here on, the reserved amounts count as used unless `used` says
        otherwise, also if an error or a cancellation ends the block.
        """
        self._is_made = True

    def used(self, *, tokens: int | None = None, cost: Money | None = None) -> None:
        """Say how much the call has used so far, in all: a later word replaces an earlier one. Raises
        `InvalidArgument`.

        ``cost`` is in US dollars. An amount that is left out is as it was.
        """
        amounts = _said(tokens, cost)
        self._used = Amounts(
            self._used.tokens if amounts.tokens is None else amounts.tokens,
            self._used.picodollars if amounts.picodollars is None else amounts.picodollars,
        )
        self._is_made = True


class StoreBudgets(Scoped):
    """The half of a `Store` that sets budgets."""

    __slots__ = ()

    async def set_budget(
        self,
        session: HasId | str | None = None,
        *,
        tasks: bool = False,
        scope: str | None = None,
        scope_prefix: str | None = None,
        tokens: int | None = None,
        cost: Money | None = None,
        spent_so_far: Money | Literal["ledger"] | None = None,
        period: BudgetPeriod | None = None,
        tz: tzinfo | str | None = None,
    ) -> Budget:
        """Make a budget of tokens or of money, or change the amount of one, and return it.

        It covers a session; with ``tasks`` also its task sessions, theirs, and so on; or a scope, or with
        ``scope_prefix`` all scopes that begin so: with "" everything. There is one for each of these, each unit and
        each period: set again, it goes on with its count, so that a program may set it whenever it starts. ``cost`` is
        in US dollars. A new one begins with ``spent_so_far`` (default 0), an amount of its unit, or ``"ledger"``: the
        amounts that the ledger has of its sessions. A fork is covered by the scope only.

        With a ``period`` (day, week from Monday, month) it counts what the ledger has of the one that is running, in
        the zone ``tz``, which may be its name (default: the machine's), and is fresh in the next one. Raises
        `InvalidArgument`, `SessionNotFound`. O(1); with ``"ledger"`` O(calls), with a period O(calls in it).
        """
        meant = self._meant(scope)
        if session is None and scope_prefix is None:
            scope = meant
        if [session, scope, scope_prefix].count(None) != 2:
            raise errors.InvalidArgument("set_budget takes either a session or scope= or scope_prefix=")
        if (tokens is None) == (cost is None):
            raise errors.InvalidArgument("set_budget takes either tokens= or cost=; set a budget for each")
        covers: Covers = "tasks" if handle.checked_flag(tasks, "tasks") else "session"
        if scope is not None:
            check_scope(scope)
            if scope.endswith(ledger.ANY_REST):
                raise errors.InvalidArgument(
                    f"scope: {errors.shown(scope)} ends in {ledger.ANY_REST}; name how scopes begin by scope_prefix="
                )
        if scope_prefix is not None:
            if self._scope is not None:
                raise errors.InvalidArgument(
                    f"scope_prefix: this store is of scope {errors.shown(self._scope)} alone; leave it out"
                )
            scope = cast("str", handle.checked_text(scope_prefix, "scope_prefix")) + ledger.ANY_REST
            check_scope(scope)
        if scope is not None:
            if tasks:
                raise errors.InvalidArgument("tasks: a budget of a scope covers all sessions in it; leave it out")
            covers = "scope"
        unit: Unit = "picodollars" if tokens is None else "tokens"
        allowed = _amount(tokens if cost is None else cost, unit, "tokens" if cost is None else "cost")
        spent: SpentSoFar = 0
        if spent_so_far is not None:
            spent = "ledger" if spent_so_far == "ledger" else _amount(spent_so_far, unit, "spent_so_far")
        session_id = None if session is None else await self._own(session)
        zone = _zone_name(tz) if period is not None or tz is not None else ""
        new = ledger.NewBudget(covers, unit, allowed, session_id, scope or "", spent, period, zone)
        return await self._backend.set_budget(new)

    async def get_budget(self, budget_id: str) -> Budget | None:
        """Return a budget, or None. Amounts that expired are left out. O(1)."""
        budget = await self._backend.get_budget(handle.checked_id(budget_id, "budget_id"))
        return None if budget is None or self._scope not in (None, budget.scope) else budget

    async def _require_budget(self, budget_id: str) -> str:
        if self._scope is not None and await self.get_budget(budget_id) is None:
            raise errors.BudgetNotFound(budget_id)
        return handle.checked_id(budget_id, "budget_id")

    async def list_budgets(
        self, *, scope: str | None = None, scope_prefix: str | None = None, after: str | None = None, limit: int = 100
    ) -> list[Budget]:
        """Return up to ``limit`` (1 to 1000) budgets in the order they were made; those of a scope and its sessions.

        With ``scope_prefix`` those of all scopes that begin so, and the ones that were set for how scopes begin.
        ``after`` is the id of the last one of the page before. Raises `BudgetNotFound` if that is gone. O(budgets).
        """
        meant = self._meant(scope)
        handle.checked_place(after, "after")
        begin = handle.checked_text(scope_prefix, "scope_prefix") or ""
        return await self._backend.list_budgets(
            scope=meant, scope_prefix=begin, after=after, limit=handle.checked_limit(limit)
        )

    async def delete_budget(self, budget_id: str) -> Budget:
        """Delete a budget, and return it as it was; the ledger stays. Raises `BudgetNotFound`."""
        return await self._backend.delete_budget(await self._require_budget(budget_id))

    async def held_amounts(self, budget_id: str) -> list[HeldAmount]:
        """Return the amounts that reservations hold of a budget now, in the order in which they expire.

        Raises `BudgetNotFound`.
        """
        return await self._backend.held_amounts(await self._require_budget(budget_id))

    async def get_reservation(self, reservation_id: str) -> Reservation | None:
        """Return a reservation as it stands, settled or not; None if it or all of its budgets are gone. O(1)."""
        reservation = await self._backend.get_reservation(handle.checked_id(reservation_id, "reservation_id"))
        if reservation is None or self._scope is None:
            return reservation
        return reservation if await self._backend.get_session(reservation.session_id, self._scope) is not None else None


def _said(tokens: int | None, cost: Money | None) -> Amounts:
    if tokens is None and cost is None:
        raise errors.InvalidArgument("name tokens=, or cost= in US dollars, or both")
    return ledger.amounts_of(tokens, cost)


def _amount(value: Money | None, unit: Unit, name: str) -> int:
    """Return an amount of a unit: dollars where it is money. Raises `InvalidArgument`."""
    if unit == "picodollars":
        return ledger.picodollars_of(cast("Money", value), name)
    ledger.check_amount(value, name)
    return cast("int", value)


_MARGIN_SECONDS = 5.0


_LEAST_WAIT_SECONDS = 1.0


_UNPAID = (errors.ContextOverflow, errors.ModelDenied, errors.ModelRefused, errors.RateLimited)


class Booked(Frozen):
    """A paid call as the ledger has it, its tokens, and its picodollars; None for an unknown number."""

    call: JsonObject
    tokens: int | None
    picodollars: int | None


def model_of(model: object, name: str = "model") -> Model:
    """Return a model as it is. Raises `InvalidArgument` for anything else."""
    if not isinstance(model, model_seam.Model):
        raise errors.InvalidArgument(
            f"{name}: {errors.shown(model)} is not a model; use flue_py.models.open_model, or FunctionModel for a "
            "function"
        )
    return model


def window_of(window: int | None, model: Model | None) -> int | None:
    """Return a context window, by default that of the model; None where neither says."""
    return window if window is not None or model is None else model.context_window


class Patience(Frozen):
    """How long a model is waited for: ``timeout`` is for a request that has none, None for no end.

    ``rate_limit_wait`` is how many seconds are waited in all where a provider says when to call again.
    """

    timeout: float | None = None
    rate_limit_wait: float = 0.0


NO_PATIENCE = Patience()


async def book(
    books: Spending, call: Mapping[str, object], new_id: Callable[[], str], purpose: str, outcome: str | None = None
) -> Booked:
    """Write a paid call into the ledger, and return it with its id there.

    ``call`` is a usage object with ``provider``, ``model`` and ``callId`` as far as they are known.
    """
    provider, model = _name(call.get("provider")), _name(call.get("model"))
    call_id = _name(call.get("callId")) or new_id()
    usage = cast("JsonObject", {name: value for name, value in call.items() if name not in NAMES_OF_A_CALL})
    record = partial(books.record_call, usage, provider=provider, model=model, purpose=purpose, outcome=outcome)
    try:
        recorded = await record(call_id=call_id)
    except errors.CallConflict:
        # Some providers, and many stand-ins, give every answer the same id: a paid call counts all the same.
        call_id = new_id()
        recorded = await record(call_id=call_id)
    named: JsonObject = {**usage, "provider": provider, "model": model, "callId": call_id}
    read = read_call(usage, "usage", purpose)
    return Booked(named, None if read.is_unknown else read.usage.tokens, recorded.picodollars)


class BookingAsker:
    """Asks a model, and writes each call that was paid for into the ledger as soon as it is answered.

    A request without a timeout gets that of ``patience``, and one that allows a longer answer than the model has, its
    limit. Where the provider takes no call for a while and says for how long, that is waited for and the request made
    again, as long as ``patience`` lasts. With ``purpose``, every request is for that. Where budgets cover the session,
    the most that a request may take is reserved in them before, and its usage is booked in them after.

    ``calls`` are these calls, each with the id by which the ledger knows it: an entry that names them is not counted
    again. Calls that failed are booked, and are not among them: no entry is made of them.
    """

    def __init__(
        self,
        model: Model,
        books: Spending,
        waiting: Waiting,
        new_id: Callable[[], str],
        patience: Patience = NO_PATIENCE,
        purpose: str | None = None,
        before: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        self.calls: list[JsonObject] = []
        self._model = model
        self._books = books
        self._waiting = waiting
        self._new_id = new_id
        self._timeout = patience.timeout
        self._wait_left = patience.rate_limit_wait
        self._purpose = purpose
        self._before = before

    async def ask(self, request: ModelRequest) -> ModelReply:
        """Return the answer to a request. Raises the model's errors, such as `ModelError`."""
        if request.timeout is None and self._timeout is not None:
            request = replace(request, timeout=self._timeout)
        if self._purpose is not None:
            request = replace(request, purpose=self._purpose)
        most = self._model.max_output_tokens
        if most is not None and request.max_tokens is not None and request.max_tokens > most:
            # A mode need not know that, and a provider refuses more.
            request = replace(request, max_tokens=most)
        while True:
            if self._before is not None:
                await self._before(request.timeout or 0.0)
            try:
                return await self._ask_once(request)
            except errors.RateLimited as error:
                # A provider that asks for no time at all would be asked for ever.
                seconds = max(error.retry_after or 0.0, _LEAST_WAIT_SECONDS)
                if error.retry_after is None or seconds > self._wait_left:
                    raise
            self._wait_left -= seconds
            await self._waiting.pause(seconds)

    async def _ask_once(self, request: ModelRequest) -> ModelReply:
        if not await self._books.budgets():
            return await self._answer(request, [])
        most = await self._waiting.call(lambda: self._most_tokens(request))
        booked: list[Booked] = []
        async with self._books.budgeted(tokens=most, ttl=max(ledger.DEFAULT_TTL, request.timeout or 0.0)) as call:
            try:
                reply = await self._answer(request, booked)
            except BaseException as error:
                # A call that was ended, or whose answer did not come, may have been paid for.
                if booked or not isinstance(error, _UNPAID):
                    _charge(call, booked)
                raise
            _charge(call, booked)
        return reply

    def _most_tokens(self, request: ModelRequest) -> int:
        """Return how many tokens a request and its answer take at most, as far as that can be told."""
        counter = tokens.counter_for(self._model.name)
        texts = [*([request.system] if request.system else ()), *tokens.texts_of(request.tools)]
        size = sum(map(counter.count, request.messages)) + tokens.ENTRY_COUNTS.tally_texts(texts, counter).tokens
        return size + (request.max_tokens or self._model.max_output_tokens or 0)

    async def _answer(self, request: ModelRequest, booked: list[Booked]) -> ModelReply:
        """Return the answer; paid calls are booked in the ledger, and added to ``booked``."""
        try:
            # A model that does not keep to the timeout itself is given up; one that does knows what it has cost.
            patience = None if request.timeout is None else request.timeout + _MARGIN_SECONDS
            reply = await self._waiting.ask(lambda: self._model.complete(request), patience)
        except TimeoutError as error:
            raise errors.ModelUnavailable(
                f"no answer within {request.timeout} seconds; ask again, or give it a longer timeout",
                provider=self._model.provider,
                model=self._model.name,
            ) from error
        except errors.ModelError as error:
            if error.call is not None:
                booked.append(await self._book(error.call, request.purpose, "failed"))
            raise
        if not isinstance(reply, model_seam.ModelReply):
            raise errors.InvalidArgument(f"model: complete() should return a ModelReply, not {errors.shown(reply)}")
        for call in reply.paid_calls:
            booked.append(await self._book(call, request.purpose, None))
            self.calls.append(booked[-1].call)
        return reply

    async def ask_all(self, requests: Sequence[ModelRequest]) -> list[ModelReply | Exception]:
        """Return the answers or the errors, in the order of the requests; they are asked at the same time."""
        return await self._waiting.outcomes([self.ask(request) for request in requests])

    async def _book(self, call: Mapping[str, object], purpose: str, outcome: str | None) -> Booked:
        provider = _name(call.get("provider")) or self._model.provider
        model = _name(call.get("model")) or self._model.name
        named = {**call, "provider": provider, "model": model}
        return await book(self._books, named, self._new_id, purpose, outcome)


def _charge(call: BudgetedCall, booked: Sequence[Booked]) -> None:
    """Say how much a call has used: an unknown number counts as the reserved one."""
    call.made()
    tokens = [paid.tokens for paid in booked if paid.tokens is not None]
    picodollars = [paid.picodollars for paid in booked if paid.picodollars is not None]
    if booked and len(tokens) == len(booked):
        call.used(tokens=sum(tokens))
    if booked and len(picodollars) == len(booked):
        call.used(cost=picodollars_to_usd(sum(picodollars)))


def _name(value: object) -> str:
    return value if isinstance(value, str) else ""


_AT_ONCE = 500


async def reprice(backend: Backend, pricer: CallPricer, *, dry_run: bool) -> Repricing:
    """Return the costs of the calls of unknown cost by the prices of now, and write them unless ``dry_run``."""
    groups: dict[tuple[str, str, Unpriced | None], tuple[int, int]] = {}
    after = -1
    while calls := await backend.unpriced_calls(after, limit=_AT_ONCE):
        after = calls[-1].number
        entries = await backend.read_named([(unpriced.session_id, unpriced.call.entry_id or "") for unpriced in calls])
        prices = []
        for unpriced, entry in zip(calls, entries, strict=True):
            priced = _priced(unpriced.call, entry, pricer)
            why = priced if isinstance(priced, str) else None
            if not isinstance(priced, str):
                prices.append(ledger.CallPrice(unpriced.number, priced.known_cost or 0, priced.source or ""))
            group = (unpriced.call.provider, unpriced.call.model, why)
            count, total = groups.get(group, (0, 0))
            groups[group] = (count + 1, total + (0 if why else prices[-1].picodollars))
        if prices and not dry_run:
            await backend.price_calls(prices)
    rows = [
        ledger.RepricedCalls(provider, model, count, None if why else total, why)
        for (provider, model, why), (count, total) in groups.items()
    ]
    return Repricing(tuple(sorted(rows, key=lambda row: (row.why or "", row.provider, row.model))), dry_run)


def _priced(row: CallRow, entry: Entry | None, pricer: CallPricer) -> PaidCall | Unpriced:
    """Return a call of the ledger with its cost, or why there is none."""
    if row.unknown:
        return "no usage"
    if not row.model:
        return "no model"
    call = _as_reported(row, entry) or _of_row(row)
    parts = call.usage.input + call.usage.output + call.usage.cache_read + call.usage.cache_write
    if call.usage.total_tokens and not parts:
        return "tokens of no kind"
    try:
        priced = pricer.price_call(call)
    except errors.InvalidEntry:  # it would cost more than can be stored
        return "no price"
    return "no price" if priced.known_cost is None else priced


def _as_reported(row: CallRow, entry: Entry | None) -> PaidCall | None:
    """Return a call as its entry reports it, which knows more of its price than the ledger; None if it is another."""
    if entry is None:
        return None
    bare = NewEntry(entry.kind, entry.payload, entry.role)
    value = decode_json(entry.payload)
    for call in derived_from_payload(bare, value).calls if isinstance(value, dict) else ():
        again = ledger.call_row(
            call, scope=row.scope, call_id=row.call_id, session_key=row.session_key, entry_id=row.entry_id, at_us=row.at
        )
        if again.model == row.model and not ledger.differences(row, again):
            return replace(call, provider=row.provider, at_us=row.at)
    return None


def price_parts(pricer: CallPricer, entry: Entry, picodollars: int) -> Cost | None:
    """Return the cost of the calls of an entry by kind of token; None if prices do not make it that sum."""
    bare = NewEntry(entry.kind, entry.payload, entry.role)
    parts = []
    for call in derived_from_payload(bare, entry.fields).calls:
        dated = replace(call, at_us=entry.created_us)
        rates = None if call.is_unknown else pricer.rates(dated)
        if rates is None:
            return None
        parts.append(rates.parts_of(dated))
    names = ("input", "output", "cache_read", "cache_write", "total")
    cost = Cost(*(sum(getattr(part, name) for part in parts) for name in names))
    return cost if cost.total == picodollars else None


def _of_row(row: CallRow) -> PaidCall:
    writes = row.cache_write_5m_tokens + row.cache_write_1h_tokens
    usage = UsageTotals(row.input_tokens, row.output_tokens, row.cache_read_tokens, writes, row.total_tokens)
    return PaidCall(
        usage,
        row.provider,
        row.model,
        cache_write_1h=row.cache_write_1h_tokens,
        reasoning=row.reasoning_tokens,
        at_us=row.at,
        terms=terms_in(row.price_source),
    )


async def listed_rows(store: StoreUsage, infos: Sequence[SessionInfo]) -> list[views.ListedSession]:
    """Return sessions as lists show them, in their order. O(their calls)."""
    names = await handle.names_of(store._backend, infos)
    usage = await store.usage(infos, group_by=("session", "model"))
    calls = sorted((row.calls, str(row.group["session"]), str(row.group["model"] or "")) for row in usage.rows)
    models = {session: model for _, session, model in calls if model}
    return [views.listed_session(info, names[info.id], models.get(info.id, "")) for info in infos]


class StoreUsage(Scoped):
    """The ledger of a `Store`."""

    __slots__ = ()
    _pricer: CallPricer

    async def usage(
        self,
        session: HasId | str | Sequence[HasId | str] | None = None,
        *,
        tree: bool = False,
        tasks: bool = False,
        path: bool = False,
        leaf: LeafChoice = STORED,
        since: str | None = None,
        scope: str | None = None,
        scope_prefix: str | None = None,
        provider: str | None = None,
        model: str | None = None,
        purpose: str | None = None,
        outcome: str | None = None,
        agent: str | None = None,
        project: str | None = None,
        branch: BranchState | None = None,
        first_day: date | None = None,
        last_day: date | None = None,
        group_by: Sequence[Dimension] = (),
        tz: tzinfo | str | None = None,
    ) -> UsageReport:
        """Return the usage in the ledger: the total, and a row for each group, in the order of the groups.

        Without a session: of the whole store. With several: the calls they paid for; an unknown id adds
        nothing. With one: the calls it paid for, also after it was deleted; ``tasks`` adds the task sessions it links
        to, and theirs, ``tree`` every session of the same tree. A handle means its own session, an id as text every
        one that ever had it. ``path``, or ``leaf``, or ``since`` take the calls of the entries on its path instead,
        also if another session paid: after ``since``, up to ``leaf``; if ``since`` is not on the path, the report
        is empty, and says so (``on_path``).

        ``scope``, ``provider``, ``model``, ``purpose``, ``outcome`` and ``agent`` take the calls of that value,
        ``scope_prefix`` those of all scopes that begin so, ``project`` those of sessions that worked in this folder or
        below it, ``first_day`` and ``last_day`` those of the days from one to the other (both included). Periods are
        those of UTC, or of the zone ``tz``, which may be its name, such as Europe/Berlin.
        ``branch`` takes those whose entry is on the active path of a session (``active``), on that of none
        (``abandoned``), deleted (``gone``), or that never had one (``alone``). ``group_by`` names any of session,
        scope, project, agent, provider, model, purpose, outcome, price_source, branch, day, week, month, block. A block
        is the five hours that begin with the hour of the first call after the block before. A project is
        the folder of a session at its first paid call; an agent is the one a message names, else the program that a
        session was imported from. None is unknown.

        Raises `SessionNotFound`, `EntryNotFound`, `InvalidArgument`. O(calls of the sessions meant), or O(ledger).
        """
        matches = {
            "scope": self._meant(scope),
            "provider": provider,
            "model": model,
            "purpose": purpose,
            "outcome": outcome,
            "agent": agent,
        }
        for name, flag in (("tree", tree), ("tasks", tasks), ("path", path)):
            handle.checked_flag(flag, name)
        on_path = path or since is not None or not isinstance(handle.checked_leaf(leaf), Stored)
        several = None if isinstance(session, str) or not isinstance(session, Sequence) else session
        single = None if several is not None else cast("HasId | str | None", session)
        if single is None and (tree or tasks or on_path):
            raise errors.InvalidArgument("tree, tasks, path, leaf and since are of a session; name one")
        if on_path and (tree or tasks):
            raise errors.InvalidArgument(
                "a path is one session's own: leave out tree and tasks, or path, leaf and since"
            )
        for name, text in {**matches, "project": project}.items():
            check_label(text, name)
        if branch is not None:
            check_choice(branch, "branch", ledger.BRANCH_STATES)
        if isinstance(group_by, str) or not isinstance(group_by, Sequence):
            raise errors.InvalidArgument(f"group_by: should be a sequence of names, not {errors.shown(group_by)}")
        for name in group_by:
            check_choice(name, "group_by", ledger.DIMENSIONS)
        zone = None if tz is None else ledger.checked_zone(tz)
        if single is not None:
            await self._check_payer(single)
        from_us, _ = _bounds(first_day, "first_day", zone)
        _, before_us = _bounds(last_day, "last_day", zone)
        query = ledger.LedgerQuery(
            None if single is None else handle.checked_session(single),
            None if several is None else tuple(handle.checked_session(payer) for payer in several),
            tree=tree,
            tasks=tasks,
            on_path=on_path,
            leaf=leaf,
            since=handle.checked_place(since, "since"),
            **matches,
            scope_prefix=handle.checked_text(scope_prefix, "scope_prefix"),
            project=None if project is None else normpath(project),  # noqa: ASYNC240 - it reads no folder
            branch=branch,
            from_us=from_us,
            before_us=before_us,
            group_by=tuple(dict.fromkeys(group_by)),
            zone=zone,
        )
        return await self._backend.read_ledger(query)

    async def _check_payer(self, session: HasId | str) -> None:
        """Raise `SessionNotFound` if the scope of this store has no such session, and none that paid and is deleted."""
        session_id = str(handle.checked_session(session))
        if self._scope is None or await self._backend.get_session(session_id, self._scope) is not None:
            return
        paid = await self._backend.read_ledger(ledger.LedgerQuery(session_id, scope=self._scope))
        if not paid.total.calls:
            raise errors.SessionNotFound(session_id)

    async def reprice(self, *, dry_run: bool) -> Repricing:
        """Give the calls of the ledger whose cost is unknown the cost of their day, by the prices of this store.

        A cost that was reported, or is known otherwise, is never changed; budgets are not, either. With ``dry_run``
        nothing is. Returns how many calls of which model get a cost, and which stay unknown, and why. Calls that were
        written meanwhile may be missing. Raises `InvalidArgument`. O(ledger + trees of the calls).
        """
        return await reprice(self._backend, self._pricer, dry_run=handle.checked_flag(dry_run, "dry_run"))


def _bounds(day: date | None, name: str, zone: tzinfo | None) -> tuple[int | None, int | None]:
    """Return the beginning and the end of a day, in microseconds since 1970 UTC; None for no day."""
    if day is None:
        return None, None
    if not isinstance(day, date) or isinstance(day, datetime):
        raise errors.InvalidArgument(f"{name}: {errors.shown(day)} is not a day; use a datetime.date")
    begin = end = None
    with suppress(OverflowError, ValueError):  # before the first day that there is, and after the last, is no call
        begin = ledger.midnight_us(day, zone)
    with suppress(OverflowError, ValueError):
        end = ledger.midnight_us(day + timedelta(days=1), zone)
    return begin, end


def _local_zone_name() -> str | None:
    """Return the name of this machine's time zone, such as Europe/Berlin; None if it has no known name."""
    if datetime.now().astimezone().tzname() == "UTC":
        return "UTC"
    named = os.environ.get("TZ", "").removeprefix(":") or realpath("/etc/localtime")
    with suppress(KeyError, ValueError, OSError):
        return zoneinfo.ZoneInfo(named.rpartition("zoneinfo/")[2]).key
    return None


def _zone_name(tz: tzinfo | str | None) -> str:
    """Return the name of a time zone, for None of the machine's. Raises `InvalidArgument`."""
    name = _local_zone_name() if tz is None else str(tz) if isinstance(tz, tzinfo) else tz
    if name is None:
        raise errors.InvalidArgument(
            "tz: the time zone of this machine has no known name; name one by tz=, such as Europe/Berlin"
        )
    ledger.checked_zone(name)
    return name


def local_zone() -> tzinfo:
    """Return this machine's time zone."""
    name = _local_zone_name()
    if name is not None:
        return ledger.checked_zone(name) or UTC
    with suppress(ValueError, OSError):
        if not os.environ.get("TZ"):
            with open("/etc/localtime", "rb") as rules:
                return zoneinfo.ZoneInfo.from_file(rules)
    # A machine that keeps its zone elsewhere says only how far it is from UTC today.
    return datetime.now().astimezone().tzinfo or UTC


class Spending(Group[Handle]):
    """Budgets and paid calls of a session."""

    async def budgets(self, *, by_ledger: bool = False) -> list[Budget]:
        """Return the budgets that cover this session, in the order they were made.

        Its own, those with tasks of every session that it is a task of, however far above, and those of its scope.
        With ``by_ledger``, ``spent`` is the amount that the ledger has of its sessions, reserved or not. O(budgets), or
        O(calls).
        """
        return await self._backend.covering_budgets(self._ref, by_ledger=handle.checked_flag(by_ledger, "by_ledger"))

    async def check_budgets(self) -> None:
        """Raise `BudgetExceeded` if the ledger has more than a budget of this session allows.

        To be asked before a turn: it counts every call, also those that nothing was reserved for, and one at the
        limit may still be made. A call whose cost is unknown counts no money. O(calls).
        """
        for budget in await self.budgets(by_ledger=True):
            ledger.check_spent(budget, self._session.id)

    async def reserve(
        self, *, tokens: int | None = None, cost: Money | None = None, ttl: float | None = None
    ) -> Reservation:
        """Set an amount aside in every budget that covers this session, all or nothing, before a call is made.

        ``cost`` is in US dollars. A budget whose unit is not named sets nothing aside, and refuses only if nothing
        is left in it. After ``ttl`` seconds (default 900) held amounts are given back, so that those of a dead process
        come free; `prolong` a call that takes longer. If no budget covers the session, everything is
        allowed and there is nothing to settle. Raises `BudgetExceeded` with nothing changed. One transaction.
        """
        return await self._reserve(_said(tokens, cost), ledger.ttl_us(ttl))

    async def _reserve(self, amounts: Amounts, ttl: int) -> Reservation:
        try:
            return await self._backend.reserve(self._ref, amounts, ttl)
        except BaseException as error:
            if (committed := committed_before(error)) is not None:
                # The caller never gets the reservation, so it could not settle it.
                reservation = cast("Reservation", committed.result)
                if reservation.budget_ids:
                    with suppress(errors.FlueError):
                        await self._backend.waiting.finish(self._backend.release_reservation(reservation.id))
            raise

    async def commit(
        self, reservation: Reservation | str, *, tokens: int | None = None, cost: Money | None = None
    ) -> Reservation:
        """Book the usage of a call, and give back its reservation.

        The usage may be more or less than was reserved, and is booked in full; left out, it is the reserved amounts. An
        expired one can be committed (``was_late``): the money is gone all the same. The same
        commit again changes nothing. Raises `ReservationSettled` if it was released, or committed with other
        amounts, and `ReservationNotFound`. One transaction.
        """
        used = ledger.amounts_of(tokens, cost)
        reservation_id = self._settling(reservation)
        if isinstance(reservation, Reservation) and not reservation.budget_ids:
            return replace(reservation, state="committed")
        return await self._backend.commit_reservation(reservation_id, used)

    async def release(self, reservation: Reservation | str) -> Reservation:
        """Give back the reservation of a call that is not made. One transaction.

        Raises `ReservationSettled` if it was released or committed before, or has expired; `ReservationNotFound`.
        """
        reservation_id = self._settling(reservation)
        if isinstance(reservation, Reservation) and not reservation.budget_ids:
            return replace(reservation, state="released")
        return await self._backend.release_reservation(reservation_id)

    async def prolong(self, reservation: Reservation | str, *, ttl: float | None = None) -> Reservation:
        """Hold a reservation for at least ``ttl`` seconds (default 900) from now. Raises as `release` does."""
        hold = ledger.ttl_us(ttl)
        reservation_id = self._settling(reservation)
        if isinstance(reservation, Reservation) and not reservation.budget_ids:
            return reservation
        return await self._backend.prolong_reservation(reservation_id, hold)

    def _settling(self, reservation: Reservation | str) -> str:
        if isinstance(reservation, Reservation):
            if reservation.session_id != self._session.id:
                raise errors.InvalidArgument(
                    f"reservation {reservation.id!r} is of session {reservation.session_id!r}, "
                    f"not of {self._session.id!r}; settle it there"
                )
            return reservation.id
        return handle.checked_id(reservation, "reservation")

    def budgeted(
        self, *, tokens: int | None = None, cost: Money | None = None, ttl: float | None = None
    ) -> AbstractAsyncContextManager[BudgetedCall]:
        """Reserve for the length of an ``async with``, and settle at its end: the way to make a call.

        The block reports the usage of the call with ``call.used(...)``; that is booked, also if the block then fails or
        is cancelled. Without it, a block that ends well books the reserved amounts, and one that raises gives it back,
        unless it has said ``call.made()``: then something may have been spent, and the reserved amounts are booked.
        Raises as `reserve` does, before the block is entered.
        """
        return self._budgeted(_said(tokens, cost), ledger.ttl_us(ttl))

    @async_once("budgeted()")
    async def _budgeted(self, amounts: Amounts, ttl: int) -> AsyncIterator[BudgetedCall]:
        call = BudgetedCall(await self._reserve(amounts, ttl))
        try:
            yield call
        except BaseException as error:
            await self._settle_failed(call, error)
            raise
        await self._book(call)

    async def _book(self, call: BudgetedCall) -> None:
        if call.reservation.budget_ids:
            # Where the budgets have been deleted meanwhile, there is nothing left to book it in.
            with suppress(errors.ReservationNotFound):
                await self._backend.waiting.finish(self._backend.commit_reservation(call.reservation.id, call.amounts))

    async def _settle_failed(self, call: BudgetedCall, error: BaseException) -> None:
        """Settle after an error, which stays the one that is raised."""
        if call.is_made:
            try:
                await self._book(call)
            except errors.FlueError as failure:
                error.add_note(f"what the call used could not be booked: {failure}")
        elif call.reservation.budget_ids:
            # It would have expired by itself.
            with suppress(errors.FlueError):
                await self._backend.waiting.finish(self._backend.release_reservation(call.reservation.id))

    async def record_call(
        self,
        usage: Mapping[str, object],
        *,
        provider: str = "",
        model: str = "",
        call_id: str | None = None,
        purpose: str = "turn",
        outcome: str | None = None,
        agent: str | None = None,
        at: datetime | None = None,
    ) -> Recorded:
        """Write a paid call that made no entry into the ledger: one that failed or was aborted, a title, a probe.

        ``usage`` is its usage, as messages report it. ``purpose`` (turn, compaction, branch_summary, title, task
        ...) and ``outcome`` (failed, aborted ...) are names of your own, and so is ``agent``, who made it; ``at`` is
        when it was made, by default now.
        With a ``call_id`` a second report of the same call changes nothing; without one each report is another call.
        Where steps of it name other models (``iterations``), each of these is a call of its own, all are written or
        none, and the cost that is returned is that of all. Raises `InvalidEntry` naming the field, and `CallConflict`
        for a call that was reported with other numbers. O(1).
        """
        if not isinstance(usage, Mapping):
            raise errors.InvalidEntry(f"usage: should be an object, not {type(usage).__name__}")
        encode_json(dict(usage), "usage")
        names: dict[str, JsonValue] = {"provider": provider, "model": model, "callId": call_id}
        for name, text in (("provider", provider), ("model", model)):
            if text is None:
                raise errors.InvalidArgument(f"{name}: should be a string, not None; leave it out if it is unknown")
            check_label(text, name)
        check_label(call_id, "call_id")
        check_label(agent, "agent")
        if call_id == "":
            raise errors.InvalidArgument("call_id: must not be empty; leave it out if there is none")
        usage = cast("JsonObject", usage)
        if oddities := read_reported(usage).oddities:
            # No answer gets lost by refusing, and no entry would keep the numbers as they were reported.
            raise errors.InvalidEntry(oddities[0])
        calls = read_steps({**usage, **{name: value for name, value in names.items() if value}}, "usage")
        about = {
            "purpose": checked_tag(purpose, "purpose"),
            "outcome": None if outcome is None else checked_tag(outcome, "outcome"),
            "at_us": None if at is None else handle.checked_moment(at),
            "agent": ledger_name(agent) or None,
        }
        call, *steps = (self._session._pricer.price_call(replace(call, **about)) for call in calls)
        return await self._ask(self._backend.record_call, call, steps)

    async def import_call(self, call: PaidCall) -> Recorded:
        """Write a paid call that a file counts without an entry for it, as `record_call` does for one of your own.

        The calls of this session that it ``replaces`` are taken out. Raises `InvalidEntry`, and `CallConflict` for a
        call that was reported with other numbers. O(1).
        """
        trees.check_imported_call(call)
        priced = self._session._pricer.price_call(replace(call, agent=call.agent or program_of(self._session.metadata)))
        return await self._ask(self._backend.record_call, priced)

    async def aggregate_usage_since(
        self, before: str | None, *, leaf: LeafChoice = STORED, told: bool = False
    ) -> UsageWindow:
        """Return the usage of the entries after ``before`` up to the leaf; None is the whole path.

        Where ``before`` is not on the path, ``on_path`` is False and the usage zero, never that of the whole
        history. Assistant messages and compactions count. O(forks on the path), whatever the window. With ``told``
        the window also knows which kinds of tokens were reported (`UsageWindow.known`): O(calls of the tree), and
        O(window) if another session paid for some of it.
        """
        handle.checked_place(before, "before")
        handle.checked_leaf(leaf)
        handle.checked_flag(told, "told")
        async with self._session._turn:
            window = await self._backend.read_usage(self._ref, before, leaf=leaf)
            return replace(window, told=await self._told(window)) if told else window

    async def _told(self, window: UsageWindow) -> frozenset[str]:
        """Return which numbers of tokens of a window are 0 because somebody reported it, or nothing was called."""
        reported: frozenset[str] = frozenset()
        if not window.on_path:
            return told_by(())
        is_whole = False
        if window.calls:
            query = ledger.LedgerQuery(self._ref, on_path=True, leaf=window.leaf, since=window.since)
            paid = (await self._backend.read_ledger(query)).total.known
            reported = frozenset(name for name, count in paid.items() if count is not None)
            is_whole = all((paid[name] or 0) >= (count or 0) for name, count in window.known.items())
        if is_whole or None not in window.usage.known(reported).values():
            return reported
        # Calls that another session paid for are elsewhere in the ledger: the entries say it themselves.
        read = await self._backend.read_path_since(self._ref, window.since, leaf=window.leaf)
        return reported | told_by(read.entries)

    async def entry_costs(self) -> dict[str, EntryCost]:
        """Return the cost of each entry the session sees, by entry id, as the ledger knows it.

        That is the reported cost, or the price at the time of the call: every branch, retries and compactions,
        whichever session paid. Left out are entries that paid for nothing, copies, and entries whose call another
        session reported first. O(calls of the tree).
        """
        return await self._ask(self._backend.read_entry_costs)
