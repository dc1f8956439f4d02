"""Contents of the Gemini API, from and to ours. One of a user that has responses of functions is several of ours.

Fields are read in both spellings, ``functionCall`` and ``function_call``, and printed as the API has them. A call may
have no id there: it gets one made of the name and of its place among those of that name in the message, and its
response gets the same one.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping

from flue_py.core.json import JsonObject, JsonValue, without
from flue_py.errors import InvalidEntry, shown
from flue_py.providers.base import GEMINI_CALL, Leftovers, difference, fields_of, listed, only
from flue_py.providers.openai_chat import arguments_object, image_from_url, parts_of

PROVIDER = "google"

EXTRA = "gemini"
"""The field of ``extra`` that says how a content differed from the one that is printed."""

STARTS = "starts"
"""Beside a difference: whether the message begins a content of its own, or goes on with the one before it."""

FOREIGN_SIGNATURE = "skip_thought_signature_validator"
"""The mark that the API takes in place of the signature of a call that it did not make."""

_ROLES = {"model": "assistant", "function": "user"}
_SIDES = {"functionCall": "model", "functionResponse": "user"}
_MEDIA = ("inlineData", "fileData")
_KINDS = ("text", *_SIDES, *_MEDIA)
_BESIDE = frozenset({"thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata"})
_CAMEL = {
    re.sub("(?=[A-Z])", "_", name).lower(): name
    for name in (*_KINDS, *_BESIDE, "executableCode", "codeExecutionResult", "mimeType", "fileUri", "displayName")
}
_OWN_KIND = "gemini:"
"""The beginning of the type of a part that only this API has: the rest is the name of its field."""
_READ_OF_CALL = frozenset({"functionCall", "type", "id", "name", "args", "arguments"})
_MADE_ID = re.compile(r"call:.*:\d+", re.DOTALL)
_Pair = tuple[JsonObject, JsonObject]


# Checking


def check_content(value: JsonObject, where: str) -> None:
    """Check that a content can be read. Raises `InvalidEntry` with the path of the fault. O(parts)."""
    role, parts = value.get("role"), value.get("parts")
    if role not in ("user", "model", "function", "system", None):
        raise InvalidEntry(f"{where}.role: should be user or model in this form, not {shown(role)}")
    if not isinstance(parts, list):
        raise InvalidEntry(f"{where}.parts: should be a list, not {shown(parts)}")
    for number, part in enumerate(parts):
        _check_part(part, role, f"{where}.parts[{number}]")


def _check_part(part: JsonValue, role: JsonValue, where: str) -> None:
    if not isinstance(part, dict):
        raise InvalidEntry(f"{where}: should be an object, not {shown(part)}")
    plain = _plain(part)
    kinds = [name for name in plain if name in _KINDS]
    if len(kinds) > 1:
        raise InvalidEntry(f"{where}: has {' and '.join(kinds)}; a part is one of them")
    for kind in kinds:
        inner = plain[kind]
        if kind == "text":
            if not isinstance(inner, str):
                raise InvalidEntry(f"{where}.text: should be a string, not {shown(inner)}")
            continue
        if not isinstance(inner, dict):
            raise InvalidEntry(f"{where}.{kind}: should be an object, not {shown(inner)}")
        if kind not in _SIDES:
            continue
        if (role == "model") != (_SIDES[kind] == "model"):
            raise InvalidEntry(f"{where}.{kind}: stands in a content of the {_SIDES[kind]}")
        for field in ("name", "id"):
            text = inner.get(field)
            if not isinstance(text, str) and (field == "name" or text is not None):
                raise InvalidEntry(f"{where}.{kind}.{field}: should be a string, not {shown(text)}")


# Reading


def messages_from_gemini(value: JsonObject, own: Container[str] = ()) -> Iterator[_Pair]:
    """Yield the messages that a content is, each with the fields for its ``extra``.

    Of the fields beside the parts, those in ``own`` are fields of our messages, and are taken as such; of an answer
    the fields that a response has of its call, too.
    """
    role, parts = value.get("role"), listed(value.get("parts"))
    rest = without(value, "role", "parts")
    taken = {name: item for name, item in rest.items() if name in own}
    outer = without(rest, *taken)
    if "role" in value:
        outer["role"] = role
    ours = _ROLES.get(str(role), role or "user")
    if ours == "assistant":
        call = {name: rest[field] for name, names in GEMINI_CALL.items() for field in names if rest.get(field)}
        call = {name: item for name, item in call.items() if isinstance(item, dict if name == "usage" else str)}
        message: JsonObject = {"role": ours, "content": _from_model(parts), "provider": PROVIDER, **call, **taken}
        yield message, _beside(message, {**outer, "parts": parts})
        return
    for number, (message, message_parts) in enumerate(_from_user(ours, parts)):
        is_result = message["role"] == "toolResult"
        message.update(only(taken, "timestamp") if is_result else taken)
        # By itself a result goes on with the results before it, and any other message is a content of its own.
        starts = True if number == 0 and is_result else None if is_result or number == 0 else False
        fields = {**(outer if number == 0 else only(outer, "role")), "parts": message_parts}
        yield message, _beside(message, fields, starts)


def _beside(message: JsonObject, original: JsonObject, starts: bool | None = None) -> JsonObject:
    change = difference(printed_content(message, Leftovers()), original)
    if starts is not None:
        change[STARTS] = starts
    return {EXTRA: change} if change else {}


def gemini_difference(message: JsonObject, original: JsonObject) -> JsonObject:
    """Return the fields beside a message, so that an export gives back the content that it was made from."""
    return _beside(message, original) if "parts" in original else {}


def _from_user(role: JsonValue, parts: list[JsonValue]) -> Iterator[tuple[JsonObject, list[JsonValue]]]:
    others: list[JsonValue] = []
    places: Counter[str] = Counter()
    for part in parts:
        plain = _plain(fields_of(part))
        answer = plain.get("functionResponse")
        if not isinstance(answer, dict):
            others.append(part)
            continue
        if others:
            yield {"role": role, "content": [part_from_gemini(other_part) for other_part in others]}, others
        others = []
        yield _result(answer, places), [part]
    if others or not parts:
        yield {"role": role, "content": [part_from_gemini(other_part) for other_part in others]}, others


def _from_model(parts: list[JsonValue]) -> list[JsonValue]:
    read: list[JsonValue] = []
    places: Counter[str] = Counter()
    for part in parts:
        plain = _plain(fields_of(part))
        called, signature = plain.get("functionCall"), plain.get("thoughtSignature")
        if isinstance(called, dict):
            read.append(_call(called, plain, places))
        elif plain.get("thought") is True and isinstance(plain.get("text"), str):
            signed: JsonObject = {} if signature is None else {"thinkingSignature": signature}
            read.append({"type": "thinking", "thinking": plain["text"], **signed})
        else:
            read.append(part_from_gemini(part))
    return read


def _call(called: JsonObject, part: JsonObject, places: Counter[str]) -> JsonObject:
    arguments = called.get("args")
    fields: JsonObject = {"id": _call_id(called, places), "name": called.get("name")}
    fields["arguments"] = {} if arguments is None else arguments
    rest = without(called | part, *_READ_OF_CALL)
    return {"type": "toolCall", **fields, **rest}


def _call_id(fields: JsonObject, places: Counter[str]) -> JsonValue:
    """Return the id of a call or of a response; one that has none gets that of its place among those of its name."""
    if fields.get("id") is not None:
        return fields["id"]
    name = str(fields.get("name"))
    places[name] += 1
    return f"call:{name}:{places[name] - 1}"


def _result(answer: JsonObject, places: Counter[str]) -> JsonObject:
    message: JsonObject = {"role": "toolResult", "toolCallId": _call_id(answer, places), "toolName": answer.get("name")}
    response, parts = answer.get("response"), answer.get("parts")
    text: JsonValue = None
    if isinstance(response, dict) and len(response) == 1:
        (field, value), *_ = response.items()
        text = value if field in ("output", "result", "error") and isinstance(value, str) else None
        if text is not None and field == "error":
            message["isError"] = True
    if text is None:
        text = json.dumps({} if response is None else response, ensure_ascii=False)
    message["content"] = text
    if isinstance(parts, list):
        message["content"] = [{"type": "text", "text": text}, *map(part_from_gemini, parts)]
    return message


def part_from_gemini(part: JsonValue) -> JsonValue:
    """Return a part as one of ours; a field without a place in it stays in it under its own name."""
    if not isinstance(part, dict):
        return part
    plain = _plain(part)
    if isinstance(plain.get("text"), str):
        signature = plain.pop("thoughtSignature", None)
        signed: JsonObject = {} if signature is None else {"textSignature": signature}
        return {**plain, **signed, "type": "text"}
    for kind in _MEDIA:
        if isinstance(media := plain.get(kind), dict):
            return _from_media(_plain(media), without(plain, kind))
    kind = next((name for name in plain if name not in _BESIDE), "part")
    return {**part, "type": _OWN_KIND + kind}


def _from_media(media: JsonObject, rest: JsonObject) -> JsonObject:
    names = {"mimeType": "mimeType", "data": "data", "fileUri": "url", "displayName": "filename"}
    is_image = str(media.get("mimeType")).startswith("image/")
    fields = {names.get(name, name): item for name, item in media.items()}
    return {**rest, **fields, "type": "image" if is_image else "file"}


def _plain(fields: JsonObject) -> JsonObject:
    """Return an object with the fields as the API spells them, without those that are null."""
    return {_CAMEL.get(name, name): item for name, item in fields.items() if item is not None}


# Printing


def printed_content(message: Mapping[str, JsonValue], left: Leftovers) -> JsonObject:
    """Return one of our messages as a content. A part without a place in the API is noted in ``left``."""
    role = message.get("role")
    if role == "toolResult":
        return {"role": "user", "parts": [_printed_result(message, left)]}
    is_google = is_of_google(message)
    parts = [printed for part in parts_of(message) for printed in printed_part(part, left, is_google=is_google)]
    return {"role": "model" if role == "assistant" else role, "parts": parts}


def is_of_google(message: Mapping[str, JsonValue]) -> bool:
    """Return whether a model of Google's gave a message, whose signatures the API takes back."""
    provider = message.get("provider")
    return isinstance(provider, str) and (provider.startswith(PROVIDER) or provider in ("gemini", "vertex", "vertexai"))


