"""What an exporter gets, and what it returns: the text of a file, and what the format had no place for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from flue_py.core.costs import EntryCost
from flue_py.core.entries import Entry
from flue_py.core.jsontext import JsonValue, replace_lone_surrogates
from flue_py.core.projection import ContextEntry, project
from flue_py.core.sessions import SessionInfo, TaskLink
from flue_py.core.usage import Cost
from flue_py.wire.leftovers import ExportNote, Leftovers


def _no_parts(_entry: Entry, _picodollars: int) -> Cost | None:
    return None


@dataclass(frozen=True, slots=True)
class SessionTree:
    """A session to be exported: its row, every entry it sees (`Session.get_tree`), a leaf, and what stands beside them.

    ``labels`` are by entry. ``costs`` are what the ledger knows of the entries (`Session.entry_costs`), and
    ``cost_parts`` returns such a cost by kind of token, None where only its total is known.
    """

    info: SessionInfo
    entries: Sequence[Entry]
    leaf_id: str | None
    labels: Mapping[str, str] = field(default_factory=dict)
    tasks: Sequence[TaskLink] = ()
    costs: Mapping[str, EntryCost] = field(default_factory=dict)
    cost_parts: Callable[[Entry, int], Cost | None] = _no_parts

    def path(self) -> list[Entry]:
        """Return the entries from the root to the leaf. O(entries)."""
        by_id = {entry.id: entry for entry in self.entries}
        path: list[Entry] = []
        at = by_id.get(self.leaf_id or "")
        while at is not None:
            path.append(at)
            at = by_id.get(at.parent_id or "")
        return path[::-1]

    def context(self) -> list[ContextEntry]:
        """Return what the model sees at the leaf. O(entries)."""
        return project(self.path())


@dataclass(frozen=True, slots=True)
class Exported:
    """A session in another format. ``notes`` say what was left out or changed, never silently.

    ``text`` is what a file of the format holds, its last line end included.
    """

    format: str
    text: str
    notes: tuple[ExportNote, ...] = ()
    is_rows: bool = False
    """Whether the text is JSONL."""

    @property
    def value(self) -> JsonValue:
        """The value of the text: of JSONL the list of its rows."""
        if self.is_rows:
            return [json.loads(line) for line in self.text.splitlines() if line]
        return json.loads(self.text)  # type: ignore[no-any-return]


def exported_json(format_name: str, value: JsonValue, left: Leftovers) -> Exported:
    """Return a value as the text of a document of its own."""
    text = replace_lone_surrogates(json.dumps(value, ensure_ascii=False, indent=2))[0]
    return Exported(format_name, text + "\n", left.notes())


def json_line(value: JsonValue) -> str:
    """Return a value as one line of JSONL, without its end."""
    # U+2028 and its like stay escaped: some readers take them for the end of a line.
    text = replace_lone_surrogates(json.dumps(value, ensure_ascii=False, separators=(",", ":")))[0]
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\u0085", "\\u0085")
