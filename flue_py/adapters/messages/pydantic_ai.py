"""Contexts as the message history of pydantic-ai, and back.

For a context, not for keeping histories: what an agent of pydantic-ai stores comes back value for value from
`flue_py.adapters.pydantic_ai`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from flue_py.adapters.messages.parts import decoded, held_in, milliseconds, moment_of, text_of, usage_of
from flue_py.adapters.messages.values import Context, FrameworkList, OurMessages, said_of
from flue_py.core.faithful import SYSTEM
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.native import COMPACTION_PART
from flue_py.core.usage_shapes import billed_by, read_reported, usage_json
from flue_py.errors import InvalidEntry, MissingExtra, shown
from flue_py.wire.gemini import is_of_google
from flue_py.wire.leftovers import Leftovers
from flue_py.wire.lists.said import answered, joined_answers, speakers_only
from flue_py.wire.openai_chat import parts_of

if TYPE_CHECKING:
    from pydantic_ai import messages as theirs
    from pydantic_ai.usage import RequestUsage

_REDACTED = "redacted_thinking"
_ENDS = {"stop": "stop", "length": "length", "toolUse": "tool_call", "error": "error"}
_OUR_ENDS = {theirs: ours for ours, theirs in _ENDS.items()}


def to_pydantic_ai(context: Context) -> FrameworkList[theirs.ModelMessage]:
    """Return a context as the ``message_history`` of an agent, every call of a tool answered.

    What is said between two answers is one request; what the system said is in it. Parts have the times of their
    messages; where those have none, pydantic-ai draws them. Raises `MissingExtra`, and `InvalidEntry` with the path of
    what is not a message of ours. O(size).
    """
    made = _Maker()
    history: list[theirs.ModelMessage] = []
    asked: list[theirs.ModelRequestPart] = []
    for said in answered(
        joined_answers(speakers_only(said_of(context), made.left, also=frozenset({"developer"}))), made.left
    ):
        if said.role != "assistant":
            asked += made.asked(said.message)
            continue
        if asked:
            history.append(made.kit.ModelRequest(parts=asked))
            asked = []
        history.append(made.answer(said.message))
    if asked:
        history.append(made.kit.ModelRequest(parts=asked))
    return FrameworkList(history, made.left.notes())


def from_pydantic_ai(history: Iterable[theirs.ModelMessage]) -> OurMessages:
    """Return messages of pydantic-ai as ours: an answer is one message, a request one for each of its parts.

    Instructions are system messages, where they change. What has no place in a message of ours is in the notes. Raises
    `MissingExtra`, and `InvalidEntry` for what is not a message. O(size).
    """
    kit = _kit()
    left = Leftovers()
    found: list[JsonObject] = []
    instructions: str | None = None
    for number, message in enumerate(history):
        if isinstance(message, kit.ModelResponse):
            found.append(_from_answer(message, left))
        elif isinstance(message, kit.ModelRequest):
            if message.instructions and message.instructions != instructions:
                instructions = message.instructions
                found.append({"role": "system", "content": instructions})
            found += [each for part in message.parts for each in _from_asked(part, left)]
        else:
            raise InvalidEntry(f"messages[{number}]: should be a message of pydantic-ai, not {shown(message)}")
    return OurMessages(found, notes=left.notes())


def _kit() -> Any:  # noqa: ANN401 - the module, which need not be installed
    try:
        from pydantic_ai import messages  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtra("pydantic-ai", "the conversion of messages of pydantic-ai") from error
    return messages


# --- From ours ---------------------------------------------------------------------------------------------------


class _Maker:
    """Makes the parts of a history, and notes what has no place in it."""

    def __init__(self) -> None:
        self.kit = _kit()
        self.left = Leftovers()

    def asked(self, message: JsonObject) -> list[theirs.ModelRequestPart]:
        """Return the part of a request that a message of the user, of a tool or of the system is."""
        moment = moment_of(message)
        timed: dict[str, Any] = {} if moment is None else {"timestamp": moment}
        role = message.get("role")
        if role in SYSTEM:
            return [self.kit.SystemPromptPart(text_of(message), **timed)]
        content = self._content(message)
        if role == "user":
            return [self.kit.UserPromptPart(content, **timed)]
        return [
            self.kit.ToolReturnPart(
                tool_name=str(message.get("toolName") or ""),
                content=content,
                tool_call_id=str(message.get("toolCallId")),
                outcome="failed" if message.get("isError") is True else "success",
                **timed,
            )
        ]

    def _content(self, message: JsonObject) -> str | list[Any]:
        content = message.get("content")
        if isinstance(content, str):
            return content
        said = [made for part in parts_of(message) for made in self._said(part)]
        if not said:
            return ""
        return said[0] if len(said) == 1 and isinstance(said[0], str) else said

    def _said(self, part: JsonObject) -> list[Any]:
        kind = part.get("type")
        if kind == "text":
            return [str(part.get("text"))]
        if kind in ("image", "file"):
            return self._media(part)
        self.left.note(f"a part {kind!r}")
        return []

    def _media(self, part: JsonObject) -> list[Any]:
        data, media_type, url = held_in(part)
        found = decoded(data)
        if found is not None:
            return [self.kit.BinaryContent(data=found, media_type=media_type)]
        if not isinstance(url, str):
            self.left.note(f"a part {part.get('type')!r} without data")
            return []
        family = "image" if part.get("type") == "image" else media_type.partition("/")[0]
        kinds = {"image": self.kit.ImageUrl, "audio": self.kit.AudioUrl, "video": self.kit.VideoUrl}
        told = {"media_type": media_type} if isinstance(part.get("mimeType"), str) else {}
        return [kinds.get(family, self.kit.DocumentUrl)(url=url, **told)]

    def answer(self, message: JsonObject) -> theirs.ModelResponse:
        """Return an answer with what it used."""
        parts = [made for part in parts_of(message) for made in self._answered(part, message)]
        told: dict[str, Any] = {
            "model_name": _text(message.get("model")),
            "provider_name": _text(message.get("provider")),
            "finish_reason": _ENDS.get(str(message.get("stopReason"))),
        }
        moment, usage = moment_of(message), _their_usage(message)
        told.update({} if moment is None else {"timestamp": moment})
        told.update({} if usage is None else {"usage": usage})
        return self.kit.ModelResponse(parts=parts, **told)  # type: ignore[no-any-return]

    def _answered(self, part: JsonObject, message: JsonObject) -> list[Any]:
        kind = part.get("type")
        if kind == "text":
            return [self.kit.TextPart(str(part.get("text")), **_signed(part.get("textSignature"), message))]
        if kind == "thinking":
            return [self._thought(part, message)]
        if kind == "toolCall":
            arguments = part.get("arguments")
            called = {"tool_name": str(part.get("name")), "tool_call_id": str(part.get("id"))}
            given = arguments if arguments is None or isinstance(arguments, (str, dict)) else json.dumps(arguments)
            return [self.kit.ToolCallPart(args=given, **called, **_signed(part.get("thoughtSignature"), message))]
        if kind == COMPACTION_PART and _text(message.get("provider")):
            return [self._compaction(part, message)]
        if kind in ("image", "file") and (data := decoded(held_in(part)[0])) is not None:
            return [self.kit.FilePart(self.kit.BinaryContent(data=data, media_type=held_in(part)[1]))]
        self.left.note(f"a part {kind!r} of an answer")
        return []

    def _compaction(self, part: JsonObject, message: JsonObject) -> theirs.CompactionPart:
        details = {name: value for name, value in part.items() if name not in ("type", "content")}
        return self.kit.CompactionPart(  # type: ignore[no-any-return]
            content=_text(part.get("content")),
            id=_text(part.get("id")),
            provider_name=message["provider"],
            provider_details=details or None,
        )

    def _thought(self, part: JsonObject, message: JsonObject) -> theirs.ThinkingPart:
        content, signature = str(part.get("thinking")), part.get("thinkingSignature")
        provider = _text(message.get("provider"))
        if part.get("redacted") is True:
            return self.kit.ThinkingPart("", id=_REDACTED, signature=signature, provider_name=provider)  # type: ignore[no-any-return]
        if is_of_google(message):
            return self.kit.ThinkingPart(content, **_signed(signature, message))  # type: ignore[no-any-return]
        item = _reasoning_item(signature)
        known = {"signature": _text(signature)}
        if item is not None:
            known = {"id": _text(item.get("id")), "signature": _text(item.get("encrypted_content"))}
        return self.kit.ThinkingPart(content, provider_name=provider, **known)  # type: ignore[no-any-return]


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and value else None


def _signed(signature: JsonValue, message: JsonObject) -> dict[str, Any]:
    """Return where pydantic-ai keeps a signature of Google's."""
    if not isinstance(signature, str) or not signature or not is_of_google(message):
        return {}
    return {"provider_name": message["provider"], "provider_details": {"thought_signature": signature}}


