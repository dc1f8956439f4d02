"""What goes without a trace: redactions, pieces of the texts that are erased, the places where they are looked for, and
the receipt.
"""

from __future__ import annotations

from base64 import b64encode
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import compress
from sys import byteorder
from typing import Literal, TypeAlias

from msgspec import to_builtins

from flue_py.core.context import PROVENANCE
from flue_py.core.entries import FROM_HOOK, from_microseconds, tool_calls
from flue_py.core.json import Frozen, JsonObject, JsonValue, decode_json, to_json
from flue_py.core.kinds import BRANCH_SUMMARY, COMPACTION, CUSTOM_MESSAGE, EXCLUSION, MESSAGE, kind_of
from flue_py.core.sessions import Note

SHORTEST = 7
"""Shorter texts are in every file by chance."""

MOST_PIECES = 1 << 20
"""Of so many pieces an index takes about 170 MB."""

MOST_SHORT = 1 << 15
MOST_ENCODED = 1 << 17
_PIECE = 8
_ENCODED = 96
"""So many bytes of the beginning of a text are looked for in base64, too: frameworks write their values so."""
_LEVELS = 12
_FEWEST_BYTES = 4
"""Pieces of fewer different bytes, such as blanks, are in every file: nothing is found by them alone."""
LONG_RUN = 32
"""So many bytes of a text that stays say that somebody wrote the same; fewer are names of fields and the like."""

BEYOND = ("bundles, exports, backups and copies that were made before, and heads that others keep",)
"""Places that no store can look in."""

Piece: TypeAlias = int | bytes
"""Eight bytes of a text, as a number; or a text that is shorter than two of these."""


class Run(Frozen):
    """A stretch of data that erased texts have: where it begins, its size in bytes, and its pieces."""

    start: int
    size: int
    pieces: Collection[Piece]


def _numbers(data: bytes, size: int, kind: Literal["I", "Q"], start: int = 0) -> memoryview:
    return memoryview(data)[start : len(data) - (len(data) - start) % size].cast(kind)


class _Shorts:
    """Finds texts of 7 to 15 bytes in one pass over data, wherever they begin.

    Data is read as numbers of four bytes. A text has one of its first four grams at a multiple of that.
    """

    def __init__(self, texts: Collection[bytes]) -> None:
        self._texts = texts
        self._lengths = sorted(set(map(len, texts)))
        self._grams = {int.from_bytes(text[at : at + 4], byteorder) for text in texts for at in range(4)}

    def runs(self, data: bytes) -> Iterator[Run]:
        """Yield these texts in data."""
        numbers = _numbers(data, 4, "I")
        if self._grams.isdisjoint(numbers):
            return
        for end in compress(range(0, len(data), 4), map(self._grams.__contains__, numbers)):
            for start in range(max(0, end - 3), end + 1):
                for length in self._lengths:
                    if (text := data[start : start + length]) in self._texts:
                        yield Run(start, length, (text,))


