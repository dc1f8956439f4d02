"""Witnesses of histories: a file elsewhere, another store, an HTTP endpoint, and one that is told now and then."""

from __future__ import annotations

import fcntl
import os
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, urlsplit

from flue_py.core.chain import Head, Witness, check_methods, read_head
from flue_py.core.sessions import Document, DocumentInfo
from flue_py.db.files import write_whole
from flue_py.errors import InvalidArgument, StoreUnavailable, StoreWarning, shown
from flue_py.system import Lock, in_full

_PROJECT = "heads"
_LARGEST = 65_536
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_COMPACT_AT = 1_000
"""A file of heads is written anew when it has so many lines more than sessions."""


class FileWitness:
    """A file of heads, a line for each that was taken, for its owner alone; several processes may share it.

    Its last line may be cut short by a crash, and is not counted then. Raises `StoreUnavailable`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(in_full(os.fspath(path)))
        self._heads: dict[str, Head] = {}
        self._read = (0, 0)
        self._lines = 0
        self._lock = Lock()

    def last(self, session_id: str, /) -> Head | None:
        """Return the last head of a session. O(what was added since the last call)."""
        return self.last_of([session_id]).get(session_id)

    def last_of(self, session_ids: Sequence[str], /) -> dict[str, Head]:
        """Return the last heads of sessions, by id. O(what was added since the last call)."""
        with self._opened() as number:
            self._catch_up(number)
            return {name: self._heads[name] for name in session_ids if name in self._heads}

    def take(self, head: Head, /) -> None:
        """Add a head, and sync it to the disk. O(1), and at times O(sessions)."""
        with self._opened() as number:
            self._catch_up(number)
            self._heads[head.session_id] = head
            if self._lines > len(self._heads) + _COMPACT_AT:
                self._write_anew()
                return
            line = f"{head}\n".encode()
            size = os.fstat(number).st_size
            if size and os.pread(number, 1, size - 1) != b"\n":
                line = b"\n" + line
            os.pwrite(number, line, size)
            os.fsync(number)
            self._read = (self._read[0], size + len(line))
            self._lines += 1

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Open the file under its name, locked against other processes."""
        with self._lock:
            try:
                while True:
                    number = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                    try:
                        fcntl.flock(number, fcntl.LOCK_EX)
                        if self.path.exists() and os.fstat(number).st_ino == self.path.stat().st_ino:
                            yield number
                            return
                    finally:
                        os.close(number)
            except OSError as error:
                raise StoreUnavailable(f"the witness {self.path} cannot be used: {error}") from error

    def _catch_up(self, number: int) -> None:
        stat = os.fstat(number)
        if (stat.st_ino, stat.st_size) == self._read:
            return
        begin = self._read[1] if self._read[0] == stat.st_ino and stat.st_size > self._read[1] else 0
        if begin == 0:
            self._heads, self._lines = {}, 0
        data = os.pread(number, stat.st_size - begin, begin)
        for line in data.decode(errors="replace").splitlines(keepends=True):
            self._lines += 1
            try:
                head = read_head(line)
            except InvalidArgument:
                # What a crash has cut short, which was acknowledged to nobody.
                continue
            self._heads[head.session_id] = head
        self._read = (stat.st_ino, stat.st_size)

    def _write_anew(self) -> None:
        data = "".join(f"{head}\n" for head in self._heads.values()).encode()
        write_whole(self.path, data, overwrite=True)
        self._read, self._lines = (self.path.stat().st_ino, len(data)), len(self._heads)


class HeadStore(Protocol):
    """The methods of `flue_py.sync.Store` that a `StoreWitness` calls."""

    def read_file(self, name: str, *, project: str = "") -> Document | None: ...

    def add_file(self, name: str, text: str, *, project: str = "") -> DocumentInfo: ...


