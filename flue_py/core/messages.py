"""Messages as typed, frozen values, and the check that every message passes on its way in.

A model here is a typed view of one JSON object: what a user, a model or a tool said. It is neutral towards
providers (formats and adapters translate), and it loses nothing: fields and kinds that are not known here are
kept under their own names, null stays apart from absent, and the order of keys is remembered, so that
`message_json` gives back exactly the JSON that `parse_message` was given.

A model is not a place in history. It has no entry id, no parent and no session; those belong to the entry that
carries the message. It does not interpret either: ``usage`` and ``details`` stay JSON, tool calls are not
paired with their results, and nothing is normalised or defaulted.

Attributes are snake_case and JSON is camelCase (``tool_call_id``, ``toolCallId``). In JSON only the camelCase
spelling is the field: ``tool_call_id`` in a JSON object is an unknown field like any other, and is kept as one.
Python may build a model with either. Nested JSON (``arguments``, ``usage``, ``details``, unknown fields) is a
copy of the input; treat it as frozen too.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeAlias, TypeVar, cast, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PrivateAttr,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel

from flue_py.core.json import SCALARS, Refusal, is_json, plain_copy, plain_key, step_shown
from flue_py.errors import InvalidEntry, shown
from flue_py.lazy import lazy_module

if TYPE_CHECKING:
    import difflib
else:
    # The type that pydantic sees. The checks of this module run before its own, so it has nothing left to look at;
    # its recursive JSON type would walk every payload a second time.
    difflib = lazy_module("difflib")


# ---------------------------------------------------------------------------------------------------------------------
# Messages as typed, frozen values, and the check that every message passes on its way in.
#
# A model here is a typed view of one JSON object: what a user, a model or a tool said. It is neutral towards
# providers (formats and adapters translate), and it loses nothing: fields and kinds that are not known here are
# kept under their own names, null stays apart from absent, and the order of keys is remembered, so that
# `message_json` gives back exactly the JSON that `parse_message` was given.
#
# A model is not a place in history. It has no entry id, no parent and no session; those belong to the entry that
# carries the message. It does not interpret either: ``usage`` and ``details`` stay JSON, tool calls are not
# paired with their results, and nothing is normalised or defaulted.
#
# Attributes are snake_case and JSON is camelCase (``tool_call_id``, ``toolCallId``). In JSON only the camelCase
# spelling is the field: ``tool_call_id`` in a JSON object is an unknown field like any other, and is kept as one.
# Python may build a model with either. Nested JSON (``arguments``, ``usage``, ``details``, unknown fields) is a
# copy of the input; treat it as frozen too.

if TYPE_CHECKING:
    from flue_py.core.json import JsonObject, JsonValue
else:
    JsonValue = object
    JsonObject = dict[str, object]

# --- The JSON of a model -----------------------------------------------------------------------

_WORDS: dict[type, str] = {
    str: "a string",
    bool: "true or false",
    dict: "an object",
    list: "a list of parts",
    NoneType: "null",
}


@dataclass(frozen=True, slots=True)
class _Shape:
    """The fields of a model class, by JSON key. Derived from its annotations, so that there is one statement of it."""

    head: str
    """``role`` or ``type``: the field that says which class this is, and comes first."""
    names: dict[str, str]
    """JSON key to attribute, in field order."""
    kinds: dict[str, frozenset[type]]
    """JSON key to the types it may hold. Fields that take any JSON are not in it."""
    settled: dict[str, frozenset[type]]
    """The part of ``kinds`` that needs no closer look."""
    required: tuple[str, ...]
    defaults: dict[str, object]


def _shape_of(model: type[BaseModel]) -> _Shape:
    names, kinds, required, defaults = {}, {}, [], {}
    for name, field in model.model_fields.items():
        key = field.alias or name
        names[key] = name
        if field.annotation is not object:
            kinds[key] = _kinds_of(field.annotation)
        if field.is_required():
            required.append(key)
        else:
            defaults[name] = field.default
    return _Shape(
        head=next(iter(names)),
        names=names,
        kinds=kinds,
        settled={key: kinds_of_key & SCALARS for key, kinds_of_key in kinds.items()},
        required=tuple(required),
        defaults=defaults,
    )


def _kinds_of(annotation: object) -> frozenset[type]:
    if get_origin(annotation) is Literal:
        return frozenset((str,))
    members = (annotation,) if get_origin(annotation) is dict else get_args(annotation) or (annotation,)
    kinds = {get_origin(member) or member for member in members}
    return frozenset(list if kind is tuple else kind for kind in kinds)


class _JsonModel(BaseModel):
    """A frozen view of one JSON object.

    Built from Python it is checked by the same rules as `parse_message`, but the error is pydantic's own
    ``ValidationError`` (a ``ValueError``, as `InvalidEntry` is). ``model_dump`` in every mode gives the JSON.
    Two models are equal when their JSON is, as Python compares it: key order does not matter, 1 equals 1.0.
    """

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True, alias_generator=to_camel)

    _order: tuple[str, ...] = PrivateAttr(default=())
    _shape: ClassVar[_Shape]

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: object) -> None:
        if cls.model_fields:
            cls._shape = _shape_of(cls)

    @model_validator(mode="before")
    @classmethod
    def _check(cls, data: object) -> object:
        return _checked_arguments(cls, data) if isinstance(data, Mapping) else data

    @model_serializer(mode="plain")
    def _dump(self) -> dict[str, object]:
        return cast("dict[str, object]", _json_of(self))

    def __eq__(self, value: object) -> bool:
        if not isinstance(value, _JsonModel):
            return NotImplemented
        return _json_of(self) == _json_of(value)

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.values()))


# --- Parts --------------------------------------------------------------------------------------------------


class TextPart(_JsonModel):
    """Text that was said."""

    type: Literal["text"] = "text"
    text: str


class ThinkingPart(_JsonModel):
    """Reasoning of a model; the signature lets its own provider accept it back."""

    type: Literal["thinking"] = "thinking"
    thinking: str
    thinking_signature: str | None = None


class ToolCallPart(_JsonModel):
    """A model's call of a tool. ``arguments`` are usually an object, but models have sent every JSON value."""

    type: Literal["toolCall"] = "toolCall"
    id: str
    name: str
    arguments: JsonValue = None


