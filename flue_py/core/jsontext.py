"""JSON as it is stored: compact text, keys in the caller's order, nothing a reader could choke on.

This is the single write path of every payload. What the caller gives is kept value for value; the only
repair is that lone surrogates, which no JSON reader accepts, become U+FFFD, and that is reported.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeAlias, cast

from flue_py.errors import CorruptStore, InvalidEntry, shown
from flue_py.lazy import lazy_module

if TYPE_CHECKING:
    import pydantic_core
else:
    # Slow to import, and a program that only reads writes no JSON.
    pydantic_core = lazy_module("pydantic_core")

JsonValue: TypeAlias = "None | bool | int | float | str | list[JsonValue] | dict[str, JsonValue]"
JsonObject: TypeAlias = dict[str, JsonValue]

MAX_JSON_DEPTH = 200
"""Deeper nesting is refused: common JSON readers, ours included, stop at about this depth."""

_SHOWN_KEY = 60

MAX_DIGITS = 4_300
"""JSON readers, Python's too, read integers of up to so many digits: whatever can be read can be written."""

LARGEST_INTEGER: int = 10**MAX_DIGITS - 1
"""Larger integers are refused, of either sign."""


_PAYS_FOR_IMPORT = 1_000_000
"""In the time that importing pydantic_core takes, the standard library reads so many characters of JSON."""


def to_json(value: object) -> bytes:
    """Return what the library made itself as compact JSON. Raises ValueError for half of a surrogate pair. O(size)."""
    return pydantic_core.to_json(value, inf_nan_mode="constants")


def encode_json(value: object, what: str, *, is_json: bool = False) -> tuple[str, int]:
    """Return ``value`` as compact JSON text in its own key order, and how many lone surrogates were replaced.

    ``what`` names the value in errors; ``is_json`` says that `flue_py.core.plain.is_json` holds of it. Raises
    `InvalidEntry` for what JSON cannot hold: other types, NaN and infinities, keys that are not strings, nesting deeper
    than `MAX_JSON_DEPTH`, cycles. Cost: O(size).
    """
    try:
        text = to_json(value).decode()
    except Exception:  # noqa: BLE001 - pydantic_core refuses for several reasons; the careful pass names which
        return _encode_carefully(value, what)
    # In so short a text no integer has too many digits.
    if is_json and len(text) <= MAX_DIGITS:
        return text, 0
    # Only these tokens can be wrong in what the fast encoder accepts: NaN and infinities become bare words,
    # and it quietly accepts tuples, bytes, sets and dates, which would come back as something else.
    if "NaN" in text or "Infinity" in text or not _is_plain(value, 0):
        return _encode_carefully(value, what)
    return text, 0


_SIMPLE: frozenset[type] = frozenset((str, float, bool))


def _is_plain(value: object, depth: int) -> bool:
    kind = type(value)
    if kind is str or kind is float or kind is bool or value is None:
        return True
    if kind is int:
        return -LARGEST_INTEGER <= cast("int", value) <= LARGEST_INTEGER
    if depth >= MAX_JSON_DEPTH:
        return False
    if kind is dict:
        return _has_plain_fields(cast("dict[object, object]", value), depth + 1)
    if kind is list:
        return all(_is_plain(item, depth + 1) for item in cast("list[object]", value))
    return False


def _has_plain_fields(fields: dict[object, object], depth: int) -> bool:
    for key, item in fields.items():
        # Most values are text or small numbers: that is seen here, without a call for each.
        if type(key) is not str or not (type(item) in _SIMPLE or _is_plain(item, depth)):
            return False
    return True


def _encode_carefully(value: object, what: str) -> tuple[str, int]:
    replaced = [0]
    plain = _plain_copy(value, what, 0, replaced)
    # By the same encoder as everything else: one value has one text, whichever way it came in.
    return to_json(plain).decode(), replaced[0]


def _plain_copy(value: object, where: str, depth: int, replaced: list[int]) -> JsonValue:
    if isinstance(value, str):
        cleaned, count = replace_lone_surrogates(str.__str__(value))
        replaced[0] += count
        return cleaned
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
            raise InvalidEntry(f"{where}: an integer of {value.bit_length()} bits is too large; store it as text")
        return int(value)
    if isinstance(value, float):
        if math.isnan(value) or value in (float("inf"), float("-inf")):
            raise InvalidEntry(f"{where}: {value!r} is not a JSON number; use null or a finite number")
        return float(value)
    if depth >= MAX_JSON_DEPTH:
        raise InvalidEntry(f"{where}: nested deeper than {MAX_JSON_DEPTH} levels; flatten it or store it as text")
    if isinstance(value, Mapping):
        copied: JsonObject = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidEntry(f"{where}: key {shown(key)} is a {type(key).__name__}; JSON keys are strings")
            # As plain text: a subclass may have its own idea of which keys are the same.
            cleaned, count = replace_lone_surrogates(str.__str__(key))
            replaced[0] += count
            inside = f"{where}.{step_shown(cleaned)}"
            if cleaned in copied:
                raise InvalidEntry(f"{inside}: two keys are the same text, perhaps once lone surrogates are replaced")
            copied[cleaned] = _plain_copy(item, inside, depth + 1, replaced)
        return copied
    if isinstance(value, (list, tuple)):
        return [_plain_copy(item, f"{where}[{n}]", depth + 1, replaced) for n, item in enumerate(value)]
    raise InvalidEntry(f"{where}: a {type(value).__name__} cannot be stored as JSON; convert it first")


