"""The transcript command."""

from __future__ import annotations

from pathlib import Path

import click

from flue_py.cli.choosing import leaf_option, session_argument
from flue_py.cli.output import Answer, said
from flue_py.cli.running import command
from flue_py.core.jsontext import JsonObject
from flue_py.core.sessions import LeafChoice
from flue_py.render.lines import counted
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.transfer.transcripts import transcript as transcript_of
from flue_py.transfer.transcripts import transcripts_of_tasks, write_transcript


def _check(output: Path | None, append: bool, overwrite: bool, tasks: bool, as_json: bool, **_: object) -> None:
    if output is None and (append or overwrite or as_json):
        raise click.UsageError("--append, --overwrite and --json go with --output FILE")
    if output is not None and tasks:
        raise click.UsageError("--tasks prints; give it without --output, and redirect what is printed")
    if append and overwrite:
        raise click.UsageError("give either --append or --overwrite")


@command(check=_check)
@session_argument
@leaf_option("Write the path to this entry instead of the stored leaf.")
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path), help="Write to this file; otherwise print.")
@click.option("--append", is_flag=True, help="Continue the transcript in FILE with what is new.")
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@click.option("--tasks", is_flag=True, help="Print the transcripts of the task sessions, too.")
async def transcript(
    store: Store,
    session: Session,
    leaf: LeafChoice,
    output: Path | None,
    append: bool,
    overwrite: bool,
    tasks: bool,
) -> Answer:
    """Write the path of SESSION as Markdown: who said what when, tokens and cost, tool calls folded.

    A dash stands for a price that is not known. With --output and --json: an object: file, outcome (new, continued,
    rewound, unchanged), entries, leafId.
    """
    if output is None:
        parts = [await transcript_of(session, leaf=leaf)]
        if tasks:
            parts += [part async for part in transcripts_of_tasks(store, session)]
        return Answer(document="\n".join(parts))
    report = await write_transcript(session, output, leaf=leaf, append=append, overwrite=overwrite)
    row: JsonObject = {
        "file": str(report.path),
        "outcome": report.outcome,
        "entries": report.entries,
        "leafId": report.leaf_id,
    }
    return said(f"{report.path}: {report.outcome}, {counted(report.entries, 'entry', 'entries')} written", row)
