"""The transcript command."""

from __future__ import annotations

from pathlib import Path

import click

from flue_py.cli.output import json_option, print_document, print_result
from flue_py.cli.place import Place
from flue_py.cli.running import leaf_of, run
from flue_py.core.jsontext import JsonObject
from flue_py.render.lines import counted
from flue_py.runtime.finding import find_session
from flue_py.sessions.store import Store
from flue_py.transfer.transcripts import TranscriptReport, transcript, transcripts_of_tasks, write_transcript


@click.command("transcript")
@click.argument("session")
@click.option("--leaf", metavar="ENTRY", help="Write the path to this entry instead of the stored leaf.")
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path), help="Write to a file; print it otherwise.")
@click.option("--append", is_flag=True, help="Continue the transcript in FILE with what the session has gained.")
@click.option("--overwrite", is_flag=True, help="Write FILE anew where it is there already.")
@click.option("--tasks", is_flag=True, help="Print the transcripts of its task sessions after it.")
@json_option
@click.pass_obj
def transcript_of(
    place: Place,
    session: str,
    leaf: str | None,
    output: Path | None,
    append: bool,
    overwrite: bool,
    tasks: bool,
    as_json: bool,
) -> None:
    """Write the path of SESSION as Markdown: who said what when, tokens and cost, tool calls folded."""
    if output is None and (append or overwrite or as_json):
        raise click.UsageError("--append, --overwrite and --json go with --output FILE")
    if output is not None and tasks:
        raise click.UsageError("--tasks prints; give it without --output, and redirect what is printed")
    if append and overwrite:
        raise click.UsageError("give either --append or --overwrite")

    if output is None:

        async def show(store: Store) -> list[str]:
            found = await find_session(store, session)
            parts = [await transcript(found, leaf=await leaf_of(found, leaf))]
            return parts + [part async for part in transcripts_of_tasks(store, found)] if tasks else parts

        print_document("\n".join(run(place, show)))
        return
    target = output

    async def write(store: Store) -> TranscriptReport:
        found = await find_session(store, session)
        at = await leaf_of(found, leaf)
        return await write_transcript(found, target, leaf=at, append=append, overwrite=overwrite)

    report = run(place, write)
    said = f"{report.path}: {report.outcome}, {counted(report.entries, 'entry', 'entries')} written"
    row: JsonObject = {
        "file": str(report.path),
        "outcome": report.outcome,
        "entries": report.entries,
        "leafId": report.leaf_id,
    }
    print_result(said, row, as_json=as_json)
