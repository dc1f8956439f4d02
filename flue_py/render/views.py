"""Paths, contexts, usage, sessions and deletions as lines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from flue_py.core import context, erasure
from flue_py.core.entries import Entry, from_microseconds, readable
from flue_py.core.erasure import Receipt
from flue_py.core.json import Frozen, JsonObject, JsonValue, decode_object
from flue_py.core.kinds import COMPACTION, MESSAGE
from flue_py.core.ledger import Budget, HeldAmount, Unit, UsageReport, UsageRow, checked_zone, shown_amount
from flue_py.core.operations import SessionEvent
from flue_py.core.sessions import (
    Document,
    DocumentInfo,
    DocumentName,
    Edit,
    LogLine,
    Moved,
    Problem,
    SessionInfo,
    StoreInfo,
    TaskLink,
    VerifyReport,
)
from flue_py.core.usage import Usage, UsageWindow, known_cost, picodollars_to_usd, program_of
from flue_py.lazy import expression, lazy_module
from flue_py.render.lines import (
    COST_WIDTH,
    DIFF_STYLES,
    NAME_WIDTH,
    PART_STYLES,
    SIZE_WIDTH,
    Branch,
    Cost,
    Line,
    Look,
    Plan,
    Run,
    Span,
    cells,
    cost_text,
    counted,
    entry_line,
    entry_text,
    fold_line,
    laid_out,
    one_line,
    padded,
    plan_tree,
    printable,
    short_count,
    shortest_ids,
    table,
    text_of,
)

if TYPE_CHECKING:
    from flue_py.render import tools
    from flue_py.search import Part, Place, SearchAnswer, SearchHit, SessionHits, Snippet
else:
    tools = lazy_module("flue_py.render.tools")

# ---------------------------------------------------------------------------------------------------------------------
# Paths, contexts, usage, sessions and deletions as lines.

_NAMELESS = "(empty)"


def path_lines(
    path: Sequence[Entry], look: Look, *, leaf: str | None = None, head: int | None = None, tail: int = 0
) -> list[Line]:
    """Return a path, root to leaf, one line per entry.

    With ``head`` only that many entries from the root and ``tail`` up to the leaf are shown, and one line for
    those between.
    """
    return _path_lines(path, shortest_ids([entry.id for entry in path]), look, leaf, head, tail)


def _path_lines(
    path: Sequence[Entry], ids: Mapping[str, str], look: Look, leaf: str | None, head: int | None, tail: int
) -> list[Line]:
    before, fold = (f"{look.glyphs.on_path} ", "dim"), (f"{look.glyphs.fold} ", "dim")
    return _folded_lines(path, ids, look, before, fold, leaf, len(path) if head is None else head, tail)


def _folded_lines(
    entries: Sequence[Entry],
    ids: Mapping[str, str],
    look: Look,
    before: Span,
    fold: Span,
    leaf: str | None,
    head: int,
    tail: int,
) -> list[Line]:
    """Return lines of the first and the last entries, and one that begins with ``fold`` for those between."""
    cut = head if len(entries) > head + tail + 1 else len(entries)
    end = max(cut, len(entries) - tail)
    lines = [
        entry_line(entry, ids[entry.id], look, before=before, is_leaf=entry.id == leaf)
        for entry in (*entries[:cut], *entries[end:])
    ]
    if entries[cut:end]:
        width = max(cells(ids[entry.id]) for entry in entries)
        lines.insert(cut, fold_line(entries[cut:end], width, look, before=fold))
    return lines


def context_lines(
    items: Sequence[context.ContextEntry], look: Look, *, head: int | None = None, tail: int = 0
) -> list[Line]:
    """Return the context of a model, one line per message with its entry; folded as `path_lines`."""
    ids, entries = shortest_ids([item.entry_id for item in items]), [listed_entry(item) for item in items]
    names = {entry.id: ids[item.entry_id] for entry, item in zip(entries, items, strict=True)}
    return _path_lines(entries, names, look, None, head, tail)


def listed_entry(item: context.ContextEntry) -> Entry:
    """Return the entry that lists of a context have for an item: one of its own for a compaction's system message."""
    if not item.is_prompt:
        return item.entry
    return replace(
        item.entry, id=f"{item.entry_id}:{context.PROMPT}", kind=MESSAGE, role="system", payload=json.dumps(item.data)
    )


def entry_block(entry: Entry, label: str | None = None) -> list[Line]:
    """Return a whole entry: where it is in the tree, and everything it says."""
    facts = [
        ("entry", entry.id),
        ("parent", entry.parent_id or "(a root)"),
        ("kind", entry.kind),
        ("role", one_line(entry.role or "")),
        ("source", entry.source or ""),
        ("label", one_line(label or "")),
        ("session", entry.session_id or "(deleted)"),
        ("created", f"{minute(entry.created_at)} UTC"),
    ]
    lines: list[Line] = table([[(name, "dim"), (value, "")] for name, value in facts if value])
    lines += [(), *body_lines(entry)]
    if entry.extra is not None:
        lines += [(), ((printable(json.dumps(entry.extra_fields, ensure_ascii=False)), "dim"),)]
    return lines


def body_lines(entry: Entry) -> list[Line]:
    """Return everything that an entry says."""
    value = entry.data
    if entry.kind == MESSAGE and isinstance(value, dict):
        return [line for part in tools.shown_parts(value) for line in _part_lines(part)]
    artifact = readable(entry)
    texts = [json.dumps(value if artifact is None else artifact[0], ensure_ascii=False, indent=2)]
    if artifact is not None:
        texts += ["", artifact[1]]
    return [((line, ""),) for text in texts for line in printable(text).splitlines() or [""]]


MOST_OF_A_NEIGHBOUR = 2_000
"""How many characters are shown of an entry that stands before or behind the one that is looked at."""


def body_text(entry: Entry) -> str:
    """Return everything that an entry says as one text."""
    return "\n".join(map(text_of, body_lines(entry)))


def _part_lines(part: tools.Shown) -> Iterator[Line]:
    if part.heading:
        yield ((f"[{one_line(part.heading)}]", "bold"),)
    for line in printable(part.text).splitlines() or [""]:
        yield ((line, DIFF_STYLES.get(line[:1], "") if part.kind == "diff" else PART_STYLES.get(part.kind, "")),)


def context_summary(items: Sequence[context.ContextEntry], tokens: int, *, is_estimate: bool) -> str:
    """Return the size of a context in words."""
    about = "about " if is_estimate else ""
    text = f"{counted(len(items), 'message')}, size {about}{counted(tokens, 'token')}"
    first, *others = [item.kind for item in items if not item.is_prompt] or [""]
    if first == COMPACTION:
        text += "; the first is the summary of what was compacted"
    if (ranges := others.count(COMPACTION)) > 0:
        text += f"; {counted(ranges, 'summary', 'summaries')} of ranges"
    return text


