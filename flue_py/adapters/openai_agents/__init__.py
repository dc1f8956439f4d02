"""Sessions of the OpenAI Agents SDK, kept in a store of ours.

`FlueSession` takes the place of `agents.SQLiteSession`, and has the methods of `AdvancedSQLiteSession` for branches and
usage. `import_sqlite_sessions` brings the file of either into a store.
"""

from __future__ import annotations

from flue_py.errors import MissingExtra

try:
    import agents  # noqa: F401
except ImportError as missing:
    raise MissingExtra("openai-agents", "flue_py.adapters.openai_agents") from missing

import inspect
import json
import re
import sqlite3
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from itertools import groupby, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar, cast
from uuid import uuid4

from agents import Model, ModelSettings, ModelTracing
from agents.memory import SessionSettings
from agents.memory.session import _CompactionSnapshot
from agents.memory.session_settings import coerce_session_settings, resolve_session_limit
from msgspec import field
from msgspec.structs import replace

import flue_py.sync
from flue_py.adapters.common import Access, Target, Work, find_session, key_of, metadata_of
from flue_py.adapters.items import OTHER, SHAPE, Call, entries_of, items_of
from flue_py.adapters.openai_agents import layout
from flue_py.compaction.material import CompactionSummary, Complete, SummaryReply, SummaryRequest, summarize
from flue_py.compaction.plan import (
    NoCompaction,
    SessionCompactionPlan,
    estimate_context_tokens,
    estimate_tokens,
    plan_session_compaction,
    should_compact,
)
from flue_py.compaction.settings import CompactionSettings
from flue_py.context.request import ContextRequest
from flue_py.context.settings import ContextSettings, context_settings
from flue_py.context.sources import SourceReader, checked_sources
from flue_py.core.context import ContextEntry
from flue_py.core.entries import NewEntry, to_microseconds
from flue_py.core.json import Frozen, JsonObject, JsonValue, NamedTuple
from flue_py.core.kinds import COMPACTION, EXCLUSION, MESSAGE
from flue_py.core.ledger import UsageRow
from flue_py.core.sessions import NewSession, derived_id
from flue_py.db.runner import committed_before
from flue_py.errors import (
    AnsweredCall,
    EntryNotFound,
    InvalidArgument,
    LeafConflict,
    NotAStore,
    RevisionConflict,
    SessionNotFound,
    StoreClosed,
    SummaryFailed,
    UnreadableFile,
    shown,
)
from flue_py.providers.base import fields_of
from flue_py.providers.lists import Said
from flue_py.providers.request import wire_request
from flue_py.providers.rules import is_of_the_model, kind_of
from flue_py.sessions.handle import checked_text
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.system import uri_of

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import Self, Unpack

    from agents import ModelResponse, RunContextWrapper, TResponseInputItem, Usage
    from agents.memory import OpenAIResponsesCompactionArgs
    from agents.result import RunResultBase
    from agents.usage import RequestUsage
    from agents.usage import Usage as their_Usage

__all__ = ["Compaction", "FlueSession", "ImportedSessions", "import_sqlite_sessions"]


# Session ids and branches: a branch of the SDK is a fork

MAIN = "main"
"""The branch that every session begins on."""

BRANCHES = "openaiAgentsBranches"
"""The field of a session's metadata that has the ids of its branches, by their names."""


class Below:
    """The handle on the session of an id, and which of its branches is in use."""

    def __init__(self, session_id: str) -> None:
        """Note the id. Raises `InvalidArgument` if it is not a string."""
        self.session_id = session_id
        self.branch = MAIN
        self._key = key_of(session_id)
        self._handle: Session | None = None

    def forget(self) -> None:
        """Look the session up again the next time, on its main branch: it has been deleted."""
        self._handle, self.branch = None, MAIN

    async def lost(self, store: Store) -> None:
        """Look the session up again, as it has been deleted. Raises `InvalidArgument` if that was a branch of it alone.

        Who writes to a branch that is gone must not write to the main one instead.
        """
        main, branch = await self._main(store), self.branch
        if main is not None and branch != MAIN:
            raise InvalidArgument(f"branch: {shown(branch)} has been deleted; switch_to_branch({MAIN!r}) leaves it")
        self.forget()

    async def found(self, store: Store) -> Session | None:
        """Return the session of the branch in use, or None if nothing was ever written, or it was deleted."""
        if self._handle is None:
            self._handle = await self._main(store)
        return self._handle

    async def made(self, store: Store) -> Session:
        """Return the session of the branch in use, created if nothing was ever written."""
        if self._handle is None:
            metadata = metadata_of(self.session_id)
            self._handle = await store.open_session(self._key, mode="get_or_create", metadata=metadata)
        return self._handle

    async def branches(self, store: Store) -> dict[str, Session]:
        """Return the sessions of the branches by name, in the order they were made; those deleted are left out."""
        main = await self._main(store)
        if main is None:
            return {}
        named = {name: await store.get_session(id) for name, id in _ids(main).items()}
        return {MAIN: main, **{name: session for name, session in named.items() if session is not None}}

    async def switched(self, store: Store, branch: str) -> Session:
        """Use another branch from now on, and return its session. Raises `InvalidArgument` if there is none."""
        session = (await self.branches(store)).get(branch) if isinstance(branch, str) else None
        if session is None:
            raise InvalidArgument(f"branch: {shown(branch)} does not exist; list_branches() names those that do")
        self._handle, self.branch = session, branch
        return session

    async def branched(self, store: Store, at: str | None, branch: str | None, otherwise: str) -> str:
        """Fork the branch in use at an entry, use the fork from now on, and return its name.

        Without a name it is ``otherwise``, with a number behind it where that is taken. Raises `InvalidArgument` for a
        name that is or was taken. One transaction.
        """
        current = await self.made(store)
        while True:
            main = await self._main(store)
            if main is None:
                raise SessionNotFound(self.session_id)
            ids = _ids(main)
            name = _free(otherwise, ids) if branch is None else branch
            if name == MAIN or name in ids:
                raise InvalidArgument(f"branch_name: {shown(name)} is taken; choose another one")
            metadata: JsonObject = {"openaiAgentsBranch": name}
            try:
                async with store.atomic() as batch:
                    fork = batch.fork(current, at=at, title=name, metadata=metadata)
                    branch_ids: JsonObject = {BRANCHES: {**ids, name: fork.id}}
                    batch.set_metadata(main, branch_ids, merge=True, expected_revision=main.revision)
            except RevisionConflict:
                continue
            self._handle, self.branch = fork, name
            return name

    async def _main(self, store: Store) -> Session | None:
        return await find_session(store, self._key)


