"""JSON: the measure of packed data, cuts of base64, values, encoding and decoding, the text of JavaScript."""

from __future__ import annotations

import json
import math
import re
import zlib
from binascii import a2b_base64, b2a_base64
from collections import namedtuple
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from math import isfinite
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast, dataclass_transform

from msgspec import Struct, field
from msgspec.json import Decoder

from flue_py.errors import CorruptStore, InvalidEntry, shown
from flue_py.lazy import expression, lazy_module

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414 - others take it from here

    import pydantic_core
else:
    # Slow to import, and a program that only reads writes no JSON.
    pydantic_core = lazy_module("pydantic_core")

    class _NamedTuples(type):
        # That of typing compiles the type of each field, which all classes of a command pay for at its start.
        def __new__(cls, name, bases, space):
            fields = space.get("__annotations__", {})
            defaults = [space[field] for field in fields if field in space]
            made = namedtuple(name, fields, defaults=defaults, module=space["__module__"])
            for key in space.keys() - fields.keys():
                setattr(made, key, space[key])
            return made

    NamedTuple = type.__new__(_NamedTuples, "NamedTuple", (), {})


# ---------------------------------------------------------------------------------------------------------------------
# Compressed data and JSON, measured before they are taken apart: few bytes may stand for many.
#
# A few hundred bytes of a zlib stream can stand for a gigabyte, and three bytes of JSON for an object of seventy. Data
# from elsewhere is therefore measured first, in memory that does not grow with the answer.

_AT_ONCE = 1 << 16

# The bytes that CPython takes for a container, and for any other value with its place in one (rounded up).
_CONTAINER_BYTES = 232
_VALUE_BYTES = 64
_STRING_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_STRING = expression(_STRING_TEXT, re.DOTALL)
_PIECE = expression(rb'(?:[^"]{1,4096}+|%b){1,1024}+' % _STRING_TEXT, re.DOTALL)


def inflate(packed: bytes, most: int) -> bytes | None:
    """Return the data of a zlib stream; None if it is more than ``most`` bytes, or not all there.

    Raises `zlib.error`. Memory: the data, at most ``most`` bytes.
    """
    stream = zlib.decompressobj()
    data = stream.decompress(packed, most + 1)
    return data if stream.eof and len(data) <= most else None


def inflated_size(packed: bytes, most: int) -> int | None:
    """Return how many bytes a zlib stream stands for; None if they are more than ``most``, or not all there.

    Raises `zlib.error`. A part is looked at a time, and nothing is kept.
    """
    stream = zlib.decompressobj()
    size, rest = 0, packed
    while not stream.eof:
        part = stream.decompress(rest, _AT_ONCE)
        size += len(part)
        if size > most or not (part or stream.eof):
            return None
        rest = stream.unconsumed_tail
    return size


def json_weight(text: bytes | bytearray) -> int:
    """Return about how much memory the values of a JSON text take beside the text in them. O(size).

    Text that is not JSON has a weight, too. A piece is looked at a time.
    """
    containers = values = 0
    for piece in _PIECE.finditer(text):
        bare, strings = _STRING.subn(b"", piece[0])
        inside = bare.count(b"{") + bare.count(b"[")
        containers += inside
        values += bare.count(b",") + inside + strings
    return containers * _CONTAINER_BYTES + values * _VALUE_BYTES


_WIDE, _HALF_WIDE = expression(rb"[\xf0-\xff]"), expression(rb"[\xc4-\xff]")
_CONTINUING = bytes(range(0x80, 0xC0))


def memory_of_utf8(data: bytes | bytearray, start: int, end: int) -> int:
    """Return about how many bytes Python takes for UTF-8 from ``start`` to ``end``, as a text. O(size).

    Each character takes as much as the widest of them: one beyond Latin-1 makes an ASCII text twice as large, one
    beyond U+FFFF four times. A piece is looked at a time.
    """
    width = 4 if _WIDE.search(data, start, end) else 2 if _HALF_WIDE.search(data, start, end) else 1
    pieces = (data[at : min(at + _AT_ONCE, end)] for at in range(start, end, _AT_ONCE))
    return width * sum(len(piece.translate(None, _CONTINUING)) for piece in pieces)


