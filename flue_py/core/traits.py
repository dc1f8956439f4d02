"""What is asked of the messages of a history again and again, remembered by their entries, as their counts are.

Of ten thousand messages a compaction asks which call tools, which answer, and in which a person speaks. An entry never
changes, so that each is read for it once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from flue_py.core.calls import agent_of
from flue_py.core.entries import Entry
from flue_py.core.exchange import undecoded_exchange
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.spoken import has_words, words_of

MOST_REMEMBERED = 100_000
"""Of so many entries the traits are kept, the newest. They take some 40 MB."""
MOST_CHARS = 4_000
"""A longer message that calls tools is read anew each time: what it calls them on is kept with it."""
_FAILS = '"isError":true'
_NAMES_AGENT = '"agent'


class Traits(NamedTuple):
    """What a message is, beside its role.

    ``exchange`` is what `flue_py.core.exchange.Pairing` reads of it: of what it says, its calls in their places, and
    None in all others; nobody may change it. ``calls`` says whether it calls a tool, ``is_spoken`` whether it is one of
    the user in which a person says something, and ``has_failed`` whether it is the result of a call that failed. These
    two are None where the message would have to be decoded to tell, and was not. ``agent`` is who answers, if it says.
    """

    payload_hash: int
    exchange: Mapping[str, JsonValue]
    calls: bool = False
    is_spoken: bool | None = False
    has_failed: bool | None = False
    agent: str | None = None


def traits_in(message: Mapping[str, JsonValue], payload_hash: int = 0) -> Traits:
    """Return the traits of a message. O(size)."""
    role, content = message.get("role"), message.get("content")
    parts = content if role == "assistant" and isinstance(content, (list, tuple)) else ()
    calls: list[JsonValue] = [part if _is_call(part) else None for part in parts]
    exchange: JsonObject = {"role": role, "content": calls}
    if role == "toolResult":
        exchange = {"role": role, "toolCallId": message.get("toolCallId")}
    return Traits(
        payload_hash,
        exchange,
        calls=any(call is not None for call in calls),
        is_spoken=role == "user" and bool(words_of(message)),
        has_failed=role == "toolResult" and message.get("isError") is True,
        agent=agent_of(message) if role == "assistant" else None,
    )


def _is_call(part: JsonValue) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "toolCall"


class KnownTraits:
    """The traits of entries that are messages: of at most ``most``, the newest. All threads may use one object."""

    def __init__(self, most: int = MOST_REMEMBERED, most_chars: int = MOST_CHARS) -> None:
        self._most, self._most_chars = most, most_chars
        self._known: dict[str, Traits] = {}
        self.known = self._known.get
        """Return what is remembered under an id, which is good for a payload of the same hash; None for nothing."""

    def of(self, entry: Entry) -> Traits:
        """Return the traits of an entry. O(size) of what calls tools, and O(1) where it was asked before."""
        found = self.known(entry.id)
        # Another store may have the same id for something else. Python keeps the hash of a text beside it.
        if found is None or found.payload_hash != hash(entry.payload):
            found = self._keep(entry, _undecoded(entry) or traits_in(entry.fields, hash(entry.payload)))
        return found

    def note(self, entry: Entry, message: Mapping[str, JsonValue]) -> None:
        """Remember the traits of an entry, which somebody has decoded for another reason. O(parts)."""
        self._keep(entry, traits_in(message, hash(entry.payload)))

    def clear(self) -> None:
        """Forget all of them."""
        self._known.clear()

    def _keep(self, entry: Entry, traits: Traits) -> Traits:
        if not traits.calls or len(entry.payload) <= self._most_chars:
            if len(self._known) >= self._most:
                for oldest in list(self._known)[: len(self._known) // 2 + 1]:
                    self._known.pop(oldest, None)
            self._known[entry.id] = traits
        return traits


def _undecoded(entry: Entry) -> Traits | None:
    """Return the traits of an entry that can be told without decoding it; None if it has to be."""
    exchange = undecoded_exchange(entry)
    if exchange is None or (entry.role == "assistant" and _NAMES_AGENT in entry.payload):
        return None
    is_spoken = (has_words(entry.payload) or None) if entry.role == "user" else False
    # Written without spaces, as every payload is.
    has_failed = None if entry.role == "toolResult" and _FAILS in entry.payload else False
    return Traits(hash(entry.payload), exchange, False, is_spoken, has_failed)


TRAITS = KnownTraits()
"""The traits that all sessions of the process share."""
