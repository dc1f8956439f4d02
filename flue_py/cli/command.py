"""Running a command: open the store, find the sessions and entries that are named, do the work, print the answer."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager, nullcontext
from datetime import UTC, datetime, tzinfo
from functools import partial, update_wrapper
from inspect import CO_COROUTINE
from os.path import exists
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, BinaryIO, Protocol, TypeAlias, TypeVar, cast

import click

import flue_py
from flue_py.cli.main import Place, absolute, expanded, finished, is_only_readable, opened, read_config
from flue_py.core.context import ContextEntry
from flue_py.core.entries import Entry
from flue_py.core.json import Frozen, JsonObject, JsonValue, unchecked_json
from flue_py.core.kinds import SHOWN_KINDS
from flue_py.core.ledger import checked_zone
from flue_py.core.sessions import STORED, Appended, Document, DocumentInfo, LeafChoice, LogLine, Moved, SessionInfo
from flue_py.db.backend import KeyChoice
from flue_py.db.files import make_private_folder
from flue_py.db.waiting import OnCaller
from flue_py.errors import (
    AmbiguousId,
    FlueError,
    InvalidArgument,
    InvalidEntry,
    SessionNotFound,
    StoreUnavailable,
    shown,
)
from flue_py.lazy import lazy_module
from flue_py.render.lines import (
    ASCII,
    UNICODE,
    Line,
    Look,
    cells,
    counted,
    entry_text,
    exclusion_text,
    json_printable,
    one_line,
    printable,
    table,
    text_of,
)
from flue_py.render.views import info_row, listed_entry, log_lines, log_row, moved_row, row_of
from flue_py.sessions.handle import listed_sessions
from flue_py.sessions.money import local_zone
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.system import Lock, in_full, is_below

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem
    from rich.console import Console

    from flue_py.context import request, settings
    from flue_py.context.pipeline import ContextReport
    from flue_py.context.request import ContextRequest
    from flue_py.context.settings import ContextSettings
    from flue_py.context.tokens import TokenCount
    from flue_py.formats import registry
    from flue_py.sessions import housekeeping
    from flue_py.sessions.marks import MarkEffect
else:
    housekeeping = lazy_module("flue_py.sessions.housekeeping")
    registry = lazy_module("flue_py.formats.registry")
    settings = lazy_module("flue_py.context.settings")
    request = lazy_module("flue_py.context.request")


# ---------------------------------------------------------------------------------------------------------------------
# A progress bar on stderr, if that is a terminal, for work that takes longer than a second.

DELAY = 1.0
"""After how many seconds a bar appears."""


BYTES = "bytes"
"""The unit of a bar that shows sizes, and how much time is left."""


class Tell(Protocol):
    """Moves a bar on: how many steps are done, how many there are in all, and its new text, if not the same."""

    def __call__(self, done: int, total: int, text: str = "") -> None: ...


@contextmanager
def progress_bar(text: str, unit: str = "") -> Iterator[Tell]:
    """Show a bar while the block runs, from `DELAY` seconds on, and yield the function that moves it on.

    Until the first call of it, the bar shows that something is going on, and for how long. Nothing is
    shown without a terminal, or on one that cannot move back in a line. Any thread may move the bar on. Do not nest
    bars.
    """
    if not is_animated():
        yield ignore_progress
        return
    bar = _Bar(text, unit)
    timer = threading.Timer(DELAY, bar.start)
    timer.daemon = True
    if DELAY:
        timer.start()
    else:
        bar.start()
    try:
        yield bar.tell
    finally:
        timer.cancel()
        bar.stop()


def is_animated() -> bool:
    """Return whether stderr is a terminal that can show a moving bar."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def ignore_progress(done: int, total: int, text: str = "") -> None:
    """Show nothing."""


class _Bar:
    """A bar that may be started and stopped by different threads, in whatever order."""

    def __init__(self, text: str, unit: str) -> None:
        self._what = text
        self._unit = unit
        self._lock = Lock()
        self._state: tuple[int, int] | None = None
        self._update: Callable[[], None] | None = None
        self._close: Callable[[], None] | None = None
        self._is_over = False

    def start(self) -> None:
        from rich import progress
        from rich.console import Console

        with self._lock:
            if self._is_over:
                return
            numbers: list[progress.ProgressColumn] = [progress.TimeElapsedColumn()]
            if self._unit == BYTES:
                numbers = [progress.DownloadColumn(), progress.TimeRemainingColumn()]
            elif self._unit:
                numbers = [progress.MofNCompleteColumn(), progress.TextColumn(self._unit), *numbers]
            text = progress.TextColumn("{task.description}", markup=False)
            console = Console(stderr=True, force_terminal=True)
            bar = progress.Progress(text, progress.BarColumn(), *numbers, console=console, transient=True)
            task = bar.add_task(self._what, total=None)

            def update() -> None:
                done, total = self._state or (0, 0)
                bar.update(task, description=self._what, completed=done, total=total or None)

            update()
            bar.start()
            self._update, self._close = update, bar.stop

    def tell(self, done: int, total: int, text: str = "") -> None:
        with self._lock:
            self._state = (done, total)
            self._what = text or self._what
            if self._update is not None:
                self._update()

    def stop(self) -> None:
        with self._lock:
            self._is_over = True
            if self._close is not None:
                self._close()


# ---------------------------------------------------------------------------------------------------------------------
# What commands tell of sessions and entries that their rows do not hold: names, models, sizes, marks.

MOST_LINES = 10_000
"""How many entries a command shows that was not told how many: nobody reads more, and each takes a while to lay out."""

count_option = click.option(
    "--count", is_flag=True, help="Count tokens with the tokenizer, which takes time, instead of estimating them (~)."
)


async def name_of(store: Store, session_id: str) -> str:
    """Return the name that people know a session by; "" if it is missing."""
    session = await store.get_session(session_id)
    return "" if session is None else await session.reports.name()


