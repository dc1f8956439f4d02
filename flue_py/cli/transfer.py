"""Commands that import and export sessions, and carry whole trees elsewhere."""

from __future__ import annotations

import json
import webbrowser
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from os.path import exists, isdir
from pathlib import Path, PurePath
from time import monotonic, sleep
from types import SimpleNamespace
from typing import TYPE_CHECKING, get_args

import click
from msgspec.structs import replace

import flue_py
from flue_py.cli import command as cli
from flue_py.cli.command import Answer
from flue_py.cli.main import INTERRUPTED, Place, in_commands
from flue_py.core.json import JsonObject
from flue_py.core.kinds import Shape
from flue_py.core.sessions import LeafChoice
from flue_py.db.files import make_private_folder, write_whole
from flue_py.errors import FixTheCall, FlueError, InvalidArgument, shown
from flue_py.formats.registry import FORMATS, canonical_name, export_names, format_names, known_format, programs_seen
from flue_py.lazy import lazy_module
from flue_py.render.lines import Line, counted, printable
from flue_py.render.views import damaged_lines, row_of
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.transfer.ahead import ReadAhead
from flue_py.transfer.copy import BundleCounts, read_bundle, write_bundle
from flue_py.transfer.export import (
    export_session,
    place_in_home,
    transcripts_of_tasks,
    write_continuation,
    write_pages,
    write_transcript,
)
from flue_py.transfer.export import transcript as transcript_of
from flue_py.transfer.imports import FollowedFiles, ImportedFiles, ImportReport, import_source
from flue_py.transfer.source import AUTO, ImportSource, WatchedFolders, find_files, stated_at, usual_places

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from flue_py.adapters import opentelemetry
    from flue_py.agents import conversation
else:
    conversation = lazy_module("flue_py.agents.conversation")
    opentelemetry = lazy_module("flue_py.adapters.opentelemetry")


# ---------------------------------------------------------------------------------------------------------------------
# The bundle command.

_HELD = "trees sessions entries calls"


