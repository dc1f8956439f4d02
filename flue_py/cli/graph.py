"""The tree command: a session's history as a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import click

from flue_py.cli.history import count_option, entry_sizes
from flue_py.cli.marking import marks_of
from flue_py.cli.output import json_option, look, print_json, print_lines
from flue_py.cli.place import Place
from flue_py.cli.running import run, sources_of
from flue_py.core.costs import EntryCost, entry_costs
from flue_py.core.entries import Entry
from flue_py.core.frozen import frozen
from flue_py.core.sessions import SessionInfo, TaskLink
from flue_py.render.branches import Plan, plan_tree
from flue_py.render.costs import plan_costs
from flue_py.render.entries import Cost, cost_text
from flue_py.render.lines import Line, clip, counted
from flue_py.render.rows import session_row, task_row, tree_row
from flue_py.render.tree import begun_lines, plan_lines, task_lines
from flue_py.render.views import session_name, spent, spent_tokens
from flue_py.runtime.finding import all_sessions, find_session
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

_MOST_TASKS = 100


@frozen
class _Tree:
    """Everything that is read to draw a tree.

    ``sources`` are what forks are named by, in JSON. ``labels`` tell of pins and exclusions, too, but not in JSON;
    ``costs`` are of single entries, ``line_costs`` of the lines, ``branch_costs`` of the branches.
    """

    info: SessionInfo
    name: str
    entries: list[Entry]
    labels: dict[str, str]
    forks: dict[str | None, list[SessionInfo]]
    sources: dict[str, SessionInfo]
    links: list[TaskLink]
    tasks: dict[str, SessionInfo]
    plan: Plan
    costs: Mapping[str, EntryCost]
    line_costs: Mapping[str, Cost]
    branch_costs: Mapping[str, Cost]


@click.command()
@click.argument("session")
@click.option("--all", "show_all", is_flag=True, help="Give every entry a line, and leave out nothing.")
@click.option("--depth", type=click.IntRange(min=0), metavar="N", help="Leave out branches of branches beyond N.")
@click.option("--sizes/--no-sizes", default=True, help="Show sizes in tokens, or leave them out.", show_default=True)
@count_option
@json_option
@click.pass_obj
def tree(
    place: Place, session: str, show_all: bool, depth: int | None, sizes: bool, count: bool, as_json: bool
) -> None:
    """Draw the tree of SESSION: branches, leaf, labels, forks, tasks, and what each branch cost.

    One line stands for a run of entries, and has the id of the last of them. Costs are those that the ledger knows,
    whichever session paid; the first line says what SESSION itself has paid. A + means that some calls have no known
    cost, a dash that none has one.
    """

    if count and not sizes:
        raise click.UsageError("--count and --no-sizes contradict each other; give one of them")

    async def work(store: Store) -> _Tree:
        return await _read(store, await find_session(store, session), fold=not show_all, depth=depth, whole=as_json)

    found = run(place, work, bar="reading")
    tokens = entry_sizes(found.entries, count=count) if sizes else None
    if as_json:
        branches = [(branch, found.branch_costs.get(branch.tip_id)) for branch in found.plan.branches]
        row = tree_row(found.info, found.name, found.entries, found.labels, tokens or {}, count, branches, found.costs)
        forks = [info for infos in found.forks.values() for info in infos]
        row["forks"] = [
            session_row(fork, session_name(fork, found.sources.get(fork.forked_from_session or ""))) for fork in forks
        ]
        row["tasks"] = [task_row(link) for link in found.links]
        print_json(row)
        return
    style = replace(
        look(sizes=tokens, counted=count, labels=found.labels),
        costs=found.line_costs,
        branch_costs=found.branch_costs,
    )
    at_entries = {entry_id: infos for entry_id, infos in found.forks.items() if entry_id is not None}
    lines: list[Line] = [((_title(found, style.width, style.glyphs.cut), "bold"),)]
    lines += plan_lines(found.plan, found.info.leaf_id, style, forks=at_entries, links=found.links, tasks=found.tasks)
    if found.info.leaf_id is None:
        lines.append((("the leaf is before the first entry", "bold green"),))
    lines += begun_lines("begun before the first entry", found.forks.get(None, ()), style)
    drawn = {run.id for run in found.plan.runs}
    lines += task_lines([link for link in found.links if link.entry_id not in drawn], found.tasks, style)
    print_lines(lines, paged=True)


def _title(found: _Tree, width: int, cut: str) -> str:
    parts = [
        counted(len(found.entries), "entry", "entries"),
        counted(len(found.plan.branches), "branch", "branches"),
        f"{spent_tokens(found.info)} tokens used" if found.info.spent_tokens else "",
        _spent(found),
    ]
    numbers = "".join(f", {part}" for part in parts if part)
    return clip(found.name, max(16, width - len(numbers)), cut) + numbers


def _spent(found: _Tree) -> str:
    amount = spent(found.info, f"${cost_text(Cost(found.info.spent_picodollars))}")
    if amount != "-":
        return amount
    return "no known cost"


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
    begun = (*forks, *(link.entry_id for link in links))
    ends = {entry_id for entry_id in begun if entry_id is not None}
    plan = plan_tree(entries, info.leaf_id, fold=fold, depth=depth, landmarks=labels, ends=ends)
    costs = entry_costs(entries, await session.entry_costs())
    line_costs, branch_costs = plan_costs(plan, entries, costs, whole=whole)
    return _Tree(
        info,
        await session.name(),
        entries,
        labels,
        forks,
        await sources_of(store, [info, *(fork for infos in forks.values() for fork in infos)]) if whole else {},
        links,
        tasks,
        plan,
        costs,
        line_costs,
        branch_costs,
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