def usage_lines(window: UsageWindow) -> list[Line]:
    """Return a usage window as a table: tokens, and dollars to the last digit; an unknown amount is a dash."""
    usage = window.usage
    kinds = ("input", "output", "cache read", "cache write", "total")
    rows: list[list[Span]] = [[("", ""), ("tokens", "dim"), ("US dollars", "dim")]]
    for name, tokens, cost in zip(kinds, window.known.values(), context.window_costs(window), strict=True):
        style = "bold" if name == "total" else ""
        used = "-" if tokens is None else f"{tokens:,}"
        rows.append([(name, style), (used, style), ("-" if cost is None else dollars(picodollars_to_usd(cost)), style)])
    lines = table(rows, right=frozenset({1, 2}))
    if window.unpriced_calls:
        unpriced = counted(window.unpriced_calls, "call")
        lines.append(((f"what {unpriced} of {window.calls:,} cost is not known, and not in the sum", "yellow"),))
    if window.unknown_calls:
        unknown = counted(window.unknown_calls, "call")
        lines.append(((f"what {unknown} of {window.calls:,} used is not known, and not in the sum", "yellow"),))
    if window.calls and window.tokens != usage.total_tokens:
        lines.append(((f"paid for {counted(window.tokens, 'token')}, branch summaries included; see --path", ""),))
    if not window.on_path:
        lines.append(((f"entry {window.since} is not on the path to {window.leaf}: nothing is counted", "yellow"),))
    return lines


def dollars(amount: Decimal) -> str:
    """Return an exact amount without needless zeros, but with cents."""
    text = format(amount.normalize(), "f")
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction:0<2}"


def session_name(info: SessionInfo, source: SessionInfo | None) -> str:
    """Return the name that people know a session by, everywhere: `SessionInfo.shown_title`, on one line.

    A fork without a name of its own is named after its ``source``, the session that it was forked from; None if that
    is deleted. ``source`` is used only if `needs_source` returns True.
    """
    own = one_line(info.shown_title or "")
    if not needs_source(info):
        return own or _NAMELESS
    origin = "a deleted session" if source is None else one_line(source.shown_title or _NAMELESS)
    return f"{own} (fork of {origin})" if own else f"fork of {origin}"


def needs_source(info: SessionInfo) -> bool:
    """Return whether a session is a fork without a name of its own, which is named after its source."""
    return info.kind == "fork" and not (info.title or info.auto_title or info.key)


def spent(info: SessionInfo, amount: str) -> str:
    """Return the payments of a session itself, marked if some calls have no price; a dash if none has one.

    It is a dash, too, if there are answers of which the ledger has no call.
    """
    if info.known_spent is None:
        return "-"
    return f"{amount} + ?" if info.unpriced_calls else amount


def spent_tokens(info: SessionInfo) -> str:
    """Return the tokens that a session itself has paid for, marked if those of some calls are unknown."""
    if info.known_tokens is None:
        return "-"
    return f"{info.spent_tokens:,}" + " + ?" * bool(info.unknown_calls)


def minute(moment: datetime) -> str:
    """Return a moment to the minute, in UTC."""
    return moment.strftime("%Y-%m-%d %H:%M")


def clipped(line: Line, look: Look) -> Line:
    """Return a line whose last span is cut so that it fits the width of the look."""
    if not line:
        return line
    before = sum(cells(text) for text, _ in line[:-1])
    text, style = line[-1]
    return (*line[:-1], (look.fit(text, max(8, look.width - before)), style))


def facts_lines(facts: Sequence[tuple[str, str]], look: Look) -> list[Line]:
    """Return names and values, one pair per line, without empty values."""
    rows: list[list[Span]] = [[(name, "dim"), (value, "")] for name, value in facts if value]
    return [clipped(line, look) for line in table(rows)]


def session_facts(info: SessionInfo, name: str) -> list[tuple[str, str]]:
    """Return the facts about a session, from its row and its name."""
    return [
        ("session", info.id),
        ("name", name),
        ("title", one_line(info.title or "")),
        ("made title", one_line(info.auto_title or "")),
        ("key", "" if info.key is None else repr(info.key)),
        ("scope", one_line(info.scope)),
        ("kind", info.kind),
        ("forked from", _fork_point(info)),
        ("leaf", info.leaf_id or "(before the first entry)"),
        ("own entries", f"{info.entry_count:,}, {info.message_count:,} of them messages"),
        ("spent", f"{spent_tokens(info)} tokens, {spent(info, f'${dollars(info.spent)}')}"),
        ("revision", f"{info.revision:,}"),
        ("folder", one_line(info.cwd or "")),
        ("created", f"{minute(info.created_at)} UTC"),
        ("last active", f"{minute(info.active_at)} UTC"),
        ("changed", f"{minute(info.updated_at)} UTC"),
    ]


def _fork_point(info: SessionInfo) -> str:
    if info.forked_from_session is None:
        return ""
    return f"{info.forked_from_session} at {info.forked_from_entry or 'the beginning'}"


def receipt_lines(receipt: Receipt, names: Mapping[str, str], verb: str = "deleted") -> list[Line]:
    """Return the effect of a deletion or an erasure, made or planned. ``names`` are the sessions' names, by id."""
    look = receipt.look
    verb = f"{'would be ' * receipt.dry_run}{verb}"
    words = {"entries": "entry", "memories": "memory"}
    counts = [(name, count) for name, count in receipt.counts.items() if name != "calls"]
    parts = [counted(count, words.get(name, name[:-1]), name) for name, count in counts]
    lines: list[Line] = [((f"{', '.join(parts)} {verb}", "bold"),)]
    lines += [((f"  {name}", "red"), (f"  {names.get(name, '')}", "")) for name in receipt.session_ids]
    if receipt.redacted:
        entries = counted(receipt.redacted, "entry", "entries")
        lines.append(((f"{entries} {'would lose' if receipt.dry_run else 'lost'} their texts: redacted", "bold"),))
    if receipt.entries_kept:
        staying = counted(receipt.entries_kept, "entry", "entries")
        lines.append(((f"{staying} stay, because other sessions see them", ""),))
    if receipt.missing_ids:
        lines.append(((f"linked but not there: {', '.join(receipt.missing_ids)}", "yellow"),))
    if calls := receipt.counts.get("calls"):
        lines.append(((f"what was paid stays: {counted(calls, 'paid call')}, without agents and folders", ""),))
    if receipt.seen_by:
        lines.append(((f"seen by {', '.join(receipt.seen_by)}", "yellow"),))
    if receipt.may_quote:
        lines.append(((f"summaries that may quote it: {', '.join(receipt.may_quote)}", "yellow"),))
    if look is None:
        return lines
    return lines + look_lines(look, receipt.size, is_complete=receipt.is_complete)


