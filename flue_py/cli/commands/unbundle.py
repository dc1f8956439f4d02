"""The unbundle command."""

from __future__ import annotations

from pathlib import Path

import click

from flue_py.cli.commands.bundle import held, held_row
from flue_py.cli.output import Answer, joined
from flue_py.cli.running import command
from flue_py.core.jsontext import JsonObject
from flue_py.render.lines import Line, printable
from flue_py.sessions.store import Store
from flue_py.transfer.bundling import read_bundle


@command(create=True)
@click.argument("source", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path))
async def unbundle(store: Store, source: Path) -> Answer:
    """Add the trees of a bundle to the database, unless they are there already.

    The bundle is verified first. Repeating the command changes nothing.

    Nothing is written unless the bundle is whole and sound. A tree that the database has in another way is refused
    and reported, and the exit code is 1. With --json: an object: trees, sessions, entries, calls (of the bundle),
    added, refreshed, unchanged (trees), refused (sessionId, reason).
    """
    report = await read_bundle(store, source)
    done = {
        "added": report.trees_added,
        "brought up to date": report.trees_refreshed,
        "there already": report.trees_unchanged,
        "refused": len(report.refused),
    }
    trees = joined([f"{number:,} {what}" if number else "" for what, number in done.items()])
    lines: list[Line] = [
        ((f"{source}: {held(report.counts)}", "bold"),),
        ((f"  trees: {trees or 'none'}", ""),),
        *((("  refused ", "yellow"), (printable(refusal.reason), "")) for refusal in report.refused),
    ]
    row: JsonObject = {
        **held_row(report.counts),
        "added": report.trees_added,
        "refreshed": report.trees_refreshed,
        "unchanged": report.trees_unchanged,
        "refused": [{"sessionId": refusal.session_id, "reason": refusal.reason} for refusal in report.refused],
    }
    return Answer(lambda: lines, lambda: row, code=1 if report.refused else 0)