class ImagePart(_JsonModel):
    """A picture: base64 ``data`` with its ``mime_type``, or what another provider puts in its place."""

    type: Literal["image"] = "image"
    data: str | None = None
    mime_type: str | None = None


class FilePart(_JsonModel):
    """A file: base64 ``data``, or a ``url`` where it can be found."""

    type: Literal["file"] = "file"
    data: str | None = None
    mime_type: str | None = None
    filename: str | None = None
    url: str | None = None


class UnknownPart(_JsonModel):
    """A part of any other type, kept whole; its fields are in ``model_extra``."""

    type: str

    @field_validator("type")
    @classmethod
    def _leaves_known_types_alone(cls, value: str) -> str:
        if value in _PART_BY_TYPE:
            raise ValueError(f"{shown(value)} has a class of its own: {_PART_BY_TYPE[value].__name__}")
        return value


Part: TypeAlias = TextPart | ThinkingPart | ToolCallPart | ImagePart | FilePart | UnknownPart

_PART_BY_TYPE: dict[str, type[_JsonModel]] = {
    "text": TextPart,
    "thinking": ThinkingPart,
    "toolCall": ToolCallPart,
    "image": ImagePart,
    "file": FilePart,
}
PART_CLASSES = (TextPart, ThinkingPart, ToolCallPart, ImagePart, FilePart, UnknownPart)
_PART_SHAPES = {kind: model._shape for kind, model in _PART_BY_TYPE.items()}
_UNKNOWN_PART_SHAPE = UnknownPart._shape


# --- Messages -----------------------------------------------------------------------------------------------


class _MessageModel(_JsonModel):
    @property
    def text(self) -> str:
        """The text for a reader: the content, or its text parts joined by newlines; "" for a message without any."""
        content: str | Sequence[Part] | None = self.__dict__["content"]
        if content is None or isinstance(content, str):
            return content or ""
        return "\n".join(part.text for part in content if isinstance(part, TextPart))