class StoreWitness:
    """Another store, opened by `flue_py.sync.open`: heads are its files of the project ``heads``.

    A file is named by the SHA-256 of the session's id, which may be no name of a file.
    """

    def __init__(self, store: HeadStore) -> None:
        check_methods("store", store, ("read_file", "add_file"))
        self._store = store

    def last(self, session_id: str, /) -> Head | None:
        """Return the last head of a session. O(1)."""
        document = self._store.read_file(_name(session_id), project=_PROJECT)
        return None if document is None else read_head(document.body)

    def take(self, head: Head, /) -> None:
        """Store a head. One commit."""
        self._store.add_file(_name(head.session_id), str(head), project=_PROJECT)


def _name(session_id: str) -> str:
    return sha256(session_id.encode()).hexdigest()


class HttpWitness:
    """An endpoint of the caller: ``GET URL/SESSION`` answers with a line or 404, ``PUT URL/SESSION`` takes one.

    The URL is https, or http of this machine. No redirect is followed; an answer has 64 KiB at most, and each piece of
    it ``timeout`` seconds to come. ``token`` is sent as a bearer token.
    """

    def __init__(self, url: str, *, token: str | None = None, timeout: float = 5.0) -> None:
        parts = urlsplit(url)
        is_here = parts.scheme == "http" and parts.hostname in _LOOPBACK
        if not parts.hostname or not (parts.scheme == "https" or is_here) or parts.query or parts.username:
            raise InvalidArgument(f"url: {shown(url)} is not https://HOST/PATH, or http:// of this machine")
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path.rstrip("/")
        self._connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._timeout = timeout

    def last(self, session_id: str, /) -> Head | None:
        """Return the last head of a session. One request."""
        status, body = self._ask("GET", session_id)
        return None if status == 404 else read_head(body)

    def take(self, head: Head, /) -> None:
        """Send a head. One request."""
        self._ask("PUT", head.session_id, str(head))

    def _ask(self, method: str, session_id: str, body: str | None = None) -> tuple[int, str]:
        connection = self._connect(self._host, self._port, timeout=self._timeout)
        try:
            connection.request(method, f"{self._path}/{quote(session_id, safe='')}", body, self._headers)
            answer = connection.getresponse()
            data = answer.read(_LARGEST + 1)
        except (OSError, ValueError) as error:
            raise StoreUnavailable(f"the witness {self._host} does not answer: {error}") from error
        finally:
            connection.close()
        is_known = answer.status in (200, 201, 204) or (method == "GET" and answer.status == 404)
        if not is_known or len(data) > _LARGEST:
            raise StoreUnavailable(f"the witness {self._host} answered {method} with {answer.status}")
        return answer.status, data.decode(errors="replace")


class Every:
    """A witness that is told at most every so many seconds, and at the end: a crash loses what it was not told.

    Raises `InvalidArgument`.
    """

    def __init__(self, witness: Witness, seconds: float) -> None:
        check_methods("witness", witness, ("last", "take"))
        if not isinstance(seconds, (int, float)) or not 0 <= seconds <= threading.TIMEOUT_MAX:
            raise InvalidArgument(f"seconds: {shown(seconds)} is no time to wait")
        self._witness, self._seconds = witness, seconds
        self._late: dict[str, Head] = {}
        self._lock = Lock()
        self._timer: threading.Timer | None = None

    def last(self, session_id: str, /) -> Head | None:
        """Return the last head of a session, told or not."""
        return self._late.get(session_id) or self._witness.last(session_id)

    def take(self, head: Head, /) -> None:
        """Keep a head until it is time. O(1)."""
        with self._lock:
            self._late[head.session_id] = head
            if self._timer is None:
                self._timer = threading.Timer(self._seconds, self._ring)
                self._timer.daemon = True
                self._timer.start()

    def _ring(self) -> None:
        try:
            self.flush()
        except Exception as error:  # noqa: BLE001 - nobody is there to take it
            problem = f"{len(self._late)} heads could not be told to their witness ({error})"
            warnings.warn(f"{problem}; they go with the next one", StoreWarning, stacklevel=1)

    def flush(self) -> None:
        """Tell the witness what it does not know yet."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            while self._late:
                session_id, head = next(iter(self._late.items()))
                self._witness.take(head)
                del self._late[session_id]
