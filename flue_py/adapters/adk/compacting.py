"""Compactions of ADK as compactions of ours.

ADK's stands for the events of a span of time, and leaves the others as they are. Ours stands for all that comes before
the first kept entry. So the summary of ours is that of all of ADK's that count, one below the other; where they leave
out something that came before, the event is kept as an event only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flue_py.adapters.adk.events import Compaction, Found
from flue_py.compaction import estimate_context_tokens
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.sessions.session import Session


class _Span(NamedTuple):
    start: float
    end: float
    text: str


async def compaction_of(
    session: Session, leaf: str | None, event: JsonObject, before: Sequence[Found]
) -> Compaction | None:
    """Return the compaction that an event asks for below the events of its path; None if ours has no form for it."""
    spans = [span for each in (*(found.event for found in before), event) if (span := _span(each)) is not None]
    spans = [span for number, span in enumerate(spans) if not _is_within(span, spans[number + 1 :])]
    raw = [found for found in before if _span(found.event) is None]
    end = max(span.end for span in spans)
    old = [found for found in raw if found.time <= end]
    kept = [found for found in raw if found.time > end]
    is_prefix = all(any(span.start <= found.time <= span.end for span in spans) for found in old)
    if not old or not is_prefix or raw != [*old, *kept]:
        return None
    context = await session.build_context_entries(leaf=leaf)
    summary = "\n\n".join(span.text for span in sorted(spans))
    first = None if not kept else kept[0].entries[0].id
    return Compaction(summary, first, estimate_context_tokens(context).tokens)


def _is_within(span: _Span, later: Sequence[_Span]) -> bool:
    return any(other.start <= span.start and span.end <= other.end for other in later)


def _span(event: JsonObject) -> _Span | None:
    actions = event.get("actions")
    told = actions.get("compaction") if isinstance(actions, dict) else None
    if not isinstance(told, dict):
        return None
    start, end, content = told.get("startTimestamp"), told.get("endTimestamp"), told.get("compactedContent")
    if not isinstance(start, (int, float)) or not isinstance(end, (int, float)) or not isinstance(content, dict):
        return None
    return _Span(start, end, _text(content.get("parts")))


def _text(parts: JsonValue) -> str:
    said = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return "\n".join(str(part["text"]) for part in said if part.get("text") and not part.get("thought"))