def look_lines(look: erasure.Look, size: int, *, is_complete: bool) -> list[Line]:
    """Return where ``size`` bytes were looked for after they were erased, and whether something is left."""
    texts = f"{size:,} bytes looked for, wherever {look.run_bytes} of them are in a row,"
    lines: list[Line] = [((f"{texts} in {counted(len(look.places), 'file or table', 'files and tables')}", ""),)]
    if look.unsampled:
        lines.append(((f"{counted(look.unsampled, 'text')} not looked for: too short, or too plain", "yellow"),))
    lines += [((str(trace), "red"),) for trace in look.traces]
    lines += [((f"{trace}, in rows that stay", "yellow"),) for trace in look.stays]
    lines += [((hindrance, "red"),) for hindrance in look.hindrances]
    lines += [((f"out of reach: {place}", "dim"),) for place in look.out_of_reach]
    outcome = "complete: nothing of it is left" if is_complete else "not complete"
    return [*lines, ((outcome, "bold"),)]


def store_facts(info: StoreInfo) -> list[tuple[str, str]]:
    """Return the facts about a store, as names and values."""
    return [
        ("store", info.location),
        ("backend", info.backend),
        ("format", str(info.format_version)),
        ("sessions", f"{info.sessions:,}"),
        ("entries", f"{info.entries:,}"),
        ("paid calls", f"{info.ledger_rows:,}"),
        ("documents", f"{info.documents:,}" if info.documents else ""),
        ("size", "" if info.size_bytes is None else f"{info.size_bytes:,} bytes"),
        ("key", info.key or ""),
    ]


# ---------------------------------------------------------------------------------------------------------------------
# What was paid, as a table: tokens by kind, and dollars to the last digit. An unknown amount is a dash.

DASH = "-"
_TOKENS = ("input", "output", "cacheRead", "cacheWrite", "totalTokens")
_FOLDER = 36
_NUMBERS = ("calls", "input", "output", "cache read", "cache write", "tokens", "US dollars")


def bill_lines(report: UsageReport, group_by: Sequence[str]) -> list[Line]:
    """Return a report as a table with a line for each group, and the total."""
    rows: list[list[Span]] = [[(name.replace("_", " "), "dim") for name in (*group_by, *_NUMBERS)]]
    rows += [_row([_shown(name, row.group[name]) for name in group_by], row, "") for row in report.rows]
    rows.append(_row(["total", *[""] * (len(group_by) - 1)][: len(group_by)], report.total, "bold"))
    lines = table(rows, right=frozenset(range(len(group_by), len(group_by) + len(_NUMBERS))))
    lines += [((note, "yellow"),) for note in gaps(report.total)]
    if not report.on_path:
        lines.append((("that entry is not on the path: nothing is counted", "yellow"),))
    return lines


def gaps(paid: UsageRow) -> list[str]:
    """Return in words how many calls are not in the sums, because their cost or their tokens are unknown."""
    notes = []
    unpriced = paid.unpriced_calls - paid.unknown_calls
    if unpriced:
        calls = "1 call has" if unpriced == 1 else f"{unpriced:,} calls have"
        notes.append(f"{calls} no known cost: the tokens are counted, the dollars are not")
    if paid.unknown_calls:
        calls = "1 call has" if paid.unknown_calls == 1 else f"{paid.unknown_calls:,} calls have"
        notes.append(f"{calls} unknown usage: neither tokens nor dollars are counted")
    return notes


def _shown(name: str, value: str | date | None) -> str:
    if isinstance(value, date):
        return value.isoformat()
    return short_folder(value) if name == "project" and value else value or DASH


def short_folder(folder: str) -> str:
    """Return a folder on one line, with ``~`` for the reader's home directory; a long one is cut at its beginning."""
    home = str(Path.home()).rstrip("/\\")
    rest = folder[len(home) :]
    text = one_line(f"~{rest}" if home and folder.startswith(home) and rest[:1] in ("", "/", "\\") else folder)
    return text if len(text) <= _FOLDER else f"…{text[1 - _FOLDER :]}"


def _row(group: list[str], row: UsageRow, style: str) -> list[Span]:
    shown = [DASH if row.known[name] is None else f"{row.known[name]:,}" for name in _TOKENS]
    cost = DASH if row.cost is None else dollars(row.cost)
    return [(text, style) for text in (*group, f"{row.calls:,}", *shown, cost)]


# ---------------------------------------------------------------------------------------------------------------------
# Values as JSON for programs: what ``--json`` prints. Keys are camelCase, times ISO 8601 in UTC.
#
# Money is an exact decimal string in US dollars: programs would round a JSON number.


def iso(moment: datetime) -> str:
    """Return a moment as ISO 8601 text in UTC, to the microsecond."""
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def exact(amount: Decimal) -> str:
    """Return an exact amount as plain digits, without an exponent and without needless zeros."""
    return format(amount.normalize(), "f")


def row_of(value: object, names: str) -> JsonObject:
    """Return attributes of a value by their names in camelCase: times as ISO 8601, exact amounts as texts.

    ``names`` are separated by spaces; ``sessionId=child_id`` gives an attribute another key. An attribute that ends
    in ``_us`` is a time in microseconds.
    """
    return {key: _json_of(getattr(value, attribute), attribute) for key, attribute in _keys_of(names)}


@cache
def _keys_of(names: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for name in names.split():
        key, _, attribute = name.rpartition("=")
        first, *words = attribute.split("_")
        pairs.append((key or first + "".join(map(str.capitalize, words)), attribute))
    return tuple(pairs)


def _json_of(value: object, attribute: str) -> JsonValue:
    if isinstance(value, int) and attribute.endswith("_us"):
        return iso(from_microseconds(value))
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, Decimal):
        return exact(value)
    return cast("JsonValue", [*value] if isinstance(value, tuple) else value)


def entry_row(entry: Entry) -> JsonObject:
    """Return a whole entry: its links, its payload, and the further fields of an imported row."""
    names = "id parent_id session_id kind role source depth created_at"
    row: JsonObject = {**row_of(entry, names), "payload": entry.data}
    if entry.extra is not None:
        row["extra"] = entry.extra_fields
    return row