# ---------------------------------------------------------------------------------------------------------------------
# Cutting long base64 out of a payload's text, and putting it back byte for byte.
#
# A picture is the largest part of a message by far, does not compress, and comes again: in the next message, in a
# retry, in a fork. Cut out and decoded, it can be stored once. Only base64 that encoding makes again exactly is cut, so
# that the text that comes back is the text that was there. Pure functions of bytes: nothing here knows of messages.

SHORTEST = 16_384
"""How many characters of base64 are cut out: below that, a row of its own costs more than it saves."""

_RUN = expression(rb"[A-Za-z0-9+/]+")
_OF_NUMBERS = b"0123456789eE+"
"""The characters of base64 that a JSON number has, too."""


class Cut(NamedTuple):
    """A piece that was cut out: the decoded bytes, and the number of bytes of the remaining text before it."""

    place: int
    data: bytes


def cut(text: bytes, shortest: int = SHORTEST) -> tuple[bytes, tuple[Cut, ...]]:
    """Return a JSON text without its base64 of at least ``shortest`` characters, and the cuts, in their order.

    Base64 is a run of A-Z, a-z, 0-9, + and / in a JSON string, with its padding: the text before it,
    such as ``data:image/png;base64,``, stays. It stays itself if encoding would not make it again: without its
    padding, in the alphabet for URLs, or over several lines. The rest is JSON, too. O(size).
    """
    rest: list[bytes] = []
    cuts: list[Cut] = []
    place = end = 0
    for start, stop in _runs(text, shortest):
        data = _decoded(text[start:stop])
        # A run right behind a cut stays: two cuts at one place could not be told apart.
        if data is None or (cuts and start == end):
            continue
        rest.append(text[end:start])
        place += start - end
        cuts.append(Cut(place, data))
        end = stop
    if not cuts:
        return text, ()
    rest.append(text[end:])
    return b"".join(rest), tuple(cuts)


def splice(rest: bytes, pieces: Iterable[tuple[int, bytes]]) -> bytes:
    """Return the text that ``rest`` was cut from. ``pieces`` are places in it and base64, in order. O(size)."""
    whole: list[bytes] = []
    end = 0
    for place, piece in pieces:
        whole += (rest[end:place], piece)
        end = place
    whole.append(rest[end:])
    return b"".join(whole)


def encoded(data: bytes) -> bytes:
    """Return bytes in base64."""
    return b2a_base64(data, newline=False)


def encoded_size(size: int) -> int:
    """Return how many characters of base64 so many bytes are."""
    return (size + 2) // 3 * 4


def _runs(text: bytes, shortest: int) -> Iterator[tuple[int, int]]:
    """Yield the beginnings and ends of the runs of base64, padding included, that are not too short. O(size).

    Whatever is as long as ``shortest`` lies across a multiple of it: only there a look is taken, and text in which
    there is none takes no time.
    """
    first, probe = 0, shortest - 1
    while probe < len(text):
        run = _RUN.match(text, probe)
        if run is None:
            probe += shortest
            continue
        start = _behind_an_escape(text, _beginning(text, max(first, probe - shortest + 1), probe))
        first = run.end()
        padding = -(first - start) % 4
        if text[first : first + padding] == b"=" * padding and padding < 3:
            first += padding
            if first - start >= shortest:
                yield start, first
        probe = first + shortest - 1


def _beginning(text: bytes, low: int, probe: int) -> int:
    """Return where the run begins that goes through ``probe``, no lower than ``low``."""
    start, step = probe, 64
    while start > low:
        part = text[max(low, start - step) : start]
        before = _RUN.match(part[::-1])
        length = 0 if before is None else before.end()
        start -= length
        if length < len(part):
            break
        step *= 8
    return start


def _behind_an_escape(text: bytes, start: int) -> int:
    r"""Return where a run begins whose first letters may end an escape, as in ``\nAAAA`` and ``\u00e9AAAA``."""
    slashes = 0
    while text[start - slashes - 1 : start - slashes] == b"\\":
        slashes += 1
    if slashes % 2 == 0:
        return start
    return start + (5 if text[start : start + 1] == b"u" else 1)


