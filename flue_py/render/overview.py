"""All sessions as one HTML file: the list, with filters, and what they cost, each with a link to its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from flue_py.core.json import JsonObject, JsonValue
from flue_py.core.ledger import UsageRow
from flue_py.render.lines import one_line
from flue_py.render.report import bill_json, filled_page, spent_json
from flue_py.render.views import ListedSession, minute

_NAME = 200


def overview(
    pages: Mapping[str, ListedSession],
    sums: Mapping[str, Sequence[UsageRow]],
    total: UsageRow,
    *,
    damaged: Sequence[str] = (),
    made_at: datetime | None = None,
) -> str:
    """Return sessions as an HTML file, in their order, and by name of a dimension the sums of what was paid.

    ``pages`` has the sessions by the files of their pages, ``damaged`` are the ids of those that have none. Each row of
    ``sums`` has that one group. The same arguments give the same text. O(sessions + rows).
    """
    data: JsonObject = {
        "made": None if made_at is None else f"{minute(made_at)} UTC",
        "sessions": [_session_json(session, file) for file, session in pages.items()],
        "damaged": [*damaged],
        "sums": {name: [_sum_json(row) for row in rows] for name, rows in sums.items()},
        "total": bill_json(total),
    }
    return filled_page("index", ("page", "money", "index"), data, title="Sessions")


def _session_json(session: ListedSession, file: str) -> JsonValue:
    info = session.info
    return {
        "id": info.id,
        "name": one_line(session.name, _NAME),
        "first": one_line(info.first_message or "", _NAME),
        "href": file,
        "kind": info.kind,
        "program": session.program,
        "project": one_line(session.project, _NAME),
        "model": one_line(session.model, _NAME),
        "messages": info.message_count,
        "active": minute(info.active_at),
        **spent_json(info),
    }


def _sum_json(row: UsageRow) -> JsonValue:
    (value,) = row.group.values()
    return {"name": "" if value is None else one_line(str(value), _NAME), **bill_json(row)}
