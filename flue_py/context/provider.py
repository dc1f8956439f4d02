"""What a provider is asked to leave out of a request itself, and what it is expected to leave out.

The messages go to it whole: it clears on its own side, by rules of its own. What that will be is estimated, so that it
is known before the answer comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flue_py.context.items import Item
from flue_py.context.report import ContextChange, StepReport
from flue_py.context.settings import ClearToolUses, ProviderEditing
from flue_py.context.steps.content import with_text
from flue_py.context.steps.protocol import View
from flue_py.context.steps.tools import tool_uses
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.shapes import Shape
from flue_py.wire.applied import applied_edits

STEP = "provider"
"""The name of the step that a report has for what a provider does itself."""

CONTEXT_MANAGEMENT = "context-management-2025-06-27"
"""The beta of Anthropic's that a request with edits has to name."""

_FIELD = "context_management"
_CLEARED = "[cleared]"
"""Stands for what the provider puts in place of a result: its words are its own."""


@frozen
class Editing:
    """What a request asks its provider to do: the fields beside its messages, and the betas that it names."""

    extra: JsonObject
    betas: tuple[str, ...]


NO_EDITING = Editing({}, ())


def editing_of(target: Shape | None, asked: ProviderEditing | None) -> Editing:
    """Return what a request of a target has for what the settings ask for; nothing where the provider cannot."""
    if asked is None:
        return NO_EDITING
    if target == "anthropic":
        # The API refuses a list in which the reasoning does not come first.
        edits: list[JsonValue] = [*_clear_thinking(asked), *_clear_tool_uses(asked.clear_tool_uses)]
        return Editing({_FIELD: {"edits": edits}}, (CONTEXT_MANAGEMENT,)) if edits else NO_EDITING
    if target == "openai-responses" and asked.compact_tokens:
        return Editing({_FIELD: [{"type": "compaction", "compact_threshold": asked.compact_tokens}]}, ())
    return NO_EDITING


def _clear_thinking(asked: ProviderEditing) -> Iterator[JsonValue]:
    if asked.keep_thinking_turns:
        kept: JsonObject = {"type": "thinking_turns", "value": asked.keep_thinking_turns}
        yield {"type": "clear_thinking_20251015", "keep": kept}


def _clear_tool_uses(asked: ClearToolUses | None) -> Iterator[JsonValue]:
    if asked is None:
        return
    edit: JsonObject = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": asked.trigger_tokens},
        "keep": {"type": "tool_uses", "value": asked.keep},
    }
    if asked.clear_at_least:
        edit["clear_at_least"] = {"type": "input_tokens", "value": asked.clear_at_least}
    if asked.exclude_tools:
        edit["exclude_tools"] = [*asked.exclude_tools]
    if asked.clear_tool_inputs:
        edit["clear_tool_inputs"] = True
    yield edit


def expected_editing(
    target: Shape | None, asked: ProviderEditing | None, items: Sequence[Item], view: View, beside: int
) -> StepReport | None:
    """Return what the provider is expected to clear of a request, as a step of its own; None if it is not asked to.

    ``beside`` is how many tokens system and tools take. What OpenAI compacts is not known before it has done so: that
    it will is told as an event of ``view``. O(size).
    """
    if asked is None or not editing_of(target, asked).extra:
        return None
    _tell_applied(items, view)
    tokens = beside + sum(map(view.tokens, items))
    changes: list[ContextChange] = []
    if target == "anthropic":
        made = dict(_without_thinking(items, asked.keep_thinking_turns))
        tokens -= sum(view.tokens(items[at]) - view.tokens(item) for at, item in made.items())
        made |= _without_results([made.get(at, item) for at, item in enumerate(items)], asked, view, tokens)
        sizes = [(items[at].entry_id, view.tokens(items[at]), view.tokens(item)) for at, item in sorted(made.items())]
        changes = [ContextChange(STEP, entry_id, "replaced", was, now) for entry_id, was, now in sizes if now < was]
    elif tokens > asked.compact_tokens:
        told = f"about {tokens:,} tokens are more than {asked.compact_tokens:,}: the provider compacts them itself"
        view.tell("provider_compaction", told)
    return StepReport(STEP, "the provider is asked to clear it itself", tuple(changes))


def _tell_applied(items: Sequence[Item], view: View) -> None:
    """Tell what the provider says that it cleared for its last answer."""
    last = next((item for item in reversed(items) if item.is_answer), None)
    if last is not None:
        for edit in applied_edits(last.message) or ():
            view.tell("provider_cleared", f"for the answer {last.entry_id} {edit}")


def _without_thinking(items: Sequence[Item], keep: int) -> Iterator[tuple[int, Item]]:
    """Yield the answers that lose their reasoning: all that have any, but for the so many newest; none for 0."""
    found = [at for at, item in enumerate(items) if item.is_answer and _kept_parts(item) is not None]
    for at in found[:-keep] if keep else ():
        kept = _kept_parts(items[at])
        yield at, items[at].replaced({**items[at].message, "content": kept or []})


def _kept_parts(item: Item) -> list[JsonValue] | None:
    """Return the parts of an answer beside its reasoning; None if it has no reasoning."""
    content = item.message.get("content")
    parts = content if isinstance(content, list) else []
    kept = [part for part in parts if not (isinstance(part, dict) and part.get("type") == "thinking")]
    return kept if len(kept) < len(parts) else None


def _without_results(items: Sequence[Item], asked: ProviderEditing, view: View, tokens: int) -> dict[int, Item]:
    """Return what is left of results, and calls, that are cleared, by place."""
    rule = asked.clear_tool_uses
    if rule is None or tokens <= rule.trigger_tokens:
        return {}
    uses = [use for use in tool_uses(items) if use.name not in rule.exclude_tools]
    made: dict[int, Item] = {}
    for use in uses[: max(len(uses) - rule.keep, 0)]:
        for at in use.results:
            made[at] = items[at].replaced(with_text(items[at].message, _CLEARED))
        if rule.clear_tool_inputs:
            caller = made.get(use.call.at, items[use.call.at])
            made[use.call.at] = caller.replaced(_without_input(caller.message, use.call.part))
    freed = sum(view.tokens(items[at]) - view.tokens(item) for at, item in made.items())
    return made if freed >= rule.clear_at_least else {}


def _without_input(message: JsonObject, part: int) -> JsonObject:
    content = message["content"]
    parts = [*content] if isinstance(content, list) else []
    called = parts[part]
    parts[part] = {**called, "arguments": {}} if isinstance(called, dict) else called
    return {**message, "content": parts}