async def marks_of(session: Session) -> dict[str, str]:
    """Return the marks of a session's entries as a tree shows them: the label, and whether pinned or excluded."""
    marks = {entry_id: [text] for entry_id, text in (await session.marks.labels()).items()}
    for entry_id in await session.marks.pins():
        marks.setdefault(entry_id, []).append("pinned")
    for exclusion in await session.marks.exclusions():
        if exclusion.in_effect:
            marks.setdefault(exclusion.entry_id, []).append(exclusion_text(exclusion))
    return {entry_id: ", ".join(words) for entry_id, words in marks.items()}


def entry_sizes(entries: Iterable[Entry], *, count: bool) -> dict[str, int]:
    """Return how many tokens each entry takes in a context, by id; entries that never are in one are left out."""
    items = (ContextEntry(entry) for entry in entries if entry.kind in SHOWN_KINDS)
    return {entry_id: size.tokens for entry_id, size in item_sizes(items, count=count).items()}


def item_sizes(items: Iterable[ContextEntry], *, count: bool) -> dict[str, TokenCount]:
    """Return how many tokens each item of a context takes, by the id that lists have for it: counted, or estimated."""
    from flue_py.context.tokens import count_message_tokens, estimate_message_tokens

    if not count:
        return {listed_entry(item).id: estimate_message_tokens(item.data) for item in items}
    with progress_bar("counting tokens"):
        return {listed_entry(item).id: count_message_tokens(item.data) for item in items}


# ---------------------------------------------------------------------------------------------------------------------
# The only place that prints: lines for people, through rich, and documents and JSON for programs.
#
# All output of commands goes through here, so that stored text cannot send control characters to a terminal.

_COLUMNS = 80

json_option = click.Option(["--json", "as_json"], is_flag=True, help="Print JSON for programs.")


class Answer(Frozen):
    """The output of a command: lines for people, JSON for programs. Only the one that is printed is made.

    ``document`` is printed as it is, in place of lines. ``notes`` are lines for people on stderr, and ``code`` is the
    exit code.
    """

    lines: Callable[[], Iterable[Line]] = list
    row: Callable[[], JsonValue] | None = None
    document: str | None = None
    is_json: bool = False
    notes: Sequence[str] = ()
    code: int = 0


def said(text: str, row: JsonValue) -> Answer:
    """Return the answer that is one line for people."""
    return Answer(lambda: [((text, ""),)], lambda: row)


def plain_lines(text: str) -> list[Line]:
    """Return the lines of a text, without a style."""
    return [((line, ""),) for line in text.splitlines()]


def print_answer(answer: Answer, *, as_json: bool, paged: bool = False) -> None:
    """Print the answer of a command."""
    if as_json and answer.row is not None:
        row = answer.row()
        # It says so as an object, which `print_document` adds it to.
        print_json({"rows": row} if _is_unchecked() and not isinstance(row, dict) else row)
    elif answer.document is not None:
        print_document(answer.document, is_json=answer.is_json)
    else:
        print_lines(answer.lines(), paged=paged)
    for note in answer.notes:
        tell(note)


def _is_unchecked() -> bool:
    """Return whether the command that runs opens its database without the key."""
    ctx = click.get_current_context(silent=True)
    return ctx is not None and isinstance(ctx.obj, Place) and ctx.obj.unchecked


def print_json(value: JsonValue) -> None:
    """Print a value as JSON, in UTF-8 whatever the terminal's encoding."""
    print_document(json.dumps(value, ensure_ascii=False, indent=2) + "\n", is_json=True)


def print_document(text: str, *, is_json: bool = False) -> None:
    """Print a text that is meant for a file: its exact bytes in UTF-8, except at a terminal.

    At a terminal, control characters are escaped in JSON (or JSON lines), and become U+FFFD in other texts. JSON says
    so where nothing was checked.
    """
    text = unchecked_json(text) if is_json and _is_unchecked() else text
    if sys.stdout.isatty():
        text = json_printable(text) if is_json else printable(text)
    # Half of a surrogate pair, as in the name of a file that is not UTF-8, has an escape in JSON and no bytes.
    click.echo(text.encode(errors="backslashreplace"), nl=False)


def tell(text: str) -> None:
    """Print one line on stderr, for people."""
    click.echo(_flat(text), err=True)


def confirm(question: str) -> None:
    """Return if the answer is yes. Raises `click.Abort`."""
    click.confirm(_flat(question), abort=True, err=True)


def choose(question: str, most: int) -> int:
    """Return the number from 1 on that a person chooses at the terminal. Raises `click.Abort`."""
    number: int = click.prompt(_flat(question), type=click.IntRange(1, most), default=1, err=True)
    return number


async def ask_line(question: str) -> str | None:
    """Return the line of standard input that answers a question; None at its end. It blocks."""
    click.echo(_flat(question), nl=False, err=True)
    return sys.stdin.readline() or None


def print_lines(lines: Iterable[Line], *, paged: bool = False, err: bool = False) -> None:
    """Print lines, with styles if the output is a terminal that shows them (NO_COLOR is respected).

    Control characters in titles, labels or ids are replaced. With ``paged``, lines that do not fit the terminal go
    through the pager (PAGER) if a person is there. With ``err`` they go to stderr.
    """
    shown_on = _styled_console(err=err)
    if shown_on is None:
        for line in lines:
            click.echo(_flat(text_of(line)).rstrip(), err=err)
        return
    shown = list(lines)
    if paged and _rows(shown, shown_on.width) >= shown_on.height and _has_reader():
        with shown_on.capture() as captured:
            _print_styled(shown_on, shown)
        # Left to click, less is told to show colours, and what may not know them gets none.
        is_coloured = shown_on.color_system is not None and not shown_on.no_color
        click.echo_via_pager(captured.get(), color=None if is_coloured else False)
    else:
        _print_styled(shown_on, shown)


def print_piece(text: str, style: str = "") -> None:
    """Print a piece of a text as it comes, in a style if the output is a terminal that shows them."""
    shown_on = _styled_console()
    if shown_on is None:
        click.echo(printable(text), nl=False)
        return
    from rich.text import Text

    shown_on.print(Text(printable(text), style=style), end="", soft_wrap=True)


