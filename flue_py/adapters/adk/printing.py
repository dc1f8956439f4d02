"""Events and state of ADK as JSON, with what the JSON that ADK prints leaves out.

That JSON has null for NaN and infinities, and other names for those with half of a surrogate pair. Here they stay as
they are; how they are stored is said in `events`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from google.adk.sessions.state import State as StateNames
from pydantic_core import to_jsonable_python

from flue_py.adapters.adk.parts import with_usual_base64
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.errors import InvalidArgument, shown

if TYPE_CHECKING:
    from google.adk.events.event import Event

_log = logging.getLogger("flue_py.adapters.adk")

_OPEN_PARTS = (
    ("functionCall", "function_call", "args"),
    ("functionResponse", "function_response", "response"),
    ("toolCall", "tool_call", "args"),
    ("toolResponse", "tool_response", "response"),
)
"""The fields of a part with a field in them that may hold anything."""


def printed_event(event: Event) -> JsonObject:
    """Return an event as JSON in camel case, without what is as its default, and without temporary state. O(size).

    Raises `InvalidArgument` for what JSON has no form for.
    """
    try:
        made: JsonObject = _without_state(event).model_dump(
            mode="json", by_alias=True, exclude_defaults=True, exclude_none=True
        )
    except ValueError as error:
        raise InvalidArgument(
            f"event {shown(event.id)}: {error}; let tools return, and events hold, what JSON has a form for"
        ) from error
    # What a model has by default is left out, and these two are never the default.
    made["id"], made["timestamp"] = event.id, event.timestamp
    with_usual_base64(made.get("content"))
    _set_exactly(made, event)
    # Fields with a serializer of their own are printed whatever they hold.
    made = {name: value for name, value in made.items() if value is not None}
    actions = made.pop("actions", None)
    done: JsonObject = {}
    if isinstance(actions, dict):
        done = {name: value for name, value in actions.items() if value is not None}
    temporary = StateNames.TEMP_PREFIX
    delta = {name: value for name, value in event.actions.state_delta.items() if not name.startswith(temporary)}
    if delta:
        done["stateDelta"] = printed_state(delta)
    if done:
        made["actions"] = done
    return made


def printed_state(state: Mapping[str, object]) -> JsonObject:
    """Return state as JSON. O(size).

    What JSON has no form for is kept as its text, with a warning, as ADK's own services do. Raises `InvalidArgument`
    for bytes that are no text, and for what is no mapping.
    """
    if not isinstance(state, Mapping):
        raise InvalidArgument(f"state: should be a mapping of names to values, not {shown(state)}")
    try:
        made = cast("JsonObject", to_jsonable_python(dict(state)))
    except ValueError:
        # ADK's own way out refuses names with half of a surrogate pair, too.
        made = {str(name): _printed(value, f"state[{shown(name)}]") for name, value in state.items()}
    return cast("JsonObject", _exact(made, dict(state)))


def _without_state(event: Event) -> Event:
    # To leave it out by `exclude` would look up names inside of other fields, and refuse halves of surrogate pairs.
    if not event.actions.state_delta:
        return event
    return event.model_copy(update={"actions": event.actions.model_copy(update={"state_delta": {}})})


def _printed(value: object, where: str) -> JsonValue:
    if isinstance(value, Mapping):
        return {
            name if isinstance(name, str) else str(to_jsonable_python(name, serialize_unknown=True)): _printed(
                inside, f"{where}[{shown(name)}]"
            )
            for name, inside in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_printed(inside, f"{where}[{number}]") for number, inside in enumerate(value)]
    if isinstance(value, (bytes, bytearray)):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise InvalidArgument(
                f"{where}: bytes that are no text have no form in JSON; save them as an artifact, or as text in base64"
            ) from None
    if isinstance(value, str):
        return value
    try:
        return cast("JsonValue", to_jsonable_python(value))
    except ValueError:
        _log.warning("%s is not JSON, and is kept as its text.", where, exc_info=True)
        return cast("JsonValue", to_jsonable_python(value, serialize_unknown=True))


def _set_exactly(made: JsonObject, event: Event) -> None:
    """Put what fields that may hold anything hold, where printing them has changed it."""
    content = made.get("content")
    printed = content.get("parts") if isinstance(content, dict) else None
    parts = event.content.parts if event.content is not None else None
    for one, part in zip(printed if isinstance(printed, list) else (), parts or (), strict=True):
        if not isinstance(one, dict):
            continue
        for alias, name, field in _OPEN_PARTS:
            held = one.get(alias)
            if isinstance(held, dict) and field in held:
                held[field] = _exact(held[field], getattr(getattr(part, name), field))
        if "partMetadata" in one:
            one["partMetadata"] = _exact(one["partMetadata"], part.part_metadata)
    for alias, value in (("customMetadata", event.custom_metadata), ("output", event.output)):
        if value is not None:
            made[alias] = _exact(made.get(alias), value)
    _set_actions_exactly(made.get("actions"), event)


def _set_actions_exactly(made: JsonValue, event: Event) -> None:
    if not isinstance(made, dict):
        return
    actions = event.actions
    for alias, value in (("agentState", actions.agent_state), ("setModelResponse", actions.set_model_response)):
        if value is not None:
            made[alias] = _exact(made.get(alias), value)
    confirmations = made.get("requestedToolConfirmations")
    for id, asked in actions.requested_tool_confirmations.items():
        one = confirmations.get(id) if isinstance(confirmations, dict) else None
        if isinstance(one, dict) and asked.payload is not None:
            one["payload"] = _exact(one.get("payload"), asked.payload)
    widgets = made.get("renderUiWidgets")
    for one, widget in zip(widgets if isinstance(widgets, list) else (), actions.render_ui_widgets or (), strict=True):
        if isinstance(one, dict):
            one["payload"] = _exact(one.get("payload"), widget.payload)


def _exact(printed: JsonValue, held: object) -> JsonValue:
    """Return what is printed with the numbers and the names that it was printed from. O(size)."""
    if isinstance(printed, dict) and isinstance(held, dict) and len(printed) == len(held):
        return {
            name if isinstance(name, str) else alias: _exact(one, inside)
            for (alias, one), (name, inside) in zip(printed.items(), held.items(), strict=True)
        }
    if isinstance(printed, list) and isinstance(held, (list, tuple)) and len(printed) == len(held):
        return [_exact(one, inside) for one, inside in zip(printed, held, strict=True)]
    if printed is None and isinstance(held, float) and not math.isfinite(held):
        return held
    return printed
