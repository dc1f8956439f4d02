"""The journal of a run: its session, the messages that are stored, and the beginnings and ends of its tool calls.

A message is stored when it is complete, the results of tools one by one. Each call of a tool has an entry that it
began, and ends with its result, or with an entry that says why there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import zip_longest
from os import PathLike
from typing import Literal

from msgspec import ValidationError, convert, structs, to_builtins

from flue_py.adapters.common import without_pydantic_ai
from flue_py.core.entries import NewEntry
from flue_py.errors import FlueError, RevisionConflict, SessionInUse
from flue_py.sessions.compact import ELSEWHERE_SECONDS, Claim
from flue_py.sessions.handle import stored_row
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

try:
    from pydantic_ai.capabilities import AbstractCapability

    AbstractCapability.get_wrapper_model  # noqa: B018 - older versions of the framework do not have it
except (ImportError, AttributeError) as error:
    raise without_pydantic_ai("agents", "flue_py.agents", oldest="2.62") from error
from pydantic_ai import exceptions
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

from flue_py.adapters.pydantic_ai_messages import ReadMessages, calls_of, dumped_messages, entries_of, groups_of
from flue_py.context.artifacts import OffloadSettings
from flue_py.context.request import ContextRequest
from flue_py.core.entries import Entry
from flue_py.core.json import Frozen, JsonObject
from flue_py.core.kinds import MESSAGE, is_answer
from flue_py.core.ledger import Money
from flue_py.core.usage import NAMES_OF_A_CALL, picodollars_to_usd
from flue_py.errors import CallConflict, InvalidArgument, OutcomeUnknown, StoreBusy, StoreUnavailable

TOOL_CALL = "agents.tool_call"
"""The kind of the entries that say that the call of a tool began, or why it has no result."""

FAILED_REQUEST = "agents.failed_request"
"""The kind of the entries that say why a request had no answer."""

State = Literal["began", "done", "failed", "deferred"]
_TRIES = 3
REPEATS = hasattr(exceptions, "RetryModelRequest")
"""Whether this version of the framework makes a request once more if asked to, as 2.64 and newer ones do."""
MOST_CHARACTERS = 2_000
"""How much of an error is stored."""

UNSAVED = (StoreUnavailable, StoreBusy, OutcomeUnknown)
"""The errors of a store that takes nothing for now."""

SETTLE_SECONDS = (2.0, 4.0, 8.0, 16.0, 30.0)
"""How long the end of a run waits for a store that takes nothing, each time before it tries again."""


class ToolCall(Frozen, rename="camel", omit_defaults=True):
    """The call of a tool by the latest answer of a session, as far as it is stored.

    ``began`` without an end may have run. ``failed`` raised ``error``, ``deferred`` waits for a person or a program.
    ``may_repeat`` says that the tool may be called again with the same arguments, ``tools`` which ones it revealed.
    """

    call_id: str
    tool: str
    state: State
    may_repeat: bool = False
    error: str = ""
    tools: tuple[str, ...] = ()


async def tool_calls(session: Session) -> list[ToolCall]:
    """Return the calls of tools that the latest answer of a session asked for and that began, in that order. O(path).

    The state ``began`` means that a call may have run: its process ended before it could say.
    """
    return [*_calls_in(await session.get_active_path()).values()]


def _calls_in(path: Sequence[Entry]) -> dict[str, ToolCall]:
    """Return the calls of tools since the last answer of a path, by id."""
    calls: dict[str, ToolCall] = {}
    last = max((number for number, entry in enumerate(path) if is_answer(entry.kind, entry.role)), default=-1)
    for entry in path[last + 1 :]:
        if entry.kind == TOOL_CALL:
            with suppress(ValidationError):
                call = convert(entry.fields, ToolCall)
                calls[call.call_id] = call
        elif entry.kind == MESSAGE and entry.role == "toolResult":
            call_id = str(entry.fields.get("toolCallId"))
            if (begun := calls.get(call_id)) is not None:
                calls[call_id] = structs.replace(begun, state="done")
    return calls


class Journal:
    """The journal of one run: what its session has, and what a commit adds. Commits take turns.

    ``messages`` are those of the session when the run began, ``calls`` the calls of tools since the last answer, and
    ``results`` what is stored as the result of each, as parts of a request.
    """

    def __init__(
        self,
        store: Store,
        session: Session,
        agent: str | None,
        run_id: str,
        conversation_id: str,
        offload: OffloadSettings | None = None,
        on_unsaved: Callable[[FlueError], object] | None = None,
    ) -> None:
        self.session = session
        self.messages: list[ModelMessage] = []
        self.calls: dict[str, ToolCall] = {}
        self.results: dict[str, list[ModelRequestPart]] = {}
        self._store = store
        self._agent = agent
        self._run_id = run_id
        self._conversation_id = conversation_id
        self._offload = offload
        self._on_unsaved = on_unsaved
        self._unsaved: list[tuple[str, Sequence[NewEntry]]] = []
        self._turn = asyncio.Lock()
        self._attempt = store.backend.new_entry_id()
        self._commits = 0
        self._read = ReadMessages()
        # What is stored, by the identity of the objects, which are held on to: an id is used again.
        self._stored: dict[int, object] = {}
        self._round: dict[str, str | Sequence[UserContent] | None] = {}
        """The results since the last answer, by call, each with what its tool wants to say beside it."""

    # -- reading ----------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read the session. O(path)."""
        path = await self.session.get_active_path()
        messages = _answered(self._read.messages_of(groups_of(path, self._read.extra_of)))
        self.messages = rounds(messages)
        self.calls = _calls_in(path)
        for message in self.messages:
            self._note(message)
        for request in _behind_answer(messages):
            for call_id in filter(None, map(result_id, request.parts)):
                self.results[call_id] = [part for part in request.parts if result_id(part) in (call_id, None)]

    async def sent(self, request: ContextRequest | None) -> list[ModelMessage]:
        """Return a request of the session, None for all of its context, as messages of the framework. O(path)."""
        path, read = await self.session.get_active_path(), self._read
        groups = groups_of(path, read.extra_of)
        answered = _answered(read.messages_of(groups) if request is None else read.messages_sent(groups, request.items))
        if answered and isinstance(last := answered[-1], ModelResponse) and last.state == "interrupted":
            # The model is asked again; what it said before it broke off stays stored.
            answered.pop()
        return rounds(answered)

    @property
    def answer(self) -> ModelResponse | None:
        """The last answer of the messages."""
        return next((message for message in reversed(self.messages) if isinstance(message, ModelResponse)), None)

    def has_open_calls(self) -> bool:
        """Return whether calls of the last answer have neither a result nor somebody whom they wait for."""
        answer = self.answer
        if answer is None or answer.state == "interrupted":
            return False
        ids = [call.tool_call_id for call in answer.tool_calls if call.tool_call_id not in self.results]
        return any(call_id not in self.calls or self.calls[call_id].state != "deferred" for call_id in ids)

    def was_output(self) -> bool:
        """Return whether the last answer called a tool for output: such a call has a result, and no beginning."""
        return any(
            isinstance(part, ToolReturnPart) and part.outcome == "success" and part.tool_call_id not in self.calls
            for parts in self.results.values()
            for part in parts
        )

    def is_spoken_over(self) -> bool:
        """Return whether something was said behind the last answer that is no result of its calls."""
        results = {id(part) for parts in self.results.values() for part in parts}
        return any(id(part) not in results for request in _behind_answer(self.messages) for part in request.parts)

    def is_retry(self) -> bool:
        """Return whether the session ends with messages of this run. Raises `InvalidArgument` if others came after."""
        mine = [message.run_id == self._run_id for message in self.messages]
        if not any(mine):
            return False
        if not mine[-1]:
            raise InvalidArgument(
                f"run_id: session {self.session.id!r} has gone on since run {self._run_id!r}; begin a new run"
            )
        return True

    def has_prompt(self, prompt: str | Sequence[UserContent] | None) -> bool:
        """Return whether the prompt of this run is stored: it comes behind the results of calls that were open."""
        mine = [message for message in self.messages if message.run_id == self._run_id]
        if any(isinstance(message, ModelResponse) for message in mine):
            return True
        parts = [part for request in mine if isinstance(request, ModelRequest) for part in request.parts]
        contents = [part.content for part in parts if isinstance(part, UserPromptPart)]
        return prompt in contents or not any(map(result_id, parts))

    def used_results(self) -> set[str]:
        """Return the ids of the calls that have a result behind the last answer, or in this run."""
        mine = (part for message in self.messages if message.run_id == self._run_id for part in message.parts)
        return {*self.results, *(part.tool_call_id for part in mine if isinstance(part, ToolReturnPart))}

    def has_ended(self) -> bool:
        """Return whether the messages end with an answer that calls no tool."""
        answer = self.answer
        return answer is not None and self.messages[-1] is answer and not answer.tool_calls

    # -- writing ----------------------------------------------------------------------------------------------------

    async def add(self, messages: Sequence[ModelMessage]) -> None:
        """Commit the messages that are not stored. O(new messages)."""
        await self._in_turn(lambda: self._commit_new(messages))

    @property
    def is_behind(self) -> bool:
        """Whether the session lacks something that could not be stored so far."""
        return bool(self._unsaved)

    def goes_on(self, error: FlueError) -> bool:
        """Return whether the run goes on although the store takes nothing; tell of it if so."""
        if self._on_unsaved is None:
            return False
        self._on_unsaved(error)
        return True

    async def note_failure(self, error: Exception) -> None:
        """Commit why a request had no answer. No later request has that."""
        fields: JsonObject = {"error": f"{type(error).__name__}: {error}"[:MOST_CHARACTERS]}
        await self._in_turn(lambda: self._commit([NewEntry.custom(FAILED_REQUEST, fields)]))

    async def settle(self, sleep: Callable[[float], Awaitable[object]]) -> None:
        """Wait until everything is stored. Raises the error of the last try."""
        for seconds in SETTLE_SECONDS:
            if not self._unsaved:
                return
            await sleep(seconds)
            await self.add(())
        self._on_unsaved = None
        await self.add(())

    def begin_answer(self) -> None:
        """Forget the calls of the last answer: the next one may give its calls the same ids."""
        self.calls, self.results = {}, {}

    async def begin(self, messages: Sequence[ModelMessage], call: ToolCall) -> None:
        """Commit that a call begins, with the messages that are not stored: its answer is one of them."""
        await self._in_turn(lambda: self._commit_new(messages, NewEntry.custom(TOOL_CALL, to_builtins(call))))
        self.calls[call.call_id] = call

    async def end(self, call: ToolCall, parts: Sequence[ModelRequestPart] = ()) -> None:
        """Commit how a call ended: the parts of its result, or without any the row that says why."""
        await self._in_turn(lambda: self._commit_end(call, parts))
        self.calls[call.call_id] = call

    async def book(self, response: ModelResponse) -> Money | None:
        """Write the calls of an answer into the ledger, ahead of its entry, and return their cost in US dollars.

        None if that is not known, for a call that was reported before with other numbers as well.
        """
        calls = calls_of(*dumped_messages([replace(response, run_id=self._run_id)]))
        costs: list[int | None] = []
        for call in calls:
            usage = {name: value for name, value in call.items() if name not in NAMES_OF_A_CALL}
            provider, model = str(call.get("provider", "")), str(call.get("model", ""))
            record = partial(self.session.money.record_call, usage, provider=provider, model=model, agent=self._agent)
            try:
                booked = await record(call_id=str(call["callId"]))
            except CallConflict:
                return None
            costs.append(booked.picodollars)
        known = [cost for cost in costs if cost is not None]
        return picodollars_to_usd(sum(known)) if len(known) == len(calls) else None

    async def edit(self, paths: Sequence[str], root: str | PathLike[str] | None, *, is_over: bool = False) -> None:
        """Back up files that a tool is about to edit, or commit how they are after it."""
        files = self.session.files
        await self._in_turn(partial(files.after_edit if is_over else files.before_edit, paths, root=root))

    async def _in_turn(self, work: Callable[[], Coroutine[object, object, object]]) -> None:
        async with self._turn:
            # What was committed has to be noted, also if the run is cancelled meanwhile.
            await self._store.backend.waiting.finish(work())

    async def _commit_new(self, messages: Sequence[ModelMessage], *rows: NewEntry) -> None:
        fresh = self._new_of(messages)
        await self._commit([*self._entries([missing for _, missing in fresh]), *rows])
        for message, _ in fresh:
            self._note(message)

    async def _commit_end(self, call: ToolCall, parts: Sequence[ModelRequestPart]) -> None:
        entries: list[NewEntry] = []
        if not parts or call.tools:
            entries.append(NewEntry.custom(TOOL_CALL, to_builtins(call)))
        if parts:
            now = datetime.now(UTC)
            request = ModelRequest(
                parts=parts, run_id=self._run_id, conversation_id=self._conversation_id, timestamp=now
            )
            entries += self._entries([request])
        await self._commit(entries)
        if parts:
            self._round[call.call_id] = next((part.content for part in parts if isinstance(part, UserPromptPart)), None)

    async def _commit(self, entries: Sequence[NewEntry]) -> None:
        """Append entries behind those that could not be stored so far; tell of it if they cannot, either."""
        if entries:
            self._commits += 1
            self._unsaved.append((f"{self._attempt}:{self._commits}", entries))
        while self._unsaved:
            key, batch = self._unsaved.pop(0)
            try:
                await self._write(key, batch)
            except UNSAVED as error:
                if not self.goes_on(error):
                    raise
                self._unsaved.insert(0, (key, batch))
                return

    async def _write(self, key: str, entries: Sequence[NewEntry]) -> None:
        """Append entries below the leaf that this run has left, all or none; one whose outcome is unknown once more."""
        for tries_left in reversed(range(_TRIES)):
            try:
                async with self._store.atomic() as batch:
                    batch.append_entries(self.session, entries, offload=self._offload, idempotency_key=key)
            except OutcomeUnknown:
                if not tries_left:
                    raise
            else:
                return

    def _entries(self, messages: Sequence[ModelMessage]) -> list[NewEntry]:
        new_id = self._store.backend.new_entry_id
        named = [(new_id(), message) for message in messages]
        return [entry for entries in entries_of(named, None, self._agent) for entry in entries]

    # -- what is stored -----------------------------------------------------------------------------------------------

    def _new_of(self, messages: Sequence[ModelMessage]) -> list[tuple[ModelMessage, ModelMessage]]:
        """Return the messages at the end that are not stored, each with what is missing of it. O(new messages)."""
        fresh: list[tuple[ModelMessage, ModelMessage]] = []
        # Behind an answer that is not stored, no result is: its calls may have the ids of earlier ones.
        last = next((message for message in reversed(messages) if isinstance(message, ModelResponse)), None)
        results = self._round if last is None or id(last.parts) in self._stored else {}
        for message in reversed(messages):
            if isinstance(message, ModelResponse):
                if id(message.parts) in self._stored:
                    break
                results = self._round
                if REPEATS or not _never_began(message):
                    fresh.append((message, message))
                continue
            parts = [part for part in message.parts if not self._is_stored(part, results)]
            is_mark = not message.parts and message.state == "interrupted"
            if id(message) not in self._stored and not is_mark and (parts or not message.parts):
                fresh.append((message, replace(message, parts=parts)))
            if len(parts) < len(message.parts) or id(message) in self._stored:
                break
        return fresh[::-1]

    def _is_stored(self, part: ModelRequestPart, results: Mapping[str, object]) -> bool:
        if id(part) in self._stored or result_id(part) in results:
            return True
        return isinstance(part, UserPromptPart) and any(content is part.content for content in results.values())

    def _note(self, message: ModelMessage) -> None:
        if isinstance(message, ModelResponse):
            # Copies of an answer have the same list of parts.
            self._stored[id(message.parts)] = message.parts
            self._round.clear()
            return
        self._stored[id(message)] = message
        for part in message.parts:
            self._stored[id(part)] = part
            if (call_id := result_id(part)) is not None:
                self._round.setdefault(call_id, None)


