"""Parts that all adapters share: access to a store, keys of sessions, and the context shown."""

from __future__ import annotations

import asyncio
import json
import os
import re
import weakref
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Coroutine, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from hashlib import sha256
from importlib.metadata import distributions
from inspect import iscoroutinefunction
from os import PathLike, fspath
from typing import Generic, Protocol, TypeAlias, TypeVar, cast

from msgspec.structs import replace

import flue_py.sync
from flue_py import errors
from flue_py.core import messages
from flue_py.core.context import ContextEntry, latest_compaction, project
from flue_py.core.entries import Entry
from flue_py.core.json import JsonObject, JsonValue, encode_json
from flue_py.core.kinds import COMPACTION, EXCLUSION, MESSAGE, SHOWN_KINDS
from flue_py.core.sessions import check_new_name
from flue_py.db.backend import Backend
from flue_py.db.ops import append, base, read
from flue_py.db.runner import CommittedBeforeCancellation, is_trio, waiting_here
from flue_py.db.waiting import POLL_SECONDS, ended
from flue_py.errors import InvalidArgument, MissingExtra, SessionNotFound, StoreClosed, WrongEventLoop, shown
from flue_py.sessions.handle import Handle, reach_by
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.sync import OnThisThread, Way, parts_of
from flue_py.system import Lock, RLock, in_full


def without_pydantic_ai(extra: str, needed_for: str, *, oldest: str = "2.66") -> MissingExtra:
    """Return the error for a pydantic-ai that is missing or too old, with the versions that are there."""
    installed = {package.name: package.version for package in distributions()}
    names = [name for name in ("pydantic-ai-slim", "pydantic-ai-harness") if name in installed]
    if not names:
        return MissingExtra(extra, needed_for)
    pair = " with ".join(f"{name} {installed[name]}" for name in names)
    command = " ".join(["pip install", f"'flue-py[{extra}]'", *names[1:]])
    return MissingExtra(
        extra, needed_for, detail=f"{needed_for} needs pydantic-ai-slim {oldest} or newer, not {pair}: {command}"
    )


def storable(value: JsonObject) -> JsonValue:
    """Return JSON as it is stored: as text of JSON in ASCII if a string in it has characters that no store takes."""
    text = json.dumps(value)
    return text if "\\ud" in text or "\\u0000" in text else value


def restored_object(value: JsonValue) -> JsonObject:
    """Return the object that `storable` has made ready for a store. Raises `CorruptStore` if it is no such object."""
    with suppress(ValueError):
        value = json.loads(value) if isinstance(value, str) else value
    if not isinstance(value, dict):
        raise errors.CorruptStore("a field of the adapter for pydantic-ai is not what it writes")
    return value


# Sessions of a store in another event loop

Result = TypeVar("Result")


class Bridge(Protocol):
    """Runs a coroutine function where a store runs, and returns its result or raises its error."""

    async def __call__(self, function: Callable[[], Coroutine[object, object, Result]], /) -> Result: ...


class _BackendElsewhere:
    """A `Backend` whose calls run where another one is."""

    def __init__(self, backend: Backend, bridge: Bridge) -> None:
        self._backend = backend
        self._bridge = bridge
        self.waiting = waiting_here()

    def __getattr__(self, name: str) -> object:
        attribute: object = getattr(self._backend, name)
        if not iscoroutinefunction(attribute):
            return attribute
        there: Callable[..., Coroutine[object, object, object]] = attribute

        async def call(*args: object, **named: object) -> object:
            return await self._bridge(lambda: there(*args, **named))

        return call

    async def notifications(self, session_id: str) -> AsyncGenerator[None, None]:
        """Yield as `Backend.notifications` does. Changes are noticed by polling."""
        from anyio import sleep  # noqa: PLC0415 - it takes 30 ms to load, and most programs watch nothing

        last: int | None = -1
        while True:
            try:
                info = await self._bridge(lambda: self._backend.get_session(session_id))
            except StoreClosed:
                if last == -1:
                    raise
                return
            revision = None if info is None else info.revision
            if revision != last:
                last = revision
                yield
            await sleep(POLL_SECONDS)