def _reasoning_item(signature: JsonValue) -> JsonObject | None:
    try:
        item = json.loads(signature) if isinstance(signature, str) else None
    except (ValueError, RecursionError):
        return None
    return item if isinstance(item, dict) and item.get("type") == "reasoning" else None


def _their_usage(message: JsonObject) -> RequestUsage | None:
    usage = usage_of(message)
    if usage is None:
        return None
    from pydantic_ai.usage import RequestUsage  # noqa: PLC0415 - an extra

    totals = usage.totals
    return RequestUsage(
        input_tokens=totals.input + totals.cache_read + totals.cache_write,
        output_tokens=totals.output,
        cache_read_tokens=totals.cache_read,
        cache_write_tokens=totals.cache_write,
        details={"reasoning_tokens": usage.reasoning} if "reasoning" in usage.told else {},
    )


# --- Back --------------------------------------------------------------------------------------------------------


def _from_asked(part: Any, left: Leftovers) -> list[JsonObject]:  # noqa: ANN401 - a part of any request
    timed = milliseconds(getattr(part, "timestamp", None))
    kind = part.part_kind
    if kind == "system-prompt":
        return [{"role": "system", "content": part.content, **timed}]
    if kind == "user-prompt":
        content = part.content if isinstance(part.content, str) else _parts(part.content, left)
        return [{"role": "user", "content": content, **timed}]
    if kind == "tool-return":
        message: JsonObject = {"role": "toolResult", "toolCallId": part.tool_call_id, "toolName": part.tool_name}
        if part.outcome != "success":
            message["isError"] = True
        return [{**message, "content": _returned(part, left), **timed}]
    if kind == "retry-prompt" and part.tool_name is not None:
        message = {"role": "toolResult", "toolCallId": part.tool_call_id, "toolName": part.tool_name, "isError": True}
        return [{**message, "content": part.model_response(), **timed}]
    if kind in ("retry-prompt", "retry-feedback"):
        return [{"role": "user", "content": part.model_response(), **timed}]
    left.note(f"a part {kind!r} of a request")
    return []