def step_shown(key: str) -> str:
    """Return a key as the path in an error message shows it: its beginning, where it is long."""
    return key if len(key) <= _SHOWN_KEY else f"{key[:_SHOWN_KEY]}..."


def replace_lone_surrogates(text: str) -> tuple[str, int]:
    """Return ``text`` with each lone surrogate replaced by U+FFFD, and how many there were.

    Two halves of a pair that stand side by side as separate code points are one character and are joined.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        cleaned = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in joined)
        return cleaned, sum("\ud800" <= char <= "\udfff" for char in joined)
    return text, 0


class _FastReader:
    """The reader of pydantic_core, once it is loaded, or there was enough to read to pay for its import."""

    __slots__ = ("_left", "read")

    def __init__(self) -> None:
        self._left = _PAYS_FOR_IMPORT
        self.read: Callable[..., object] | None = None

    def reader_for(self, text: str | bytes) -> Callable[..., object] | None:
        """Return the reader; None if the standard library is to read this text."""
        if self.read is None:
            self._left -= len(text)
            if self._left > 0 and "pydantic_core" not in sys.modules:
                return None
            self.read = pydantic_core.from_json
        return self.read


_FAST = _FastReader()


def decode_json(text: str | bytes) -> JsonValue:
    """Return the value of stored JSON text, or of its UTF-8. Raises `CorruptStore` if it is not JSON."""
    read = _FAST.read or _FAST.reader_for(text)
    try:
        if read is not None:
            return cast("JsonValue", read(text, allow_inf_nan=False))
    except (ValueError, TypeError):  # a TypeError for half of a surrogate pair
        pass
    try:
        # The standard library would take bytes of other encodings, too.
        text = text if isinstance(text, str) else text.decode()
        return cast("JsonValue", json.loads(text, parse_constant=_refuse_constant))
    except (ValueError, RecursionError) as error:
        raise CorruptStore(f"a stored payload is not JSON ({error}); run verify() to find it") from error


def _refuse_constant(name: str) -> JsonValue:
    raise ValueError(f"{name} is not JSON")


def decode_object(text: str | bytes) -> JsonObject:
    """Return the JSON object in ``text``. Raises `CorruptStore` if it is something else."""
    read = _FAST.read
    if read is not None:
        try:
            value = read(text, allow_inf_nan=False)
        except (ValueError, TypeError):
            value = decode_json(text)
    else:
        value = decode_json(text)
    if not isinstance(value, dict):
        raise CorruptStore(f"a stored payload is a {type(value).__name__}, not an object; run verify() to find it")
    return value


def decode_intact(data: bytes, digest: bytes) -> JsonObject | None:
    """Return the JSON object in a payload's UTF-8; None if the payload does not have this digest, so is damaged.

    It does what `payload_digest` and `decode_object` do, in one call: a read of a context makes it for each message.
    """
    if blake2b(data, digest_size=16).digest() != digest:
        return None
    read = _FAST.read
    if read is not None:
        try:
            value = read(data, allow_inf_nan=False)
        except (ValueError, TypeError):
            return decode_object(data)
        if type(value) is dict:
            return value
    return decode_object(data)


def intact_text(data: bytes | None, digest: bytes) -> str | None:
    """Return the text of a payload's UTF-8; None if it does not have this digest, so is damaged or not all there."""
    if data is None or blake2b(data, digest_size=16).digest() != digest:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def payload_digest(text: str | bytes) -> bytes:
    """Return the 16-byte BLAKE2b digest of a payload's text in UTF-8, by which a damaged one is recognised."""
    return blake2b(text.encode() if isinstance(text, str) else text, digest_size=16).digest()


def utf8_length(text: str) -> int:
    """Return how many bytes ``text`` is in UTF-8. Raises ValueError for half of a surrogate pair. A piece at a time."""
    if text.isascii():
        return len(text)
    return sum(len(text[at : at + _PIECE].encode()) for at in range(0, len(text), _PIECE))


_PIECE = 1 << 16
_ESCAPED = re.compile(
    rb'(?:[^\x00-\x1f"\\\x80-\xff]{1,1024}+|[\xc0-\xff][\x80-\xbf]{1,3}+'
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{4}|\\[^u]){1,256}+",
    re.DOTALL,
)


def unescape(line: bytearray, start: int, end: int) -> int:
    """Write what stands in a JSON string into its own place, from ``start`` on, as UTF-8; return where that ends.

    ``start`` and ``end`` are within the quotes. What it stands for is never longer. Raises ValueError for what JSON
    does not allow. Memory: a piece at a time, however long it is.
    """
    control = _CONTROL.search(line, start, end)
    if control is not None:
        raise ValueError(f"a control character at byte {control.start()}")
    at = written = line.find(b"\\", start, end)
    if at < 0:
        return end
    while at < end:
        piece = _ESCAPED.match(line, at, end)
        if piece is None:
            raise ValueError(f"neither UTF-8 nor an escape at byte {at}")
        text = json.loads(b'"%b"' % piece[0]).encode()
        line[written : written + len(text)] = text
        at, written = piece.end(), written + len(text)
    return written


_CONTROL = re.compile(rb"[\x00-\x1f]")


def utf16_length(text: str) -> int:
    """Return the length of ``text`` in UTF-16 code units, as JavaScript counts it (an astral character is 2)."""
    if text.isascii():
        return len(text)
    return len(text) + sum(char > "\uffff" for char in text)