class SystemMessage(_MessageModel):
    """Instructions that stand above the conversation."""

    role: Literal["system"] = "system"
    content: str | tuple[Part, ...] | None = None
    timestamp: JsonValue = None


class UserMessage(_MessageModel):
    """What the user said."""

    role: Literal["user"] = "user"
    content: str | tuple[Part, ...] | None = None
    timestamp: JsonValue = None


class AssistantMessage(_MessageModel):
    """One answer of a model, with what it cost. ``usage`` is kept as it was reported, and read where it is counted."""

    role: Literal["assistant"] = "assistant"
    content: str | tuple[Part, ...] | None = None
    api: str | None = None
    provider: str | None = None
    model: str | None = None
    usage: JsonValue = None
    stop_reason: str | None = None
    error_message: str | None = None
    timestamp: JsonValue = None

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """The calls of tools, in order."""
        content = self.content if isinstance(self.content, tuple) else ()
        return tuple(part for part in content if isinstance(part, ToolCallPart))


class ToolResultMessage(_MessageModel):
    """What a tool answered. Old transcripts leave the id out; then it is None."""

    role: Literal["toolResult"] = "toolResult"
    tool_call_id: str | None = None
    tool_name: str | None = None
    content: str | tuple[Part, ...] | None = None
    details: JsonValue = None
    is_error: bool | None = None
    timestamp: JsonValue = None


class OtherMessage(_MessageModel):
    """A message of any other role (bashExecution, custom, tool, developer ...), kept whole."""

    role: str
    content: str | tuple[Part, ...] | None = None
    timestamp: JsonValue = None

    @field_validator("role")
    @classmethod
    def _leaves_known_roles_alone(cls, value: str) -> str:
        if value in _MESSAGE_BY_ROLE:
            raise ValueError(f"{shown(value)} has a class of its own: {_MESSAGE_BY_ROLE[value].__name__}")
        if not _can_be_stored(value):
            raise ValueError(_UNSTORABLE_ROLE)
        return value


_AnyMessage: TypeAlias = UserMessage | AssistantMessage | ToolResultMessage | SystemMessage | OtherMessage

MESSAGE_CLASSES = (UserMessage, AssistantMessage, ToolResultMessage, SystemMessage, OtherMessage)
_MESSAGE_BY_ROLE: dict[str, type[_JsonModel]] = {
    "user": UserMessage,
    "assistant": AssistantMessage,
    "toolResult": ToolResultMessage,
    "system": SystemMessage,
}
NEEDED_WHEN_NEW: dict[type, frozenset[str]] = {
    SystemMessage: frozenset(("content",)),
    UserMessage: frozenset(("content",)),
    ToolResultMessage: frozenset(("toolCallId",)),
}
"""Fields that a message has to have to come in, null excluded; one that `parse_message` reads may be without them."""
_MESSAGE_SHAPES = {role: model._shape for role, model in _MESSAGE_BY_ROLE.items()}
_OTHER_MESSAGE_SHAPE = OtherMessage._shape


# --- In and out ---------------------------------------------------------------------------------------------


def parse_message(value: Mapping[str, JsonValue] | Message, where: str = "message") -> Message:
    """Return the message that a JSON object is; a message that is already typed is returned as it is.

    ``where`` names the value in errors. Raises `InvalidEntry`, naming the path of the field, for a role that is
    missing or not a string, content that is not a string, a list of parts or null, a part without a type, a known field
    of the wrong type, a tool call without id or name, and for values that JSON cannot hold (other types, NaN, keys that
    are not strings, nesting deeper than `MAX_JSON_DEPTH`). Everything else is accepted and kept, value for
    value and in its order. Nothing is shared with ``value``. Cost: O(size).
    """
    if isinstance(value, MESSAGE_CLASSES):
        return value
    try:
        return cast("Message", _message(value))
    except Refusal as refusal:
        raise refusal.at(where) from None


def validate_message(value: Mapping[str, JsonValue], where: str = "message") -> str:
    """Return the role of a message that `parse_message` accepts, without building anything.

    Raises `InvalidEntry` exactly where `parse_message` does, in the same words. Cost: O(size), a few
    microseconds for a common message.
    """
    role = accepted_role(value)
    return parse_message(value, where).role if role is None else role