class Needles:
    """Erased texts as they were stored, in pieces of eight bytes, so that whatever is left of them is found.

    Of a text each piece is kept, wherever it begins. Data is read as numbers of eight bytes: one that is a piece is a
    run, if the pieces around it are such, too. So each 16 bytes that a text has in common with data are found. Of more
    than `MOST_PIECES` only those stay that begin at multiples of 3, then of 9, and so on: the places at which data is
    read are multiples of 8, so a run of ``run_bytes`` has one of each. Memory is bounded.

    ``size`` is how many bytes were erased. ``unsampled`` texts are too short, or too plain, to be looked for.
    """

    def __init__(self) -> None:
        self.size = 0
        self.unsampled = 0
        self._shorts: set[bytes] = set()
        self._encoded: set[int] = set()
        # By how often 3 divides the place of a piece.
        self._pieces: defaultdict[int, set[int]] = defaultdict(set)
        self._level = 0
        self._index: tuple[set[int], set[int], _Shorts] | None = None

    @property
    def stride(self) -> int:
        """From how many places of a text a piece is kept."""
        return int(3**self._level)

    @property
    def run_bytes(self) -> int:
        """How many bytes in a row of a text are found wherever they are."""
        return 2 * _PIECE if not self._level else _PIECE * (self.stride + 1) - 1

    def add(self, *texts: str | bytes | None) -> None:
        """Take texts. O(size)."""
        for text in texts:
            data = text.encode(errors="surrogatepass") if isinstance(text, str) else text or b""
            self.size += len(data)
            is_plain = len(set(data)) < _FEWEST_BYTES
            if len(data) >= 2 * _PIECE and not is_plain:
                self._keep(data)
                if len(self._encoded) < MOST_ENCODED:
                    self._encoded.update(_pieces_in_base64(data[:_ENCODED]))
            elif len(data) >= SHORTEST and not is_plain and len(self._shorts) < MOST_SHORT:
                self._shorts.add(data)
            else:
                self.unsampled += bool(data)
        self._bound()

    def take(self, others: Needles) -> None:
        """Add the texts of others."""
        self.size += others.size
        self.unsampled += others.unsampled
        self._shorts |= others._shorts
        self._encoded |= others._encoded
        self._level = max(self._level, others._level)
        for level, pieces in others._pieces.items():
            self._pieces[level] |= pieces
        self._bound()

    def _keep(self, data: bytes) -> None:
        for shift in range(_PIECE):
            numbers = _numbers(data, _PIECE, "Q", shift)
            for level in range(self._level, _LEVELS):
                step = 3 ** (level + 1)
                for rest in (step // 3, step - step // 3):
                    self._pieces[level].update(numbers[_first(shift, rest, step) :: step])
                if step > len(data):
                    break
            self._pieces[_LEVELS].update(numbers[_first(shift, 0, 3**_LEVELS) :: 3**_LEVELS])

    def _bound(self) -> None:
        self._index = None
        for level in range(_LEVELS):
            if level < self._level or sum(map(len, self._pieces.values())) > MOST_PIECES:
                self._pieces.pop(level, None)
                self._level = max(self._level, level + 1)

    def runs(self, data: bytes, *, of_rows: bool = False) -> Iterator[Run]:
        """Yield the runs of these texts in data; of rows also those that begin with plain pieces. O(data)."""
        if self._index is None:
            pieces = self._encoded.union(*self._pieces.values())
            plain = {piece for piece in pieces if len(set(piece.to_bytes(_PIECE, byteorder))) < _FEWEST_BYTES}
            self._index = pieces, plain, _Shorts(self._shorts)
        pieces, plain, shorts = self._index
        yield from shorts.runs(data)
        numbers = _numbers(data, _PIECE, "Q")
        if pieces.isdisjoint(numbers):
            return
        end = -1
        for place in compress(range(0, len(data), _PIECE), map(pieces.__contains__, numbers)):
            if place > end and (of_rows or numbers[place // _PIECE] not in plain):
                run = self._run(data, place, pieces)
                end = run.start + run.size - _PIECE
                if len(run.pieces) > _PIECE - bool(self._level):
                    yield run

    def _run(self, data: bytes, place: int, pieces: set[int]) -> Run:
        """Return the pieces around a place, as far as each is one."""
        found: list[int] = []

        def go(at: int, step: int) -> int:
            while 0 <= at <= len(data) - _PIECE:
                piece = int.from_bytes(data[at : at + _PIECE], byteorder)
                if piece not in pieces:
                    break
                found.append(piece)
                at += step
            return at - step

        end = go(place, self.stride)
        start = go(place - self.stride, -self.stride)
        return Run(start, end + _PIECE - start, found)


def _pieces_in_base64(text: bytes) -> Iterator[int]:
    """Yield the pieces of a text as it is in base64, wherever in a group of three bytes it begins."""
    for begin in range(3):
        data = b64encode(text[begin : len(text) - (len(text) - begin) % 3])
        for shift in range(_PIECE):
            yield from _numbers(data, _PIECE, "Q", shift)


def _first(shift: int, rest: int, step: int) -> int:
    """Return the first number at a place that leaves this rest, of those that begin at a shift, every eight bytes."""
    return (rest - shift) * pow(_PIECE, -1, step) % step


class Place(Frozen):
    """A place that was looked through: a file with its bytes, or a table with its rows, and the pieces in it.

    ``where`` is the first run, of rows one that is long; these are ``long_bytes``.
    """

    name: str
    size: int
    pieces: Collection[Piece] = ()
    where: str = ""
    long_bytes: int = 0


class Forgotten(Frozen):
    """The files of a database that were looked through, what kept it from forgetting, and what was out of reach."""

    places: Sequence[Place] = ()
    hindrances: Sequence[str] = ()
    out_of_reach: Sequence[str] = ()


class Trace(Frozen, rename="camel"):
    """Erased texts at a place: about how many bytes, and where the first ones are."""

    place: str
    size: int
    where: str = ""

    def __str__(self) -> str:
        return f"{self.place}: about {self.size:,} bytes of erased texts{self.where and f', first at {self.where}'}"


class Look(Frozen, rename="camel"):
    """What a look for erased texts found.

    ``places`` were looked through: files by bytes, tables by rows. ``run_bytes`` in a row of an erased text are found
    wherever they are, and so are shorter texts; but for ``unsampled`` ones, which are too short (`SHORTEST`) or plain,
    or too many. ``traces`` should not be there. ``stays`` are long runs that rows of the store which stay have, too.
    ``hindrances`` say what kept the database from forgetting, ``out_of_reach`` where nothing was looked for. Files
    were written anew (``rebuilt``) if they had traces, or an earlier erasure was interrupted.
    """

    places: tuple[tuple[str, int], ...] = ()
    run_bytes: int = 0
    unsampled: int = 0
    traces: tuple[Trace, ...] = ()
    stays: tuple[Trace, ...] = ()
    hindrances: tuple[str, ...] = ()
    out_of_reach: tuple[str, ...] = ()
    rebuilt: bool = False

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left, and nothing kept the database from forgetting."""
        return not self.traces and not self.hindrances


def look_of(
    needles: Needles, files: Forgotten, tables: Sequence[Place], rows: Sequence[Place], *, rebuilt: bool
) -> Look:
    """Return the result of a look: ``rows`` are the store's tables, of rows that stay; ``tables`` are others."""
    places = [*files.places, *tables]
    present = frozenset[Piece]().union(*(table.pieces for table in rows))
    traces = (Trace(place.name, needles.stride * len({*place.pieces} - present), place.where) for place in places)
    stays = (Trace(table.name, table.long_bytes, table.where) for table in rows)
    return Look(
        tuple((place.name, place.size) for place in (*places, *rows)),
        needles.run_bytes,
        needles.unsampled,
        tuple(trace for trace in traces if trace.size),
        tuple(trace for trace in stays if trace.size),
        tuple(files.hindrances),
        (*BEYOND, *files.out_of_reach),
        rebuilt,
    )


class Receipt(Frozen, rename="camel"):
    """What was deleted or erased, by whom, when and why. It has no deleted text.

    ``counts`` are numbers of rows by name; paid ``calls`` stay. ``entries_kept`` are those that a deletion leaves to
    other sessions. In an erasure they are ``redacted``, and stay without their texts; ``seen_by`` are sessions that
    stay and see one of them, ``may_quote`` summaries over them. ``missing_ids`` are tasks that were linked, and not
    there. ``look`` says where it was looked for after an erasure; None in others. ``left`` names titles that stay.
    """

    dry_run: bool
    session_ids: tuple[str, ...]
    scope: str | None
    counts: Mapping[str, int]
    entries_kept: int
    redacted: int
    seen_by: tuple[str, ...]
    may_quote: tuple[str, ...]
    missing_ids: tuple[str, ...]
    at_us: int
    by: str | None = None
    why: str | None = None
    size: int = 0
    look: Look | None = None
    left: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether all of it is erased, and no trace of it was found."""
        return self.look is not None and self.look.is_clean and not self.left

    def to_json(self) -> JsonObject:
        """Return it as JSON has it."""
        return {"complete": None if self.look is None else self.is_complete, **to_builtins(self)}


# ---------------------------------------------------------------------------------------------------------------------
# Redactions: the tombstone that stands in the place of an entry's payload, and what a redaction came to.
#
# A tombstone is a payload of the same kind and role, with nothing of the text: a line that says who redacted it and
# why, the fields that hold a context together (ids of tool calls and of entries, numbers of usage), and an object that
# says it once more, with a seal of the store's chain. So every reader shows the line, and knows nothing of tombstones.

REDACTED = "redacted"
"""The field of a tombstone that says who redacted it, why and when."""

_LONGEST_NAME = 256
_USAGE = "usage"
_KEPT: Mapping[str, tuple[str, ...]] = {
    MESSAGE: (
        "role", "timestamp", "api", "provider", "model", "stopReason", "toolCallId", "toolName", "isError", "isMeta",
        _USAGE,
    ),
    COMPACTION: ("tokensBefore", FROM_HOOK, _USAGE),
    BRANCH_SUMMARY: (_USAGE,),
    CUSTOM_MESSAGE: ("customType", "display"),
    EXCLUSION: ("part", "excluded"),
}  # fmt: skip
"""The fields that stay of a payload, by kind, beside those that name entries."""
_EXTRA = frozenset(("line", "rows", "parentUuid", PROVENANCE))
"""The fields beside a payload that have nothing of its text."""


class Redaction(Frozen):
    """What a redaction took, and what it left.

    ``entry_ids`` are the entries whose payload is gone, the artifacts of tool results among them; ``already`` are those
    that were tombstones before. ``may_quote`` are summaries in the same tree that were made over one of them: redact
    them, too, if they say it. ``seen_by`` are the sessions that see one of them, this one first: forks go on with the
    tombstone. ``copies`` are entries elsewhere with the same id or the same text, by the id of a session: they stay.
    ``revision`` is that of the session afterwards. ``look`` says where the ``size`` bytes that went
    were looked for, and found no more (`Look.is_clean`); None in a dry run, and if there was nothing to redact.
    """

    session_id: str
    entry_ids: tuple[str, ...]
    already: tuple[str, ...]
    may_quote: tuple[str, ...]
    seen_by: tuple[str, ...]
    copies: tuple[tuple[str, str], ...]
    revision: int
    size: int = 0
    look: Look | None = None


def mark_of(note: Note, at_us: int) -> JsonObject:
    """Return what a tombstone says of its redaction."""
    return {"by": note.by, "why": note.why, "at": from_microseconds(at_us).isoformat()}


def line_of(mark: JsonObject) -> str:
    """Return the text that a tombstone shows."""
    by = "" if mark["by"] is None else f" by {mark['by']}"
    return f"[redacted{by}: {mark['why']}]"


def tombstone(kind: str, payload: JsonValue, mark: JsonObject) -> JsonObject:
    """Return the payload that stands in the place of another one. O(size)."""
    line = line_of(mark)
    fields = payload if isinstance(payload, dict) else {}
    names = (*_KEPT.get(kind, ()), *kind_of(kind).references)
    left = {name: _without_texts(fields[name]) for name in names if name in fields}
    if kind == MESSAGE:
        left["content"] = _content(fields, line)
    elif (says := kind_of(kind).says) is not None:
        left[says] = line
    return {**left, REDACTED: mark}


def _content(message: JsonObject, line: str) -> JsonValue:
    text: JsonValue = {"type": "text", "text": line}
    if message.get("role") == "assistant":
        ids = ({name: call[name] for name in ("type", "id", "name") if name in call} for call in tool_calls(message))
        return [text, *({**call, "arguments": {}} for call in ids)]
    return [text] if message.get("role") == "toolResult" else line


def _without_texts(value: JsonValue) -> JsonValue:
    """Return a value without strings that are too long for an id or the name of a model."""
    if isinstance(value, dict):
        return {name: _without_texts(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_texts(item) for item in value]
    return value if not isinstance(value, str) or len(value) <= _LONGEST_NAME else None


def texts_gone(payload: JsonValue, left: JsonObject) -> Iterator[bytes]:
    """Yield the strings of a payload that its tombstone has not, as they are written in JSON. O(size)."""
    there = set(_strings(left))
    return (to_json(text)[1:-1] for text in _strings(payload) if text not in there)


def _strings(value: JsonValue) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        # The types of parts are in every store.
        yield from _strings([item for name, item in value.items() if name != "type"])


def is_tombstone(kind: str, payload: str) -> bool:
    """Return whether a payload is one: nothing is in it that a tombstone would not have. O(size)."""
    value = decode_json(payload)
    mark = value.get(REDACTED) if isinstance(value, dict) else None
    return isinstance(mark, dict) and mark.keys() >= {"by", "why", "at"} and tombstone(kind, value, mark) == value


def extra_left(extra: str | None) -> str | None:
    """Return the fields beside a payload if they have nothing of its text, else those that stand in their place."""
    fields = None if extra is None else decode_json(extra)
    if fields is None or (isinstance(fields, dict) and _EXTRA.issuperset(fields)):
        return extra
    return to_json({REDACTED: {"extra": True}}).decode()
