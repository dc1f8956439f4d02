"""Printing: lines for people, through rich, and JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from flue_py.core.jsontext import JsonValue
from flue_py.render.entries import Look
from flue_py.render.lines import ASCII, UNICODE, Line, cells, printable, text_of

if TYPE_CHECKING:
    from rich.console import Console

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def print_json(value: JsonValue) -> None:
    """Print a value as JSON, in UTF-8 whatever the terminal's encoding."""
    # Half of a surrogate pair, as in the name of a file that is no UTF-8, has an escape in JSON and no bytes.
    click.echo(json.dumps(value, ensure_ascii=False, indent=2).encode(errors="backslashreplace"))


def _console(*, err: bool = False) -> Console:
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, stderr=err)


def print_lines(lines: Iterable[Line], *, paged: bool = False, err: bool = False) -> None:
    """Print lines, with their styles where the output is a terminal that shows them (NO_COLOR is heeded).

    Nothing in them is left for the terminal to act on, whatever a title, a label or an id holds. With ``paged``, what
    is longer than the terminal goes through the pager (PAGER) where there is somebody to turn its pages. With ``err``
    they go to stderr.
    """
    console = _console(err=err)
    if not console.is_terminal:
        for line in lines:
            click.echo(printable(text_of(line)).rstrip(), err=err)
        return
    shown = list(lines)
    if paged and _rows(shown, console.width) >= console.height and _has_reader():
        with console.capture() as captured:
            _print_styled(console, shown)
        click.echo_via_pager(captured.get(), color=console.color_system is not None and not console.no_color)
    else:
        _print_styled(console, shown)


def _rows(lines: Iterable[Line], width: int) -> int:
    """Return how many rows of a terminal lines take, those that are wrapped counted as often."""
    return sum(max(1, -(-sum(cells(text) for text, _ in line) // width)) for line in lines)


def _has_reader() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _print_styled(console: Console, lines: Iterable[Line]) -> None:
    from rich.text import Text

    for line in lines:
        console.print(
            Text.assemble(*((printable(text), style) for text, style in line)),
            no_wrap=True,
            overflow="ignore",
            crop=False,
        )


def print_title(text: str) -> None:
    """Print a line that says what follows."""
    print_lines([((text, "bold"),)])


def look(*, sizes: Mapping[str, int] | None = None, labels: Mapping[str, str] | None = None) -> Look:
    """Return how to show entries on this output: its width, and signs it can encode."""
    console = _console()
    return Look(console.width, sizes, labels, UNICODE if console.encoding.startswith("utf") else ASCII)


def print_result(text: str, value: JsonValue, *, as_json: bool) -> None:
    """Print what a command did: a sentence, or JSON."""
    if as_json:
        print_json(value)
    else:
        print_lines([((text, ""),)])


def joined(parts: Sequence[str]) -> str:
    """Return the parts that are not empty, as one line."""
    return ", ".join(part for part in parts if part)
