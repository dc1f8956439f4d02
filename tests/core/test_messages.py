from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from enum import Enum
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from flue_py.core.entries import tool_calls
from flue_py.core.json import MAX_JSON_DEPTH, encode_json, replace_lone_surrogates
from flue_py.core.kinds import message_text
from flue_py.core.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Message,
    OtherMessage,
    SystemMessage,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultMessage,
    UnknownPart,
    UserMessage,
    message_json,
    parse_message,
    validate_message,
)
from flue_py.errors import InvalidEntry
from tests.tables import inputs
from tests.values import shapes

# --- Generated messages -------------------------------------------------------------------------------------

# Half a surrogate pair is included: the write path repairs it, so a message must survive until then.
TEXT = st.text(st.one_of(st.characters(), st.sampled_from("\0\ud800\udc00é😀\u2028")), max_size=8)
SCALAR = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, 1, 2**63, -(2**64), 10**40]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([1.0, -0.0, 1e-7, 1e300]),
    TEXT,
)
JSON = st.recursive(
    SCALAR, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)), max_leaves=8
)
MAYBE_TEXT = st.one_of(TEXT, st.none())
MAYBE_BOOL = st.one_of(st.booleans(), st.none())
# Names that mean something to the models, to pydantic or to Python, but are ordinary fields of a JSON object.
AWKWARD_KEYS = st.sampled_from(
    [
        *("tool_call_id", "stop_reason", "is_error", "mime_type", "thinking_signature", "tool_calls", "_order"),
        *("model_config", "model_dump", "model_fields_set", "_shape", "self", "cls", "_fields_set", "copy"),
        *("__dict__", "__class__", "__pydantic_extra__", "id", "parentId", "type", "", "usage", "details", "text"),
    ]
)