def _flat(text: str) -> str:
    """Return a text as one line."""
    return printable(text).replace("\n", " ")


def _rows(lines: Iterable[Line], width: int) -> int:
    """Return how many rows of a terminal the lines take, wrapped lines included."""
    return sum(max(1, -(-sum(cells(text) for text, _ in line) // width)) for line in lines)


def _has_reader() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _print_styled(shown_on: Console, lines: Iterable[Line]) -> None:
    from rich.text import Text

    for line in lines:
        shown_on.print(
            Text.assemble(*((_flat(text), style) for text, style in line)), no_wrap=True, overflow="ignore", crop=False
        )


def look(
    *, sizes: Mapping[str, int] | None = None, counted: bool = True, labels: Mapping[str, str] | None = None
) -> Look:
    """Return how to show entries on this output: its width, and signs it can encode.

    In a pipe nothing is cut, unless COLUMNS says how wide it is: its reader may look for any word.
    """
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    glyphs = UNICODE if encoding.startswith("utf") else ASCII
    width = _width()
    return Look(width or _COLUMNS, sizes, labels, glyphs, sizes_counted=counted, cuts=width is not None)


def _styled_console(*, err: bool = False) -> Console | None:
    """Return the console for styled text; None in a pipe, for which rich is not imported."""
    stream = sys.stderr if err else sys.stdout
    if not (stream.isatty() or os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE")):
        return None
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False, stderr=err)
    return console if console.is_terminal else None


def _width() -> int | None:
    """Return how many columns there are, of the terminal or by COLUMNS; None in a pipe."""
    shown_on = _styled_console()
    if shown_on is not None:
        return shown_on.width
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdigit() else None


def joined(parts: Sequence[str]) -> str:
    """Return the parts that are not empty, as one line."""
    return ", ".join(part for part in parts if part)


_NOUNS = {"entries": ("entry", "entries"), "calls": ("paid call",), "ledger_rows": ("paid call",)}


def held(value: object, names: str) -> str:
    """Return counts in words, ``2 sessions, 1 entry``: attributes of a value, by their names with spaces between."""
    return ", ".join(counted(getattr(value, name), *_NOUNS.get(name, (name[:-1],))) for name in names.split())


def outcomes(counts: Mapping[str, int]) -> str:
    """Return how many had each outcome, but for those that none had; "none" for none at all."""
    return joined([f"{count:,} {outcome}" for outcome, count in counts.items() if count]) or "none"


# ---------------------------------------------------------------------------------------------------------------------
# What commands that change a session answer: a moved leaf, a marked entry, appended entries.


def moved(session: Session, done: Moved | LogLine | None, *, nothing: str = "nothing moved") -> Answer:
    """Return the answer of a command that moves the leaf, or takes an edit back."""
    if isinstance(done, LogLine):
        row = {**moved_row(session.id, None, session.leaf_id), "line": log_row(done)}
        return said(" ".join(text_of(line).strip() for line in log_lines([done], look())), row)
    text = f"{nothing}; the leaf is {shown_leaf(session.leaf_id)}"
    if done is not None:
        text = f"{done.reason}: the leaf went from {shown_leaf(done.from_id)} to {shown_leaf(done.to_id)}"
    return said(text, moved_row(session.id, done, session.leaf_id))


def shown_leaf(entry_id: str | None) -> str:
    """Return a leaf in words."""
    return "before the first entry" if entry_id is None else entry_id


def marked(session: Session, action: str, entry: str, effect: MarkEffect) -> Answer:
    """Return the answer of a command that marks an entry, with the effect on the context in tokens."""
    others = len(effect.entry_ids) - 1
    text = f"{action} entry {entry}" + (f" and {others} that belong to it" if others else "")
    if action == "pinned":
        text += f" ({counted(effect.own_tokens, 'token')} that every later compaction keeps)"
    row: JsonObject = {"sessionId": session.id, "entryId": entry}
    row |= row_of(effect, "entry_ids exclusion_ids tokens_before tokens_after own_tokens")
    return said(f"{text}; {context_change(effect.tokens_before, effect.tokens_after)}", row)


def context_change(before: int, after: int) -> str:
    """Return the change of a context's size in words: ``context 12,345 -> 11,002 tokens (-1,343)``."""
    if before == after:
        return f"context {counted(after, 'token')}, unchanged"
    return f"context {before:,} -> {counted(after, 'token')} ({after - before:+,})"


def _part(ctx: click.Context, param: click.Parameter, text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else text


part_option = click.option(
    "--part", metavar="PART", callback=_part, help="Only this part of the entry: a position from 0, or an id."
)


def appended(session: Session, text: str, done: Appended) -> Answer:
    """Return the answer of a command that appends entries."""
    return said(text, {"sessionId": session.id, **row_of(done, "entry_ids leaf_id replayed")})


# ---------------------------------------------------------------------------------------------------------------------
# How `context --explain` shows what an agent is sent: by step, and by entry.


def explained_lines(
    items: Sequence[ContextEntry], sent: ContextRequest, before: ContextRequest | None
) -> Iterator[Line]:
    """Yield the effect of each step, one line each, and then the outcome of each entry.

    ``before`` is the request that the last answer came from, if there is one.
    """
    report = sent.report
    about = "about " if sent.is_estimate else ""
    agent = f" for {one_line(report.agent)}" if report.agent else ""
    text = f"{counted(len(items), 'message')}{agent}: {about}{counted(report.tokens_before, 'token')}"
    yield ((f"{text}, {sent.tokens_sent:,} of them sent (counted by {report.counter})", "bold"),)
    if report.epoch_end is not None:
        yield ((f"what is newer than {report.epoch_end} waits for the next epoch", "dim"),)
    for event in report.events:
        yield ((one_line(str(event)), "yellow"),)
    if before is not None:
        difference = sent.break_since(before)
        text = "it begins with all of the request before it"
        if difference is not None:
            text = one_line(f"it begins otherwise than the request before it: {difference}")
        yield ((text, "dim"),)
    yield ()
    yield from _step_lines(report)
    yield ()
    yield from _entry_lines(items, sent)
    for broken in sent.broken:
        yield ((f"{sent.target} refuses it: {one_line(str(broken))}", "red"),)


def _step_lines(report: ContextReport) -> Iterator[Line]:
    if not report.steps:
        yield (("no step is asked for: all of it is sent as it is", "dim"),)
        return
    rows: list[list[tuple[str, str]]] = [[("step", "dim"), ("what it did", "dim"), ("tokens freed", "dim")]]
    for step in report.steps:
        done = [change.how for change in step.changes]
        counts = ", ".join(f"{done.count(how)} {how}" for how in dict.fromkeys(done)) or "-"
        rows.append([(one_line(step.name), ""), (counts, ""), (f"{step.tokens_freed:,}", "")])
    yield from table(rows)


def _entry_lines(items: Sequence[ContextEntry], sent: ContextRequest) -> Iterator[Line]:
    changes_by_entry = sent.report.by_entry()
    repaired: dict[str, list[str]] = {}
    for repair in sent.repairs:
        repaired.setdefault(repair.entry_id or "", []).append(repair.what)
    rows: list[list[tuple[str, str]]] = [[("entry", "dim"), ("role", "dim"), ("sent", "dim"), ("why", "dim")]]
    for item in items:
        changes = changes_by_entry.get(item.entry_id, ())
        reasons = {step.name: step.reason for step in sent.report.steps}
        why = [f"{change.step}: {reasons[change.step]}" for change in changes] + repaired.get(item.entry_id, [])
        state = request.state_of(changes, is_repaired=item.entry_id in repaired)
        style = {"whole": "", "out": "dim"}.get(state.split(" ")[0], "yellow")
        rows.append([(item.entry_id, ""), (one_line(item.role), ""), (state, style), (one_line("; ".join(why)), "dim")])
    yield from table(rows)
    for repair_text in repaired.get("", ()):
        yield ((f"for {sent.target}: {one_line(repair_text)}", "dim"),)


# ---------------------------------------------------------------------------------------------------------------------
# JSON lines that are printed whole or not at all, and read again up to the last whole one.

_MOST_BYTES = 1_000_000
"""A line of ours is far shorter."""


def print_line(row: JsonObject) -> None:
    """Print a value as one line of JSON, at once. A signal that comes meanwhile waits for the end of the line."""
    text = json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"
    with _signals_waiting():
        print_document(text, is_json=True)
        sys.stdout.flush()


@contextmanager
def _signals_waiting() -> Iterator[None]:
    import signal

    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ids_in(option: str, file: str) -> Iterator[str]:
    """Yield the ``id`` of each line of a file of JSON lines; a last line that has no end is passed over.

    Raises `InvalidArgument` for a file that cannot be read, for a line that is no JSON object with an id, and for a
    last line without an end where the output goes behind it: the first line would be joined to it.
    """
    where = f"{option} {file}"
    with opened(where, in_full(file)) as lines:
        number = 0
        while (line := lines.readline(_MOST_BYTES)).endswith(b"\n"):
            number += 1
            yield _id_of(f"{where}: line {number}", line)
        if len(line) == _MOST_BYTES:
            raise InvalidArgument(f"{where}: line {number + 1} has more than {_MOST_BYTES:,} bytes")
        if line and _is_stdout(lines):
            raise InvalidArgument(
                f"{where}: its last line, {number + 1}, has no end, and the output would be joined to it; take it out "
                "(sed -i '$d' FILE), it is told again"
            )


def _is_stdout(opened: BinaryIO) -> bool:
    try:
        return os.path.sameopenfile(opened.fileno(), sys.stdout.fileno())
    except (OSError, ValueError):
        # No file at all, as in a test, or one that was closed.
        return False


def _id_of(where: str, line: bytes) -> str:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{where} is no JSON ({error})") from error
    if not isinstance(value, dict) or not isinstance(value.get("id"), str):
        raise InvalidArgument(f"{where} is no event, but {shown(value)}")
    return str(value["id"])


# ---------------------------------------------------------------------------------------------------------------------
# How a command takes sessions and entries: as a person names them. A shell completes them from the database.

Command = TypeVar("Command", bound=Callable[..., object])
Found = TypeVar("Found")

BY = "flue-py"
"""The author of changes by a command, in the log."""

_SESSIONS = 1000
_ENTRIES = 100
_TOO_MANY_TO_READ = 20_000


class SessionName(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A session's id or key, or a beginning of it."""

    name = "session"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the ids and keys that begin with ``incomplete``, of the sessions that changed last."""
        from click.shell_completion import CompletionItem

        sessions = _asked(ctx, _sessions)
        items = [(name, info) for info in sessions for name in (info.key, info.id) if name]
        return [
            CompletionItem(name, help=one_line(info.title or info.first_message or "", 60))
            for name, info in items
            if name.startswith(incomplete) and (incomplete or name == (info.key or info.id))
        ]


class EntryName(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """An entry's id, or a beginning of it, in the session that was named before."""

    name = "entry"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the ids that begin with ``incomplete``, newest first."""
        from click.shell_completion import CompletionItem

        # After an option that still lacks its value, the arguments before it have not been given to their parameters.
        session = ctx.params.get("session") or next(iter(ctx.args), None)
        if not isinstance(session, str):
            return []
        entries = _asked(ctx, lambda store: _entries(store, session, incomplete))
        return [CompletionItem(entry_id, help=text) for entry_id, text in entries]


SESSION = SessionName()
"""The command gets the session."""

SESSION_OR_NEWEST = SessionName()
"""The command gets the session; if none is named, the one that was active last, and no task of another."""

SESSION_NAME = SessionName()
"""The command gets the name as it was typed."""

ENTRY = EntryName()
"""The command gets the id of the entry in its ``session``."""

LEAF = EntryName()
"""The command gets a leaf: the id of the entry in its ``session``, or `STORED` if the option is left out."""

ENTRY_NAME = EntryName()
"""The command gets the name as it was typed."""

session_argument = click.argument("session", type=SESSION)
newest_argument = click.argument("session", type=SESSION_OR_NEWEST, required=False)
entry_argument = click.argument("entry", type=ENTRY)
last_option = click.option("--last", metavar="N", type=click.IntRange(min=1), help="Show only the last N entries.")
scope_option = click.option("--scope", help="Of this tenant or user alone.")
why_option = click.option("--why", metavar="TEXT", help="The reason, for the log.")


def leaf_option(text: str) -> Callable[[Command], Command]:
    """Return the option --leaf with this help."""
    return click.option("--leaf", metavar="ENTRY", type=LEAF, help=text)


def _folder(ctx: click.Context, param: click.Parameter, folder: str | None) -> str | None:
    return None if folder is None else absolute(folder)


def project_option(text: str) -> Callable[[Command], Command]:
    """Return the option --project with this help. The command gets the folder's path from the root."""
    return click.option("--project", metavar="FOLDER", callback=_folder, help=text)


document_project_option = project_option("What is for this folder alone (default: for all).")


def most_option(count: int, limit: int, text: str) -> Callable[[Command], Command]:
    """Return the option --most with this help, and ``count`` by default."""
    most = click.IntRange(1, limit)
    return click.option("--most", metavar="N", type=most, default=count, show_default=True, help=text)


def schema_option(text: str, schema: Callable[[], JsonValue]) -> Callable[[Command], Command]:
    """Return the option --schema with this help, which prints the schema and ends the command."""

    def show(ctx: click.Context, param: click.Parameter, is_wanted: bool) -> None:
        if is_wanted and not ctx.resilient_parsing:
            print_answer(Answer(row=schema), as_json=True)
            ctx.exit()

    return click.option("--schema", is_flag=True, is_eager=True, expose_value=False, callback=show, help=text)


def _asked(ctx: click.Context, ask: Callable[[Store], Awaitable[list[Found]]]) -> list[Found]:
    """Return the answer of the database; nothing if there is none, or if it cannot be read."""
    with contextlib.suppress(FlueError, OSError):
        target = expanded(str(ctx.find_root().params.get("database")))
        if "://" in target or exists(target):
            options = ctx.find_root().params
            place = Place(target, key_files=options.get("key_files", ()), unchecked=options.get("unchecked", False))
            return finished(_answer(place, ask), needs_loop="://" in target)
    return []


async def _answer(place: Place, ask: Callable[[Store], Awaitable[list[Found]]]) -> list[Found]:
    async with opening(place, threads=place.threads, busy_timeout=1) as store:
        return await ask(store)


async def _sessions(store: Store) -> list[SessionInfo]:
    return list((await store.list_sessions(limit=_SESSIONS)).sessions)


async def _entries(store: Store, name: str, prefix: str) -> list[tuple[str, str]]:
    session = await store.find_session(name)
    if session.info.entry_count > _TOO_MANY_TO_READ:
        try:
            return [(await session.resolve_entry_id(prefix), "")]
        except AmbiguousId as error:
            return [(entry_id, "") for entry_id in error.matches]
    tree = await session.get_tree()
    matches = [entry for entry in reversed(tree) if entry.id.startswith(prefix)][:_ENTRIES]
    return [(entry.id, entry_text(entry)[:60]) for entry in matches]


async def newest_session(store: Store) -> Session:
    """Return the session that was active last, and is no task. Raises `SessionNotFound` if there is none."""
    async with aclosing(listed_sessions(partial(store.list_sessions, limit=100))) as sessions:
        async for info in sessions:
            if not info.is_aside:
                return await store.find_session(info.id)
    raise SessionNotFound("", detail="there are no sessions yet; import some, or create one (flue-py new)")


async def end_of(store: Store, name: str, before: Session | None = None) -> tuple[Session, LeafChoice]:
    """Return the session and the leaf that ``SESSION``, ``SESSION@ENTRY`` or, after another, ``@ENTRY`` names."""
    try:
        return await store.find_session(name), STORED
    except SessionNotFound:
        owner, sign, entry = name.rpartition("@")
        if not sign or not (owner or before):
            raise
    session = await store.find_session(owner) if owner or before is None else before
    return session, await session.resolve_entry_id(entry)


# ---------------------------------------------------------------------------------------------------------------------
# Running a command: open the store, find the sessions and entries that are named, do the work, print the answer.

Result = TypeVar("Result")
Check = Callable[[SimpleNamespace], None]
"""Gets the options and arguments as they were typed, by their names."""


def refuse(is_wrong: object, text: str) -> None:
    """Raise `click.UsageError` with a text if a call is wrong."""
    if is_wrong:
        raise click.UsageError(text)


def command(
    name: str | None = None,
    *,
    group: click.Group | None = None,
    check: Check | None = None,
    create: bool = False,
    bar: str | None = None,
    paged: bool = False,
    json: bool = True,
) -> Callable[[Callable[..., Answer | Awaitable[Answer]]], click.Command]:
    """Make a command of a function that returns its output.

    An async function works on the open store; a parameter ``store`` of it is that store, narrowed to ``--scope``. An
    argument or option of type `SESSION` is given as a `Session`, one of type `ENTRY` as an entry's id, one of type
    `LEAF` as a leaf; the options of `choice_options` are one parameter ``choice``. A function that is not async opens
    the database itself: a parameter ``place`` is the one that the user named. A parameter ``as_json`` is whether JSON
    is wanted, one ``tell`` moves the bar on.

    The command belongs to ``group``, if there is one. ``check`` raises for a wrong call, before the store is opened.
    ``create`` makes a missing database, ``bar`` is the text of a progress bar, ``paged`` shows long answers in the
    pager, and ``json=False`` is for a command that has only one form of output.
    """

    def decorate(work: Callable[..., Answer | Awaitable[Answer]]) -> click.Command:
        def callback(*, as_json: bool = False, **options: object) -> None:
            _read_choice(options)
            if check is not None:
                check(SimpleNamespace(as_json=as_json, **options))
            ctx = click.get_current_context()
            if ctx.obj.before_reading is not None:
                ctx.obj.before_reading(ctx.obj)
            if work.__code__.co_flags & CO_COROUTINE:
                on_open_store = cast("Callable[..., Awaitable[Answer]]", work)
                with nullcontext(ignore_progress) if bar is None else progress_bar(bar) as tell:
                    answer = run(ctx.obj, on_store(on_open_store, options, as_json=as_json, tell=tell), create=create)
            else:
                answer = cast("Answer", work(**options, **_accepted(work, place=ctx.obj, as_json=as_json)))
            print_answer(answer, as_json=as_json, paged=paged)
            ctx.exit(answer.code)

        return _as_command(callback, work, name, group, [json_option] if json else [])

    return decorate


def _as_command(
    callback: Callable[..., None],
    work: Callable[..., object],
    name: str | None,
    group: click.Group | None,
    options: Iterable[click.Option],
) -> click.Command:
    """Return a command of ``group`` with the help and the parameters of ``work``, and then ``options``."""
    result = click.command(name)(update_wrapper(callback, work))
    result.params += options
    if group is not None:
        group.add_command(result)
    return result


def _read_choice(options: dict[str, object]) -> None:
    """Put a `SessionChoice` in the place of the options that `choice_options` adds."""
    if "git_branch" in options:
        choose: Callable[..., SessionChoice] = SessionChoice
        options["choice"] = choose(**{name: options.pop(name) for name in SessionChoice.__struct_fields__})


def on_store(
    work: Callable[..., Awaitable[Result]],
    options: Mapping[str, object],
    *,
    as_json: bool = False,
    tell: Tell = ignore_progress,
) -> Callable[[Store], Awaitable[Result]]:
    """Return the work as a function of an open store, which first finds the named sessions and entries."""
    params = {str(param.name): param.type for param in click.get_current_context().command.params}

    async def find_and_work(whole: Store) -> Result:
        values = dict(options)
        store = narrowed(whole, values.pop("scope", None))
        for name, type_ in params.items():
            text = values.get(name)
            if type_ in (SESSION, SESSION_OR_NEWEST) and isinstance(text, str):
                values[name] = await store.find_session(text)
            elif type_ is SESSION_OR_NEWEST and text is None:
                values[name] = await _newest(store)
            elif type_ is SESSION and isinstance(text, tuple):
                values[name] = [await store.find_session(session) for session in text]
        for name, type_ in params.items():
            text = values.get(name)
            if type_ in (ENTRY, LEAF) and text is not None:
                values[name] = await cast("Session", values["session"]).resolve_entry_id(str(text))
            elif type_ is LEAF:
                values[name] = STORED
        return await work(**values, **_accepted(work, store=store, as_json=as_json, tell=tell))

    return find_and_work


def narrowed(store: Store, scope: object) -> Store:
    """Return the store as ``--scope`` narrows it."""
    return store.in_scope(scope) if isinstance(scope, str) else store


async def _newest(store: Store) -> Session:
    """Return the session that was active last, and say on stderr which one it is."""
    session = await newest_session(store)
    tell(f"session {session.id}: {await session.reports.name()}")
    return session


def _accepted(work: Callable[..., object], **arguments: object) -> dict[str, object]:
    """Return the arguments that a function has a parameter for."""
    code = work.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return {name: value for name, value in arguments.items() if name in names}


def run(
    place: Place,
    work: Callable[[Store], Awaitable[Result]],
    *,
    create: bool = False,
    bar: str | None = None,
    key: KeyChoice = None,
) -> Result:
    """Return the result of ``work``, given the open store. ``bar`` is the text of a progress bar.

    ``key`` is in place of the keys that were named.

    ``create`` makes a missing database, in a folder that only its owner can use; otherwise a missing database raises
    `StoreUnavailable`.
    """
    if create and place.is_file:
        make_private_folder(Path(place.target).parent)
    elif not create:
        require_database(place)
    with nullcontext() if bar is None else progress_bar(bar):
        return finished(_with_store(place, work, key), needs_loop=not place.is_file)


def require_database(place: Place) -> None:
    """Raise `StoreUnavailable` if the database is a file that is missing."""
    # Unlike Path.exists, `exists` has no opinion on names that no file can have.
    if place.is_file and not exists(place.target):
        raise StoreUnavailable(
            f"there is no database at {Path(place.target)}; import a session or create one (flue-py new) first, or "
            "name another with --db"
        )


UNCHECKED = "unchecked: the database was opened without its key, and what it says may have been changed by others"


def opening(
    place: Place, *, threads: bool | None, key: KeyChoice = None, busy_timeout: float = 30
) -> AbstractAsyncContextManager[Store]:
    """Return the store as the options before the command say, to be opened. ``key`` is as for `run`."""
    return flue_py.open(
        place.target,
        busy_timeout=busy_timeout,
        read_only=is_only_readable(place.target),
        threads=threads,
        key=key or place.keys(),
        unchecked=place.unchecked,
        witness=place.witnessed(),
        accept=place.accept,
        secrets=read_config().secrets,
    )


async def _with_store(place: Place, work: Callable[[Store], Awaitable[Result]], key: KeyChoice) -> Result:
    async with opening(place, threads=place.threads, key=key) as store:
        if store.unchecked:
            tell(UNCHECKED)
        waiting = store.backend.waiting
        if isinstance(waiting, OnCaller):  # as `finished` runs it
            waiting.without_loop()
        return await work(store)


# ---------------------------------------------------------------------------------------------------------------------
# What all commands that delete have in common: they show what would go, ask, and say what went.


class Plan(Frozen):
    """A planned deletion. Nothing has happened yet.

    ``subject`` names it in a few words, "" if there is nothing to delete; ``shown`` lists it. ``go`` deletes it, given
    the store, and returns the answer.
    """

    subject: str
    shown: Answer
    go: Callable[[Store], Awaitable[Answer]]
    verb: str = "delete"


def destructive(
    name: str | None = None, *, group: click.Group | None = None, check: Check | None = None
) -> Callable[[Callable[..., Awaitable[Plan]]], click.Command]:
    """Make a command of a function that plans a deletion, and deletes nothing itself.

    The function gets the parameters of a `command`, and so does ``check``. The command has --dry-run, --yes and
    --json. At a terminal it shows the plan, and asks. Without a terminal it deletes only with --yes; without
    that, it does the same as --dry-run, and ends with exit code 2. The store is closed while it asks.
    """

    def decorate(find: Callable[..., Awaitable[Plan]]) -> click.Command:
        def callback(*, dry_run: bool, yes: bool, as_json: bool, **options: object) -> None:
            if check is not None:
                check(SimpleNamespace(**options))
            place = click.get_current_context().obj
            plan = run(place, on_store(find, options))
            if dry_run:
                print_answer(plan.shown, as_json=as_json)
                return
            if plan.subject and not yes:
                _ask(plan, as_json=as_json)
            done = run(place, lambda store: plan.go(narrowed(store, options.get("scope"))))
            print_answer(done, as_json=as_json)
            click.get_current_context().exit(done.code)

        return _as_command(callback, find, name, group, _OPTIONS)

    return decorate


_OPTIONS = [
    click.Option(["--dry-run"], is_flag=True, help="Only show what would go."),
    click.Option(["--yes"], is_flag=True, help="Do not ask. Needed if there is no terminal to ask at."),
    json_option,
]


def _ask(plan: Plan, *, as_json: bool) -> None:
    """Return if the answer is yes. Raises `click.Abort`, and `click.UsageError` if there is no terminal."""
    if not sys.stdin.isatty():
        print_answer(plan.shown, as_json=as_json)
        raise click.UsageError(
            f"nothing was changed: this would {plan.verb} {plan.subject}, and there is no terminal to ask at; "
            "give --yes to do it"
        )
    print_lines(plan.shown.lines(), err=True)
    confirm(f"{plan.verb.capitalize()} {plan.subject}?")


def document_plan(
    document: Document | None, name: str, remove: Callable[[Store], Awaitable[bool]], words: tuple[str, str, str, str]
) -> Plan:
    """Return the plan of deleting a document; None if there is none with this name.

    ``words`` are the noun for it, the verb for the deletion, its past tense, and the field of the deleted document.
    """
    noun, verb, past, field = words

    def answer(info: DocumentInfo | None, did: str, *, dry_run: bool) -> Answer:
        row: JsonObject = {"dryRun": dry_run, field: None if info is None else info_row(info)}
        if info is None:
            return said(f"there is no {noun} {name}", row)
        return said(f"{did} {name}, {counted(info.chars, 'character')}", row)

    info = None if document is None else document.info

    async def go(store: Store) -> Answer:
        is_gone = await remove(store)
        return answer(info if is_gone else None, past, dry_run=False)

    subject = "" if info is None else f"{noun} {name}"
    return Plan(subject, answer(info, f"would {verb}", dry_run=True), go, verb=verb)


# ---------------------------------------------------------------------------------------------------------------------
# Options of commands that write for a script: what it has seen, and a key by which a retry is done once.


def _leaf(ctx: click.Context, param: click.Parameter, leaf: str | None) -> LeafChoice:
    return STORED if leaf is None else leaf or None


expected_option = click.option(
    "--expected",
    metavar="LEAF",
    callback=_leaf,
    help='Only if this whole id is the leaf ("" before the first entry); else exit 5.',
)
idempotency_option = click.option("--idempotency-key", metavar="KEY", help="The same key again is done once.")


# ---------------------------------------------------------------------------------------------------------------------
# Which sessions a command is about: the same options for all commands that list, search or sum up sessions.

_PAGE = 1000

Times: TypeAlias = tuple[datetime | None, datetime | None]
"""A first moment and one that is too late; None is without end."""


class SessionChoice(Frozen):
    """The sessions that the options of a command choose. ``git_branch`` is the branch that a session began on.

    ``since`` and ``until`` are texts as they were typed: of some commands an entry.
    """

    program: str | None = None
    project: str | None = None
    model: str | None = None
    git_branch: str | None = None
    since: str | None = None
    until: str | None = None
    newest: int | None = None

    def times(self) -> Times:
        """Return the moments of ``since`` and ``until``. Raises `InvalidArgument`."""
        return housekeeping.moment(self.since, "--since"), housekeeping.moment(self.until, "--until", is_end=True)

    @property
    def reads_sessions(self) -> bool:
        """Whether sessions have to be read to know which are chosen; the rest a ledger or a search knows itself."""
        return self.program is not None or self.git_branch is not None or self.newest is not None

    def has(self, info: SessionInfo, models: set[str], times: Times) -> bool:
        """Return whether a session that called ``models`` is chosen, but for how new it is."""
        imported = info.metadata.get("imported")
        since, until = times
        return (
            (self.program is None or _field(imported, "format") == registry.canonical_name(self.program))
            and (self.project is None or is_below(info.cwd, self.project))
            and (self.model is None or self.model in models)
            and (self.git_branch is None or self.git_branch == _git_branch(_field(imported, "header")))
            and (since is None or info.active_at >= since)
            and (until is None or info.created_at < until)
        )


def all_of(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return a decorator that adds several options, in this order."""

    def decorate(function: Command) -> Command:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


choice_options = all_of(
    click.option("--program", help="Only sessions imported from this program: codex, claude-code, pi ..."),
    project_option("Only sessions that work in this folder, or below it."),
    click.option("--model", help="Only sessions that called this model."),
    click.option("--git-branch", metavar="NAME", help="Only sessions that began on this branch of git."),
    click.option("--since", metavar="WHEN", help="Only what came since then: 2026-01-31, 2026-01-31T12:00, 7d."),
    click.option("--until", metavar="WHEN", help="Only what came until then; a day is included."),
    click.option("--newest", metavar="N", type=click.IntRange(min=1), help="Only the N of them that were active last."),
)
"""The options that choose sessions; the command gets them as one argument ``choice``, a `SessionChoice`."""

summary_options = all_of(
    click.option("--mode", metavar="MODE", help="How the summary is made (default: llm with a model, else intent)."),
    click.option("--model", metavar="MODEL", help="The model that is asked, such as openai:gpt-5 (extra: models)."),
    click.option("--instructions", metavar="TEXT", help="What the summary is to attend to."),
)
"""The options that say how a summary is made: ``mode``, ``model`` and ``instructions``."""


async def chooser(store: Store, choice: SessionChoice, times: Times = (None, None)) -> Callable[[SessionInfo], bool]:
    """Return the test whether a session is chosen, but for how new it is."""
    models: dict[str, set[str]] = {}
    if choice.model is not None:
        for row in (await store.usage(model=choice.model, group_by=("session",))).rows:
            models[str(row.group["session"])] = {choice.model}
    return lambda info: choice.has(info, models.get(info.id, set()), times)


async def chosen_sessions(
    store: Store,
    choice: SessionChoice,
    times: Times = (None, None),
    *,
    completed: bool | None = None,
    damaged: list[str] | None = None,
) -> list[SessionInfo]:
    """Return the sessions that are chosen, most recently active first (see `listed_sessions`). O(sessions)."""
    is_chosen = await chooser(store, choice, times)
    sessions: list[SessionInfo] = []
    pages = partial(store.list_sessions, completed=completed, limit=_PAGE)
    async with aclosing(listed_sessions(pages, damaged)) as listed:
        async for info in listed:
            if len(sessions) == choice.newest:
                break
            if is_chosen(info):
                sessions.append(info)
    return sessions


def zone(name: str | None) -> tzinfo:
    """Return a time zone by its name; the machine's for None. Raises `InvalidArgument`."""
    return local_zone() if name is None else checked_zone(name, "--tz") or UTC


def _field(value: JsonValue, name: str) -> JsonValue:
    return value.get(name) if isinstance(value, dict) else None


def _git_branch(header: JsonValue) -> JsonValue:
    """Return the branch in the header of an imported file, as Claude Code or as Codex writes it."""
    return _field(header, "gitBranch") or _field(_field(header, "git"), "branch")


# ---------------------------------------------------------------------------------------------------------------------
# What commands are given to read: files that options name, and standard input.

MOST_BYTES = 1_000_000
"""A file of settings, of a system prompt or of tools is no larger."""

MOST_BYTES_OF_INPUT = 64_000_000
"""Standard input is no longer: as much as a store takes at once, with room for JSON's escapes."""


def text_from_stdin(name: str) -> str:
    """Return the text on standard input as it is.

    Raises `InvalidEntry` where it is too long, no UTF-8, or cannot be read.
    """
    try:
        return _stdin_bytes(name).decode()
    except UnicodeDecodeError as error:
        raise InvalidEntry(f"{name}: standard input is no text in UTF-8 ({error})") from error


def json_from_stdin(name: str) -> object:
    """Return the JSON value on standard input.

    Raises `InvalidEntry` where it is too long, no JSON, or cannot be read.
    """
    data = _stdin_bytes(name)
    if not data.strip():
        raise InvalidEntry(f"{name}: there is nothing on standard input")
    return _json_of(f"{name}: standard input", data, "value", InvalidEntry)


def _stdin_bytes(name: str) -> bytes:
    try:
        data = sys.stdin.buffer.read(MOST_BYTES_OF_INPUT + 1)
    except (OSError, ValueError, AttributeError) as error:
        raise InvalidEntry(f"{name}: standard input cannot be read ({error})") from error
    if len(data) > MOST_BYTES_OF_INPUT:
        raise InvalidEntry(f"{name}: there are more than {MOST_BYTES_OF_INPUT:,} bytes on standard input")
    return data


def settings_in(file: str | None) -> ContextSettings | None:
    """Return the settings of a JSON file, None for none.

    Raises `InvalidArgument` for a file that cannot be read or has no JSON object, and names each field that is wrong.
    """
    return None if file is None else settings.context_settings(_json_in(f"--settings {file}", file, dict, "object"))


def system_in(file: str | None) -> str | None:
    """Return the text of a file as it is, with the end of its last line; None for none.

    Raises `InvalidArgument` for a file that cannot be read or is no UTF-8.
    """
    try:
        return None if file is None else _bytes_in(f"--system {file}", file).decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"--system {file}: it is no text in UTF-8 ({error})") from error


def tools_in(file: str | None) -> list[JsonObject]:
    """Return the definitions of tools in a JSON file, [] for none.

    Raises `InvalidArgument` for a file that cannot be read or has no list of JSON objects.
    """
    value = [] if file is None else _json_in(f"--tools {file}", file, list, "list")
    for number, tool in enumerate(value):
        if not isinstance(tool, dict):
            raise InvalidArgument(f"--tools {file}: [{number}] is no definition of a tool, but {shown(tool)}")
    return value


def _json_in(name: str, file: str, type_: type[Found], word: str) -> Found:
    value = _json_of(f"{name}: it", _bytes_in(name, file), word, InvalidArgument)
    if not isinstance(value, type_):
        raise InvalidArgument(f"{name}: it has no JSON {word}, but {shown(value)}")
    return value


def _json_of(name: str, data: bytes, word: str, refusal: type[InvalidArgument] | type[InvalidEntry]) -> object:
    try:
        value: object = json.loads(data, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise refusal(f"{name} has no JSON {word} ({error})") from error
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _bytes_in(name: str, file: str) -> bytes:
    with opened(name, expanded(file)) as named:
        try:
            data = named.read(MOST_BYTES + 1)
        except OSError as error:
            raise InvalidArgument(f"{name}: {error.strerror or error}") from error
    if len(data) > MOST_BYTES:
        raise InvalidArgument(f"{name}: it has more than {MOST_BYTES:,} bytes")
    return data
