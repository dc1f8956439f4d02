"""What the functions take and return, and how a context is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.messages import validate_message
from flue_py.core.projection import ContextEntry
from flue_py.core.shapes import shape_of
from flue_py.errors import InvalidEntry, shown
from flue_py.wire.leftovers import ExportNote
from flue_py.wire.lists.said import Said, said_in

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class ProviderList:
    """A list as a provider takes it.

    ``system`` is what a request has beside the list, None where there is nothing or the provider has it in the list.
    ``notes`` say what was left out or changed.
    """

    messages: list[JsonObject]
    system: JsonValue = None
    notes: tuple[ExportNote, ...] = ()


@dataclass(frozen=True, slots=True)
class FrameworkList(Generic[Item]):
    """The messages of a context as objects of a framework; ``notes`` say what was left out or changed."""

    messages: list[Item]
    notes: tuple[ExportNote, ...] = ()


@dataclass(frozen=True, slots=True)
class OurMessages:
    """Messages of ours made from another form; ``notes`` say what had no place in them.

    ``beside`` has for each what brings the original back, field for field: give the whole object to ``to_X`` for that.
    """

    messages: list[JsonObject]
    beside: list[JsonObject] = field(default_factory=list)
    notes: tuple[ExportNote, ...] = ()


Context: TypeAlias = Iterable[Mapping[str, JsonValue] | ContextEntry] | OurMessages
"""What the model sees: `Session.build_context` or `Session.build_context_entries` returns it; or what ``from_X`` made.

Entries and `OurMessages` also have what brings an original back: spellings, fields that ours have no place for.
"""


def said_of(context: Context) -> Iterator[Said]:
    """Yield the messages of a context, each with what stands beside it.

    Raises `InvalidEntry` with the path of what is not a message of ours. O(size).
    """
    if isinstance(context, OurMessages):
        beside = [*context.beside, *[{} for _ in range(len(context.messages) - len(context.beside))]]
        yield from (Said(*pair) for pair in zip(context.messages, beside, strict=True))
        return
    for number, item in enumerate(context):
        if isinstance(item, ContextEntry):
            yield from said_in([item])
        else:
            yield Said(_checked(item, f"messages[{number}]"))


def _checked(message: object, where: str) -> JsonObject:
    if not isinstance(message, Mapping):
        raise InvalidEntry(f"{where}: should be a message or an entry of a context, not {shown(message)}")
    shape = shape_of(message, where)
    if shape is not None:
        raise InvalidEntry(f"{where}: is of the form {shape}; make it one of ours first")
    validate_message(message, where)
    return dict(message)
