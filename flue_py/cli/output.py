"""The only place that prints: lines for people, through rich, and documents and JSON for programs.

All output of commands goes through here, so that stored text cannot send control characters to a terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonValue
from flue_py.render.entries import Look
from flue_py.render.lines import ASCII, UNICODE, Line, cells, json_printable, printable, text_of

if TYPE_CHECKING:
    from rich.console import Console

NO_TURNS = "there are no turns yet"

_COLUMNS = 80

json_option = click.Option(["--json", "as_json"], is_flag=True, help="Print JSON for programs.")


@frozen
class Answer:
    """What a command prints: lines for people, JSON for programs. Only what is asked for is made.

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
    """Print what a command answers."""
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

    In a pipe nothing is cut, unless COLUMNS says how wide it is: what reads it may look for any word.
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

    found = Console(highlight=False, markup=False, emoji=False, stderr=err)
    return found if found.is_terminal else None


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