def _ids(main: Session) -> dict[str, str]:
    return {name: id for name, id in fields_of(main.metadata.get(BRANCHES)).items() if isinstance(id, str)}


def _free(name: str, taken: dict[str, str]) -> str:
    number = 2
    free = name
    while free in taken or free == MAIN:
        free, number = f"{name}_{number}", number + 1
    return free


# Usage of a run since the last write
#
# A run counts its calls in one `Usage`, which grows until it ends and is passed along with each write. Of a run that is
# resumed in another process, that has been booked up to where it was interrupted.

_CALL_ID = "flue_py_call_id"
_PERSISTENCE = "agents.run_internal.session_persistence"


class Counted(NamedTuple):
    """A part of a run's usage: calls with their usage, calls in all, and the tokens of calls without one."""

    entries: int = 0
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0

    def less(self, subtrahend: Counted) -> Counted:
        """Return the difference: this without the other."""
        return Counted(*(mine - theirs for mine, theirs in zip(self, subtrahend, strict=True)))

    def plus(self, addend: Counted) -> Counted:
        """Return both together."""
        return Counted(*(mine + theirs for mine, theirs in zip(self, addend, strict=True)))


class Spending:
    """The usage of the runs that write to one session."""

    def __init__(self) -> None:
        self._booked: dict[int, tuple[weakref.ref[their_Usage], Counted]] = {}

    def begins(self, wrapper: RunContextWrapper[Any] | None) -> None:
        """Note a run that reads the history: its usage up to now was booked by an earlier process."""
        if wrapper is not None and self._counted(wrapper.usage) is None:
            self.booked(wrapper.usage, counted(wrapper.usage))

    def unbooked(self, usage: their_Usage) -> list[JsonObject]:
        """Return the usage of every call not booked yet, as a usage object; empty if unknown."""
        seen, now = self._counted(usage) or Counted(), counted(usage)
        calls: list[JsonObject] = [
            {**usage_of(entry), "callId": _call_id(entry)}
            for entry in usage.request_usage_entries[seen.entries : now.entries]
        ]
        rest = now.less(seen)
        silent: list[JsonObject] = [{} for _ in range(rest.requests - rest.entries)]
        if rest[2:] != (0, 0, 0):
            # Of several calls whose tokens are only known as a sum, the first has it.
            tokens: JsonObject = dict(zip(Counted._fields[2:], rest[2:], strict=True))
            silent[:1] = [tokens]
        return calls + silent

    def booked(self, usage: their_Usage, up_to: Counted) -> None:
        """Note that the ledger has the usage of a run up to here."""
        key = id(usage)
        self._booked[key] = (weakref.ref(usage, lambda _: self._booked.pop(key, None)), up_to)

    def passed_over(self, usage: their_Usage, before: Counted) -> None:
        """Note that the usage of a run since ``before`` is booked elsewhere. Earlier usage stays to be booked."""
        self.booked(usage, (self._counted(usage) or before).plus(counted(usage).less(before)))

    def _counted(self, usage: their_Usage) -> Counted | None:
        booked = self._booked.get(id(usage))
        return booked[1] if booked is not None and booked[0]() is usage else None


def run_above() -> RunContextWrapper[Any] | None:
    """Return the run that calls a session above this one, which does not pass it on; None outside of a run.

    The SDK passes a run on to sessions that take it. Its own `OpenAIResponsesCompactionSession` does not, nor do
    sessions that were written before there was one, and nothing else says for which run they write.
    """
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == _PERSISTENCE:
            wrapper = frame.f_locals.get("wrapper")
            if hasattr(wrapper, "usage"):
                return cast("RunContextWrapper[Any]", wrapper)
        frame = frame.f_back
    return None


def counted(usage: their_Usage) -> Counted:
    """Return how much a usage counts."""
    entries = usage.request_usage_entries
    return Counted(
        len(entries),
        max(usage.requests or 0, len(entries)),
        *(
            max(0, (getattr(usage, name) or 0) - sum(getattr(entry, name) or 0 for entry in entries))
            for name in Counted._fields[2:]
        ),
    )


