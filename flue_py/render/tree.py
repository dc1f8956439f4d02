"""The tree of a session's entries as lines: a graph with its branches, its leaf, its labels, sizes and costs.

Which entries share a line is decided in `branches`; here the lines are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from flue_py.core.costs import EntryCost
from flue_py.core.entries import Entry
from flue_py.core.kinds import MESSAGE
from flue_py.core.sessions import SessionInfo, TaskLink
from flue_py.core.turns import begins_turn
from flue_py.render.branches import Plan, Run, plan_tree
from flue_py.render.costs import plan_costs
from flue_py.render.entries import (
    COST_WIDTH,
    NAME_WIDTH,
    SIZE_WIDTH,
    Cost,
    Look,
    cost_text,
    entry_line,
    entry_text,
    laid_out,
)
from flue_py.render.lines import Line, Span, cells, counted, one_line, padded, short_count, shortest_ids

_FORKS_AN_ENTRY = 3
_LISTED = 20
_ACTIVE = "bold green"


def tree_lines(
    entries: Sequence[Entry],
    leaf: str | None,
    look: Look,
    *,
    fold: bool = True,
    costs: Mapping[str, EntryCost] | None = None,
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
    """Return the lines of a plan, below a head where there are costs, and what was folded away at the end.

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
    asked = next(filter(begins_turn, run.entries), run.entries[0])
    return entry_text(asked)


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
        more = counted(len(forks) - _FORKS_AN_ENTRY, "more fork")
        yield ((guide, "dim"), (f"{look.glyphs.fork} {more}", "magenta"))


def _session_line(info: SessionInfo, word: str, guide: str, look: Look, note: str = "") -> Line:
    first: tuple[Span, ...] = (
        (guide, "dim"),
        (f"{look.glyphs.fork} {word} ", "magenta"),
        (one_line(info.id[:8] if len(info.id) > 16 else info.id, 16), "bold"),
        (" ", ""),
    )
    said = ": ".join(part for part in (note, one_line(info.shown_title or "")) if part)
    marks = [(f" ({counted(info.entry_count, 'entry', 'entries')})", "dim")]
    return laid_out(first, said, marks, look, None, spent_of(info))


def spent_of(info: SessionInfo) -> Cost | None:
    """Return what a session's own calls cost; None if there were none."""
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
    info, name = tasks.get(link.child_id), look.fit(one_line(link.task_id), 24)
    name += f" ({link.status})" if link.status is not None else ""
    if info is not None:
        return _session_line(info, "task", guide, look, name)
    text = f"{look.glyphs.fork} task {one_line(link.child_id, 16)} {name} (deleted)"
    return ((guide, "dim"), (text, "dim")) if guide else ((text, "dim"),)


def _more(count: int) -> list[Line]:
    return [((f"{count - _LISTED:,} more; --json tells all", "dim"),)] if count > _LISTED else []