def result_id(part: ModelRequestPart) -> str | None:
    """Return the id of the call that a part is the result of; None for any other part."""
    return part.tool_call_id if isinstance(part, ToolReturnPart) else None


def _never_began(response: ModelResponse) -> bool:
    """Return whether it stands for an answer of which nothing came, not even the name of its model."""
    named = response.model_name or response.provider_name or response.provider_response_id
    return not (response.parts or named or response.failed_attempts) and response.state == "interrupted"


def _answered(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the messages without answers that broke off, where the model was asked once more."""
    return [
        message
        for message, later in zip_longest(messages, messages[1:])
        if message.state != "interrupted"
        or not isinstance(message, ModelResponse)
        or not isinstance(later, ModelResponse)
    ]


def _behind_answer(messages: Sequence[ModelMessage]) -> list[ModelRequest]:
    """Return the requests behind the last answer."""
    behind: list[ModelRequest] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            behind.clear()
        else:
            behind.append(message)
    return behind


def rounds(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the messages with the results of an answer in one request, in the order of its calls."""
    joined: list[ModelMessage] = []
    order: dict[str, int] = {}
    for message in messages:
        if isinstance(message, ModelResponse):
            order = {call.tool_call_id: number for number, call in enumerate(message.tool_calls)}
        elif order and joined and isinstance(last := joined[-1], ModelRequest):
            parts = _in_order([*last.parts, *message.parts], order)
            instructions, run_id = message.instructions or last.instructions, message.run_id or last.run_id
            joined[-1] = replace(message, parts=parts, instructions=instructions, run_id=run_id)
            continue
        joined.append(message)
    return joined


def _in_order(parts: Sequence[ModelRequestPart], order: dict[str, int]) -> list[ModelRequestPart]:
    """Return parts in the order of the calls: results first, all else as it came."""
    return sorted(parts, key=lambda part: order.get(result_id(part) or "", len(order)))


# ---------------------------------------------------------------------------------------------------------------------
# The lease of a run on its session: a second run is told, and one whose process has ended is taken over.
#
# It is a `Claim` in the metadata of the session. On the same machine it holds as long as its process; elsewhere it is
# renewed while the run goes on. Whoever takes over moves the leaf, so that a run that only seemed to have ended commits
# nothing more.

LEASE = "recordedRun"
"""The field of a session's metadata that has the lease."""

TAKEN_OVER = "agents.taken_over"
"""The kind of the entry behind the last one of a run that was taken over."""


def _now() -> int:
    return int(datetime.now(UTC).timestamp())


@asynccontextmanager
async def leased(store: Store, session: Session) -> AsyncIterator[None]:
    """Hold the lease of a session in the block. Raises `SessionInUse`. Two writes."""
    claim = await _take(store, session)
    renewing = asyncio.create_task(_renew(session, claim))
    try:
        yield
    finally:
        renewing.cancel()
        claim.drop()
        with suppress(FlueError):
            # One that is not given back holds no longer than this process.
            await store.backend.waiting.finish(_set(session, claim, None))


async def _take(store: Store, session: Session) -> Claim:
    while True:
        # Whoever had the lease before has moved the leaf: the run builds on the session as it is stored now.
        info = await session.refresh()
        before = Claim.from_json(info.metadata.get(LEASE))
        if before is not None and before.holds(session.id, _now()):
            raise SessionInUse(
                session.id,
                f"an agent runs in it, in process {before.pid} on {before.host}; run again when that has ended",
            )
        claim = Claim.make(session.id, "", _now())
        try:
            async with store.atomic() as batch:
                batch.set_metadata(session, {LEASE: claim.to_json()}, merge=True, expected_revision=info.revision)
                if before is not None and before.session_id == session.id:
                    batch.append_entries(session, [NewEntry.custom(TAKEN_OVER, before.to_json())])
        except RevisionConflict:
            claim.drop()
        except BaseException:
            claim.drop()
            raise
        else:
            return claim


async def _set(session: Session, claim: Claim, renewed: Claim | None) -> None:
    """Set the lease of a claim, or with None end it, unless somebody else has taken it."""
    info = await stored_row(session)
    stored = Claim.from_json(info.metadata.get(LEASE))
    if stored is not None and stored.token == claim.token:
        fields = None if renewed is None else renewed.to_json()
        await session.set_metadata({LEASE: fields}, merge=True)


async def _renew(session: Session, claim: Claim) -> None:
    while True:
        await asyncio.sleep(ELSEWHERE_SECONDS / 3)
        if (renewed := claim.renewed(_now(), ELSEWHERE_SECONDS / 2)) is not None:
            with suppress(FlueError):
                await _set(session, claim, renewed)