def usage_of(usage: RequestUsage | their_Usage) -> JsonObject:
    """Return the usage of one call, or of several, as the API reports it."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "input_tokens_details": _details(usage.input_tokens_details),
        "output_tokens_details": _details(usage.output_tokens_details),
    }


def _call_id(usage: RequestUsage) -> str:
    """Return the id of a call, drawn when it is asked for first.

    It stays with the object and its copies: the run of an agent that is a tool passes them on to the run that called
    the tool, and where both write to sessions, the ledger has the call once.
    """
    call_id = getattr(usage, _CALL_ID, None)
    if isinstance(call_id, str):
        return call_id
    drawn = f"agents:{uuid4().hex}"
    setattr(usage, _CALL_ID, drawn)
    return drawn


def _details(details: object) -> JsonValue:
    dump = getattr(details, "model_dump", None)
    dumped = dump(mode="json") if callable(dump) else None
    return {name: value for name, value in dumped.items() if value is not None} if isinstance(dumped, Mapping) else {}


# Branches and usage, as `AdvancedSQLiteSession` has them, from forks and the ledger

_BRANCH_NAME = re.compile(r"[^\0\ud800-\udfff]+")


class Branch(TypedDict):
    """A branch: how many items `get_items` gives, turns to branch from, whether it is in use, when it was made.

    The time is in ISO 8601, in UTC.
    """

    branch_id: str
    message_count: int
    user_turns: int
    is_current: bool
    created_at: str


class Spent(TypedDict, total=False):
    """Calls and their tokens, as the API counts them: those of a cache are among the input."""

    requests: int
    input_tokens: int
    output_tokens: int
    total_tokens: int


class TurnUsage(Spent, total=False):
    """The usage of a turn: calls and tokens. ``user_turn_number`` counts from 1, if all turns are asked for."""

    user_turn_number: int
    input_tokens_details: dict[str, int]
    output_tokens_details: dict[str, int]


class SessionUsage(Spent):
    """The usage of a session or a branch, and the number of turns with usage."""

    total_turns: int


def spent(paid: UsageRow) -> Spent:
    """Return a row of the ledger as the API counts it."""
    return Spent(
        requests=paid.calls,
        input_tokens=paid.input + paid.cache_read + paid.cache_write,
        output_tokens=paid.output,
        total_tokens=paid.total_tokens,
    )


async def branched(store: Store, below: Below, turn: int, name: str | None) -> str:
    """Begin a branch before a turn, counted from 1, and return its name. Raises `InvalidArgument`."""
    session = await below.found(store)
    turns = [] if session is None else await layout.turns_of(session)
    if isinstance(turn, bool) or not isinstance(turn, int) or not 1 <= turn <= len(turns):
        raise InvalidArgument(f"turn_number: {shown(turn)} is not one of the {len(turns)} turns of this branch")
    if name is not None and not (isinstance(name, str) and name.strip() and _BRANCH_NAME.fullmatch(name)):
        raise InvalidArgument(f"branch_name: {shown(name)} is not a name; leave it out, or give one")
    return await below.branched(store, turns[turn - 1].entry.parent_id, name, f"branch_from_turn_{turn}")


async def deleted(store: Store, below: Below, branch: str, *, force: bool) -> None:
    """Delete a branch other than the main one; entries that its own branches see stay. Raises `InvalidArgument`."""
    if branch == MAIN:
        raise InvalidArgument("branch_id: the main branch cannot be deleted; clear_session() empties the session")
    session = _named(await below.branches(store), branch)
    if branch == below.branch:
        if not force:
            raise InvalidArgument(f"branch_id: {shown(branch)} is in use; switch to another one, or say force=True")
        await below.switched(store, MAIN)
    await store.delete_session_tree(session)


async def cleared(store: Store, below: Below) -> None:
    """Move the leaves of all branches to before their first items, in one transaction, and use the main one."""
    while True:
        branches = await below.branches(store)
        try:
            async with store.atomic() as batch:
                for session in branches.values():
                    if session.leaf_id is not None:
                        batch.move_leaf(session, None, why="clear_session")
        except (LeafConflict, SessionNotFound):
            continue
        below.forget()
        return


async def listed(store: Store, below: Below) -> list[Branch]:
    """Return the branches in the order they were made. O(contexts)."""
    branches = []
    for name, session in (await below.branches(store)).items():
        shown_items = await session.build_context_entries()
        branches.append(
            Branch(
                branch_id=name,
                message_count=sum(len(items_of(item)) for item in shown_items),
                user_turns=len(await layout.turns_of(session)),
                is_current=name == below.branch,
                created_at=session.info.created_at.isoformat(),
            )
        )
    return branches


async def session_usage(store: Store, below: Below, branch: str | None) -> SessionUsage | None:
    """Return the usage of all branches, or of one; None if none is known."""
    branches = await below.branches(store)
    sessions = list(branches.values()) if branch is None else [_named(branches, branch)]
    paid = (await store.usage(sessions)).total if sessions else UsageRow()
    if not paid.calls:
        return None
    return {**spent(paid), "total_turns": sum([len(await _turns(store, session)) for session in sessions])}


async def turn_usage(store: Store, below: Below, turn: int | None, branch: str | None) -> list[TurnUsage] | TurnUsage:
    """Return the usage of the turns that a branch itself has paid for, or of one; empty if that paid for nothing."""
    branches = await below.branches(store)
    session = branches.get(below.branch) if branch is None else _named(branches, branch)
    turns = [] if session is None else await _turns(store, session)
    if turn is None:
        return turns
    for turn_usage in turns:
        if turn_usage.pop("user_turn_number") == turn:
            return turn_usage
    return TurnUsage()


async def chosen(store: Store, below: Below, branch: str | None) -> Session | None:
    """Return the session of a branch, or of the one in use; None if nothing was ever written to that."""
    return await below.found(store) if branch is None else _named(await below.branches(store), branch)


def _named(branches: dict[str, Session], branch: str) -> Session:
    if not isinstance(branch, str) or branch not in branches:
        raise InvalidArgument(f"branch_id: {shown(branch)} does not exist; list_branches() names those that do")
    return branches[branch]


async def _turns(store: Store, session: Session) -> list[TurnUsage]:
    turns = [turn.entry for turn in await layout.turns_of(session)]
    if not turns:
        # No user has spoken: a greeting, or items that are encrypted.
        return []
    ends = [*(turn.parent_id for turn in turns[1:]), session.leaf_id]
    usages = []
    for number, (turn, end) in enumerate(zip(turns, ends, strict=True), 1):
        if turn.session_id != session.id:
            continue
        paid = (await store.usage(session, leaf=end, since=turn.parent_id)).total
        if paid.calls:
            usage: TurnUsage = {
                "user_turn_number": number,
                **spent(paid),
                "input_tokens_details": {"cached_tokens": paid.cache_read, "cache_write_tokens": paid.cache_write},
                "output_tokens_details": {"reasoning_tokens": paid.reasoning},
            }
            usages.append(usage)
    return usages


# Compaction by a model of the caller


class Compaction(Frozen, kw_only=True):
    """How a session is compacted.

    ``model`` writes the summary: a model of the SDK, or a coroutine function that takes a `SummaryRequest` and returns
    a `SummaryReply` (see `flue_py.compaction.summarize`). ``context_window`` is how many tokens the agent's model
    takes: a run compacts after a turn when fewer than ``settings.reserve_tokens`` of them are left. 0 compacts only
    when it is asked for. Raises `InvalidArgument`.
    """

    model: Model | Complete
    context_window: int = 0
    settings: CompactionSettings = field(default_factory=CompactionSettings)

    def __post_init__(self) -> None:
        if not callable(self.model) and not isinstance(self.model, Model):
            raise InvalidArgument(f"model: should be a model or a coroutine function, not {shown(self.model)}")
        if isinstance(self.context_window, bool) or not isinstance(self.context_window, int) or self.context_window < 0:
            raise InvalidArgument(f"context_window: should be tokens, 0 or more, not {shown(self.context_window)}")

    def completing(self, note_usage: Callable[[Usage], None]) -> Complete:
        """Return a function for one call of the model; ``note_usage`` is called with its usage, if the SDK says it."""
        model = self.model
        if not isinstance(model, Model):
            return model

        async def complete(request: SummaryRequest) -> SummaryReply:
            response = await model.get_response(
                system_instructions=request.system_prompt,
                input=request.prompt,
                model_settings=ModelSettings(max_tokens=request.max_tokens),
                tools=[],
                output_schema=None,
                handoffs=[],
                tracing=ModelTracing.DISABLED,
                previous_response_id=None,
                conversation_id=None,
                prompt=None,
            )
            note_usage(response.usage)
            usage = usage_of(response.usage) if response.usage.requests or response.usage.total_tokens else {}
            named = {"callId": response.response_id} if response.response_id else {}
            return SummaryReply(_text_of(response), {**usage, **named})

        return complete


async def planned(
    store: Store, *, below: Below, compaction: Compaction, force: bool
) -> tuple[Session, str | None, SessionCompactionPlan] | None:
    """Return the session, its leaf and where to cut its context; None if no compaction is due, or nothing can be cut.

    With ``force`` the size does not matter: if nothing else can be cut off, the last turn is kept. O(context).
    """
    session = await below.found(store)
    if session is None:
        return None
    items = await session.build_context_entries()
    leaf = session.leaf_id
    size = estimate_context_tokens(items).tokens
    if not force and not should_compact(size, compaction.context_window, compaction.settings):
        return None
    if any(item.role == OTHER for item in items):
        # Encrypted items cannot be summarized.
        return None
    latest, pins = await session.compactions.latest(), await session.marks.pins()
    cut = plan_session_compaction(items, latest, compaction.settings, pinned=pins)
    if isinstance(cut, NoCompaction) and force:
        starts = [number for number, item in enumerate(items) if item.role == "user" and item.kind == MESSAGE]
        last_turn_tokens = sum(estimate_tokens(item.data) for item in items[starts[-1] if starts else 0 :])
        settings = replace(compaction.settings, keep_recent_tokens=last_turn_tokens)
        cut = plan_session_compaction(items, latest, settings, pinned=pins)
    return None if isinstance(cut, NoCompaction) else (session, leaf, cut)


async def append_compaction(
    session: Session, leaf: str | None, cut: SessionCompactionPlan, summary: CompactionSummary
) -> bool:
    """Append a compaction at the leaf that it was planned for. If the session has moved on, only its calls are kept."""
    try:
        await session.append_compaction(
            summary.text,
            first_kept_entry_id=cut.first_kept_entry_id,
            tokens_before=cut.plan.tokens_before,
            details=summary.details,
            calls=summary.usages,
            expected_leaf=leaf,
        )
    except (LeafConflict, EntryNotFound):
        await record_discarded(session, summary.calls)
        return False
    return True


async def record_discarded(session: Session, calls: Sequence[AnsweredCall]) -> None:
    """Write the cost of an unused summary into the ledger."""
    for call in calls:
        usage = cast("JsonObject", dict(call.usage or {}))
        call_id = usage.pop("callId", None)
        named = call_id if isinstance(call_id, str) else None
        await session.money.record_call(usage, purpose="compaction", outcome="discarded", call_id=named)


def _text_of(response: ModelResponse) -> str:
    parts = [part for item in response.output if item.type == "message" for part in item.content]
    return "".join(part.text for part in parts if part.type == "output_text")


# Import of files of the SDK (`SQLiteSession`, `AdvancedSQLiteSession`)


class ImportedSessions(Frozen):
    """The result of an import: the ids of the sessions and, as (session, branch), of the branches that it made.

    ``already_there`` are sessions whose key the store had before; they were left as they are, but for branches of
    theirs that were missing. ``skipped`` counts rows whose item is not JSON, which the SDK skips, too.
    """

    sessions: tuple[str, ...]
    branches: tuple[tuple[str, str], ...]
    already_there: tuple[str, ...]
    skipped: int


class _Row(Frozen):
    id: int
    turn: int | None
    item: object
    created_us: int | None


async def import_sqlite_sessions(
    path: str | Path, target: Target, *, sessions_table: str = "agent_sessions", messages_table: str = "agent_messages"
) -> ImportedSessions:
    """Import the sessions of a file of the SDK, branches and usage included, and report the new ones.

    The file is only read. Sessions that are there already are left alone, so that the same import can be run again,
    also after one that broke off. Raises `UnreadableFile` if the file is not the SDK's. O(file).
    """
    access = Access(target)
    report = _Report([], [], [])
    try:
        with closing(_opened(Path(path), sessions_table, messages_table)) as file:
            source = _Source(file, sessions_table, messages_table)
            for session_id, created_us in source.sessions():
                work = partial(_import, source=source, session_id=session_id, created_us=created_us, report=report)
                await access.run(work)
            sessions, branches, already_there = report
            return ImportedSessions(tuple(sessions), tuple(branches), tuple(already_there), source.skipped)
    finally:
        await access.aclose()


class _Report(NamedTuple):
    sessions: list[str]
    branches: list[tuple[str, str]]
    already_there: list[str]


async def _import(store: Store, *, source: _Source, session_id: str, created_us: int | None, report: _Report) -> None:
    """Import one session: its main branch, then the others, each from the longest beginning that is there."""
    endings: dict[tuple[int, ...], tuple[str, str]] = {}
    is_new = await find_session(store, key_of(session_id)) is None
    if not is_new:
        report.already_there.append(session_id)
    for branch in source.branches(session_id):
        rows = source.rows(session_id, branch)
        path = tuple(row.id for row in rows)
        shared = next((n for n in range(len(path), 0, -1) if path[:n] in endings), 0)
        at, owner = endings.get(path[:shared], (None, MAIN))
        entries, ends = _chained(rows[shared:], session_id, branch, at, source.usage(session_id, branch))
        for number, end in enumerate(ends, shared + 1):
            endings.setdefault(path[:number], (end, branch))
        leaf = entries[-1].id if entries else at
        if branch == MAIN:
            if is_new:
                new = NewSession(
                    key=key_of(session_id), metadata_text=json.dumps(metadata_of(session_id)), created_us=created_us
                )
                await store.import_session(new, entries, leaf=leaf)
                report.sessions.append(session_id)
            continue
        if await _branch(store, Below(session_id), owner, at, branch, entries):
            report.branches.append((session_id, branch))


async def _branch(
    store: Store, below: Below, owner: str, at: str | None, branch: str, entries: Sequence[NewEntry]
) -> bool:
    """Make a branch at an entry of another one, with entries of its own; return whether anything was missing."""
    fork = (await below.branches(store)).get(branch)
    is_new = fork is None
    if fork is None:
        await below.switched(store, owner)
        await below.branched(store, at, branch, branch)
        fork = await below.made(store)
    if not entries or await fork.get_entry(str(entries[0].id)) is not None:
        return is_new
    await fork.import_entries(entries, leaf=entries[-1].id)
    return True


def _chained(
    rows: Sequence[_Row], session_id: str, branch: str, parent: str | None, usage: dict[int, list[Call]]
) -> tuple[list[NewEntry], list[str]]:
    """Return rows as a chain of entries, and the id that each row ends with. Each turn has the calls it paid for."""
    names: dict[str, str] = {}
    entries: list[NewEntry] = []
    ends: list[str] = []
    for turn, grouped in groupby(rows, key=lambda row: row.turn):
        group = list(grouped)
        calls = usage.get(turn, []) if turn is not None else []
        group_entries = entries_of([row.item for row in group], names, calls)
        for number, entry in enumerate(group_entries):
            row = group[min(number, len(group) - 1)]
            # An entry for calls without an answer comes behind the rows of its turn.
            role = "item" if number < len(group) else "usage"
            own = derived_id("openai-agents", session_id, branch, row.id, role)
            entries.append(replace(entry, id=own, parent_id=parent, created_us=row.created_us))
            parent = own
            if number < len(group):
                ends.append(own)
        ends[-1] = parent or ends[-1]
    return entries, ends


def _opened(path: Path, sessions_table: str, messages_table: str) -> sqlite3.Connection:
    for table in (sessions_table, messages_table):
        if not isinstance(table, str) or not table.isidentifier():
            raise InvalidArgument(f"table: {table!r} is not the name of a table")
    file = None
    try:
        file = sqlite3.connect(f"{uri_of(path.resolve())}?mode=ro", uri=True, check_same_thread=False)
        file.execute(f"SELECT session_id, message_data, created_at FROM {messages_table} LIMIT 0")  # noqa: S608 - checked
        file.execute(f"SELECT session_id, created_at FROM {sessions_table} LIMIT 0")  # noqa: S608 - checked
    except sqlite3.Error as error:
        if file is not None:
            file.close()
        raise UnreadableFile(f"{path}: not a file of sessions of the OpenAI Agents SDK ({error})") from error
    return file


class _Source:
    """The content of a file of the SDK."""

    def __init__(self, file: sqlite3.Connection, sessions_table: str, messages_table: str) -> None:
        self._file = file
        self._sessions, self._messages = sessions_table, messages_table
        tables = {name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        self._has_branches = {"message_structure", "turn_usage"} <= tables
        self.skipped = 0

    def sessions(self) -> list[tuple[str, int | None]]:
        query = f"SELECT session_id, created_at FROM {self._sessions} ORDER BY created_at, session_id"  # noqa: S608 - checked
        return [(id, _microseconds(at)) for id, at in self._file.execute(query)]

    def branches(self, session_id: str) -> list[str]:
        """Return the main branch, and the others in the order they were made."""
        if not self._has_branches:
            return [MAIN]
        query = "SELECT branch_id FROM message_structure WHERE session_id = ? GROUP BY branch_id ORDER BY MIN(id)"
        return [MAIN, *(name for (name,) in self._file.execute(query, [session_id]) if name != MAIN)]

    def rows(self, session_id: str, branch: str) -> list[_Row]:
        structured = f"""SELECT m.id, s.user_turn_number, m.message_data, m.created_at FROM message_structure s
            JOIN {self._messages} m ON m.id = s.message_id
            WHERE s.session_id = ? AND s.branch_id = ? ORDER BY s.sequence_number"""  # noqa: S608 - checked
        plain = f"SELECT id, NULL, message_data, created_at FROM {self._messages} WHERE session_id = ? ORDER BY id"  # noqa: S608 - checked
        rows = self._file.execute(structured, [session_id, branch]).fetchall() if self._has_branches else []
        if not rows and branch == MAIN and not self._is_structured(session_id):
            rows = self._file.execute(plain, [session_id]).fetchall()
        return list(self._read(rows))

    def usage(self, session_id: str, branch: str) -> dict[int, list[Call]]:
        """Return the calls that each turn of a branch paid for: as many as there were, the first with their sum."""
        if not self._has_branches:
            return {}
        query = """SELECT user_turn_number, requests, input_tokens, output_tokens, total_tokens, input_tokens_details,
            output_tokens_details FROM turn_usage WHERE session_id = ? AND branch_id = ?"""
        calls: dict[int, list[Call]] = {}
        for turn, requests, taken, output, total, of_input, of_output in self._file.execute(
            query, [session_id, branch]
        ):
            whole: Call = {
                "input_tokens": taken,
                "output_tokens": output,
                "total_tokens": total,
                "input_tokens_details": json.loads(of_input or "{}"),
                "output_tokens_details": json.loads(of_output or "{}"),
            }
            calls[turn] = [whole, *({} for _ in range((requests or 1) - 1))]
        return calls

    def _is_structured(self, session_id: str) -> bool:
        query = "SELECT 1 FROM message_structure WHERE session_id = ? LIMIT 1"
        return self._has_branches and self._file.execute(query, [session_id]).fetchone() is not None

    def _read(self, rows: list[tuple[int, int | None, str, str]]) -> Iterator[_Row]:
        for row_id, turn, data, at in rows:
            try:
                item = json.loads(data)
            except (TypeError, ValueError):
                item = None
            if isinstance(item, dict):
                yield _Row(row_id, turn, item, _microseconds(at))
            else:
                self.skipped += 1


def _microseconds(text: object) -> int | None:
    """Return a time as SQLite writes it, in UTC; None if it is something else."""
    try:
        return to_microseconds(datetime.fromisoformat(str(text)).replace(tzinfo=UTC))
    except ValueError:
        return None


# Context settings, as items of the Responses API


class Sent:
    """Settings of a context, for one agent. Raises `InvalidArgument` naming each field that is wrong by its path."""

    def __init__(
        self,
        settings: ContextSettings | Mapping[str, object],
        agent: str | None,
        sources: Mapping[str, SourceReader] | None,
        model: str | None,
    ) -> None:
        self._settings = context_settings(settings)
        self._agent = checked_text(agent, "agent")
        self._sources = checked_sources(sources)
        self._model = model

    async def request(self, session: Session) -> ContextRequest:
        """Return the agent's request: items as they were added, but for changes by a step or a repair. O(size).

        An item that is in no form of the API, such as an envelope of `EncryptedSession`, stays as it is.
        """
        request = await session.request(agent=self._agent, settings=self._settings, sources=self._sources)
        messages: list[Said] = []
        for item, message in zip(request.items, request.messages, strict=True):
            if item.how is None and item.source is not None and message is item.message:
                messages += layout.said_of_item(item.source, message)
            else:
                messages.append(Said(message, entry_id=item.entry_id))
        # Reasoning under another beginning has been left out already: here nobody knows system and tools.
        sent = wire_request(SHAPE, messages, model=self._model, keeps_stale_reasoning=True)
        return replace(
            request,
            target=sent.target,
            messages=[*map(_as_it_was, sent.messages)],
            repairs=(*request.repairs, *sent.repairs),
            broken=sent.broken,
        )


def _as_it_was(item: JsonObject) -> JsonObject:
    content = item.get("content")
    return content.item if isinstance(content, layout.Aside) else item


def last_items(items: Sequence[JsonObject], most: int | None) -> list[TResponseInputItem]:
    """Return the last items, at most so many, beginning with no half of an answer or a call. O(items)."""
    start = 0 if most is None else max(len(items) - most, 0)
    while 0 < start < len(items) and is_of_the_model(items[start]) and is_of_the_model(items[start - 1]):
        start += 1
    called = {_sending_call_id(item) for item in items[:start] if is_of_the_model(item)}
    last = [
        item for item in items[start:] if not (kind_of(item).endswith("_output") and _sending_call_id(item) in called)
    ]
    return cast("list[TResponseInputItem]", last)


def _sending_call_id(item: JsonObject) -> object:
    # The output of a local shell has the id of its call as its own.
    return item.get("call_id", item.get("id"))


# The last items: read and pop

Shown: TypeAlias = "tuple[ContextEntry, list[TResponseInputItem]]"

_MORE = 2
"""How many entries more are read at first: where calls and their results stand together, that is enough."""
_ALL = 1_000_000


async def ending(session: Session, wanted: int | None) -> list[Shown]:
    """Return the last entries of the context that have ``wanted`` items or more, with these; all where there are fewer.

    O(items wanted), and the entries between results and their calls.
    """
    if wanted is None or wanted >= _ALL:
        return [(item, items_of(item)) for item in await session.build_context_entries()]
    # A read of the end never begins between a call and its result, so it may return fewer than were asked for.
    size = wanted + _MORE
    while True:
        entries = await session.build_context_entries(limit=size)
        shown: list[Shown] = []
        missing = wanted
        while missing > 0 and len(shown) < len(entries):
            last = entries[-1 - len(shown)]
            shown.append((last, items_of(last)))
            missing -= len(shown[-1][1])
        is_all = not entries or entries[0].kind == COMPACTION or entries[0].entry.depth + len(entries) <= size
        if missing <= 0 or is_all:
            shown.reverse()
            return shown
        size *= 2


async def popped(store: Store, session: Session) -> TResponseInputItem | None:
    """Retract the last item of a session, and return it; None if there is none. Raises `LeafConflict`."""
    last, items = next(((item, items) for item, items in reversed(await ending(session, 1)) if items), (None, []))
    leaf = session.leaf_id
    if last is None:
        return None
    entry = last.entry
    if len(items) == 1 and entry.kind == COMPACTION:
        await session.move_leaf(None, why="pop_item", expected_leaf=leaf)
    elif len(items) > 1 or await _is_divided(session, last, leaf):
        await replaced(store, session, 1, leaf, [])
    elif entry.id != leaf or not await session.remove_leaf_message(entry.id, why="pop_item", expected_leaf=leaf):
        await session.move_leaf(entry.parent_id, why="pop_item", expected_leaf=leaf)
    return items[-1]


async def replaced(
    store: Store,
    session: Session,
    wanted: int,
    leaf: str | None,
    items: list[TResponseInputItem],
    is_expired: Callable[[TResponseInputItem], bool] | None = None,
) -> None:
    """Begin a branch at ``leaf`` that has ``items`` in place of the last ``wanted``. The old items stay where they are.

    The branch is without the items at its beginning that are expired. Raises `LeafConflict` if the leaf is not the
    stored one, `InvalidEntry`. O(context).
    """
    shown = await session.build_context_entries(leaf=leaf)
    groups = [items_of(item_group) for item_group in shown]
    surplus = sum(map(len, groups)) - wanted
    at = 0
    while surplus and len(groups[at]) <= surplus:
        surplus -= len(groups[at])
        at += 1
    # If no leaf has just the items that stay, as within an entry of several items, they are written again.
    to = shown[at - 1].entry_id if at else None
    before = [item for item_group in groups for item in item_group][:-wanted]
    expired = 0 if is_expired is None else sum(1 for _ in takewhile(is_expired, before))
    if expired or surplus or (at and await _is_divided(session, shown[at - 1], leaf)):
        to, before = None, before[expired:]
    else:
        before = []
    async with store.atomic() as batch:
        batch.move_leaf(session, to, why="items replaced", expected_leaf=leaf)
        if before or items:
            batch.append_entries(session, entries_of([*before, *items], {}))


async def _is_divided(session: Session, last: ContextEntry, leaf: str | None) -> bool:
    """Return whether a leaf at an item of the context would have another context than the items up to that one."""
    behind = await session.get_active_path(since=last.entry_id, leaf=leaf)
    return last.kind == COMPACTION or any(entry.kind in (COMPACTION, EXCLUSION) for entry in behind)


# The session: `agents.SQLiteSession` on a tree that forgets nothing

_Result = TypeVar("_Result")

_NAMES = 10_000
"""How many names of tool calls are kept for their results."""


class Options(TypedDict, total=False):
    """The parameters of a `FlueSession` beside its id and its store."""

    session_settings: SessionSettings | dict[str, Any] | None
    model: str | None
    provider: str | None
    compaction: Compaction | None
    context: ContextSettings | Mapping[str, object] | None
    agent: str | None
    sources: Mapping[str, SourceReader] | None


class FlueSession:
    """A session of the SDK, for `Runner.run`, `run_streamed` and `run_sync`, from any event loop.

    ``session_id`` is the key of the session in the store, in the empty scope; it is made by the first write. A read
    returns the context: at the leaf, after a compaction its summary and the items it kept, without excluded ones.
    """

    session_id: str
    """The id that the SDK knows it by."""
    session_settings: SessionSettings | None
    """The settings that count where a call gives none: the ``limit`` of `get_items`."""

    def __init__(
        self,
        session_id: str,
        db_path: Target = ":memory:",
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        model: str | None = None,
        provider: str | None = None,
        compaction: Compaction | None = None,
        context: ContextSettings | Mapping[str, object] | None = None,
        agent: str | None = None,
        sources: Mapping[str, SourceReader] | None = None,
    ) -> None:
        """Note which session is meant; the file is opened, or made, by the first call. O(1).

        ``db_path`` is the path of an SQLite file, ``":memory:"``, a URL as `flue_py.open` takes it, or an open store.
        ``model`` and ``provider`` name in the ledger who answered, which the SDK does not tell its sessions: without
        them calls have no price, and with ``context`` the reasoning of other models stays. ``compaction`` says who sums
        up a context that has become too long, and when. ``context`` are settings
        (`flue_py.context.ContextSettings`) by which `get_items` shortens the context for ``agent``, and ``sources`` are
        read by a ``spec`` in them; the stored session stays whole. Raises `InvalidArgument`, and `TypeError` for
        unknown settings.
        """
        self.session_settings = (
            SessionSettings() if session_settings is None else coerce_session_settings(session_settings)
        )
        self.session_id = session_id
        self._below = Below(session_id)
        self._access = Access(db_path)
        self._model, self._provider, self._compaction = model, provider, compaction
        self._sent = None if context is None else Sent(context, agent, sources, model)
        self._last_request: ContextRequest | None = None
        self._spending = Spending()
        self._names: dict[str, str] = {}
        self._is_closed = False

    @classmethod
    def from_url(cls, session_id: str, url: str, **options: Unpack[Options]) -> Self:
        """Return the session in the store at a URL; ``options`` are those of the class. Raises as it does. O(1)."""
        return cls(session_id, url, **options)

    @classmethod
    def from_store(cls, session_id: str, store: Store | flue_py.sync.Store, **options: Unpack[Options]) -> Self:
        """Return the session in an open store, which stays open; ``options`` are those of the class. O(1).

        A store that `flue_py.open` has opened serves the event loop that it belongs to. Raises as the class does.
        """
        return cls(session_id, store, **options)

    async def get_items(
        self, limit: int | None = None, branch_id: str | None = None, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> list[TResponseInputItem]:
        """Return the items of the conversation, oldest first: all, or the last ``limit`` of them.

        Without ``limit``, that of ``session_settings`` counts. Below 0 it means all. ``branch_id`` names a branch other
        than the one in use. With ``context``, items that the Responses API would refuse are repaired, as `last_request`
        says, and the last items begin with no half of an answer or a call, so that there may be fewer. Raises
        `InvalidArgument` (a ValueError) if there is none. O(items returned).
        """
        wanted = resolve_session_limit(limit, self.session_settings)
        if wanted is not None and not isinstance(wanted, int):
            raise InvalidArgument(f"limit: should be a number of items or None, not {shown(wanted)}")
        self._spending.begins(wrapper or run_above())
        wanted = None if wanted is None or wanted < 0 else wanted
        return await self._of_branch(branch_id, partial(self._read, wanted), [])

    @property
    def last_request(self) -> ContextRequest | None:
        """The request that the last `get_items` was made of: report, repairs, rules still broken; None before one.

        It is None, too, without ``context``. A ``limit`` of `get_items` comes after it. O(1).
        """
        return self._last_request

    async def add_items(
        self, items: list[TResponseInputItem], *, wrapper: RunContextWrapper[Any] | None = None
    ) -> None:
        """Append items in one transaction, with the calls that ``wrapper`` has paid for since the run wrote last.

        They come after whatever is stored. Raises `InvalidEntry` for a value that JSON cannot hold, with nothing
        written. O(items).
        """
        if self._is_closed:
            raise StoreClosed(f"{type(self).__name__} is closed; make another one")
        run = wrapper or run_above()
        usage = None if run is None else run.usage
        up_to = None if usage is None else counted(usage)
        calls = [] if usage is None else self._paid(self._spending.unbooked(usage))
        entries = entries_of(items, self._names, calls, self._model)
        if len(self._names) > _NAMES:
            self._names.clear()
        is_written = not entries
        try:
            if entries:
                await self._run(partial(self._append, entries))
                is_written = True
        except BaseException as error:
            # Who is cancelled while the commit is under way must not pay for it again.
            is_written = committed_before(error) is not None
            raise
        finally:
            if is_written and usage is not None and up_to is not None:
                self._spending.booked(usage, up_to)

    async def pop_item(self, *, wrapper: RunContextWrapper[Any] | None = None) -> TResponseInputItem | None:
        """Retract the last item, and return it; None if there is none. Undo brings it back. O(1)."""
        return await self._run(self._pop)

    async def clear_session(self, *, wrapper: RunContextWrapper[Any] | None = None) -> None:
        """Empty the session, with all of its branches, and use the main one. Nothing is deleted: undo brings it back.

        The leaf of each branch moves to before its first item, in one transaction. O(branches).
        """
        await self._run(lambda store: cleared(store, self._below))

    async def run_compaction(
        self,
        args: OpenAIResponsesCompactionArgs | None = None,
        *,
        wrapper: RunContextWrapper[Any] | None = None,
        compaction: Compaction | None = None,
    ) -> None:
        """Append a compaction if one is due, or with ``force`` in ``args`` in any case; nothing is deleted.

        The SDK calls it after each turn of a run. ``compaction`` takes the place of the session's own; without either
        nothing is ever due, and ``force`` is refused. The usage that the model reports is added to that of the run. A
        session that moved on while the summary was written is left as it is; the cost is in the ledger. Raises
        `InvalidArgument`, `SummaryFailed`. O(context), and the calls of the model.
        """
        force = bool(args and args.get("force"))
        how = compaction or self._compaction
        if how is None:
            if force:
                raise InvalidArgument("compaction: nobody to write the summary; give compaction=Compaction(model=...)")
            return
        planned_cut = await self._run(partial(planned, below=self._below, compaction=how, force=force))
        if planned_cut is None:
            return
        session, leaf, plan = planned_cut
        try:
            summary = await summarize(plan.plan, how.completing(partial(self._add_to_run, wrapper)))
        except SummaryFailed as failed:
            answered = failed.answered
            await self._run(lambda _: record_discarded(session, answered))
            raise
        await self._run(lambda _: append_compaction(session, leaf, plan, summary))

    # the names of AdvancedSQLiteSession

    async def create_branch_from_turn(self, turn_number: int, branch_name: str | None = None) -> str:
        """Begin a branch before a turn of the branch in use, counted from 1; use it, and return its name.

        A branch is a fork: it copies nothing. Raises `InvalidArgument` (a ValueError) for a turn that there is not, and
        for a name that is empty or was used before. O(turns).
        """
        return await self._run(lambda store: branched(store, self._below, turn_number, branch_name))

    async def create_branch_from_content(self, search_term: str, branch_name: str | None = None) -> str:
        """Begin a branch before the first turn in which the user said ``search_term``; use it, and return its name.

        Raises `InvalidArgument` (a ValueError) if nobody said it, and as `create_branch_from_turn` does. O(path).
        """
        turns = await self.find_turns_by_content(search_term)
        if not turns:
            raise InvalidArgument(f"search_term: nobody said {shown(search_term)} on this branch")
        return await self.create_branch_from_turn(turns[0]["turn"], branch_name)

    async def switch_to_branch(self, branch_id: str) -> None:
        """Use another branch, in this object. Raises `InvalidArgument` (a ValueError) if there is none. O(branches)."""
        await self._run(lambda store: self._below.switched(store, branch_id))

    async def delete_branch(self, branch_id: str, force: bool = False) -> None:
        """Delete a branch, with the items that no other branch has. This is the one call that deletes something.

        Its name stays taken, and its cost stays in the ledger. Raises `InvalidArgument` (a ValueError) if there is no
        such branch, for the main one, and, without ``force``, for the one in use. O(items deleted).
        """
        await self._run(lambda store: deleted(store, self._below, branch_id, force=force))

    async def list_branches(self) -> list[Branch]:
        """Return the branches in the order they were made; "main" is the first. O(their paths)."""
        return await self._run(lambda store: listed(store, self._below))

    async def get_conversation_turns(self, branch_id: str | None = None) -> list[layout.ConversationTurn]:
        """Return the turns of a branch, or of the one in use: the words of the user in each, and when.

        Raises `InvalidArgument` (a ValueError) if there is no such branch. O(path).
        """
        return await self._of_branch(branch_id, layout.conversation_turns, [])

    async def find_turns_by_content(
        self, search_term: str, branch_id: str | None = None
    ) -> list[layout.ConversationTurn]:
        """Return the turns in which the user said ``search_term``; ASCII letters match in either case.

        ``content`` is all that was said, as text. Raises as `get_conversation_turns`. O(path).
        """
        return await self._of_branch(branch_id, lambda session: layout.turns_with(session, search_term), [])

    async def get_conversation_by_turns(self, branch_id: str | None = None) -> dict[int, list[layout.TurnItem]]:
        """Return the types and tools of the items of a branch, by turn; items before the first turn are in turn 0.

        Raises as `get_conversation_turns`. O(path).
        """
        return await self._of_branch(branch_id, layout.by_turns, {})

    async def get_tool_usage(self, branch_id: str | None = None) -> list[tuple[str, int, int]]:
        """Return how often each tool was called in each turn of a branch: its name, the calls, the turn.

        Raises as `get_conversation_turns`. O(path).
        """
        return await self._of_branch(branch_id, layout.tools_used, [])

    async def get_session_usage(self, branch_id: str | None = None) -> SessionUsage | None:
        """Return the usage of all branches from the ledger, or that of one by itself; None if there is none.

        Raises `InvalidArgument` (a ValueError) if there is no such branch. O(calls).
        """
        return await self._run(lambda store: session_usage(store, self._below, branch_id))

    async def get_turn_usage(
        self, user_turn_number: int | None = None, branch_id: str | None = None
    ) -> list[TurnUsage] | TurnUsage:
        """Return the usage of every turn of a branch, or of one turn, counted from 1; empty if there is none.

        The turns that a branch shares with the one that it was made from belong to that. Raises `InvalidArgument` (a
        ValueError) if there is no such branch. O(turns).
        """
        return await self._run(lambda store: turn_usage(store, self._below, user_turn_number, branch_id))

    async def store_run_usage(self, result: RunResultBase) -> None:
        """Write the usage of a run into the ledger, as far as it is not there yet.

        The items that a run wrote to the session have brought its usage along. This is for the rest, such as the last
        call of a run that a guardrail stopped. O(calls).
        """
        await self.add_items([], wrapper=result.context_wrapper)

    def close(self) -> None:
        """Let go of the store, which is closed if nobody else uses it and it was not given open. Idempotent."""
        self._is_closed = True
        self._below.forget()
        self._access.close()

    # the session below

    async def _run(self, work: Work[_Result]) -> _Result:
        """Return the result of work with the store. Who named a file of the SDK is told how its sessions come over."""
        try:
            return await self._access.run(work)
        except NotAStore as error:
            raise NotAStore(f"{error}. import_sqlite_sessions() brings sessions of the SDK's own file over") from error

    async def _read(self, wanted: int | None, session: Session) -> list[TResponseInputItem]:
        if wanted == 0:
            return []
        if self._sent is None:
            items = [item for _, of_entry in await ending(session, wanted) for item in of_entry]
            return items if wanted is None else items[-wanted:]
        self._last_request = await self._sent.request(session)
        return last_items(self._last_request.messages, wanted)

    async def _of_branch(
        self, branch: str | None, read: Callable[[Session], Awaitable[_Result]], nothing: _Result
    ) -> _Result:
        """Return a reading of a branch, or of the one in use; ``nothing`` if nothing was ever written to that."""

        async def work(store: Store) -> _Result:
            session = await chosen(store, self._below, branch)
            try:
                return nothing if session is None else await read(session)
            except SessionNotFound:
                await self._below.lost(store)
                return await work(store)

        return await self._run(work)

    async def _append(self, entries: list[NewEntry], store: Store) -> None:
        session = await self._below.made(store)
        try:
            async with store.atomic() as batch:
                batch.append_entries(session, entries, on_conflict="rebase")
        except SessionNotFound:
            await self._below.lost(store)
            await self._append(entries, store)

    async def _pop(self, store: Store) -> TResponseInputItem | None:
        while (session := await self._below.found(store)) is not None:
            try:
                return await popped(store, session)
            except LeafConflict:
                continue
            except SessionNotFound:
                await self._below.lost(store)
        return None

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[TResponseInputItem], bool] | None = None
    ) -> _CompactionSnapshot | None:
        """Return the last items for a compaction by `OpenAIResponsesCompactionSession`, and the way to replace some.

        Their replacement begins a branch, without the items that `EncryptedSession` says are expired; all of them stay.
        """
        return await self._run(partial(self._snapshot, limit, prune_prefix))

    async def _snapshot(
        self, limit: int, is_expired: Callable[[TResponseInputItem], bool] | None, store: Store
    ) -> _CompactionSnapshot | None:
        session = await self._below.found(store)
        if session is None:
            return None
        last_items = [item for _, of_entry in await ending(session, limit + 1) for item in of_entry]
        items, leaf = last_items[-limit:], session.leaf_id

        async def replace_suffix(start: int, output: list[TResponseInputItem]) -> bool:
            wanted = len(items) - start
            if wanted <= 0:
                return False
            try:
                await self._run(lambda store: replaced(store, session, wanted, leaf, output, is_expired))
            except LeafConflict:
                return False
            return True

        return _CompactionSnapshot(items, len(last_items) <= limit, replace_suffix)

    def _add_to_run(self, wrapper: RunContextWrapper[Any] | None, usage: Usage) -> None:
        """Add the compaction's own ledger entries to a run's usage."""
        if wrapper is not None:
            before = counted(wrapper.usage)
            wrapper.usage.add(usage)
            self._spending.passed_over(wrapper.usage, before)

    def _paid(self, calls: list[JsonObject]) -> list[JsonObject]:
        named = {"model": self._model, "provider": self._provider}
        return [{**call, **{name: text for name, text in named.items() if text is not None}} for call in calls]
