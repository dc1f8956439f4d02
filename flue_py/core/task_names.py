"""What metadata say of task sessions, in the way of the reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue, decode_object, encode_json

OF_PARENT = ("parentSession", "taskId", "depth")
"""The names under which a task session's metadata say whose task it is."""
TASKS = "taskSessions"
OF_TASKS = frozenset({*OF_PARENT, TASKS})
"""The names that are made of links."""


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
    found = (item for item in _listed(metadata) if isinstance(item, dict))
    return tuple(
        TaskReference(key, _text(item.get("session")), _text(item.get("taskId")))
        for item in found
        if isinstance(key := item.get("storageKey"), str)
    )


def session_of(storage_key: str) -> str:
    """Return the session that the document of a storage key becomes: it has the name of its file."""
    return storage_key.rpartition("/")[2].removesuffix(".json")


@frozen
class TaskNames:
    """What the links of a session name: the task sessions it started, and the session that started it.

    ``tasks`` has the task's id and the session's id of each link, in the order they were made. ``parent`` is the first
    parent by id, with the task's id there, and ``depth`` how deep the session is nested, if it is of kind ``task``.
    """

    tasks: tuple[tuple[str, str], ...] = ()
    parent: tuple[str, str] | None = None
    depth: int | None = None

    def with_task(self, task_id: str, child_id: str) -> TaskNames:
        """Return the names with those of one more task, unless it is there."""
        if any(child_id == known for _, known in self.tasks):
            return self
        return replace(self, tasks=(*self.tasks, (task_id, child_id)))

    def added_to(self, metadata: JsonObject) -> JsonObject:
        """Return metadata as they are shown: with what the links say, where the metadata do not say it themselves."""
        if self == NO_TASK_NAMES:
            return metadata
        named = {session_of(task.storage_key) for task in task_references(metadata)}
        tasks = [item for item in self._items() if item["session"] not in named]
        shown: JsonObject = {**metadata}
        if tasks and isinstance(metadata.get(TASKS, []), list):
            shown[TASKS] = [*_listed(metadata), *tasks]
        # A parent that is stored may be another one, whose task has another id and depth.
        parent = {} if "parentSession" in metadata else self._of_parent()
        return {**shown, **{name: value for name, value in parent.items() if name not in metadata}}

    def taken_from(self, text: str, stored: str) -> str:
        """Return metadata as they are to be stored: without what the links say, unless it is ``stored`` already."""
        if self == NO_TASK_NAMES or not any(f'"{name}"' in text for name in OF_TASKS):
            return text
        metadata, before = decode_object(text), decode_object(stored)
        said = [
            name
            for name, value in self._of_parent().items()
            if _says(metadata, name, value) and not _says(before, name, value)
        ]
        # Beside another parent the rest of them would not be shown.
        left_out = said if "parentSession" in said else []
        kept = {name: value for name, value in metadata.items() if name not in left_out}
        listed, linked, known = _listed(metadata), [*self._items()], _listed(before)
        left = [item for item in listed if item in known or item not in linked]
        if left or (listed and before.get(TASKS) == []):
            kept[TASKS] = left
        elif listed:
            del kept[TASKS]
        return text if kept == metadata else encode_json(kept, "metadata")[0]

    def _items(self) -> Iterator[JsonObject]:
        for task_id, child_id in self.tasks:
            yield {"session": child_id, "taskId": task_id, "storageKey": child_id}

    def _of_parent(self) -> JsonObject:
        if self.parent is None:
            return {}
        parent_id, task_id = self.parent
        depth: JsonObject = {} if self.depth is None else {"depth": self.depth}
        return {"parentSession": parent_id, "taskId": task_id, **depth}


NO_TASK_NAMES = TaskNames()


def without_parent(text: str) -> str:
    """Return metadata that a new task session is given, without what its link will say."""
    metadata = decode_object(text)
    kept = {name: value for name, value in metadata.items() if name not in OF_PARENT}
    return text if kept == metadata else encode_json(kept, "metadata")[0]


def without_tasks(metadata: JsonObject) -> JsonObject:
    """Return the metadata of a session for another one, which is nobody's task, and has none.

    A ``taskId`` or ``depth`` beside no ``parentSession`` is the application's own, and stays.
    """
    of_tasks = OF_TASKS if "parentSession" in metadata else {TASKS}
    return {name: value for name, value in metadata.items() if name not in of_tasks}


def _listed(metadata: Mapping[str, JsonValue]) -> list[JsonValue]:
    listed = metadata.get(TASKS)
    return listed if isinstance(listed, list) else []


def _says(metadata: Mapping[str, JsonValue], name: str, value: JsonValue) -> bool:
    found = metadata.get(name)
    return type(found) is type(value) and found == value


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""
