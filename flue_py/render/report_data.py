"""What a report shows of a session and its tasks, as JSON for the page: entries, contexts, growth, cost by model.

Contexts are computed here, by the projection itself, and never in the page. An entry of most kinds leaves its
parent's context as it is, or adds itself to it. Only the kinds in `RESHAPING_KINDS` change what came before
them, so only their contexts are written out, as stretches of entries (docs/decisions/0006).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from flue_py.core.artifacts import readable
from flue_py.core.costs import EntryCost, entry_cost
from flue_py.core.entries import Entry
from flue_py.core.exchange import tool_calls
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.kinds import COMPACTION, CONTEXT_KINDS, MESSAGE, SHOWN_KINDS
from flue_py.core.ledger import UsageRow
from flue_py.core.projection import ContextEntry, project
from flue_py.core.sessions import SessionInfo
from flue_py.core.told import reported_counts
from flue_py.core.turns import begins_turn
from flue_py.core.usage_shapes import KINDS, read_reported
from flue_py.render.entries import entry_name, entry_text
from flue_py.render.lines import one_line
from flue_py.render.report_compactions import compactions_json
from flue_py.render.report_edits import edits_of
from flue_py.render.report_growth import Growth, active_path, growth_of, speaker_of
from flue_py.render.report_sent import sent_json
from flue_py.render.views import minute, session_facts, session_name

RESHAPING_KINDS = frozenset({COMPACTION, "exclusion"})
"""The kinds that may change what earlier entries contribute; the context at each is written out whole."""

_LINE_LENGTH = 160
_NO_MODEL = "model unknown"
_SHOWN_ELSEWHERE = frozenset({"role", "content", "usage", "timestamp", "summary", "command", "output", "errorMessage"})


@dataclass(frozen=True, slots=True)
class ReportedSession:
    """One session of a report. ``entries`` are all it sees, parents before children, as `Session.get_tree` has them.

    ``task_id`` is what its parent calls it, ``parent_id`` that parent; both None for the session reported on.
    ``sizes`` are tokens by entry id, empty if they were not counted; ``costs`` are what the ledger has for entries.
    ``source`` is what a fork without a name of its own was forked from. ``losses`` are the loss reports of compactions,
    by their entries' ids, as JSON, with ``entryIds``.
    """

    info: SessionInfo
    entries: Sequence[Entry]
    labels: Mapping[str, str] = field(default_factory=dict)
    task_id: str | None = None
    parent_id: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    costs: Mapping[str, EntryCost] = field(default_factory=dict)
    source: SessionInfo | None = None
    losses: Mapping[str, JsonObject] = field(default_factory=dict)
    sent: JsonObject | None = None

    @property
    def name(self) -> str:
        """The name that people know the session by."""
        return session_name(self.info, self.source)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Input tokens at which an agent is warned, and at which its context is compacted; 0 draws no line."""

    warn_at: int = 0
    cutover_at: int = 0


def report_data(
    sessions: Sequence[ReportedSession],
    thresholds: Thresholds,
    *,
    bill: Sequence[UsageRow] = (),
    made_at: datetime | None = None,
) -> JsonObject:
    """Return everything the page shows, the session reported on first. Cost: O(entries), and O(path) a compaction."""
    lines = growth_of(growing(sessions))
    return {
        "title": sessions[0].name,
        "made": None if made_at is None else f"{minute(made_at)} UTC",
        "sessions": [_session_json(session) for session in sessions],
        "growth": [_growth_json(line) for line in lines],
        "warnAt": thresholds.warn_at,
        "cutoverAt": thresholds.cutover_at,
        "models": _models_json(bill),
    }


def growing(sessions: Sequence[ReportedSession]) -> list[tuple[str, Sequence[Entry], str | None]]:
    """Return each session's name, entries and leaf, from which the growth of contexts is computed."""
    return [(agent_name(session), session.entries, session.info.leaf_id) for session in sessions]


def agent_name(session: ReportedSession) -> str:
    """Return what a session is called among the agents: its task id, or else its name."""
    return one_line(session.task_id, 80) if session.task_id else one_line(session.name, 80)


def _session_json(session: ReportedSession) -> JsonObject:
    place = {entry.id: number for number, entry in enumerate(session.entries)}
    contexts = reshaped_contexts(session.entries)
    leaf = session.info.leaf_id
    active = [session.entries[number] for number in active_path(session.entries, leaf)]
    compactions = compactions_json(session.entries, active, session.losses, session.sizes, _stretches)
    return {
        "id": session.info.id,
        "name": session.name,
        "agent": agent_name(session),
        "parent": session.parent_id,
        "leaf": None if leaf is None else place.get(leaf),
        # Money is a number in one shape everywhere; the page formats it.
        "facts": [
            [name, value] for name, value in session_facts(session.info, session.name) if value and name != "spent"
        ],
        "spent": _spent_json(session.info),
        "counted": bool(session.sizes),
        "sent": None if session.sent is None else sent_json(session.sent, place),
        "entries": [
            _entry_json(entry, session, place, contexts)
            | ({"compaction": compactions[entry.id]} if entry.id in compactions else {})
            for entry in session.entries
        ],
    }


