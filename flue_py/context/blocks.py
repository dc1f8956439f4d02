"""Blocks: texts for a model beside the conversation, which are appended as messages and never rewritten.

    blocks = [RuntimeEnvironment(), Gitignore(".")]
    await session.append_blocks(blocks)
    await session.append_message({"role": "user", "content": "Go on."})

A block of your own has a ``name`` and ``read``. A name is imported when it is first used.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import socket
import ssl
import unicodedata
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from inspect import isawaitable, iscoroutinefunction
from os import PathLike, fspath
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar, cast, runtime_checkable
from urllib.parse import urlsplit

from flue_py.core.context import ContextEntry
from flue_py.core.entries import NewEntry
from flue_py.core.json import Frozen, JsonObject, JsonValue, NamedTuple, payload_digest
from flue_py.core.kinds import CUSTOM_MESSAGE, message_text
from flue_py.core.sessions import Appended, DocumentFilter, DocumentInfo, DocumentName, check_document_name, scope_meant
from flue_py.errors import InvalidArgument, MemoryUnavailable, UnreadableFile, shown
from flue_py.system import read_beginning

# ---------------------------------------------------------------------------------------------------------------------
# Text from outside as it may stand in a message: nothing in it acts on a terminal, or passes for something else.


def visible(text: str) -> str:
    """Return a text in which control characters, changes of writing direction and the like are U+FFFD; tabs stay."""
    if text.isprintable():
        return text
    return "".join(char if char == "\t" or not _acts(char) else "\ufffd" for char in text)


def visible_line(text: str, most: int) -> str:
    """Return a text as one line of at most so many characters, … at its end where it was longer."""
    line = visible(text[: most + 1])
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _acts(char: str) -> bool:
    category = unicodedata.category(char)
    return category[0] == "C" or category in ("Zl", "Zp")


# ---------------------------------------------------------------------------------------------------------------------
# Blocks, and the outcome of appending them.

BlockMoment: TypeAlias = Literal["read", "save"]


class BlockText(Frozen):
    """The text of a block now.

    ``same`` is the part of the text that decides whether it has to be told again, None for all of it.
    """

    text: str
    same: str | None = None


class Block(Protocol):
    """Something that a model is told beside the conversation, under a name of its own."""

    @property
    def name(self) -> str:
        """A short name in small letters, digits, ``-`` and ``_``, such as ``environment``."""

    def read(self) -> Awaitable[BlockText | None] | BlockText | None:
        """Return its text now, None if it has none. It may raise, and it may be cancelled if it takes long.

        On an event loop it must not block.
        """


@runtime_checkable
class Saving(Protocol):
    """A block that is given the messages of each turn when that is over."""

    def save(self, messages: Sequence[JsonObject]) -> Awaitable[None] | None:
        """Take the messages of a turn: those of the user, and the answers. Otherwise as `Block.read`."""


class BlockFailure(Frozen):
    """A block that gave nothing, and why. Its last text stands."""

    name: str
    reason: str
    moment: BlockMoment = "read"

    def __str__(self) -> str:
        return f"block {self.name!r}, {self.moment}: {self.reason}"


class BlockTold(Frozen):
    """A block that was appended, and its entry. ``is_withdrawn`` says that it no longer has anything to say."""

    name: str
    entry_id: str
    is_withdrawn: bool = False


class BlocksAppended(Frozen):
    """The outcome of blocks: those that were told, in their order, those without a change, and failures.

    ``appended`` is the append of all that were told, None if none were.
    """

    told: tuple[BlockTold, ...] = ()
    unchanged: tuple[str, ...] = ()
    failures: tuple[BlockFailure, ...] = ()
    appended: Appended | None = None


# ---------------------------------------------------------------------------------------------------------------------
# Where an agent runs: the system, the shell, the folder, the date.

_MOST_CHARS = 1_000


class RuntimeEnvironment:
    """The block ``environment``: system, architecture, shell, working directory, date and time with offset and zone.

    ``cwd`` is the folder, by default that of the process each time it is read. ``clock`` returns the time as a
    datetime with a time zone. It is told again when anything but the time of day has changed: on a new day, or in
    another folder.
    """

    name = "environment"

    def __init__(
        self,
        *,
        cwd: str | None = None,
        shell: str | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC).astimezone(),
    ) -> None:
        for field, value in (("cwd", cwd), ("shell", shell)):
            if value is not None and not isinstance(value, str):
                raise InvalidArgument(f"{field}: {shown(value)} is not a text")
        if not callable(clock):
            raise InvalidArgument(f"clock: {shown(clock)} is not a function")
        self._cwd = cwd
        self._shell = shell
        self._clock = clock

    async def read(self) -> BlockText:
        """Return the block. Raises `InvalidArgument` for a clock that names no time zone. O(1)."""
        now = self._clock()
        if not isinstance(now, datetime) or now.utcoffset() is None:
            raise InvalidArgument(f"clock: {shown(now)} is not a datetime with a time zone")
        shell = self._shell or os.environ.get("SHELL") or os.environ.get("COMSPEC") or "unknown"
        facts = [
            ("OS", f"{platform.system()} {platform.release()}".strip() or "unknown"),
            ("Architecture", platform.machine() or "unknown"),
            ("Shell", shell),
            ("Working directory", os.getcwd() if self._cwd is None else self._cwd),
        ]
        lines = [
            "## Runtime Environment",
            *(f"- {label}: {visible_line(value, _MOST_CHARS)}" for label, value in facts),
        ]
        digits = now.strftime("%z")
        day, offset, zone = now.date().isoformat(), f"{digits[:3]}:{digits[3:5]}", visible_line(_zone(now), _MOST_CHARS)
        text = "\n".join([*lines, f"- Date/time: {day} {now:%H:%M} {offset} ({zone})"])
        return BlockText(text, "\n".join([*lines, f"{day} {offset} {zone}"]))


def _zone(now: datetime) -> str:
    key = getattr(now.tzinfo, "key", None)
    return key if isinstance(key, str) else now.tzname() or "no name"


# ---------------------------------------------------------------------------------------------------------------------
# One HTTP exchange of JSON with a server that is not trusted: bounded in time and bytes, and never led elsewhere.


class Address(NamedTuple):
    """An address that was checked. Its ``repr`` has no path, which may be a secret."""

    is_secure: bool
    host: str
    port: int
    path: str

    def __repr__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_secure else 'http'}://{host}:{self.port}"


def checked_address(url: str, name_of_value: str) -> Address:
    """Return the parts of a URL of HTTP(S). Raises `InvalidArgument`, which does not show it, for anything else."""
    if not isinstance(url, str):
        raise InvalidArgument(f"{name_of_value}: should be a URL, not a {type(url).__name__}")
    # Others would be quoted by somebody, or end up in the head of the request.
    if not url.isascii() or any(char <= " " or char == "\x7f" for char in url):
        raise InvalidArgument(f"{name_of_value}: the URL has characters that have to be encoded in it")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InvalidArgument(f"{name_of_value}: is not a URL") from None
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidArgument(f"{name_of_value}: the URL should begin with http:// or https:// and name a host")
    if parts.username is not None or parts.password is not None:
        raise InvalidArgument(f"{name_of_value}: the URL has a user or a password in it; give token= instead")
    is_secure = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(is_secure, host, port if port is not None else 443 if is_secure else 80, path)


class Exchange:
    """A POST of JSON. `run` is for a thread of its own, and `end`, from any other, has it end soon."""

    def __init__(self, address: Address, body: bytes, token: str | None, timeout: float, most_bytes: int) -> None:
        self._address = address
        self._body = body
        self._token = token
        self._timeout = timeout
        self._most_bytes = most_bytes
        self._socket: socket.socket | None = None
        self._is_to_end = False

    def run(self) -> bytes:
        """Return the body of the answer. Raises `MemoryUnavailable`, in which nothing is said by the server."""
        _, host, port, _ = self._address
        connection = (
            HTTPSConnection(host, port, timeout=self._timeout, context=ssl.create_default_context())
            if self._address.is_secure
            else HTTPConnection(host, port, timeout=self._timeout)
        )
        try:
            return self._ask(connection)
        except MemoryUnavailable:
            raise
        except TimeoutError:
            raise MemoryUnavailable(f"{self._address} gave no answer within {self._timeout:g} seconds") from None
        except (OSError, HTTPException, ValueError) as error:
            # The text of such an error may quote the answer of the server, and the answer the request.
            raise MemoryUnavailable(f"{self._address} cannot be asked: {_reason(error)}") from None
        finally:
            connection.close()
            self._close()

    def end(self) -> None:
        """End all waiting for the server."""
        self._is_to_end = True
        self._close()

    def _ask(self, connection: HTTPConnection) -> bytes:
        connection.connect()
        self._socket = connection.sock
        if self._is_to_end:
            raise MemoryUnavailable(f"{self._address} took too long")
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Connection": "close"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        connection.request("POST", self._address.path, self._body, headers)
        with connection.getresponse() as response:
            return self._answer(response)

    def _answer(self, response: HTTPResponse) -> bytes:
        if 300 <= response.status < 400:
            raise MemoryUnavailable(f"{self._address} answered {response.status}; it is not followed elsewhere")
        if not 200 <= response.status < 300:
            raise MemoryUnavailable(f"{self._address} answered {response.status}")
        body = response.read(self._most_bytes + 1)
        if len(body) > self._most_bytes:
            raise MemoryUnavailable(f"{self._address} answered more than {self._most_bytes:,} bytes")
        if response.length:
            raise MemoryUnavailable(f"{self._address} broke off its answer")
        return body

    def _close(self) -> None:
        if self._socket is not None:
            with suppress(OSError, ValueError):
                self._socket.shutdown(socket.SHUT_RDWR)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "its certificate is not trusted"
    if isinstance(error, socket.gaierror):
        return "there is no host of that name"
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number is not None and number > 0 else type(error).__name__


# ---------------------------------------------------------------------------------------------------------------------
# Which files a store has for agents to read: an index alone, since most of them are not needed.

MOST_FILES = 200
_NAME_CHARS = 200
_HINT_CHARS = 1_000


class ListsDocuments(Protocol):
    """The backend of a store, as far as it lists documents."""

    async def list_documents(
        self, where: DocumentFilter, *, after: DocumentName | None, limit: int
    ) -> Sequence[DocumentInfo]: ...


class StoreOfFiles(Protocol):
    """A store, blocking or not."""

    @property
    def backend(self) -> ListsDocuments: ...
    @property
    def scope(self) -> str | None: ...


class FileIndex:
    """The block ``files``: name, type and size of the files of a store, the first 200 in the order of their names.

    Those of a ``project``, the folder that they were added for, and of none (""). ``hint`` is a line that says how to
    read one, such as the name of the tool. Nothing where there are none.
    """

    name = "files"

    def __init__(self, store: StoreOfFiles, *, scope: str | None = None, project: str = "", hint: str = "") -> None:
        if not callable(getattr(getattr(store, "backend", None), "list_documents", None)):
            raise InvalidArgument(f"store: {shown(store)} is not a store")
        place = scope_meant(store.scope, scope) or ""
        check_document_name(DocumentName(place, "file", "", project, "name"))
        if not isinstance(hint, str):
            raise InvalidArgument(f"hint: {shown(hint)} is not a text")
        self._backend = store.backend
        self._scope = place
        self._projects = ("", project) if project else ("",)
        self._hint = visible_line(hint, _HINT_CHARS)

    async def read(self) -> BlockText | None:
        """Return the index, None if there are no files. O(files that are shown)."""
        documents: list[DocumentInfo] = []
        for project in self._projects:
            where = DocumentFilter("file", self._scope, "", project)
            documents += await self._backend.list_documents(where, after=None, limit=MOST_FILES + 1)
        if not documents:
            return None
        documents.sort(key=lambda file: (file.name, file.project))
        lines = ["## Stored files", "", *([self._hint] if self._hint else [])]
        lines += [f"- {_line(file)}" for file in documents[:MOST_FILES]]
        if len(documents) > MOST_FILES:
            lines.append(f"- ... and more than these {MOST_FILES}")
        return BlockText("\n".join(lines))


def _line(file: DocumentInfo) -> str:
    return f"{visible_line(file.name, _NAME_CHARS)} ({visible_line(file.type, _NAME_CHARS)}, {file.chars:,} characters)"


# ---------------------------------------------------------------------------------------------------------------------
# The files that git does not track in a folder.

MOST_LINES = 100
_LINE_CHARS = 500
_READ_BYTES = 64 * 1024


class Gitignore:
    """The block ``gitignore``: the first 100 lines of the `.gitignore` of a folder; nothing where there is none.

    ``folder`` is by default that of the process each time it is read. A line is cut after 500 characters, and no more
    than 64 KiB are read.
    """

    name = "gitignore"

    def __init__(self, folder: str | PathLike[str] | None = None) -> None:
        if folder is not None and not isinstance(folder, (str, PathLike)):
            raise InvalidArgument(f"folder: {shown(folder)} is not the path of a folder")
        self._folder = None if folder is None else fspath(folder)

    async def read(self) -> BlockText | None:
        """Return the block, None where there is no such file. Raises `UnreadableFile` if it cannot be read."""
        from anyio.to_thread import run_sync  # noqa: PLC0415 - anyio takes 30 ms to load

        return await run_sync(partial(_read, Path(self._folder or os.curdir) / ".gitignore"), abandon_on_cancel=True)


def _read(path: Path) -> BlockText | None:
    try:
        data = read_beginning(path, _READ_BYTES + 1)
        if data is None:
            raise ValueError("it is not a file")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UnreadableFile(f"{shown(str(path))} cannot be read: {reason}") from error
    is_whole = len(data) <= _READ_BYTES
    lines = data[:_READ_BYTES].decode(errors="replace").removeprefix("\ufeff").split("\n")
    lines = [line.removesuffix("\r") for line in lines]
    if not is_whole and len(lines) <= MOST_LINES:
        # The last line that was read may be half a one.
        lines = lines[:-1]
    elif lines[-1] == "":
        lines.pop()
    shown_lines = [visible_line(line, _LINE_CHARS) for line in lines[:MOST_LINES]]
    if not any(line.strip() for line in shown_lines):
        return None
    rest = f" (its first {MOST_LINES} lines)" if len(lines) > MOST_LINES else "" if is_whole else " (its beginning)"
    return BlockText("\n".join([f"## .gitignore{rest}", "", *shown_lines]))


# ---------------------------------------------------------------------------------------------------------------------
# The text of memories for a model: a line for each, under a header, as many as there is room for.

MEMORY_HEADER = "MEMORY — facts recalled from prior sessions:"
MOST_MEMORY_CHARS = 8_000
_MEMORY_NAME_CHARS = 500


class Remembered(Protocol):
    """A fact that is remembered under a name, such as `flue_py.Document`."""

    @property
    def name(self) -> str:
        """The name."""

    @property
    def type(self) -> str:
        """The topic, in one word."""

    @property
    def body(self) -> str:
        """The text."""


Memory = TypeVar("Memory", bound=Remembered)


class MemoryText(Frozen, Generic[Memory]):
    """The text of memories, "" if there are none, and those that it has no room for."""

    text: str
    told: tuple[Memory, ...] = ()
    dropped: tuple[Memory, ...] = ()


def memory_text(memories: Iterable[Memory], most: int = MOST_MEMORY_CHARS) -> MemoryText[Memory]:
    """Return the text of memories for a model: a header, then ``[type] name: body`` for each, by type, then by name.

    It has at most ``most`` characters. Of a memory that does not fit behind the ones before it, the type and
    name stay where there is room for them, and the next one is tried; the header stays. Further lines of a body are
    indented, so that none of them passes for a memory of its own, and control characters are replaced. Raises
    `InvalidArgument` for a limit that has no room for the header. Pure. O(size of the memories).
    """
    if isinstance(most, bool) or not isinstance(most, int) or most < len(MEMORY_HEADER):
        raise InvalidArgument(f"most: {shown(most)} is no number of characters from {len(MEMORY_HEADER)} on")
    lines = [MEMORY_HEADER]
    left = most - len(MEMORY_HEADER)
    memories_shown: list[Memory] = []
    dropped: list[Memory] = []
    for memory in sorted(memories, key=lambda limit_each: (limit_each.type, limit_each.name)):
        line = _memory_line(memory)
        fits = 1 + len(line) <= left
        (memories_shown if fits else dropped).append(memory)
        if fits or 1 + len(line := _head(memory)) <= left:
            left -= 1 + len(line)
            lines.append(line)
    return MemoryText("\n".join(lines) if memories_shown or dropped else "", tuple(memories_shown), tuple(dropped))


def _memory_line(memory: Remembered) -> str:
    body = "\n  ".join(visible(line) for line in memory.body.strip().splitlines())
    return f"{_head(memory)}: {body}"


def _head(memory: Remembered) -> str:
    return f"[{visible_line(memory.type, _MEMORY_NAME_CHARS)}] {visible_line(memory.name, _MEMORY_NAME_CHARS)}"


# ---------------------------------------------------------------------------------------------------------------------
# The memories of a store, as a block that is read anew before each turn.


class StoreOfMemories(Protocol):
    """A store, blocking or not."""

    @property
    def memories(self) -> Callable[..., Awaitable[Iterable[Remembered]] | Iterable[Remembered]]: ...


class LocalMemory:
    """The block ``memory`` of a store: the result of `Store.memories` with the same arguments, read anew each time.

    As `memory_text` writes it, in at most ``most`` characters; ``dropped`` has the names of those for which there was
    no room when it was last read.
    """

    name = "memory"

    def __init__(
        self,
        store: StoreOfMemories,
        *,
        space: str = "repl",
        project: str = "",
        scope: str | None = None,
        initialized: bool = False,
        most: int = MOST_MEMORY_CHARS,
    ) -> None:
        if not callable(getattr(store, "memories", None)):
            raise InvalidArgument(f"store: {shown(store)} is not a store")
        memory_text([], most)
        self.dropped: tuple[str, ...] = ()
        self._ask = partial(store.memories, space=space, project=project, scope=scope, initialized=initialized)
        self._waits = iscoroutinefunction(store.memories)
        self._most = most

    async def read(self) -> BlockText | None:
        """Return the block, None if nothing is remembered. Raises as `Store.memories`. O(size of the memories)."""
        if self._waits:
            remembered = await cast("Awaitable[Iterable[Remembered]]", self._ask())
        else:
            from anyio.to_thread import run_sync  # noqa: PLC0415 - anyio takes 30 ms to load

            # A store of flue_py.sync may have its event loop on this very thread, and would wait for itself.
            remembered = cast("Iterable[Remembered]", await run_sync(self._ask))
        text = memory_text(remembered, self._most)
        self.dropped = tuple(memory.name for memory in text.dropped)
        return BlockText(text.text) if text.text else None


# ---------------------------------------------------------------------------------------------------------------------
# Reading blocks, and giving them the messages of a turn: none of them breaks a turn, however it fails.

MOST_CHARS = 100_000
"""How long the text of a block may be: a longer one belongs into a file that an agent reads."""

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,49}")
_REASON_CHARS = 300

Said: TypeAlias = BlockText | None | BlockFailure
"""The text of a block, None for none, or why it is unknown."""


def checked_blocks(blocks: Iterable[Block]) -> list[Block]:
    """Return blocks as a list. Raises `InvalidArgument` for any other value, and for two of the same name."""
    if isinstance(blocks, (str, bytes)) or not isinstance(blocks, Iterable):
        raise InvalidArgument(f"blocks: {shown(blocks)} is not a list of blocks")
    listed = list(blocks)
    names: set[str] = set()
    for block in listed:
        name = getattr(block, "name", None)
        if not isinstance(name, str) or not callable(getattr(block, "read", None)) or isinstance(block, type):
            raise InvalidArgument(f"blocks: {shown(block)} is not a block; give it a name and read()")
        if not _NAME.fullmatch(name):
            raise InvalidArgument(
                f"blocks: {shown(name)} is not the name of a block; use small letters, digits, - and _, at most 50"
            )
        if name in names:
            raise InvalidArgument(f"blocks: there are two of the name {name!r}; give one of them another name")
        names.add(name)
    return listed


async def read_blocks(blocks: Sequence[Block], patience: float) -> list[Said]:
    """Return the text of each block, in their order. They are asked at the same time, and each has so many seconds."""
    readers = [(block.name, block.read) for block in blocks]
    texts = await _ask_together(readers, "read", patience)
    return [_checked(name, texts[number]) for number, (name, _) in enumerate(readers)]


async def save_turn(blocks: Sequence[Block], messages: Sequence[JsonObject], patience: float) -> list[BlockFailure]:
    """Give the messages of a turn to the blocks that save them, and return those that failed; as `read_blocks`."""

    def saving(block: Saving) -> Callable[[], object]:
        return lambda: block.save([dict(message) for message in messages])

    savers = [(block.name, saving(block)) for block in blocks if isinstance(block, Saving)]
    outcomes = await _ask_together(savers, "save", patience)
    return [outcome for outcome in outcomes.values() if isinstance(outcome, BlockFailure)]


async def _ask_together(
    functions: Sequence[tuple[str, Callable[[], object]]], moment: BlockMoment, patience: float
) -> dict[int, object]:
    """Return the results of the functions of blocks, or their failures, by place, in the order in which they ended."""
    # It takes 30 ms to load, and most programs have no blocks.
    from anyio import create_task_group, move_on_after  # noqa: PLC0415

    results: dict[int, object] = {}

    async def ask(number: int, name: str, function: Callable[[], object]) -> None:
        result: object = BlockFailure(name, f"gave no answer within {patience:g} seconds", moment)
        try:
            with move_on_after(patience):
                answer = function()
                result = await answer if isawaitable(answer) else answer
        except Exception as error:  # noqa: BLE001 - whatever a block does, the turn goes on
            text, kind = printed_error(error), type(error).__name__
            result = BlockFailure(name, visible_line(f"{kind}: {text}" if text else kind, _REASON_CHARS), moment)
        results[number] = result

    async with create_task_group() as group:
        for number, (name, function) in enumerate(functions):
            group.start_soon(ask, number, name, function)
    return results


def _checked(name: str, text: object) -> Said:
    if text is None or isinstance(text, BlockFailure):
        return text
    if not (isinstance(text, BlockText) and isinstance(text.text, str) and isinstance(text.same, (str, type(None)))):
        return BlockFailure(name, f"read() returned {visible_line(shown(text), _REASON_CHARS)}, and not a BlockText")
    if len(text.text) > MOST_CHARS:
        return BlockFailure(name, f"its text has {len(text.text):,} characters; at most {MOST_CHARS:,} are told")
    return text if text.text.strip() else None


def printed_error(error: Exception) -> str:
    """Return the text of an error; "" for one that cannot be printed, which is one all the same."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - it may raise anything
        return ""


