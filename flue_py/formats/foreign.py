"""Messages in a provider's own form, converted by the code that imports their files (see `flue_py.core.shapes`)."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import NamedTuple

from flue_py.core.jsontext import JsonObject
from flue_py.core.shapes import Shape


class Converted(NamedTuple):
    """One of our messages, made from a provider's, with what stands beside it in the entry's ``extra``."""

    message: JsonObject
    beside: JsonObject


def convert(
    message: JsonObject, shape: Shape, names: MutableMapping[str, str], where: str = "message"
) -> list[Converted]:
    """Return a provider's message as ours, one or more, with what brings the original back in an export.

    ``names`` are the names of the tool calls so far, by id; those of this message are added. Nothing is shared with
    ``message`` that is changed. Raises `InvalidEntry` with the path of what cannot be converted. O(size).
    """
    from flue_py.formats import foreign_forms as forms  # noqa: PLC0415 - most messages are in our form

    forms.check(message, shape, where)
    converted = [Converted(*pair) for pair in forms.READERS[shape](message, names)]
    for each in converted:
        names.update(forms.calls_in(each.message))
    return converted


def beside_ours(message: JsonObject, shape: Shape) -> JsonObject:
    """Return what has to stand beside a message of ours, so that a list of ``shape`` gets it as it came. O(size)."""
    from flue_py.formats import foreign_forms as forms  # noqa: PLC0415 - most messages are in our form

    return forms.DIFFERENCES[shape](message, message)