def accepted_role(value: Mapping[str, JsonValue]) -> str | None:
    """Return the role of a message that `parse_message` accepts as it stands, and None of one that needs a closer look.

    That one is refused, or holds a value that only equals JSON (a tuple, another mapping, an enum); any other holds
    JSON's own types alone, and no NaN. O(size).
    """
    if type(value) is dict:
        role = value.get("role")
        if type(role) is str and (role in _MESSAGE_SHAPES or _can_be_stored(role)):
            shape = _MESSAGE_SHAPES.get(role, _OTHER_MESSAGE_SHAPE)
            if _is_acceptable(cast("dict[object, object]", value), shape, 0):
                return role
    return None


def check_complete(value: Mapping[str, JsonValue], where: str = "message") -> None:
    """Check that a message that `parse_message` accepts, as JSON, has the fields that it needs on its way into a store.

    A user or system message needs content, the result of a tool the id of the call: stores of older versions may have
    messages without. A role of an application's own is fine, but not one that looks like a slip: no provider would be
    sent it, and an answer of it would cost nothing. Raises `InvalidEntry`. O(1).
    """
    role = value.get("role")
    if isinstance(role, str) and role not in _ROLES and (meant := _role_meant(role)):
        raise InvalidEntry(f"{where}.role: {shown(role)} is no role; did you mean {shown(meant)}?")
    model = _MESSAGE_BY_ROLE.get(role, OtherMessage) if isinstance(role, str) else OtherMessage
    for key in NEEDED_WHEN_NEW.get(model, ()):
        if value.get(key) is None:
            raise InvalidEntry(f"{where}.{key}: is missing; a message of role {role} {_WHY_NEEDED[key]}")


_ROLES = frozenset({*_MESSAGE_BY_ROLE, "developer", "tool"})
_BY_PLAIN_ROLE = {role.casefold(): role for role in _ROLES}
_SLIP = 0.8


def _role_meant(role: str) -> str | None:
    """Return the role that another one is a slip of the pen for, if it looks like one."""
    plain = role.casefold().strip().replace("_", "").replace("-", "")
    near = difflib.get_close_matches(plain, _BY_PLAIN_ROLE, 1, _SLIP)
    return _BY_PLAIN_ROLE[near[0]] if near else None


_WHY_NEEDED = {"content": "needs a string or a list of parts", "toolCallId": "needs the id of the call that it answers"}


def field_kinds(model: type) -> dict[str, frozenset[type] | None]:
    """Return the JSON keys of a message or part class, each with the types it may hold; None for any JSON."""
    shape = _shape_of(model)
    return {key: shape.kinds.get(key) for key in shape.names}


def fields_needed(model: type) -> tuple[str, ...]:
    """Return the JSON keys without which there is no message or part of a class."""
    return _shape_of(model).required


def message_json(message: Message) -> JsonObject:
    """Return the JSON object a message is, the caller's to change.

    A parsed message gives back the keys it came with, in their order. One built in Python gives its role, then
    the fields that were set, in the order of the class, then unknown fields. Raises `InvalidEntry` if
    ``model_copy`` or ``model_construct``, which check nothing, put in a value that JSON cannot hold. Cost: O(size).
    """
    try:
        return _json_of(message)
    except Refusal as refusal:
        raise refusal.at("message") from None


def _parsed_if_json(value: object) -> object:
    return parse_message(cast("JsonObject", value)) if isinstance(value, Mapping) else value


Message: TypeAlias = Annotated[_AnyMessage, BeforeValidator(_parsed_if_json)]
"""Any message. As a field of another pydantic model it takes JSON the way `parse_message` does."""


# --- Reading ------------------------------------------------------------------------------------------------

_M = TypeVar("_M", bound=_JsonModel)

_UNSTORABLE_ROLE = "holds NUL or half of a surrogate pair, which databases refuse; use a plain word"


def _can_be_stored(role: str) -> bool:
    # The role is also a column of its own, outside the JSON text where such characters can be escaped.
    try:
        role.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in role


