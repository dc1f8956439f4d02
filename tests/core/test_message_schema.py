"""The JSON Schema of a message and the models: what one accepts the other accepts."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flue_py.core.messages import check_complete, message_schema, validate_message
from flue_py.errors import InvalidEntry
from tests.tables import inputs

SCHEMA: dict[str, Any] = message_schema()  # type: ignore[assignment, unused-ignore]
TYPES: dict[str, type] = {"string": str, "boolean": bool, "object": dict, "array": list, "null": type(None)}
KNOWN = {
    "$schema", "$defs", "title", "description", "$ref", "type", "const", "enum", "not", "if", "then", "allOf", "anyOf",
    "required", "properties", "items", "pattern",
}  # fmt: skip


def accepts(schema: dict[str, Any], value: Any) -> bool:
    """Return whether a value is valid, by as much of draft 2020-12 as the schema makes use of."""
    assert set(schema) <= KNOWN
    if "$ref" in schema:
        return accepts(SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")], value)
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    checks = [
        not kinds or any(type(value) is TYPES[kind] for kind in kinds),
        "const" not in schema or value == schema["const"],
        "enum" not in schema or value in schema["enum"],
        "not" not in schema or not accepts(schema["not"], value),
        all(accepts(each, value) for each in schema.get("allOf", ())),
        "anyOf" not in schema or any(accepts(each, value) for each in schema["anyOf"]),
        "if" not in schema or not accepts(schema["if"], value) or accepts(schema["then"], value),
        "pattern" not in schema or not isinstance(value, str) or re.search(schema["pattern"], value) is not None,
    ]
    if isinstance(value, dict):
        checks.append(all(key in value for key in schema.get("required", ())))
        checks += [accepts(each, value[key]) for key, each in schema.get("properties", {}).items() if key in value]
    if isinstance(value, list) and "items" in schema:
        checks += [accepts(schema["items"], item) for item in value]
    return all(checks)


def taken(value: Any) -> bool:
    try:
        validate_message(value)
        check_complete(value)
    except InvalidEntry:
        return False
    return True


ANY = st.sampled_from([None, True, 5, 0.5, "", "text", [], {}, [{}], {"type": "text"}])


def some(*names: str, kept: st.SearchStrategy[Any] = ANY) -> dict[str, st.SearchStrategy[Any]]:
    return dict.fromkeys(names, kept)


PARTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "thinking", "toolCall", "image", "file", "audio"]) | ANY},
    optional={
        **some("text", "thinking", "id", "name", kept=st.just("x") | ANY),
        **some("thinkingSignature", "arguments", "data", "mimeType", "filename", "url", "odd"),
    },
)
CONTENT = st.just("text") | st.lists(PARTS, max_size=3) | ANY
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["user", "assistant", "toolResult", "system", "bashExecution", "a\0b"]) | ANY,
        "content": CONTENT,
        **some("toolCallId", kept=st.just("c") | ANY),
        **some("api", "provider", "model", "usage", "stopReason", "errorMessage", "timestamp", "toolName", "details"),
        **some("isError", "odd"),
    },
)


@given(MESSAGES)
def test_the_schema_accepts_what_the_models_accept(message: dict[str, Any]) -> None:
    assert accepts(SCHEMA, message) == taken(message)


@inputs(
    ("message", "is_accepted"),
    [
        ({"role": "user", "content": "x"}, True), ({"role": "user"}, False), ({"role": "user", "content": None}, False),
        ({"role": "assistant"}, True),
        ({"role": "assistant", "content": [{"type": "toolCall", "id": "c", "name": "f"}], "usage": {}}, True),
        ({"role": "assistant", "content": [{"type": "toolCall", "id": "c"}]}, False),
        ({"role": "assistant", "usage": 5}, True), ({"role": "toolResult", "toolCallId": "c"}, True),
        ({"role": "toolResult", "content": "x"}, False),
        ({"role": "toolResult", "toolCallId": "c", "isError": 1}, False), ({"role": "system", "content": []}, True),
        ({"role": "bashExecution", "command": "ls"}, True),
        ({"role": "user", "content": [{"type": "audio", "data": 5}]}, True),
        ({"role": "user", "content": [{"type": "image", "data": 5}]}, False), ({"content": "x"}, False), ([], False),
    ],
)  # fmt: skip
def test_what_a_message_has_to_have(message: Any, is_accepted: bool) -> None:
    assert (accepts(SCHEMA, message), taken(message)) == (is_accepted, is_accepted)
