"""The tree command."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import click

from flue_py.cli.about import count_option, entry_sizes, marks_of
from flue_py.cli.choosing import newest_argument
from flue_py.cli.output import Answer, look
from flue_py.cli.running import command
from flue_py.core.costs import entry_costs
from flue_py.core.jsontext import JsonObject
from flue_py.core.sessions import SessionInfo
from flue_py.formats.registry import FORMATS
from flue_py.render.branches import plan_tree, without_program_rows
from flue_py.render.costs import plan_costs
from flue_py.render.entries import Cost, cost_text
from flue_py.render.lines import Line, counted
from flue_py.render.rows import session_row, task_row, tree_row
from flue_py.render.tree import begun_lines, plan_lines, task_lines
from flue_py.render.views import name_among, spent, spent_tokens
from flue_py.sessions.families import forks_seen, sources_of
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

_MOST_TASKS = 100


def _check(count: bool, sizes: bool, **_: object) -> None:
    if count and not sizes:
        raise click.UsageError("--count and --no-sizes contradict each other; give one of them")


@command(check=_check, bar="reading", paged=True)
@newest_argument
@click.option("--all", "show_all", is_flag=True, help="Show every entry, and leave out nothing.")
@click.option("--depth", type=click.IntRange(min=0), metavar="N", help="Show branches only up to this depth.")
@click.option("--sizes/--no-sizes", default=True, help="Show or hide sizes in tokens.", show_default=True)
@count_option
async def tree(
    store: Store,
    session: Session,
    show_all: bool,
    depth: int | None,
    sizes: bool,
    count: bool,
    as_json: bool,
) -> Answer:
    """Draw the tree of SESSION, by default the newest: branches, leaf, labels, forks, tasks, and what each branch cost.

    A line stands for a run of entries, and shows the id of the last one. Costs come from the ledger, whichever session
    paid; the first line shows what SESSION itself paid. A + means that some calls have no known cost, a dash that
    none has one.

    The active path goes straight down (●); what branches off is indented below the entry it left (○). A turn in
    which nothing branches is one line, of the last 40 turns; a history of up to 24 entries has a line for each
    entry. A line shows how many messages it stands for, the first words of the user in it, its size and its cost.
    Sessions that fork off stand below the entry (↳), task sessions at the end. The last line of a branch has the
    sum of the branch (Σ), if several of its lines cost something. Of more than 50 branches the smallest are folded
    away (+3 branches). Depth 0 is main lines only.

    With --json: an object: sessionId, name, leafId; entries, parents before children: id, parentId, kind, role,
    depth, createdAt, text (its beginning), size (in tokens; null if it is never part of a context), label, and of a
    call cost and costIsWhole; sizesCounted (false for estimates); spentTokens, spent, unpricedCalls and
    unknownCalls, as in sessions; branches: fromId (the entry it left), tipId, entries, active, cost (null if nobody
    knows it, or nothing was called), costIsWhole (false if some calls have no known cost); forks (as in sessions)
    and tasks (as in show).
    """
    info, name = await session.refresh(), await session.name()
    entries = await session.get_tree()
    labels = await session.labels() if as_json else await marks_of(session)
    forks = await forks_seen(store.backend, info, {entry.id for entry in entries})
    forked = [fork for begun in forks.values() for fork in begun]
    links = await session.task_links()
    tasks = {}
    for link in links[:_MOST_TASKS]:
        child = await store.get_session(link.child_id)
        if child is not None:
            tasks[link.child_id] = child.info
    ends = {entry_id for entry_id in (*forks, *(link.entry_id for link in links)) if entry_id is not None}
    drawn = entries
    if not (show_all or as_json):
        prefixes = tuple(f"{form.name.replace('-', '_')}." for form in FORMATS)
        drawn = without_program_rows(entries, prefixes, {*ends, *labels, *([info.leaf_id] if info.leaf_id else [])})
    plan = plan_tree(drawn, info.leaf_id, fold=not show_all, depth=depth, landmarks=labels, ends=ends)
    costs = entry_costs(entries, await session.entry_costs())
    line_costs, branch_costs = plan_costs(plan, drawn, costs, whole=as_json)
    sources = await sources_of(store.backend, [info, *forked]) if as_json else {}

    def tokens() -> dict[str, int] | None:
        return entry_sizes(entries, count=count) if sizes else None

    def row() -> JsonObject:
        branches = [(branch, branch_costs.get(branch.tip_id)) for branch in plan.branches]
        names = [name_among(fork, sources) for fork in forked]
        return {
            **tree_row(info, name, entries, labels, tokens() or {}, count, branches, costs),
            "forks": [session_row(fork, name) for fork, name in zip(forked, names, strict=True)],
            "tasks": [task_row(link) for link in links],
        }

    def lines() -> Iterable[Line]:
        style = replace(look(sizes=tokens(), counted=count, labels=labels), costs=line_costs, branch_costs=branch_costs)
        numbers = [
            counted(len(entries), "entry", "entries"),
            counted(len(plan.branches), "branch", "branches"),
            *([f"{spent_tokens(info)} tokens used"] if info.spent_tokens else []),
            _spent(info),
        ]
        told = "".join(f", {number}" for number in numbers)
        yield ((style.fit(name, max(16, style.width - len(told))) + told, "bold"),)
        begun = {entry_id: infos for entry_id, infos in forks.items() if entry_id is not None}
        yield from plan_lines(plan, info.leaf_id, style, forks=begun, links=links, tasks=tasks)
        if len(drawn) < len(entries):
            rows = counted(len(entries) - len(drawn), "row", "rows")
            yield ((f"{rows} that the program wrote for itself left out; see --all", "dim"),)
        if info.leaf_id is None:
            yield (("the leaf is before the first entry", "bold green"),)
        yield from begun_lines("begun before the first entry", forks.get(None, ()), style)
        ids = {run.id for run in plan.runs}
        yield from task_lines([link for link in links if link.entry_id not in ids], tasks, style)

    return Answer(lines, row)


def _spent(info: SessionInfo) -> str:
    amount = spent(info, f"${cost_text(Cost(info.spent_picodollars))}")
    return "no known cost" if amount == "-" else amount