# ---------------------------------------------------------------------------------------------------------------------
# Blocks as entries: how one is stored, which ones a context shows, and which are to be told again.

TYPE_PREFIX = "block:"
_TYPE, _DETAILS, _SAME, _WITHDRAWN = "customType", "details", "same", "withdrawn"


class ShownBlock(Frozen):
    """A block as the payload of its entry has it: its name, and the digest that decides whether it changed."""

    name: str
    same: str


class ToTell(Frozen):
    """The changes of blocks: entries to append, each with its name and whether it withdraws the block."""

    entries: tuple[tuple[str, NewEntry, bool], ...]
    unchanged: tuple[str, ...]
    failures: tuple[BlockFailure, ...]


def shown_block(data: JsonValue) -> ShownBlock | None:
    """Return the block that the payload of a ``custom_message`` tells; None if it tells none."""
    kind = data.get(_TYPE) if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(kind, str) or not kind.startswith(TYPE_PREFIX):
        return None
    details = data.get(_DETAILS)
    same = details.get(_SAME) if isinstance(details, dict) else None
    withdrawn = isinstance(details, dict) and details.get(_WITHDRAWN) is True
    # Of one that an application wrote itself nothing is known: it is told anew.
    return ShownBlock(kind.removeprefix(TYPE_PREFIX), "" if withdrawn else same if isinstance(same, str) else "?")