def _role(value: Mapping[str, JsonValue]) -> str:
    if not isinstance(value, Mapping):
        raise Refusal(f"should be an object, not {_type_name(value)}")
    if "role" not in value:
        raise Refusal("is missing; say whose message it is, such as 'user' or 'assistant'", ".role")
    role = value["role"]
    if not isinstance(role, str):
        raise Refusal(f"should be a string, not {_type_name(role)}", ".role")
    if not _can_be_stored(role):
        raise Refusal(_UNSTORABLE_ROLE, ".role")
    return str.__str__(role)


def _message(value: Mapping[str, JsonValue]) -> _JsonModel:
    return _built(_MESSAGE_BY_ROLE.get(_role(value), OtherMessage), value, 0)


def _part(value: object, depth: int) -> _JsonModel:
    if not isinstance(value, Mapping):
        raise Refusal(f"should be an object with a type, not {_type_name(value)}")
    if "type" not in value:
        raise Refusal("is missing; every part says what it is, such as 'text'", ".type")
    kind = value["type"]
    if not isinstance(kind, str):
        raise Refusal(f"should be a string, not {_type_name(kind)}", ".type")
    return _built(_PART_BY_TYPE.get(kind, UnknownPart), value, depth)


def _built(model: type[_M], value: Mapping[str, object], depth: int) -> _M:
    """Return a model of a JSON object that stands ``depth`` levels deep."""
    shape = model._shape
    fields, extra = dict(shape.defaults), {}
    names_set: set[str] = set()
    order: list[str] = []
    for raw_key, item in value.items():
        key = raw_key if type(raw_key) is str else plain_key(raw_key, order)
        order.append(key)
        try:
            if (name := shape.names.get(key)) is None:
                extra[key] = plain_copy(item, depth + 1)
            else:
                fields[name] = _field_value(shape, key, item, depth + 1)
                names_set.add(name)
        except Refusal as refusal:
            refusal.path = f".{step_shown(key)}{refusal.path}"
            raise
    for key in shape.required:
        if shape.names[key] not in names_set:
            raise Refusal(f"is missing; a part of type {shown(fields[shape.head])} needs it", f".{key}")
    # Validation by pydantic would read snake_case keys as fields and forget the order of keys, so the checked
    # state goes in the way unpickling puts it in.
    built = model.__new__(model)
    built.__setstate__(
        {
            "__dict__": fields,
            "__pydantic_fields_set__": names_set,
            "__pydantic_extra__": extra,
            "__pydantic_private__": {"_order": tuple(order)},
        }
    )
    return built


def _field_value(shape: _Shape, key: str, item: object, depth: int) -> object:
    kinds = shape.kinds.get(key)
    if kinds is None:
        return plain_copy(item, depth)
    if list in kinds and isinstance(item, (list, tuple)):
        return _parts(item, depth)
    if dict not in kinds and isinstance(item, (Mapping, list, tuple)):
        raise Refusal(_mismatch(kinds, item))
    value = plain_copy(item, depth)
    if type(value) not in kinds:
        raise Refusal(_mismatch(kinds, item))
    return value


def _parts(items: list[object] | tuple[object, ...], depth: int, *, typed: bool = False) -> tuple[_JsonModel, ...]:
    """Return the parts in a list; with ``typed``, those that are models already stay as they are."""
    parts = []
    for number, item in enumerate(items):
        try:
            parts.append(item if typed and isinstance(item, _JsonModel) else _part(item, depth + 1))
        except Refusal as refusal:
            refusal.path = f"[{number}]{refusal.path}"
            raise
    return tuple(parts)


def _mismatch(kinds: frozenset[type], value: object) -> str:
    words = [word for kind, word in _WORDS.items() if kind in kinds]
    wanted = f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
    return f"should be {wanted}, not {_type_name(value)}"


def _type_name(value: object) -> str:
    return "null" if value is None else type(value).__name__