def tree_row(
    session: SessionInfo,
    name: str,
    entries: Sequence[Entry],
    labels: Mapping[str, str],
    sizes: Mapping[str, int],
    sizes_counted: bool,
    branches: Sequence[tuple[Branch, Cost | None]] = (),
    costs: Mapping[str, context.EntryCost] | None = None,
) -> JsonObject:
    """Return a session's tree: every entry, parents before children, with its size but without its payload.

    ``costs`` are of the entries that are calls. ``spentTokens`` and ``spent`` are payments of the session itself;
    the ``size`` of an entry is how many tokens of a context it takes: counted, or estimated.
    """
    rows: list[JsonValue] = []
    for entry in entries:
        row = row_of(entry, "id parent_id kind role depth created_at")
        row |= {"text": entry_text(entry), "size": sizes.get(entry.id)}
        if entry.id in labels:
            row["label"] = labels[entry.id]
        if costs is not None and entry.id in costs:
            row.update(entry_cost_fields(costs[entry.id]))
        rows.append(row)
    return {
        "sessionId": session.id,
        "name": name,
        "leafId": session.leaf_id,
        **spent_fields(session),
        "sizesCounted": sizes_counted,
        "entries": rows,
        "branches": [
            {**row_of(branch, "fromId=parent_id tip_id entries active=is_active"), **cost_fields(cost)}
            for branch, cost in branches
        ],
    }


def spent_fields(info: SessionInfo) -> JsonObject:
    """Return the payments of a session itself: tokens, and dollars as an exact decimal; null if unknown."""
    return row_of(info, "spentTokens=known_tokens spent=known_spent unpriced_calls unknown_calls")


def cost_fields(cost: Cost | None) -> JsonObject:
    """Return a cost in dollars, null if unknown, and whether it includes every call."""
    if cost is None:
        return {"cost": None, "costIsWhole": True}
    usd = known_cost(cost.picodollars, cost.is_partial)
    return {"cost": None if usd is None else exact(usd), "costIsWhole": not cost.is_partial}


def entry_cost_fields(cost: context.EntryCost) -> JsonObject:
    """Return the cost of an entry in the ledger: dollars, null if unknown, and whether they include every call."""
    return row_of(cost, "cost=usd costIsWhole=is_whole")


def usage_row(window: UsageWindow) -> JsonObject:
    """Return a usage window: tokens as integers, costs as exact decimal strings; null if unknown."""
    names = ("input", "output", "cacheRead", "cacheWrite", "total")
    costs = dict(zip(names, context.window_costs(window), strict=True))
    return {
        **window.known,
        "cost": {name: None if cost is None else exact(picodollars_to_usd(cost)) for name, cost in costs.items()},
        **row_of(window, "calls unpriced_calls unknown_calls"),
        "paidTokens": None if context.is_unknown(window) else window.tokens,
        **row_of(window, "sinceId=since leafId=leaf on_path"),
    }


def tokens_and_cost(usage: Usage, told: frozenset[str]) -> JsonObject:
    """Return tokens by kind, null for a 0 that ``told`` does not name, and the cost of each kind as decimal text."""
    costs = row_of(usage.cost, "input output cache_read cache_write total")
    return {
        **usage.known(told),
        "cost": {name: exact(picodollars_to_usd(cast("int", cost))) for name, cost in costs.items()},
    }


def session_row(info: SessionInfo, name: str) -> JsonObject:
    """Return the row of a session, and the name that people know it by (`session_name`)."""
    origin, entry_id = info.forked_from_session, info.forked_from_entry
    return {
        "id": info.id,
        "name": name,
        **row_of(info, "key title auto_title scope kind"),
        "forkedFrom": None if origin is None else {"sessionId": origin, "entryId": entry_id},
        **row_of(info, "leaf_id revision cwd entry_count message_count first_message"),
        **spent_fields(info),
        **row_of(info, "metadata completedAt=completed_us created_at active_at updated_at"),
    }


def task_row(link: TaskLink) -> JsonObject:
    """Return a link from a parent to a task session."""
    return row_of(link, "task_id sessionId=child_id entry_id status summary")


def moved_row(session_id: str, moved: Moved | None, leaf: str | None) -> JsonObject:
    """Return the effect of a move, a rewind, an undo or a redo; ``moved`` is False if there was nothing to do."""
    return {
        "sessionId": session_id,
        "moved": moved is not None,
        "reason": None if moved is None else moved.reason,
        "fromId": leaf if moved is None else moved.from_id,
        "leafId": leaf if moved is None else moved.to_id,
    }


def verify_row(report: VerifyReport) -> JsonObject:
    """Return the numbers of a verification, and the problems found."""
    return {**row_of(report, "sessions entries"), "problems": problem_rows(report.problems)}


def problem_rows(problems: Iterable[Problem]) -> list[JsonValue]:
    """Return the problems that a verification found."""
    return [row_of(problem, "kind where detail") for problem in problems]


def store_row(info: StoreInfo) -> JsonObject:
    """Return the facts about a store."""
    return row_of(info, "location backend format_version sessions entries ledger_rows documents size_bytes key")


# ---------------------------------------------------------------------------------------------------------------------
# Budgets as people read them, and as JSON for programs.


def budget_row(budget: Budget) -> JsonObject:
    """Return a budget: tokens as numbers, money as decimal strings in US dollars."""
    amounts = ("allowed", "spent", "reserved", "left")
    return {
        **row_of(budget, "id covers session_id scope"),
        "unit": "tokens" if budget.unit == "tokens" else "usd",
        **{name: _amount(getattr(budget, name), budget.unit) for name in amounts},
        **({} if budget.fault is None else {"spent": None, "left": None, "fault": budget.fault}),
        "beganWith": _amount(budget.seeded, budget.unit),
        **row_of(budget, "period tz periodBegan=began_us periodEnds=ends_us created_at updatedAt=updated_us"),
    }


def held_row(reservation: HeldAmount, unit: Unit) -> JsonObject:
    """Return how much of a budget one reservation has set aside."""
    return {
        **row_of(reservation, "reservation_id session_id"),
        "amount": _amount(reservation.amount, unit),
        **row_of(reservation, "createdAt=created_us expiresAt=expires_us"),
    }


def _amount(amount: int, unit: Unit) -> JsonValue:
    return amount if unit == "tokens" else exact(picodollars_to_usd(amount))