def _returned(part: Any, left: Leftovers) -> JsonValue:  # noqa: ANN401 - the return of a tool
    said = part.content_items(mode="str", wrap_if_error=False)
    if all(isinstance(each, str) for each in said):
        return "\n".join(said)
    return _parts(said, left)


def _parts(content: Iterable[Any], left: Leftovers) -> list[JsonValue]:
    found: list[JsonValue] = []
    for each in content:
        if isinstance(each, str):
            found.append({"type": "text", "text": each})
        elif isinstance(text := getattr(each, "content", None), str):
            found.append({"type": "text", "text": text})
        else:
            found += _media(each, left)
    return found


def _media(held: Any, left: Leftovers) -> list[JsonValue]:  # noqa: ANN401 - whatever content has
    if held.kind == "binary":
        data = base64.b64encode(held.data).decode()
        return [{"type": "image" if held.is_image else "file", "data": data, "mimeType": held.media_type}]
    if held.kind in ("image-url", "audio-url", "video-url", "document-url"):
        try:
            told: JsonObject = {"mimeType": held.media_type}
        except ValueError:  # it cannot be told from the address
            told = {}
        return [{"type": "image" if held.kind == "image-url" else "file", "url": held.url, **told}]
    left.note(f"content {held.kind!r}")
    return []


