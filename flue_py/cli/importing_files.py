"""The import command."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath

import click

from flue_py.cli.output import console, json_option, print_json, print_lines, tell_error
from flue_py.cli.place import Place
from flue_py.cli.running import run
from flue_py.errors import FixTheCall, FlueError
from flue_py.formats.registry import FORMATS, canonical_name, format_names, known_format
from flue_py.render.lines import Line, counted, printable
from flue_py.sessions.store import Store
from flue_py.transfer.importing.reports import ImportReport
from flue_py.transfer.importing.run import import_source
from flue_py.transfer.importing.sources import AUTO, ImportSource

_SHOWN_NOTES = 20
_PATIENCE = 1.0

Tell = Callable[[str, int, int], None]


@click.command("import")
@click.argument("format", metavar="FORMAT|auto", required=False)
@click.argument("paths", metavar="PATH...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--scope", default="", help="Whose sessions they are.")
@click.option("--discover", is_flag=True, help="Import what is in the usual places of the programs, too.")
@click.option("--finish", is_flag=True, help="Take a last message that may not be complete: no more will come.")
@json_option
@click.pass_context
def import_files(
    ctx: click.Context,
    format: str | None,  # noqa: A002
    paths: tuple[Path, ...],
    scope: str,
    discover: bool,
    finish: bool,
    as_json: bool,
) -> None:
    """Import session files of another program, or folders of them.

    FORMAT is {formats}, or auto: then each file tells. In a folder, files of no known format are passed over.

    Importing a file again changes nothing; importing it after it has grown adds what is new. A file that cannot be
    imported is reported, and the others are imported all the same.
    """
    from flue_py.transfer.importing.places import find_files, usual_places

    wanted = AUTO if format is None else canonical_name(format)
    if format is not None and wanted != AUTO and known_format(wanted) is None and Path(format).exists():
        # FORMAT was left out: what stands in its place is the first path.
        wanted, paths = AUTO, (Path(format), *paths)
    if wanted != AUTO and known_format(wanted) is None:
        raise click.UsageError(
            f"{format!r} is neither a file or folder that is there, nor a format: {AUTO}, {', '.join(format_names())}",
            ctx,
        )
    if not paths and not discover:
        raise click.UsageError("name a file or a folder to import, or use --discover", ctx)
    for path in paths:
        if not path.exists():
            raise click.BadParameter(f"{printable(str(path))} does not exist", ctx, param_hint="PATH")
    work = _Work(wanted, scope, finish)
    places = [*paths, *(usual_places(wanted) if discover else ())]
    reports = work.run(ctx.obj, find_files(places, wanted))
    if as_json:
        print_json([report.to_json() for report in reports])
    else:
        for report in reports:
            print_lines(_lines(report))
        if not reports and not work.failures:
            searched = [*map(str, paths), *(["the usual places"] if discover else [])]
            print_lines([((f"no session files were found in {', '.join(searched)}", ""),)])
    for failure in work.failures:
        tell_error(str(failure))
    if work.failures:
        ctx.exit(1)


import_files.help = (import_files.help or "").replace("{formats}", ", ".join(each.name for each in FORMATS))


class _Work:
    """Imports file after file. The database is opened with the first one that can be read: else none is made."""

    def __init__(self, format: str, scope: str, finish: bool) -> None:  # noqa: A002
        self._format = format
        self._scope = scope
        self._finish = finish
        self.failures: list[FlueError] = []

    def run(self, place: Place, files: Iterator[Path]) -> list[ImportReport]:
        first = self._next(files)
        if first is None:
            return []

        async def work(store: Store) -> list[ImportReport]:
            reports = []
            source: ImportSource | None = first
            with _progress_bar() as tell:
                while source is not None:
                    name = source.path.name
                    with source:
                        try:
                            reports.append(
                                await import_source(
                                    store,
                                    source,
                                    scope=self._scope,
                                    progress=None if tell is None else _telling(tell, name),
                                )
                            )
                        except FixTheCall as error:
                            self.failures.append(error)
                    source = self._next(files)
            return reports

        try:
            return run(place, work, create=True)
        finally:
            first.close()

    def _next(self, files: Iterator[Path]) -> ImportSource | None:
        """Return the next file that can be read, started."""
        for path in files:
            source = ImportSource(path, self._format, take_all=self._finish)
            try:
                source.start()
            except BaseException as error:
                source.close()
                if not isinstance(error, FlueError):
                    raise
                self.failures.append(error)
            else:
                return source
        return None


def _telling(tell: Tell, name: str) -> Callable[[int, int], None]:
    return lambda done, size: tell(name, done, size)


@contextmanager
def _progress_bar() -> Iterator[Tell | None]:
    """Show a bar on stderr, where that is a terminal, once it has taken a second."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console(err=True), transient=True)
    task = bar.add_task("importing", total=None)
    began, is_shown = time.monotonic(), False

    def tell(name: str, done: int, size: int) -> None:
        nonlocal is_shown
        if not is_shown and time.monotonic() - began >= _PATIENCE:
            bar.start()
            is_shown = True
        bar.update(task, description=printable(name)[:40], completed=done, total=size)

    try:
        yield tell
    finally:
        if is_shown:
            bar.stop()