def budget_lines(budgets: Sequence[Budget]) -> list[Line]:
    """Return budgets, one line each: id, amounts left, spent, reserved and allowed, and the sessions it covers."""
    short = shortest_ids([budget.id for budget in budgets], least=8)
    names = ("budget", "left", "spent", "reserved", "allowed", "covers")
    rows: list[list[Span]] = [[(name, "dim") for name in names]]
    for budget in budgets:
        others = (shown_amount(amount, budget.unit) for amount in (budget.reserved, budget.allowed))
        cells: list[Span] = [(text, "") for text in (*_known_amounts(budget), *others)]
        if budget.left <= 0:
            cells[0] = (cells[0][0], "red")
        rows.append([(short[budget.id], "bold"), *cells, (budget.target, "")])
    faults: list[Line] = [((budget.fault, "red"),) for budget in budgets if budget.fault is not None]
    return [*table(rows, right=frozenset({1, 2, 3, 4})), *faults]


def _known_amounts(budget: Budget) -> tuple[str, str]:
    """Return what is left of a budget and what was spent; dashes if nobody knows."""
    if budget.fault is not None:
        return DASH, DASH
    return shown_amount(budget.left, budget.unit), shown_amount(budget.spent, budget.unit)


def period_end(budget: Budget) -> str:
    """Return when the period of a budget ends, in its zone; "" without one."""
    if budget.ends_at is None or budget.tz is None:
        return "" if budget.fault is None else f"unknown: {printable(repr(budget.tz))} is no zone known here"
    return f"{budget.ends_at.astimezone(checked_zone(budget.tz) or UTC):%Y-%m-%d %H:%M} ({budget.tz})"


def budget_facts(budget: Budget, held: Sequence[HeldAmount]) -> list[tuple[str, str]]:
    """Return a budget as facts for people, with its reservations."""
    unit, (left, spent) = budget.unit, _known_amounts(budget)
    facts = [
        ("budget", budget.id),
        ("covers", budget.target),
        ("allowed", shown_amount(budget.allowed, unit)),
        ("spent", spent),
        ("began with", shown_amount(budget.seeded, unit) if budget.seeded else ""),
        ("reserved", shown_amount(budget.reserved, unit)),
        ("left", left),
        ("period ends", period_end(budget)),
    ]
    facts += [("held", _held_text(reservation, unit)) for reservation in held]
    return facts


def _held_text(reservation: HeldAmount, unit: Unit) -> str:
    until = minute(from_microseconds(reservation.expires_us))
    amount = shown_amount(reservation.amount, unit)
    return f"{amount} by reservation {reservation.reservation_id} of session {reservation.session_id}, until {until}"


# ---------------------------------------------------------------------------------------------------------------------
# Costs in words, and what the lines and branches of a tree cost. An unknown cost is a dash, never 0.


def whole_cost_text(cost: context.EntryCost) -> str:
    """Return a cost in dollars to the last digit, marked if some calls have none; a dash if no call has one."""
    if not cost.is_known:
        return "-"
    return dollars(picodollars_to_usd(cost.picodollars)) + " + ?" * (cost.unpriced_calls > 0)


def short_cost(cost: context.EntryCost) -> Cost:
    """Return a cost in the form of a column."""
    return Cost(cost.picodollars, is_partial=not cost.is_whole)


def plan_costs(
    plan: Plan, entries: Sequence[Entry], costs: Mapping[str, context.EntryCost], *, whole: bool = False
) -> tuple[dict[str, Cost], dict[str, Cost]]:
    """Return the costs of the lines of a plan, by the id of their last entry, and the branches, by that of their tip.

    ``costs`` are of single entries. Lines and branches without calls are left out. Without ``whole``, so are
    branches of one line, whose cost that line shows already. O(entries).
    """
    by_id = {entry.id: entry for entry in entries}
    lines: dict[str, Cost] = {}
    for run in plan.runs:
        paid = [costs[entry.id] for entry in run.entries if entry.id in costs]
        if paid:
            lines[run.id] = short_cost(context.total_cost(paid))
    paid_lines = Counter(run.branch.tip_id for run in plan.runs if run.id in lines)
    branches: dict[str, Cost] = {}
    for branch in plan.branches:
        if not whole and paid_lines[branch.tip_id] < 2:
            continue
        paid = [costs[entry_id] for entry_id in _line_of(branch, by_id) if entry_id in costs]
        if paid:
            branches[branch.tip_id] = short_cost(context.total_cost(paid))
    return lines, branches


def _line_of(branch: Branch, by_id: Mapping[str, Entry]) -> Iterator[str]:
    at: str | None = branch.tip_id
    for _ in range(branch.entries):
        if at is None:
            return
        yield at
        at = by_id[at].parent_id


# ---------------------------------------------------------------------------------------------------------------------
# Two leaves side by side: as lines for people, and as JSON for programs.

_SHOWN_AT_EITHER_END = 8


def diff_lines(
    diff: context.LeafDiff, ancestor: Entry | None, names: Mapping[str, str], look: Look, *, show_all: bool
) -> list[Line]:
    """Return the common part of two leaves, then the part of each; long stretches are folded unless ``show_all``.

    ``names`` are the names of the sessions, by id.
    """
    entries = [*diff.left.entries, *diff.right.entries] + ([] if ancestor is None else [ancestor])
    ids = shortest_ids([entry.id for entry in entries])
    lines: list[Line] = []
    if ancestor is None:
        lines.append((("nothing in common", "bold"),))
    else:
        lines.append(((f"in common up to depth {ancestor.depth:,}:", "bold"),))
        lines.append(entry_line(ancestor, ids[ancestor.id], look, before=(f"{look.glyphs.on_path} ", "dim")))
    for sign, side, style in (("-", diff.left, "red"), ("+", diff.right, "green")):
        lines.append(())
        lines.append(((f"{sign} {one_line(names[side.session_id])}", f"bold {style}"), (f"  {_place(side)}", "dim")))
        lines += [((f"  {fact}", ""),) for fact in _facts(side)]
        before, ends = (f"{sign} ", style), len(side.entries) if show_all else _SHOWN_AT_EITHER_END
        lines += _folded_lines(side.entries, ids, look, before, before, side.leaf_id, ends, ends)
    return lines


def _place(side: context.DiffSide) -> str:
    return f"session {side.session_id}, {'before the first entry' if side.leaf_id is None else f'leaf {side.leaf_id}'}"


def _facts(side: context.DiffSide) -> list[str]:
    """Return in words the part of this side alone: messages, cost, tools."""
    if not side.entries:
        return ["nothing of its own"]
    roles = ", ".join(f"{number:,} {one_line(role)}" for role, number in side.messages.items())
    is_known = side.usage.known(side.told)["totalTokens"] is not None
    tokens = side.usage.totals.tokens if is_known else None
    cost = f"${whole_cost_text(side.cost)}" if side.cost.is_known else "cost unknown"
    facts = [
        counted(len(side.entries), "entry", "entries") + (f" ({roles})" if roles else ""),
        f"{'tokens unknown' if tokens is None else counted(tokens, 'token')}, {cost}",
    ]
    tools = [
        f"{one_line(name)} {use.calls:,}" + (f" ({use.errors:,} failed)" if use.errors else "")
        for name, use in side.tools.items()
    ]
    return facts + ([f"tools: {', '.join(tools)}"] if tools else [])


