"""A PostgreSQL server for tests and measurements: private, made when it is needed, gone with the process that made it.

    with PostgresServer() as server:
        url = server.create_database("mine")

It needs the programs of PostgreSQL 15 or newer, and neither pytest nor a driver. Everything here blocks.
"""

from __future__ import annotations

import atexit
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, TypeAlias
from urllib.parse import quote

from flue_py.errors import FixTheSetup, InvalidArgument, StoreClosed, StoreUnavailable
from tests import postgres_guard
from tests.postgres_guard import CLUSTER, remove_folder

Setting: TypeAlias = bool | int | str
StopMode: TypeAlias = Literal["fast", "immediate"]

OLDEST_VERSION = 15
USER = "postgres"
"""The role that owns everything on the server. It needs no password."""
PORT = 5432
"""Part of the name of the socket; nothing listens on a network."""

# synchronous_commit stays on: the order in which commits become visible is then what it is in production.
DEFAULTS: Mapping[str, Setting] = {"fsync": False, "shared_buffers": "16MB"}

_PROGRAMS = ("initdb", "postgres", "psql")
_VERSIONED_FOLDERS = ("/usr/lib/postgresql", "*/bin"), ("/usr", "pgsql-*/bin")
_OWN_SETTINGS = {"data_directory", "listen_addresses", "port", "unix_socket_directories", "unix_socket_permissions"}
_LONGEST_SOCKET_PATH = 103
"""In bytes: what macOS allows; Linux allows 107."""
_READY = "ready to accept connections"
_START_SECONDS = 120.0
_STOP_SECONDS = 60.0
# Each after the one before has not helped in time.
_SIGNALS: Mapping[StopMode, tuple[signal.Signals, ...]] = {
    "fast": (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL),
    "immediate": (signal.SIGQUIT, signal.SIGKILL),
}


def find_binaries() -> Path:
    """Return the folder with the programs of a server of version 15 or newer: PATH's, else the newest installed.

    Raises `FixTheSetup` if there is none.
    """
    for folder in _candidate_folders():
        if _server_version(folder) >= OLDEST_VERSION:
            return folder
    raise FixTheSetup(
        f"the programs {', '.join(_PROGRAMS)} of PostgreSQL {OLDEST_VERSION} or newer are neither in PATH nor under "
        "/usr/lib/postgresql; install your distribution's PostgreSQL server"
    )


def _candidate_folders() -> Iterator[Path]:
    for program in _PROGRAMS:
        found = shutil.which(program)
        if found is not None:
            # A link to one program says nothing of the others: they are beside what it points to.
            yield Path(found).resolve().parent
    versioned = (folder for root, pattern in _VERSIONED_FOLDERS for folder in Path(root).glob(pattern))
    yield from sorted(versioned, key=lambda folder: [int(n) for n in re.findall(r"\d+", str(folder))], reverse=True)


def _server_version(folder: Path) -> int:
    """Return the major version of the server in a folder, or 0 if a program is missing."""
    if not all(os.access(folder / program, os.X_OK) for program in _PROGRAMS):
        return 0
    asked = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=False)
    version = re.search(r"\(PostgreSQL\) (\d+)", asked.stdout)
    return int(version[1]) if version else 0


@dataclass(frozen=True, slots=True)
class _Account:
    """Who runs the server; None where that is who we are."""

    user: int | None = None
    group: int | None = None
    groups: tuple[int, ...] | None = None


def _server_account() -> _Account:
    """Return the account for the server, which refuses to run as root."""
    if os.geteuid() != 0:
        return _Account()
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return _Account(entry.pw_uid, entry.pw_gid, ())
    raise FixTheSetup("a PostgreSQL server cannot run as root, and there is neither a user postgres nor nobody")


def _private_folder(account: _Account) -> Path:
    """Return a new folder that its owner alone may enter: the server's account, or we as root."""
    for parent in (Path(tempfile.gettempdir()), Path("/tmp")):
        socket = parent / "flue-pg-xxxxxxxx" / f".s.PGSQL.{PORT}"
        if len(os.fsencode(socket)) <= _LONGEST_SOCKET_PATH and (account.user is None or _open_to_all(parent)):
            break
    else:
        raise FixTheSetup("the temporary folder's path is too long for a socket, or closed to others; set TMPDIR")
    folder = Path(tempfile.mkdtemp(prefix="flue-pg-", dir=parent))
    if account.user is not None and account.group is not None:
        os.chown(folder, account.user, account.group)
    return folder


