"""Files to import: found, opened, recognized, and read a batch at a time."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from flue_py.core.json import JsonValue, json_weight
from flue_py.core.sessions import DEFAULT_LIMITS, Limits
from flue_py.db.runner import collector_held
from flue_py.errors import FlueError, InvalidArgument, UnreadableFile, shown
from flue_py.formats import registry
from flue_py.formats.kit import ParseReport, ReadAgain, Reader, SessionPart, joined_parts
from flue_py.system import ZSTD, in_full, open_if_plain, read_beginning, unpacked
from flue_py.transfer.marks import Bookmark, End, take_up, text_of

# Opening a file that somebody else has made, and refusing pipes and devices, which may have no end.


def open_plain(path: Path) -> BinaryIO:
    """Return a file opened for reading bytes. Never waits for another process.

    Raises `UnreadableFile` for a pipe, a socket or a device, which may have no end, and OSError.
    """
    opened = open_if_plain(path)
    if opened is None:
        raise UnreadableFile(
            f"{path} is a pipe or a device, not a file; write it into a file first. Nothing was imported"
        )
    return opened


# A file that is being imported: recognised, opened, and read a batch at a time.

AUTO = "auto"
_FIRST_BYTES = 1 << 16
_ONE_READ = 1 << 20
_BEGINNING = 1_000
_GZIP = b"\x1f\x8b"
_ROWS_AT_ONCE = 4_000
_BYTES_AT_ONCE = 8 * 2**20
_SHORTEST_LIMIT = 1 << 20
# Below this share of the limit, no values of JSON weigh more than it.
_LIGHT = 16


class ImportSource:
    """One file to import. Opened by `start`; to be closed, or used as a context manager.

    With ``is_followed`` there is a ``bookmark`` once it was read. Given that of an import before, ``goes_on`` says that
    only the rows behind it are read.
    """

    def __init__(
        self,
        path: Path,
        format: str = AUTO,  # noqa: A002
        *,
        take_all: bool = False,
        limits: Limits = DEFAULT_LIMITS,
        is_followed: bool = False,
        bookmark: Bookmark | None = None,
    ) -> None:
        self.path = path
        self._is_followed = is_followed
        self.bookmark = bookmark
        self.goes_on = False
        self._last_line = 0
        self._taken = Counter[str]()
        self.taken_before: Mapping[str, int] = {}
        """How many entries of each session come before the bookmark that it goes on from."""
        self.ends: tuple[End, ...] = ()
        """The sessions as they have to be for that."""
        self._limits = limits
        self._wanted = format
        self._take_all = take_all
        self._format: registry.Format | None = None
        self._file: BinaryIO | None = None
        self._lines: Iterator[tuple[int, bytes]] = iter(())
        self._before: Iterator[None] = iter(())
        self._gathered: Generator[bytes, None, None] | None = None
        self._reader: Reader | None = None
        self._report: ParseReport | None = None
        self._waiting: list[SessionPart] | None = []
        self.size = 0
        self.state: list[int] = []
        """Which file it is, and whether it was changed, as `stated` says it, when it was opened."""
        self.opened_ns = 0
        self.before: dict[str, list[int]] = {}
        """The same of the files that come before it, by their paths."""
        self.fingerprints: dict[str, str] = {}
        """The sessions that may be left out, by `Format.fingerprints_of`; then nothing is read yet."""
        self.unchanged: set[str] = set()
        """Those that are left out, to be put in here before the first batch is taken."""
        self.beside: JsonValue = None
        """The description of it in other files, as `Format.said_beside` returns it."""
        self.bytes_read = 0
        self.whole_bytes = 0
        """How many bytes of whole lines were read: the end of a file that is being written may be half a line."""
        self._digest = blake2b(digest_size=16)

    def __enter__(self) -> ImportSource:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._file is not None:
            self._file.close()
        if self._gathered is not None:
            self._gathered.close()

    @property
    def format(self) -> registry.Format:
        """The format of the file, once it was started."""
        assert self._format is not None
        return self._format

    @property
    def report(self) -> ParseReport:
        """The report on the rows, once everything was read."""
        assert self._report is not None
        return self._report

    @property
    def digest(self) -> str:
        """The digest of the whole lines that were read."""
        return self._digest.hexdigest()

    def start(self) -> None:
        """Open the file and read the beginning. Raises `UnreadableFile` if it cannot be read or recognised."""
        first = b""
        try:
            self._file = open_plain(self.path)
            status = os.fstat(self._file.fileno())
            self.size, self.state, self.opened_ns = status.st_size, stated(status), time.time_ns()
            first = self._file.read(_FIRST_BYTES)
            self._file.seek(0)
            self._format = self._recognized(first)
            if first.startswith(ZSTD):
                self._file = unpacked(self._file)
                self.size = self._file.seek(0, os.SEEK_END)
                self._file.seek(0)
            self.beside = self._format.said_beside(self.path)
            mark, self.bookmark = self.bookmark, None
            self.goes_on = mark is not None and self._go_on(mark, self._format, self._file)
            if not self.goes_on:
                self._file.seek(0)
                self._begin(self._format, self._file)
            if not self.fingerprints:
                self._waiting = self._read_batch()
        except UnreadableFile as error:
            hint = self._looks_like(first)
            if not hint:
                raise
            raise UnreadableFile(f"{error}{hint}") from error
        except OSError as error:
            raise UnreadableFile(f"{self.path} cannot be read: {error.strerror or error}") from error

    def _begin(self, form: registry.Format, file: BinaryIO) -> None:
        self._reader = self._make_reader(form)
        lines = self._document if self._reader.needs_whole else self._numbered_lines
        if self._reader.needs_scan:
            for number, raw in lines(file):
                self._reader.scan(number, raw)
            file.seek(0)
        self.fingerprints = form.fingerprints_of(self.path)
        self._gathered = form.gathered(self.path, self.unchanged)
        self._lines = lines(file) if self._gathered is None else self._bounded(self._gathered)
        self._before = form.rows_before(self.path, self._reader, self._numbered_lines)
        # The rest of these means something only with all that is there now.
        is_whole = self._reader.needs_whole or self._gathered is not None
        self._is_followed = self._is_followed and not is_whole and form.package == registry.OURS

    def _go_on(self, mark: Bookmark, form: registry.Format, file: BinaryIO) -> bool:
        """Read on behind a bookmark; return False if rows there change the place of those before.

        Or if anything up to there is not as it was. O(size): its bytes are compared by a digest.
        """
        digest = _digest_of_first(mark.size, file) if (mark.format, mark.beside) == (form.name, self.beside) else None
        if digest is None or digest.hexdigest() != mark.digest:
            return False
        reader = self._make_reader(form)
        with collector_held(_ROWS_AT_ONCE):
            is_taken = take_up(reader, mark.reader)
        try:
            for number, raw in self._numbered_lines(file, mark.lines + 1) if is_taken and reader.needs_scan else ():
                reader.scan(number, raw)
        except ReadAgain:
            return False
        if not is_taken or any(stated_at(path) != state for path, state in mark.before.items()):
            return False
        file.seek(mark.size)
        self._reader, self._digest, self.before, self._taken = reader, digest, {**mark.before}, Counter(mark.taken)
        self.ends, self.taken_before = mark.ends, mark.taken
        self.bytes_read = self.whole_bytes = mark.size
        self._last_line = mark.lines
        self._lines = self._numbered_lines(file, mark.lines + 1)
        return True

    def begin_again(self) -> None:
        """Read the whole file, instead of what is behind a bookmark. Raises as `start`."""
        self.close()
        options = {"take_all": self._take_all, "is_followed": self._is_followed}
        self.__init__(self.path, self._wanted, limits=self._limits, **options)  # type: ignore[misc]
        self.start()

    def _looks_like(self, first: bytes) -> str:
        """Return a hint for a file that is not of the format that was named."""
        program = registry.program_of(first, str(self.path.absolute()))
        if program is not None:
            return f"; it is a file of {program}, which no format reads"
        if first.startswith(b"SQLite format 3"):
            return "; it looks like a SQLite database: use flue-py unbundle for a bundle, flue-py --db for a store"
        if first.startswith((_GZIP, ZSTD)):
            return "; it is compressed: unpack it first"
        form = registry.recognize(first, str(self.path))
        if form is None or form is self._format:
            return ""
        return f"; it looks like {form.name}: use flue-py import {form.name}, or auto"

    def _recognized(self, first: bytes) -> registry.Format:
        if self._wanted != AUTO:
            named = registry.find_format(self._wanted)
            if registry.program_by_content(first) is not None and not named.recognizes(first, str(self.path)):
                raise UnreadableFile(f"{self.path} is not of the format {named.name}; nothing was imported")
            return named
        form = registry.recognize(first, str(self.path))
        if form is not None:
            return self._settled(form) if self.size > len(first) else form
        if first[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise UnreadableFile(f"{self.path} is UTF-16; sessions are UTF-8: convert it first")
        reason = "is empty" if not first.strip() else f"looks like none of {', '.join(registry.format_names())}"
        raise UnreadableFile(f"{self.path} {reason}; nothing was imported")

    def _settled(self, form: registry.Format) -> registry.Format:
        """Return the format that the whole file is of, where its beginning is not enough to tell."""
        file = self._file
        if form.settle is None or file is None:
            return form
        name = form.other_format(iter(lambda: file.read(_ONE_READ), b""))
        file.seek(0)
        return form if name is None else registry.find_format(name)

    def _make_reader(self, format: registry.Format) -> Reader:  # noqa: A002
        try:
            return format.reader(self.path.name)
        except Exception as error:
            raise self._failed(format, error) from error

    def _failed(self, format: registry.Format, error: Exception) -> Exception:  # noqa: A002
        """Return the error to raise for one of a reader: of another package's, that it is to blame."""
        if format.package == registry.OURS or isinstance(error, (FlueError, OSError)):
            return error
        return UnreadableFile(f"{self.path}: {format.failed(error)}; nothing more of it was imported")

    def _document(self, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
        """Yield the whole file as line 1. Raises `UnreadableFile` if it is larger than the limits allow."""
        most = self._limits.document_bytes
        if self.size > most:
            raise self._too_large(f"{self.size} bytes are more than the {most}")
        data = file.read(self.size)
        if len(data) > most // _LIGHT and json_weight(data) > 3 * most:
            raise self._too_large(f"its values would take more than three times the {most} bytes in memory")
        yield 1, data

    def _too_large(self, reason: str) -> UnreadableFile:
        return UnreadableFile(
            f"{self.path}: {reason} that a file of the format {self.format.name} may have, since it is read as a "
            "whole; nothing was imported. Open the store with other limits (document_bytes) if you trust it"
        )

    def batch(self) -> list[SessionPart] | None:
        """Return the next parts of the file's sessions; None if there are no more."""
        waiting = self._waiting
        if waiting is None:
            return None
        try:
            self._waiting = None if self._report is not None else self._read_batch()
        except OSError as error:
            raise UnreadableFile(f"{self.path} cannot be read on: {error.strerror or error}") from error
        return waiting

    def _read_batch(self) -> list[SessionPart]:
        assert self._reader is not None
        try:
            with collector_held(_ROWS_AT_ONCE):
                return self._read_rows(self._reader)
        except Exception as error:
            raise self._failed(self.format, error) from error

    def _read_rows(self, reader: Reader) -> list[SessionPart]:
        size, is_digested = 0, self.format.is_chained or self._is_followed
        for _ in self._before:
            if reader.ready >= _ROWS_AT_ONCE:
                return self._taken_from(reader)
        parts: list[SessionPart] = []
        for number, raw in self._lines:
            self.bytes_read += len(raw)
            if raw.endswith(b"\n"):
                self.whole_bytes += len(raw)
                self._last_line = number
                if is_digested:
                    self._digest.update(raw)
            elif self._is_followed:
                parts = self._mark(reader)
            reader.feed(number, raw)
            size += len(raw)
            if not parts and (size >= _BYTES_AT_ONCE or reader.ready >= _ROWS_AT_ONCE):
                return self._taken_from(reader)
        if self._is_followed and self.bookmark is None:
            parts = joined_parts(parts, self._mark(reader))
        if self.unchanged and not self.bytes_read:
            self._report = ParseReport(0)
            return []
        parts = joined_parts(parts, reader.finish(take_all=self._take_all))
        self._report = reader.report()
        return parts

    def _taken_from(self, reader: Reader) -> list[SessionPart]:
        parts = reader.take()
        for part in parts:
            self._taken[str(part.session.id)] += len(part.entries)
        return parts

    def _mark(self, reader: Reader) -> list[SessionPart]:
        """Make the bookmark behind the last whole line, and return the parts up to there.

        They are to be joined with those of the end, as one change of the session, which one undo takes back.
        """
        parts = self._taken_from(reader)
        # What cannot be remembered is read again.
        with suppress(TypeError, RecursionError):
            self.bookmark = Bookmark(
                self.format.name,
                text_of(reader),
                self._last_line,
                self.whole_bytes,
                self.digest,
                self.before,
                self.beside,
                Counter(self._taken),
            )
        return parts

    def _numbered_lines(self, file: BinaryIO, first: int = 1) -> Iterator[tuple[int, bytes]]:
        """Return the lines of a file with their numbers, from ``first``; of one that is too large only the beginning.

        Too large is one far longer than an entry may be, or whose values would take far more memory than that.
        """
        if file is not self._file and isinstance(file.name, (str, Path)):
            self.before[str(file.name)] = stated(os.fstat(file.fileno()))
        most = self._most_of_a_line()

        def lines() -> Iterator[bytes]:
            while line := file.readline(_ONE_READ):
                is_long = len(line) == _ONE_READ and not line.endswith(b"\n")
                yield _read_long(file, line, most + most // 4) if is_long else line

        return self._bounded(lines(), first)

    def _most_of_a_line(self) -> int:
        return max(self._limits.entry_bytes, _SHORTEST_LIMIT)

    def _bounded(self, lines: Iterable[bytes], first: int = 1) -> Iterator[tuple[int, bytes]]:
        most = self._most_of_a_line()
        for number, line in enumerate(lines, first):
            is_heavy = len(line) > most // _LIGHT and json_weight(line) > 3 * most
            yield number, line[:_BEGINNING] + b"\n" if is_heavy else line

    def digest_of_first(self, count: int) -> str | None:
        """Return the digest of the first ``count`` bytes of the file, as `digest` makes it; None if it has less."""
        if count > self.size:
            return None
        with unpacked(open_plain(self.path)) as file:
            digest = _digest_of_first(count, file)
        return None if digest is None else digest.hexdigest()


def _digest_of_first(count: int, file: BinaryIO) -> blake2b | None:
    digest = blake2b(digest_size=16)
    while count > 0 and (some := file.read(min(count, _ONE_READ))):
        digest.update(some)
        count -= len(some)
    return digest if count == 0 else None


def _read_long(file: BinaryIO, begun: bytes, most: int) -> bytes:
    """Return a line whose beginning was read; only the beginning if it has more than ``most`` bytes."""
    line = bytearray(begun)
    some, is_too_long = begun, False
    while some and not some.endswith(b"\n"):
        some = file.readline(_ONE_READ)
        is_too_long = is_too_long or len(line) + len(some) > most
        if not is_too_long:
            line += some
    return bytes(line[:_BEGINNING]) + b"\n" if is_too_long else bytes(line)


def stated(status: os.stat_result) -> list[int]:
    """Return numbers that identify an open file, and tell whether it was changed."""
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def stated_at(path: str) -> list[int] | None:
    """Return which file is at a path, and whether it was changed; None where there is none."""
    try:
        return stated(os.stat(path))
    except OSError:
        return None


def checked_format(name: str) -> str:
    """Return the name of a format, or ``auto``. Raises `InvalidArgument`."""
    if not isinstance(name, str):
        raise InvalidArgument(f"format: should be a string, not {shown(name)}")
    return AUTO if name == AUTO else registry.find_format(name).name


# Where files to import are: in folders that were named, and in the usual places of the programs that write them.


def usual_places(format: str = AUTO) -> list[Path]:  # noqa: A002
    """Return the folders and files that are there of those in which programs keep their sessions, each once."""
    formats = registry.all_formats() if format == AUTO else (registry.find_format(format),)
    places = []
    for place in (place for form in formats for place in form.places):
        with suppress(InvalidArgument):  # the home of no user has no sessions
            places.append(Path(in_full(place)))
    return [place for place in dict.fromkeys(places) if place.exists()]


def find_files(
    places: Iterable[Path],
    format: str = AUTO,  # noqa: A002
    *,
    others: Counter[str] | None = None,
    is_session: Callable[[Path], object] = lambda _: None,
) -> Iterator[Path]:
    """Return the files to import, each once: those that are named, and in folders those of a format, by name.

    In a folder a file is taken where its name ends as the format's do, and its beginning is that of the format (or,
    with ``auto``, of any). Links to folders are not followed. One that ``is_session`` returns something for is one.
    """
    seen: set[Path] = set()
    for place in places:
        for path in _files_of(place, format, others, is_session) if place.is_dir() else (place,):
            real = path.resolve()
            if real not in seen:
                seen.add(real)
                yield path


def _files_of(
    folder: Path,
    format: str,  # noqa: A002
    others: Counter[str] | None,
    is_session: Callable[[Path], object],
) -> Iterator[Path]:
    named = None if format == AUTO else registry.find_format(format)
    suffixes = tuple({suffix for form in ((named,) if named else registry.all_formats()) for suffix in form.suffixes})
    for where, folders, names in os.walk(folder):
        folders.sort()
        # What belongs to a session comes after it: a file of the same name as a folder, before what is in there.
        for name in sorted(names):
            path = Path(where, name)
            if is_session(path):
                yield path
                continue
            first = _beginning(path) if name.endswith(suffixes) else b""
            # What cannot be read is named, with the reason, when it is to be imported.
            recognizes: Callable[[bytes, str], object] = registry.recognize if named is None else named.recognizes
            if first is None or (first and recognizes(first, str(path))):
                yield path
            elif others is not None and (program := registry.unread_of(first, str(path.absolute()))) is not None:
                others[program] += 1


class WatchedFolders:
    """The files below some folders, or named, as they were when they were last looked at."""

    def __init__(self, places: Sequence[Path]) -> None:
        self._places = places
        self._states = self._look()

    def changed(self) -> list[Path]:
        """Return the files that are new, or not as they were, by name, and remember them as they are. O(files)."""
        before, self._states = self._states, self._look()
        return [Path(path) for path, state in sorted(self._states.items()) if before.get(path) != state]

    def sessions_of(self, path: Path, format: str = AUTO) -> list[Path]:  # noqa: A002
        """Return the files to import after a change: that one, or the one that the session or database is read by.

        A session of several files is read by one of them, in the same folder or one above.
        """
        named = tuple(registry.all_formats()) if format == AUTO else (registry.find_format(format),)
        whole = path.with_name(path.name.removesuffix("-wal"))
        if _is_of(whole, named):
            return [whole]
        gathered = tuple(form for form in named if form.gather is not None)
        suffixes = tuple(suffix for form in gathered for suffix in form.suffixes)
        for folder in path.parents:
            if not suffixes or not any(folder.is_relative_to(place) for place in self._places):
                break
            files = (folder / name for name in sorted(os.listdir(folder)) if name.endswith(suffixes))
            if sessions := [file for file in files if _is_of(file, gathered)]:
                return sessions
        return []

    def _look(self) -> dict[str, tuple[int, int, int]]:
        states: dict[str, tuple[int, int, int]] = {}
        for place in self._places:
            for where, _, names in os.walk(place) if place.is_dir() else [(place.parent, (), (place.name,))]:
                for name in names:
                    path = os.path.join(where, name)
                    with suppress(OSError):
                        status = os.stat(path)
                        states[path] = status.st_ino, status.st_size, status.st_mtime_ns
        return states


def _is_of(path: Path, formats: Iterable[registry.Format]) -> bool:
    first = _beginning(path)
    return bool(first) and any(form.recognizes(first or b"", str(path)) for form in formats)


def _beginning(path: Path) -> bytes | None:
    with suppress(OSError):
        return read_beginning(path, _FIRST_BYTES)
    return None
