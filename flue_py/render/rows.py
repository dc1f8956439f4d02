"""Values as JSON for programs: what ``--json`` prints. Keys are camelCase, times ISO 8601 in UTC.

Money is an exact decimal string in US dollars: programs would round a JSON number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from flue_py.core.costs import EntryCost, is_unknown, window_costs
from flue_py.core.entries import Entry, from_microseconds
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.sessions import Deletion, Moved, ScopeDeletion, SessionInfo, StoreInfo, TaskLink, VerifyReport
from flue_py.core.usage import Usage, UsageWindow, known_cost, picodollars_to_usd
from flue_py.render.entries import Cost, entry_text

if TYPE_CHECKING:
    from flue_py.render.branches import Branch


def iso(moment: datetime) -> str:
    """Return a moment as ISO 8601 text in UTC, to the microsecond."""
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def exact(amount: Decimal) -> str:
    """Return an exact amount as plain digits, without an exponent and without needless zeros."""
    return format(amount.normalize(), "f")


def entry_row(entry: Entry) -> JsonObject:
    """Return a whole entry: its links, its payload, and the further fields of an imported row."""
    row: JsonObject = {
        "id": entry.id,
        "parentId": entry.parent_id,
        "sessionId": entry.session_id,
        "kind": entry.kind,
        "role": entry.role,
        "source": entry.source,
        "depth": entry.depth,
        "createdAt": iso(entry.created_at),
        "payload": entry.data,
    }
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
    costs: Mapping[str, EntryCost] | None = None,
) -> JsonObject:
    """Return a session's tree: every entry, parents before children, with its size but without its payload.

    ``costs`` are of the entries that are calls. ``spentTokens`` and ``spent`` are what the session itself has paid;
    the ``size`` of an entry is how many tokens of a context it takes: counted, or estimated.
    """
    rows: list[JsonValue] = []
    for entry in entries:
        row: JsonObject = {
            "id": entry.id,
            "parentId": entry.parent_id,
            "kind": entry.kind,
            "role": entry.role,
            "depth": entry.depth,
            "createdAt": iso(entry.created_at),
            "text": entry_text(entry),
            "size": sizes.get(entry.id),
        }
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
            {
                "fromId": branch.parent_id,
                "tipId": branch.tip_id,
                "entries": branch.entries,
                "active": branch.is_active,
                **cost_fields(cost),
            }
            for branch, cost in branches
        ],
    }


def spent_fields(info: SessionInfo) -> JsonObject:
    """Return what a session itself has paid: tokens, and dollars as an exact decimal; null if unknown."""
    spent = info.known_spent
    return {
        "spentTokens": info.known_tokens,
        "spent": None if spent is None else exact(spent),
        "unpricedCalls": info.unpriced_calls,
        "unknownCalls": info.unknown_calls,
    }


def cost_fields(cost: Cost | None) -> JsonObject:
    """Return a cost in dollars, null if unknown, and whether it includes every call."""
    if cost is None:
        return {"cost": None, "costIsWhole": True}
    usd = known_cost(cost.picodollars, cost.is_partial)
    return {
        "cost": None if usd is None else exact(usd),
        "costIsWhole": not cost.is_partial,
    }


def entry_cost_fields(cost: EntryCost) -> JsonObject:
    """Return what the ledger has for an entry: dollars, null if unknown, and whether they include every call."""
    usd = cost.usd
    return {"cost": None if usd is None else exact(usd), "costIsWhole": cost.is_whole}


def usage_row(window: UsageWindow) -> JsonObject:
    """Return a usage window: tokens as integers, costs as exact decimal strings; null if unknown."""
    names = ("input", "output", "cacheRead", "cacheWrite", "total")
    costs = dict(zip(names, window_costs(window), strict=True))
    unknown = is_unknown(window)
    return {
        **window.known,
        "cost": {name: None if cost is None else exact(picodollars_to_usd(cost)) for name, cost in costs.items()},
        "calls": window.calls,
        "unpricedCalls": window.unpriced_calls,
        "unknownCalls": window.unknown_calls,
        "paidTokens": None if unknown else window.tokens,
        "sinceId": window.since,
        "leafId": window.leaf,
        "onPath": window.on_path,
    }


def tokens_and_cost(usage: Usage, told: frozenset[str]) -> JsonObject:
    """Return tokens by kind, null for a 0 that ``told`` does not name, and the cost of each kind as decimal text."""
    cost = usage.cost
    return {
        **usage.known(told),
        "cost": {
            "input": exact(picodollars_to_usd(cost.input)),
            "output": exact(picodollars_to_usd(cost.output)),
            "cacheRead": exact(picodollars_to_usd(cost.cache_read)),
            "cacheWrite": exact(picodollars_to_usd(cost.cache_write)),
            "total": exact(picodollars_to_usd(cost.total)),
        },
    }


def session_row(info: SessionInfo, name: str) -> JsonObject:
    """Return the row of a session, and the name that people know it by (`session_name`)."""
    return {
        "id": info.id,
        "name": name,
        "key": info.key,
        "title": info.title,
        "autoTitle": info.auto_title,
        "scope": info.scope,
        "kind": info.kind,
        "forkedFrom": (
            None
            if info.forked_from_session is None
            else {"sessionId": info.forked_from_session, "entryId": info.forked_from_entry}
        ),
        "leafId": info.leaf_id,
        "revision": info.revision,
        "cwd": info.cwd,
        "entryCount": info.entry_count,
        "messageCount": info.message_count,
        "firstMessage": info.first_message,
        **spent_fields(info),
        "metadata": info.metadata,
        "completedAt": None if info.completed_us is None else iso(from_microseconds(info.completed_us)),
        "createdAt": iso(info.created_at),
        "activeAt": iso(info.active_at),
        "updatedAt": iso(info.updated_at),
    }


def task_row(link: TaskLink) -> JsonObject:
    """Return a link from a parent to a task session."""
    return {
        "taskId": link.task_id,
        "sessionId": link.child_id,
        "entryId": link.entry_id,
        "status": link.status,
        "summary": link.summary,
    }


def moved_row(session_id: str, moved: Moved | None, leaf: str | None) -> JsonObject:
    """Return what a move, a rewind, an undo or a redo did; ``moved`` is False if there was nothing to do."""
    return {
        "sessionId": session_id,
        "moved": moved is not None,
        "reason": None if moved is None else moved.reason,
        "fromId": leaf if moved is None else moved.from_id,
        "leafId": leaf if moved is None else moved.to_id,
    }


def deletion_row(deletion: Deletion, *, dry_run: bool) -> JsonObject:
    """Return what a deletion removed, or with ``dry_run`` would remove."""
    return {
        "dryRun": dry_run,
        "sessionIds": list(deletion.session_ids),
        "missingIds": list(deletion.missing_ids),
        "links": [{"parentId": parent, "childId": child} for parent, child in deletion.links],
        "entriesDeleted": deletion.entries_deleted,
        "entriesKept": deletion.entries_kept,
    }


def scope_deletion_row(deletion: ScopeDeletion) -> JsonObject:
    """Return what went with a scope, or in a dry run would go."""
    return {
        "dryRun": deletion.entries_deleted is None,
        "sessionIds": list(deletion.session_ids),
        "entriesDeleted": deletion.entries_deleted,
        "entriesKept": deletion.entries_kept,
        "memories": deletion.memories,
        "files": deletion.files,
        "budgets": deletion.budgets,
        "callsKept": deletion.calls,
    }


def verify_row(report: VerifyReport) -> JsonObject:
    """Return what was verified, and the problems found."""
    problems: list[JsonValue] = [
        {"kind": problem.kind, "where": problem.where, "detail": problem.detail} for problem in report.problems
    ]
    return {"sessions": report.sessions, "entries": report.entries, "problems": problems}


def store_row(info: StoreInfo) -> JsonObject:
    """Return the facts about a store."""
    return {
        "location": info.location,
        "backend": info.backend,
        "formatVersion": info.format_version,
        "sessions": info.sessions,
        "entries": info.entries,
        "ledgerRows": info.ledger_rows,
        "documents": info.documents,
        "sizeBytes": info.size_bytes,
    }
