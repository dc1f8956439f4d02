"""What OpenAI's Responses API refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from flue_py.core.jsontext import JsonValue
from flue_py.wire.openai_chat import is_text_of_object
from flue_py.wire.rules.limits import RequestLimits
from flue_py.wire.rules.openai_chat import picture_at
from flue_py.wire.rules.pictures import Picture, wrong_pictures
from flue_py.wire.rules.rule import Found, Rule, SentRequest

_ROLES = frozenset({"system", "developer", "user", "assistant"})
_REASONING = "reasoning"
_NAMED_CALLS = frozenset({"function_call", "custom_tool_call"})
_SERVER_CALLS = frozenset({
    "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call",
})  # fmt: skip
"""Calls that the API runs itself: they have no output of their own."""
_KINDS = re.compile(
    r"message|reasoning|compaction\w*|item_reference|program|\w+_(call|output|response|request|list_tools)"
)
_FROM_THE_MODEL = ("_call", "mcp_list_tools", "mcp_approval_request", "compaction")


def kind_of(item: Mapping[str, JsonValue]) -> str:
    """Return the type of an item: of one that says none, that of a message."""
    found = item.get("type", "message" if "role" in item else "")
    return found if isinstance(found, str) else ""


@lru_cache(maxsize=256)
def is_known(kind: str) -> bool:
    """Return whether a type is one of this form, so far as the names of its types tell."""
    return _KINDS.fullmatch(kind) is not None


def is_of_the_model(item: Mapping[str, JsonValue]) -> bool:
    """Return whether the model made an item."""
    kind = kind_of(item)
    return (kind == "message" and item.get("role") == "assistant") or kind.endswith((*_FROM_THE_MODEL, _REASONING))


def _answered(item: Mapping[str, JsonValue]) -> JsonValue:
    # The output of a local shell has the id of its call as its own.
    return item.get("call_id", item.get("id"))


def _items(request: SentRequest, limits: RequestLimits) -> Found:
    if not request.messages:
        yield "input", "there is no item"
    for at, item in enumerate(request.messages):
        kind = kind_of(item)
        if not limits.takes_item_id(item.get("id")):
            yield f"input[{at}].id", f"{item['id']!r} is no id that is taken"
        if not kind:
            yield f"input[{at}].type", "is missing"
        elif kind == "message":
            if item.get("role") not in _ROLES:
                yield f"input[{at}].role", f"{item.get('role')!r} is no role of this form"
            content = item.get("content")
            if not isinstance(content, str) and not (isinstance(content, list) and content):
                yield f"input[{at}].content", "is neither text nor parts"
        elif not is_known(kind):
            yield f"input[{at}].type", f"{kind!r} is no type of this form"


def _exchanges(request: SentRequest, limits: RequestLimits) -> Found:
    kinds = [*map(kind_of, request.messages)]
    calls = {kind for kind in {*kinds} if kind.endswith("_call") and kind not in _SERVER_CALLS}
    outputs = {kind for kind in {*kinds} if kind.endswith("_call_output") or kind == "tool_search_output"}
    both = [
        (at, item, kind in calls)
        for at, (kind, item) in enumerate(zip(kinds, request.messages, strict=True))
        if (kind in calls or kind in outputs) and item.get("execution") != "server"
    ]
    called = [item.get("call_id") for _, item, is_call in both if is_call]
    awaited: list[JsonValue] = []
    for at, item, is_call in both:
        if is_call:
            awaited.append(item.get("call_id"))
            continue
        answered = _answered(item)
        if answered in awaited:
            awaited.remove(answered)
        else:
            told = "is answered before it is called, or twice" if answered in called else "was not called"
            yield f"input[{at}].call_id", f"{answered!r} {told}"
    yield from (("input", f"no output for {call_id!r}") for call_id in awaited)


def _calls(request: SentRequest, limits: RequestLimits) -> Found:
    for at, item in enumerate(request.messages):
        kind = kind_of(item)
        if "call_id" in item and not limits.takes_id(item["call_id"]):
            yield f"input[{at}].call_id", f"{item['call_id']!r} is no id that is taken"
        if kind not in _NAMED_CALLS:
            continue
        if not limits.takes_name(item.get("name")):
            yield f"input[{at}].name", f"{item.get('name')!r} is no name that is taken"
        if kind == "custom_tool_call" and not isinstance(item.get("input"), str):
            yield f"input[{at}].input", "is not a string"
        if kind == "function_call" and not is_text_of_object(item.get("arguments")):
            yield f"input[{at}].arguments", "is not the JSON text of an object"


def _reasoning(request: SentRequest, limits: RequestLimits) -> Found:
    for at, item in enumerate(request.messages):
        if item.get("type") != _REASONING:
            continue
        following = request.messages[at + 1] if at + 1 < len(request.messages) else None
        if following is None or not is_of_the_model(following):
            yield f"input[{at}]", "reasoning without the item that it led to"


def _pictures(request: SentRequest, limits: RequestLimits) -> Found:
    yield from wrong_pictures(_found_pictures(request), limits)


def _found_pictures(request: SentRequest) -> Iterator[Picture]:
    for at, item in enumerate(request.messages):
        for field in ("content", "output"):
            parts = item.get(field)
            for place, part in enumerate(parts if isinstance(parts, list) else ()):
                if isinstance(part, dict) and part.get("type") == "input_image":
                    url = part.get("image_url")
                    if isinstance(url, str):
                        yield picture_at(f"input[{at}].{field}[{place}]", url)


RULES = (
    Rule(
        "items",
        "Each item has a type and no id that is not taken, each message a role and content.",
        _items,
    ),
    Rule("exchanges", "Every call has one output after it, and nothing else has one.", _exchanges),
    Rule("calls", "Ids and names of calls match their patterns, arguments are the text of an object.", _calls),
    Rule("reasoning", "Reasoning is followed by what it led to.", _reasoning),
    Rule("images", "Number, size and type of images are within the limits.", _pictures),
)
