"""The import command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from os.path import exists
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import click

import flue_py
from flue_py.cli.choosing import scope_option
from flue_py.cli.group import INTERRUPTED
from flue_py.cli.output import Answer
from flue_py.cli.place import Place
from flue_py.cli.progress import BYTES, Tell, progress_bar
from flue_py.cli.running import command, run
from flue_py.cli.wording import in_commands
from flue_py.errors import FixTheCall, FlueError
from flue_py.formats.others import programs_seen
from flue_py.formats.registry import FORMATS, canonical_name, format_names, known_format
from flue_py.render.lines import Line, counted, printable
from flue_py.sessions.store import Store
from flue_py.transfer.importing.places import find_files, usual_places
from flue_py.transfer.importing.reports import ImportReport
from flue_py.transfer.importing.run import import_source
from flue_py.transfer.importing.sources import AUTO, ImportSource
from flue_py.transfer.importing.unchanged import ImportedFiles

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_SHOWN_NOTES = 20


class _FormatOrPath(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A format that can be imported, or the first of the files."""

    name = "format"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the formats that begin with ``incomplete``; where there are none, have the shell complete a path."""
        from click.shell_completion import CompletionItem

        names = [name for name in (AUTO, *format_names()) if name.startswith(incomplete)]
        return [CompletionItem(name) for name in names] or [CompletionItem(incomplete, type="file")]


@command("import")
@click.argument("named", metavar="FORMAT|auto", type=_FormatOrPath(), required=False)
@click.argument("paths", metavar="PATH...", nargs=-1, type=click.Path(path_type=Path))
@scope_option
@click.option("--discover", is_flag=True, help="Import from the usual folders of the programs, too.")
@click.option("--finish", is_flag=True, help="Import a last message that may be incomplete: the file will not grow.")
@click.option("--again", is_flag=True, help="Import sessions that were deleted here, too.")
def import_(
    place: Place,
    named: str | None,
    paths: tuple[Path, ...],
    scope: str | None,
    discover: bool,
    finish: bool,
    again: bool,
) -> Answer:
    """Import session files of other programs, or folders of them.

    FORMAT is {formats}, or auto, which recognizes each file. In a folder, files of unknown formats are skipped.

    Importing a file again adds only what is new; a session that was deleted stays deleted. A file that cannot be
    imported is reported, and the others are imported. An import that is interrupted says what it has imported; the
    same import goes on from there.

    A session keeps the id of its file. The leaf moves along with what is new, unless the session has moved on
    since. A last message that may be incomplete is held back for a later import, unless --finish is given. With
    --discover, programs that are there and cannot be read are named on stderr. Ctrl-C prints what was imported so
    far, and exits 130.

    With --json: a list with an object for each file: file, format, sessionId, created, changed, rows (lines that
    are not blank), added and alreadyThere (entries), leafId, leafKept (the session had moved on), skipped and
    repaired (objects with line, or the index of an item of a list, and text; the first thousand of each),
    skippedRows and repairedRows (how many in all), mergedRows (that became part of another row's entry), leftOut
    (rows that say nothing of their own, by reason), heldBackRows and heldBackFromLine, unknownKinds (entries kept,
    by kind), surrogatesReplaced, and sessions: of each session of the file sessionId, created, added, alreadyThere,
    leafId, leafKept, taskOf, booked, and oddities (usage that is kept and not counted, as sums would be too large).
    The fields before sessions are about the first of them, added and alreadyThere about all.
    """
    wanted = AUTO if named is None else canonical_name(named)
    if named is not None and wanted != AUTO and known_format(wanted) is None:
        if not Path(named).exists():
            formats = ", ".join((AUTO, *format_names()))
            raise click.UsageError(f"{named!r} is neither a file or folder that is there, nor a format: {formats}")
        # FORMAT was left out: what stands in its place is the first path.
        wanted, paths = AUTO, (Path(named), *paths)
    if not paths and not discover:
        raise click.UsageError("name a file or a folder to import, or use --discover")
    for path in paths:
        if not path.exists():
            raise click.BadParameter(f"{printable(str(path))} does not exist", param_hint="PATH")
    others: Counter[str] = Counter()
    reports: list[ImportReport] = []
    failures: list[FlueError] = []
    files: list[Path] = []
    is_interrupted = False
    with progress_bar("looking for session files", BYTES) as tell:
        bar = _Bar(tell)

        def sources(unchanged: Callable[[Path], ImportReport | None]) -> Generator[ImportSource | ImportReport]:
            places = [*paths, *(usual_places(wanted) if discover else ())]
            seen: Counter[str] = Counter()
            files[:], failures[:] = find_files(places, wanted, others=seen, is_session=unchanged), ()
            others.update(seen - others)
            bar.begin(files)
            return _started(files, wanted, failures, unchanged, bar, finish=finish)

        async def work(store: Store) -> None:
            remembered = ImportedFiles(store, scope or "", finish=finish, wanted=wanted, version=flue_py.__version__)
            await remembered.read()
            with closing(sources(remembered.report)) as started:
                await _import(store, started, reports, failures, bar, scope, remembered, again=again)

        try:
            # No database is made where no file can be read.
            if (place.is_file and exists(place.target)) or _has_some(sources(lambda _: None)):
                run(place, work, create=True)
        except KeyboardInterrupt:
            is_interrupted = True
    searched = ", ".join([*map(str, paths), *(["the usual places"] if discover else [])])
    lines = [line for report in reports for line in _lines(report)]
    if len(files) > 1:
        lines.append(_total(reports, failures, len(files)))
    elif not files:
        lines = [((f"no session files were found in {searched}", ""),)]
    notes = [f"Error: {in_commands(str(failure))}" for failure in failures]
    if is_interrupted:
        counts = _counts(reports, failures, len(files))
        notes.append(f"Interrupted; what was committed before stays: {counts}. The same import goes on from there")
    else:
        notes += _passed_over(others if wanted == AUTO else Counter(), discover=discover)
    return Answer(
        lambda: lines,
        lambda: [report.to_json() for report in reports],
        notes=notes,
        code=INTERRUPTED if is_interrupted else int(bool(failures)),
    )


import_.help = (import_.help or "").replace("{formats}", ", ".join(each.name for each in FORMATS))


class _Bar:
    """The bar of an import: the bytes of all its files, and which one is read."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._what = ""
        self.begin(())

    def begin(self, files: Sequence[Path]) -> None:
        """Begin with the first of these files."""
        self._sizes = [_size(path) for path in files]
        self._total = sum(self._sizes)
        self._number = self._before = self._after = 0

    def next_file(self, path: Path) -> None:
        """Show that the next file is read."""
        self._before = self._after
        self._after += self._sizes[self._number]
        self._number += 1
        count = len(self._sizes)
        which = f"file {self._number:,} of {count:,}: " if count > 1 else ""
        self._what = f"importing {which}{printable(path.name)[:40]}"
        self.show(0, 0)

    def show(self, done: int, _size: int) -> None:
        """Show how much of the file was read."""
        self._tell(self._before + done, max(self._total, self._before + done), self._what)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # its import says what is wrong
        return 0


def _started(
    files: Sequence[Path],
    wanted: str,
    failures: list[FlueError],
    unchanged: Callable[[Path], ImportReport | None],
    bar: _Bar,
    *,
    finish: bool,
) -> Generator[ImportSource | ImportReport, None, None]:
    """Yield the files that can be read, each open until the next one is asked for; add to ``failures`` for others.

    Of one that is as it was when it was imported, the report is yielded.
    """
    for path in files:
        bar.next_file(path)
        if (report := unchanged(path)) is not None:
            yield report
            continue
        with ImportSource(path, wanted, take_all=finish) as source:
            try:
                source.start()
            except FlueError as error:
                failures.append(error)
                continue
            yield source


def _has_some(sources: Generator[ImportSource | ImportReport]) -> bool:
    with closing(sources):
        return next(sources, None) is not None


async def _import(
    store: Store,
    sources: Iterator[ImportSource | ImportReport],
    reports: list[ImportReport],
    failures: list[FlueError],
    bar: _Bar,
    scope: str | None,
    remembered: ImportedFiles,
    *,
    again: bool,
) -> None:
    """Import file after file, adding to ``reports``."""
    try:
        for source in sources:
            if isinstance(source, ImportReport):
                reports.append(source)
                continue
            try:
                reports.append(await import_source(store, source, scope=scope, again=again, progress=bar.show))
                remembered.note(source, reports[-1])
            except FixTheCall as error:
                failures.append(error)
    finally:
        # What this one has finished, the next import need not read again, however it ends.
        await remembered.write()


def _total(reports: Sequence[ImportReport], failures: Sequence[FlueError], files: int) -> Line:
    return (("total: ", "bold"), (_counts(reports, failures, files), ""))


def _counts(reports: Sequence[ImportReport], failures: Sequence[FlueError], files: int) -> str:
    """Return what became of files, and how many sessions and entries are new."""
    sessions = [session for report in reports for session in report.sessions]
    counts = [
        f"{len(reports):,} of {counted(files, 'file')} imported",
        counted(sum(each.created for each in sessions), "new session"),
        counted(sum(each.added for each in sessions), "new entry", "new entries"),
    ]
    if failures:
        counts.append(f"{counted(len(failures), 'file')} not imported")
    return ", ".join(counts)


def _passed_over(others: Counter[str], *, discover: bool) -> list[str]:
    """Return a line for each program whose sessions are there, and which no format reads."""
    seen = {name: f"{counted(count, 'file')} passed over" for name, count in others.items()}
    if discover:
        seen |= {
            name: f"{counted(count, 'file')} in its usual places, such as {printable(_shown_path(first))}"
            for name, count, first in programs_seen()
        }
    return [f"{name}: {what}; flue-py cannot read its sessions" for name, what in sorted(seen.items())]


def _lines(report: ImportReport) -> list[Line]:
    first = report.sessions[0]
    if first.deleted:
        did = f"session {first.session_id} was deleted here, and stays deleted; --again imports it"
    elif first.created:
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
        if session.deleted:
            lines.append(((f"  {what}: was deleted here, and stays deleted", "dim"),))
            continue
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
        lines += [((f"  {word} ", "yellow"), (printable(in_commands(str(note))), "")) for note in notes[:_SHOWN_NOTES]]
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
