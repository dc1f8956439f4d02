"""The tree command: a session's history as a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import click

from flue_py.cli.history import entry_sizes
from flue_py.cli.marking import marks_of
from flue_py.cli.output import json_option, look, print_json, print_lines
from flue_py.cli.place import Place
from flue_py.cli.running import all_sessions, find_session, run
from flue_py.core.entries import Entry
from flue_py.core.sessions import SessionInfo, TaskLink
from flue_py.render.branches import Branch, Plan, plan_tree
from flue_py.render.entries import Cost, cost_text, reports_cost
from flue_py.render.lines import Line, clip, counted
from flue_py.render.rows import session_row, task_row, tree_row
from flue_py.render.tree import begun_lines, plan_lines, task_lines
from flue_py.render.views import session_name
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

_MOST_TASKS = 100
_MOST_WINDOWS = 500


@dataclass(frozen=True, slots=True)
class _Tree:
    """Everything that is read to draw a tree.

    ``labels`` tell of pins and exclusions, too, but not in JSON; ``costs`` are of the lines, ``branch_costs`` of the
    branches.
    """

    info: SessionInfo
    entries: list[Entry]
    labels: dict[str, str]
    forks: dict[str | None, list[SessionInfo]]
    links: list[TaskLink]
    tasks: dict[str, SessionInfo]
    plan: Plan
    costs: dict[str, Cost]
    branch_costs: dict[str, Cost]
    spent: Cost | None


@click.command()
@click.argument("session")
@click.option("--all", "show_all", is_flag=True, help="Give every entry a line, and leave out nothing.")
@click.option("--depth", type=click.IntRange(min=0), metavar="N", help="Leave out branches of branches beyond N.")
@click.option("--sizes/--no-sizes", default=True, help="Count tokens, or save the time.", show_default=True)
@json_option
@click.pass_obj
def tree(place: Place, session: str, show_all: bool, depth: int | None, sizes: bool, as_json: bool) -> None:
    """Draw the tree of SESSION: branches, leaf, labels, forks, tasks, and what each branch cost.

    One line stands for a run of entries, and has the id of the last of them.
    """

    async def work(store: Store) -> _Tree:
        return await _read(store, await find_session(store, session), fold=not show_all, depth=depth, whole=as_json)

    found = run(place, work, bar="reading")
    tokens = entry_sizes(found.entries) if sizes else None
    if as_json:
        branches = [(branch, found.branch_costs.get(branch.tip_id)) for branch in found.plan.branches]
        row = tree_row(found.info, found.entries, found.labels, tokens or {}, branches)
        row["forks"] = [session_row(info) for infos in found.forks.values() for info in infos]
        row["tasks"] = [task_row(link) for link in found.links]
        print_json(row)
        return
    style = replace(
        look(sizes=tokens, labels=found.labels),
        costs=found.costs,
        branch_costs=found.branch_costs,
    )
    at_entries = {entry_id: infos for entry_id, infos in found.forks.items() if entry_id is not None}
    lines: list[Line] = [((_title(found, tokens, style.width, style.glyphs.cut), "bold"),)]
    lines += plan_lines(found.plan, found.info.leaf_id, style, forks=at_entries)
    if found.info.leaf_id is None:
        lines.append((("the leaf is before the first entry", "bold green"),))
    lines += begun_lines("begun before the first entry", found.forks.get(None, ()), style)
    lines += task_lines(found.links, found.tasks, style)
    print_lines(lines, paged=True)


def _title(found: _Tree, tokens: dict[str, int] | None, width: int, cut: str) -> str:
    parts = [
        counted(len(found.entries), "entry", "entries"),
        counted(len(found.plan.branches), "branch", "branches"),
        "" if tokens is None else counted(sum(tokens.values()), "token"),
        "" if found.spent is None else _spent(found.spent),
    ]
    numbers = "".join(f", {part}" for part in parts if part)
    return clip(session_name(found.info), max(16, width - len(numbers)), cut) + numbers


def _spent(cost: Cost) -> str:
    return f"${cost_text(cost)}" if cost.picodollars or not cost.is_partial else "no cost reported"


async def _read(store: Store, session: Session, *, fold: bool, depth: int | None, whole: bool) -> _Tree:
    info = await session.refresh()
    entries = await session.get_tree()
    labels = await session.labels() if whole else await marks_of(session)
    forks = await _forks_of(store, info, {entry.id for entry in entries})
    links = await session.task_links()
    tasks = {}
    for link in links[:_MOST_TASKS]:
        child = await store.get_session(link.child_id)
        if child is not None:
            tasks[link.child_id] = child.info
    ends = {entry_id for entry_id in forks if entry_id is not None}
    plan = plan_tree(entries, info.leaf_id, fold=fold, depth=depth, landmarks=labels, ends=ends)
    costs, branch_costs, spent = await _costs(session, entries, plan, whole=whole)
    return _Tree(
        info,
        entries,
        labels,
        forks,
        links,
        tasks,
        plan,
        costs,
        branch_costs,
        spent,
    )


async def _forks_of(store: Store, info: SessionInfo, seen: set[str]) -> dict[str | None, list[SessionInfo]]:
    """Return the forks, and forks of forks, that begin at an entry the session sees, oldest first. O(forks)."""
    forks = {each.id: each for each in await all_sessions(store, kind="fork")}
    origins: dict[str, str] = {}

    def origin_of(session_id: str) -> str:
        climbed = []
        at = session_id
        while at not in origins and at in forks and at not in climbed:
            climbed.append(at)
            at = forks[at].forked_from_session or at
        origins.update(dict.fromkeys(climbed, origins.get(at, at)))
        return origins.get(at, at)

    family = [each for each in forks.values() if each.id != info.id and origin_of(each.id) == origin_of(info.id)]
    found: dict[str | None, list[SessionInfo]] = {}
    for each in sorted(family, key=lambda each: (each.created_us, each.id)):
        begins = each.forked_from_entry
        if begins in seen if begins else each.forked_from_session == info.id:
            found.setdefault(begins, []).append(each)
    return found


async def _costs(
    session: Session, entries: Sequence[Entry], plan: Plan, *, whole: bool
) -> tuple[dict[str, Cost], dict[str, Cost], Cost | None]:
    """Return what the lines of a plan cost, its branches, and all of them: differences of running totals.

    Lines and branches without calls are left out, and so are, but for ``whole``, branches of one line that cost
    something: it says it all. Of a tree of very many branches, single entries and the sum are told by the entries.
    """
    by_id = {entry.id: entry for entry in entries}
    calls = {entry.id: reported for entry in entries if (reported := reports_cost(entry)) is not None}
    asks_all = max(len(plan.branches), len(plan.runs)) <= _MOST_WINDOWS

    async def cost_of(parent_id: str | None, last: str, ids: Iterable[str]) -> Cost | None:
        reported = [calls[entry_id] for entry_id in ids if entry_id in calls]
        if not reported:
            return None
        before = parent_id if parent_id in by_id else None
        window = await session.aggregate_usage_since(before, leaf=last)
        return Cost(window.usage.cost.total, not all(reported))

    costs: dict[str, Cost] = {}
    for run_ in plan.runs:
        first = run_.entries[0]
        if len(run_.entries) == 1 and not asks_all:
            if first.id in calls:
                costs[first.id] = Cost(first.usage.cost_total, not calls[first.id])
        elif cost := await cost_of(first.parent_id, run_.id, [entry.id for entry in run_.entries]):
            costs[run_.id] = cost
    paid = Counter(each.branch.tip_id for each in plan.runs if each.id in costs)
    branch_costs: dict[str, Cost] = {}
    total = 0
    for branch in plan.branches:
        if asks_all or whole or paid[branch.tip_id] > 1:
            cost = await cost_of(branch.parent_id, branch.tip_id, _line_of(branch, by_id))
            total += cost.picodollars if cost else 0
            if cost and (whole or paid[branch.tip_id] > 1):
                branch_costs[branch.tip_id] = cost
    if not (asks_all or whole):
        total = sum(entry.usage.cost_total for entry in entries if entry.id in calls)
    return costs, branch_costs, Cost(total, not all(calls.values())) if calls else None


def _line_of(branch: Branch, by_id: dict[str, Entry]) -> Iterable[str]:
    at: str | None = branch.tip_id
    for _ in range(branch.entries):
        if at is None:
            return
        yield at
        at = by_id[at].parent_id
