"""Replace ids in the metadata of sessions and in the extra fields of entries, after a rename.

Fields that the engine itself writes are changed: a task's parent, and what imports write under ``imported``. Fields of
users and other programs stay as they are, and the report says that they have an old id.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from flue_py.core.jsontext import JsonObject, JsonValue, to_json

_ENTRIES_OF_IMPORTS = ("leaf", "leafId")
_FOREIGN_ENTRIES_OF_IMPORTS = ("below",)


class Names(NamedTuple):
    """New ids by old ones: of sessions, of the entries of this tree, and of the entries of every tree."""

    sessions: Mapping[str, str]
    entries: Mapping[str, str]
    all_entries: Mapping[str, str]


class Followed(NamedTuple):
    """A JSON text with the new ids, the fields that were changed, and the fields that still have old ids."""

    text: str
    changed: list[str]
    left: list[str]


def follow_metadata(text: str, names: Names) -> Followed:
    """Return metadata with new ids in the fields that the engine wrote. O(size)."""
    fields = _object(text)
    if fields is None:
        return Followed(text, [], [])
    changed: JsonObject = {}
    parent, imported = fields.get("parentSession"), fields.get("imported")
    if isinstance(parent, str) and parent in names.sessions and ("taskId" in fields or isinstance(imported, dict)):
        changed["parentSession"] = names.sessions[parent]
    if isinstance(imported, dict) and (now := _imported(imported, names)) != imported:
        changed["imported"] = now
    fields = {**fields, **changed}
    new = to_json(fields).decode() if changed else text
    return Followed(new, list(changed), _naming(fields, names))


def naming_in_extra(text: str, names: Names) -> list[str]:
    """Return the extra fields that have old ids. O(size)."""
    return _naming(_object(text) or {}, names)


def _imported(imported: JsonObject, names: Names) -> JsonObject:
    """Return what an import wrote: where the leaf was, below which entry a task began, and which names to set."""
    now = dict(imported)
    for fields, of in ((_ENTRIES_OF_IMPORTS, names.entries), (_FOREIGN_ENTRIES_OF_IMPORTS, names.all_entries)):
        now.update({name: of.get(str(now[name]), now[name]) for name in fields if isinstance(now.get(name), str)})
    tasks, coming = now.get("tasks"), now.get("names")
    if isinstance(tasks, dict):
        now["tasks"] = {name: names.entries.get(str(at), at) for name, at in tasks.items()}
    labels = coming.get("labels") if isinstance(coming, dict) else None
    if isinstance(coming, dict) and isinstance(labels, dict):
        now["names"] = {**coming, "labels": {names.entries.get(at, at): label for at, label in labels.items()}}
    return now


def _naming(fields: JsonObject, names: Names) -> list[str]:
    return [name for name, value in fields.items() if _names_any(value, names)]


def _names_any(value: JsonValue, names: Names) -> bool:
    if isinstance(value, dict):
        return any(_is_old(key, names) or _names_any(part, names) for key, part in value.items())
    if isinstance(value, list):
        return any(_names_any(part, names) for part in value)
    return isinstance(value, str) and _is_old(value, names)


def _is_old(name: str, names: Names) -> bool:
    return name in names.sessions or name in names.all_entries


def _object(text: str) -> JsonObject | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
