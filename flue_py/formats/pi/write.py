"""A session as a pi session file, version 3: every branch, the active path last.

pi stores no leaf: it takes the last row. What came from a pi file goes back as it was, fields kept in ``extra``
included; what pi has no row for becomes a ``custom`` row, which it keeps and never shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flue_py.core.costs import EntryCost
from flue_py.core.entries import Entry
from flue_py.core.ids import made_id
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.kinds import ARTIFACT, BRANCH_SUMMARY, COMPACTION, CUSTOM_MESSAGE, EXCLUSION, MESSAGE
from flue_py.core.layout import BASE, RANGES
from flue_py.core.projection import ContextEntry
from flue_py.core.sessions import MAX_LABEL_CHARACTERS, SessionInfo
from flue_py.core.settings import MODEL_CHANGE, THINKING_LEVEL_CHANGE
from flue_py.core.usage import Cost
from flue_py.formats.kit.exported import Exported, SessionTree, json_line
from flue_py.formats.kit.values import iso_time
from flue_py.formats.pi.entries import (
    CONTEXT_EDIT,
    CUSTOM,
    EMPTY_BRANCH_SUMMARY,
    FORMAT,
    LABEL,
    NEWEST_VERSION,
    SESSION_INFO,
    UNREADABLE,
    WRITTEN,
)
from flue_py.formats.pi.filling import FILLED, filled, has_reported_cost, with_cost
from flue_py.wire.leftovers import Leftovers

_KINDS = frozenset({CUSTOM, LABEL, SESSION_INFO, MODEL_CHANGE, THINKING_LEVEL_CHANGE})
_SENT = frozenset({"system", "user", "assistant", "toolResult", "bashExecution", "custom"})


@dataclass(slots=True)
class _File:
    info: SessionInfo
    header: JsonObject | None
    """The header of the pi file that the session came from; None if it came from none."""
    left: Leftovers
    costs: Mapping[str, EntryCost]
    cost_parts: Callable[[Entry, int], Cost | None]
    ids: set[str] = field(default_factory=set)

    @property
    def version(self) -> int:
        version = (self.header or {}).get("version", 1)
        return version if isinstance(version, int) else 1


def export_pi(session: SessionTree) -> Exported:
    """Return a session as a pi file, with its labels.

    A cost that was priced goes out as one that was reported. Off the active path entries keep their order, and come
    first where the leaf is not the last of them. Labels and a title that no entry sets get rows of their own. Cost:
    O(entries).
    """
    info, entries, left = session.info, session.entries, Leftovers()
    file = _File(info, _header_of(info), left, session.costs, session.cost_parts, {entry.id for entry in entries})
    rows: list[tuple[str, JsonObject | str]] = [(entry.id, _row(entry, file)) for entry in _active_path_last(session)]
    if entries and session.leaf_id is None:
        left.note("that the leaf is before the first entry: pi continues at the last row")
    _set_names(rows, entries, file, session.labels)
    for _ in session.tasks:
        left.note("a link to a task session")
    lines = [json_line(_header(file))]
    lines += [row if isinstance(row, str) else json_line(row) for _, row in rows]
    return Exported(FORMAT, "\n".join(lines) + "\n", left.notes(), is_rows=True)


def _header_of(info: SessionInfo) -> JsonObject | None:
    imported = info.metadata.get("imported")
    if not isinstance(imported, dict) or imported.get("format") != FORMAT:
        return None
    header = imported.get("header")
    return header if isinstance(header, dict) else {}


def _header(file: _File) -> JsonObject:
    kept = file.header or {}
    cwd = kept.get("cwd", file.info.cwd)
    return {
        **kept,
        "type": "session",
        "version": NEWEST_VERSION,
        "id": file.info.id,
        "timestamp": kept.get("timestamp") or iso_time(file.info.created_us),
        "cwd": "" if cwd is None else cwd,
    }


def _active_path_last(session: SessionTree) -> list[Entry]:
    entries = session.entries
    if session.leaf_id is None or not entries or entries[-1].id == session.leaf_id:
        return list(entries)
    path = {entry.id for entry in session.path()}
    return [entry for entry in entries if entry.id not in path] + [entry for entry in entries if entry.id in path]


# --- Rows ---------------------------------------------------------------------------------------------------


def _row(entry: Entry, file: _File) -> JsonObject | str:
    beside = entry.extra_fields
    kind, body = _body(entry, beside, file)
    if isinstance(body, str):
        return body
    row: JsonObject = {
        "type": kind,
        "id": entry.id,
        "parentId": entry.parent_id,
        "timestamp": iso_time(entry.created_us),
    }
    row.update((name, value) for name, value in body.items() if name not in row)
    if "timestamp" in beside:
        row["timestamp"] = beside.pop("timestamp")
    if entry.parent_id is None and "parentId" in beside:
        row["parentId"] = beside.pop("parentId")
    if file.header is not None and file.version < 2:
        beside.pop("line", None)  # where it stood in a file that had no ids
    if entry.source is not None:
        beside.setdefault("source", entry.source)
    for name, value in beside.items():
        if name in row:
            file.left.note(f"a field {name!r} that pi has another meaning for")
        else:
            row[name] = value
    return row


def _body(entry: Entry, beside: JsonObject, file: _File) -> tuple[str, JsonObject | str]:
    """Return the type of a row and its own fields; or a row that is kept as its line."""
    kind, data = entry.kind, entry.data
    if kind == MESSAGE and isinstance(data, dict):
        if "usage" in beside and "usage" not in data:
            data["usage"] = beside.pop("usage")
        return MESSAGE, _message(entry, data, beside, file)
    if kind == COMPACTION and isinstance(data, dict) and isinstance(data.get("usage"), dict):
        _add_known_cost(entry, data, file)
    if file.header is not None and isinstance(data, dict):
        return _as_it_was(kind, data, file)
    if kind == CUSTOM_MESSAGE:
        return CUSTOM_MESSAGE, _custom_message(entry, data)
    if kind in (BRANCH_SUMMARY, EMPTY_BRANCH_SUMMARY) and isinstance(data, dict):
        return BRANCH_SUMMARY, {**data, "fromId": data.get("fromId") or "root"}
    is_known = kind == COMPACTION or (kind in _KINDS and (kind != CUSTOM or "customType" in _fields(data)))
    if not is_known or not isinstance(data, dict):
        return _custom(kind, data, file)
    if kind == COMPACTION:
        _note_pins(data, file)
    return kind, data


def _fields(data: JsonValue) -> JsonObject:
    return data if isinstance(data, dict) else {}


def _as_it_was(kind: str, data: JsonObject, file: _File) -> tuple[str, JsonObject | str]:
    """Return what an entry of an imported pi file was there, or what one that was added since can be."""
    if kind.startswith(UNREADABLE) and isinstance(data.get("type"), str):
        line = data.get("line")
        if isinstance(line, str) and file.version >= 2:
            return kind, line
        if line is None:
            return str(data["type"]), {name: value for name, value in data.items() if name != "type"}
    if kind == EXCLUSION and "targetId" in data and "replacement" in data:
        return CONTEXT_EDIT, {name: value for name, value in data.items() if name not in ("entryId", "excluded")}
    if kind in (ARTIFACT, EXCLUSION) or kind.startswith(UNREADABLE):
        return _custom(kind, data, file)
    if kind == EMPTY_BRANCH_SUMMARY:
        return BRANCH_SUMMARY, data
    if kind == COMPACTION:
        _note_pins(data, file)
        if "unreadableUsage" in data:
            data["usage"] = data.pop("unreadableUsage")
    if kind == BRANCH_SUMMARY and data.get("fromId") is None and "fromId" in data:
        data["fromId"] = "root"
    return kind, data


def _custom(kind: str, data: JsonValue, file: _File) -> tuple[str, JsonObject]:
    if kind == EXCLUSION:
        file.left.change("an exclusion goes out as a custom row: pi shows the entry that it took out of the context")
    else:
        file.left.change(f"entries of kind {kind!r} go out as custom rows")
    return CUSTOM, {"customType": kind, "data": data}


def _note_pins(data: JsonObject, file: _File) -> None:
    for name, value in data.items():
        if name.lower().startswith("pin") and value:
            file.left.change("what a compaction keeps by pins is in the file, but pi does not show it")
    if BASE in data and not data.get("summary"):
        file.left.change("a compaction that leaves messages out is in the file, but pi shows an empty summary for them")
    if data.get(RANGES):
        file.left.change("the ranges of a compaction are in the file, but pi shows what they stand for")


def _custom_message(entry: Entry, data: JsonValue) -> JsonObject:
    fields = _fields(data)
    content = fields.get("content")
    if not isinstance(content, (str, list)):
        content = ContextEntry(entry).data["content"]
    kind = fields.get("customType")
    return {
        **fields,
        "customType": kind if isinstance(kind, str) else "flue_py",
        "content": content,
        "display": fields.get("display", True),
    }


def _message(entry: Entry, message: JsonObject, beside: JsonObject, file: _File) -> JsonObject:
    """Return the fields of a message's row: one of pi's own as it is, any other with what pi asks for."""
    if entry.role not in _SENT:
        file.left.change(f"a message of role {entry.role!r} is in the file, but pi does not send it")
    written = beside.pop(WRITTEN, None)
    if isinstance(written, dict):
        message["content"] = written.get("content")
        if "content" not in written:
            del message["content"]
    was_filled = beside.pop(FILLED, None) is not None
    if entry.role == "assistant":
        _add_known_cost(entry, message, file)
    if file.header is not None and "timestamp" in message and not was_filled:
        return {"message": message}  # pi has written it itself: it always says when
    if entry.role == "assistant" and not has_reported_cost(message.get("usage")):
        file.left.change("usage or a cost that was not reported stands as zeros, which pi asks for")
    whole, undo = filled(message, entry.created_us)
    return {"message": whole, FILLED: undo} if undo else {"message": whole}


def _add_known_cost(entry: Entry, holder: JsonObject, file: _File) -> None:
    """Put what the ledger knows of an entry's cost into its usage, where nothing was reported."""
    known = file.costs.get(entry.id)
    if known is None or not known.calls or not known.is_known or has_reported_cost(holder.get("usage")):
        return
    if known.unpriced_calls:
        file.left.change("a cost of which only a part is known stands as that part")
    file.left.change("a cost that the ledger has by a price stands as one that was reported")
    holder["usage"] = with_cost(holder.get("usage"), known, file.cost_parts(entry, known.picodollars))


