"""Making the context of a session fit into the window of another model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from flue_py.core.jsontext import JsonValue
from flue_py.errors import InvalidArgument
from flue_py.lazy import lazy_module
from flue_py.sessions.arguments import checked_count, checked_text
from flue_py.sessions.asking import model_of
from flue_py.sessions.compacting import Compacting
from flue_py.sessions.measuring import Measuring

if TYPE_CHECKING:
    from flue_py.compaction import modes, policy, result
    from flue_py.compaction.modes import Mode
    from flue_py.compaction.policy import CompactionSettings
    from flue_py.compaction.result import CompactionResult, Fitted
    from flue_py.core.model_seam import Model
else:
    modes = lazy_module("flue_py.compaction.modes")
    policy = lazy_module("flue_py.compaction.policy")
    result = lazy_module("flue_py.compaction.result")


class Fitting(Compacting, Measuring):
    """How a `Session` goes on with another model."""

    __slots__ = ()

    async def fit_to(
        self,
        model: Model,
        *,
        compactor: Model | None = None,
        mode: str | Mode | None = None,
        settings: CompactionSettings | None = None,
        instructions: str | None = None,
        window: int | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, JsonValue]] | None = None,
    ) -> Fitted:
        """Make the context fit into the window of ``model``, which is to go on with the session, and say if it does.

        Call it before the first request to the other model. Nothing is done where the context, as the counter for that
        model counts it, leaves ``settings.reserve_tokens`` free. Otherwise it is compacted by ``compactor``, which
        should be the larger model that the session had so far, or else by ``model`` itself, in parts; with less of the
        end kept word for word each time, three times at most. ``window`` is by default that of ``model``, ``system``
        and ``tools`` are counted in. One message alone that is larger than the window does not fit, whatever is done.

        Raises `InvalidArgument` where the window is unknown, and otherwise as `compact`; what was compacted until then
        stays.
        """
        target = model_of(model)
        asked = target if compactor is None else model_of(compactor, "compactor")
        window = target.context_window if window is None else checked_count(window, "window")
        if not window:
            raise InvalidArgument(f"window: the context window of model {target.name!r} is not known; give it")
        settings = policy.checked_settings(settings)
        modes.checked_mode(mode, settings, has_model=True)
        checked_text(instructions, "instructions")
        sized = policy.sized_for(settings, window)
        room, keep = window - sized.reserve_tokens, sized.keep_recent_tokens
        measure = partial(self.measure_context, target.name, system=system, tools=tools, use_reported=False)
        made: list[CompactionResult] = []
        size = await measure()
        for kept in (keep, keep // 4, 0):
            if size.tokens <= room:
                break
            less = replace(settings, keep_recent_tokens=kept)
            done = await self.compact(
                asked,
                mode=mode,
                settings=less,
                instructions=instructions,
                window=window,
                system=system,
                tools=tools,
            )
            made.append(done)
            size = await measure()
        return result.Fitted(size.tokens <= room, size.tokens, room, tuple(made))