def diff_row(diff: context.LeafDiff) -> JsonObject:
    """Return two leaves as JSON: the common ancestor's id, and the part of each side."""
    return {"ancestorId": diff.ancestor_id, "same": diff.is_same, "left": _side(diff.left), "right": _side(diff.right)}


def _side(side: context.DiffSide) -> JsonObject:
    return {
        **row_of(side, "session_id leaf_id"),
        "messages": dict(side.messages),
        "kinds": dict(side.kinds),
        "tools": {name: row_of(use, "calls errors") for name, use in side.tools.items()},
        "usage": tokens_and_cost(side.usage, side.told),
        **entry_cost_fields(side.cost),
        "entries": [entry_row(entry) for entry in side.entries],
    }


# ---------------------------------------------------------------------------------------------------------------------
# Documents as people read them, and as JSON for programs.


def info_row(info: DocumentInfo) -> JsonObject:
    """Return a document without its text."""
    return {
        **row_of(info, "name type space"),
        "project": info.project or None,
        **row_of(info, "scope source characters=chars createdAt=created_us changedAt=changed_us"),
    }


def document_row(document: Document) -> JsonObject:
    """Return a document with its text."""
    return {**info_row(document.info), "text": document.body}


def place_of(document: DocumentInfo | DocumentName) -> str:
    """Return in words whose memory it is, and for which folder; "" for that of the REPL for all folders."""
    agent = document.space.removeprefix("agents/")
    whose = f" of agent {printable(agent)}" if agent != document.space else ""
    return f"{whose} for {printable(document.project)}" if document.project else whose


def memory_lines(memories: Sequence[Document]) -> list[Line]:
    """Return memories: a head for each agent and folder, and below it each memory, with the lines of its text."""
    lines: list[Line] = []
    last = None
    for memory in memories:
        if (memory.info.space, memory.info.project) != last:
            last = (memory.info.space, memory.info.project)
            lines.append(((f"memory{place_of(memory.info)}", "dim"),))
        first, *others = memory.body.strip().splitlines() or [""]
        lines.append(
            ((f"  [{printable(memory.type)}] ", "dim"), (f"{printable(memory.name)}: ", "bold"), (printable(first), ""))
        )
        lines += [((f"    {printable(line)}", ""),) for line in others]
    return lines


# ---------------------------------------------------------------------------------------------------------------------
# Events as JSON for programs.

_FIELDS = (
    "entry_id what words role model provider stop_reason tool call_id is_error from_id to_id kept_id tokens_before "
    "other_session_id status by why budget_id scope unit allowed spent period periodBegan=period_began_us"
)


def event_row(event: SessionEvent) -> JsonObject:
    """Return an event; fields that it does not have are left out."""
    fields = {name: value for name, value in row_of(event, _FIELDS).items() if value is not None}
    return {**row_of(event, "id session=session_id time=at type"), **fields}


# ---------------------------------------------------------------------------------------------------------------------
# Sessions as people list them: what each is about, where, with which model, when, how much.

_DATED = expression(r"[-@_]?(20\d{2}-?\d{2}-?\d{2})$")
_COLUMNS = ("session", "active", "msgs", "$", "project", "model", "title")
_RIGHT = frozenset({2, 3})
_NARROW, _NAMES = 80, 10
"""At 80 cells a project and a model get 10 each. Of a wider screen, each gets an eighth of the rest."""


class ListedSession(Frozen):
    """A session as lists show it: ``name`` is the one that people know it by, ``model`` that of most of its calls.

    Its program, project or model is "" if it has none.
    """

    info: SessionInfo
    name: str
    program: str
    project: str
    model: str


def listed_session(info: SessionInfo, name: str, model: str) -> ListedSession:
    """Return a session as lists show it."""
    return ListedSession(info, name, program_of(info.metadata) or "", project_name(info), model)


def session_lines(sessions: Sequence[ListedSession], look: Look) -> list[Line]:
    """Return sessions, one line each: id, day of the last activity (UTC), messages, cost, project, model, title.

    The columns of projects and models are left out if no session has one.
    """
    short = shortest_ids([row.info.id for row in sessions], least=8, most=36)
    width = name_width(look.width)
    rows: list[list[Span]] = [[(name, "dim") for name in _COLUMNS]]
    for row in sessions:
        info = row.info
        rows.append(
            [
                (short[info.id], "bold"),
                (f"{info.active_at:%Y-%m-%d}", "dim"),
                (short_count(info.message_count), ""),
                (spent(info, cost_text(Cost(info.spent_picodollars))), ""),
                (look.fit(row.project, width), ""),
                (look.fit(short_model(row.model), width), "dim"),
                (f"task: {row.name}", "yellow") if info.kind == "task" else (row.name, ""),
            ]
        )
    columns = [at for at in range(len(_COLUMNS)) if at not in (4, 5) or any(cells[at][0] for cells in rows[1:])]
    shown = [[cells[at] for at in columns] for cells in rows]
    return [clipped(line, look) for line in table(shown, right=_RIGHT)]


def damaged_lines(session_ids: Iterable[str]) -> list[Line]:
    """Return a line for each session that is damaged, which says what to do."""
    advice = "damaged, or changed by other means: flue-py verify says more, restore a backup, or rescue it by salvage"
    return [((one_line(session_id), "bold"), (f"  {advice}", "red")) for session_id in session_ids]


def name_width(width: int) -> int:
    """Return the cells for a program, a project or a model in lists of this width."""
    return _NAMES + max(0, width - _NARROW) // 8


def project_name(info: SessionInfo) -> str:
    """Return the last part of the folder that a session works in (POSIX or Windows); "" if it has none."""
    return one_line(PureWindowsPath(info.cwd).name or info.cwd) if info.cwd else ""


def short_model(name: str) -> str:
    """Return a model's name without its provider, its maker's prefix and the date of its release."""
    return one_line(_DATED.sub("", name.rpartition("/")[2]).removeprefix("claude-"))


# ---------------------------------------------------------------------------------------------------------------------
# The log of a session as lines, newest first.

_WIDE = 60