def _decoded(run: bytes) -> bytes | None:
    """Return the bytes of base64; None if encoding them gives another text, or if it may be a number."""
    last = run[-4:]
    if encoded(a2b_base64(last)) != last or not run.strip(_OF_NUMBERS):
        return None
    return a2b_base64(run, strict_mode=True)


# ---------------------------------------------------------------------------------------------------------------------
# Values: classes of fields that nothing changes once they are made.


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Frozen(Struct, frozen=True):
    """A value: compared, hashed and shown by its fields, copied with other ones by `msgspec.structs.replace`."""


class Selective(Frozen):
    """A value that leaves some of its fields out of its comparison and its hash, or out of its text."""

    _not_compared: ClassVar[tuple[str, ...]] = ()
    _not_shown: ClassVar[tuple[str, ...]] = ()

    def __eq__(self, value: object) -> bool:
        return self._compared() == value._compared() if type(value) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._compared())

    def __repr__(self) -> str:
        names = (name for name in self.__struct_fields__ if name not in self._not_shown)
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def _compared(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__struct_fields__ if name not in self._not_compared)


# ---------------------------------------------------------------------------------------------------------------------
# JSON as it is stored: compact text, keys in the caller's order, nothing a reader could choke on.
#
# This is the single write path of every payload. The caller's JSON is kept value for value; the only
# repair is that lone surrogates, which no JSON reader accepts, become U+FFFD, and that is reported.

JsonValue: TypeAlias = "None | bool | int | float | str | list[JsonValue] | dict[str, JsonValue]"
JsonObject: TypeAlias = dict[str, JsonValue]

MAX_JSON_DEPTH = 200
"""Deeper nesting is refused: common JSON readers, ours included, stop at about this depth."""

_SHOWN_KEY = 60

MAX_DIGITS = 4_300
"""JSON readers, Python's too, read integers of up to so many digits: whatever can be read can be written."""

LARGEST_INTEGER: int = 10**MAX_DIGITS - 1
"""Larger integers are refused, of either sign."""


def to_json(value: object) -> bytes:
    """Return a value of the library's own as compact JSON. Raises ValueError for half of a surrogate pair. O(size)."""
    return pydantic_core.to_json(value, inf_nan_mode="constants")


def encode_json(value: object, where: str, *, is_json: bool = False) -> tuple[str, int]:
    """Return ``value`` as compact JSON text in its own key order, and how many lone surrogates were replaced.

    ``where`` names the value in errors; ``is_json`` says that `flue_py.core.json.is_json` holds of it. Raises
    `InvalidEntry` for values that JSON cannot hold: other types, NaN and infinities, keys that are not strings, nesting
    deeper than `MAX_JSON_DEPTH`, cycles. Cost: O(size).
    """
    try:
        text = to_json(value).decode()
    except Exception:  # noqa: BLE001 - pydantic_core refuses for several reasons; the careful pass names which
        return _encode_carefully(value, where)
    # In so short a text no integer has too many digits.
    if is_json and len(text) <= MAX_DIGITS:
        return text, 0
    # Only these tokens can be wrong in the output of the fast encoder: NaN and infinities become bare words,
    # and it quietly accepts tuples, bytes, sets and dates, which would come back as something else.
    if "NaN" in text or "Infinity" in text or not _is_plain(value, 0):
        return _encode_carefully(value, where)
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


def _encode_carefully(value: object, where: str) -> tuple[str, int]:
    replaced = [0]
    plain = _plain_copy(value, where, 0, replaced)
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
        joined = _joined_pairs(text)
        cleaned = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in joined)
        return cleaned, sum("\ud800" <= char <= "\udfff" for char in joined)
    return text, 0


_decode: Callable[[str | bytes], JsonValue] = Decoder().decode
_decode_object: Callable[[str | bytes], JsonObject] = Decoder(dict[str, Any]).decode
# They refuse some texts that the standard library reads: half of a surrogate pair, a number beyond the doubles.
_REFUSED = (ValueError, RecursionError)