# Access to a store: a path, a URL or an open store, from any event loop or thread
#
# Frameworks make their sessions by a plain call, use another event loop for each run, and never say that they are done.
# So a path or a URL is opened when it is first used, shared by all adapters of the process that name it, and closed
# with the last of them. Their calls run on a worker thread; a store in memory answers at once. A store that the caller
# has opened is used as it is, and stays open.

Target: TypeAlias = "str | PathLike[str] | Store | flue_py.sync.Store"
"""The path of an SQLite file, ``":memory:"``, a URL as `flue_py.open` takes it, or a store that is open."""

Handled = TypeVar("Handled", bound=Handle)
Work: TypeAlias = Callable[[Store], Coroutine[object, object, Result]]

_MEMORY = (":memory:", "memory://")

LOADED = (append, base, messages, read)
"""Modules the first write of a store needs. Loaded with an adapter, since a framework goes on while it writes."""


class Access:
    """The store of one adapter object."""

    def __init__(self, target: Target) -> None:
        """Note which store is meant; nothing is opened yet. Raises `InvalidArgument` if it cannot be one. O(1)."""
        self._given: Store | None = None
        self._way: Way | None = None
        self._store: Store | None = None
        self._location = ""
        self._is_here = False
        self._is_closed = False
        self._lock = Lock()
        self._release: Callable[[], object] | None = None
        if isinstance(target, flue_py.sync.Store):
            self._way, self._store = parts_of(target)
        elif isinstance(target, Store):
            self._given = target
            if not target.backend.waiting.needs_loop:
                self._way, self._store = OnThisThread("the store"), target
        elif isinstance(target, (str, PathLike)):
            self._location = _location(fspath(target))
            self._is_here = self._location in _MEMORY
        else:
            raise InvalidArgument(f"target: {shown(target)} is not a path, a URL or an open store")

    async def run(self, work: Work[Result]) -> Result:
        """Call ``work`` with the store and return its result. A cancellation takes effect when it has ended.

        Raises its errors, the errors of `flue_py.open`, and `StoreClosed` after `close`.
        """
        self._require_open()
        if self._given is not None:
            return await work(self._given)
        if self._is_here:
            return self.run_blocking(work)
        return await _on_worker(partial(self.run_blocking, work))

    async def session(self, work: Work[Handled | None]) -> Handled | None:
        """Return the handle on a session that ``work`` returns, to be used where this is called.

        Unless the caller has opened the store for this event loop, the calls of the handle run where `run` runs them.
        Raises as `run`.
        """
        handle = await self.run(work)
        if handle is not None and self._given is None and self._store is not None:
            elsewhere = _BackendElsewhere(self._store.backend, lambda function: self.run(lambda _: function()))
            # It forwards each method of a backend.
            reach_by(handle, cast("Backend", elsewhere))
        return handle

    def run_blocking(self, work: Work[Result]) -> Result:
        """Call ``work`` with the store and return its result; blocks this thread meanwhile.

        Raises as `run`, and `WrongEventLoop` for an open store whose event loop is elsewhere.
        """
        self._require_open()
        if self._way is None or self._store is None:
            self._open()
        assert self._way is not None
        assert self._store is not None
        return self._way.call(partial(work, self._store))

    def close(self) -> None:
        """Let go of the store: it is closed if it was opened here and nobody else uses it. Closing twice is nothing."""
        with self._lock:
            self._is_closed = True
            release, self._release = self._release, None
        if release is not None:
            release()

    async def aclose(self) -> None:
        """Close it as `close` does, without holding up the event loop."""
        if self._release is None or self._is_here:
            self.close()
        else:
            await _on_worker(self.close)

    def _require_open(self) -> None:
        if self._is_closed:
            raise StoreClosed("this has been closed; make another one")

    def _open(self) -> None:
        if self._given is not None:
            raise WrongEventLoop(
                "a blocking call cannot use a store that belongs to an event loop; give the path, or a store that was "
                "opened by flue_py.sync.open or with threads=False"
            )
        with self._lock:
            self._require_open()
            if self._store is None:
                opened = _opened(self._location)
                # Frameworks rarely close a store: it is closed with the adapter's object, or with the process.
                self._release = weakref.finalize(self, _let_go, opened)
                self._way, self._store = opened.parts