@cli.command()
@click.argument("target", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("sessions", metavar="SESSION...", type=cli.SESSION, nargs=-1)
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
    return cli.said(f"{report.path}: {cli.held(report.counts, _HELD)}, {report.size_bytes:,} bytes", row)


def held_row(counts: BundleCounts) -> JsonObject:
    """Return the counts of a bundle, for programs."""
    return row_of(counts, _HELD)


# ---------------------------------------------------------------------------------------------------------------------
# The export command.

_STDOUT = "-"
_VIEWS = ("markdown", "html", "json", "snapshots", "otlp")
"""Exports beside the formats of other programs."""

_FORMATS_OF = {
    "append": ("markdown",),
    "tasks": ("markdown",),
    "words_only": ("markdown",),
    "open": ("html",),
    "warn_at": ("html", "snapshots"),
    "cutover_at": ("html", "snapshots"),
    "sizes": ("html",),
    "settings": ("html",),
    "agent": ("html",),
    "target": ("html",),
    "no_time": ("html",),
    "content": ("otlp",),
}
"""Options, and the only formats that take them."""


class _Format(click.Choice):  # type: ignore[type-arg, unused-ignore]
    """A format that can be exported."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the format. Raises `click.UsageError`, which says where it belongs."""
        # Packages may add formats: the choices are those of the package alone.
        names = (*export_names(), *_VIEWS)
        if value not in names:
            raise click.UsageError(
                f"{value!r} is not a format that can be exported: {', '.join(names)}; FORMAT comes before SESSION", ctx
            )
        return value


def _check(options: SimpleNamespace) -> None:
    form, output = options.form, options.output
    for name, formats in _FORMATS_OF.items():
        value = getattr(options, name)
        is_default = value if name == "sizes" else value in (None, False, 0)
        if form not in formats and not is_default:
            raise click.UsageError(f"--{name.replace('_', '-')} is for {' and '.join(formats)}, not for {form}")
    if options.leaf is not None and ((form in _VIEWS and form != "markdown") or options.words_only):
        raise click.UsageError("--leaf is for the formats of other programs, and for markdown without --words-only")
    cli.refuse(
        form == "otlp" and output is not None, "otlp goes to the collector that OTEL_EXPORTER_OTLP_ENDPOINT names"
    )
    is_printed = output == _STDOUT or (output is None and form not in ("html", "otlp"))
    if is_printed and (options.append or options.overwrite or options.as_json or options.open):
        raise click.UsageError("--append, --overwrite, --open and --json go with --output FILE")
    cli.refuse(not is_printed and options.tasks, "--tasks prints; give it without --output, and redirect the output")
    cli.refuse(options.append and options.overwrite, "give either --append or --overwrite")
    if options.words_only and (options.append or options.tasks):
        raise click.UsageError("--append and --tasks are of whole transcripts; leave out --words-only")
    if output is not None and not is_printed and not (options.append or options.overwrite) and exists(output):
        if isdir(output):
            raise InvalidArgument(f"--output: {shown(output)} is a folder; name a file in it")
        raise InvalidArgument(f"{output} is there already; name another file, or remove it")


@cli.command(check=_check)
@click.argument("form", metavar="FORMAT", type=_Format([*(form.name for form in FORMATS if form.write), *_VIEWS]))
@cli.newest_argument
@cli.leaf_option("Export at this entry instead of the stored leaf.")
@click.option("--output", metavar="FILE", help="Write a file, readable by its owner only; - prints.")
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists, once the new one is complete.")
@click.option("--append", is_flag=True, help="Of markdown: continue the transcript in FILE with the new entries.")
@click.option("--tasks", is_flag=True, help="Of markdown: print the transcripts of the task sessions, too.")
@click.option("--words-only", is_flag=True, help="Of markdown: without tool calls and results.")
@click.option("--open", is_flag=True, help="Of html: open the page in the browser.")
@click.option("--warn-at", type=click.IntRange(min=0), default=0, help="Of html: a line at this many input tokens.")
@click.option("--cutover-at", type=click.IntRange(min=0), default=0, help="Of html: a red line at this many.")
@click.option("--sizes/--no-sizes", default=True, help="Of html: count tokens, or skip it to save time.")
@click.option("--settings", metavar="FILE", help="Of html: the context that these settings leave, as `context` shows.")
@click.option("--agent", metavar="NAME", help="Of html: the context that this agent is sent.")
@click.option("--target", type=click.Choice(get_args(Shape)), help="Of html: the request of this provider, repaired.")
@click.option("--no-time", is_flag=True, help="Of html: no time, so that the same session gives the same bytes.")
@click.option("--content", is_flag=True, help="Of otlp: send the words, too: messages, arguments, results.")
async def export(
    store: Store,
    session: Session,
    form: str,
    leaf: LeafChoice,
    output: str | None,
    overwrite: bool,
    append: bool,
    tasks: bool,
    words_only: bool,
    open: bool,
    warn_at: int,
    cutover_at: int,
    sizes: bool,
    settings: str | None,
    agent: str | None,
    target: str | None,
    no_time: bool,
    content: bool,
) -> Answer:
    """Export SESSION, by default the newest, in the format of another program, or for people.

    FORMAT is pi or flue (the whole tree), or another program, openai-chat, openai-responses or anthropic (what the
    model sees); markdown (the path with prices, tool calls folded), html (one page that needs no network: tree,
    contexts, costs of SESSION and its tasks), json (the full state), snapshots (the data of the chart of html, as JSON
    lines), or otlp: spans of SESSION and its tasks go to the OpenTelemetry collector that OTEL_EXPORTER_OTLP_ENDPOINT
    names, and sending them again adds none. What the format cannot hold is reported on stderr.

    A file that is there is not written over. html is written to report-ID.html, unless --output is given. A dash in
    markdown stands for a price that is not known. json is an object: session (as in sessions), entries (all of the
    tree, as show --path), labels (by entry id), tasks. With --output and --json: an object: file, bytes; of markdown
    file, outcome (new, continued, rewound, unchanged), entries, leafId. Of otlp: spans, sessions.
    """
    if form == "otlp":
        sent = await opentelemetry.export_spans(store, session, opentelemetry.otlp_exporter(), content=content)
        words = f"{counted(sent.spans, 'span')} of {counted(sent.sessions, 'session')} sent"
        return cli.said(words, {**row_of(sent, "spans sessions")})
    if form == "markdown" and not words_only:
        if output is not None and output != _STDOUT:
            return await _transcript_file(session, output, leaf, append=append, overwrite=overwrite)
        parts = [await transcript_of(session, leaf=leaf)]
        if tasks:
            parts += [part async for part in transcripts_of_tasks(store, session)]
        return Answer(document="\n".join(parts))
    notes: list[str] = []
    if form == "html":
        text = await session.reports.html(
            warn_at=warn_at,
            cutover_at=cutover_at,
            made_at=None if no_time else datetime.now(UTC),
            sizes=sizes,
            settings=cli.settings_in(settings),
            agent=agent,
            target=target,
        )
        output = f"report-{_safe(session.id)}.html" if output is None else output
    elif form == "snapshots":
        text = await session.reports.snapshots(warn_at=warn_at, cutover_at=cutover_at)
    elif form == "markdown":
        text = await conversation.Conversation(store, session).save()
    elif form == "json":
        state = await conversation.Conversation(store, session).snapshot()
        text = json.dumps(state, ensure_ascii=False, indent=2) + "\n"
    else:
        exported = await export_session(session, form, leaf=leaf)
        text, notes = exported.text, [str(note) for note in exported.notes]
    if output is None or output == _STDOUT:
        return Answer(document=text, is_json=form not in ("html", "markdown"), notes=notes)
    return _written(Path(output), text, notes, overwrite=overwrite, is_opened=open)


def _safe(session_id: str) -> str:
    """Return the beginning of an id as part of a file's name, whatever an imported id holds."""
    return "".join(char if char.isascii() and char.isalnum() else "-" for char in session_id[:8])


def _written(path: Path, text: str, notes: Sequence[str], *, overwrite: bool, is_opened: bool) -> Answer:
    if isdir(path) or path.name in ("", ".."):
        raise InvalidArgument(f"--output: {shown(str(path))} is a folder; name a file in it")
    data = text.encode(errors="backslashreplace")
    write_whole(path, data, overwrite=overwrite)
    if is_opened:
        webbrowser.open(path.resolve().as_uri())
    row: JsonObject = {"file": str(path), "bytes": len(data)}
    return replace(cli.said(f"{path}: {len(data):,} bytes", row), notes=notes)


async def _transcript_file(session: Session, output: str, leaf: LeafChoice, *, append: bool, overwrite: bool) -> Answer:
    report = await write_transcript(session, output, leaf=leaf, append=append, overwrite=overwrite)
    row: JsonObject = {"file": str(report.path), **row_of(report, "outcome entries leaf_id")}
    return cli.said(f"{report.path}: {report.outcome}, {counted(report.entries, 'entry', 'entries')} written", row)


# ---------------------------------------------------------------------------------------------------------------------
# The report command.


def _report_check(options: SimpleNamespace) -> None:
    cli.refuse(options.show_all == (options.session is not None), "name a SESSION, or give --all")
    if not options.show_all and (options.choice != cli.SessionChoice() or options.tz is not None):
        raise click.UsageError("options that choose sessions, and --tz, go with --all")


@cli.command(check=_report_check)
@click.argument("session", type=cli.SESSION, required=False)
@click.option("--all", "show_all", is_flag=True, help="A folder of pages: a list of all sessions, and a page for each.")
@click.option(
    "--output", metavar="PATH", help="The folder, or of a SESSION the file (default: report, report-ID.html)."
)
@click.option("--overwrite", is_flag=True, help="Replace files that are there.")
@click.option("--open", is_flag=True, help="Open it in the browser.")
@cli.scope_option
@cli.choice_options
@click.option("--sizes", is_flag=True, help="Count the tokens of entries, which takes time.")
@click.option("--tz", metavar="ZONE", help="Days of this zone, such as Europe/Berlin or UTC (default: the machine's).")
@click.option("--no-time", is_flag=True, help="No time of making, so that the same sessions give the same bytes.")
async def report(
    store: Store,
    session: Session | None,
    show_all: bool,
    output: str | None,
    overwrite: bool,
    open: bool,
    choice: cli.SessionChoice,
    sizes: bool,
    tz: str | None,
    no_time: bool,
    tell: cli.Tell,
) -> Answer:
    """Write SESSION as a page for people, or with --all a folder of pages of all sessions.

    The list has filters, a search in names and first words, and the cost by day, month, project, program and model.
    Behind it is a page for each session with its tasks, as of export html. They need no network. Files are for their
    owner alone.

    With --json: an object: file (of --all the list), bytes, sessions (how many), damaged (the ids of those that cannot
    be opened).
    """
    made_at = None if no_time else datetime.now(UTC)
    if session is not None:
        text = await session.reports.html(made_at=made_at, sizes=sizes)
        path = Path(output or f"report-{_safe(session.id)}.html")
        return _written(path, text, (), overwrite=overwrite, is_opened=open)
    damaged: list[str] = []
    infos = await cli.chosen_sessions(store, choice, choice.times(), damaged=damaged)
    pages = await write_pages(
        store,
        output or "report",
        [info for info in infos if not info.is_aside],
        damaged=damaged,
        sizes=sizes,
        overwrite=overwrite,
        made_at=made_at,
        tz=cli.zone(tz),
        progress=lambda done, total: tell(done, total, "writing pages"),
    )
    if open:
        webbrowser.open(pages.index.resolve().as_uri())
    row: JsonObject = {"file": str(pages.index), **row_of(pages, "bytes=size_bytes sessions damaged")}
    line = f"{pages.index}: {counted(pages.sessions, 'session')}, {pages.size_bytes:,} bytes"
    return Answer(lambda: [*cli.plain_lines(line), *damaged_lines(pages.damaged)], lambda: row)


# ---------------------------------------------------------------------------------------------------------------------
# The resume command.


@cli.command()
@click.argument("program", metavar="PROGRAM", type=click.Choice([form.name for form in FORMATS if form.is_resumed]))
@cli.newest_argument
@cli.leaf_option("Go on at this entry instead of the stored leaf.")
@click.option("--folder", metavar="FOLDER", help="Go on in this folder, instead of the one that SESSION works in.")
@click.option("--home", metavar="FOLDER", help="The home whose programs are meant, instead of yours.")
async def resume(session: Session, program: str, leaf: LeafChoice, folder: str | None, home: str | None) -> Answer:
    """Write SESSION, by default the newest, where PROGRAM keeps its own, and print the line that goes on with it.

    PROGRAM is {programs}, whichever program the session began in. It gets what the model sees; SESSION stays as it is.
    What it does not get is reported on stderr. No file is written over: the same SESSION at the same entry is written
    once.

    With --json: an object: file, line, isNew, leftOut (a list of texts).
    """
    report = await write_continuation(session, program, leaf=leaf, folder=folder, home=home)
    notes = [str(note) for note in report.notes]
    row: JsonObject = {"file": str(report.path), "line": report.line, "isNew": report.is_new, "leftOut": [*notes]}
    return replace(cli.said(report.line, row), notes=notes)


# ---------------------------------------------------------------------------------------------------------------------
# The skill command.

_SKILLS = {
    "claude-code": "~/.claude/skills/past-sessions/SKILL.md",
    "codex": "~/.codex/skills/past-sessions/SKILL.md",
    "pi": "~/.pi/agent/skills/past-sessions/SKILL.md",
}


@cli.command(json=False)
@click.argument("program", type=click.Choice([*_SKILLS]), required=False)
@click.option("--overwrite", is_flag=True, help="Replace the file if it is there, and another.")
@click.option("--home", metavar="FOLDER", help="The home whose PROGRAM is meant, instead of yours.")
def skill(place: Place, program: str | None, overwrite: bool, home: str | None) -> Answer:
    """Print the skill that tells agents how to search and read past sessions, or put it where PROGRAM looks for it.

    It is a SKILL.md, as Claude Code, Codex and pi read them. They see it when they are started next.
    """
    text = Path(__file__).with_name("skill.md").read_text(encoding="utf-8")
    if program is None:
        return Answer(document=text)
    path = place_in_home(_SKILLS[program], None if home is None else Path(home))
    if exists(path) and path.read_text(encoding="utf-8", errors="replace") == text:
        return cli.said(f"{path} is there already", None)
    if exists(path) and not overwrite:
        raise InvalidArgument(f"{path} is there, and says something else; give --overwrite to replace it")
    make_private_folder(path.parent)
    write_whole(path, text.encode(), overwrite=overwrite)
    return cli.said(f"{path}: written; {program} sees it when it is started next", None)


# ---------------------------------------------------------------------------------------------------------------------
# The import command.

_SHOWN_NOTES = 20


class _FormatOrPath(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A format that can be imported, or the first of the files."""

    name = "format"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the formats that begin with ``incomplete``; where there are none, have the shell complete a path."""
        from click.shell_completion import CompletionItem

        names = [name for name in (AUTO, *format_names()) if name.startswith(incomplete)]
        return [CompletionItem(name) for name in names] or [CompletionItem(incomplete, type="file")]


@cli.command("import")
@click.argument("named", metavar="FORMAT|auto", type=_FormatOrPath(), required=False)
@click.argument("paths", metavar="PATH...", nargs=-1, type=click.Path(path_type=Path))
@cli.scope_option
@click.option("--discover", is_flag=True, help="Import from the usual folders of the programs, too.")
@click.option("--finish", is_flag=True, help="Import a last message that may be incomplete: the file will not grow.")
@click.option("--again", is_flag=True, help="Import sessions that were deleted here, too.")
@click.option("--watch", is_flag=True, help="Go on: import what changes, until Ctrl-C.")
def import_(
    place: Place,
    named: str | None,
    paths: tuple[Path, ...],
    scope: str | None,
    discover: bool,
    finish: bool,
    again: bool,
    watch: bool,
    as_json: bool,
) -> Answer:
    """Import session files of other programs, or folders of them.

    FORMAT is {formats}, or auto, which recognizes each file. In a folder, files of unknown formats are skipped.

    Importing a file again adds only what is new; a session that was deleted stays deleted. A file that cannot be
    imported is reported, and the others are imported. An import that is interrupted says what it has imported; the
    same import goes on from there.

    A session keeps the id of its file. The leaf moves along with what is new, unless the session has moved on
    since. A last message that may be incomplete is held back for a later import, unless --finish is given. With
    --discover, programs that are there and cannot be read are named on stderr. Ctrl-C prints what was imported so
    far, and exits 130. With --watch, files are looked at twice a second, one that changed is imported, and a last
    message that may be incomplete is imported once its file rests; --json then prints an object a line.

    With --json: a list with an object for each file: file, format, sessionId, created, changed, rows (lines that
    are not blank), added and alreadyThere (entries), leafId, leafKept (the session had moved on), skipped and
    repaired (objects with line, or the index of an item of a list, and text; the first thousand of each),
    skippedRows and repairedRows (how many in all), mergedRows (that became part of another row's entry), leftOut
    (rows that say nothing of their own, by reason), heldBackRows and heldBackFromLine, unknownKinds (entries kept,
    by kind), surrogatesReplaced, and sessions: of each session of the file sessionId, created, added, alreadyThere,
    leafId, leafKept, taskOf, booked, changed, and oddities (usage that is kept and not counted, as sums would be too
    large). The fields before sessions are about the first of them, added and alreadyThere about all.
    """
    wanted, paths = _named(named, paths)
    cli.refuse(not paths and not discover, "name a file or a folder to import, or use --discover")
    others: Counter[str] = Counter()
    reports: list[ImportReport] = []
    failures: list[FlueError] = []
    files: list[Path] = []
    is_interrupted = False
    with cli.progress_bar("looking for session files", cli.BYTES) as tell:
        bar = _Bar(tell)

        def sources(remembered: ImportedFiles | None = None) -> Generator[ImportSource | ImportReport]:
            unchanged = remembered.report if remembered else lambda _: None
            places = [*paths, *(usual_places(wanted) if discover else ())]
            seen: Counter[str] = Counter()
            files[:], failures[:] = find_files(places, wanted, others=seen, is_session=unchanged), ()
            others.update(seen - others)
            bar.begin(files)
            if remembered:
                return _started(files, failures, unchanged, remembered.source, bar)
            # To see whether there is a file.
            return _started(files, failures, unchanged, lambda path: ImportSource(path, wanted), bar, is_trial=True)

        async def work(store: Store) -> None:
            remembered = ImportedFiles(store, scope or "", finish=finish, wanted=wanted, version=flue_py.__version__)
            await remembered.read()
            with closing(sources(remembered)) as started:
                await _import(store, started, reports, failures, bar, scope, remembered, again=again)
            if watch:
                bar.begin(())
                _print_reports(reports, as_json=as_json)
                places = [*paths, *(usual_places(wanted) if discover else ())]
                await _watch(store, WatchedFolders(places), wanted, scope, reports, again=again, as_json=as_json)

        try:
            # No database is made where no file can be read.
            if watch or (place.is_file and exists(place.target)) or _has_some(sources()):
                cli.run(place, work, create=True)
        except KeyboardInterrupt:
            is_interrupted = True
    searched = ", ".join([*map(str, paths), *(["the usual places"] if discover else [])])
    lines = [line for report in reports for line in _lines(report)]
    if len(files) > 1:
        lines += _totals(reports, failures, len(files))
    elif not files:
        lines = [((f"no session files were found in {searched}", ""),)]
    notes = [f"Error: {in_commands(str(failure))}" for failure in failures]
    if is_interrupted:
        counts = _counts(reports, failures, max(len(files), len(reports)))
        notes.append(f"Interrupted; what was committed before stays: {counts}. The same import goes on from there")
    else:
        notes += _passed_over(others if wanted == AUTO else Counter(), discover=discover)
    if watch:  # everything was printed when it was imported
        return Answer(document="", notes=notes, code=INTERRUPTED)
    return Answer(
        lambda: lines,
        lambda: [report.to_json() for report in reports],
        notes=notes,
        code=INTERRUPTED if is_interrupted else int(bool(failures)),
    )


import_.help = (import_.help or "").replace("{formats}", ", ".join(form.name for form in FORMATS))
resume.help = (resume.help or "").replace("{programs}", " or ".join(form.name for form in FORMATS if form.is_resumed))


def _named(named: str | None, paths: tuple[Path, ...]) -> tuple[str, tuple[Path, ...]]:
    """Return the format and the paths that were named. Raises `click.UsageError`."""
    wanted = AUTO if named is None else canonical_name(named)
    if named is not None and wanted != AUTO and known_format(wanted) is None:
        if not Path(named).exists():
            formats = ", ".join((AUTO, *format_names()))
            raise click.UsageError(f"{named!r} is neither a file or folder that is there, nor a format: {formats}")
        # FORMAT was left out: what stands in its place is the first path.
        wanted, paths = AUTO, (Path(named), *paths)
    for path in paths:
        if not path.exists():
            raise click.BadParameter(f"{printable(str(path))} does not exist", param_hint="PATH")
    return wanted, paths


class _Bar:
    """The bar of an import: the bytes of all its files, and which one is read."""

    def __init__(self, tell: cli.Tell) -> None:
        self._tell = tell
        self._what = ""
        self.begin(())

    def begin(self, files: Sequence[Path]) -> None:
        """Begin with the first of these files."""
        self._sizes = [_stated(path)[2] for path in files]
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


def _stated(path: Path) -> list[int]:
    return stated_at(str(path)) or [0] * 5  # its import says what is wrong


def _started(
    files: Sequence[Path],
    failures: list[FlueError],
    unchanged: Callable[[Path], ImportReport | None],
    opened: Callable[[Path], ImportSource],
    bar: _Bar,
    is_trial: bool = False,
) -> Generator[ImportSource | ImportReport, None, None]:
    """Yield the files that can be read, each open until the next one is asked for; add to ``failures`` for others.

    Of one that is as it was when it was imported, the report is yielded. Of a trial, none is read ahead.
    """
    changed = [path for path in files if unchanged(path) is None]
    with ReadAhead(changed, opened, is_trial=is_trial) as ahead:
        for path in files:
            bar.next_file(path)
            if (report := unchanged(path)) is not None:
                yield report
                continue
            with ahead.next_source() as source:
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


_REST_SECONDS = 0.5


async def _watch(
    store: Store,
    folders: WatchedFolders,
    wanted: str,
    scope: str | None,
    reports: list[ImportReport],
    *,
    again: bool,
    as_json: bool,
) -> None:
    """Import what changes, adding to ``reports``, until Ctrl-C."""
    waiting: set[Path] = {Path(report.file) for report in reports if report.held_back}
    followed = FollowedFiles(store, wanted, scope, again=again)
    while True:
        sleep(_REST_SECONDS)  # noqa: ASYNC251 - nothing else is to be done meanwhile
        changed = {file for path in folders.changed() for file in folders.sessions_of(path, wanted)}
        for file in sorted(changed | waiting):
            is_resting = file not in changed
            waiting.discard(file)
            try:
                report = await followed.catch_up(file, take_all=is_resting)
            except FixTheCall as error:
                cli.tell(f"Error: {in_commands(str(error))}")
                continue
            if report.held_back:
                waiting.add(file)
            if report.changed:
                reports.append(report)
                _print_reports([report], as_json=as_json)


def _print_reports(reports: Sequence[ImportReport], *, as_json: bool) -> None:
    for report in reports:
        if as_json:
            cli.print_document(json.dumps(report.to_json(), ensure_ascii=False) + "\n", is_json=True)
        else:
            cli.print_lines(_lines(report))


def _totals(reports: Sequence[ImportReport], failures: Sequence[FlueError], files: int) -> list[Line]:
    """Return a line for each program, if there are several, and one for all."""
    formats = sorted({report.format for report in reports})
    lines: list[Line] = []
    for name in formats if len(formats) > 1 else ():
        own = [report for report in reports if report.format == name]
        lines.append(((f"{name}: ", "bold"), (_counts(own, (), len(own)), "")))
    return [*lines, (("total: ", "bold"), (_counts(reports, failures, files), ""))]


def _counts(reports: Sequence[ImportReport], failures: Sequence[FlueError], files: int) -> str:
    """Return the outcome of files, and how many sessions and entries are new."""
    sessions = [session for report in reports for session in report.sessions]
    counts = [
        f"{len(reports):,} of {counted(files, 'file')} imported",
        counted(sum(session.created for session in sessions), "new session"),
        counted(sum(session.added for session in sessions), "new entry", "new entries"),
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
    return [f"{name}: {remark}; flue-py cannot read its sessions" for name, remark in sorted(seen.items())]


def _lines(report: ImportReport) -> list[Line]:
    if not report.sessions:
        return [((_shown_path(report.file), "bold"), (": nothing was said in it yet", "")), *_row_lines(report)]
    first = report.sessions[0]
    if first.deleted:
        did = f"session {first.session_id} was deleted here, and stays deleted; --again imports it"
    elif first.created:
        did = f"imported as session {first.session_id}: {counted(first.added, 'entry', 'entries')}"
    elif first.added:
        did = f"session {first.session_id} has grown by {counted(first.added, 'entry', 'entries')}"
    else:
        outcome = "it is as its file has it now" if report.changed else "nothing was changed"
        did = f"session {first.session_id} was already here; {outcome}"
    lines: list[Line] = [
        ((_shown_path(report.file), "bold"), (f": {did}", "")),
        ((f"  {counted(report.rows, 'row')} read, {report.already_there:,} already there", "dim"),),
    ]
    for session in report.sessions[1:]:
        name = f"task session {session.session_id}" if session.task_of else f"session {session.session_id}"
        if session.deleted:
            lines.append(((f"  {name}: was deleted here, and stays deleted", "dim"),))
            continue
        lines.append(((f"  {name}: {counted(session.added, 'new entry', 'new entries')}", "dim"),))
    return lines + _row_lines(report)


def _row_lines(report: ImportReport) -> list[Line]:
    """Return the outcome of rows that made no entry of their own, or another one than they say."""
    dim = [f"{counted(count, 'row')} left out: {reason}" for reason, count in report.left_out.items()]
    if report.merged:
        dim.insert(0, f"{counted(report.merged, 'row')} merged into messages of other rows")
    striking = [
        f"the session had moved on: its leaf stays at {session.leaf_id}"
        for session in report.sessions
        if session.leaf_kept
    ]
    if report.held_back:
        rows_held = f"{counted(report.held_back, 'row')} from line {report.held_back_from} on"
        striking.append(f"held back: {rows_held} may not be a whole message; --finish takes them")
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


# ---------------------------------------------------------------------------------------------------------------------
# The import before a command that reads.


class _TimeIsUp(Exception):
    pass


def import_changed(place: Place, seconds: float) -> None:
    """Import what changed in the usual places, the newest first, and say on stderr what is left after ``seconds``.

    A file is left between two batches of its rows. Nothing that fails here keeps a command from reading.
    """
    reports: list[ImportReport] = []
    failures: list[FlueError] = []
    files: list[Path] = []
    end = monotonic() + seconds

    def look(done: int, total: int, text: str = "") -> None:
        if monotonic() > end:
            raise _TimeIsUp

    async def work(store: Store) -> None:
        remembered = ImportedFiles(store, "", finish=False, wanted=AUTO, version=flue_py.__version__)
        await remembered.read()

        def known(path: Path) -> ImportReport | None:
            look(0, 0)
            return remembered.report(path)

        changed = [path for path in find_files(usual_places(), is_session=known) if known(path) is None]
        files.extend(sorted(changed, key=lambda path: _stated(path)[3], reverse=True))
        bar = _Bar(look)
        bar.begin(files)
        with closing(_started(files, failures, known, remembered.source, bar)) as started:
            await _import(store, started, reports, failures, bar, None, remembered, again=False)

    notes = []
    try:
        cli.run(place, work)
    except _TimeIsUp:
        left = counted(len(files) - len(reports) - len(failures), "changed file") if files else "not all folders"
        notes.append(f"{left} {'left' if files else 'looked at'} after {seconds:g} s")
    except FlueError as error:
        notes.append(in_commands(str(error)))
    if failures:
        notes.append(f"{counted(len(failures), 'file')} not imported")
    if notes:
        cli.tell(f"Import before reading: {'; '.join(notes)}. flue-py import --discover imports all, and says more")


# ---------------------------------------------------------------------------------------------------------------------
# The unbundle command.


@cli.command(create=True)
@click.argument("source", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path))
async def unbundle(store: Store, source: Path) -> Answer:
    """Add the trees of a bundle to the database, unless they are there already.

    The bundle is verified first. Repeating the command changes nothing.

    Nothing is written unless the bundle is whole and sound. A tree that the database has in another way is refused
    and reported, and the exit code is 1. With --json: an object: trees, sessions, entries, calls (of the bundle),
    added, refreshed, unchanged (trees), refused (sessionId, reason).
    """
    report = await read_bundle(store, source)
    trees = cli.outcomes(
        {
            "added": report.trees_added,
            "brought up to date": report.trees_refreshed,
            "there already": report.trees_unchanged,
            "refused": len(report.refused),
        }
    )
    lines: list[Line] = [
        ((f"{source}: {cli.held(report.counts, _HELD)}", "bold"),),
        ((f"  trees: {trees}", ""),),
        *((("  refused ", "yellow"), (printable(refusal.reason), "")) for refusal in report.refused),
    ]
    row: JsonObject = {
        **held_row(report.counts),
        **row_of(report, "added=trees_added refreshed=trees_refreshed unchanged=trees_unchanged"),
        "refused": [row_of(refusal, "session_id reason") for refusal in report.refused],
    }
    return Answer(lambda: lines, lambda: row, code=1 if report.refused else 0)