def decode_json(text: str | bytes) -> JsonValue:
    """Return the value of stored JSON text, or of its UTF-8. Raises `CorruptStore` if it is not JSON."""
    try:
        return _decode(text)
    except _REFUSED:
        pass
    try:
        # The standard library would take bytes of other encodings, too.
        text = text if isinstance(text, str) else text.decode()
        return cast("JsonValue", json.loads(text, parse_constant=_refuse_constant))
    except (ValueError, RecursionError) as error:
        raise CorruptStore(f"a stored payload is not JSON ({error}); run verify() to find it") from error


def _refuse_constant(name: str) -> JsonValue:
    raise ValueError(f"{name} is not JSON")


def without(fields: Mapping[str, JsonValue], *names: str) -> JsonObject:
    """Return an object without the fields of these names. O(fields)."""
    return {name: value for name, value in fields.items() if name not in names}


def unchecked_json(text: str) -> str:
    """Return JSON, or lines of it, that says so where it comes of a store that was opened ``unchecked``. O(text).

    Its first object gets a member, and a text that begins with none gets a line before it; an empty list says nothing.
    """
    before, _, rest = text.partition("{")
    first = rest.lstrip()
    if first.startswith(('"unchecked":true', '"unchecked": true')) or text.strip() == "[]":
        return text
    if before.strip(" \n[") or not rest:
        return f'{{"unchecked":true}}\n{text}'
    return f'{before}{{"unchecked":true{"" if first.startswith("}") else ","}{rest}'


def decode_object(text: str | bytes) -> JsonObject:
    """Return the JSON object in ``text``. Raises `CorruptStore` if it is something else."""
    try:
        return _decode_object(text)
    except _REFUSED:
        value = decode_json(text)
    if not isinstance(value, dict):
        raise CorruptStore(f"a stored payload is a {type(value).__name__}, not an object; run verify() to find it")
    return value


def decode_objects(texts: Sequence[bytes]) -> list[JsonObject]:
    """Return the same of each of some texts."""
    try:
        return list(map(_decode_object, texts))
    except _REFUSED:
        return list(map(decode_object, texts))


def payload_digest(text: str | bytes) -> bytes:
    """Return the 16-byte BLAKE2b digest of a payload's text in UTF-8, by which a damaged one is recognised."""
    return blake2b(text.encode() if isinstance(text, str) else text, digest_size=16).digest()


def utf8_length(text: str) -> int:
    """Return how many bytes ``text`` is in UTF-8. Raises ValueError for half of a surrogate pair. A piece at a time."""
    if text.isascii():
        return len(text)
    return sum(len(text[at : at + _JSONTEXT_PIECE].encode()) for at in range(0, len(text), _JSONTEXT_PIECE))


_JSONTEXT_PIECE = 1 << 16


def utf16_length(text: str) -> int:
    """Return the length of ``text`` in UTF-16 code units, as JavaScript counts it (an astral character is 2)."""
    if text.isascii():
        return len(text)
    return len(text) + sum(char > "\uffff" for char in text)


# ---------------------------------------------------------------------------------------------------------------------
# Text as JavaScript measures and prints it.
#
# Estimates and summaries follow an implementation in JavaScript, where a string is a sequence of UTF-16 code units
# and ``JSON.stringify`` has rules of its own for numbers and keys. A difference of one unit can move a cut, so this
# module follows those rules exactly.

PropertyValue: TypeAlias = "JsonValue | Mapping[str, JsonValue]"

_SURROGATE = expression("[\ud800-\udfff]")
_EXACT_INTEGERS = 2**53
_ARRAY_INDEX_LIMIT = 2**32 - 1


def js_json(value: PropertyValue, depth: int = 0) -> str:
    """Return ``value`` as ``JSON.stringify`` prints it: compact, nothing escaped beyond what JSON requires.

    Numbers are doubles, array-index keys come first in their objects, and lone surrogates are escaped. A value that
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


def utf16_prefix(text: str, units: int) -> str:
    """Return the first ``units`` UTF-16 code units of ``text``, without half a surrogate pair at the end. O(units)."""
    head = text[:units]
    if head.isascii():
        return head
    prefix = head.encode("utf-16-le", "surrogatepass")[: 2 * units].decode("utf-16-le", "surrogatepass")
    return prefix[:-1] if "\ud800" <= prefix[-1:] <= "\udbff" else prefix


def utf16_sort_key(text: str) -> bytes:
    """Return a key that sorts strings as JavaScript does: by UTF-16 code units, not by code points."""
    return text.encode("utf-16-be", "surrogatepass")


def _joined_pairs(text: str) -> str:
    """Return ``text`` with the two halves of each surrogate pair joined to one character, as UTF-16 has them."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


