"""Erasure: samples of the texts that are erased, the places where they are looked for, and the receipt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from sys import byteorder
from typing import Literal, TypeAlias
from zlib import crc32

from msgspec import to_builtins

from flue_py.core.json import Frozen, JsonObject, NamedTuple

SAMPLE = 32
"""How many bytes a sample has, if its text is not shorter: a text that goes on in another page is cut there."""

SHORTEST = 7
"""Shorter texts are in every file by chance."""

MOST_SAMPLES = 1 << 15
_DENSE, _APART = 2_048, 1_024
"""Up to so many bytes of a text all of it is sampled, behind that two samples of each half of a page."""
_FEWEST_BYTES = 4
"""Samples of fewer different bytes, such as zeros, are in every file."""
_GRAMS: dict[int, Literal["I", "Q"]] = {4: "I", 8: "Q"}

BEYOND = ("bundles, exports, backups and copies that were made before, and heads that others keep",)
"""Places that no store can look in."""

Occurrence: TypeAlias = tuple[int, bytes]
"""The offset of a sample, and the sample."""


class _Index:
    """Finds samples of at least ``2 * gram - 1`` bytes in one pass over data, wherever they begin.

    Data is read as numbers of ``gram`` bytes. A sample has one of its first grams at a multiple of that.
    """

    def __init__(self, gram: int, samples: Iterable[bytes]) -> None:
        self._gram = gram
        self._span = 2 * gram - 1
        self._grams: set[int] = set()
        self._samples = frozenset(samples)
        self._lengths: dict[bytes, set[int]] = {}
        for sample in self._samples:
            self._lengths.setdefault(sample[: self._span], set()).add(len(sample))
            self._grams.update(int.from_bytes(sample[at : at + gram], byteorder) for at in range(gram))

    def occurrences(self, data: bytes) -> Iterator[Occurrence]:
        """Yield the occurrences of samples in data."""
        size = len(data) - len(data) % self._gram
        numbers = memoryview(data[:size]).cast(_GRAMS[self._gram]) if size else ()
        if self._grams.isdisjoint(numbers):
            return
        for place, number in enumerate(numbers):
            if number in self._grams:
                yield from self._at(data, place * self._gram)

    def _at(self, data: bytes, end: int) -> Iterator[Occurrence]:
        for start in range(max(0, end - self._gram + 1), end + 1):
            for length in self._lengths.get(data[start : start + self._span], ()):
                if (sample := data[start : start + length]) in self._samples:
                    yield start, sample


class Needles:
    """Samples of erased texts as they were stored. Of many, `MOST_SAMPLES` are drawn evenly, so memory is bounded.

    ``size`` is how many bytes were erased. ``unsampled`` texts are too short, or too plain, to be looked for.
    """

    def __init__(self) -> None:
        self.size = 0
        self.unsampled = 0
        self.samples: set[bytes] = set()
        self._mask = 0
        self._indexes: list[_Index] | None = None

    def add(self, *texts: str | bytes | None) -> None:
        """Take samples of texts. O(size / 32), and less for those that are longer than a page."""
        for text in texts:
            data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
            if data:
                self.size += len(data)
                self._keep([sample for sample in _samples_of(data) if len(set(sample)) >= _FEWEST_BYTES])

    def take(self, others: Needles) -> None:
        """Add the samples of others."""
        self.size += others.size
        self.unsampled += others.unsampled
        self._mask |= others._mask
        self._keep([*others.samples])

    def _keep(self, samples: Sequence[bytes]) -> None:
        self.unsampled += not samples
        self._indexes = None
        self.samples.update(sample for sample in samples if not crc32(sample) & self._mask)
        while len(self.samples) > MOST_SAMPLES:
            self._mask = self._mask * 2 + 1
            self.samples = {sample for sample in self.samples if not crc32(sample) & self._mask}

    def occurrences(self, data: bytes) -> Iterator[Occurrence]:
        """Yield the occurrences of samples in data. O(data)."""
        if self._indexes is None:
            shorter = {sample for sample in self.samples if len(sample) < 2 * max(_GRAMS) - 1}
            parts = zip(_GRAMS, (shorter, self.samples - shorter), strict=True)
            self._indexes = [_Index(gram, samples) for gram, samples in parts if samples]
        for index in self._indexes:
            yield from index.occurrences(data)


def _samples_of(data: bytes) -> list[bytes]:
    if len(data) <= SAMPLE:
        return [data] if len(data) >= SHORTEST else []
    last = len(data) - SAMPLE
    starts = [*range(0, min(last, _DENSE), SAMPLE), *range(_DENSE, last, _APART), last]
    return [data[start : start + SAMPLE] for start in starts]


class Place(NamedTuple):
    """A place that was looked through: a file with its bytes, or a table with its rows, and the samples in it."""

    name: str
    size: int
    samples: frozenset[bytes] = frozenset()
    where: str = ""


class Forgotten(NamedTuple):
    """The files of a database that were looked through, what kept it from forgetting, and what was out of reach."""

    places: Sequence[Place] = ()
    hindrances: Sequence[str] = ()
    out_of_reach: Sequence[str] = ()


class Trace(Frozen, rename="camel"):
    """Samples of erased texts at a place: how many, and where the first one is."""

    place: str
    samples: int
    where: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.samples:,} samples of erased texts{self.where and f', first at {self.where}'}"


class Look(Frozen, rename="camel"):
    """What a look for erased texts found.

    ``places`` were looked through: files by bytes, tables by rows. ``traces`` should not be there. ``stays`` are
    samples that rows of the store which stay have, too: who wrote the same, and what all rows have in common.
    ``hindrances`` say what kept the database from forgetting, ``out_of_reach`` where nothing was looked for. Files
    were written anew (``rebuilt``) if they had traces, or an earlier erasure was interrupted.
    """

    places: tuple[tuple[str, int], ...] = ()
    samples: int = 0
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
    present = frozenset[bytes]().union(*(table.samples for table in rows))
    traces = (Trace(place.name, len(place.samples - present), place.where) for place in places)
    stays = (Trace(table.name, len(table.samples), table.where) for table in rows)
    return Look(
        tuple((place.name, place.size) for place in (*places, *rows)),
        len(needles.samples),
        needles.unsampled,
        tuple(trace for trace in traces if trace.samples),
        tuple(trace for trace in stays if trace.samples),
        tuple(files.hindrances),
        (*BEYOND, *files.out_of_reach),
        rebuilt,
    )


class Receipt(Frozen, rename="camel"):
    """What was deleted or erased, by whom, when and why. It has no deleted text.

    ``counts`` are numbers of rows by name; paid ``calls`` stay. ``entries_kept`` are those that a deletion leaves to
    other sessions. In an erasure they are ``redacted``, and stay without their texts; ``seen_by`` are sessions that
    stay and see one of them, ``may_quote`` summaries over them. ``missing_ids`` are tasks that were linked, and not
    there. ``look`` says where it was looked for after an erasure; None after a deletion, and in a dry run.
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

    @property
    def is_complete(self) -> bool:
        """Whether all of it is erased, and no trace of it was found."""
        return self.look is not None and self.look.is_clean

    def to_json(self) -> JsonObject:
        """Return it as JSON has it."""
        row: JsonObject = to_builtins(self)
        return {"complete": None if self.look is None else self.is_complete, **row}