def _checked_arguments(model: type[_JsonModel], data: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments of a model built in Python, checked and copied as `_built` does it."""
    shape = model._shape
    key_of = {name: key for key, name in shape.names.items()}
    checked: dict[str, object] = {}
    for raw_key, item in data.items():
        argument = raw_key if type(raw_key) is str else plain_key(raw_key, checked)
        key = key_of.get(argument, argument)
        try:
            if key not in shape.names:
                checked[argument] = plain_copy(item, 1)
            elif key == "content" and isinstance(item, (list, tuple)):
                checked[argument] = _parts(item, 1, typed=True)
            else:
                checked[argument] = _field_value(shape, key, item, 1)
        except Refusal as refusal:
            refusal.path = f".{step_shown(argument)}{refusal.path}"
            raise
    return checked


def _is_acceptable(value: dict[object, object], shape: _Shape, depth: int) -> bool:
    """Return whether `_built` would accept an object. False may also mean that this check does not know."""
    settled, kinds_by_key = shape.settled, shape.kinds
    for key, item in value.items():
        kind = type(item)
        if type(key) is not str:
            return False
        if kind in settled.get(key, SCALARS):
            continue
        kinds = kinds_by_key.get(key)
        if kinds is None or (kind is dict and dict in kinds):
            if not is_json(item, depth + 1):
                return False
        elif kind is not list or list not in kinds or not _are_parts(cast("list[object]", item), depth + 1):
            return False
    for key in shape.required:  # noqa: SIM110 - on the path of every append, where a generator costs as much again
        if key not in value:
            return False
    return True


def _are_parts(items: list[object], depth: int) -> bool:
    for item in items:
        if type(item) is not dict:
            return False
        kind = item.get("type")
        if type(kind) is not str:
            return False
        if not _is_acceptable(item, _PART_SHAPES.get(kind, _UNKNOWN_PART_SHAPE), depth + 1):
            return False
    return True


# --- Writing ------------------------------------------------------------------------------------------------


def _json_of(model: _JsonModel) -> JsonObject:
    shape = model._shape
    values, extra, names_set = model.__dict__, model.__pydantic_extra__ or {}, model.model_fields_set
    written: JsonObject = {}
    for key in (*model._order, *shape.names, *extra):
        if key in written:
            continue
        name = shape.names.get(key)
        if name is None:
            if key in extra:
                written[key] = plain_copy(extra[key], 1)
        elif name in names_set or key == shape.head:
            written[key] = _json_of_field(key, values[name])
    return written


def _json_of_field(key: str, value: object) -> JsonValue:
    if key == "content" and isinstance(value, (tuple, list)):
        return [_json_of(part) if isinstance(part, _JsonModel) else plain_copy(part, 2) for part in value]
    return plain_copy(value, 1)


# ---------------------------------------------------------------------------------------------------------------------
# The JSON Schema of a new message, made from the models, so that the two say the same.

_TYPES: dict[type, str] = {str: "string", bool: "boolean", dict: "object", type(None): "null"}


def message_schema() -> JsonObject:
    """Return the JSON Schema (draft 2020-12) of a message that `Session.append_message` takes in our own form.

    It accepts a message that the models accept, with the fields of a new one. Not in it: the limits that JSON cannot
    say (how deep it is nested, how large it is), the forms of providers, and the usage that can be counted. O(1).
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
    named_models = [model for model in models if model not in (OtherMessage, UnknownPart)]
    fallback = next(model for model in models if model not in named_models)
    heads: list[JsonValue] = [_head(model, head) for model in named_models]
    rules: list[JsonValue] = [
        {"if": {"properties": {head: {"const": _head(model, head)}}}, "then": {"$ref": f"#/$defs/{model.__name__}"}}
        for model in named_models
    ]
    rules.append(
        {"if": {"properties": {head: {"not": {"enum": heads}}}}, "then": {"$ref": f"#/$defs/{fallback.__name__}"}}
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
    description = (inspect.getdoc(model) or "").partition("\n")[0].replace("``", "`")
    schema: JsonObject = {"description": description, "properties": properties}
    return {**schema, "required": required} if required else schema


def _field(key: str, kinds: frozenset[type] | None, *, nullable: bool) -> JsonObject:
    if kinds is None:
        return {}
    if list in kinds:
        forms: list[JsonValue] = [{"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/Part"}}]
        return {"anyOf": [*forms, {"type": "null"}] if nullable else forms}
    names: list[JsonValue] = [*sorted(_TYPES[kind] for kind in kinds if nullable or kind is not type(None))]
    return {"type": names[0] if len(names) == 1 else names}
