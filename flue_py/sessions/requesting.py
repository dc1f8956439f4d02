"""What one provider is sent of a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from flue_py.collector import collector_held
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.sessions import STORED, LeafChoice
from flue_py.errors import InvalidArgument, shown
from flue_py.lazy import lazy_module
from flue_py.sessions import rewriting
from flue_py.sessions.arguments import checked_text
from flue_py.sessions.gathering import Gathering
from flue_py.sessions.measuring import checked_request

if TYPE_CHECKING:
    from flue_py.context import attempts as attempting
    from flue_py.context import counters, pipeline, requests
    from flue_py.context import settings as context_settings
    from flue_py.context.attempts import Attempts
    from flue_py.context.requests import ContextRequest
    from flue_py.context.settings import AgentContext, ContextSettings
    from flue_py.context.sources.protocol import GatheredContext, SourceReader
    from flue_py.context.steps.protocol import Step
    from flue_py.wire import requests as wire_requests
    from flue_py.wire import rules, validity
    from flue_py.wire.lists import said as told
    from flue_py.wire.validity import Validity
else:
    attempting = lazy_module("flue_py.context.attempts")
    context_settings = lazy_module("flue_py.context.settings")
    counters = lazy_module("flue_py.context.counters")
    pipeline = lazy_module("flue_py.context.pipeline")
    requests = lazy_module("flue_py.context.requests")
    rules = lazy_module("flue_py.wire.rules")
    told = lazy_module("flue_py.wire.lists.said")
    validity = lazy_module("flue_py.wire.validity")
    wire_requests = lazy_module("flue_py.wire.requests")


class Requesting(Gathering):
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
        system: str | None = None,
        tools: Sequence[Mapping[str, JsonValue]] = (),
        sources: Mapping[str, SourceReader] | None = None,
        gathered: GatheredContext | None = None,
    ) -> ContextRequest:
        """Return what an agent is sent of the context, as ``target`` takes it, with a report of what was done to it.

        A target is ``anthropic``, ``openai-chat``, ``openai-responses`` or ``gemini``; without one the messages are
        ours, as `build_context` has them. The steps that ``settings`` ask for ``agent`` come first, then ``steps`` of
        your own; by default there are none. `ContextRequest.report` says of each what it left out, cut or replaced, by
        entry, with the tokens.

        Then what a target would refuse is mended, and each repair is named: every call of a tool gets its result,
        every result has its call, ids and names fit, images are within the limits, users and answers take turns where
        that is asked for. With ``model``, the one that is asked, tokens are counted as it does, and reasoning of any
        other is left out; without, tokens are those of the model that the path has. ``account`` is whose a compaction
        by the provider itself has to be. What the session stores is not changed, and the same leaf gives the same
        bytes.

        ``system`` is a prompt that the session does not have, and goes before all else; ``tools`` are those that are
        sent beside the messages, in whatever form. Both count in `ContextRequest.tokens`, and in its ``prefix_digest``:
        an answer that is appended with that (``produced_under``) has its signed reasoning in later requests as long as
        system, tools and the messages before it stay the same bytes.

        If the settings have a ``spec``, its sources are read now: ``sources`` are functions of yours by their names,
        beside those that come with the package. ``gathered``, from `gather_context`, is taken in their place, so that
        all requests of a turn say the same.

        `ContextRequest.broken` has what could not be mended: a request that is too large, or has no message. Raises
        `EntryNotFound`, and `InvalidArgument`, for settings with the path of each field that is wrong. The cost of the
        context, and O(its size); other tasks go on meanwhile.
        """
        offered = _checked_tools(system, tools)
        _, make = await self._requests(
            target, leaf, agent, settings, steps, model, account, system, offered, sources, gathered
        )
        return await self._backend.waiting.call(partial(make, ()))

    async def attempts(
        self,
        target: str | None = None,
        *,
        leaf: LeafChoice = STORED,
        agent: str | None = None,
        settings: ContextSettings | Mapping[str, object] | None = None,
        steps: Sequence[Step] = (),
        model: str | None = None,
        account: str | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, JsonValue]] = (),
        sources: Mapping[str, SourceReader] | None = None,
        gathered: GatheredContext | None = None,
    ) -> Attempts:
        """Return up to four attempts at a request: as `request` makes it, and then with less of what tools gave back.

        They are for ``async for`` (in synchronous code for ``for``). Each is a context manager, which takes a
        `ContextOverflow` that is raised inside it; the next one is then made anew from the whole: with results of tools
        cut after 4,000 characters, then after 500, then without tools. The last one lets the error pass. Where the
        settings have limits (`Fitting`), an attempt that is larger is passed over before it is sent; ``tools`` are
        counted in. What was cut is in the report of each.

        The other arguments, what is raised and what it costs are as in `request`; all attempts are of the context that
        was read when this was called.
        """
        offered = _checked_tools(system, tools)
        chosen, make = await self._requests(
            target, leaf, agent, settings, steps, model, account, system, offered, sources, gathered
        )
        return attempting.Attempts(
            make,
            chosen.fitting,
            offered,
            self._backend.waiting.call,
            addresses=chosen.addresses,
        )

    async def validate(
        self,
        target: str,
        *,
        leaf: LeafChoice = STORED,
        model: str | None = None,
        account: str | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, JsonValue]] = (),
    ) -> Validity:
        """Return what a provider would refuse of the context as it is, and what `request` changes so that it is taken.

        `Validity.broken` has where the context breaks the rules of ``target``, with the entry; `Validity.repairs` what
        `request` with the same arguments leaves out or changes, in the order in which that is done; `Validity.left`
        what breaks a rule after that. Nothing is written, and settings change nothing. Raises `EntryNotFound`,
        `InvalidArgument`. The cost of `request`.
        """
        name = rules.checked_target(target)
        checked_text(model, "model")
        checked_text(account, "account")
        offered = _checked_tools(system, tools)
        found = await self._read_context(leaf)

        def check() -> Validity:
            said = [*told.said_in(found.items)]
            if system:
                said.insert(0, told.Said({"role": "system", "content": system}))
            sent = wire_requests.wire_request(name, said, model=model, account=account, tools=offered)
            as_it_is = validity.broken_as_it_is(name, said, account=account, model=model)
            return validity.Validity(name, as_it_is, sent.repairs, sent.broken)

        return await self._backend.waiting.call(check)

    async def _requests(
        self,
        target: str | None,
        leaf: LeafChoice,
        agent: str | None,
        settings: ContextSettings | Mapping[str, object] | None,
        steps: Sequence[Step],
        model: str | None,
        account: str | None,
        system: str | None,
        tools: Sequence[JsonObject],
        sources: Mapping[str, SourceReader] | None,
        gathered: GatheredContext | None,
    ) -> tuple[AgentContext, Callable[[Sequence[Step]], ContextRequest]]:
        """Check the arguments of a request and read the context; return the agent's settings, and what makes a request.

        The latter takes further steps, which come last.
        """
        name = None if target is None else rules.checked_target(target)
        checked_text(agent, "agent")
        checked_text(model, "model")
        checked_text(account, "account")
        chosen = context_settings.context_settings(settings).of(agent)
        if isinstance(steps, (str, bytes)) or not isinstance(steps, Sequence):
            raise InvalidArgument(f"steps: {shown(steps)} is not a list of steps")
        own = [*map(pipeline.checked_step, steps)]
        known = self._checked_gathering(sources, gathered)
        found = await self._read_context(leaf, is_base=True)
        counted_as, provider = model, None
        if (counted_as is None and not chosen.faithful) or chosen.rewriting is not None:
            had = await self._settings_of(found)
            counted_as, provider = model or had.model, None if model else had.provider
        counter = counters.counter_for(counted_as, faithful=chosen.faithful)
        when = rewriting.epoch_rules(chosen, counted_as, provider, self._pricer)
        said = gathered
        if said is None:
            wanted = () if chosen.spec is None else chosen.spec.sources
            said = await self._gathered(wanted, found, agent, known)

        def make(further: Sequence[Step]) -> ContextRequest:
            with collector_held(len(found.items)):
                return requests.context_request(
                    found.items,
                    name,
                    chosen,
                    counter,
                    agent=agent,
                    steps=[*own, *further],
                    model=model,
                    account=account,
                    system=system,
                    tools=tools,
                    rules=when,
                    gathered=said,
                )

        return chosen, make


def _checked_tools(system: str | None, tools: Sequence[Mapping[str, JsonValue]]) -> list[JsonObject]:
    return [dict(tool) for tool in checked_request(None, None, system, tools) or ()]
