"""Parts of Gemini's contents of which a step has left less than there was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from google.genai import types

from flue_py.adapters.messages.parts import text_of
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json
from flue_py.wire.gemini import FOREIGN_SIGNATURE, part_from_gemini, printed_part
from flue_py.wire.leftovers import Leftovers
from flue_py.wire.openai_chat import parts_of

_TOLD_AS = ("output", "result", "error")
"""The fields by which tools say one text."""


class Known:
    """The parts that came in, each found again by what it is in a message of ours."""

    def __init__(self, said: Iterable[tuple[JsonObject, Sequence[types.Part]]]) -> None:
        self._said = said
        self._parts: dict[str, types.Part] | None = None

    def shortened(
        self, was: JsonObject | None, parts: Sequence[types.Part], made: Sequence[JsonObject]
    ) -> list[types.Part]:
        """Return what is left of the parts of a message, by what a step has left of it. O(its size), first O(all)."""
        [message] = made
        if message.get("role") == "toolResult":
            return [_response(parts[0], message, is_error=message.get("isError") is True)]
        calls = {
            str(each.get("id")): part
            for each, part in zip(parts_of(was or {}), parts, strict=True)
            if part.function_call is not None
        }
        return [part for each in parts_of(message) for part in self._left(each, calls)]

    def _left(self, part: JsonObject, calls: Mapping[str, types.Part]) -> Iterator[types.Part]:
        known = self._found().get(_key(part))
        if known is not None:
            yield known
            return
        for printed in printed_part(part, Leftovers(), is_google=True):
            made = types.Part.model_validate_json(_key(printed))
            called = calls.get(str(part.get("id")))
            yield made if called is None else _called(called, made)

    def _found(self) -> Mapping[str, types.Part]:
        if self._parts is None:
            self._parts = {
                _key(each): part
                for message, parts in self._said
                if message.get("role") != "toolResult"
                for each, part in zip(parts_of(message), parts, strict=True)
            }
        return self._parts


def _called(part: types.Part, made: types.Part) -> types.Part:
    """Return a call with other arguments, or without its signature, in whose place is what the API takes for it."""
    assert part.function_call is not None
    assert made.function_call is not None
    called = part.function_call.model_copy(update={"args": made.function_call.args})
    is_unsigned = made.thought_signature is None and part.thought_signature is not None
    signature = FOREIGN_SIGNATURE.encode() if is_unsigned else part.thought_signature
    return part.model_copy(update={"function_call": called, "thought_signature": signature})


def _response(part: types.Part, message: JsonObject, *, is_error: bool) -> types.Part:
    """Return the response of a function with the text and the files that are left of it."""
    was = part.function_response
    assert was is not None
    files = {_key(each) for each in parts_of(message) if each.get("type") != "text"}
    left = [each for each in was.parts or [] if _key(part_from_gemini(_printed(each))) in files]
    names = [*(was.response or {})]
    name = names[0] if len(names) == 1 and names[0] in _TOLD_AS else "error" if is_error else "result"
    changed = was.model_copy(update={"response": {name: text_of(message)}, "parts": left or None})
    return part.model_copy(update={"function_response": changed})


def _printed(part: types.FunctionResponsePart) -> JsonObject:
    printed: JsonObject = part.model_dump(mode="json", by_alias=True, exclude_none=True)
    return printed


def _key(value: JsonValue) -> str:
    return encode_json(value, "part")[0]