def shown_blocks(items: Iterable[ContextEntry]) -> dict[str, str]:
    """Return the digest of the last text of each block, by its name, as far as a context still shows it whole."""
    shown: dict[str, str] = {}
    for item in items:
        if item.kind == CUSTOM_MESSAGE and not item.excluded_parts:
            block = shown_block(item.entry.data)
            if block is not None:
                shown[block.name] = block.same
    return shown


def to_tell(blocks: Sequence[Block], texts: Sequence[Said], shown: Mapping[str, str]) -> ToTell:
    """Return the entries to append so that a context which shows these blocks has their texts now."""
    entries: list[tuple[str, NewEntry, bool]] = []
    unchanged: list[str] = []
    failures: list[BlockFailure] = []
    for name, now in zip([block.name for block in blocks], texts, strict=True):
        if isinstance(now, BlockFailure):
            failures.append(now)
        elif now is None and not shown.get(name):
            unchanged.append(name)
        elif now is None:
            note = f"[The block {name!r} above no longer holds: there is nothing of it now.]"
            entries.append((name, _entry(name, note, {_WITHDRAWN: True}), True))
        elif (same := _digest(now)) == shown.get(name):
            unchanged.append(name)
        else:
            entries.append((name, _entry(name, now.text, {_SAME: same}), False))
    return ToTell(tuple(entries), tuple(unchanged), tuple(failures))