def fields(
    required: dict[str, st.SearchStrategy[Any]], optional: dict[str, st.SearchStrategy[Any]]
) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with these fields and unknown ones, their keys in any order."""
    known = st.fixed_dictionaries(required, optional=optional)
    unknown = st.dictionaries(st.one_of(TEXT, AWKWARD_KEYS), JSON, max_size=3).map(
        lambda extra: {key: item for key, item in extra.items() if key not in {*required, *optional}}
    )
    return (
        st.tuples(known, unknown).flatmap(lambda pair: st.permutations([*pair[0].items(), *pair[1].items()])).map(dict)
    )


PART = st.one_of(
    fields({"type": st.just("text"), "text": TEXT}, {}),
    fields({"type": st.just("thinking"), "thinking": TEXT}, {"thinkingSignature": MAYBE_TEXT}),
    fields({"type": st.just("toolCall"), "id": TEXT, "name": TEXT}, {"arguments": JSON}),
    fields({"type": st.just("image")}, {"data": MAYBE_TEXT, "mimeType": MAYBE_TEXT}),
    fields(
        {"type": st.just("file")},
        {"data": MAYBE_TEXT, "mimeType": MAYBE_TEXT, "filename": MAYBE_TEXT, "url": MAYBE_TEXT},
    ),
    fields({"type": st.sampled_from(["", "tool_use", "input_text", "Text", "type"])}, {}),
)
CONTENT = st.one_of(TEXT, st.none(), st.lists(PART, max_size=3))
COMMON = {"content": CONTENT, "timestamp": JSON}
MESSAGE = st.one_of(
    fields({"role": st.sampled_from(["user", "system"])}, COMMON),
    fields(
        {"role": st.just("assistant")},
        {
            **COMMON, "api": MAYBE_TEXT, "provider": MAYBE_TEXT, "model": MAYBE_TEXT,
            "usage": st.one_of(st.none(), st.dictionaries(TEXT, JSON, max_size=3)), "stopReason": MAYBE_TEXT,
            "errorMessage": MAYBE_TEXT,
        },
    ),
    fields(
        {"role": st.just("toolResult")},
        {**COMMON, "toolCallId": MAYBE_TEXT, "toolName": MAYBE_TEXT, "details": JSON, "isError": MAYBE_BOOL},
    ),
    fields({"role": st.sampled_from(["bashExecution", "custom", "tool", "developer", "", "User"])}, COMMON),
)  # fmt: skip


def as_text(value: object) -> str:
    """Text that tells apart what ``==`` does not: 1, 1.0 and true, and the order of keys."""
    return json.dumps(value)


@given(MESSAGE)
def test_every_accepted_message_comes_back_value_for_value_and_key_for_key(value: dict[str, Any]) -> None:
    before = as_text(value)
    message = parse_message(value)
    assert message_json(message) == value
    assert as_text(message_json(message)) == before
    assert validate_message(value) == value["role"] == message.role
    assert as_text(value) == before


@given(MESSAGE)
def test_copies_pickles_and_dumps_of_a_message_have_the_same_json(value: dict[str, Any]) -> None:
    message = parse_message(value)
    expected = as_text(value)
    for other in (copy.copy(message), copy.deepcopy(message), pickle.loads(pickle.dumps(message))):
        assert other == message
        assert as_text(message_json(other)) == expected
    if not replace_lone_surrogates(json.dumps(value, ensure_ascii=False))[1]:  # pydantic's dump refuses those
        assert as_text(message.model_dump()) == as_text(message.model_dump(mode="json", by_alias=False)) == expected


@given(MESSAGE, st.randoms(use_true_random=False))
def test_messages_with_equal_json_are_equal_in_whatever_order_their_keys_come(
    value: dict[str, Any], random: Any
) -> None:
    items = list(value.items())
    random.shuffle(items)
    assert parse_message(dict(items)) == parse_message(value)
    assert parse_message({**value, "furtherField": 1}) != parse_message(value)


KNOWN_KEYS = st.sampled_from(["content", "usage", "isError", "toolCallId", "stopReason", "timestamp", "details"])
PART_KEYS = st.sampled_from(["text", "thinking", "id", "name", "arguments", "data", "mimeType", "thinkingSignature"])
NOT_JSON = st.sampled_from([float("nan"), float("inf"), b"x", {1}, {1: 2}, (1, "x"), object(), MappingProxyType({})])
ANYTHING = st.one_of(JSON, NOT_JSON, st.lists(NOT_JSON, max_size=1))
LOOSE_PART = st.one_of(
    ANYTHING,
    st.builds(
        lambda kind, rest: {"type": kind, **rest},
        st.one_of(st.sampled_from(["text", "thinking", "toolCall", "image", "file", "other"]), SCALAR),
        st.dictionaries(PART_KEYS, ANYTHING, max_size=3),
    ),
)
LOOSE_MESSAGE = st.builds(
    lambda role, rest, parts: {"role": role, **rest, **({} if parts is None else {"content": parts})},
    st.one_of(st.sampled_from(["user", "assistant", "toolResult", "system", "tool"]), SCALAR),
    st.dictionaries(KNOWN_KEYS, ANYTHING, max_size=3),
    st.one_of(st.none(), st.lists(LOOSE_PART, max_size=3)),
)


def outcome(read: Callable[[Any, str], object], value: object) -> tuple[str, str]:
    try:
        found = read(value, "row 7")
    except InvalidEntry as refused:
        return "refused", str(refused)
    return "accepted", found if isinstance(found, str) else found.role  # type: ignore[attr-defined]


@given(LOOSE_MESSAGE)
def test_the_fast_check_and_the_parser_take_and_refuse_the_same_in_the_same_words(value: dict[str, Any]) -> None:
    verdict, words = outcome(parse_message, value)
    assert outcome(validate_message, value) == (verdict, words)
    if verdict == "refused":
        assert words.startswith("row 7")
    else:
        # What is accepted can be stored, and is stored as what the model gives back.
        assert encode_json(value, "row 7")[0] == encode_json(message_json(parse_message(value)), "row 7")[0]


# --- Shapes of real transcripts -----------------------------------------------------------------------------

REAL_SHAPES: dict[str, dict[str, Any]] = shapes("messages")


@inputs("name", REAL_SHAPES)
def test_shapes_of_real_transcripts_are_accepted_and_come_back_whole(name: str) -> None:
    value = REAL_SHAPES[name]
    assert as_text(message_json(parse_message(value))) == as_text(value)
    assert validate_message(value) == value["role"]


def test_each_role_and_part_type_has_its_class() -> None:
    roles = {
        "user": UserMessage, "assistant": AssistantMessage, "toolResult": ToolResultMessage, "system": SystemMessage,
        "bashExecution": OtherMessage, "tool": OtherMessage,
    }  # fmt: skip
    assert {role: type(parse_message({"role": role})) for role in roles} == roles
    parts = parse_message(
        {
            "role": "developer",
            "content": [
                {"type": "text", "text": "a"}, {"type": "thinking", "thinking": "b"},
                {"type": "toolCall", "id": "c", "name": "d"}, {"type": "image"}, {"type": "file"}, {"type": "audio"},
            ],
        }
    ).content  # fmt: skip
    assert isinstance(parts, tuple)
    assert [type(part) for part in parts] == [TextPart, ThinkingPart, ToolCallPart, ImagePart, FilePart, UnknownPart]


def test_attributes_are_snake_case_and_unknown_fields_are_reachable() -> None:
    result = parse_message(REAL_SHAPES["pi tool result"])
    assert isinstance(result, ToolResultMessage)
    assert (result.tool_call_id, result.tool_name, result.is_error) == ("call_1", "read", False)
    assert isinstance(result.content, tuple)
    image = result.content[1]
    assert isinstance(image, ImagePart)
    assert image.mime_type == "image/png"
    answer = parse_message(REAL_SHAPES["pi assistant"])
    assert isinstance(answer, AssistantMessage)
    assert answer.stop_reason == "toolUse"
    assert answer.usage is not None
    assert answer.usage["totalTokens"] == 120
    assert isinstance(answer.content, tuple)
    assert answer.content[2].model_extra == {"partialJson": "{"}


def test_a_snake_case_key_in_json_is_an_unknown_field_and_not_the_field() -> None:
    value = {"tool_call_id": "snake", "role": "toolResult", "toolCallId": "camel"}
    both = parse_message(value)
    assert isinstance(both, ToolResultMessage)
    assert both.tool_call_id == "camel"
    assert as_text(message_json(both)) == as_text(value)
    snake = parse_message({"role": "toolResult", "tool_call_id": 5})
    assert isinstance(snake, ToolResultMessage)
    assert snake.tool_call_id is None
    assert snake.model_extra == {"tool_call_id": 5}


def test_absent_and_null_are_not_the_same_message() -> None:
    assert parse_message({"role": "user", "content": None}) != parse_message({"role": "user"})


# --- Refusals -----------------------------------------------------------------------------------------------


def with_parts(*parts: object) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": "fine"}, *parts]}


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


CYCLE: dict[str, Any] = {}
CYCLE["again"] = CYCLE

BAD_MESSAGES: list[tuple[object, str]] = [
    ([], "message: should be an object, not list"),
    ("hi", "message: should be an object, not str"),
    (None, "message: should be an object, not null"),
    ({}, "message.role: is missing"),
    ({"content": "hi"}, "message.role: is missing"),
    ({"role": None}, "message.role: should be a string, not null"),
    ({"role": 1}, "message.role: should be a string, not int"),
    ({"role": ["user"]}, "message.role: should be a string, not list"),
    ({"role": "cus\0tom"}, "message.role: holds NUL"),
    ({"role": "\ud83d\ude00"}, "message.role: holds NUL or half of a surrogate pair"),
    ({"role": "user", "content": 5}, "message.content: should be a string, a list of parts or null, not int"),
    ({"role": "user", "content": True}, "message.content: should be a string, a list of parts or null, not bool"),
    ({"role": "user", "content": {"type": "text"}}, "message.content: should be a string, a list of parts or null"),
    ({"role": "custom", "content": 1.5}, "message.content: should be"),
    (with_parts("text"), "message.content[1]: should be an object with a type, not str"),
    (with_parts(None), "message.content[1]: should be an object with a type, not null"),
    (with_parts({"text": "x"}), "message.content[1].type: is missing"),
    (with_parts({"type": None, "text": "x"}), "message.content[1].type: should be a string, not null"),
    (with_parts({"type": 3}), "message.content[1].type: should be a string, not int"),
    (with_parts({"type": ["text"]}), "message.content[1].type: should be a string, not list"),
    (with_parts({"type": "text"}), "message.content[1].text: is missing"),
    (with_parts({"type": "text", "text": 5}), "message.content[1].text: should be a string, not int"),
    (with_parts({"type": "text", "text": None}), "message.content[1].text: should be a string, not null"),
    (with_parts({"type": "text", "text": ["x"]}), "message.content[1].text: should be a string, not list"),
    (with_parts({"type": "thinking"}), "message.content[1].thinking: is missing"),
    (
        with_parts({"type": "thinking", "thinking": "x", "thinkingSignature": 1}),
        "message.content[1].thinkingSignature: should be a string or null, not int",
    ),
    (with_parts({"type": "toolCall", "name": "read"}), "message.content[1].id: is missing"),
    (with_parts({"type": "toolCall", "id": "c"}), "message.content[1].name: is missing"),
    (with_parts({"type": "toolCall", "id": 7, "name": "r"}), "message.content[1].id: should be a string, not int"),
    (
        with_parts({"type": "toolCall", "id": "c", "name": None}),
        "message.content[1].name: should be a string, not null",
    ),
    (with_parts({"type": "image", "data": 1}), "message.content[1].data: should be a string or null, not int"),
    (
        with_parts({"type": "image", "mimeType": {}}),
        "message.content[1].mimeType: should be a string or null, not dict",
    ),
    (with_parts({"type": "file", "url": False}), "message.content[1].url: should be a string or null, not bool"),
    ({"role": "assistant", "stopReason": 5}, "message.stopReason: should be a string or null, not int"),
    ({"role": "assistant", "model": {}}, "message.model: should be a string or null, not dict"),
    ({"role": "toolResult", "toolCallId": 5}, "message.toolCallId: should be a string or null, not int"),
    ({"role": "toolResult", "isError": "no"}, "message.isError: should be true or false or null, not str"),
    ({"role": "toolResult", "isError": 0}, "message.isError: should be true or false or null, not int"),
    ({"role": "user", "x": {"y": [0, {1, 2}]}}, "message.x.y[1]: a set cannot be stored as JSON"),
    ({"role": "user", "x": [float("nan")]}, "message.x[0]: nan is not a JSON number"),
    ({"role": "user", "timestamp": float("-inf")}, "message.timestamp: -inf is not a JSON number"),
    ({"role": "user", "content": b"hi"}, "message.content: a bytes cannot be stored as JSON"),
    ({"role": "user", "x": {5: 1}}, "message.x: key 5 is a int; JSON keys are strings"),
    ({"role": "user", 5: 1}, "message: key 5 is a int; JSON keys are strings"),
    (with_parts({"type": "other", "x": object()}), "message.content[1].x: a object cannot be stored as JSON"),
    (with_parts(TextPart(text="typed")), "message.content[1]: should be an object with a type, not TextPart"),
    ({"role": "user", "x": CYCLE}, "message.x.again.again"),
    ({"role": "user", "content": CYCLE}, "message.content: should be"),
    (
        with_parts({"type": "toolCall", "id": "c", "name": "n", "arguments": CYCLE}),
        "message.content[1].arguments.again",
    ),
    ({"role": "user", "x": nested(MAX_JSON_DEPTH)}, f"nested deeper than {MAX_JSON_DEPTH} levels"),
    ({"role": "user", "x": nested(100_000)}, f"nested deeper than {MAX_JSON_DEPTH} levels"),
]


@inputs(("value", "words"), BAD_MESSAGES, ids=[words for _, words in BAD_MESSAGES])
def test_a_bad_message_is_refused_by_naming_the_field(value: Any, words: str) -> None:
    with pytest.raises(InvalidEntry) as refused:
        parse_message(value)
    assert words in str(refused.value)
    assert "pydantic" not in str(refused.value)
    assert refused.value.__cause__ is None
    with pytest.raises(InvalidEntry) as again:
        validate_message(value)
    assert str(again.value) == str(refused.value)


def test_the_error_speaks_of_the_place_the_caller_names() -> None:
    with pytest.raises(InvalidEntry, match=r"^messages\[3\]\.content\[0\]\.text: should be a string, not int$"):
        parse_message({"role": "user", "content": [{"type": "text", "text": 1}]}, "messages[3]")


def test_an_error_about_a_key_with_half_a_surrogate_pair_can_be_printed() -> None:
    with pytest.raises(InvalidEntry) as refused:
        parse_message({"role": "user", "bad\ud800": b""})
    assert str(refused.value).encode().startswith("message.bad\ufffd:".encode())


def test_nesting_is_accepted_as_deep_as_json_is_stored_and_not_deeper() -> None:
    deepest = {"role": "user", "x": nested(MAX_JSON_DEPTH - 1)}
    assert encode_json(deepest, "message")[0] == encode_json(message_json(parse_message(deepest)), "message")[0]
    assert validate_message(deepest) == "user"
    within_part = with_parts({"type": "other", "x": nested(MAX_JSON_DEPTH - 3)})
    assert encode_json(within_part, "message")[1] == 0
    assert message_json(parse_message(within_part)) == within_part
    too_deep = with_parts({"type": "other", "x": nested(MAX_JSON_DEPTH - 2)})
    for refuses in (parse_message, validate_message, lambda value: encode_json(value, "message")):
        with pytest.raises(InvalidEntry, match="nested deeper"):
            refuses(too_deep)


def test_a_very_large_message_is_one_message() -> None:
    value = {"role": "user", "content": [{"type": "text", "text": "x" * 1000}] * 5000, "n": 10**4000}
    assert message_json(parse_message(value)) == value
    assert validate_message(value) == "user"


# --- Other Python types that stand for JSON -----------------------------------------------------------------


class Role(str, Enum):  # noqa: UP042 - str() of the older kind of enum is not its value, which is the trap
    USER = "user"


class Level(int, Enum):
    HIGH = 3


def test_mappings_tuples_and_enums_are_taken_for_the_json_they_stand_for() -> None:
    value = MappingProxyType(
        {
            "role": Role.USER,
            "content": ({"type": "text", "text": Role.USER}, MappingProxyType({"type": "x", "y": (1, Level.HIGH)})),
            "level": Level.HIGH,
        }
    )
    message = parse_message(value)
    assert isinstance(message, UserMessage)
    assert type(validate_message(value)) is str
    assert type(message.role) is str
    assert as_text(message_json(message)) == as_text(
        {"role": "user", "content": [{"type": "text", "text": "user"}, {"type": "x", "y": [1, 3]}], "level": 3}
    )


def test_a_message_shares_nothing_with_what_it_was_read_from_or_gave_out() -> None:
    value: dict[str, Any] = with_parts({"type": "toolCall", "id": "c", "name": "n", "arguments": {"list": [1]}})
    value["usage"] = {"input": 1}
    expected = as_text(value)
    message = parse_message(value)
    value["usage"]["input"] = 2
    value["content"][1]["arguments"]["list"].append(2)
    assert as_text(message_json(message)) == expected
    given_out: Any = message_json(message)
    given_out["usage"].clear()
    given_out["content"][1]["arguments"]["list"].clear()
    assert as_text(message_json(message)) == expected


# --- Models as Python values --------------------------------------------------------------------------------


def test_messages_built_in_python_give_camel_case_json_with_the_role_first_and_nothing_unset() -> None:
    built: list[tuple[Message, dict[str, Any]]] = [
        (UserMessage(content="hi"), {"role": "user", "content": "hi"}),
        (UserMessage(), {"role": "user"}),
        (UserMessage(content=None), {"role": "user", "content": None}),
        (SystemMessage(timestamp=5, content=""), {"role": "system", "content": "", "timestamp": 5}),
        (
            AssistantMessage(
                stop_reason="toolUse",
                usage={"input": 1},
                content=(
                    ThinkingPart(thinking="hm", thinking_signature="s"),
                    TextPart(text="now"),
                    ToolCallPart(id="c", name="read", arguments={"path": "a"}),
                ),
            ),
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "thinkingSignature": "s"},
                    {"type": "text", "text": "now"},
                    {"type": "toolCall", "id": "c", "name": "read", "arguments": {"path": "a"}},
                ],
                "usage": {"input": 1},
                "stopReason": "toolUse",
            },
        ),
        (
            ToolResultMessage(
                tool_call_id="c",
                is_error=False,
                content=(ImagePart(data="QQ==", mime_type="image/png"), UnknownPart(type="audio")),
            ),
            {
                "role": "toolResult",
                "toolCallId": "c",
                "content": [{"type": "image", "data": "QQ==", "mimeType": "image/png"}, {"type": "audio"}],
                "isError": False,
            },
        ),
        (OtherMessage(role="developer", content="rules"), {"role": "developer", "content": "rules"}),
    ]
    for message, expected in built:
        assert as_text(message_json(message)) == as_text(expected)
        assert json.loads(message.model_dump_json()) == expected
        assert parse_message(expected) == message
        assert parse_message(message) is message


def test_models_take_json_names_plain_parts_and_unknown_fields_too() -> None:
    message = UserMessage.model_validate(
        {"content": [{"type": "text", "text": "a"}, TextPart(text="b")], "ownTag": {"n": (1, 2)}, "timestamp": 1.0}
    )
    assert as_text(message_json(message)) == as_text(
        {
            "role": "user",
            "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            "timestamp": 1.0,
            "ownTag": {"n": [1, 2]},
        }
    )
    result = ToolResultMessage.model_validate({"toolCallId": "c"})
    assert result == ToolResultMessage(tool_call_id="c")


@inputs(
    ("build", "words"),
    [
        (lambda: UserMessage(content=5), "content: should be a string"),
        (
            lambda: UserMessage(content=[{"type": "text", "text": 5}]),
            r"content\[0\]\.text: should be a string, not int",
        ),
        (lambda: UserMessage(content=(UserMessage(content="x"),)), "content"),
        (lambda: UserMessage(role="assistant"), "role"),
        (lambda: UserMessage(extra={1, 2}), "extra: a set cannot be stored as JSON"),
        (lambda: UserMessage.model_validate("hi"), "UserMessage"),
        (lambda: ToolResultMessage(is_error="no"), "is_error: should be true or false or null, not str"),
        (lambda: ToolCallPart(id="c", name="n", arguments={"x": float("nan")}), r"arguments\.x: nan is not"),
        (lambda: ToolCallPart(id="c"), "name"),
        (lambda: OtherMessage(role="user"), "'user' has a class of its own: UserMessage"),
        (lambda: OtherMessage(role="a\0b"), "holds NUL"),
        (lambda: UnknownPart(type="text", text="x"), "'text' has a class of its own: TextPart"),
    ],
)
def test_a_model_cannot_be_built_from_what_the_parser_would_refuse(build: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        build()


def test_messages_and_parts_are_frozen() -> None:
    message = parse_message({"role": "user", "content": [{"type": "text", "text": "x"}], "own": 1})
    assert isinstance(message.content, tuple)
    for target, name in ((message, "content"), (message, "own"), (message, "new"), (message.content[0], "text")):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(target, name, "other")
    with pytest.raises(ValidationError, match="frozen"):
        del message.content
    assert message_json(message) == {"role": "user", "content": [{"type": "text", "text": "x"}], "own": 1}


def test_a_changed_copy_keeps_the_order_of_keys_and_adds_the_new_ones_after_them() -> None:
    original = parse_message({"timestamp": 1, "own": 2, "content": "x", "role": "assistant"})
    changed = original.model_copy(update={"content": [TextPart(text="y")], "stop_reason": "stop"})
    assert as_text(message_json(changed)) == as_text(
        {
            "timestamp": 1,
            "own": 2,
            "content": [{"type": "text", "text": "y"}],
            "role": "assistant",
            "stopReason": "stop",
        }
    )
    assert as_text(message_json(original)) == as_text({"timestamp": 1, "own": 2, "content": "x", "role": "assistant"})
    with pytest.raises(InvalidEntry, match="a set cannot be stored"):
        message_json(original.model_copy(update={"timestamp": {1}}))


def test_equality_is_of_json_and_of_nothing_else() -> None:
    assert UserMessage(content="x") == parse_message({"content": "x", "role": "user"})
    assert UserMessage(content="x") != SystemMessage(content="x")
    assert UserMessage(content="x") != {"role": "user", "content": "x"}
    assert TextPart(text="x") == TextPart(text="x")
    assert TextPart(text="x") != TextPart(text="x", own=1)
    assert len({UserMessage(content="x"), parse_message({"content": "x", "role": "user"})}) == 1


class Envelope(BaseModel):
    messages: list[Message]


def test_a_message_is_lossless_as_a_field_of_another_model_too() -> None:
    values = list(REAL_SHAPES.values())
    envelope = Envelope.model_validate({"messages": values})
    assert as_text(envelope.model_dump()) == as_text({"messages": values})
    assert envelope.messages == [parse_message(value) for value in values]
    with pytest.raises(ValidationError, match=r"message\.role: is missing"):
        Envelope.model_validate({"messages": [{}]})
    schema = Envelope.model_json_schema()
    assert "toolCallId" in schema["$defs"]["ToolResultMessage"]["properties"]


# --- Text and role ------------------------------------------------------------------------------------------


@inputs(
    ("value", "text"),
    [
        ({"role": "user", "content": "hi"}, "hi"),
        ({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        (REAL_SHAPES["pi assistant"], "Reading."),
        ({"content": [{"type": "other", "text": "no"}, {"type": "text", "text": 5}, {"type": "text"}, 7, None]}, ""),
        ({"role": "user", "content": None}, ""), ({"role": "user"}, ""),
        ({"role": "user", "content": {"type": "text", "text": "x"}}, ""), ({}, ""), (None, ""), ([], ""),
    ],
)  # fmt: skip
def test_the_text_of_a_message_is_its_string_or_its_text_parts(value: Any, text: str) -> None:
    assert message_text(value) == text


def test_a_typed_message_has_its_text_and_its_calls_and_none_of_them_among_its_fields() -> None:
    for value in REAL_SHAPES.values():
        message = parse_message(value)
        assert message.text == message_text(value)
        assert as_text(message_json(message)) == as_text(value)
        if isinstance(message, AssistantMessage):
            assert [call.model_dump() for call in message.tool_calls] == tool_calls(value)
    other = parse_message({"role": "custom", "text": "its own field", "content": None})
    assert (other.text, other.model_extra) == ("", {"text": "its own field"})
    assert AssistantMessage(content="no parts").tool_calls == ()


@given(st.one_of(LOOSE_MESSAGE, JSON))
def test_asking_for_text_never_fails(value: Any) -> None:
    assert isinstance(message_text(value), str)
