"""`Recorded`: the capability by which an agent of pydantic-ai keeps its runs in a session, step by step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

# The first import names the extra if the framework is missing.
from flue_py.agents.journal import MOST_CHARACTERS, REPEATS, UNSAVED, Journal, ToolCall, leased

# isort: split
from msgspec import structs
from pydantic_ai import CallToolsNode, UserPromptNode, exceptions
from pydantic_ai.capabilities import (
    AbstractCapability,
    AgentNode,
    CapabilityOrdering,
    NodeResult,
    WrapModelRequestHandler,
    WrapRunHandler,
    WrapToolExecuteHandler,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ToolCallPart,
    ToolReturn,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    repair_messages,
)
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext, Tool, ToolDefinition, ToolDenied
from pydantic_ai.toolsets import FunctionToolset

from flue_py.adapters.common import key_of, metadata_of
from flue_py.adapters.pydantic_ai_messages import session_of
from flue_py.agents.guard import CompactionGuard, check_parts
from flue_py.context.artifacts import READ_ADVICE, READ_ARTIFACT_TOOL, OffloadSettings
from flue_py.context.overflows import overflow_of
from flue_py.context.request import ContextRequest
from flue_py.context.settings import ContextSettings, context_settings
from flue_py.core.json import Frozen, JsonValue
from flue_py.core.kinds import message_text
from flue_py.core.sessions import TaskEnd
from flue_py.errors import ContextOverflow, FlueError, InvalidArgument, shown
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.sessions.write import checked_offload

if TYPE_CHECKING:
    from pydantic_ai.agent import AgentRunResult
    from pydantic_ai.models import Model, ModelRequestContext, StreamedResponse

MAY_REPEAT = "may_repeat"
"""The field of a tool's metadata that says that it may be called again with the same arguments."""

EDITS = "edits"
"""The field of a tool's metadata that names the argument with the path, or the paths, of the files that it edits."""

RETRY_SECONDS = (2.0, 4.0)
"""How long to wait before a request that failed is made once more, and once more."""

MAY_HAVE_RUN = (
    "This call began and its process ended before its result was stored: it may have run, and was not made again. "
    "Look at what it would have changed before you call it again."
)
"""The result of a call that may have run and must not be repeated, as the model reads it."""

Answer = TypeVar("Answer")
Prompt: TypeAlias = "str | Sequence[UserContent] | None"


