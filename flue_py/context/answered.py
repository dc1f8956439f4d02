"""Which request an answer with signed reasoning was given to, where no session says so.

A provider binds reasoning to what stood before it. Who is given a list of messages before each request, as a hook of a
framework is, finds in the next list the answer to what went out for the last one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from flue_py.context.items import Item
from flue_py.core.bound import PRODUCED_UNDER, seen_by_model, signatures_in
from flue_py.core.faithful import ASSISTANT
from flue_py.core.jsontext import JsonObject, JsonValue, encode_json
from flue_py.wire.bound import bound_signatures, without_stale_reasoning
from flue_py.wire.leftovers import Leftovers
from flue_py.wire.lists.said import Said

# What stands before all messages, so that it is plain whether the first of them was left out.
_BEFORE: JsonObject = {"role": "system", "content": ""}


class SentRequests:
    """The requests that were sent, by the messages they were made of, and the answers that were given to them.

    It may be used from any thread, and forgets the oldest beyond ``most`` of each. What it does not know is sent.
    """

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._requests: dict[str, str] = {}
        self._answers: dict[str, str] = {}

    def without_stale(self, given: Sequence[JsonObject], items: Sequence[Item]) -> list[Item]:
        """Return the items of a request, made of the messages that were given, without stale reasoning.

        That is reasoning of an answer that was given to a request with other messages. O(size).
        """
        read = [_json(message) for message in given]
        with self._lock:
            beginning = self._learned(given, read)
            bound = bound_signatures(
                Said({**given[item.place], PRODUCED_UNDER: digest})
                for item in items
                if item.place is not None and item.is_answer and (digest := self._answered(given[item.place]))
            )
        messages = [_BEFORE, *(item.message for item in items)]
        kept = without_stale_reasoning(None, messages, None, (), bound, Leftovers())
        left = [*items]
        if bound:
            left = [
                item if (made := kept.messages[place]) is item.message else item.replaced(made)
                for item, before, place in zip(items, kept.places, kept.places[1:], strict=False)
                if place > before
            ]
        # Some frameworks keep what was sent in the place of what they had.
        kept_by_them = _chain(_read(item, read) for item in left)
        with self._lock:
            self._remember(self._requests, beginning, kept.digest)
            self._remember(self._requests, kept_by_them, kept.digest)
        return left

    def _learned(self, given: Sequence[JsonObject], read: Sequence[bytes]) -> str:
        """Note which requests the answers were given to, and return by what these messages are known."""
        chain = _Chain()
        begun: str | None = None
        was_answer = False
        for message, text in zip(given, read, strict=True):
            is_answer = message.get("role") == ASSISTANT
            if is_answer:
                begun = self._requests.get(chain.name, begun if was_answer else None)
                if begun is not None and (name := _name(message)) is not None:
                    self._remember(self._answers, name, self._answers.get(name, begun))
            was_answer = is_answer
            chain.add(text)
        return chain.name

    def _answered(self, message: JsonObject) -> str | None:
        name = _name(message)
        return None if name is None else self._answers.get(name)

    def _remember(self, known: dict[str, str], name: str, value: str) -> None:
        known.pop(name, None)
        known[name] = value
        while len(known) > self._most:
            del known[next(iter(known))]


class _Chain:
    """Messages, one after the other, as one name."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)

    def add(self, text: bytes) -> None:
        self._hash.update(b"%d:" % len(text))
        self._hash.update(text)

    @property
    def name(self) -> str:
        return self._hash.hexdigest()


def _chain(texts: Iterable[bytes]) -> str:
    chain = _Chain()
    for text in texts:
        chain.add(text)
    return chain.name


def _read(item: Item, read: Sequence[bytes]) -> bytes:
    return read[item.place] if item.how is None and item.place is not None else _json(item.message)


def _name(message: JsonObject) -> str | None:
    """Return what an answer with signed reasoning is known by."""
    signatures = "\n".join(signatures_in(message))
    return blake2b(signatures.encode(errors="replace"), digest_size=16).hexdigest() if signatures else None


def _json(message: JsonObject) -> bytes:
    """Return what a model sees of a message, in which text is the same as a string and as a part."""
    found = seen_by_model(message)
    content = found.get("content")
    if isinstance(content, list) and all(map(_is_text, content)):
        found["content"] = "\n".join(str(part["text"]) for part in content if isinstance(part, dict))
    return encode_json(found, "message")[0].encode()


def _is_text(part: JsonValue) -> bool:
    return isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] == "text"
