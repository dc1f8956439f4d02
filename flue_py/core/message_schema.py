"""The JSON Schema of a new message, made from the models, so that the two say the same."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.messages import (
    MESSAGE_CLASSES,
    NEEDED_WHEN_NEW,
    PART_CLASSES,
    OtherMessage,
    UnknownPart,
    field_kinds,
    fields_needed,
)

_TYPES: dict[type, str] = {str: "string", bool: "boolean", dict: "object", type(None): "null"}


def message_schema() -> JsonObject:
    """Return the JSON Schema (draft 2020-12) of what `Session.append_message` takes in our own form.

    It accepts what the models accept and a new message needs. Not in it: what JSON itself cannot say (how deep it is
    nested, how large it is), what providers' forms are, and what usage has to be to be counted. O(1).
    """
    defs: JsonObject = {model.__name__: _fields(model, "role") for model in MESSAGE_CLASSES}
    defs.update((model.__name__, _fields(model, "type")) for model in PART_CLASSES)
    defs["Part"] = _one_of("type", PART_CLASSES)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A message of flue_py",
        **_one_of("role", MESSAGE_CLASSES),
        "$defs": defs,
    }


def _one_of(head: str, models: Iterable[type]) -> JsonObject:
    """Return the schema of an object whose ``head`` says which of the models it is."""
    known = [model for model in models if model not in (OtherMessage, UnknownPart)]
    other = next(model for model in models if model not in known)
    heads: list[JsonValue] = [_head(model, head) for model in known]
    rules: list[JsonValue] = [
        {"if": {"properties": {head: {"const": _head(model, head)}}}, "then": {"$ref": f"#/$defs/{model.__name__}"}}
        for model in known
    ]
    rules.append(
        {"if": {"properties": {head: {"not": {"enum": heads}}}}, "then": {"$ref": f"#/$defs/{other.__name__}"}}
    )
    named: JsonObject = {"type": "string"}
    if head == "role":
        named["pattern"] = "^[^\\u0000]*$"
    return {"type": "object", "required": [head], "properties": {head: named}, "allOf": rules}


def _head(model: type, head: str) -> str:
    return str(model.model_fields[head].default)  # type: ignore[attr-defined]


def _fields(model: type, head: str) -> JsonObject:
    needed = NEEDED_WHEN_NEW.get(model, frozenset())
    properties: JsonObject = {
        key: _field(key, kinds, nullable=key not in needed) for key, kinds in field_kinds(model).items() if key != head
    }
    required: list[JsonValue] = [*sorted({*fields_needed(model), *needed} - {head})]
    said = (inspect.getdoc(model) or "").partition("\n")[0].replace("``", "`")
    schema: JsonObject = {"description": said, "properties": properties}
    return {**schema, "required": required} if required else schema


def _field(key: str, kinds: frozenset[type] | None, *, nullable: bool) -> JsonObject:
    if kinds is None:
        return {}
    if list in kinds:
        forms: list[JsonValue] = [{"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/Part"}}]
        return {"anyOf": [*forms, {"type": "null"}] if nullable else forms}
    names: list[JsonValue] = [*sorted(_TYPES[kind] for kind in kinds if nullable or kind is not type(None))]
    return {"type": names[0] if len(names) == 1 else names}
