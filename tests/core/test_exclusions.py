"""What exclusions leave of a path."""

from __future__ import annotations

from flue_py.core.entries import Entry, excluded_parts, has_part, read_exclusion, without_parts
from flue_py.core.json import JsonObject, JsonValue, encode_json
from tests.tables import inputs

USER: JsonObject = {"role": "user", "content": "u"}


def exclusion(number: int, value: JsonValue) -> Entry:
    payload = encode_json(value, "payload")[0]
    return Entry(f"x{number}", None, "s", "exclusion", None, None, number, 1, 0, 0, payload)


def test_the_last_exclusion_of_an_entry_and_part_holds() -> None:
    path = [
        exclusion(0, {"entryId": "a"}),
        exclusion(1, {"entryId": "b", "part": 1}),
        exclusion(2, {"entryId": "b", "part": "i"}),
        exclusion(3, {"entryId": "c", "part": 0}),
        exclusion(4, {"entryId": "c", "excluded": False}),
        exclusion(5, {"entryId": "b", "part": 1, "excluded": False}),
        exclusion(6, {"entryId": "d", "excluded": False}),
    ]
    assert {entry_id: set(parts) for entry_id, parts in excluded_parts(path).items()} == {"a": {None}, "b": {"i"}}


@inputs("value", [None, [], "a", {}, {"entryId": 1}, {"entryId": "a", "part": True}, {"part": 1}])
def test_what_cannot_be_understood_excludes_nothing(value: JsonValue) -> None:
    assert read_exclusion(value) is None


def test_parts_are_named_by_position_or_id() -> None:
    parts: list[JsonValue] = [{"type": "text", "text": "t"}, {"type": "toolCall", "id": "i"}, "odd"]
    message: JsonObject = {"role": "assistant", "content": parts, "model": "m"}
    assert without_parts(message, frozenset({0, "i"})) == {"role": "assistant", "content": ["odd"], "model": "m"}
    assert without_parts(USER, frozenset({0})) == USER
    assert [has_part(message, part) for part in (0, 2, 3, "i", "j")] == [True, True, False, True, False]
