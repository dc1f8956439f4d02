"""How large the context of a session is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from flue_py import context
from flue_py.core.counting import ContextSize
from flue_py.core.jsontext import JsonValue
from flue_py.core.sessions import STORED, LeafChoice, check_label
from flue_py.errors import InvalidArgument, shown
from flue_py.sessions.arguments import checked_flag, checked_leaf
from flue_py.sessions.contexts import Contexts
from flue_py.sessions.handle import waiting_of


class Measuring(Contexts):
    """The size of the context of a `Session`."""

    __slots__ = ()

    async def measure_context(
        self,
        model: str | None = None,
        *,
        provider: str | None = None,
        leaf: LeafChoice = STORED,
        system: str | None = None,
        tools: Sequence[Mapping[str, JsonValue]] | None = None,
        window: int | None = None,
        faithful: bool = False,
        use_reported: bool = True,
    ) -> ContextSize:
        """Return how many tokens the context takes for ``model``; by default for the one that the path has at its leaf.

        What the provider reported counts where it is fresh, and our own count for what follows; `ContextSize` has both.
        ``provider`` leaves out what other providers reported. ``system`` is the system prompt, ``tools`` are the tools'
        definitions, as JSON: "" and () if there are none, None if they are unknown. A report above ``window``, the
        model's, is not believed. ``faithful`` counts as the reference does, ``use_reported=False`` counts everything.

        The cost of the context, and O(size) of what this process has not counted before, which other tasks do not wait
        for. Raises `EntryNotFound`, `InvalidArgument`.
        """
        offered = checked_request(model, provider, system, tools)
        if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):
            raise InvalidArgument(f"window: {shown(window)} is not a number of tokens >= 1; leave it out if unknown")
        checked_flag(faithful, "faithful")
        checked_flag(use_reported, "use_reported")
        found = await self._read_context(checked_leaf(leaf))
        if model is None:
            model = (await self._settings_of(found)).model
        counter = context.counters.counter_for(model, faithful=faithful)
        measure = partial(
            context.measuring.measure_context,
            found.items,
            counter,
            model=model,
            provider=provider,
            system=system,
            tools=offered,
            window=window,
            use_reported=use_reported,
            changed_at=context.measuring.changed_depth(found.tail),
        )
        try:
            return measure(only_known=True)
        except context.counters.NotCounted:
            return await waiting_of(self).call(measure)


def checked_request(
    model: str | None, provider: str | None, system: str | None, tools: Sequence[Mapping[str, JsonValue]] | None
) -> list[Mapping[str, JsonValue]] | None:
    """Check what a request is known by beside its messages, and return the tools. Raises `InvalidArgument`."""
    _check_name(model, "model")
    _check_name(provider, "provider")
    if system is not None and not isinstance(system, str):
        raise InvalidArgument(f"system: {shown(system)} is not the text of a system prompt")
    return None if tools is None else _checked_tools(tools)


def _check_name(name: str | None, what: str) -> None:
    check_label(name, what)
    if name == "":
        raise InvalidArgument(f"{what}: must not be empty; leave it out if it is unknown")


def _checked_tools(tools: Sequence[Mapping[str, JsonValue]]) -> list[Mapping[str, JsonValue]]:
    """Return definitions of tools as a list. Raises `InvalidArgument` for what is not one, `InvalidEntry` in one."""
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Sequence):
        raise InvalidArgument(f"tools: {shown(tools)} is not a list of the tools' definitions")
    for tool in tools:
        if not isinstance(tool, Mapping):
            raise InvalidArgument(f"tools: {shown(tool)} is not the definition of a tool, a JSON object")
    context.measuring.texts_of(tools)
    return list(tools)
