"""Threads as sessions: a session for a thread, and a task session of it for each namespace of a subgraph."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from flue_py.adapters.keys import FRAMEWORK_ID, id_of, key_of, metadata_of
from flue_py.adapters.langgraph.numbers import counted
from flue_py.adapters.langgraph.records import FRAMEWORK
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.errors import InvalidArgument, RevisionConflict, SessionExists, SessionNotFound, shown
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from flue_py.adapters.langgraph.places import Place

NAMESPACE = "checkpointNamespace"
OWNER = "owner"
CALLS = "callScope"
"""The field of a session's metadata that tells its calls from those of other threads, if its own id does not."""
UNORDERED = "unordered"
"""The field of a session's metadata that says it has a checkpoint whose id is less than that of an earlier one."""

_PAGE = 500


class ThreadOwned(InvalidArgument):
    """The thread is another writer's: it was begun or claimed by a saver with another ``owner``."""


@dataclass(frozen=True, slots=True)
class Address:
    """A namespace of a thread, and perhaps one checkpoint in it."""

    thread: str
    namespace: str = ""
    checkpoint: str | None = None

    @property
    def key(self) -> str:
        """The key of the session."""
        return key_of(self._name)

    @property
    def _name(self) -> str:
        # A tab parts the two. A thread whose own id has one is named in another way, so that no two share a key.
        if "\t" in self.thread:
            return f"\0{json.dumps([self.thread, self.namespace])}"
        return f"{self.thread}\t{self.namespace}" if self.namespace else self.thread

    def metadata(self) -> JsonObject:
        """Return what the metadata of the session say of it."""
        said: JsonObject = {FRAMEWORK: "langgraph", **metadata_of(self._name)}
        if self.namespace:
            said[NAMESPACE] = self.namespace
        return said

    def at(self, checkpoint_id: str) -> RunnableConfig:
        """Return the configuration that names a checkpoint of this namespace."""
        named = {"thread_id": self.thread, "checkpoint_ns": self.namespace, "checkpoint_id": checkpoint_id}
        return {"configurable": named}


def address_of(config: RunnableConfig) -> Address:
    """Return what a configuration names. Raises `InvalidArgument` without a ``thread_id``."""
    configurable = configurable_of(config)
    thread = configurable.get("thread_id")
    if thread is None:
        raise InvalidArgument("config: names no thread; give it {'configurable': {'thread_id': ...}}")
    checkpoint = configurable.get("checkpoint_id")
    return Address(str(thread), str(configurable.get("checkpoint_ns") or ""), str(checkpoint) if checkpoint else None)


def configurable_of(config: RunnableConfig) -> Mapping[str, object]:
    """Return the fields of a configuration that name a checkpoint."""
    configurable = config.get("configurable") if isinstance(config, Mapping) else None
    if not isinstance(configurable, Mapping):
        raise InvalidArgument(f"config: {shown(config)} has no 'configurable' that names a thread")
    return cast("Mapping[str, object]", configurable)


def address_of_session(key: str, metadata: Mapping[str, JsonValue]) -> Address:
    """Return the address that a session has, from its key and its metadata."""
    name = id_of(key, metadata)
    if name.startswith("\0") and FRAMEWORK_ID in metadata:
        thread, namespace = json.loads(name[1:])
        return Address(str(thread), str(namespace))
    namespace = str(metadata.get(NAMESPACE) or "")
    return Address(name.removesuffix(f"\t{namespace}") if namespace else name, namespace)


async def session_to_read(store: Store, address: Address) -> Session | None:
    """Return the session of a namespace; None if there is none."""
    try:
        return await store.open_session(address.key)
    except SessionNotFound:
        return None


async def session_to_write(store: Store, address: Address, owner: str | None) -> Session:
    """Return the session of a namespace, made if need be, and claimed for the owner. Raises `ThreadOwned`."""
    session = await session_to_read(store, address) or await _made(store, address, owner)
    while True:
        metadata = session.metadata
        found = metadata.get(OWNER)
        if found is not None and found != owner:
            raise ThreadOwned(
                f"thread {address.thread!r} is owned by {found!r}, and this saver writes as {owner!r}; wait until that "
                "writer releases it, or take it with FlueSaver.release"
            )
        if metadata.get(FRAMEWORK) is not None and found == owner:
            return session
        # A session that was begun by hand, or forked, becomes a thread with the first checkpoint put into it.
        claim = address.metadata() | ({} if owner is None else {OWNER: owner})
        if metadata.get(FRAMEWORK) is None and session.leaf_id is not None:
            claim |= (await counted(session)).to_metadata()
        try:
            await session.set_metadata(claim, merge=True, expected_revision=session.revision)
        except RevisionConflict:
            await session.refresh()
        else:
            return session


async def _made(store: Store, address: Address, owner: str | None) -> Session:
    metadata = address.metadata() | ({} if owner is None else {OWNER: owner})
    if not address.namespace:
        return await store.open_session(address.key, mode="get_or_create", metadata=metadata)
    thread = await session_to_write(store, Address(address.thread), owner)
    metadata[CALLS] = call_scope(thread)
    try:
        task = await thread.create_task(
            task_id=address.namespace, key=address.key, title=address.namespace, metadata=metadata
        )
    except SessionExists:
        # Another task of the same subgraph has made it meanwhile.
        return await store.open_session(address.key)
    await task.refresh()
    return task


async def sessions_of_thread(store: Store, thread: str) -> list[tuple[Address, Session]]:
    """Return the sessions of a thread, that of the graph itself first; none if it has no session. O(namespaces)."""
    main = await session_to_read(store, Address(thread))
    if main is None:
        return []
    found = [(Address(thread), main)]
    for link in await main.task_links():
        task = await store.get_session(link.child_id)
        if task is not None and task.metadata.get(NAMESPACE) is not None:
            found.append((Address(thread, str(task.metadata[NAMESPACE])), task))
    return found


async def all_sessions(store: Store) -> AsyncIterator[tuple[Address, Session]]:
    """Yield the sessions of all threads, oldest first. O(sessions of the store)."""
    cursor: str | None = None
    while True:
        page = await store.list_sessions(
            metadata={FRAMEWORK: "langgraph"},
            scope=store.scope or "",
            order_by="created",
            descending=False,
            limit=_PAGE,
            cursor=cursor,
        )
        for info in page.sessions:
            session = await store.get_session(info.id)
            if session is not None and info.key is not None:
                yield address_of_session(info.key, info.metadata), session
        cursor = page.next_cursor
        if cursor is None:
            return


async def release(store: Store, *, thread: str) -> None:
    """Take the name of its owner from a thread and its namespaces."""
    for _, session in await sessions_of_thread(store, thread):
        if session.metadata.get(OWNER) is not None:
            await session.set_metadata({OWNER: None}, merge=True)


def call_scope(session: Session | Place) -> str:
    """Return what the calls of a thread are told by, in whichever of its namespaces they were made."""
    scope = session.metadata.get(CALLS)
    return scope if isinstance(scope, str) else session.id
