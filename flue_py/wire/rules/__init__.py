"""What providers refuse: a table of rules and one of limits for each, and the check of a request.

    broken_rules("anthropic", messages, system)

A target is the name of a form: ``anthropic``, ``openai-chat``, ``openai-responses`` or ``gemini``. The rules are those
that the providers document or answer with an error; that a request breaks none does not prove that it is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flue_py.core.jsontext import JsonValue
from flue_py.core.shapes import Shape
from flue_py.wire.rules import anthropic, gemini, openai_chat, openai_responses, sizes
from flue_py.wire.rules.limits import LIMITS, RequestLimits, checked_target, limits_of
from flue_py.wire.rules.rule import Broken, Rule, SentRequest

__all__ = ["LIMITS", "RULES", "Broken", "RequestLimits", "Rule", "broken_rules", "checked_target", "limits_of"]

RULES: Mapping[Shape, tuple[Rule, ...]] = {
    "anthropic": (*anthropic.RULES, sizes.SIZE, sizes.TOOLS),
    "openai-chat": (*openai_chat.RULES, sizes.TEXTS, sizes.TOOLS),
    "openai-responses": (*openai_responses.RULES, sizes.TEXTS, sizes.TOOLS),
    "gemini": (*gemini.RULES, sizes.TOOLS),
}
_FIELDS: Mapping[Shape, tuple[str, str]] = {
    "anthropic": ("content", "messages"),
    "openai-chat": ("content", "messages"),
    "openai-responses": ("content", "input"),
    "gemini": ("parts", "contents"),
}
"""In which field a message has its parts, and a request its messages."""


def broken_rules(
    target: str,
    messages: Sequence[Mapping[str, JsonValue]],
    system: JsonValue = None,
    *,
    limits: RequestLimits | None = None,
    tools: Sequence[Mapping[str, JsonValue]] = (),
) -> tuple[Broken, ...]:
    """Return where a request breaks the rules of a target, in the order of the rules; () if it breaks none.

    ``messages`` are as the provider takes them, ``system`` and ``tools`` are what the request has beside them.
    ``limits`` are those of the target unless others are given. Raises `InvalidArgument` for a target that is none.
    O(size).
    """
    name = checked_target(target)
    request, within = SentRequest(messages, system, *_FIELDS[name], tools), limits or LIMITS[name]
    return tuple(Broken(rule.name, *found) for rule in RULES[name] for found in rule.find(request, within))
