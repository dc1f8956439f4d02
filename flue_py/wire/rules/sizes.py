"""What every provider refuses above a number of its own: texts, files, tools, messages, the whole request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flue_py.core.jsontext import JsonValue, encode_json, to_json
from flue_py.wire.rules.limits import RequestLimits
from flue_py.wire.rules.rule import Found, Rule, SentRequest, objects_in


def _texts(request: SentRequest, limits: RequestLimits) -> Found:
    most = {
        "content": limits.text_chars,
        "text": limits.text_chars,
        "output": limits.text_chars,
        "file_data": limits.file_chars,
    }
    for at, message in enumerate(request.messages):
        for path, held in _with_parts(f"{request.path}[{at}]", message):
            for field, chars in most.items():
                text = held.get(field)
                if chars is not None and isinstance(text, str) and len(text) > chars:
                    yield f"{path}.{field}", f"{len(text):,} characters, and {chars:,} are taken"


def _with_parts(path: str, message: Mapping[str, JsonValue]) -> Iterator[tuple[str, Mapping[str, JsonValue]]]:
    """Yield a message and the parts of it, each with its path."""
    yield path, message
    for field in ("content", "output"):
        for place, part in objects_in(message.get(field)):
            yield f"{path}.{field}[{place}]", part


def _tools(request: SentRequest, limits: RequestLimits) -> Found:
    if limits.tools is not None and len(request.tools) > limits.tools:
        yield f"tools[{limits.tools}]", f"{len(request.tools):,} tools, and a request may have {limits.tools:,}"
    for at, tool in enumerate(request.tools):
        held: JsonValue = tool.get("function", dict(tool))
        declared = tool.get("functionDeclarations", tool.get("function_declarations", [held]))
        for _, each in objects_in(declared):
            name = each.get("name")
            if name is not None and not limits.takes_name(name):
                yield f"tools[{at}].name", f"{name!r} is no name that is taken"


def _size(request: SentRequest, limits: RequestLimits) -> Found:
    if limits.messages is not None and len(request.messages) > limits.messages:
        yield request.path, f"{len(request.messages):,} messages, and a request may have {limits.messages:,}"
    if limits.request_bytes is None:
        return
    whole = {"system": request.system, "messages": [*request.messages]}
    try:
        size = len(to_json(whole))
    except ValueError:  # half of a surrogate pair, which a client replaces, or a mapping that is no dict
        size = len(encode_json(whole, "request")[0].encode())
    if size > limits.request_bytes:
        yield request.path, f"{size:,} bytes, and a request may have {limits.request_bytes:,}"


TEXTS = Rule("texts", "No text and no file is longer than one may be.", _texts)
TOOLS = Rule("tools", "There are not too many tools, and their names match the pattern.", _tools)
SIZE = Rule("size", "The request is not larger than the API takes.", _size)
