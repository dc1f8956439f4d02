"""Rename sessions and entries whose names no store accepts, and change what refers to them.

A flipped bit, or bytes of another file, make an id with a NUL, an escape or a kilobyte of noise in it. The session or
entry may be whole, but nobody could open it under such a name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pydantic_core

from flue_py.core.salvaging import Loss
from flue_py.core.sessions import is_usable
from flue_py.store.salvage.notes import follow_metadata
from flue_py.store.salvage.pages import Value
from flue_py.store.salvage.rows import Found, Gathered, key_of

_OF_ENTRIES = {
    "sessions": ("leaf", "forked_from_entry"), "ledger": ("entry_id",), "leaf_moves": ("from_entry", "to_entry"),
    "marks": ("entry_id",), "session_edits": ("entry_id",), "task_links": ("entry_id",),
}  # fmt: skip
"""The columns that name an entry, of the tree of the session that the row belongs to."""

_OF_SESSIONS = {
    "sessions": ("forked_from_session",), "task_links": ("child_id",), "ledger_sessions": ("session_id", "task_of"),
    "budgets": ("session_id",), "reservations": ("session_id",),
}  # fmt: skip

_OTHERS = {
    "task_links": ("task_id",), "requests": ("idempotency_key",),
    "ledger": ("scope", "provider", "call_id", "model", "agent"),
    "budgets": ("id", "scope"), "reservations": ("reservation_id",),
}  # fmt: skip
"""Names that nothing else refers to by name."""

_WHATS = {"task_links": "link", "requests": "request", "ledger": "call", "budgets": "budget"}


def rename_unusable(found: Gathered) -> None:
    """Replace every unusable name, report it as lost, and change what refers to it. O(rows)."""
    _Renaming(found).run()


@dataclass(slots=True)
class _Renaming:
    found: Gathered
    sessions: dict[str, str] = field(default_factory=dict)
    entries: dict[tuple[int, str], str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def run(self) -> None:
        found = self.found
        rows = found.tables["sessions"].values()
        self.taken = {row["id"] for row in rows if isinstance(row["id"], str)}
        self.taken |= {entry_id for _, entry_id in found.entries}
        for row in rows:
            self._session(row)
        for key, name in list(found.witnesses.session_ids.items()):
            if not is_usable(name):
                found.witnesses.session_ids[key] = self._new_session_id(name, key)
        for tree, name in [place for place in found.entries if not is_usable(place[1])]:
            self._entry(tree, name)
        for table, rows_of in found.tables.items():
            for row in rows_of.values():
                self._follow(table, row)
        self._rekey()
        found.renamed, found.renamed_sessions = self.entries, self.sessions
        if self.sessions or self.entries:
            for row in rows:
                self._follow_metadata(row)

    def _free(self, name: str) -> str:
        while name in self.taken:
            name += "-"
        self.taken.add(name)
        return name

    def _lose(self, what: str, session: str | None, entry: str | None, kind: str, name: str) -> None:
        detail = f"had the {kind} {name[:60]!r}, which cannot be used"
        self.found.losses.append(Loss(what, session, entry, detail))

    def _new_session_id(self, name: str, key: int) -> str:
        if name not in self.sessions:
            self.sessions[name] = self._free(f"rescued-{key}")
        return self.sessions[name]

    def _session(self, row: Found) -> None:
        key, name = row["session_key"], row["id"]
        if not isinstance(key, int):
            return
        if isinstance(name, str) and not is_usable(name):
            row["id"] = self._new_session_id(name, key)
            self._lose("session", str(row["id"]), None, "id", name)
        elif name is None and key not in self.found.witnesses.session_ids:
            row["id"] = self._free(f"rescued-{key}")
            self.found.losses.append(Loss("session", str(row["id"]), None, "its id cannot be read"))
        for column, instead in (("key", None), ("title", None), ("scope", "")):
            text = row[column]
            usable = not isinstance(text, str) or text == "" or is_usable(text)
            if not usable and not (column == "title" and "\0" not in str(text)):
                row[column] = instead
                self._lose("session", None if row["id"] is None else str(row["id"]), None, column, str(text))

    def _entry(self, tree: int, name: str) -> None:
        found = self.found
        versions = found.entries.pop((tree, name))
        rowid = versions[0].rowid
        new = self._free(f"rescued-{len(self.entries) + 1 if rowid is None else rowid}")
        self.entries[tree, name] = new
        found.entries[tree, new] = versions
        for version in versions:
            version.id = new
        for number, witnessed in list(found.witnesses.entry_ids.items()):
            if witnessed == (tree, name):
                found.witnesses.entry_ids[number] = (tree, new)
        self._lose("entry", self._owner(versions[0].session), new, "id", name)

    def _owner(self, key: int) -> str | None:
        name = self.found.session_id(key)
        return None if name is None else self.sessions.get(name, name)

    # -- references -----------------------------------------------------------------------------------------------

    def _follow(self, table: str, row: Found) -> None:
        for column in _OF_SESSIONS.get(table, ()):
            name = row.get(column)
            if isinstance(name, str):
                row[column] = self.sessions.get(name, name)
        tree = self._tree(row)
        for column in _OF_ENTRIES.get(table, ()):
            name = row.get(column)
            if isinstance(name, str) and tree is not None:
                row[column] = self.entries.get((tree, name), name)
        for column in _OTHERS.get(table, ()):
            name = row.get(column)
            if isinstance(name, str) and name and not is_usable(name):
                row[column] = self._free("rescued-name")
                self._lose(_WHATS.get(table, "reservation"), None, None, column, name)
        if table == "requests":
            row["result"] = self._result(row["result"], tree)

    def _follow_metadata(self, row: Found) -> None:
        """Put new ids into the metadata that the engine wrote, and report the fields that still have old ones."""
        if not isinstance(row["metadata"], str):
            return
        followed = follow_metadata(row["metadata"], self.found.names_in(self._tree(row)))
        row["metadata"] = followed.text
        for fields, detail in (
            (followed.changed, "what they named has new ids"),
            (followed.left, "what they name has new ids; they stay as they were"),
        ):
            if fields:
                text = f"metadata name others in {', '.join(fields)}: {detail}"
                self.found.changes.append(Loss("session", str(row["id"]), None, text))

    def _tree(self, row: Found) -> int | None:
        tree = row.get("tree_id")
        if not isinstance(tree, int):
            session = self.found.tables["sessions"].get((row.get("parent_key", row.get("session_key")),))
            tree = None if session is None else session["tree_id"]
        return tree if isinstance(tree, int) else None

    def _result(self, text: Value, tree: int | None) -> Value:
        """Return the stored answer to a request, with the present names of sessions and entries."""
        if not isinstance(text, str) or not (self.sessions or self.entries):
            return text
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return text

        def renamed(part: object) -> object:
            if isinstance(part, list):
                return [renamed(each) for each in part]
            if isinstance(part, str):
                return self.sessions.get(part, part if tree is None else self.entries.get((tree, part), part))
            return part

        return pydantic_core.to_json(renamed(value)).decode()

    def _rekey(self) -> None:
        """File the rows whose key has changed under the new one."""
        found = self.found
        for (parent, position), child in list(found.witnesses.links.items()):
            found.witnesses.links[parent, position] = self.sessions.get(child, child)
        for table in ("marks", "requests", "ledger", "reservations"):
            found.tables[table] = {key_of(table, row): row for row in found.tables[table].values()}
