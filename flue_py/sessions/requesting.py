"""What one provider is sent of a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flue_py.core.sessions import STORED, LeafChoice
from flue_py.errors import InvalidArgument, shown
from flue_py.lazy import lazy_module
from flue_py.sessions.arguments import checked_text
from flue_py.sessions.contexts import Contexts

if TYPE_CHECKING:
    from flue_py.context import counters, pipeline, requests
    from flue_py.context import settings as context_settings
    from flue_py.context.requests import ContextRequest
    from flue_py.context.settings import ContextSettings
    from flue_py.context.steps.protocol import Step
    from flue_py.wire import rules
else:
    context_settings = lazy_module("flue_py.context.settings")
    counters = lazy_module("flue_py.context.counters")
    pipeline = lazy_module("flue_py.context.pipeline")
    requests = lazy_module("flue_py.context.requests")
    rules = lazy_module("flue_py.wire.rules")


class Requesting(Contexts):
    """The requests of a `Session`."""

    __slots__ = ()

    async def request(
        self,
        target: str | None = None,
        *,
        leaf: LeafChoice = STORED,
        agent: str | None = None,
        settings: ContextSettings | Mapping[str, object] | None = None,
        steps: Sequence[Step] = (),
        model: str | None = None,
        account: str | None = None,
    ) -> ContextRequest:
        """Return what an agent is sent of the context, as ``target`` takes it, with a report of what was done to it.

        A target is ``anthropic``, ``openai-chat``, ``openai-responses`` or ``gemini``; without one the
        messages are ours, as `build_context` has them. The steps that ``settings`` ask
        for ``agent`` come first, then ``steps`` of your own; by default there are none. `ContextRequest.report` says of
        each what it left out, cut or replaced, by entry, with the tokens.

        Then what a target would refuse is mended, and each repair is named: every call of a tool gets its result,
        every result has its call, ids and names fit, images are within the limits, users and answers take turns where
        that is asked for. With ``model``, the one that is asked, tokens are counted as it does, and reasoning of any
        other is left out; without, tokens are those of the model that the path has. ``account`` is whose a compaction
        by the provider itself has to be. What the session stores is not changed, and the same leaf gives the same
        bytes.

        `ContextRequest.broken` has what could not be mended: a request that is too large, or has no message. Raises
        `EntryNotFound`, and `InvalidArgument`, for settings with the path of each field that is wrong. The cost of the
        context, and O(its size); other tasks go on meanwhile.
        """
        name = None if target is None else rules.checked_target(target)
        checked_text(agent, "agent")
        checked_text(model, "model")
        checked_text(account, "account")
        chosen = context_settings.context_settings(settings).of(agent)
        if isinstance(steps, (str, bytes)) or not isinstance(steps, Sequence):
            raise InvalidArgument(f"steps: {shown(steps)} is not a list of steps")
        own = [*map(pipeline.checked_step, steps)]
        found = await self._read_context(leaf)
        counted_as = model
        if counted_as is None:
            counted_as = (await self.settings(leaf=found.stamp.leaf_id)).model
        return await self._backend.waiting.call(
            lambda: requests.context_request(
                found.items,
                name,
                chosen,
                counters.counter_for(counted_as),
                agent=agent,
                steps=own,
                model=model,
                account=account,
            )
        )