class _Opened:
    """A store that is open, and how many use it."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.users = 1
        self.process = os.getpid()
        self.manager: AbstractContextManager[flue_py.sync.Store] = flue_py.sync.open(location)
        self.parts: tuple[Way, Store] = parts_of(self.manager.__enter__())
        self.identity = _identity(location)


_shared: dict[str, _Opened] = {}
_sharing = RLock()


def _forget() -> None:
    """Forget all stores in a child of a fork: it may use none of them, and nobody there would free the lock."""
    global _sharing  # noqa: PLW0603 - a lock cannot be made free otherwise
    _sharing = RLock()
    _shared.clear()


os.register_at_fork(after_in_child=_forget)


def _opened(location: str) -> _Opened:
    """Return the store at a place, which one more uses from now on."""
    if location in _MEMORY:
        return _Opened(location)
    with _sharing:
        shared = _shared.get(location)
        # A file that has been replaced meanwhile is another store; the old one tells its users so.
        if shared is not None and shared.identity == _identity(location):
            shared.users += 1
            return shared
        _shared[location] = opened = _Opened(location)
        return opened


def _let_go(opened: _Opened) -> None:
    if opened.process != os.getpid():
        return
    with _sharing:
        opened.users -= 1
        if opened.users:
            return
        if _shared.get(opened.location) is opened:
            del _shared[opened.location]
    opened.manager.__exit__(None, None, None)


def _location(target: str) -> str:
    """Return the name of a store in this process. It does not depend on the working directory."""
    is_path = target not in _MEMORY and "://" not in target
    return os.path.abspath(in_full(target)) if is_path and target else target


def _identity(location: str) -> tuple[int, int] | None:
    try:
        status = os.stat(location)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


async def _on_worker(function: Callable[[], Result]) -> Result:
    """Call a blocking function on a worker thread and return its result. It is never left running."""
    if is_trio():
        from anyio import to_thread  # noqa: PLC0415 - it takes 30 ms to load

        return await to_thread.run_sync(function)
    running = asyncio.get_running_loop().run_in_executor(None, function)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError as cancelled:
        if running.cancelled():
            raise
        await ended(running)
        raise cancelled from running.exception() or CommittedBeforeCancellation(running.result())


# Sessions of a store, and the cache of an adapter


async def find_session(store: Store, key: str, scope: str | None = None) -> Session | None:
    """Return the session with a key; None if there is none. One read."""
    try:
        return await store.open_session(key, scope=scope)
    except SessionNotFound:
        return None


Value = TypeVar("Value")


class Cache(Generic[Value]):
    """The values that were used last, up to a number of them. Any thread may use it."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = RLock()
        self._epoch = 0

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values

    def get(self, key: Hashable) -> Value | None:
        """Return a value, or None. O(1)."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def get_or_put(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return a value, made if it is not there. O(1)."""
        with self._lock:
            value = self.get(key)
            if value is None:
                value = make()
                self.put(key, value)
            return value

    def put(self, key: Hashable, value: Value) -> None:
        """Remember a value, and forget the one that was not used for the longest time. O(1)."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            if len(self._values) > self._size:
                self._values.popitem(last=False)

    def begin_epoch(self, epoch: int) -> None:
        """Forget what was remembered in another epoch of the store: texts may have been erased since."""
        with self._lock:
            if epoch != self._epoch:
                self._values.clear()
                self._epoch = epoch


# The key of a session: the framework's id, if that can be a key

FRAMEWORK_ID = "frameworkId"
"""The field of a session's metadata that has the id, as JSON text in ASCII, if the key differs from it."""

_MADE = re.compile(r"sha256:[0-9a-f]{64}")


def key_of(id: str) -> str:
    """Return the key of the session with this id: the id itself, or its digest if the id cannot be a key.

    No two ids have one key. Raises `InvalidArgument` if the id is not a string. O(length).
    """
    if not isinstance(id, str):
        raise InvalidArgument(f"id: should be a string, not {shown(id)}")
    return id if _can_be_key(id) else f"sha256:{sha256(id.encode('utf-8', 'surrogatepass')).hexdigest()}"


