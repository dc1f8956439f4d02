"""Reading a file: what a reader returns, and how it remembers ids without remembering rows.

A reader is fed the lines of a file in order. What is ready can be taken at any time, as parts of sessions, parents
before children, so that a file of any length needs little memory. A reader does no I/O and knows no store: the same
lines give the same parts, and the lines of a file's beginning give the beginning of what the whole file gives.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from flue_py.core.calls import PaidCall
from flue_py.core.entries import NewEntry
from flue_py.core.kinds import SHOWN_KINDS
from flue_py.core.sessions import NewSession
from flue_py.errors import UnreadableFile
from flue_py.formats.kit.parsed import LabelChange, ParsedSession, TaskOf
from flue_py.formats.kit.report import ParseReport, joined

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class TitleChange:
    """An entry from which on the session is called ``title``; ``is_made``: by a program, not by a person."""

    entry_id: str
    title: str
    is_made: bool = False


@dataclass(frozen=True, slots=True)
class SessionPart:
    """The next entries of one session of a file, parents first, and the session to create if it is new.

    ``leaves`` are the entries the leaf went through, in order: the last one is the leaf after this part.
    ``earlier`` names, for an entry of rows that may have been imported before they were complete, the ids it was
    given then. ``lines`` are those of the entries (of the last row, where several made one). ``lost`` names the
    parents of roots that are not in the file. ``unfinished`` are entries whose rows may not be complete, taken
    since they read like a whole answer. ``began`` names the entries below which tasks began, by the names of the
    tasks, ``completed_us`` says when the work was completed. ``may_overlap`` says that several files may hold pieces
    of the session, ``is_rewritten`` that what was imported before may be gone from the file. ``tasks`` are the sessions
    of tasks that the file names, ``restates`` says that the metadata are what it says now. ``calls`` belong
    to no entry yet, each with an id; ``settles`` names, for an entry, the ids of such calls that its own replace.
    ``segment`` is what the file is called where several files, one going on from another, have the session: "" for the
    first, and those of later ones sort behind it. ``name`` is what people call the session, by what is beside the file.
    ``is_payer`` says that the session has its own file elsewhere, and has the bill of ``calls`` that this one repeats.
    """

    format: str
    version: str
    session: NewSession
    entries: tuple[NewEntry, ...]
    leaves: tuple[str, ...] = ()
    lines: tuple[int, ...] = ()
    earlier: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    labels: tuple[LabelChange, ...] = ()
    titles: tuple[TitleChange, ...] = ()
    parent: TaskOf | None = None
    lost: Mapping[str, str] = field(default_factory=dict)
    unfinished: frozenset[str] = frozenset()
    may_overlap: bool = False
    began: Mapping[str, str] = field(default_factory=dict)
    is_rewritten: bool = False
    completed_us: int | None = None
    tasks: tuple[TaskOf, ...] = ()
    restates: bool = False
    calls: tuple[PaidCall, ...] = ()
    settles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    segment: str = ""
    name: str | None = None
    is_payer: bool = False


@dataclass(slots=True, kw_only=True)
class Draft:
    """What a session of a file has gained since its last part was taken, field by field as in `SessionPart`."""

    entries: list[NewEntry] = field(default_factory=list)
    leaves: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    earlier: dict[str, tuple[str, ...]] = field(default_factory=dict)
    labels: list[LabelChange] = field(default_factory=list)
    titles: list[TitleChange] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)
    unfinished: frozenset[str] = frozenset()
    began: dict[str, str] = field(default_factory=dict)
    calls: list[PaidCall] = field(default_factory=list)
    settles: dict[str, tuple[str, ...]] = field(default_factory=dict)
    is_new: bool = True
    """Whether no part was taken yet."""

    @property
    def has_part(self) -> bool:
        """Whether there is something to return."""
        return bool(self.is_new or self.entries or self.leaves or self.titles or self.calls)

    def take(
        self,
        format_name: str,
        version: str,
        session: NewSession,
        parent: TaskOf | None = None,
        *,
        may_overlap: bool = False,
    ) -> SessionPart:
        """Return it as the next part, and begin anew."""
        part = SessionPart(
            format_name,
            version,
            session,
            tuple(self.entries),
            tuple(self.leaves),
            tuple(self.lines),
            self.earlier,
            tuple(self.labels),
            tuple(self.titles),
            parent,
            self.lost,
            self.unfinished,
            may_overlap,
            self.began,
            calls=tuple(self.calls),
            settles=self.settles,
        )
        self.entries, self.leaves, self.lines, self.labels, self.titles, self.calls = [], [], [], [], [], []
        self.earlier, self.lost, self.began, self.settles = {}, {}, {}, {}
        self.is_new = False
        return part


class Reader(Protocol):
    """Reads one file."""

    needs_scan: bool
    """Whether every line has to be given to `scan` before the first one is given to `feed`."""

    needs_whole: bool
    """Whether the whole file is given to `feed` at once, as line 1: it means nothing in parts."""

    @property
    def ready(self) -> int:
        """How many entries can be taken, about."""

    def scan(self, number: int, raw: bytes) -> None:
        """Look at a line (``number`` counts from 1), to know what comes later."""

    def feed(self, number: int, raw: bytes) -> None:
        """Read a line. Raises `UnreadableFile` if the file is not of this format; nothing was returned before that."""

    def take(self) -> list[SessionPart]:
        """Return what is ready, and forget it."""

    def finish(self, *, take_all: bool) -> list[SessionPart]:
        """Return what is left when there are no more lines. Raises `UnreadableFile` if there was no session.

        What may not be complete is held back, and noted, unless ``take_all``.
        """

    def report(self) -> ParseReport:
        """Return what came of the rows."""


def read_lines(reader: Reader, lines: Sequence[bytes]) -> list[SessionPart]:
    """Return the parts of a file, given all of its lines. Raises `UnreadableFile`. O(size)."""
    if reader.needs_scan:
        for number, raw in enumerate(lines, 1):
            reader.scan(number, raw)
    for number, raw in enumerate(lines, 1):
        reader.feed(number, raw)
    return reader.finish(take_all=True)


class DocumentReader:
    """Reads a file that is one document (see `Reader`), by a function of its bytes and its name."""

    needs_scan = False
    needs_whole = True

    def __init__(self, parse: Callable[[bytes, str], Sequence[ParsedSession]], name: str) -> None:
        self._parse = parse
        self._name = name
        self._sessions: Sequence[ParsedSession] = ()
        self._reports: list[ParseReport] = []
        self.ready = 0

    def scan(self, number: int, raw: bytes) -> None:
        """Nothing has to be known in advance."""

    def feed(self, number: int, raw: bytes) -> None:
        """Read the document. Raises `UnreadableFile` if it is not of this format."""
        self._sessions = self._parse(raw, self._name)
        self._reports = list({id(session.report): session.report for session in self._sessions}.values())
        self.ready = sum(len(session.entries) for session in self._sessions)

    def take(self) -> list[SessionPart]:
        """Return the sessions, once."""
        sessions, self._sessions, self.ready = self._sessions, (), 0
        return [whole_session(session) for session in sessions]

    def finish(self, *, take_all: bool) -> list[SessionPart]:
        """Return the sessions that were not taken. Raises `UnreadableFile` if there was none."""
        if not self._reports:
            raise UnreadableFile(f"{self._name} holds no session; nothing was imported")
        return self.take()

    def report(self) -> ParseReport:
        """Return what came of the document."""
        return joined(self._reports)


def whole_session(parsed: ParsedSession) -> SessionPart:
    """Return a session that was parsed as a whole as the one part it is. O(entries)."""
    order = sorted(parsed.entries, key=lambda entry: parsed.lines.get(entry.id or "", 0))
    if order and parsed.leaf != order[-1].id:
        order = [entry for entry in order if entry.kind in SHOWN_KINDS]
    leaves = [entry.id for entry in order if entry.id is not None and entry.id != parsed.leaf]
    names = {False: parsed.session.title, True: parsed.session.auto_title}
    naming = [(str(entry.id), _NAMING[entry.kind]) for entry in parsed.entries if entry.kind in _NAMING]
    titles = [TitleChange(entry_id, name, is_made) for entry_id, is_made in naming if (name := names[is_made])]
    return SessionPart(
        parsed.format,
        parsed.version,
        parsed.session,
        parsed.entries,
        (*leaves, parsed.leaf) if parsed.leaf is not None else tuple(leaves),
        tuple(parsed.lines.get(entry.id or "", 0) for entry in parsed.entries),
        labels=parsed.labels,
        titles=tuple(titles),
        parent=parsed.parent,
        is_rewritten=parsed.is_rewritten,
        completed_us=parsed.completed_us,
        tasks=parsed.tasks,
        restates=parsed.restates,
    )


_NAMING = {"session_info": False, "custom-title": False, "title": False, "ai-title": True}
"""The kinds of entries that name a session, and whether a program made the name."""


# -- remembering ids ----------------------------------------------------------------------------------------------


class IdTable:
    """Which ids occurred, each with a small number (0 to 3): about 20 bytes for each, whatever their length.

    An id is known by 62 bits of its hash. Among ten million ids, two are mistaken for each other with a
    probability of one in a hundred thousand.
    """

    __slots__ = ("_count", "_limit", "_mask", "_slots")

    def __init__(self) -> None:
        self._resize(1 << 12)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def _resize(self, size: int) -> None:
        self._slots = array("Q", bytes(8 * size))
        self._mask = size - 1
        self._limit = size * 2 // 3

    def put(self, name: str, number: int = 0) -> None:
        """Remember an id with its number; one that is known gets the new number."""
        key = hash(name) << 2 & 0xFFFF_FFFF_FFFF_FFFC or 4
        slots, mask = self._slots, self._mask
        at = key >> 2 & mask
        while (there := slots[at]) and there & ~3 != key:
            at = at + 1 & mask
        slots[at] = key | number
        if not there:
            self._count += 1
            if self._count > self._limit:
                self._grow()

    def get(self, name: str) -> int | None:
        """Return the number of an id; None if it did not occur."""
        key = hash(name) << 2 & 0xFFFF_FFFF_FFFF_FFFC or 4
        slots, mask = self._slots, self._mask
        at = key >> 2 & mask
        while there := slots[at]:
            if there & ~3 == key:
                return there & 3
            at = at + 1 & mask
        return None

    def _grow(self) -> None:
        old = self._slots
        self._resize(2 * (self._mask + 1))
        slots, mask = self._slots, self._mask
        for key in old:
            if key:
                at = key >> 2 & mask
                while slots[at]:
                    at = at + 1 & mask
                slots[at] = key


class Recent(Generic[Value]):
    """The values of the ids that were put last, up to ``limit`` of them."""

    __slots__ = ("_limit", "_values")

    def __init__(self, limit: int) -> None:
        self._values: OrderedDict[str, Value] = OrderedDict()
        self._limit = limit

    def put(self, name: str, value: Value) -> None:
        """Remember a value, and forget the oldest where there are too many."""
        self._values[name] = value
        if len(self._values) > self._limit:
            self._values.popitem(last=False)

    def get(self, name: str) -> Value | None:
        """Return the value of an id, or None if it is not known any more."""
        return self._values.get(name)


# -- small things that rows of all formats have ---------------------------------------------------------------------


def first_rows(first_bytes: bytes) -> Iterable[bytes]:
    """Return the whole lines among the first bytes of a file, blank ones left out; a single torn one as it is."""
    lines: Sequence[bytes] = first_bytes.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    whole = lines[:-1] or lines
    return (line for line in whole if line.strip())
