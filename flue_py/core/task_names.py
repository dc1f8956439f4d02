"""What metadata say of task sessions, in the way of the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.sessions import TaskLink


@dataclass(frozen=True, slots=True)
class TaskReference:
    """What a parent's metadata says of one task session: its storage key, its name, and the task's id."""

    storage_key: str
    session: str
    task_id: str


def task_references(metadata: Mapping[str, JsonValue]) -> tuple[TaskReference, ...]:
    """Return the task sessions that a document's metadata names, in order.

    An item without a storage key is passed over, as the reference does when it deletes.
    """
    listed = metadata.get("taskSessions")
    found = (item for item in listed if isinstance(item, dict)) if isinstance(listed, list) else ()
    return tuple(
        TaskReference(key, _text(item.get("session")), _text(item.get("taskId")))
        for item in found
        if isinstance(key := item.get("storageKey"), str)
    )


def session_of(storage_key: str) -> str:
    """Return the session that the document of a storage key becomes: it has the name of its file."""
    return storage_key.rpartition("/")[2].removesuffix(".json")


def with_tasks(metadata: JsonObject, links: Sequence[TaskLink], parents: Sequence[TaskLink] = ()) -> JsonObject:
    """Return metadata that name task sessions as the reference's do, from the links to and from them.

    ``taskSessions`` has what is there already, then each link to a session that is not among that; ``parentSession``
    and ``taskId`` are those of the first parent, where nothing is said of one.
    """
    listed = metadata.get("taskSessions")
    named = {session_of(task.storage_key) for task in task_references(metadata)}
    tasks: list[JsonValue] = [
        {"session": link.child_id, "taskId": link.task_id, "storageKey": link.child_id}
        for link in links
        if link.child_id not in named
    ]
    said: JsonObject = {**metadata}
    if tasks:
        said["taskSessions"] = [*(listed if isinstance(listed, list) else ()), *tasks]
    if parents and "parentSession" not in said:
        said = {**said, "parentSession": parents[0].parent_id, "taskId": said.get("taskId", parents[0].task_id)}
    return said


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""
