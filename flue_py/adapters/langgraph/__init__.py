"""A LangGraph checkpointer that keeps its threads in a store of ours (`pip install 'flue-py[langgraph]'`)."""

from __future__ import annotations

from flue_py.errors import MissingExtra

try:
    import langgraph.checkpoint.base  # noqa: F401 - only to say which extra is missing
except ImportError as error:
    raise MissingExtra("langgraph", "flue_py.adapters.langgraph") from error

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import BaseCheckpointSaver, get_checkpoint_metadata

from flue_py.adapters.common import Access, Target
from flue_py.adapters.langgraph.entries import (
    ThreadOwned,
    Values,
    address_of,
    configurable_of,
    release,
    session_to_read,
)
from flue_py.adapters.langgraph.saver import (
    Checkpoints,
    Listing,
    Put,
    copy_thread,
    delete_runs,
    delete_thread,
    delta_history,
    place_of,
    prune,
    tasks_of,
    tuples_of,
)
from flue_py.errors import InvalidArgument, shown
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from types import TracebackType

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        DeltaChannelHistory,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol

__all__ = ["FlueSaver", "ThreadOwned"]


class FlueSaver(BaseCheckpointSaver[str]):
    """A LangGraph checkpointer on a store of ours: for `invoke` and `ainvoke`, in any event loop and thread.

    A thread is the session whose key is its id; a namespace of a subgraph is a task session of that. The newest
    checkpoint of a thread is the one at the session's leaf. Values are stored once for each version, and the messages
    of the channel ``messages`` once, as messages of ours.

    ``target`` is a path, a URL or an open store. ``serde`` is the framework's serializer, by default its own, with
    which nothing is read that would call anything but a class of values (`CorruptStore`). With
    ``owner``, a thread belongs to the first writer that puts a checkpoint into it: every other one gets `ThreadOwned`.
    """

    def __init__(self, target: Target, *, serde: SerializerProtocol | None = None, owner: str | None = None) -> None:
        """Note which store is meant; it is opened when it is first used. Raises `InvalidArgument`. O(1)."""
        super().__init__(serde=serde)
        if owner is not None and (not isinstance(owner, str) or not owner):
            raise InvalidArgument(f"owner: should be the name of a writer, not {shown(owner)}")
        self._access = Access(target)
        self._checkpoints = Checkpoints()
        self._owner = owner

    @classmethod
    def from_conn_string(
        cls, conn_string: Target, *, serde: SerializerProtocol | None = None, owner: str | None = None
    ) -> FlueSaver:
        """Return a saver, for ``with``, for ``async with`` or for neither. Raises `InvalidArgument`. O(1)."""
        return cls(conn_string, serde=serde, owner=owner)

    def __enter__(self) -> FlueSaver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> FlueSaver:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def close(self) -> None:
        """Let go of the store, which is closed with its last user. A store that was given open stays open."""
        self._access.close()

    async def aclose(self) -> None:
        """Do what `close` does."""
        await self._access.aclose()

    def setup(self) -> None:
        """Do nothing: the store is made when it is first used. For programs that call it."""

    async def asetup(self) -> None:
        """Do nothing, as `setup`."""

    # reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint with the writes at it; the newest of its namespace if none is named; None without one.

        Raises `InvalidArgument` for a configuration without a thread. O(its values), three reads.
        """
        return self._access.run_blocking(self._got(config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return what `get_tuple` does."""
        return await self._access.run(self._got(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the framework's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, newest first: of a thread or a namespace of it, of all threads where none is named.

        ``filter`` names fields of their metadata and what these are, ``before`` a checkpoint that they are older than.
        Read in pages: O(checkpoints that are yielded), and O(checkpoints) with a filter.
        """
        listing = self._listing(config, filter, before, limit)
        while page := self._access.run_blocking(listing.next_page):
            yield from page

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the framework's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield what `list` does."""
        listing = self._listing(config, filter, before, limit)
        while page := await self._access.run(listing.next_page):
            for found in page:
                yield found

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return, for each channel, the writes on the way to a checkpoint, and the last value stored before them.

        O(checkpoints back to that value).
        """
        return self._access.run_blocking(self._history(config, channels))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what `get_delta_channel_history` does."""
        return await self._access.run(self._history(config, channels))

    # writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint below the one that the configuration names, and return where it is.

        One transaction. Raises `ThreadOwned`, and what the serializer raises. O(what is new in it).
        """
        self._access.run_blocking(self._put(config, checkpoint, metadata, new_versions))
        return address_of(config).at(checkpoint["id"])

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Do what `put` does."""
        await self._access.run(self._put(config, checkpoint, metadata, new_versions))
        return address_of(config).at(checkpoint["id"])

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task has written at the checkpoint that the configuration names.

        What it wrote there before stays, errors and interrupts apart. One transaction. Raises as `put`. O(size).
        """
        if writes:
            self._access.run_blocking(self._put_writes(config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Do what `put_writes` does."""
        if writes:
            await self._access.run(self._put_writes(config, writes, task_id, task_path))

    def get_next_version(self, current: str | int | float | None, channel: None = None) -> str:  # type: ignore[override]
        """Return the version of a channel that follows another, in the form that the framework's savers have. O(1)."""
        number = 0 if current is None else current if isinstance(current, int) else int(str(current).partition(".")[0])
        return f"{number + 1:032}"

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with all namespaces; what it cost stays in the ledger, and copies of it stay whole."""
        self._access.run_blocking(partial(delete_thread, thread=str(thread_id)))

    async def adelete_thread(self, thread_id: str) -> None:
        """Do what `delete_thread` does."""
        await self._access.run(partial(delete_thread, thread=str(thread_id)))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs, with the writes at them, in whichever thread. O(checkpoints of the store)."""
        self._access.run_blocking(self._deleted_runs(run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Do what `delete_for_runs` does."""
        await self._access.run(self._deleted_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread by forking it: nothing on the way to its newest checkpoint is stored again.

        Raises `SessionNotFound` without a source, `InvalidArgument` if the target is there. O(branches).
        """
        self._access.run_blocking(self._copied(source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Do what `copy_thread` does."""
        await self._access.run(self._copied(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all but the newest checkpoint of each namespace, or with ``strategy="delete"`` the threads.

        What the newest needs to make the value of a delta channel stays. Raises `InvalidArgument`. O(what stays).
        """
        self._access.run_blocking(self._pruned(thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Do what `prune` does."""
        await self._access.run(self._pruned(thread_ids, strategy))

    def import_from(self, source: BaseCheckpointSaver[Any]) -> int:
        """Put every checkpoint of another checkpointer here, oldest first, and return how many were new.

        Their writes come along, in their order. What is here already stays as it is. O(checkpoints).
        """
        count = 0
        for found in sorted(source.list(None), key=lambda each: each.checkpoint["id"]):
            if self.get_tuple(found.config) is None:
                parent = None if found.parent_config is None else self.get_tuple(found.parent_config)
                below, new_versions = place_of(found, parent)
                self.put(below, found.checkpoint, found.metadata, new_versions)
                for task_id, task_path, writes in tasks_of(found):
                    self.put_writes(found.config, writes, task_id, task_path)
                count += 1
        return count

    async def aimport_from(self, source: BaseCheckpointSaver[Any]) -> int:
        """Do what `import_from` does, with the asynchronous calls of both."""
        count = 0
        for found in sorted([each async for each in source.alist(None)], key=lambda each: each.checkpoint["id"]):
            if await self.aget_tuple(found.config) is None:
                parent = None if found.parent_config is None else await self.aget_tuple(found.parent_config)
                below, new_versions = place_of(found, parent)
                await self.aput(below, found.checkpoint, found.metadata, new_versions)
                for task_id, task_path, writes in tasks_of(found):
                    await self.aput_writes(found.config, writes, task_id, task_path)
                count += 1
        return count

    def release(self, thread_id: str) -> None:
        """Let the next writer have a thread, whoever owns it (see ``owner``). A thread that is not there is none."""
        self._access.run_blocking(partial(release, thread=str(thread_id)))

    async def arelease(self, thread_id: str) -> None:
        """Do what `release` does."""
        await self._access.run(partial(release, thread=str(thread_id)))

    # what both kinds of calls do

    @property
    def _values(self) -> Values:
        return Values(self.serde, is_default=self.serde is BaseCheckpointSaver.serde)

    def _got(self, config: RunnableConfig) -> Callable[[Store], Coroutine[object, object, CheckpointTuple | None]]:
        address = address_of(config)

        async def got(store: Store) -> CheckpointTuple | None:
            session = await session_to_read(store, address)
            if session is None:
                return None
            id = address.checkpoint
            record = None if id is None else await self._checkpoints.find(session, id)
            if record is None:
                record = await self._checkpoints.newest(session, self._values)
            if record is None or id not in (None, record.id):
                return None
            (found,) = await tuples_of(session, address, [record], self._values, self._checkpoints.lines)
            return found._replace(config=config) if id is not None else found

        return got

    def _listing(
        self,
        config: RunnableConfig | None,
        filter: dict[str, Any] | None,  # noqa: A002 - the framework's name
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Listing:
        namespace = None if config is None else configurable_of(config).get("checkpoint_ns")
        return Listing(
            self._checkpoints,
            self._values,
            None if config is None else address_of(config),
            has_namespace=namespace is not None,
            filter=filter or {},
            before=None if before is None else str(configurable_of(before).get("checkpoint_id") or "") or None,
            limit=limit,
        )

    def _history(
        self, config: RunnableConfig, channels: Sequence[str]
    ) -> Callable[[Store], Coroutine[object, object, Mapping[str, DeltaChannelHistory]]]:
        return partial(
            delta_history,
            checkpoints=self._checkpoints,
            values=self._values,
            address=address_of(config),
            channels=tuple(channels),
        )

    def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Callable[[Store], Coroutine[object, object, None]]:
        address = address_of(config)
        put = Put(checkpoint, get_checkpoint_metadata(config, metadata), address.checkpoint, new_versions)
        return partial(self._checkpoints.put, address=address, put=put, values=self._values, owner=self._owner)

    def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> Callable[[Store], Coroutine[object, object, None]]:
        address = address_of(config)
        if address.checkpoint is None:
            raise InvalidArgument("config: names no checkpoint; writes belong to one ('checkpoint_id')")
        return partial(
            self._checkpoints.put_writes,
            address=address,
            writes=list(writes),
            task=(task_id, task_path),
            values=self._values,
            owner=self._owner,
        )

    def _deleted_runs(self, run_ids: Sequence[str]) -> Callable[[Store], Coroutine[object, object, None]]:
        return partial(delete_runs, runs=frozenset(run_ids), checkpoints=self._checkpoints, values=self._values)

    def _copied(self, source: str, target: str) -> Callable[[Store], Coroutine[object, object, None]]:
        return partial(copy_thread, source=str(source), target=str(target), checkpoints=self._checkpoints)

    def _pruned(self, thread_ids: Sequence[str], strategy: str) -> Callable[[Store], Coroutine[object, object, None]]:
        if strategy not in ("keep_latest", "delete"):
            raise InvalidArgument(f"strategy: should be 'keep_latest' or 'delete', not {shown(strategy)}")
        return partial(
            prune,
            threads=[str(each) for each in thread_ids],
            keep_latest=strategy == "keep_latest",
            checkpoints=self._checkpoints,
            values=self._values,
        )
