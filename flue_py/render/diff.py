"""Two leaves side by side: as lines for people, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping

from flue_py.core.diffing import DiffSide, LeafDiff
from flue_py.core.entries import Entry
from flue_py.core.jsontext import JsonObject
from flue_py.render.costs import whole_cost_text
from flue_py.render.entries import Look, entry_line, fold_line
from flue_py.render.lines import Line, cells, counted, one_line, shortest_ids
from flue_py.render.rows import entry_cost_fields, entry_row, tokens_and_cost

_SHOWN_AT_EITHER_END = 8


def diff_lines(
    diff: LeafDiff, ancestor: Entry | None, names: Mapping[str, str], look: Look, *, show_all: bool
) -> list[Line]:
    """Return what two leaves share, then what only one of them has; long stretches are folded unless ``show_all``.

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
        lines += _entry_lines(side, ids, look, (f"{sign} ", style), show_all=show_all)
    return lines


def _place(side: DiffSide) -> str:
    return f"session {side.session_id}, {'before the first entry' if side.leaf_id is None else f'leaf {side.leaf_id}'}"


def _facts(side: DiffSide) -> list[str]:
    """Return in words what only this side has: messages, cost, tools."""
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


def _entry_lines(
    side: DiffSide, ids: Mapping[str, str], look: Look, before: tuple[str, str], *, show_all: bool
) -> list[Line]:
    entries = side.entries
    width = max((cells(ids[entry.id]) for entry in entries), default=0)
    ends = _SHOWN_AT_EITHER_END
    fold = not show_all and len(entries) > 2 * ends + 1
    head, middle, tail = (entries[:ends], entries[ends:-ends], entries[-ends:]) if fold else (entries, (), ())

    def line_of(entry: Entry) -> Line:
        return entry_line(entry, ids[entry.id], look, before=before, is_leaf=entry.id == side.leaf_id)

    lines = [line_of(entry) for entry in head]
    if middle:
        lines.append(fold_line(middle, width, look, before=before))
    return lines + [line_of(entry) for entry in tail]


def diff_row(diff: LeafDiff) -> JsonObject:
    """Return two leaves as JSON: the common ancestor's id, and what only one side has."""
    return {"ancestorId": diff.ancestor_id, "same": diff.is_same, "left": _side(diff.left), "right": _side(diff.right)}


def _side(side: DiffSide) -> JsonObject:
    return {
        "sessionId": side.session_id,
        "leafId": side.leaf_id,
        "messages": dict(side.messages),
        "kinds": dict(side.kinds),
        "tools": {name: {"calls": use.calls, "errors": use.errors} for name, use in side.tools.items()},
        "usage": tokens_and_cost(side.usage, side.told),
        **entry_cost_fields(side.cost),
        "entries": [entry_row(entry) for entry in side.entries],
    }
