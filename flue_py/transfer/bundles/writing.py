"""Writing a bundle: trees under numbers, and in an order, that depend on no store."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from operator import attrgetter
from typing import Any, BinaryIO, cast

from flue_py.core.jsontext import JsonObject, decode_object, encode_json
from flue_py.core.trees import (
    GonePayer,
    TreeCopy,
)
from flue_py.transfer.bundles.layout import (
    KEYS,
    NAME,
    TABLES,
    VERSION,
    WRITTEN,
    BundleCounts,
    Row,
)

_PATHS_OF_IMPORTS = ("cwd", "parentSession")


class BundleWriter:
    """Writes a bundle, tree by tree, into a file that is open for writing bytes. Nothing of it counts before `end`."""

    def __init__(self, file: BinaryIO, *, keep_paths: bool = False) -> None:
        # Without a name and a time, so that the same content gives the same bytes.
        self._file = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0, compresslevel=6)
        self._keep_paths = keep_paths
        self._sha256 = sha256()
        self.counts = BundleCounts()
        self._line({"bundle": NAME, "version": VERSION})

    def add_tree(self, copy: TreeCopy) -> None:
        """Write a tree. Folders and configuration paths are left out, unless the bundle keeps paths."""
        copy = canonical(copy if self._keep_paths else without_paths(copy))
        rows = {name: cast("Sequence[Row]", getattr(copy, name)) for name in TABLES}
        self._line({"tree": {name: len(table) for name, table in rows.items()}, "epoch": copy.epoch})
        for name, table in rows.items():
            for row in table:
                self._line([name, *(_encoded(value) for value in WRITTEN[name](row))])
        self.counts = self.counts.with_tree(copy)

    def add_gone(self, gone: GonePayer) -> None:
        """Write what a session that is gone has paid."""
        calls = sorted((call._replace(session_key=0) for call in gone.calls), key=lambda call: call.identity)
        head: JsonObject = {"gone": gone.payer.session_id, "member": gone.member, "calls": len(calls)}
        if gone.payer.task_of is not None:
            head["taskOf"] = gone.payer.task_of
        if gone.payer.project is not None and self._keep_paths:
            head["project"] = gone.payer.project
        self._line(head)
        for call in calls:
            self._line(["calls", *call])
        self.counts = self.counts.with_gone(gone)

    def end(self) -> BundleCounts:
        """Write the last line, and return what the bundle holds. The file stays open."""
        counts = self.counts
        held: JsonObject = {
            "trees": counts.trees, "sessions": counts.sessions, "entries": counts.entries, "calls": counts.calls,
        }  # fmt: skip
        self._line({"end": held, "sha256": self._sha256.hexdigest()})
        self._file.close()
        return counts

    def close(self) -> None:
        """Stop writing; the file stays open. An error from before `end` is not raised again."""
        with suppress(OSError):
            # Left to the garbage collector, it would write to the file after that was closed, and say so on stderr.
            self._file.close()

    def _line(self, value: object) -> None:
        line = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        self._sha256.update(line)
        self._file.write(line)


def _encoded(value: object) -> object:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def canonical(copy: TreeCopy) -> TreeCopy:
    """Return a tree under numbers, and in an order, that do not depend on the store it is from."""
    sessions = sorted(copy.sessions, key=lambda row: (row.kind != "root", row.created_at, row.id))
    payers = {payer.session_key: payer.session_id for payer in copy.payers}
    order = {session.session_key: (0, place, "") for place, session in enumerate(sessions)}
    first_entry = {entry.session_key: entry.id for entry in sorted(copy.entries, key=lambda e: e.id, reverse=True)}
    # The tree's own key is that of its first session, which may be gone, too.
    named = {entry.session_key for entry in copy.entries} | payers.keys()
    gone = sorted(
        named - order.keys(),
        key=lambda key: (payers.get(key, ""), first_entry.get(key, "")),
    )
    keys = {key: number for number, key in enumerate([*[row.session_key for row in sessions], *gone], 1)}
    renumbered: dict[str, Any] = {name: [_renumbered(row, keys) for row in getattr(copy, name)] for name in TABLES}
    for name, rows in renumbered.items():
        rows.sort(key=attrgetter(*_ORDER[name]))
    return replace(copy, tree_id=0, **renumbered)


_ORDER = {
    "sessions": ("session_key",),
    "lanes": ("lane_id",),
    "entries": ("lane_id", "depth"),
    "attachments": ("lane_id", "depth", "place"),
    "blobs": ("sha256",),
    "links": ("parent_key", "position"),
    "moves": ("session_key", "revision"),
    "requests": ("session_key", "idempotency_key"),
    "marks": ("session_key", "entry_id", "kind"),
    "edits": ("session_key", "revision", "what"),
    "payers": ("session_key",),
    "calls": ("identity",),
}


def _renumbered(row: Row, keys: Mapping[int, int]) -> Row:
    fields = cast("Any", row)
    named = next((name for name in KEYS if name in fields._fields), None)
    return row if named is None else cast("Row", fields._replace(**{named: keys[getattr(row, named)]}))


def without_paths(copy: TreeCopy) -> TreeCopy:
    """Return a tree whose sessions name no folder and no file of the machine they are from.

    What was said in them may: that is their history.
    """
    sessions = [
        row._replace(cwd=None, config_path=None, metadata=_metadata_without_paths(row.metadata))
        for row in copy.sessions
    ]
    payers = [payer._replace(project=None) for payer in copy.payers]
    return replace(copy, sessions=sessions, payers=payers)


def _metadata_without_paths(text: str) -> str:
    metadata = decode_object(text)
    imported = metadata.get("imported")
    header = imported.get("header") if isinstance(imported, dict) else None
    if not isinstance(header, dict) or not any(name in header for name in _PATHS_OF_IMPORTS):
        return text
    for name in _PATHS_OF_IMPORTS:
        header.pop(name, None)
    return encode_json(metadata, "metadata")[0]