_AUDIO = ("input_audio_tokens", "output_audio_tokens", "audio_seconds", "unmeasured_requests")


def _from_answer(message: theirs.ModelResponse, left: Leftovers) -> JsonObject:
    content = [each for part in message.parts for each in _from_answered(part, left)]
    made: JsonObject = {"role": "assistant", "content": content}
    told = {"provider": message.provider_name, "model": message.model_name}
    made.update((name, text) for name, text in told.items() if text)
    usage = message.usage
    if usage.has_values():
        kept = {
            "cache_read_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
            "cache_write_1h": usage.cache_write_1h_tokens,
            "reasoning_tokens": usage.output_reasoning_tokens,
        }
        counts: JsonObject = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
        # What was not reported of these is 0 there.
        counts.update((name, tokens) for name, tokens in kept.items() if tokens)
        cost: JsonObject = {} if usage.cost is None else {"cost": {"total": float(usage.cost)}}
        # Their fields of audio are those of our table; so are those that a provider adds to its details.
        counts |= billed_by(message.provider_details or {}, {name: getattr(usage, name, None) for name in _AUDIO})
        made["usage"] = {**usage_json(read_reported({**counts, "details": {**usage.details}})), **cost}
    if message.finish_reason in _OUR_ENDS:
        made["stopReason"] = _OUR_ENDS[message.finish_reason]
    return {**made, **milliseconds(message.timestamp)}


def _from_compaction(part: Any) -> JsonObject:  # noqa: ANN401 - a part of the class
    """Return a provider's compaction in the provider's own fields. What pydantic-ai noted for itself is left out."""
    details = part.provider_details or {}
    kept = {name: value for name, value in details.items() if not name.startswith("pydantic_ai_") and value is not None}
    said: JsonObject = {} if part.content is None else {"content": part.content}
    return {**({} if part.id is None else {"id": part.id}), **said, **kept, "type": COMPACTION_PART}


def _from_answered(part: Any, left: Leftovers) -> list[JsonValue]:  # noqa: ANN401 - a part of any answer
    details: Mapping[str, JsonValue] = getattr(part, "provider_details", None) or {}
    signature = details.get("thought_signature")
    if part.part_kind == "text":
        signed: JsonObject = {} if signature is None else {"textSignature": signature}
        return [{"type": "text", "text": part.content, **signed}]
    if part.part_kind == "thinking":
        return [_from_thought(part, signature)]
    if part.part_kind == "compaction" and part.provider_name:
        return [_from_compaction(part)]
    if part.part_kind == "tool-call":
        signed = {} if signature is None else {"thoughtSignature": signature}
        arguments = part.args
        if isinstance(arguments, str):
            arguments = _object_or_text(arguments)
        return [{"type": "toolCall", "id": part.tool_call_id, "name": part.tool_name, "arguments": arguments, **signed}]
    if part.part_kind == "file":
        return _media(part.content, left)
    left.note(f"a part {part.part_kind!r} of an answer")
    return []


def _from_thought(part: theirs.ThinkingPart, signature: JsonValue) -> JsonObject:
    if part.id == _REDACTED:
        return {"type": "thinking", "thinking": "", "thinkingSignature": part.signature, "redacted": True}
    signed: JsonValue = part.signature if signature is None else signature
    if part.provider_name == "openai" and part.id is not None:
        summary: list[JsonValue] = [{"type": "summary_text", "text": part.content}] if part.content else []
        item: JsonObject = {"type": "reasoning", "id": part.id, "summary": summary}
        signed = json.dumps({**item, **({"encrypted_content": part.signature} if part.signature else {})})
    return {"type": "thinking", "thinking": part.content, **({"thinkingSignature": signed} if signed else {})}


def _object_or_text(text: str) -> JsonValue:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text
