"""The reprice command."""

from __future__ import annotations

from collections.abc import Iterable

import click

from flue_py.cli.output import Answer
from flue_py.cli.running import command
from flue_py.render.bill import DASH
from flue_py.render.lines import Line, counted, table
from flue_py.render.views import dollars
from flue_py.sessions.store import Store


@command(bar="pricing")
@click.option("--yes", is_flag=True, help="Write the costs. Without it they are only shown.")
async def reprice(store: Store, yes: bool) -> Answer:
    """Price the calls whose cost is unknown, at the prices of their day.

    What was reported, or priced before, is never changed. Without --yes nothing is.

    The prices are your own or published ones. It shows how many calls of which model get a cost, how much that is,
    and which stay unknown, and why: no usage (their tokens are unknown), no model, tokens of no kind (only a
    total), no price. Budgets are not changed.

    With --json: an object: dryRun, calls and costUsd (what gets a cost), unknownCalls, and rows with provider,
    model, calls, costUsd (a decimal string; null if it stays unknown) and why.
    """
    done = await store.reprice(dry_run=not yes)

    def lines() -> Iterable[Line]:
        if done.rows:
            heads = ("provider", "model", "calls", "US dollars", "stays unknown")
            rows = [
                (
                    row.provider or DASH,
                    row.model or DASH,
                    f"{row.calls:,}",
                    DASH if row.usd is None else dollars(row.usd),
                    row.why or "",
                )
                for row in done.rows
            ]
            cells = [[(text, "dim") for text in heads], *([(text, "") for text in row] for row in rows)]
            yield from table(cells, right=frozenset((2, 3)))
        if not done.rows:
            said = "every call has a known cost"
        else:
            would = "would get a cost" if done.dry_run else "got a cost"
            said = f"{counted(done.calls, 'call')} {would}, {dollars(done.usd)} US dollars in all"
            said += f"; {done.unknown_calls:,} unknown" if done.unknown_calls else ""
        yield ((said, "bold"),)
        if done.dry_run and done.calls:
            yield (("nothing was changed; --yes writes it", "yellow"),)

    return Answer(lines, done.to_json)
