"""What commands are given to read: files that options name, and standard input."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from flue_py.cli.place import expanded
from flue_py.core.jsontext import JsonObject
from flue_py.errors import InvalidArgument, InvalidEntry, shown
from flue_py.lazy import lazy_module
from flue_py.plain_files import read_beginning

if TYPE_CHECKING:
    from flue_py.context import settings as context_settings
    from flue_py.context.settings import ContextSettings
else:
    context_settings = lazy_module("flue_py.context.settings")

MOST_BYTES = 1_000_000
"""A file of settings, of a system prompt or of tools is no larger."""

MOST_BYTES_OF_INPUT = 64_000_000
"""What comes from standard input is no longer: what a store takes at once, with room for JSON's escapes."""


def text_from_stdin(what: str) -> str:
    """Return the text on standard input as it is.

    Raises `InvalidEntry` where it is too long, no UTF-8, or cannot be read.
    """
    try:
        return _stdin_bytes(what).decode()
    except UnicodeDecodeError as error:
        raise InvalidEntry(f"{what}: standard input is no text in UTF-8 ({error})") from error


def json_from_stdin(what: str) -> object:
    """Return the JSON value on standard input.

    Raises `InvalidEntry` where it is too long, no JSON, or cannot be read.
    """
    data = _stdin_bytes(what)
    if not data.strip():
        raise InvalidEntry(f"{what}: there is nothing on standard input")
    return _json_of(f"{what}: standard input", data, "value", InvalidEntry)


def _stdin_bytes(what: str) -> bytes:
    try:
        data = sys.stdin.buffer.read(MOST_BYTES_OF_INPUT + 1)
    except (OSError, ValueError, AttributeError) as error:
        raise InvalidEntry(f"{what}: standard input cannot be read ({error})") from error
    if len(data) > MOST_BYTES_OF_INPUT:
        raise InvalidEntry(f"{what}: there are more than {MOST_BYTES_OF_INPUT:,} bytes on standard input")
    return data


def settings_in(file: str | None) -> ContextSettings | None:
    """Return the settings of a JSON file, None for none.

    Raises `InvalidArgument` for a file that cannot be read or has no JSON object, and names each field that is wrong.
    """
    if file is None:
        return None
    given = _json_in(f"--settings {file}", file, "object")
    if not isinstance(given, dict):
        raise InvalidArgument(f"--settings {file}: it has no JSON object, but {shown(given)}")
    return context_settings.context_settings(given)


def system_in(file: str | None) -> str | None:
    """Return the text of a file as it is, with the end of its last line; None for none.

    Raises `InvalidArgument` for a file that cannot be read or is no UTF-8.
    """
    if file is None:
        return None
    try:
        return _bytes_in(f"--system {file}", file).decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"--system {file}: it is no text in UTF-8 ({error})") from error


def tools_in(file: str | None) -> list[JsonObject]:
    """Return the definitions of tools in a JSON file, [] for none.

    Raises `InvalidArgument` for a file that cannot be read or has no list of JSON objects.
    """
    if file is None:
        return []
    given = _json_in(f"--tools {file}", file, "list")
    if not isinstance(given, list):
        raise InvalidArgument(f"--tools {file}: it has no JSON list, but {shown(given)}")
    for number, tool in enumerate(given):
        if not isinstance(tool, dict):
            raise InvalidArgument(f"--tools {file}: [{number}] is no definition of a tool, but {shown(tool)}")
    return given


def _json_in(what: str, file: str, kind: str) -> object:
    return _json_of(f"{what}: it", _bytes_in(what, file), kind, InvalidArgument)


def _json_of(what: str, data: bytes, kind: str, refusal: type[InvalidArgument] | type[InvalidEntry]) -> object:
    try:
        found: object = json.loads(data, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise refusal(f"{what} has no JSON {kind} ({error})") from error
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _bytes_in(what: str, file: str) -> bytes:
    try:
        data = read_beginning(Path(expanded(file)), MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else None
        raise InvalidArgument(f"{what}: {said or error}") from error
    if data is None:
        raise InvalidArgument(f"{what}: it is a pipe or a device, not a file; write it into a file first")
    if len(data) > MOST_BYTES:
        raise InvalidArgument(f"{what}: it has more than {MOST_BYTES:,} bytes")
    return data