def _lines(report: ImportReport) -> list[Line]:
    first = report.sessions[0]
    if first.created:
        did = f"imported as session {first.session_id}: {counted(first.added, 'entry', 'entries')}"
    elif first.added:
        did = f"session {first.session_id} has grown by {counted(first.added, 'entry', 'entries')}"
    else:
        did = f"session {first.session_id} was already here; nothing was changed"
    lines: list[Line] = [
        ((_shown_path(report.file), "bold"), (f": {did}", "")),
        ((f"  {counted(report.rows, 'row')} read, {report.already_there:,} already there", "dim"),),
    ]
    for session in report.sessions[1:]:
        what = f"task session {session.session_id}" if session.task_of else f"session {session.session_id}"
        lines.append(((f"  {what}: {counted(session.added, 'new entry', 'new entries')}", "dim"),))
    return lines + _row_lines(report)


def _row_lines(report: ImportReport) -> list[Line]:
    """Return what became of rows that made no entry of their own, or another one than they say."""
    dim = [f"{counted(count, 'row')} left out: {reason}" for reason, count in report.left_out.items()]
    if report.merged:
        dim.insert(0, f"{counted(report.merged, 'row')} merged into the message they belong to")
    striking = [
        f"the session had moved on: its leaf stays at {session.leaf_id}"
        for session in report.sessions
        if session.leaf_kept
    ]
    if report.held_back:
        held = f"{counted(report.held_back, 'row')} from line {report.held_back_from} on"
        striking.append(f"held back: {held} may not be a whole message; --finish takes them")
    if booked := sum(session.booked for session in report.sessions):
        dim.append(f"{counted(booked, 'paid call')} in the ledger before the message is complete")
    lines: list[Line] = [((f"  {text}", "dim"),) for text in dim]
    lines += [((f"  {text}", "yellow"),) for text in striking]
    for kind, count in report.unknown_kinds.items():
        lines.append((("  kept although unknown: ", "yellow"), (f"{counted(count, 'entry', 'entries')} {kind!r}", "")))
    if report.surrogates_replaced:
        lines.append(((f"  {counted(report.surrogates_replaced, 'lone surrogate')} replaced", "yellow"),))
    for word, notes, count in (
        ("skipped", report.skipped, report.skipped_rows),
        ("repaired", report.repaired, report.repaired_rows),
    ):
        lines += [((f"  {word} ", "yellow"), (printable(str(note)), "")) for note in notes[:_SHOWN_NOTES]]
        if count > _SHOWN_NOTES:
            lines.append(((f"  {word} {count - _SHOWN_NOTES:,} more; --json lists them", "yellow"),))
    lines += [(("  paid before with other numbers: ", "yellow"), (str(call), "")) for call in report.call_conflicts]
    odd = [oddity for session in report.sessions for oddity in session.oddities]
    lines += [(("  not counted: ", "yellow"), (printable(oddity), "")) for oddity in odd[:_SHOWN_NOTES]]
    if len(odd) > _SHOWN_NOTES:
        lines.append(((f"  not counted: {len(odd) - _SHOWN_NOTES:,} more; --json lists them", "yellow"),))
    return lines


def _shown_path(file: str) -> str:
    """Return a path as people write it: from their home, where it is in there."""
    try:
        return f"~/{PurePath(file).relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return file