def metadata_of(id: str) -> JsonObject:
    """Return the metadata from which `id_of` restores the id; empty if the key is the id."""
    return {} if _can_be_key(id) else {FRAMEWORK_ID: json.dumps(id)}


def id_of(key: str, metadata: Mapping[str, JsonValue]) -> str:
    """Return the id of the session with this key and these metadata. O(length)."""
    id_text = metadata.get(FRAMEWORK_ID)
    if isinstance(id_text, str) and _MADE.fullmatch(key):
        try:
            id = json.loads(id_text)
        except ValueError:
            return key
        if isinstance(id, str) and key_of(id) == key:
            return id
    return key


def _can_be_key(id: str) -> bool:
    # An id that looks like a key that is made here gets one, too: else it would be taken for another's.
    if _MADE.fullmatch(id):
        return False
    try:
        check_new_name(id, "id")
    except InvalidArgument:
        return False
    return True


# The context an adapter shows: the items the model is sent at the leaf, as messages
#
# A summary, of a compaction or of a branch, is the message of the user that the model reads; excluded parts are left
# out. So a framework goes on with the context that flue_py itself would send, whoever has changed it.

PROMPT = ":system"
"""The suffix that makes the id of a compaction's system message from the id of the compaction."""


def as_message(item: ContextEntry) -> Entry:
    """Return an item of a context as an entry with its message: the same entry if it is shown unchanged. O(size)."""
    entry = item.entry
    if entry.kind == MESSAGE and not item.excluded_parts:
        return entry
    id = entry.id + PROMPT if item.is_prompt else entry.id
    payload, _ = encode_json(item.data, "message")
    return replace(entry, id=id, kind=MESSAGE, role=item.role, payload=payload, extra=None)


def context(path: Sequence[Entry]) -> list[Entry]:
    """Return the context at the end of a path, from its root, each item as `as_message` has it. O(path)."""
    return [as_message(item) for item in project(path)]


def is_plain(entry: Entry) -> bool:
    """Return whether an entry is shown as it is, or not at all, and others are shown the same with it. O(1)."""
    return entry.kind == MESSAGE or (entry.kind != EXCLUSION and entry.kind not in SHOWN_KINDS)


def shown_groups(
    groups: Sequence[Sequence[Entry]], is_own: Callable[[Entry], bool] = lambda _: False
) -> list[Sequence[Entry]]:
    """Return the groups of entries of a whole path that the model is sent, in its order. O(path).

    A group is the entries of one value of a framework. If it is shown in part, every message left is a group.
    Entries that no context shows keep their place; so do entries of the framework, as ``is_own`` tells.
    """
    path = [entry for group in groups for entry in group if not is_own(entry)]
    if all(map(is_plain, path)):
        return list(groups)
    items = project(path)
    at = {item.entry_id: item for item in items if not item.is_prompt}
    group_of: dict[str, Sequence[Entry]] = {}
    unseen: list[Sequence[Entry]] = []
    for group in groups:
        shown_entries = [entry for entry in group if entry.kind in SHOWN_KINDS and not is_own(entry)]
        if shown_entries and all(entry.id in at and as_message(at[entry.id]) is entry for entry in shown_entries):
            group_of |= {entry.id: group for entry in shown_entries}
        elif not shown_entries and group[-1].kind != EXCLUSION:
            unseen.append(group)
    in_place = [item.entry.depth for item in items if _is_in_place(item)]
    compaction = latest_compaction(path)
    if compaction is not None:
        cut = min([*in_place, compaction.depth])
        unseen = [group for group in unseen if group[-1].depth > cut]
    groups_shown: list[Sequence[Entry]] = []
    for item in items:
        while unseen and _is_in_place(item) and unseen[0][-1].depth < item.entry.depth:
            groups_shown.append(unseen.pop(0))
        # `extra` belongs to a whole group, not to a part of it.
        group = group_of.get(item.entry_id) or [replace(as_message(item), extra=None)]
        if not groups_shown or groups_shown[-1] is not group:
            groups_shown.append(group)
    return groups_shown + unseen


def _is_in_place(item: ContextEntry) -> bool:
    return item.entry.kind != COMPACTION and not item.is_pinned
