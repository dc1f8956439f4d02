"""The log of a session as lines, newest first."""

from __future__ import annotations

from collections.abc import Sequence

from flue_py.core.jsontext import JsonObject, JsonValue, decode_object
from flue_py.core.log import Edit, LogLine
from flue_py.render.entries import Look
from flue_py.render.lines import Line, Span, counted, one_line, shortest_ids, table
from flue_py.render.rows import iso
from flue_py.render.views import clipped, minute

_WIDE = 60


def log_lines(lines: Sequence[LogLine], look: Look) -> list[Line]:
    """Return lines of a log: revision, time, what was done, to which entries, by whom and why."""
    named = {each for line in lines for each in (line.from_id, line.to_id, *_edited(line)) if each is not None}
    short = shortest_ids(sorted(named))
    rows: list[list[Span]] = [
        [
            (f"{line.revision}", "bold"),
            ("" if line.at is None else minute(line.at), "dim"),
            (line.what, "cyan"),
            (_did(line, short), ""),
        ]
        for line in lines
    ]
    return [clipped(line, look) for line in table(rows, right=frozenset({0}))]


def _edited(line: LogLine) -> list[str]:
    return [edit.entry_id for edit in line.edits if edit.entry_id is not None]


def _did(line: LogLine, short: dict[str, str]) -> str:
    parts = []
    if line.refers_to is not None:
        parts.append(f"of {line.refers_to}" if line.what != "back" else f"to {line.refers_to}")
    if line.moved_leaf:
        parts.append(f"{_place(line.from_id, short)} -> {_place(line.to_id, short)}")
    if line.entry_count:
        parts.append(counted(line.entry_count, "entry", "entries"))
    parts += [_edit(edit, short) for edit in line.edits]
    if line.words is not None and not line.edits:
        parts.append(f'"{one_line(line.words)}"')
    said = ", ".join(parts)
    said += "" if line.by is None else f" (by {one_line(line.by)})"
    return said + ("" if line.why is None else f": {one_line(line.why)}")


def _place(entry_id: str | None, short: dict[str, str]) -> str:
    return "(beginning)" if entry_id is None else short[entry_id]


def _edit(edit: Edit, short: dict[str, str]) -> str:
    if edit.what == "retracted":
        return "with entries that were retracted"
    of = "" if edit.entry_id is None else f"{short[edit.entry_id]} "
    if edit.what == "task":
        return f"linked {edit.after}"
    if edit.what == "ended":
        return f"{_ending(edit.before)} -> {_ending(edit.after)}"
    if edit.what == "metadata" and max(len(edit.before or ""), len(edit.after or "")) > _WIDE:
        return ", ".join(map(one_line, _changed_keys(edit)))
    return f"{of}{_value(edit.before)} -> {_value(edit.after)}"


def _changed_keys(edit: Edit) -> list[str]:
    """Return the keys of metadata that an edit changed: whole, they would leave no room for the reason."""
    before, after = decode_object(edit.before or "{}"), decode_object(edit.after or "{}")
    return [key for key in {**before, **after} if before.get(key) != after.get(key)]


def _ending(text: str | None) -> str:
    """Return what was said of a task, by the name of its session."""
    said = decode_object(text or "{}")
    words = [one_line(str(said[name]), 60) for name in ("childId", "status", "summary") if said.get(name) is not None]
    return " ".join(words)


def _value(text: str | None) -> str:
    return "(none)" if text is None else one_line(text, _WIDE)


def log_row(line: LogLine) -> JsonObject:
    """Return a line of a log as JSON for programs."""
    edits: list[JsonValue] = [
        {"what": edit.what, "entryId": edit.entry_id, "before": edit.before, "after": edit.after} for edit in line.edits
    ]
    return {
        "sessionId": line.session_id,
        "revision": line.revision,
        "what": line.what,
        "at": None if line.at is None else iso(line.at),
        "fromId": line.from_id,
        "toId": line.to_id,
        "entryCount": line.entry_count,
        "entryIds": [*line.entry_ids],
        "kinds": [*line.kinds],
        "edits": edits,
        "refersTo": line.refers_to,
        "by": line.by,
        "why": line.why,
        "words": line.words,
    }
