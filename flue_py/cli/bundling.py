"""The commands bundle and unbundle."""

from __future__ import annotations

from pathlib import Path

import click

from flue_py.cli.output import joined, json_option, print_json, print_lines, print_result
from flue_py.cli.place import Place
from flue_py.cli.running import run
from flue_py.core.jsontext import JsonObject
from flue_py.render.lines import Line, counted, printable
from flue_py.runtime.finding import find_session
from flue_py.sessions.store import Store
from flue_py.transfer.bundle_file import BundleCounts
from flue_py.transfer.bundling import BundleReport, UnbundleReport, read_bundle, write_bundle


@click.command()
@click.argument("target", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("sessions", metavar="SESSION...", nargs=-1)
@click.option("--keep-paths", is_flag=True, help="Keep the folders and configuration paths of sessions.")
@click.option("--overwrite", is_flag=True, help="Write FILE anew where it is there already.")
@json_option
@click.pass_obj
def bundle(
    place: Place, target: Path, sessions: tuple[str, ...], keep_paths: bool, overwrite: bool, as_json: bool
) -> None:
    """Write the trees of SESSIONs, or of all, into one FILE: history, blobs, and what was paid.

    With a session go its forks and its task sessions. What was said may name people and files: look before you share.
    """

    async def work(store: Store) -> BundleReport:
        found = [(await find_session(store, name)).id for name in sessions]
        return await write_bundle(store, target, found, keep_paths=keep_paths, overwrite=overwrite)

    report = run(place, work)
    row: JsonObject = {"file": str(report.path), **_held_row(report.counts), "bytes": report.size_bytes}
    print_result(f"{report.path}: {_held(report.counts)}, {report.size_bytes:,} bytes", row, as_json=as_json)


@click.command()
@click.argument("source", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
@click.pass_context
def unbundle(ctx: click.Context, source: Path, as_json: bool) -> None:
    """Bring the trees of a bundle into the database, where they are not there yet.

    The bundle is checked to be whole and sound first. Doing it again changes nothing.
    """

    async def work(store: Store) -> UnbundleReport:
        return await read_bundle(store, source)

    report = run(ctx.obj, work, create=True)
    if as_json:
        print_json(_row(report))
    else:
        print_lines(_lines(source, report))
    if report.refused:
        ctx.exit(1)


def _held(counts: BundleCounts) -> str:
    return joined(
        [
            counted(counts.trees, "tree"),
            counted(counts.sessions, "session"),
            counted(counts.entries, "entry", "entries"),
            counted(counts.calls, "paid call"),
        ]
    )


def _held_row(counts: BundleCounts) -> JsonObject:
    return {
        "trees": counts.trees,
        "sessions": counts.sessions,
        "entries": counts.entries,
        "calls": counts.calls,
    }


def _row(report: UnbundleReport) -> JsonObject:
    return {
        **_held_row(report.counts),
        "added": report.trees_added,
        "refreshed": report.trees_refreshed,
        "unchanged": report.trees_unchanged,
        "refused": [{"sessionId": refusal.session_id, "reason": refusal.reason} for refusal in report.refused],
    }


def _lines(source: Path, report: UnbundleReport) -> list[Line]:
    done = [
        f"{number:,} {what}"
        for number, what in (
            (report.trees_added, "added"),
            (report.trees_refreshed, "brought up to date"),
            (report.trees_unchanged, "there already"),
            (len(report.refused), "refused"),
        )
        if number
    ]
    lines: list[Line] = [
        ((f"{source}: {_held(report.counts)}", "bold"),),
        ((f"  trees: {', '.join(done) or 'none'}", ""),),
    ]
    return lines + [(("  refused ", "yellow"), (printable(refusal.reason), "")) for refusal in report.refused]
