"""Text as JavaScript measures and prints it.

Estimates and summaries follow an implementation in JavaScript, where a string is a sequence of UTF-16 code units
and ``JSON.stringify`` has rules of its own for numbers and keys. A difference of one unit can move a cut, so this
module follows those rules exactly.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import TypeAlias

from flue_py.core.jsontext import MAX_JSON_DEPTH, JsonValue
from flue_py.errors import InvalidEntry

PropertyValue: TypeAlias = "JsonValue | Mapping[str, JsonValue]"

_SURROGATE = re.compile("[\ud800-\udfff]")
_EXACT_INTEGERS = 2**53
_ARRAY_INDEX_LIMIT = 2**32 - 1


def js_json(value: PropertyValue, depth: int = 0) -> str:
    """Return ``value`` as ``JSON.stringify`` prints it: compact, nothing escaped beyond what JSON requires.

    Numbers are doubles, array-index keys come first in their objects, and lone surrogates are escaped. What
    JSON cannot hold is printed as ``null``. Raises `InvalidEntry` for nesting deeper than `MAX_JSON_DEPTH`, which
    no entry can have. Cost: O(size).
    """
    if isinstance(value, str):
        return js_string(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return js_number(value)
    if isinstance(value, (Mapping, list, tuple)) and depth >= MAX_JSON_DEPTH:
        raise InvalidEntry(f"arguments: nested deeper than {MAX_JSON_DEPTH} levels, as no entry can be")
    if isinstance(value, Mapping):
        return "{" + ",".join([f"{js_string(key)}:{js_json(item, depth + 1)}" for key, item in js_entries(value)]) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join([js_json(item, depth + 1) for item in value]) + "]"
    return "null"


def js_entries(value: Mapping[str, JsonValue]) -> list[tuple[str, JsonValue]]:
    """Return the properties of an object in JavaScript's order: array indexes ascending, then as inserted."""
    entries = list(value.items())
    if any(_is_array_index(key) for key, _ in entries):
        indexes = sorted((entry for entry in entries if _is_array_index(entry[0])), key=lambda e: int(e[0]))
        return indexes + [entry for entry in entries if not _is_array_index(entry[0])]
    return entries


def _is_array_index(key: str) -> bool:
    if not key.isascii() or not key.isdigit() or len(key) > 10:
        return False
    return (key == "0" or key[0] != "0") and int(key) < _ARRAY_INDEX_LIMIT


def js_string(text: str) -> str:
    """Return ``text`` quoted as ``JSON.stringify`` quotes it."""
    quoted = json.dumps(text, ensure_ascii=False)
    if quoted.isascii() or not _SURROGATE.search(quoted):
        return quoted
    return _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", _joined_pairs(quoted))


def js_number(value: float) -> str:
    """Return a number as JavaScript prints the double nearest to it; ``null`` if that is not finite.

    The digits are the shortest that read back as the same double, as in Python; the layout differs: ``1.0`` is
    ``1``, ``1e-05`` is ``0.00001``, ``1e+20`` is a 1 and twenty zeros.
    """
    if isinstance(value, int) and -_EXACT_INTEGERS <= value <= _EXACT_INTEGERS:
        return str(value)
    try:
        double = float(value)
    except OverflowError:
        return "null"
    if not math.isfinite(double):
        return "null"
    if double == 0:
        return "0"
    sign = "-" if double < 0 else ""
    mantissa, _, exponent = repr(abs(double)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(digits) - len(fraction) + int(exponent or 0)
    return sign + _laid_out(digits.rstrip("0"), point)


def _laid_out(digits: str, point: int) -> str:
    """Return ``0.DIGITS`` times ten to the ``point`` in the layout of ECMAScript's Number::toString."""
    if len(digits) <= point <= 21:
        return digits.ljust(point, "0")
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{fraction}e{point - 1:+d}"


def utf16_prefix(text: str, units: int, *, whole_characters: bool) -> str:
    """Return the first ``units`` UTF-16 code units of ``text``.

    Where the cut falls inside a surrogate pair, its first half stays at the end as a lone surrogate, or is
    left out with ``whole_characters``. Cost: O(units).
    """
    head = text[:units]
    if head.isascii():
        return head
    prefix = head.encode("utf-16-le", "surrogatepass")[: 2 * units].decode("utf-16-le", "surrogatepass")
    if whole_characters and "\ud800" <= prefix[-1:] <= "\udbff":
        return prefix[:-1]
    return prefix


def utf16_sort_key(text: str) -> bytes:
    """Return a key that sorts strings as JavaScript does: by UTF-16 code units, not by code points."""
    return text.encode("utf-16-be", "surrogatepass")


def _joined_pairs(text: str) -> str:
    """Return ``text`` with the two halves of each surrogate pair joined to one character, as UTF-16 has them."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
