"""A call of a model of pydantic-ai: what is sent, how long it may take, what became of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import anyio
from pydantic_ai import direct
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from flue_py.adapters.messages.pydantic_ai import to_pydantic_ai
from flue_py.core.jsontext import JsonObject
from flue_py.core.model_seam import ModelReply, ModelRequest
from flue_py.core.native import sent_to
from flue_py.errors import InvalidArgument, ModelError, ModelUnavailable, shown
from flue_py.models.answers import failure_in, paid_call, reply_of
from flue_py.models.compacting import compacted, compaction_reply, provider_of_compactions
from flue_py.models.failures import Place, failure_of
from flue_py.models.secrets import Secrets

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model as TheirModel
    from pydantic_ai.models import StreamedResponse
    from pydantic_ai.settings import ModelSettings

_SECONDS_TO_CLOSE = 5.0


class CalledModel:
    """A model of pydantic-ai behind the seam. Made by `open_model`."""

    def __init__(
        self,
        model: TheirModel,
        *,
        settings: Mapping[str, object],
        context_window: int | None,
        max_output_tokens: int | None,
        stream: bool,
        secrets: Secrets,
        account: str | None = None,
    ) -> None:
        self._model = model
        self._account = account
        self._settings = dict(settings)
        self._context_window = context_window
        self._max_output_tokens = max_output_tokens
        self._stream = stream
        self._place = Place(model.model_name, model.system or None, secrets)

    @property
    def name(self) -> str:
        """Its name, as the provider has it."""
        return self._place.model

    @property
    def provider(self) -> str | None:
        """Who serves it, None if that is not known."""
        return self._place.provider

    @property
    def context_window(self) -> int | None:
        """How many tokens a request and its answer may have in all, None if that is not known."""
        return self._context_window

    @property
    def max_output_tokens(self) -> int | None:
        """How many tokens an answer may have, None if that is not known."""
        return self._max_output_tokens

    @property
    def account(self) -> str | None:
        """Whose account it is, as the caller named it; None if nobody did."""
        return self._account

    def __repr__(self) -> str:
        return f"<{self._place}>"

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Return the answer to a request, made by one call.

        An answer may be empty; one that calls tools is returned as it is. With ``request.compacts`` it is what the
        provider made of the messages; `ModelRefused` where it cannot. Raises `ModelError`; cancellation passes
        through, and what is no failure of the model or its provider, such as an error of a ``FunctionModel``.
        """
        if not isinstance(request, ModelRequest):
            raise InvalidArgument(f"request: should be a ModelRequest, not {shown(request)}")
        if request.compacts:
            return await self._compact(request)
        sent = _Sent(self._model, request, self._settings, self._account)
        failure: ModelError | None = None
        async with _opened(self._model):
            with anyio.move_on_after(request.timeout) as scope:
                try:
                    await sent.wait(stream=self._stream)
                except Exception as error:  # whatever a client raises
                    failure = failure_of(error, self._place, paid_call(sent.so_far(), self._place))
                    if failure is None:
                        raise
        if scope.cancelled_caught:
            failure = self._hung(request, paid_call(sent.so_far(), self._place))
        if failure is None:
            failure = failure_in(sent.answer, self._place, streamed=self._stream)
        if failure is not None:
            # Raised here, so that what it hides of the client's error is not in its context either.
            raise failure
        return reply_of(sent.answer, self._place)

    async def _compact(self, request: ModelRequest) -> ModelReply:
        failure: ModelError | None = None
        body: JsonObject = {}
        most = self._max_output_tokens
        if most is not None and request.max_tokens is not None and request.max_tokens > most:
            # A mode does not know the model's limit, and a provider refuses what is above it.
            request = replace(request, max_tokens=most)
        async with _opened(self._model):
            with anyio.move_on_after(request.timeout) as scope:
                try:
                    body = await compacted(self._model, request, self._settings, self._place, self._account)
                except ModelError:
                    raise
                except Exception as error:  # whatever a client raises
                    failure = failure_of(error, self._place, None)
                    if failure is None:
                        raise
        if scope.cancelled_caught:
            failure = self._hung(request, None)
        if failure is not None:
            raise failure
        return compaction_reply(body, self._place, self._account)

    def _hung(self, request: ModelRequest, so_far: JsonObject | None) -> ModelUnavailable:
        late = f"there was no whole answer within {request.timeout:g} seconds"
        failure = ModelUnavailable(
            f"{self._place}: {late}; call again, or give it a longer timeout",
            provider=self.provider,
            model=self.name,
            call=so_far,
        )
        failure.__cause__ = TimeoutError(late)
        return failure


@asynccontextmanager
async def _opened(model: TheirModel) -> AsyncIterator[None]:
    """Have the clients of a model for one call. No connection is left behind, also if the call is cancelled."""
    await model.__aenter__()
    try:
        yield
    finally:
        with anyio.move_on_after(_SECONDS_TO_CLOSE, shield=True):
            await model.__aexit__(None, None, None)


class _Sent:
    """One request on its way, and what has come of it so far."""

    def __init__(
        self, model: TheirModel, request: ModelRequest, settings: Mapping[str, object], account: str | None
    ) -> None:
        self._model = model
        provider = provider_of_compactions(model)
        first, *others = request.messages
        messages = [*sent_to(first, provider, account)]
        messages += [sent for message in others for sent in sent_to(message, None)]
        said: list[JsonObject] = [] if request.system is None else [{"role": "system", "content": request.system}]
        told: dict[str, object] = {} if request.max_tokens is None else {"max_tokens": request.max_tokens}
        if request.timeout is not None and "timeout" not in model.unsupported_settings:
            # Clients have a limit of their own, which may be the shorter one.
            told["timeout"] = float(request.timeout)
        self._request: dict[str, Any] = {
            "messages": to_pydantic_ai([*said, *messages]).messages,
            "model_settings": cast("ModelSettings", {**settings, **told}),
            "model_request_parameters": ModelRequestParameters(function_tools=[_tool(tool) for tool in request.tools]),
        }
        self._answer: ModelResponse | None = None
        self._coming: StreamedResponse | None = None

    @property
    def answer(self) -> ModelResponse:
        """The whole answer."""
        assert self._answer is not None
        return self._answer

    async def wait(self, *, stream: bool) -> None:
        """Send it, and wait for the whole answer."""
        if not stream:
            self._answer = await direct.model_request(self._model, **self._request)
            return
        async with direct.model_request_stream(self._model, **self._request) as coming:
            self._coming = coming
            async for _ in coming:
                pass
            self._answer = coming.get()

    def so_far(self) -> ModelResponse | None:
        """Return what has come of an answer that broke off; None where nothing is known of it."""
        try:
            return None if self._coming is None else self._coming.get()
        except Exception:  # noqa: BLE001 - it is asked for in the midst of a failure, and has nothing to tell
            return None


def _tool(tool: JsonObject) -> ToolDefinition:
    schema, description = cast("dict[str, Any]", tool["parameters"]), tool.get("description")
    described = description if isinstance(description, str) else None
    return ToolDefinition(name=str(tool["name"]), parameters_json_schema=schema, description=described)