# --- Title and labels ---------------------------------------------------------------------------------------


def _set_names(
    rows: list[tuple[str, JsonObject | str]], entries: Sequence[Entry], file: _File, labels: Mapping[str, str]
) -> None:
    """Put in rows for the labels and the title that the rows as they stand do not give, right before the leaf's."""
    added: list[tuple[str, JsonObject]] = []
    parents = {entry.id: entry.parent_id for entry in entries}
    wanted = {target: label for target, label in labels.items() if target in file.ids}
    given = _labels_given(row for _, row in rows)
    for target in [*wanted, *(target for target in given if target not in wanted and target in file.ids)]:
        if given.get(target) != wanted.get(target):
            label: JsonObject = {"label": wanted[target]} if target in wanted else {}
            added.append((LABEL, {"targetId": target, **label}))
    named, title = _name_given(row for _, row in rows), file.info.title
    if title is not None and title.strip() and title.strip() != named:
        added.append((SESSION_INFO, {"name": title}))
    elif title is None and named is not None:
        file.left.note("that the session has no title: pi goes on showing the name it was given")
    if not added:
        return
    if not rows:
        file.left.note("the title: pi has no row for it before the first entry")
        return
    leaf = rows[-1]
    is_name_row = not isinstance(leaf[1], str) and leaf[1].get("type") in (LABEL, SESSION_INFO)
    # After the leaf they would be the leaf; a row of their kind would undo them, so that they come after such a one.
    if is_name_row:
        file.left.change("rows for a label or the title stand behind the leaf, and are pi's leaf")
    parent = leaf[0] if is_name_row else parents.get(leaf[0])
    at = len(rows) if is_name_row else len(rows) - 1
    for kind, body in added:
        row_id = _unused_id(file, kind, str(body.get("targetId")))
        row: JsonObject = {"type": kind, "id": row_id, "parentId": parent, "timestamp": iso_time(file.info.updated_us)}
        rows.insert(at, (row_id, {**row, **body}))
        at += 1
        parent = row_id if is_name_row else parent


def _unused_id(file: _File, kind: str, target: str) -> str:
    number = 0
    while (found := made_id(file.info.id, kind, target, str(number))[:8]) in file.ids:
        number += 1
    file.ids.add(found)
    return found


def _labels_given(rows: Iterable[JsonObject | str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for row in rows:
        target = row.get("targetId") if not isinstance(row, str) and row.get("type") == LABEL else None
        if not isinstance(target, str) or isinstance(row, str):
            continue
        label = row.get("label")
        if isinstance(label, str) and label:
            found[target] = label.replace("\0", "")[:MAX_LABEL_CHARACTERS]
        else:
            found.pop(target, None)
    return found


def _name_given(rows: Iterable[JsonObject | str]) -> str | None:
    found = None
    for row in rows:
        name = row.get("name") if not isinstance(row, str) and row.get("type") == SESSION_INFO else None
        if isinstance(name, str) and name.strip():
            found = name.replace("\0", "").strip()
    return found
