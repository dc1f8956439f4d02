"""Compaction of a session by a model of the caller: who writes the summary, and when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias, cast

from agents import Model, ModelSettings, ModelTracing

from flue_py.adapters.openai_agents.items import OTHER
from flue_py.adapters.openai_agents.spending import usage_of
from flue_py.compaction import (
    CompactionSettings,
    CompactionSummary,
    Complete,
    NoCompaction,
    SessionCompactionPlan,
    SummaryReply,
    SummaryRequest,
    estimate_context_tokens,
    estimate_tokens,
    plan_session_compaction,
    should_compact,
)
from flue_py.core.kinds import MESSAGE
from flue_py.core.projection import ContextEntry
from flue_py.errors import AnsweredCall, EntryNotFound, InvalidArgument, LeafConflict, shown
from flue_py.sessions.session import Session

if TYPE_CHECKING:
    from agents import ModelResponse, Usage

    from flue_py.core.jsontext import JsonObject

Told: TypeAlias = "Callable[[Usage], None]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
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

    def completing(self, told: Told) -> Complete:
        """Return what makes one call of the model; ``told`` is called with what each used, where the SDK says."""
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
            told(response.usage)
            usage = usage_of(response.usage) if response.usage.requests or response.usage.total_tokens else {}
            named = {"callId": response.response_id} if response.response_id else {}
            return SummaryReply(_text_of(response), {**usage, **named})

        return complete


async def planned(
    session: Session, compaction: Compaction, *, force: bool
) -> tuple[str | None, SessionCompactionPlan] | None:
    """Return the leaf and where to cut its context; None where no compaction is due, or nothing can be cut off.

    With ``force`` the size does not matter: if nothing else can be cut off, the last turn is kept. O(context).
    """
    items = await session.build_context_entries()
    leaf = session.leaf_id
    size = estimate_context_tokens(items).tokens
    if not force and not should_compact(size, compaction.context_window, compaction.settings):
        return None
    if any(item.role == OTHER for item in items):
        # Nobody can sum up what is encrypted.
        return None
    latest, pins = await session.latest_compaction(), await session.pins()
    found = plan_session_compaction(items, latest, compaction.settings, pinned=pins)
    if isinstance(found, NoCompaction) and force:
        settings = replace(compaction.settings, keep_recent_tokens=_last_turn_tokens(items))
        found = plan_session_compaction(items, latest, settings, pinned=pins)
    return None if isinstance(found, NoCompaction) else (leaf, found)


def _last_turn_tokens(items: Sequence[ContextEntry]) -> int:
    starts = [number for number, item in enumerate(items) if item.role == "user" and item.kind == MESSAGE]
    return sum(estimate_tokens(item.data) for item in items[starts[-1] if starts else 0 :])


async def append_compaction(
    session: Session, leaf: str | None, found: SessionCompactionPlan, summary: CompactionSummary
) -> bool:
    """Append a compaction at the leaf that it was planned for. If the session has moved on, only its calls are kept."""
    try:
        await session.append_compaction(
            summary.text,
            first_kept_entry_id=found.first_kept_entry_id,
            tokens_before=found.plan.tokens_before,
            details=summary.details,
            calls=summary.usages,
            expected_leaf=leaf,
        )
    except (LeafConflict, EntryNotFound):
        await record_discarded(session, summary.calls)
        return False
    return True


async def record_discarded(session: Session, calls: Sequence[AnsweredCall]) -> None:
    """Write into the ledger what was paid for a summary that is not used."""
    for call in calls:
        usage = cast("JsonObject", dict(call.usage or {}))
        call_id = usage.pop("callId", None)
        named = call_id if isinstance(call_id, str) else None
        await session.record_call(usage, purpose="compaction", outcome="discarded", call_id=named)


def _text_of(response: ModelResponse) -> str:
    parts = [part for item in response.output if item.type == "message" for part in item.content]
    return "".join(part.text for part in parts if part.type == "output_text")
