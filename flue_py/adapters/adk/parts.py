"""Parts of Gemini's contents as parts of our messages, and back, as far as they go.

What a message would not give back is written beside it, by `events`. The parts are those of `flue_py.wire`; results of
tools are written here, since ADK has its own way to put what a tool returned into an object.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode, urlsafe_b64decode

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.wire.gemini import part_from_gemini, printed_part
from flue_py.wire.leftovers import Leftovers


def part_of_ours(part: JsonObject, number: int) -> JsonValue:
    """Return a part of Gemini's (JSON, camel case) as ours. Not for function responses: they are messages. O(size)."""
    call = part.get("functionCall")
    signature: JsonValue = part.get("thoughtSignature")
    if isinstance(call, dict) and isinstance(call.get("name"), str):
        arguments = call.get("args")
        return {
            "type": "toolCall",
            "id": call.get("id") or f"call:{call['name']}:{number}",
            "name": call["name"],
            "arguments": {} if arguments is None else arguments,
            **({} if signature is None else {"thoughtSignature": signature}),
        }
    if part.get("thought") is True and isinstance(part.get("text"), str):
        signed: JsonObject = {} if signature is None else {"thinkingSignature": signature}
        return {"type": "thinking", "thinking": part["text"], **signed}
    return part_from_gemini(part)


def part_of_gemini(part: JsonObject) -> JsonValue:
    """Return a part of ours as Gemini's; one that Gemini has no place for is ``{}``. O(size)."""
    printed = printed_part(part, Leftovers(), is_google=True)
    return printed[0] if printed else {}


def result_of_ours(part: JsonObject, number: int, agent: JsonValue) -> JsonObject:
    """Return a part with a function's response as a message of ours: the result of a tool. O(size)."""
    held = part["functionResponse"]
    response = held if isinstance(held, dict) else {}
    said = response.get("response")
    plain = said.get("result") if isinstance(said, dict) and len(said) == 1 else None
    return {
        "role": "toolResult",
        "toolCallId": response.get("id") or f"call:{response.get('name')}:{number}",
        "toolName": response.get("name"),
        "content": plain if isinstance(plain, str) else json.dumps(said, ensure_ascii=False, separators=(",", ":")),
        **({"isError": True} if isinstance(said, dict) and "error" in said else {}),
        **({"agent": agent} if isinstance(agent, str) else {}),
    }


def result_of_gemini(message: JsonObject) -> JsonObject:
    """Return the result of a tool as a part with a function's response. O(size)."""
    text = text_of(message.get("content"))
    try:
        said = json.loads(text)
    except ValueError:
        said = None
    return {
        "functionResponse": {
            "id": message.get("toolCallId"),
            "name": message.get("toolName"),
            "response": said if isinstance(said, dict) else {"error" if message.get("isError") else "result": text},
        }
    }


def text_of(content: JsonValue) -> str:
    """Return the text of a message's content, its parts one after the other."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def with_usual_base64(content: JsonValue) -> JsonValue:
    """Return a content whose files are in the base64 that everybody reads; ADK prints the one for URLs. O(size)."""
    parts = content.get("parts") if isinstance(content, dict) else None
    for part in parts if isinstance(parts, list) else ():
        data = part.get("inlineData") if isinstance(part, dict) else None
        if isinstance(data, dict) and isinstance(data.get("data"), str):
            data["data"] = b64encode(_from_base64(str(data["data"]))).decode()
    return content


def _from_base64(text: str) -> bytes:
    return urlsafe_b64decode(text) if "-" in text or "_" in text else b64decode(text)
