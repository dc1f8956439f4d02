"""What every provider refuses above a number of its own: texts, files, tools, messages, the whole request."""

from __future__ import annotations

from flue_py.core.jsontext import JsonValue, encode_json, to_json
from flue_py.wire.rules.limits import RequestLimits
from flue_py.wire.rules.rule import Found, Rule, SentRequest, objects_in

_SHORT = 100_000
"""Below so many characters no text is too long anywhere."""


def _texts(request: SentRequest, limits: RequestLimits) -> Found:
    of_text, of_file = limits.text_chars, limits.file_chars
    for path, field, text in _strings(request):
        most = of_file if field == "file_data" else of_text
        if most is not None and len(text) > most:
            yield f"{request.path}{path}.{field}", f"{len(text):,} characters, and {most:,} are taken"


def _strings(request: SentRequest) -> list[tuple[str, str, str]]:
    """Return the texts and files that are longer than some are, each with its path and its field. O(parts)."""
    # Written out: almost every string of a history is asked, and is short.
    found = []
    for at, message in enumerate(request.messages):
        for field in ("content", "output"):
            held = message.get(field)
            if isinstance(held, str):
                if len(held) > _SHORT:
                    found.append((f"[{at}]", field, held))
                continue
            for place, part in objects_in(held):
                for name in ("text", "file_data"):
                    if isinstance(text := part.get(name), str) and len(text) > _SHORT:
                        found += [(f"[{at}].{field}[{place}]", name, text)]
    return found


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
