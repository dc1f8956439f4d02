"""The blocking twin of a guard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.runtime.guard import CompactionGuard as AsyncGuard
from flue_py.runtime.guard import GuardAnswer
from flue_py.sync import Session, Store
from flue_py.sync.plain import PlainHook, awaited, checked_parts, checked_plain, hook_of
from flue_py.sync.twins import Twin, blocking, parts_of

if TYPE_CHECKING:
    from flue_py.compaction.modes import Mode
    from flue_py.compaction.policy import CompactionSettings
    from flue_py.compaction.triggers import TriggerSettings
    from flue_py.context.blocks.protocol import Block, BlockFailure
    from flue_py.context.report import ContextReport
    from flue_py.context.settings import ContextSettings
    from flue_py.context.sources.protocol import SourceReader
    from flue_py.core.model_seam import Model

Result = TypeVar("Result")


class CompactionGuard(Twin[AsyncGuard]):
    """The blocking twin of `flue_py.runtime.guard.CompactionGuard`: what it calls are plain functions.

    ``model`` and ``summarizer`` are models as ever.
    """

    def __init__(
        self,
        store: Store,
        session: Session,
        model: Model | None = None,
        *,
        summarizer: Model | None = None,
        mode: str | Mode | None = None,
        settings: CompactionSettings | None = None,
        triggers: TriggerSettings | None = None,
        window: int | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, JsonValue]] | None = None,
        on_answer: Callable[[GuardAnswer], object] | None = None,
        before_compaction: PlainHook | None = None,
        context: ContextSettings | Mapping[str, object] | None = None,
        sources: Mapping[str, SourceReader] | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        patience: float = 120.0,
        blocks: Iterable[Block] = (),
        stop_over_budget: bool = False,
    ) -> None:
        checked_parts(store, session)
        way, original = parts_of(store)
        guard = AsyncGuard(
            original,
            parts_of(session)[1],
            model,
            summarizer=summarizer,
            mode=mode,
            settings=settings,
            triggers=triggers,
            window=window,
            system=system,
            tools=tools,
            on_answer=on_answer,
            before_compaction=hook_of(original.backend.waiting, before_compaction),
            context=context,
            sources=sources,
            clock=clock,
            patience=patience,
            blocks=blocks,
            stop_over_budget=stop_over_budget,
        )
        super().__init__(way, guard)
        self._store = store
        self._session = session

    @property
    def store(self) -> Store:
        """The store that the session is in."""
        return self._store

    @property
    def session(self) -> Session:
        """The session that it guards; another one has a guard of its own."""
        return self._session

    @property
    def block_failures(self) -> tuple[BlockFailure, ...]:
        """The blocks that failed before the latest call, and why."""
        return self._original.block_failures

    @property
    def context_report(self) -> ContextReport | None:
        """What the settings did to the latest request of `call`, with what they tell; None without any."""
        return self._original.context_report

    before_call = blocking(AsyncGuard.before_call)
    after_call = blocking(AsyncGuard.after_call)
    resumed = blocking(AsyncGuard.resumed)
    compact = blocking(AsyncGuard.compact)
    decide = blocking(AsyncGuard.decide)
    should_compact = blocking(AsyncGuard.should_compact)
    request = blocking(AsyncGuard.request)
    state = blocking(AsyncGuard.state)
    reset = blocking(AsyncGuard.reset)
    recover = blocking(AsyncGuard.recover)

    def call(self, ask: Callable[[list[JsonObject]], Result], *, agent: str = "") -> Result:
        way, original = parts_of(self)
        asked = awaited(self._store.backend.waiting, checked_plain(ask, "ask"))
        return way.call(partial(original.call, asked, agent=agent))

    call.__doc__ = AsyncGuard.call.__doc__