# ---------------------------------------------------------------------------------------------------------------------
# The strict copy of a JSON value: the rules of `flue_py.core.json`, with the path of the value that breaks them.

SCALARS: frozenset[type] = frozenset((str, int, bool, NoneType))
"""Types that are JSON whatever their value. A float is not among them: it may be NaN."""


class Refusal(ValueError):
    """Why a value is refused. The path to it grows on the way out, so that accepting costs no path."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path

    def __str__(self) -> str:
        return f"{self.path.removeprefix('.')}: {self.reason}" if self.path else self.reason

    def at(self, where: str) -> InvalidEntry:
        # A key with half a surrogate pair must not make the error itself impossible to print.
        return InvalidEntry(replace_lone_surrogates(f"{where}{self.path}: {self.reason}")[0])


def plain_copy(value: object, depth: int) -> JsonValue:
    """Return a copy of a JSON value, by the rules of `encode_json`. Raises `Refusal` for anything else.

    One frame per level, so that the deepest value it accepts fits the interpreter's stack with room to spare.
    """
    if type(value) is not dict and type(value) is not list:
        value = _of_exact_type(value)
        if not isinstance(value, (dict, list)):
            return cast("JsonValue", value)
    if depth >= MAX_JSON_DEPTH:
        raise Refusal(f"nested deeper than {MAX_JSON_DEPTH} levels; flatten it or store it as text")
    step: str | int | None = None
    try:
        if isinstance(value, dict):
            plain: JsonObject = {}
            for raw_key, item in value.items():
                step = None
                step = key = raw_key if type(raw_key) is str else plain_key(raw_key, plain)
                plain[key] = item if type(item) in SCALARS else plain_copy(item, depth + 1)
            return plain
        plain_list: list[JsonValue] = []
        for number, item in enumerate(value):
            step = number
            plain_list.append(item if type(item) in SCALARS else plain_copy(item, depth + 1))
    except Refusal as refusal:
        if step is not None:
            refusal.path = f"{_step_text(step)}{refusal.path}"
        raise
    return plain_list


def _step_text(step: str | int) -> str:
    return f".{step_shown(step)}" if isinstance(step, str) else f"[{step}]"


def _of_exact_type(value: object) -> object:
    """Return the plain value for one whose class only derives from a JSON type, such as an enum of strings."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not isfinite(value):
            raise Refusal(f"{float(value)!r} is not a JSON number; use null or a finite number")
        return float(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (list, tuple)):
        return list(value)
    raise Refusal(f"a {type(value).__name__} cannot be stored as JSON; convert it first")


def plain_key(key: object, taken: Container[str]) -> str:
    if not isinstance(key, str):
        raise Refusal(f"key {shown(key)} is a {type(key).__name__}; JSON keys are strings")
    plain = str.__str__(key)
    if plain in taken:  # a subclass may have its own idea of which keys are the same
        raise Refusal(f"two keys are the text {shown(plain)}; leave one of them out")
    return plain


def is_json(value: object, depth: int) -> bool:
    """Return whether `plain_copy` would give the same value back."""
    kind = type(value)
    if kind in SCALARS:
        return True
    if kind is dict and depth < MAX_JSON_DEPTH:
        for key, item in cast("dict[object, object]", value).items():
            inside = type(item)
            # Most values are text or numbers: those are seen here, without a call for each.
            is_plain = inside in SCALARS or (inside is float and isfinite(cast("float", item)))
            if type(key) is not str or not (is_plain or is_json(item, depth + 1)):
                return False
        return True
    if kind is list and depth < MAX_JSON_DEPTH:
        for item in cast("list[object]", value):  # noqa: SIM110 - a generator would double the frames per level
            if not (type(item) in SCALARS or is_json(item, depth + 1)):
                return False
        return True
    return kind is float and isfinite(cast("float", value))
