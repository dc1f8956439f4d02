"""The only place that prints: lines for people, through rich, and documents and JSON for programs.

All output of commands goes through here, so that stored text cannot send control characters to a terminal.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import click

from flue_py.core.context import ContextEntry
from flue_py.core.entries import Entry
from flue_py.core.json import Frozen, JsonObject, JsonValue
from flue_py.core.kinds import SHOWN_KINDS
from flue_py.core.sessions import Appended, LogLine, Moved, SessionInfo
from flue_py.errors import InvalidArgument, shown
from flue_py.lazy import lazy_module
from flue_py.render.lines import (
    ASCII,
    UNICODE,
    Line,
    Look,
    cells,
    counted,
    exclusion_text,
    json_printable,
    one_line,
    printable,
    table,
    text_of,
)
from flue_py.render.views import log_lines, log_row, moved_row, row_of
from flue_py.sessions.marks import MarkEffect
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.system import in_full, open_if_plain

if TYPE_CHECKING:
    from rich.console import Console

    from flue_py.context import request
    from flue_py.context.pipeline import ContextReport
    from flue_py.context.request import ContextRequest
    from flue_py.context.tokens import TokenCount
else:
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
        self._lock = threading.Lock()
        self._state: tuple[int, int] | None = None
        self._update: Callable[[], None] | None = None
        self._close: Callable[[], None] | None = None
        self._is_over = False

    def start(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            ProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        with self._lock:
            if self._is_over:
                return
            columns: list[ProgressColumn] = [TextColumn("{task.description}", markup=False), BarColumn()]
            if self._unit == BYTES:
                columns += [DownloadColumn(), TimeRemainingColumn()]
            elif self._unit:
                columns += [MofNCompleteColumn(), TextColumn(self._unit), TimeElapsedColumn()]
            else:
                columns.append(TimeElapsedColumn())
            console = Console(stderr=True, force_terminal=True)
            bar = Progress(*columns, console=console, transient=True)
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


async def models_of(store: Store, listed: Sequence[SessionInfo]) -> dict[str, str]:
    """Return, by session, the model that most of its calls were made to. O(their calls)."""
    report = await store.usage(listed, group_by=("session", "model"))
    calls = sorted((row.calls, str(row.group["session"]), str(row.group["model"])) for row in report.rows)
    return {session: model for _, session, model in calls if model}


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
    """Return how many tokens each item of a context takes, by the id of its entry: counted, or else estimated."""
    from flue_py.context.tokens import count_message_tokens, estimate_message_tokens

    if not count:
        return {item.entry.id: estimate_message_tokens(item.data) for item in items}
    with progress_bar("counting tokens"):
        return {item.entry.id: count_message_tokens(item.data) for item in items}


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
        print_json(answer.row())
    elif answer.document is not None:
        print_document(answer.document, is_json=answer.is_json)
    else:
        print_lines(answer.lines(), paged=paged)
    for note in answer.notes:
        tell(note)


def print_json(value: JsonValue) -> None:
    """Print a value as JSON, in UTF-8 whatever the terminal's encoding."""
    print_document(json.dumps(value, ensure_ascii=False, indent=2) + "\n", is_json=True)


def print_document(text: str, *, is_json: bool = False) -> None:
    """Print a text that is meant for a file: its exact bytes in UTF-8, except at a terminal.

    At a terminal, control characters are escaped in JSON (or JSON lines), and become U+FFFD in other texts.
    """
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
            Text.assemble(*((_flat(text), style) for text, style in line)),
            no_wrap=True,
            overflow="ignore",
            crop=False,
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
    row: JsonObject = {
        "sessionId": session.id,
        "entryId": entry,
        **row_of(effect, "entry_ids exclusion_ids tokens_before tokens_after own_tokens"),
    }
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
    try:
        opened = open_if_plain(Path(in_full(file)))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise InvalidArgument(f"{where}: {reason or error}") from error
    if opened is None:
        raise InvalidArgument(f"{where}: it is a pipe or a device, not a file; write it into a file first")
    with opened:
        number = 0
        while (line := opened.readline(_MOST_BYTES)).endswith(b"\n"):
            number += 1
            yield _id_of(f"{where}: line {number}", line)
        if len(line) == _MOST_BYTES:
            raise InvalidArgument(f"{where}: line {number + 1} has more than {_MOST_BYTES:,} bytes")
        if line and _is_stdout(opened):
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