def printed_part(part: Mapping[str, JsonValue], left: Leftovers, *, is_google: bool) -> list[JsonValue]:
    """Return a part as one of the API: a list of one, or of none where it has no place for it."""
    kind = part.get("type")
    if kind == "text":
        return [{"text": part.get("text"), **_signature(part, "textSignature", is_google)}]
    if kind == "thinking" and is_google:
        return [{"text": part.get("thinking"), "thought": True, **_signature(part, "thinkingSignature", is_google)}]
    if kind == "toolCall":
        called: JsonObject = {**_id(part.get("id")), "name": part.get("name"), "args": arguments_object(part, left)}
        return [{"functionCall": called, **_signature(part, "thoughtSignature", is_google)}]
    if kind in ("image", "file"):
        return _media(part, left)
    if isinstance(kind, str) and kind.startswith(_OWN_KIND):
        return [without(part, "type")]
    left.note("reasoning of a model that is not Google's" if kind == "thinking" else f"a part {kind!r}", part)
    return []


def _media(part: Mapping[str, JsonValue], left: Leftovers) -> list[JsonValue]:
    data, url, kind = part.get("data"), part.get("url"), part.get("mimeType")
    named: JsonObject = {"displayName": part["filename"]} if isinstance(part.get("filename"), str) else {}
    if isinstance(url, str) and "data" in (inline := image_from_url(url)):
        data, kind = inline["data"], inline["mimeType"]
    if isinstance(data, str):
        default = "image/png" if part.get("type") == "image" else "application/octet-stream"
        return [{"inlineData": {"mimeType": kind or default, "data": data, **named}}]
    if isinstance(url, str):
        typed: JsonObject = {"mimeType": kind} if isinstance(kind, str) else {}
        return [{"fileData": {**typed, "fileUri": url, **named}}]
    left.note(f"a part {part.get('type')!r} without data", part)
    return []


def _signature(part: Mapping[str, JsonValue], field: str, is_google: bool) -> JsonObject:
    signature = part.get(field)
    return {"thoughtSignature": signature} if is_google and isinstance(signature, str) and signature else {}


def _id(call_id: JsonValue) -> JsonObject:
    return {} if not isinstance(call_id, str) or _MADE_ID.fullmatch(call_id) else {"id": call_id}


def _printed_result(message: Mapping[str, JsonValue], left: Leftovers) -> JsonObject:
    texts, media = [], []
    for part in parts_of(message):
        if part.get("type") == "text":
            texts.append(str(part.get("text")))
        else:
            media += printed_part(part, left, is_google=False)
    response: JsonObject = {"error" if message.get("isError") is True else "output": "\n".join(texts)}
    name = message.get("toolName") or "tool"
    answer: JsonObject = {**_id(message.get("toolCallId")), "name": name, "response": response}
    if media:
        answer["parts"] = media
    return {"functionResponse": answer}
