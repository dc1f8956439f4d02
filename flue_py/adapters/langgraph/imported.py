"""What a checkpoint of another checkpointer is put with here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flue_py.adapters.langgraph.threads import address_of

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import ChannelVersions, CheckpointTuple


def place_of(found: CheckpointTuple, parent: CheckpointTuple | None) -> tuple[RunnableConfig, ChannelVersions]:
    """Return the configuration to put a checkpoint with, and the versions that its parent does not have."""
    address = address_of(found.config)
    named: dict[str, Any] = {"thread_id": address.thread, "checkpoint_ns": address.namespace}
    if found.parent_config is not None:
        named["checkpoint_id"] = address_of(found.parent_config).checkpoint
    old = {} if parent is None else parent.checkpoint["channel_versions"]
    versions = found.checkpoint["channel_versions"].items()
    return {"configurable": named}, {channel: version for channel, version in versions if old.get(channel) != version}


def tasks_of(found: CheckpointTuple) -> Iterator[tuple[str, str, list[tuple[str, Any]]]]:
    """Yield the writes at a checkpoint, task by task, with a path that keeps the tasks in their order."""
    tasks: dict[str, list[tuple[str, Any]]] = {}
    for task_id, channel, value in found.pending_writes or []:
        tasks.setdefault(task_id, []).append((channel, value))
    for number, (task_id, writes) in enumerate(tasks.items()):
        yield task_id, f"{number:06}", writes