def log_lines(lines: Sequence[LogLine], look: Look) -> list[Line]:
    """Return lines of a log: revision, time, operation, entries, by whom and why."""
    entry_ids = {
        entry_id for line in lines for entry_id in (line.from_id, line.to_id, *_edited(line)) if entry_id is not None
    }
    short = shortest_ids(sorted(entry_ids))
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
        parts.append(f"{_log_place(line.from_id, short)} -> {_log_place(line.to_id, short)}")
    if line.entry_count:
        parts.append(counted(line.entry_count, "entry", "entries"))
    parts += [_edit(edit, short) for edit in line.edits]
    if line.words is not None and not line.edits:
        parts.append(f'"{one_line(line.words)}"')
    text = ", ".join(parts)
    text += "" if line.by is None else f" (by {one_line(line.by)})"
    return text + ("" if line.why is None else f": {one_line(line.why)}")


def _log_place(entry_id: str | None, short: dict[str, str]) -> str:
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
    """Return the fields of a task in words, with the id of its session."""
    task = decode_object(text or "{}")
    words = [one_line(str(task[name]), 60) for name in ("childId", "status", "summary") if task.get(name) is not None]
    return " ".join(words)


def _value(text: str | None) -> str:
    return "(none)" if text is None else one_line(text, _WIDE)


def log_row(line: LogLine) -> JsonObject:
    """Return a line of a log as JSON for programs."""
    return {
        **row_of(line, "session_id revision what at from_id to_id entry_count entry_ids kinds"),
        "edits": [row_of(edit, "what entry_id before after") for edit in line.edits],
        **row_of(line, "refers_to by why words"),
    }


# ---------------------------------------------------------------------------------------------------------------------
# What a search found, as lines and as JSON.

_PARTS: Mapping[Part, str] = {
    "messages": "message",
    "tools": "tool",
    "thinking": "thinking",
    "titles": "title",
    "summaries": "summary",
}
_WHERE: Mapping[Place, str] = {
    "active": "",
    "abandoned": "on another branch",
    "compacted": "compacted away",
    "title": "the title",
}


def search_lines(answer: SearchAnswer, names: Mapping[str, str]) -> Iterable[Line]:
    """Yield the hits, session by session, and then the extent of the search. ``names`` are those of sessions, by id."""
    for group in answer.sessions:
        yield from _group_lines(group, names[group.session.id])
    if answer.has_more:
        yield (("there is more: --limit shows more of it", "dim"),)
    yield ((searched_text(answer), "dim"),)


def _group_lines(group: SessionHits, name: str) -> Iterable[Line]:
    yield group_line(group, name)
    for hit in group.hits:
        yield from hit_lines(hit)
        yield ((f"    {printable(hit.go)}", "cyan"),)
    yield ()


def group_line(group: SessionHits, name: str) -> Line:
    """Return the head of the hits in a session."""
    return ((name, "bold"), (f"  {one_line(group.session.id)}, up to revision {group.revision}", "dim"))


def hit_lines(hit: SearchHit) -> tuple[Line, Line]:
    """Return the kind of a hit and where it lies, and the piece of text with its matches in bold."""
    return (("  ", ""), *_search_facts(hit)), (("    ", ""), *_marked(hit.snippet))


def _search_facts(hit: SearchHit) -> tuple[Span, ...]:
    facts = [hit.role or _PARTS[hit.part], hit.tool, _WHERE[hit.place], "by its id" if hit.by_id else None]
    text = ", ".join(one_line(fact) for fact in facts if fact)
    cut = " (only its beginning is searched)" if hit.is_cut else ""
    return ((minute(from_microseconds(hit.at_us)), "dim"), (f" {text}{cut}", ""))


def _marked(snippet: Snippet) -> Iterable[Span]:
    """Yield a snippet with its matches in bold."""
    at = 0
    for start, end in snippet.matches:
        yield printable(snippet.text[at:start]), ""
        yield printable(snippet.text[start:end]), "bold yellow"
        at = end
    yield printable(snippet.text[at:]), ""


def searched_text(answer: SearchAnswer) -> str:
    """Return the extent and the way of a search, in one line."""
    searched = answer.searched
    text = f"searched {counted(searched.entries, 'entry', 'entries')} of {counted(searched.sessions, 'session')}"
    if searched.newest is not None:
        session_id, revision = searched.newest
        whose = "" if searched.sessions == 1 else f" of {one_line(session_id)}, which was active last"
        text += f" up to revision {revision}{whose},"
    text += f" in {', '.join(searched.parts)}"
    if searched.left_out:
        text += f"; not in {', '.join(searched.left_out)}"
    if searched.why_not is not None:
        text += f"; {one_line(searched.why_not)}"
    if answer.damaged:
        text += "; not in what is damaged"
    return text


def search_row(answer: SearchAnswer, names: Mapping[str, str]) -> JsonObject:
    """Return an answer as JSON."""
    searched = answer.searched
    return {
        **row_of(answer, "words how"),
        "hits": [_hit_row(group, hit, names[group.session.id]) for group in answer.sessions for hit in group.hits],
        "hasMore": answer.has_more,
        "searched": {
            **row_of(searched, "sessions entries revisions"),
            "newest": searched.newest and dict(zip(("sessionId", "revision"), searched.newest, strict=True)),
            **row_of(searched, "parts left_out by_index why_not"),
        },
        **row_of(answer, "widen suggestions damaged"),
    }


def _hit_row(group: SessionHits, hit: SearchHit, name: str) -> JsonObject:
    return {
        "sessionId": hit.session_id,
        "sessionName": name,
        "scope": group.session.scope,
        "revision": group.revision,
        **row_of(hit, "entry_id part role tool at=at_us place"),
        "snippet": hit.snippet.text,
        "matches": [list(match) for match in hit.snippet.matches],
        **row_of(hit, "is_cut go by_id"),
    }


# ---------------------------------------------------------------------------------------------------------------------
# The tree of a session's entries as lines: a graph with its branches, its leaf, its labels, sizes and costs.
#
# Which entries share a line is decided in `branches`; here the lines are written.

_FORKS_AN_ENTRY = 3
_LISTED = 20
_ACTIVE = "bold green"


def tree_lines(
    entries: Sequence[Entry],
    leaf: str | None,
    look: Look,
    *,
    fold: bool = True,
    costs: Mapping[str, context.EntryCost] | None = None,
) -> list[Line]:
    """Return the tree of ``entries`` (every branch, parents before children) as lines of ``look.width`` cells.

    Without ``fold`` every entry has a line of its own; otherwise as `plan_tree`, with labels as landmarks. ``costs``
    are of single entries, by id. Cost: O(entries).
    """
    plan = plan_tree(entries, leaf, fold=fold, landmarks=look.labels or {})
    if costs is not None:
        of_lines, of_branches = plan_costs(plan, entries, costs)
        look = replace(look, costs=of_lines, branch_costs=of_branches)
    return plan_lines(plan, leaf, look)