def _digest(text: BlockText) -> str:
    same = text.text if text.same is None else text.same
    return payload_digest(same.encode(errors="surrogatepass")).hex()


def _entry(name: str, text: str, details: JsonObject) -> NewEntry:
    return NewEntry.custom(CUSTOM_MESSAGE, {_TYPE: f"{TYPE_PREFIX}{name}", "content": text, _DETAILS: details})


# ---------------------------------------------------------------------------------------------------------------------
# Memories of a server, which is asked before each turn, and given the messages after it.

_MOST_BYTES = 64 * 1024
_SAVED = ("user", "assistant")


class WebhookMemory:
    """The block ``memory`` of a server: it answers with memories, and is given the messages of turns.

    ``url`` is asked before a turn, by a POST of ``{"agent": ...}``, and answers ``{"block": ...}``, a text, or null for
    nothing. ``save_url`` is given ``{"agent": ..., "history": [{"role": ..., "content": ...}, ...]}`` after it, with
    the texts of the user and the model in the turn. Either may be None.

    ``token`` returns the token for the server, or ``token_variable`` is the variable of the environment that
    has it; it is sent as ``Authorization: Bearer``, read anew each time, and is in no error. An exchange ends after
    ``timeout`` seconds, and an answer has at most ``most_bytes``. Redirects are not followed, and proxies not asked.
    """

    def __init__(
        self,
        url: str | None,
        *,
        save_url: str | None = None,
        agent: str = "",
        token: Callable[[], str | None] | None = None,
        token_variable: str | None = None,
        timeout: float = 10.0,
        most_bytes: int = _MOST_BYTES,
        name: str = "memory",
    ) -> None:
        if url is None and save_url is None:
            raise InvalidArgument("url: there is neither a url nor a save_url")
        for field, text in (("agent", agent), ("name", name), ("token_variable", token_variable)):
            if not isinstance(text, str) and (text is not None or field != "token_variable"):
                raise InvalidArgument(f"{field}: {shown(text)} is not a text")
        if token is not None and (not callable(token) or token_variable is not None):
            raise InvalidArgument("token: should be a function that returns it, and not be there beside token_variable")
        is_number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
        if not is_number or not math.isfinite(timeout) or timeout <= 0:
            raise InvalidArgument(f"timeout: {shown(timeout)} is not a number of seconds above 0")
        if isinstance(most_bytes, bool) or not isinstance(most_bytes, int) or most_bytes < 1:
            raise InvalidArgument(f"most_bytes: {shown(most_bytes)} is not a number of bytes from 1")
        self.name = name
        self._load = None if url is None else checked_address(url, "url")
        self._save = None if save_url is None else checked_address(save_url, "save_url")
        self._agent = agent
        self._token = token
        self._token_variable = token_variable
        self._timeout = timeout
        self._most_bytes = most_bytes

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._load or self._save!r}>"

    async def read(self) -> BlockText | None:
        """Return the memories of the server, None if there are none. Raises `MemoryUnavailable`."""
        if self._load is None:
            return None
        answer = await self._ask(self._load, {"agent": self._agent})
        block = _fields(answer, self._load).get("block") if answer.strip() else None
        if not isinstance(block, (str, type(None))):
            raise MemoryUnavailable(f"{self._load!r} answered a block that is not a text")
        return BlockText(block) if block and block.strip() else None

    async def save(self, messages: Sequence[JsonObject]) -> None:
        """Give the server the messages of a turn. Raises `MemoryUnavailable`."""
        rows: list[JsonValue] = [
            {"role": str(message["role"]), "content": text}
            for message in messages
            if message.get("role") in _SAVED and (text := message_text(message)).strip()
        ]
        if self._save is not None and rows:
            await self._ask(self._save, {"agent": self._agent, "history": rows})

    async def _ask(self, address: Address, body: Mapping[str, JsonValue]) -> bytes:
        from anyio import fail_after, to_thread  # noqa: PLC0415 - it takes 30 ms to load

        exchange = Exchange(address, json.dumps(body).encode(), self._read_token(), self._timeout, self._most_bytes)
        try:
            with fail_after(self._timeout):
                return await to_thread.run_sync(exchange.run, abandon_on_cancel=True)
        except TimeoutError:
            raise MemoryUnavailable(f"{address!r} gave no answer within {self._timeout:g} seconds") from None
        finally:
            # The thread would go on for as long as the server sends a byte now and then.
            exchange.end()

    def _read_token(self) -> str | None:
        if self._token is None and self._token_variable is None:
            return None
        try:
            token = os.environ.get(self._token_variable or "") if self._token is None else self._token()
        except Exception as error:  # noqa: BLE001 - its text may have the token
            raise MemoryUnavailable(f"token: the function that returns it raised {type(error).__name__}") from None
        if token is None and self._token is None:
            raise MemoryUnavailable(f"token: there is no variable {self._token_variable} in the environment")
        if token is not None and not (isinstance(token, str) and token.isascii() and token.isprintable() and token):
            raise MemoryUnavailable("token: it has characters that cannot be sent, or none")
        return token


def _fields(answer: bytes, address: Address) -> JsonObject:
    try:
        parsed = json.loads(answer)
    except (ValueError, RecursionError):
        raise MemoryUnavailable(f"{address!r} answered something that is not JSON") from None
    if not isinstance(parsed, dict):
        raise MemoryUnavailable(f"{address!r} answered something that is not an object")
    return cast("JsonObject", parsed)
