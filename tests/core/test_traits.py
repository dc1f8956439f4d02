"""What is remembered of a message is what anybody would find who decoded it."""

from __future__ import annotations

from flue_py.context.tokens import EntryCounts, counter_for
from flue_py.core.context import TRAITS, ContextEntry, KnownTraits, traits_in
from flue_py.core.entries import Entry, Pairing
from flue_py.core.json import JsonObject, encode_json
from tests.checks import existing
from tests.tables import inputs

CALL: JsonObject = {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "x"}}
MESSAGES: list[JsonObject] = [
    {"role": "user", "content": "Look."},
    {"role": "user", "content": [{"type": "text", "text": "<system-reminder>Be brief.</system-reminder>"}]},
    {"role": "user", "content": "Look.", "isMeta": True},
    {"role": "assistant", "content": [{"type": "text", "text": 'a "toolCall" is none'}]},
    {"role": "assistant", "content": "plain"},
    {"role": "assistant", "content": [{"type": "text", "text": "a"}, CALL, "no object", {**CALL, "id": "c2"}]},
    {"role": "assistant", "content": [{"type": "toolCall", "id": 3}]},
    {"role": "toolResult", "toolCallId": "c1", "content": "out", "isError": False},
    {"role": "toolResult", "toolCallId": "c2", "content": "Error", "isError": True},
    {"role": "toolResult", "toolCallId": "c9", "content": "no call", "details": {"toolCallId": "c1", "isError": True}},
    {"role": "custom", "content": "Look."},
]


def stored(message: JsonObject, name: str = "e") -> Entry:
    payload = encode_json(message, "message")[0]
    return Entry(name, None, None, "message", str(message["role"]), None, 0, 0, 0, 0, payload)


@inputs("message", MESSAGES, ids=str)
def test_the_traits_of_an_entry_are_those_of_its_message(message: JsonObject) -> None:
    found, wanted = KnownTraits().of(stored(message)), traits_in(message)

    assert found.calls == wanted.calls
    assert found.is_spoken in (wanted.is_spoken, None)
    assert found.has_failed in (wanted.has_failed, None)


def test_exchanges_are_paired_as_those_of_whole_messages() -> None:
    known = KnownTraits()
    found = Pairing([known.of(stored(message)).exchange for message in MESSAGES])
    wanted = Pairing(MESSAGES)

    assert (found.results, found.parts, found.unpaired) == (wanted.results, wanted.parts, wanted.unpaired)


def test_another_payload_under_the_same_id_is_read_anew() -> None:
    known = KnownTraits()
    assert known.of(stored(MESSAGES[0])).is_spoken
    assert known.of(stored(MESSAGES[5])).calls
    assert not known.of(stored(MESSAGES[5])).is_spoken


def test_the_newest_are_remembered_and_no_long_calls() -> None:
    known = KnownTraits(limit=4, max_chars=200)
    for number in range(9):
        known.of(stored(MESSAGES[0], f"e{number}"))
    long: JsonObject = {"role": "assistant", "content": [{**CALL, "arguments": {"content": "x" * 200}}]}

    assert known.of(stored(long, "long")).calls
    assert known.known("long") is None
    assert known.known("e8") is not None
    assert sum(known.known(f"e{number}") is not None for number in range(9)) <= 4
    known.clear()
    assert known.known("e8") is None


def test_what_is_counted_is_remembered() -> None:
    entry = stored(MESSAGES[5], "an entry that nobody has seen before")
    EntryCounts().count(ContextEntry(entry), counter_for(None))

    assert existing(TRAITS.known(entry.id)).calls