def plan_lines(
    plan: Plan,
    leaf: str | None,
    look: Look,
    *,
    forks: Mapping[str, Sequence[SessionInfo]] | None = None,
    links: Sequence[TaskLink] = (),
    tasks: Mapping[str, SessionInfo] | None = None,
) -> list[Line]:
    """Return the lines of a plan, below a head if there are costs, and the number of folded branches at the end.

    ``forks`` are the sessions that begin at an entry, by its id; ``tasks`` the sessions that ``links`` lead to, by
    their ids. Each is drawn where it began. ``look.sizes`` are of single entries, ``look.costs`` of runs, by the
    id of their last entry.
    """
    ids = shortest_ids([entry.id for run in plan.runs for entry in run.entries])
    id_width = max((cells(short) for short in ids.values()), default=0)
    lines: list[Line] = []
    if look.costs is not None and plan.runs:
        lines.append(_head(look))
    for run in plan.runs:
        lines.append(_run_line(run, padded(ids[run.id], id_width), plan, leaf, look))
        begun = (forks or {}).get(run.id, ())
        guide = " " * (id_width + 1) + look.glyphs.along * run.branch.nesting
        lines += list(_fork_lines(begun, guide, look))
        lines += [_task_line(link, tasks or {}, guide, look) for link in links if link.entry_id == run.id]
    if plan.folded_branches:
        text = f"{counted(plan.folded_branches, 'branch', 'branches')} folded away"
        lines.append(((f"{text}, with {counted(plan.folded_entries, 'entry', 'entries')}; see --all, --depth", "dim"),))
    return lines


def _head(look: Look) -> Line:
    text = padded("size", SIZE_WIDTH, right=True) + padded("$", COST_WIDTH, right=True)
    return ((padded(text, look.width, right=True), "dim"),)


def _run_line(run: Run, short_id: str, plan: Plan, leaf: str | None, look: Look) -> Line:
    is_active = run.id in plan.active
    sign = look.glyphs.on_path if is_active else look.glyphs.off_path
    deep = run.branch.nesting
    guide = look.glyphs.along * (deep - 1) + look.glyphs.side if run.opens and deep else look.glyphs.along * deep
    before: Span = (f"{sign} ", _ACTIVE if is_active else "dim")
    marks = _marks(run, look)
    if len(run.entries) == 1:
        return entry_line(
            run.entries[0],
            short_id,
            look,
            before=before,
            guide=(guide, "dim"),
            is_leaf=run.id == leaf,
            marks=marks,
            is_faint=not is_active,
        )
    messages = sum(entry.kind == MESSAGE for entry in run.entries)
    name = f"{short_count(messages)} msg{'s' * (messages != 1)}" if messages else f"{len(run.entries):,} more"
    size = sum((look.sizes or {}).get(entry.id, 0) for entry in run.entries)
    first: tuple[Span, ...] = (
        (short_id, "dim"),
        (" ", ""),
        (guide, "dim"),
        before,
        (padded(name, NAME_WIDTH), "italic"),
        (" ", ""),
    )
    return laid_out(
        first,
        _first_words(run),
        marks,
        look,
        None if look.sizes is None else size,
        (look.costs or {}).get(run.id),
        is_faint=not is_active,
    )


def _first_words(run: Run) -> str:
    request = next(filter(context.begins_turn, run.entries), run.entries[0])
    return entry_text(request)


def _marks(run: Run, look: Look) -> list[Span]:
    marks: list[Span] = []
    if run.folded:
        marks.append((f" +{counted(run.folded, 'branch', 'branches')}", "yellow"))
    if run.ends and not run.opens:
        total = (look.branch_costs or {}).get(run.branch.tip_id)
        if total is not None and (total.picodollars or not total.is_partial):
            marks.append((f" {look.glyphs.sum}{cost_text(total)}", "dim"))
    return marks


def _fork_lines(forks: Sequence[SessionInfo], guide: str, look: Look) -> Iterator[Line]:
    for info in forks[:_FORKS_AN_ENTRY]:
        yield _session_line(info, "fork", guide, look)
    if len(forks) > _FORKS_AN_ENTRY:
        rest = counted(len(forks) - _FORKS_AN_ENTRY, "more fork")
        yield ((guide, "dim"), (f"{look.glyphs.fork} {rest}", "magenta"))


def _session_line(info: SessionInfo, word: str, guide: str, look: Look, note: str = "") -> Line:
    first: tuple[Span, ...] = (
        (guide, "dim"),
        (f"{look.glyphs.fork} {word} ", "magenta"),
        (one_line(info.id[:8] if len(info.id) > 16 else info.id, 16), "bold"),
        (" ", ""),
    )
    text = ": ".join(part for part in (note, one_line(info.shown_title or "")) if part)
    marks = [(f" ({counted(info.entry_count, 'entry', 'entries')})", "dim")]
    return laid_out(first, text, marks, look, None, spent_of(info))


def spent_of(info: SessionInfo) -> Cost | None:
    """Return the cost of a session's own calls; None if there were none."""
    if not info.spent_tokens and not info.spent_picodollars and not info.unpriced_calls:
        return None
    return Cost(info.spent_picodollars, is_partial=info.unpriced_calls > 0)


def begun_lines(title: str, forks: Sequence[SessionInfo], look: Look) -> list[Line]:
    """Return sessions in a list below a tree, the first of them one a line."""
    if not forks:
        return []
    lines: list[Line] = [((title, "bold"),), *(_session_line(info, "fork", "", look) for info in forks[:_LISTED])]
    return lines + _more(len(forks))


def task_lines(links: Sequence[TaskLink], tasks: Mapping[str, SessionInfo], look: Look) -> list[Line]:
    """Return task sessions in a list below a tree, in the order in which they were started."""
    if not links:
        return []
    lines: list[Line] = [((counted(len(links), "task"), "bold"),)]
    lines += [_task_line(link, tasks, "", look) for link in links[:_LISTED]]
    return lines + _more(len(links))


def _task_line(link: TaskLink, tasks: Mapping[str, SessionInfo], guide: str, look: Look) -> Line:
    info, name = tasks.get(link.child_id), look.fit(tools.with_short_ids(one_line(link.task_id)), 24)
    name += f" ({link.status})" if link.status is not None else ""
    if info is not None:
        return _session_line(info, "task", guide, look, name)
    text = f"{look.glyphs.fork} task {one_line(link.child_id, 16)} {name} (deleted)"
    return ((guide, "dim"), (text, "dim")) if guide else ((text, "dim"),)


def _more(count: int) -> list[Line]:
    return [((f"{count - _LISTED:,} more; --json tells all", "dim"),)] if count > _LISTED else []