def _open_to_all(folder: Path) -> bool:
    return all(each.stat().st_mode & 0o001 for each in (folder, *folder.parents))


def _environment() -> dict[str, str]:
    """Return our environment without what would change the server, its language or whom psql asks."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return {**ours, "LC_ALL": "C", "TZ": "UTC"}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _checked(settings: Mapping[str, Setting] | None) -> Mapping[str, Setting]:
    refused = sorted(_OWN_SETTINGS & (settings or {}).keys())
    if refused:
        raise InvalidArgument(f"{', '.join(refused)}: the server chooses this by itself; leave it out")
    return settings or {}


def _as_argument(setting: Setting) -> str:
    return ("on" if setting else "off") if isinstance(setting, bool) else str(setting)


class _Log:
    """What a running server says. Reading it on is what keeps the server from waiting for us."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._lines: deque[str] = deque(maxlen=40)
        self._told = threading.Event()
        self._ready = False
        self._thread = threading.Thread(target=self._read, name="PostgreSQL log", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self._stream:
            self._lines.append(line)
            if _READY in line:
                self._ready = True
                self._told.set()
        self._told.set()

    def wait_until_ready(self) -> bool:
        """Return whether the server takes connections; at once when it has, or when it has ended."""
        self._told.wait(_START_SECONDS)
        return self._ready

    def close(self) -> None:
        """Read to the end, which comes when the last process of the server is gone."""
        self._thread.join()
        self._stream.close()

    @property
    def text(self) -> str:
        return "".join(self._lines).strip()


class PostgresServer:
    """A PostgreSQL server in a temporary folder, which listens on a private Unix socket alone. It is running.

    ``settings`` are server settings by name, such as ``{"fsync": True, "max_connections": 20}``; without them the
    server is quick and survives the end of its processes, but no power cut. It belongs to this process: `close`, the
    end of a ``with`` block or the end of the process, however it ends, stop it and remove its folder. Raises
    `FixTheSetup` where the programs are missing, `StoreUnavailable` where they fail. About a second.
    """

    def __init__(self, settings: Mapping[str, Setting] | None = None) -> None:
        self._settings = {**DEFAULTS, **_checked(settings)}
        self._binaries = find_binaries()
        self._account = _server_account()
        self._folder = _private_folder(self._account)
        self._process: subprocess.Popen[str] | None = None
        self._log: _Log | None = None
        self._closed = False
        self._maker = os.getpid()
        atexit.register(self.close)
        # In a session of its own, out of reach of Ctrl-C.
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", postgres_guard.__file__, self._folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        try:
            self._make_cluster()
            self.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> PostgresServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def folder(self) -> Path:
        """The folder of cluster and socket; where a driver asks for a host, it takes this."""
        return self._folder

    @property
    def process_id(self) -> int | None:
        """The pid of the server while it runs."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def url(self, database: str = "postgres") -> str:
        """Return the SQLAlchemy URL of a database."""
        return f"postgresql+asyncpg{self._address(database)}"

    def dsn(self, database: str = "postgres") -> str:
        """Return the address of a database as the bare driver takes it."""
        return f"postgresql{self._address(database)}"

    def _address(self, database: str) -> str:
        return f"://{USER}@/{quote(database, safe='')}?host={quote(str(self._folder))}&port={PORT}"

    def start(self, settings: Mapping[str, Setting] | None = None) -> None:
        """Start the server again on the same data; return when it takes connections.

        ``settings`` hold for this run, over those given at first. Nothing happens if it is running. Raises
        `InvalidArgument` for a setting that is the server's own affair, `StoreUnavailable` with what the server
        said, `StoreClosed` after `close`.
        """
        chosen = {**self._settings, **_checked(settings)}
        if self._closed:
            raise StoreClosed("this PostgreSQL server has been closed, and its data is gone; make another")
        if self.process_id is not None:
            return
        self.stop()  # where it ended by itself, what it left is still ours to put away
        self._process = subprocess.Popen(
            [self._binaries / "postgres", "-D", self._folder / CLUSTER, *self._arguments(chosen)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            cwd=self._folder,
            env=_environment(),
            start_new_session=True,
            user=self._account.user,
            group=self._account.group,
            extra_groups=self._account.groups,
        )
        assert self._process.stderr is not None
        self._log = log = _Log(self._process.stderr)
        if not log.wait_until_ready():
            self.stop("immediate")
            raise StoreUnavailable(f"the PostgreSQL server in {self._folder} did not start: {log.text}")

    def _arguments(self, settings: Mapping[str, Setting]) -> list[str]:
        own: Mapping[str, Setting] = {
            "listen_addresses": "",
            "port": PORT,
            "unix_socket_directories": str(self._folder),
            "unix_socket_permissions": "0700",
        }
        return [part for name, value in {**settings, **own}.items() for part in ("-c", f"{name}={_as_argument(value)}")]

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server, and return when its last process is gone. Nothing happens if it is not running.

        ``"fast"`` ends the sessions and shuts down in order; ``"immediate"`` drops everything as it is, so that the
        next `start` recovers from the log, as after a crash.
        """
        if self._process is None or self._log is None:
            return
        for number in _SIGNALS[mode]:
            self._process.send_signal(number)
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            break
        self._log.close()
        self._process = self._log = None

    def restart(self, settings: Mapping[str, Setting] | None = None, mode: StopMode = "fast") -> None:
        """Stop and start, with ``settings`` for the new run, over those given at first; see `stop` and `start`."""
        chosen = _checked(settings)
        self.stop(mode)
        self.start(chosen)

    def create_database(self, name: str, template: str | None = None) -> str:
        """Return the SQLAlchemy URL of a new database: empty, or a copy of one that nobody is connected to.

        Raises `StoreUnavailable`, with what the server said. Some 50 ms.
        """
        source = "" if template is None else f" TEMPLATE {_quoted(template)}"
        self.psql(f"CREATE DATABASE {_quoted(name)}{source}")
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, and end the connections to it. Raises `StoreUnavailable` if it is not there."""
        self.psql(f"DROP DATABASE {_quoted(name)} WITH (FORCE)")

    def psql(self, statement: str, database: str = "postgres") -> str:
        """Return what a statement answers: a line per row, its columns parted by ``|``.

        It may write and take its time, whatever the server's settings say. Raises `StoreUnavailable`, with what the
        server said.
        """
        done = subprocess.run(
            [self._binaries / "psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-c", statement, "-d", self.dsn(database)],
            capture_output=True,
            encoding="utf-8",
            env={**_environment(), "PGOPTIONS": "-c default_transaction_read_only=off -c statement_timeout=0"},
            check=False,
        )
        if done.returncode:
            raise StoreUnavailable(f"{self.url(database)}: {done.stderr.strip()}")
        return done.stdout.rstrip("\n")

    def close(self) -> None:
        """Stop the server and remove its folder. Further calls do nothing, nor does one in a forked child."""
        if self._closed or os.getpid() != self._maker:
            return
        self._closed = True
        atexit.unregister(self.close)
        self.stop("immediate")
        remove_folder(self._folder)
        self._guard.communicate()

    def _make_cluster(self) -> None:
        cluster = self._folder / CLUSTER
        made = subprocess.run(
            [self._binaries / "initdb", "-D", cluster, "-U", USER, "-E", "UTF8", "--locale=C", "-A", "trust", "-N"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            cwd=self._folder,
            env=_environment(),
            user=self._account.user,
            group=self._account.group,
            extra_groups=self._account.groups,
            check=False,
        )
        if made.returncode:
            raise StoreUnavailable(f"initdb failed: {made.stderr.strip()}")
        # Whoever reaches the socket has entered the private folder; there is no other way in.
        (cluster / "pg_hba.conf").write_text("local all all trust\n", encoding="ascii")