def reshaped_contexts(entries: Sequence[Entry]) -> dict[str, list[tuple[int, int]]]:
    """Return the context at each entry of a kind that reshapes it, by id, as stretches (first, last) of ``entries``.

    At every other entry the context is its parent's, plus the entry itself if its kind is one of `CONTEXT_KINDS`.
    """
    place = {entry.id: number for number, entry in enumerate(entries)}
    found: dict[str, list[tuple[int, int]]] = {}
    for entry in entries:
        if entry.kind in RESHAPING_KINDS:
            path = _path_to(entry, entries, place)
            found[entry.id] = _stretches([place[item.entry_id] for item in project(path)])
    return found


def _path_to(entry: Entry, entries: Sequence[Entry], place: Mapping[str, int]) -> list[Entry]:
    path = [entry]
    while (parent := path[-1].parent_id) is not None and parent in place:
        path.append(entries[place[parent]])
    path.reverse()
    return path


def _stretches(numbers: Sequence[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def _entry_json(
    entry: Entry,
    session: ReportedSession,
    place: Mapping[str, int],
    contexts: Mapping[str, list[tuple[int, int]]],
) -> JsonObject:
    """Return one entry; what is empty, zero or unknown is left out.

    ``paid`` is its cost: picodollars, calls, and how many of the calls have no known price. A fourth number is there
    if it is an answer without usage. ``asks`` says that a turn begins with it.
    """
    value = entry.data
    fields = value if isinstance(value, dict) else {}
    parts = _parts(entry, value)
    row: JsonObject = {
        "id": entry.id,
        "kind": entry.kind,
        "name": entry_name(entry)[0].strip(),
        "at": entry.created_at.strftime("%Y-%m-%d %H:%M:%S"),
        "parts": parts,
    }
    line = _beginning(entry_text(entry))
    if not _begins_with(parts, line):
        row["line"] = line
    if entry.parent_id is not None and entry.parent_id in place:
        row["parent"] = place[entry.parent_id]
    if entry.kind in CONTEXT_KINDS:
        row["seen"] = True
    if begins_turn(entry):
        row["asks"] = True
    if entry.id in contexts:
        row["context"] = [[first, last] for first, last in contexts[entry.id]]
    extras: dict[str, JsonValue] = {
        "role": entry.role,
        "source": entry.source,
        "label": session.labels.get(entry.id),
        "tokens": session.sizes.get(entry.id),
        "agent": speaker_of(fields) if entry.kind == MESSAGE else None,
        "rest": _rest(entry, fields),
        **_tools(entry, fields),
    }
    row.update({name: extra for name, extra in extras.items() if extra})
    cost = entry_cost(entry, session.costs)
    if cost is not None:
        row["paid"] = [cost.picodollars, cost.calls, cost.unpriced_calls, *([cost.untold] if cost.untold else [])]
        row.update(_used(entry, fields))
    return row


def _tools(entry: Entry, fields: JsonObject) -> JsonObject:
    """Return the names of the tools that an answer calls, or the name of the tool that failed in a tool result."""
    if entry.kind == MESSAGE and entry.role == "assistant":
        return {"calls": [str(call.get("name", "")) for call in tool_calls(fields)]}
    is_failure = entry.kind == MESSAGE and entry.role == "toolResult" and fields.get("isError") is True
    return {"failed": str(fields.get("toolName", ""))} if is_failure else {}


def _used(entry: Entry, fields: JsonObject) -> JsonObject:
    reported = fields.get("usage")
    if not isinstance(reported, dict):
        return {}
    read = read_reported(reported)
    used: JsonObject = {}
    if read.is_known:
        counts = reported_counts(read)
        used["usage"] = [*(counts[name] for name in KINDS), read.totals.tokens]
    if entry.kind == MESSAGE:
        used["model"] = one_line(" / ".join(part for part in _model(fields) if part), 120)
    return used


# The page does the same, in model.js.
def _beginning(text: str) -> str:
    return text if len(text) <= _LINE_LENGTH else f"{text[: _LINE_LENGTH - 1].rstrip()}…"


def _begins_with(parts: Sequence[JsonValue], line: str) -> bool:
    """Return whether the page can derive the line from the first part: a text that begins as the line does."""
    first = parts[0] if parts else None
    return isinstance(first, list) and first[0] == "text" and line[:-1].isascii() and _beginning(str(first[1])) == line


def _parts(entry: Entry, value: JsonValue) -> list[JsonValue]:
    """Return the content of an entry as pairs (kind, text), in the form that the model sees if it sees it."""
    if entry.kind in SHOWN_KINDS:
        message = ContextEntry(entry).data
        return list(_message_parts(message))
    artifact = readable(entry)
    return [["json", _pretty(value)]] if artifact is None else [["json", _pretty(artifact[0])], ["text", artifact[1]]]


def _message_parts(message: JsonObject) -> Iterator[JsonValue]:
    if isinstance(message.get("command"), str):
        yield ["call", f"$ {message['command']}"]
    content = message.get("content")
    for part in content if isinstance(content, list) else [] if content is None else [content]:
        if isinstance(part, dict) and part.get("type") == "toolCall":
            yield from _call_parts(str(part.get("name")), part.get("arguments"))
        else:
            yield _part(part)
    if isinstance(message.get("output"), str):
        yield ["text", message["output"]]
    if isinstance(message.get("errorMessage"), str):
        yield ["error", message["errorMessage"]]


def _call_parts(name: str, arguments: JsonValue) -> Iterator[JsonValue]:
    """Yield a call as its name and arguments; a call that edits files as diffs, with the file as a third item."""
    edits = edits_of(name, arguments)
    if edits is None:
        yield ["call", f"{name} {_pretty(arguments)}"]
        return
    for edit in edits.files:
        yield ["diff", edit.lines, f"{name} {edit.path}"]
    if any(value not in (None, False) for value in edits.rest.values()):
        yield ["call", f"{name} {_pretty(edits.rest)}"]


def _part(part: JsonValue) -> JsonValue:
    if isinstance(part, str):
        return ["text", part]
    if isinstance(part, dict):
        kind = part.get("type")
        for shown in ("text", "thinking"):
            if kind == shown and isinstance(part.get(shown), str):
                return [shown, part[shown]]
        data = part.get("data")
        if isinstance(data, str) and kind in ("image", "file", "document", "audio"):
            # Pictures are named, not shown: the page need not decode what a stranger sent.
            return ["media", f"{kind}, {part.get('mimeType') or 'type unknown'}, {len(data):,} characters of base64"]
    return ["json", _pretty(part)]


def _pretty(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _rest(entry: Entry, fields: JsonObject) -> str | None:
    """Return as JSON text the fields of an entry that are shown nowhere else."""
    rest: JsonObject = {}
    if entry.kind in SHOWN_KINDS:
        rest = {name: value for name, value in fields.items() if name not in _SHOWN_ELSEWHERE}
    rest.update(entry.extra_fields)
    return _pretty(rest) if rest else None


# -- money ------------------------------------------------------------------------------------------------------------


def _model(fields: JsonObject) -> tuple[str, str]:
    return (str(fields.get("provider") or ""), str(fields.get("model") or _NO_MODEL))


def _models_json(bill: Sequence[UsageRow]) -> JsonObject:
    """Return what each model's calls used and cost, the most expensive first, and the sum.

    Calls that name no model are grouped by their purpose.
    """
    found: dict[tuple[str, str], UsageRow] = {}
    total = UsageRow()
    for row in bill:
        purpose = row.group["purpose"]
        nameless = _NO_MODEL if purpose == "turn" else str(purpose)
        name = (str(row.group["provider"] or ""), str(row.group["model"] or nameless))
        found[name] = found.get(name, UsageRow()).plus(row)
        total = total.plus(row)
    ranked = sorted(found.items(), key=lambda item: (-item[1].picodollars, -item[1].total_tokens, item[0]))
    rows: list[JsonValue] = [
        {"provider": one_line(provider, 80), "model": one_line(model, 120), **_bill_json(row)}
        for (provider, model), row in ranked
    ]
    return {"rows": rows, "total": _bill_json(total)}


def _bill_json(row: UsageRow) -> JsonObject:
    return {
        "usage": [row.known[name] for name in KINDS],
        "paid": [row.picodollars, row.calls, row.unpriced_calls],
        "unknown": row.unknown_calls,
    }


def _spent_json(info: SessionInfo) -> JsonObject:
    """Return what a session itself has paid. Its calls are those without a price, and one for all others."""
    unpriced = info.unpriced_calls
    calls = unpriced + (info.spent_picodollars > 0)
    return {"tokens": info.known_tokens, "paid": [info.spent_picodollars, calls, unpriced, int(info.is_untold)]}


_SENT = ("input", "cacheRead", "cacheWrite", "output")


def _growth_json(line: Growth) -> JsonObject:
    return {
        "session": line.session,
        "agent": line.agent,
        "turns": [[turn.entry, *(turn.known[name] for name in _SENT), turn.cumulative] for turn in line.turns],
        "compactions": [[mark.after_turn, mark.entry, mark.tokens_before] for mark in line.compactions],
    }
