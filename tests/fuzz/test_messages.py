"""Whatever is handed in as a message or an entry: it is refused by name, or comes back value for value."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import inf, nan
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

import flue_py
from flue_py import errors
from flue_py.core.context import ContextEntry, synthetic_message
from flue_py.core.entries import NewEntry
from flue_py.core.json import decode_json, encode_json
from flue_py.core.kinds import message_preview, message_text
from flue_py.core.messages import message_json, parse_message, validate_message
from flue_py.core.usage import read_usage
from flue_py.errors import CorruptStore, InvalidEntry
from tests.checks import raises
from tests.fuzz import hostile
from tests.fuzz.hostile import REFUSED, check_refusal, note_refusal
from tests.fuzz.refusals import BECAME, MAY_BECOME
from tests.strategies import hostile_json, hostile_messages, hostile_texts, usages
from tests.tables import inputs
from tests.values import existing

BUILDERS: dict[str, Callable[[Any], NewEntry]] = {
    "a further kind": lambda value: NewEntry.custom("note", value),
    "an unknown field": lambda value: NewEntry.message({"role": "user", "content": "x", "more": value}),
    "a part": lambda value: NewEntry.message({"role": "user", "content": [{"type": "odd", "more": value}]}),
    "the details of a compaction": lambda value: NewEntry.compaction(
        "s", first_kept_entry_id="a", tokens_before=1, details=value
    ),
    "the details of a summary": lambda value: NewEntry.branch_summary("s", from_id="a", details=value),
}


def stored(new: NewEntry) -> Any:
    """Return the value that one of `BUILDERS` was given, as it is read back."""
    data: Any = decode_json(new.payload)
    if new.kind == "note":
        return data
    if new.kind != "message":
        return data["details"]
    return data["more"] if "more" in data else data["content"][0]["more"]


@inputs("name", hostile.ROUND_TRIPS)
def test_what_json_holds_comes_back_value_for_value(name: str) -> None:
    value, expected = hostile.ROUND_TRIPS[name]
    for what, build in BUILDERS.items():
        if name == "nesting up to the limit" and what != "a further kind":
            with pytest.raises(InvalidEntry, match="nested deeper"):
                build(value)
        else:
            assert hostile.same_value(stored(build(value)), expected), what


@inputs("name", hostile.refused_values())
def test_what_json_cannot_hold_is_refused_by_name(name: str) -> None:
    value = hostile.refused_values()[name]
    for build in BUILDERS.values():
        with pytest.raises(InvalidEntry) as caught:
            build(value)
        hostile.check_refusal(caught.value)


def test_two_keys_that_are_the_same_text_are_refused_not_merged() -> None:
    for value in (
        {"role": "user", hostile.Text("a"): 1, hostile.Text("a"): 2},
        {"role": "user", "x": {hostile.Text("a"): 1, hostile.Text("a"): 2}},
    ):
        with pytest.raises(InvalidEntry, match="two keys"):
            parse_message(value)
        with pytest.raises(InvalidEntry, match="two keys"):
            NewEntry.message(value)


def test_a_value_has_one_text_whichever_way_it_came_in() -> None:
    listed, tupled = NewEntry.custom("note", [2.5e-06, 1e22, "\x7f"]), NewEntry.custom("note", (2.5e-06, 1e22, "\x7f"))
    assert listed.payload == tupled.payload


def test_the_usage_of_a_message_may_be_any_mapping() -> None:
    usage: dict[str, Any] = {"input": 5, "cost": {"total": 0.5}}
    message: dict[str, Any] = {"role": "assistant", "content": "x", "usage": usage}
    proxies = {**message, "usage": MappingProxyType({**usage, "cost": MappingProxyType(usage["cost"])})}
    assert NewEntry.message(MappingProxyType(proxies)) == NewEntry.message(message)


def test_a_provider_with_a_long_name_gets_a_short_one_of_its_own_in_the_ledger() -> None:
    names = ["p" * 100_000, "p" * 99_999 + "q", "é" * 100_000]
    news = [NewEntry.message({"role": "assistant", "content": "x", "usage": {}, "provider": name}) for name in names]
    short = [new.calls[0].provider for new in news]
    assert len(set(short)) == 3
    assert all(len(name.encode()) < 500 for name in short)
    assert [json.loads(new.payload)["provider"] for new in news] == names


@inputs("data", [None, 5, "text", [1], {"content": 5}, {"content": [5]}, {"content": {}}, hostile.nested(200)])
def test_a_custom_message_with_any_data_has_a_place_in_the_context(data: Any) -> None:
    made = synthetic_message("custom_message", json.loads(NewEntry.custom("custom_message", data).payload), 0)
    message = parse_message(made)
    assert message.role == "user"
    assert message_text(made) or data is None


def test_a_summary_that_is_no_object_is_damage_and_says_so() -> None:
    with pytest.raises(CorruptStore, match="branch_summary"):
        synthetic_message("branch_summary", [1], 0)


@given(hostile_messages)
@example({"role": 5})
@example({"role": "user", "content": "", "usage": {"role": inf}})
@example({"role": "assistant", "content": "", "usage": {"input": nan, "output": 5, "cost": {"total": -inf}}})
def test_any_object_is_a_message_or_refused_and_both_checks_agree(value: dict[str, Any]) -> None:
    answers = []
    for call in (parse_message, validate_message, NewEntry.message):
        try:
            answers.append(call(value))  # type: ignore[operator]
        except InvalidEntry as error:
            hostile.check_refusal(error)
            answers.append(None)
    parsed, role, new = answers
    assert (parsed is None) == (role is None)
    if parsed is not None:
        assert parsed.role == role
        assert list(message_json(parsed)) == list(value)
    if new is not None:
        # A new message is not refused for usage that is no JSON: it is kept as text, and told.
        has_words = any("is not a JSON number" in odd for odd in new.oddities)
        stored = json.loads(new.payload)
        assert new.role == (validate_message(stored) if has_words else role)
        again = NewEntry.message(stored)
        assert again == replace(new, surrogates_replaced=0, oddities=again.oddities if has_words else new.oddities)
        assert new.preview is None or new.preview == message_preview(new.preview)
    message_text(value)


@given(hostile_json)
@example([nan])
def test_any_value_is_stored_as_itself_or_refused(value: Any) -> None:
    try:
        text, replaced = encode_json(value, "value")
    except InvalidEntry as error:
        hostile.check_refusal(error)
        return
    decoded = decode_json(text)
    if replaced == 0:
        # Halves of a pair side by side are one character; nothing else may differ.
        assert hostile.same_value(decoded, value) or "\\ud" in json.dumps(value)
    assert encode_json(decoded, "value") == (text, 0)


@given(st.text(st.characters(), max_size=30) | st.text(st.sampled_from('[]{}",:\\u0e1-+.dfNaInity \x00'), max_size=30))
@example("[")
def test_text_is_json_or_a_corrupt_payload(text: str) -> None:
    try:
        value = decode_json(text)
    except CorruptStore as error:
        hostile.check_refusal(error)
    else:
        assert hostile.same_value(decode_json(encode_json(value, "value")[0]), value)


@inputs(
    "text",
    [
        "", "[" * 100_000, '{"a":' * 100_000, "1" * 5_000, "-", "NaN", "[1e999]", '"\\ud800"', '"\\u12"', '"\ud800"',
        "\ufeff1",
    ],
)  # fmt: skip
def test_damaged_or_bottomless_json_text_is_a_corrupt_payload_or_a_value(text: str) -> None:
    try:
        encode_json(decode_json(text), "value")
    except (CorruptStore, InvalidEntry) as error:
        hostile.check_refusal(error)


@given(st.data())
def test_the_builders_of_entries_refuse_what_they_do_not_take(data: st.DataObject) -> None:
    odd = hostile.odd_arguments | hostile_json.map(lambda value: hostile.Drawn(value, "hostile JSON"))

    def some(usual: Any) -> Any:
        return data.draw(st.just(hostile.Drawn(usual, "the usual")) | odd).value

    calls: list[Callable[[], NewEntry]] = [
        lambda: NewEntry.message(some({"role": "user"}), some("prompt")),
        lambda: NewEntry.custom(some("kind"), some(None)),
        lambda: NewEntry.branch_summary(some("s"), from_id=some("a"), details=some(None)),
        lambda: NewEntry.compaction(
            some("s"),
            first_kept_entry_id=some("a"),
            tokens_before=some(1),
            details=some(None),
            usage=some({"input": 1}),
            calls=some([{"input": 1}]),
        ),
    ]
    for call in calls:
        try:
            new = call()
        except flue_py.FlueError as error:
            hostile.check_refusal(error)
        else:
            decode_json(new.payload)


@given(usages | st.dictionaries(st.sampled_from(["input", "totalTokens", "cost"]), hostile_json), hostile_texts)
def test_any_usage_is_ten_numbers_or_refused(value: Any, where: str) -> None:
    try:
        totals = read_usage(value, "usage")
    except InvalidEntry as error:
        hostile.check_refusal(error)
    else:
        assert all(type(number) is int and 0 <= number <= 2**62 for number in totals)


class TestInAStore:
    """The same values, written to every kind of store and read back by another handle."""

    async def test_every_value_comes_back_from_the_store(self, target: str) -> None:
        async with flue_py.open(target, durability="normal") as store:
            session = await store.create_session()
            ids = {}
            for name, (value, _) in hostile.ROUND_TRIPS.items():
                ids[name] = (await session.append_custom("note", value)).entry_id  # type: ignore[arg-type]
            found = existing(await store.get_session(session.id))
            for name, (_, expected) in hostile.ROUND_TRIPS.items():
                entry = existing(await found.get_entry(ids[name]))
                assert hostile.same_value(entry.data, expected), name
            before = await found.refresh()
            for name, value in hostile.refused_values().items():
                await raises(InvalidEntry, session.append_custom("note", value))  # type: ignore[arg-type]
                await raises(InvalidEntry, session.append_messages([{"role": "user"}, {"role": "user", "x": value}]))  # type: ignore[dict-item]
                await raises(InvalidEntry, session.set_metadata({name: value}))  # type: ignore[dict-item]
            assert await found.refresh() == before
            assert (await store.verify()).problems == []

    async def test_metadata_comes_back_from_the_store(self, target: str) -> None:
        kept = {name: values for name, values in hostile.ROUND_TRIPS.items() if name != "nesting up to the limit"}
        async with flue_py.open(target, durability="normal") as store:
            session = await store.create_session(metadata={name: value for name, (value, _) in kept.items()})  # type: ignore[misc]
            found = existing(await store.get_session(session.id))
            assert hostile.same_value(found.metadata, {name: expected for name, (_, expected) in kept.items()})

    async def test_custom_messages_of_any_data_spoil_no_context(self, target: str) -> None:
        async with flue_py.open(target, durability="normal") as store:
            session = await store.create_session()
            for data in (None, 5, [1], {"content": 5}, {"content": [5]}, {"content": "fine"}):
                await session.append_custom("custom_message", data)  # type: ignore[arg-type]
            items = await session.build_context_entries()
            assert await session.build_context() == [item.data for item in items]
            assert [message_text(item.data) for item in items] == ["", "5", "[1]", "5", "[5]", "fine"]
            assert all(isinstance(item, ContextEntry) and item.message.role == "user" for item in items)

    async def test_a_long_provider_is_paid_for_like_any_other(self, target: str) -> None:
        noise = "".join(chr(0x4E00 + number * 7919 % 20_000) for number in range(30_000))
        async with flue_py.open(target, durability="normal") as store:
            session = await store.create_session()
            message: Any = {
                "role": "assistant", "content": "x", "provider": noise, "model": noise, "usage": {"input": 3},
            }  # fmt: skip
            await session.append_message(message)
            assert (await session.refresh()).spent_tokens == 3
            assert (await session.build_context())[0] == message


LARGE = 50 * 2**20


_slow = pytest.mark.slow


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["memory", pytest.param("sqlite", marks=_slow), pytest.param("postgres", marks=_slow)])
async def test_fifty_megabytes_of_text_are_kept_and_more_than_the_limit_is_refused(
    kind: str, request: pytest.FixtureRequest, tmp_path: Any
) -> None:
    targets = {"memory": lambda: ":memory:", "sqlite": lambda: str(tmp_path / "large.db")}
    where = targets[kind]() if kind in targets else request.getfixturevalue("new_database")()
    async with flue_py.open(where, durability="normal") as store:
        session = await store.create_session()
        text = "0123456789abcdef" * (LARGE // 16)
        entry_id = (await session.append_message({"role": "user", "content": text})).entry_id
        before = await session.refresh()
        with pytest.raises(InvalidEntry, match="entry_bytes"):
            await session.append_message({"role": "user", "content": text + text[: 14 * 2**20]})
        caught = await raises(InvalidEntry, session.append_custom(text, None))
        hostile.check_refusal(caught.value)
        assert await session.refresh() == before
        assert existing(await session.get_entry(entry_id)).fields["content"] == text


# -- what is noted of refused inputs ----------------------------------------------------------------------------------


@inputs("error", [OSError, RuntimeError, MemoryError, AttributeError, ValueError, TypeError, KeyError])
def test_an_error_that_is_not_ours_is_no_refusal(error: type[Exception]) -> None:
    for note in (note_refusal, check_refusal):
        with pytest.raises(AssertionError, match=error.__name__):
            note(error("something went wrong"))
    with pytest.raises(AssertionError, match="Mine"):
        note_refusal(type("Mine", (flue_py.FlueError,), {})())
    assert not REFUSED


def test_what_refused_inputs_become_is_told_of_tests_and_errors_that_there_are() -> None:
    source = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    named = {*BECAME, *MAY_BECOME}
    # Behind the name stands the case, where a test has several.
    assert [name for name in sorted(named) if f"def {name.partition('[')[0]}(" not in source] == []
    became = set().union(*BECAME.values(), *MAY_BECOME.values())
    assert {name for name in became if not hasattr(errors, name)} == set()
