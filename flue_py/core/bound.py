"""What an answer was produced under: a digest of the beginning of the request that it was the answer to.

Reasoning that a provider signed is bound to system, tools and messages before it. Whoever appends the answer gives the
digest of its request, and a later request whose beginning has another one can leave the reasoning out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b

from flue_py.core.faithful import ASSISTANT
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json, to_json

PRODUCED_UNDER = "producedUnder"
"""The field of an answer that has the digest of the request before it."""

_BOOKKEEPING = frozenset({
    "api", "provider", "model", "usage", "stopReason", "errorMessage", "timestamp", "responseId", "details",
    PRODUCED_UNDER,
})  # fmt: skip
"""Fields of our messages that no model is sent."""
_SIGNATURES = frozenset({"thinkingSignature", "textSignature", "thoughtSignature", "thinking_signature", "signature"})
_SIGNED_DATA = frozenset({"redacted_thinking", "reasoning.encrypted"})


class RunningDigest:
    """A digest that runs along the parts of a request. `text` is that of what was added so far."""

    __slots__ = ("_hash",)

    def __init__(self, *beginning: JsonValue) -> None:
        self._hash = blake2b(digest_size=16)
        self.add(list(beginning))

    def add(self, part: JsonValue) -> None:
        """Go on with a JSON value. O(size)."""
        try:
            text = to_json(part)
        except ValueError:  # half of a surrogate pair, which a client replaces
            text = encode_json(part, "request")[0].encode()
        self._hash.update(b"%d:" % len(text))
        self._hash.update(text)

    @property
    def text(self) -> str:
        """The digest so far, as 32 characters. O(1)."""
        return self._hash.copy().hexdigest()


def seen_by_model(message: Mapping[str, JsonValue]) -> JsonObject:
    """Return a message of ours without the fields that no model is sent. O(fields)."""
    return {name: value for name, value in message.items() if name not in _BOOKKEEPING}


def signatures_in(value: JsonValue) -> Iterator[str]:
    """Yield the signatures, and the encrypted reasoning, that a message has anywhere in it. O(size)."""
    if isinstance(value, list):
        for each in value:
            yield from signatures_in(each)
    elif isinstance(value, dict):
        for name, held in value.items():
            if isinstance(held, str):
                if held and (name in _SIGNATURES or _is_encrypted(name, value)):
                    yield held
            elif name != "arguments":
                yield from signatures_in(held)


def _is_encrypted(name: str, held: JsonObject) -> bool:
    return name == "encrypted_content" or (name == "data" and held.get("type") in _SIGNED_DATA)


def with_produced_under(message: JsonObject, digest: str) -> JsonObject:
    """Return a message that says what it was produced under, if it is an answer with signed reasoning. O(size)."""
    if message.get("role") != ASSISTANT or PRODUCED_UNDER in message or not is_signed(message):
        return message
    return {**message, PRODUCED_UNDER: digest}


def is_signed(message: Mapping[str, JsonValue]) -> bool:
    """Return whether a message of ours is an answer with signed reasoning. O(size)."""
    if message.get("role") != ASSISTANT:
        return False
    try:
        return next(signatures_in(dict(message)), None) is not None
    except RecursionError:
        return False  # deeper than JSON may be: whoever checks the message says so
