"""The bundle command."""

from __future__ import annotations

from pathlib import Path

import click

from flue_py.cli.choosing import SESSION
from flue_py.cli.output import Answer, joined, said
from flue_py.cli.running import command
from flue_py.core.jsontext import JsonObject
from flue_py.render.lines import counted
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.transfer.bundles.layout import BundleCounts
from flue_py.transfer.bundling import write_bundle


@command()
@click.argument("target", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("sessions", metavar="SESSION...", type=SESSION, nargs=-1)
@click.option("--keep-paths", is_flag=True, help="Keep the folders and configuration paths of sessions.")
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
async def bundle(store: Store, target: Path, sessions: list[Session], keep_paths: bool, overwrite: bool) -> Answer:
    """Write the trees of the named sessions, or of all, to one FILE: history, blobs and costs.

    The forks and task sessions of a session go with it. Messages may name people and files: look before you share.

    The same trees give the same bytes. With --json: an object: file, trees, sessions, entries, calls, bytes.
    """
    ids = [session.id for session in sessions]
    report = await write_bundle(store, target, ids, keep_paths=keep_paths, overwrite=overwrite)
    row: JsonObject = {"file": str(report.path), **held_row(report.counts), "bytes": report.size_bytes}
    return said(f"{report.path}: {held(report.counts)}, {report.size_bytes:,} bytes", row)


def held(counts: BundleCounts) -> str:
    """Return what a bundle holds, in words."""
    return joined(
        [
            counted(counts.trees, "tree"),
            counted(counts.sessions, "session"),
            counted(counts.entries, "entry", "entries"),
            counted(counts.calls, "paid call"),
        ]
    )


def held_row(counts: BundleCounts) -> JsonObject:
    """Return what a bundle holds, for programs."""
    return {
        "trees": counts.trees,
        "sessions": counts.sessions,
        "entries": counts.entries,
        "calls": counts.calls,
    }
