"""The report command."""

from __future__ import annotations

import webbrowser
from datetime import UTC, datetime
from os.path import isdir  # unlike Path.is_dir, it has no opinion on names that no file can have
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from flue_py.cli.choosing import newest_argument
from flue_py.cli.output import Answer
from flue_py.cli.running import command
from flue_py.core.shapes import Shape
from flue_py.errors import InvalidArgument, shown
from flue_py.lazy import lazy_module
from flue_py.render.lines import printable
from flue_py.sessions.session import Session
from flue_py.store.files.private import write_whole

if TYPE_CHECKING:
    from flue_py.cli import given
else:
    given = lazy_module("flue_py.cli.given")

_STDOUT = "-"
_ENDINGS = {"html": "html", "snapshots": "jsonl"}


def _check(output: str | None, show: bool, form: str, **_: object) -> None:
    if show and (output == _STDOUT or form != "html"):
        raise click.UsageError("--open needs a page in a file; leave out --output - and --format")


@command(check=_check, json=False)
@newest_argument
@click.option("--output", metavar="FILE", help="Write to this file; - is standard output. [default: report-ID.html]")
@click.option("--overwrite", is_flag=True, help="Replace an existing file, once the new one is complete.")
@click.option("--open", "show", is_flag=True, help="Open the report in the browser.")
@click.option("--warn-at", type=click.IntRange(min=0), default=0, help="Draw a line at this many input tokens.")
@click.option("--cutover-at", type=click.IntRange(min=0), default=0, help="Draw a red line at this many input tokens.")
@click.option("--sizes/--no-sizes", default=True, help="Count tokens, or skip it to save time.", show_default=True)
@click.option("--settings", metavar="FILE", help="Show what these settings leave of the context, as `context` does.")
@click.option("--agent", metavar="NAME", help="Show what this agent is sent of the context.")
@click.option("--target", type=click.Choice(get_args(Shape)), help="Show what this provider is sent, repaired.")
@click.option("--no-time", is_flag=True, help="Leave out the time, so that the same session gives the same bytes.")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(_ENDINGS)),
    default="html",
    show_default=True,
    help="The page, or the data of its chart as JSON lines.",
)
async def report(
    session: Session,
    output: str | None,
    overwrite: bool,
    show: bool,
    warn_at: int,
    cutover_at: int,
    sizes: bool,
    settings: str | None,
    agent: str | None,
    target: str | None,
    no_time: bool,
    form: str,
) -> Answer:
    """Write a report of SESSION, by default the newest, and its tasks: one HTML file that needs no network.

    It shows the tree and its branches, what the model sees at each entry and what is stored, how the context of each
    agent grew, and the cost by model. The file holds all messages, so only its owner can read it.
    """
    if form == "snapshots":
        text = await session.context_snapshots(warn_at=warn_at, cutover_at=cutover_at)
    else:
        made_at = None if no_time else datetime.now(UTC)
        text = await session.html_report(
            warn_at=warn_at,
            cutover_at=cutover_at,
            made_at=made_at,
            sizes=sizes,
            settings=given.settings_in(settings),
            agent=agent,
            target=target,
        )
    if output == _STDOUT:
        return Answer(document=text, is_json=form != "html")
    name = f"report-{_safe(session.id)}.{_ENDINGS[form]}" if output is None else output
    return _write(Path(name), text, overwrite=overwrite, show=show)


def _safe(session_id: str) -> str:
    """Return the beginning of an id as part of a file's name, whatever an imported id holds."""
    return "".join(char if char.isascii() and char.isalnum() else "-" for char in session_id[:8])


def _write(path: Path, text: str, *, overwrite: bool, show: bool) -> Answer:
    if isdir(path) or path.name in ("", ".."):
        raise InvalidArgument(f"--output: {shown(str(path))} is a folder; name a file in it")
    write_whole(path, text.encode(), overwrite=overwrite)
    if show:
        webbrowser.open(path.resolve().as_uri())
    return Answer(lambda: [((f"{printable(str(path))}: {len(text.encode()):,} bytes", ""),)])