class Recorded(AbstractCapability[Any]):
    """Keeps every run of an agent in a session of a store, each step before it has effects.

    A run goes on where the session of its ``conversation_id`` is, in any process. Its prompt is committed before the
    model is asked, each answer before one of its tools runs, each result by itself when its tool has returned. Calls
    that an earlier run has left open come first: those with a result are not made again, those of tools whose metadata
    say ``may_repeat`` are, and of all others that began the model reads that they may have run.

    A run with the ``run_id`` of one that the session ends with goes on with that one, and adds no prompt: a retry.
    A run inside a tool of such a run is a task session of it, unless it names another conversation.
    """

    def __init__(
        self,
        store: Store,
        session: Session | None = None,
        *,
        agent: str | None = None,
        context: ContextSettings | Mapping[str, object] | None = None,
        guard: Callable[[Session], CompactionGuard] | None = None,
        recovers: bool = True,
        retry_seconds: Sequence[float] = RETRY_SECONDS,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        files: str | PathLike[str] | None = None,
        offload: OffloadSettings | None = None,
        on_unsaved: Callable[[FlueError], object] | None = None,
    ) -> None:
        """Use an open store, with a session for each conversation, or with one ``session`` for all runs.

        ``agent`` is the name in the ledger, by default that of the agent. ``guard`` returns the guard of a session,
        which makes each request (`CompactionGuard.requests`); without one all of the context is sent, or the part that
        ``context`` selects (`Session.request`). If a request overflows, the guard (by default one without a model)
        compacts the session once, and results of tools are cut (`Session.context.attempts`); with ``recovers=False``
        the error is raised. Errors that may pass are tried again after ``retry_seconds``. ``files`` is the folder of
        the files that tools edit, by default the working directory of the session. ``offload`` says which results of
        tools are stored beside the session (`Session.append_message`); where a guard makes the requests, they have
        stubs in their place, and the model reads parts of them with the tool ``read_artifact``. With ``on_unsaved`` a
        run goes on in memory when the store takes nothing: that is told the error, the next commit that succeeds
        catches up, and the end of the run waits for one; a process that takes over does not know which tools ran
        meanwhile. Raises `InvalidArgument`.
        """
        check_parts(store, session, is_optional=True)
        self._store = store
        self._session = session
        self._agent = agent
        if context is not None and guard is not None:
            raise InvalidArgument("context: the guard makes the requests; give it the settings of the context")
        settings = None if context is None else context_settings(context)
        self._plan = RequestPlan(settings, guard, tuple(retry_seconds), sleep, recovers)
        self._files = files
        self._on_unsaved = on_unsaved
        if offload is not None:
            offload = structs.replace(checked_offload(offload), advice=offload.advice or READ_ADVICE)
        self._offload = offload
        self._requests_of_run: Requests | None = None
        self._messages: list[ModelMessage] = []
        self._prompt: Prompt = None

    @property
    def session(self) -> Session:
        """The session of this run. Raises `InvalidArgument` outside a run."""
        return self._of_run.session

    @property
    def _requests(self) -> Requests:
        if self._requests_of_run is None:
            raise InvalidArgument("this capability is not part of a run; the run has a copy of its own")
        return self._requests_of_run

    @property
    def _of_run(self) -> Journal:
        return self._requests.journal

    # -- a run ------------------------------------------------------------------------------------------------------

    def get_ordering(self) -> CapabilityOrdering:
        """Return that this is around all other capabilities: it stores what they leave."""
        return CapabilityOrdering(position="outermost")

    async def for_run(self, ctx: RunContext[Any]) -> AbstractCapability[Any]:
        """Return the capability of one run."""
        return copy(self)

    def get_toolset(self) -> FunctionToolset[Any] | None:
        """Return the tool that reads results which are stored beside the session; None if none are."""
        if self._offload is None:
            return None
        name, about, schema = READ_ARTIFACT_TOOL.values()
        tool = Tool.from_schema(self._read_artifact, str(name), str(about), cast("Any", schema), takes_ctx=True)
        return FunctionToolset([tool], metadata={MAY_REPEAT: True})

    async def _read_artifact(self, ctx: RunContext[Any], **arguments: JsonValue) -> str:
        answer = await self.session.artifacts.answer_read({"id": ctx.tool_call_id, "arguments": arguments})
        if answer["isError"]:
            raise exceptions.ToolFailed(message_text(answer))
        return message_text(answer)

    def get_default_run_id(self) -> str | None:
        """Return the id of a run inside a tool of a recorded run: the same again if its call is made again."""
        call = open_call(self._store)
        return None if call is None else call.next_run()

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """Return the id of the conversation of a task; None for any other run."""
        call = open_call(self._store)
        return run_id if call is not None and run_id.startswith(call.prefix) else None

    async def before_run(self, ctx: RunContext[Any]) -> None:
        """Give the run the messages of its session."""
        await self._of_run.load()
        ctx.messages[:] = self._of_run.messages
        self._messages = ctx.messages

    async def _session_of(self, conversation_id: str) -> Session:
        session = await session_of(self._store, conversation_id)
        if session is not None:
            return session
        metadata = metadata_of(conversation_id)
        return await self._store.open_session(key_of(conversation_id), mode="get_or_create", metadata=metadata)

    async def wrap_run(self, ctx: RunContext[Any], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Hold the lease of the session meanwhile, and commit what the run leaves behind, however it ends.

        Raises `InvalidArgument` for a run with a history, and `SessionInUse`.
        """
        if ctx.messages:
            raise InvalidArgument(
                "message_history: a recorded run has the messages of its session; name that by conversation_id alone"
            )
        agent = self._agent or (None if ctx.agent is None else ctx.agent.name)
        conversation_id, run_id = ctx.conversation_id or "", ctx.run_id or ""
        task = None
        if self._session is None and conversation_id == run_id:
            task = await task_session(self._store, run_id, agent)
        session = self._session or task or await self._session_of(conversation_id)
        async with leased(self._store, session):
            journal = Journal(self._store, session, agent, run_id, conversation_id, self._offload, self._on_unsaved)
            self._requests_of_run = Requests(self._plan, self._store, journal, agent)
            try:
                if self._files is not None:
                    await session.files.checkpoint(root=self._files)
                result: AgentRunResult[Any] = await handler()
                await journal.add(result.all_messages())
                await journal.settle(self._plan.sleep)
            except BaseException as error:
                await _noted(error, journal.add(self._messages))
                await _noted(error, _end(self._store, task, "failed", f"{type(error).__name__}: {error}"))
                raise
            if not isinstance(result.output, DeferredToolRequests):
                await _end(self._store, task, "done", str(result.output))
        return result

    # -- nodes ------------------------------------------------------------------------------------------------------

    async def before_node_run(self, ctx: RunContext[Any], *, node: AgentNode[Any]) -> AgentNode[Any]:
        """Begin with what an earlier run has left open, and commit an answer before it is acted on."""
        if isinstance(node, UserPromptNode):
            return self._first(ctx, node)
        self._messages = ctx.messages
        if isinstance(node, CallToolsNode):
            prompt, self._prompt = self._prompt, None
            if prompt is not None:
                return replace(node, user_prompt=prompt)
            if not node.model_response.tool_calls:
                await self._of_run.add(ctx.messages)
        return node

    def _first(self, ctx: RunContext[Any], node: UserPromptNode[Any, Any]) -> AgentNode[Any]:
        journal = self._of_run
        if journal.is_retry() and journal.has_prompt(node.user_prompt):
            node = replace(node, user_prompt=None)
        answer = journal.answer
        if node.deferred_tool_results is not None:
            node = replace(node, deferred_tool_results=self._not_used(node.deferred_tool_results))
        if node.deferred_tool_results is not None or answer is None:
            return node
        if journal.has_open_calls() and journal.is_spoken_over():
            # Whoever spoke did not wait for the calls; the model reads that they were not made.
            ctx.messages[:] = repair_messages(ctx.messages)
        elif journal.has_open_calls() or (journal.is_retry() and journal.was_output()):
            # The calls come first, with the results that are stored; the prompt follows those.
            while ctx.messages and isinstance(ctx.messages[-1], ModelRequest):
                ctx.messages.pop()
            self._prompt = node.user_prompt
            return replace(node, user_prompt=None)
        elif node.user_prompt is None and answer.state == "interrupted" and ctx.messages[-1] is answer:
            # The model is asked again; what it said before it broke off stays stored.
            ctx.messages.pop()
        return node

    def _not_used(self, results: DeferredToolResults) -> DeferredToolResults | None:
        """Return the results of calls that have none stored; None if an earlier try was given all of them."""
        # A later answer may call by the same id: what was said of the earlier call is not said of that one.
        used = {*results.calls, *results.approvals} & self._of_run.used_results()
        left = replace(results, calls={**results.calls}, approvals={**results.approvals})
        for call_id in used:
            left.calls.pop(call_id, None)
            left.approvals.pop(call_id, None)
        return left if left.calls or left.approvals or not used else None

    async def after_node_run(
        self, ctx: RunContext[Any], *, node: AgentNode[Any], result: NodeResult[Any]
    ) -> NodeResult[Any]:
        """End a run that has its answer already."""
        if isinstance(node, UserPromptNode) and self._of_run.is_retry() and self._of_run.has_ended():
            answer = self._of_run.answer
            assert answer is not None
            return CallToolsNode(answer)
        return result

    # -- model and tools --------------------------------------------------------------------------------------------

    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
    ) -> ModelResponse:
        """Commit the request, and have it answered on a reservation in the budgets that cover the session.

        Raises `BudgetExceeded` if they have too little left; nothing is sent then.
        """
        self._messages = ctx.messages
        await self._of_run.add(ctx.messages)
        self._of_run.begin_answer()
        try:
            await self._requests.begin()
            return await self._answered(request_context, handler)
        finally:
            await self._requests.end()

    async def _answered(self, request_context: ModelRequestContext, handler: WrapModelRequestHandler) -> ModelResponse:
        """Return the answer to a request, made on a reservation if budgets cover the session."""
        journal = self._of_run
        money = journal.session.money
        if not await money.budgets():
            return await handler(request_context)
        settings = request_context.model_settings or {}
        size = await journal.session.context.measure(request_context.model.model_name)
        response: ModelResponse | None = None
        try:
            async with money.budgeted(tokens=size.tokens + (settings.get("max_tokens") or 0)) as budgeted:
                try:
                    response = await handler(request_context)
                except BaseException as error:
                    if not (isinstance(error, exceptions.ModelHTTPError) and error.status_code < 500):
                        # It may have been paid for, whatever became of its answer.
                        budgeted.made()
                    raise
                budgeted.made()
                if response.usage.total_tokens:
                    budgeted.used(tokens=response.usage.total_tokens)
                if (cost := await journal.book(response)) is not None:
                    budgeted.used(cost=cost)
        except UNSAVED as error:
            # An answer that is there and paid for is kept, though the store does not take its booking.
            if response is None or not journal.goes_on(error):
                raise
        return response

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Return the request of an attempt with the messages that the session has for it."""
        return replace(request_context, messages=self.of_attempt(request_context.messages))

    if not REPEATS:
        # Versions that do not ask again lack that hook, too.
        before_model_request = prepare_model_request

    def get_wrapper_model(self, model: Model) -> Model | None:
        """Return the model that makes requests once more, where the framework does not."""
        return None if REPEATS else Attempts(model, self)

    def of_attempt(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        """Return the messages that an attempt sends, by default those of the framework."""
        return messages if self._requests.messages is None else [*self._requests.messages]

    async def on_model_request_error(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        """Have a request that failed made once more, where the framework does that. Raises as `meet` otherwise."""
        if not REPEATS:
            raise error
        await self.meet(error)
        raise exceptions.RetryModelRequest from error

    async def meet(self, error: Exception) -> None:
        """Commit that a request failed, and make it ready for another attempt, with less if it was too large.

        Raises the error if there is to be none, and `ContextOverflow` if nothing helps against that.
        """
        try:
            await self._of_run.note_failure(error)
        except FlueError as failure:
            error.add_note(f"that is not stored: {failure}")
            raise error from failure
        if not await self._requests.is_to_repeat(error):
            raise error

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: WrapToolExecuteHandler,
    ) -> object:
        """Commit that a call begins, make it, and commit its result; one that was made before is not made again."""
        journal = self._of_run
        may_repeat = bool((tool_def.metadata or {}).get(MAY_REPEAT))
        begun = journal.calls.get(call.tool_call_id)
        if (stored := journal.results.get(call.tool_call_id)) is not None:
            return _result_again(stored, () if begun is None else begun.tools)
        row = ToolCall(call.tool_call_id, call.tool_name, "began", may_repeat)
        if begun is not None and begun.state != "deferred" and not may_repeat:
            text = f"The call failed: {begun.error}" if begun.state == "failed" else MAY_HAVE_RUN
            await journal.end(row, [_failed(call, text)])
            await end_lost(self._store, journal.session, call.tool_call_id)
            raise exceptions.ToolFailed(text)
        await journal.begin(ctx.messages, row)
        try:
            paths = _paths_of(tool_def, args)
            if paths:
                await journal.edit(paths, self._files)
            open_before = _OPEN.set(OpenCall(self._store, journal.session, call.tool_call_id, ctx.messages))
            try:
                result: object = await handler(args)
            finally:
                _OPEN.reset(open_before)
            if paths:
                await journal.edit(paths, self._files, is_over=True)
            parts, tools = _parts_of(call, result)
            await journal.end(structs.replace(row, state="done", tools=tools), parts)
        except (exceptions.CallDeferred, exceptions.ApprovalRequired):
            await journal.end(structs.replace(row, state="deferred"))
            raise
        except (exceptions.ToolRetryError, exceptions.ToolFailedError) as error:
            part = error.tool_retry if isinstance(error, exceptions.ToolRetryError) else error.tool_failed
            await journal.end(structs.replace(row, state="done"), [part])
            raise
        except Exception as error:
            text = f"{type(error).__name__}: {error}"[:MOST_CHARACTERS]
            await journal.end(structs.replace(row, state="failed", error=text))
            raise
        return result


def _paths_of(tool_def: ToolDefinition, args: Mapping[str, object]) -> list[str]:
    """Return the paths of the files that a call edits, as the metadata of its tool say. Raises `InvalidArgument`."""
    name = (tool_def.metadata or {}).get(EDITS)
    if name is None:
        return []
    value = args.get(name)
    paths = [value] if isinstance(value, (str, PathLike)) else value
    if not isinstance(paths, (list, tuple)) or not all(isinstance(path, (str, PathLike)) for path in paths):
        raise InvalidArgument(
            f"{tool_def.name}: its metadata say that the argument {shown(name)} has the paths it edits, which "
            f"{shown(value)} is not; name the argument that has them"
        )
    return [*map(str, paths)]


def _failed(call: ToolCallPart, text: str) -> ToolReturnPart:
    return ToolReturnPart(call.tool_name, text, call.tool_call_id, tool_kind=call.tool_kind, outcome="failed")


def _parts_of(call: ToolCallPart, result: object) -> tuple[list[ModelRequestPart], tuple[str, ...]]:
    """Return the result of a tool as the parts that the framework makes of it, and the tools that it reveals."""
    if isinstance(result, ToolDenied):
        return [replace(_failed(call, result.message), outcome="denied")], ()
    whole = result if isinstance(result, ToolReturn) else ToolReturn(return_value=result)
    part = ToolReturnPart(
        call.tool_name, whole.return_value, call.tool_call_id, metadata=whole.metadata, tool_kind=call.tool_kind
    )
    beside = [UserPromptPart(whole.content)] if whole.content else []
    return [ToolReturnPart.narrow_type(part), *beside], tuple(whole.tools or ())


def _result_again(parts: Sequence[ModelRequestPart], tools: Sequence[str]) -> object:
    """Return a stored result as a tool returns it. Raises the framework's errors for one that was none."""
    part = next(part for part in parts if isinstance(part, ToolReturnPart))
    if part.outcome == "retried":
        raise exceptions.ToolRetryError(part)
    if part.outcome == "failed":
        raise exceptions.ToolFailedError(part)
    if part.outcome == "denied":
        return ToolDenied(str(part.content))
    content = next((part.content for part in parts if isinstance(part, UserPromptPart)), None)
    return ToolReturn(return_value=part.content, content=content, metadata=part.metadata, tools=list(tools) or None)


# ---------------------------------------------------------------------------------------------------------------------
# The requests of a run: the part of its session that is sent, and a second try of one that failed.

_TRANSIENT = (408, 409, 425, 429)
"""The status of requests that may be answered a little later; so may those of 500 and above."""


class RequestPlan(Frozen, eq=False):
    """How requests are made: the settings of the context, or the guard of a session, and the seconds between retries.

    With neither, the framework's own messages are sent, until they overflow.
    """

    settings: ContextSettings | None
    guard: Callable[[Session], CompactionGuard] | None
    retry_seconds: Sequence[float]
    sleep: Callable[[float], Awaitable[object]]
    recovers: bool


class Requests:
    """The requests of one run of an agent: those of the guard of its session, sent by the framework."""

    def __init__(self, plan: RequestPlan, store: Store, journal: Journal, agent: str | None) -> None:
        self._plan = plan
        self.journal = journal
        self._agent = agent or ""
        # Without a model it compacts by rules alone, and only what has overflowed.
        by_rules = partial(CompactionGuard, store, mode="intent", context=plan.settings)
        self._guard = (plan.guard or by_rules)(journal.session)
        self._is_guarded = plan.guard is not None or plan.settings is not None
        self._requests: AsyncGenerator[ContextRequest | None, None] | None = None
        self.messages: list[ModelMessage] | None = None
        """What an attempt sends, None for the messages of the framework."""
        self._retries = 0

    async def begin(self) -> None:
        """Begin with the request of a step: the guard compacts first, if that is due. Raises as its `requests`."""
        self._retries, self.messages = 0, None
        # What could not be stored is in the framework's own messages alone.
        if not self._is_guarded or self.journal.is_behind:
            return
        try:
            self.messages = await self.journal.sent(await anext(await self._opened()))
        except UNSAVED as error:
            if not self.journal.goes_on(error):
                raise
            await self.end()

    async def end(self) -> None:
        """Note that the request has been answered, or nobody makes it again."""
        requests, self._requests = self._requests, None
        if requests is not None:
            await requests.aclose()

    async def _opened(self) -> AsyncGenerator[ContextRequest | None, None]:
        self._requests = await self._guard.requests(self._agent)
        return self._requests

    async def is_to_repeat(self, error: Exception) -> bool:
        """Return whether a request that failed is made once more; wait or make room before that.

        An overflow has the session compacted once, if that lacks nothing, and is then met with less of the results of
        tools. An error that may pass by itself is tried again after the seconds of the plan. Raises `ContextOverflow`
        if nothing helps.
        """
        overflow = _overflow_of(error)
        if overflow is None:
            return await self._waits_for(error)
        if not self._plan.recovers or self.journal.is_behind:
            return False
        requests = self._requests
        if requests is None:
            # From here on the session has less than the framework.
            self._is_guarded = True
            requests = await self._opened()
            await anext(requests)
        self.messages = await self.journal.sent(await requests.athrow(overflow))
        return True

    async def _waits_for(self, error: Exception) -> bool:
        if not is_transient(error) or self._retries >= len(self._plan.retry_seconds):
            return False
        self._retries += 1
        wished = error.retry_after if isinstance(error, exceptions.ModelAPIError) else None
        await self._plan.sleep(max(self._plan.retry_seconds[self._retries - 1], wished or 0))
        return True


async def _noted(error: BaseException, work: Awaitable[object]) -> None:
    """Write the end of a run that failed. If the store does not take it, the error of the run says so."""
    try:
        await work
    except FlueError as failure:
        error.add_note(f"the end of the run is not stored: {failure}")


class Attempts(WrapperModel):
    """A model of a run for versions of the framework that do not make a request once more by themselves."""

    def __init__(self, wrapped: Model, recorded: Recorded) -> None:
        super().__init__(wrapped)
        self._recorded = recorded

    async def request(self, messages: list[ModelMessage], *settings: Any) -> ModelResponse:  # noqa: ANN401 - passed on
        """Return the answer to the last attempt. Raises its error."""
        return await self._last(lambda sent: self.wrapped.request(sent, *settings), messages)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        *settings: Any,  # noqa: ANN401 - passed on
    ) -> AsyncGenerator[StreamedResponse]:
        """Open the stream of the last attempt. Raises its error."""
        async with AsyncExitStack() as stack:
            attempt = self.wrapped.request_stream
            yield await self._last(lambda sent: stack.enter_async_context(attempt(sent, *settings)), messages)

    async def _last(
        self, attempt: Callable[[list[ModelMessage]], Awaitable[Answer]], messages: list[ModelMessage]
    ) -> Answer:
        while True:
            try:
                return await attempt(messages)
            except (exceptions.ModelRetry, exceptions.SkipModelRequest):
                raise
            except Exception as error:  # noqa: BLE001 - clients raise anything
                before = self._recorded.of_attempt(messages)
                await self._recorded.meet(error)
            # What others have put into the request stays, unless it is made anew.
            after = self._recorded.of_attempt(messages)
            messages = messages if after == before else after


def is_transient(error: Exception) -> bool:
    """Return whether the same request may be answered a little later."""
    if isinstance(error, exceptions.ModelHTTPError):
        return error.status_code in _TRANSIENT or error.status_code >= 500
    return isinstance(error, (exceptions.ModelConnectionError, ConnectionError, TimeoutError))


def _overflow_of(error: Exception) -> ContextOverflow | None:
    overflow = overflow_of(error)
    if overflow is None and isinstance(error, exceptions.ModelContextWindowExceededError):
        overflow = ContextOverflow(str(error))
    if overflow is not None and overflow is not error:
        overflow.__cause__ = error
    return overflow


# ---------------------------------------------------------------------------------------------------------------------
# Runs inside the tools of recorded runs: each is a task session of the run that made the call.
#
# The call that is made now is in a context variable, so that the agent of a tool needs no further parameter. Its run
# has an id made of the session and the call: if the call is repeated after a crash, its run goes on where it was.


class OpenCall:
    """The call of a tool that is made now, in a session of a store."""

    def __init__(self, store: Store, session: Session, call_id: str, messages: Sequence[ModelMessage]) -> None:
        self.store = store
        self.session = session
        self._call_id = call_id
        self._messages = messages
        self._runs = 0

    @property
    def prefix(self) -> str:
        """How the ids of runs inside this call begin."""
        return f"{self.session.id}/{self._call_id}/"

    def next_run(self) -> str:
        """Return the id of the next run inside this call: the same again if the call is made again. O(messages)."""
        self._runs += 1
        answers = [message for message in self._messages if isinstance(message, ModelResponse)]
        # Some models number their calls anew in each answer.
        times = sum(call.tool_call_id == self._call_id for answer in answers for call in answer.tool_calls)
        return f"{self.prefix}{times}/{self._runs}"


_OPEN: ContextVar[OpenCall | None] = ContextVar("_OPEN", default=None)


def open_call(store: Store) -> OpenCall | None:
    """Return the call that this task is part of, if its session is in the same store."""
    call = _OPEN.get()
    return call if call is not None and call.store is store else None


async def task_session(store: Store, run_id: str, agent: str | None) -> Session | None:
    """Return the task session of a run with an id of `OpenCall.next_run`; None for any other run.

    Raises `TaskDepthExceeded`. One write.
    """
    call = open_call(store)
    if call is None or not run_id.startswith(call.prefix):
        return None
    return await call.session.tasks.create(task_id=run_id.removeprefix(f"{call.session.id}/"), title=agent)


async def end_lost(store: Store, session: Session, call_id: str) -> None:
    """Note that the tasks of a call have failed whose process ended, and which nobody goes on with. O(tasks)."""
    for link in await session.tasks.links():
        task = await store.get_session(link.child_id)
        if link.status == "running" and link.task_id.startswith(f"{call_id}/"):
            await _end(store, task, "failed", "its process ended, and its call is not made again")


async def _end(store: Store, task: Session | None, status: TaskEnd, summary: str) -> None:
    if task is not None:
        await store.backend.waiting.finish(task.tasks.end(status, summary=summary[:MOST_CHARACTERS]))
