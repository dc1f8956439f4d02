"""The diff command."""

from __future__ import annotations

import click

from flue_py.cli.choosing import SESSION_NAME, end_of
from flue_py.cli.output import Answer, look
from flue_py.cli.running import command
from flue_py.render.diff import diff_lines, diff_row
from flue_py.sessions.store import Store


@command()
@click.argument("a", metavar="A", type=SESSION_NAME)
@click.argument("b", metavar="B", type=SESSION_NAME)
@click.option("--all", "show_all", is_flag=True, help="Show every entry; otherwise long stretches are folded.")
async def diff(store: Store, a: str, b: str, show_all: bool) -> Answer:
    """Compare two leaves: what they share, and what each has alone (messages, tools, cost).

    A and B are each a SESSION, at its leaf, or SESSION@ENTRY; B may be @ENTRY of the same session.

    With --json: an object: ancestorId, same, and left and right with sessionId, leafId, messages (by role), kinds,
    tools (calls, errors), usage (as the entries report it), cost and costIsWhole (as the ledger knows it) and
    entries.
    """
    left, leaf = await end_of(store, a)
    right, other_leaf = await end_of(store, b, left)
    found = await left.diff(right, leaf=leaf, other_leaf=other_leaf)
    ancestor = None if found.ancestor_id is None else await left.get_entry(found.ancestor_id)
    names = {each.id: await each.name() for each in (left, right)}
    return Answer(lambda: diff_lines(found, ancestor, names, look(), show_all=show_all), lambda: diff_row(found))
