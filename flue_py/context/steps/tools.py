"""Which tool made a result, and with which arguments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flue_py.context.items import Item
from flue_py.context.steps.content import PATH
from flue_py.core.exchange import Call, Pairing
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue


@frozen
class ToolUse:
    """A call of a tool: where its message is, the call, its name and arguments, and where its results are."""

    call: Call
    name: str
    arguments: JsonObject
    results: Sequence[int]


def pairing_of(items: Sequence[Item]) -> Pairing:
    """Return which results answer which calls in some messages. Only those that call or answer are decoded. O(size)."""
    return Pairing([item.message if item.is_answer or item.is_result else None for item in items])


def tool_uses(items: Sequence[Item]) -> list[ToolUse]:
    """Return the calls of tools in some messages, in order, with the places of their results. O(size)."""
    pairing = pairing_of(items)
    return [
        ToolUse(call, _text(part.get("name")), _object(part.get("arguments")), pairing.results[call])
        for call, part in pairing.parts.items()
    ]


def tool_of_results(items: Sequence[Item]) -> dict[int, str]:
    """Return the name of the tool of each result, by its place: that of its call, or else what the result names."""
    named = {at: use.name for use in tool_uses(items) for at in use.results}
    for at, item in enumerate(items):
        if item.is_result and not named.get(at):
            named[at] = _text(item.message.get("toolName"))
    return named


def plain_name(name: str) -> str:
    """Return the name of a tool without case, ``_`` and ``-``: ``ReadFile`` is ``read_file``."""
    return name.casefold().replace("_", "").replace("-", "")


def plain_names(names: Iterable[str]) -> frozenset[str]:
    """Return the names of tools, each as `plain_name` has it."""
    return frozenset(map(plain_name, names))


def path_of(arguments: JsonObject) -> str | None:
    """Return the argument ``path`` of a call, whatever the case of its name; None if it has none."""
    for name, value in arguments.items():
        if name.casefold() == PATH:
            return value if isinstance(value, str) else None
    return None


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}
