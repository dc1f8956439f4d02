"""The import command."""

from __future__ import annotations

from pathlib import Path

import click

from flue_py.cli.importing import ImportReport, import_parsed, read_pi_file
from flue_py.cli.output import json_option, print_json, print_lines
from flue_py.cli.place import Place
from flue_py.cli.running import run
from flue_py.errors import FixTheCall, FlueError
from flue_py.formats.parsed import ParsedSession
from flue_py.render.lines import Line, counted, printable
from flue_py.sessions.store import Store

FORMATS = {"pi": read_pi_file}


@click.command("import")
@click.argument("format", metavar="FORMAT", type=click.Choice(list(FORMATS)))
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--scope", default="", help="Whose sessions they are.")
@json_option
@click.pass_context
def import_files(ctx: click.Context, format: str, files: tuple[Path, ...], scope: str, as_json: bool) -> None:  # noqa: A002
    """Import session files of another program; FORMAT is pi.

    Importing a file again changes nothing; importing it after it has grown adds what is new. A file that cannot
    be imported is reported, and the others are imported all the same.
    """
    place: Place = ctx.obj

    # All files are read before the database is opened: where none can be read, none is made.
    failures: list[FlueError] = []
    parsed: list[tuple[Path, ParsedSession]] = []
    for file in files:
        try:
            parsed.append((file, FORMATS[format](file)))
        except FlueError as error:
            failures.append(error)

    async def work(store: Store) -> list[ImportReport]:
        reports = []
        for file, session in parsed:
            try:
                reports.append(await import_parsed(store, session, file, scope=scope))
            except FixTheCall as error:
                failures.append(error)
        return reports

    reports = run(place, work, create=True) if parsed else []
    if as_json:
        print_json([report.to_json() for report in reports])
    else:
        for report in reports:
            print_lines(_lines(report))
    for failure in failures:
        click.echo(f"Error: {printable(str(failure))}", err=True)
    if failures:
        ctx.exit(1)


def _lines(report: ImportReport) -> list[Line]:
    if report.created:
        did = f"imported as session {report.session_id}: {counted(report.added, 'entry', 'entries')}"
    elif report.added:
        did = f"session {report.session_id} has grown by {counted(report.added, 'entry', 'entries')}"
    else:
        did = f"session {report.session_id} was already here; nothing was changed"
    lines: list[Line] = [
        ((report.file, "bold"), (f": {did}", "")),
        ((f"  {counted(report.rows, 'row')} read, {report.already_there:,} already there", "dim"),),
    ]
    if report.leaf_kept:
        lines.append(((f"  the session had moved on: its leaf stays at {report.leaf_id}", "yellow"),))
    for kind, count in (report.unknown_kinds or {}).items():
        lines.append((("  kept although unknown: ", "yellow"), (f"{counted(count, 'entry', 'entries')} {kind!r}", "")))
    if report.surrogates_replaced:
        lines.append(((f"  {counted(report.surrogates_replaced, 'lone surrogate')} replaced", "yellow"),))
    lines += [(("  skipped ", "yellow"), (printable(str(note)), "")) for note in report.skipped]
    lines += [(("  repaired ", "yellow"), (printable(str(note)), "")) for note in report.repaired]
    lines += [(("  paid before with other numbers: ", "yellow"), (str(call), "")) for call in report.call_conflicts]
    return lines
