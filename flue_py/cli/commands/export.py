"""The export command."""

from __future__ import annotations

from pathlib import Path

import click

from flue_py.cli.choosing import leaf_option, session_argument
from flue_py.cli.output import Answer
from flue_py.cli.running import command
from flue_py.core.sessions import LeafChoice
from flue_py.errors import InvalidArgument
from flue_py.formats.registry import FORMATS, export_names, known_format
from flue_py.sessions.session import Session
from flue_py.store.files.private import write_whole
from flue_py.transfer.exporting import export_session


class _Format(click.Choice):  # type: ignore[type-arg, unused-ignore]
    """A format that can be exported."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the format. Raises `click.UsageError`, which says where it belongs."""
        found = known_format(value)
        if found is None or found.write is None or found.name != value:
            raise click.UsageError(
                f"{value!r} is not a format that can be exported: {', '.join(export_names())}; "
                "FORMAT comes before SESSION",
                ctx,
            )
        return value


def _check(output: Path | None, **_: object) -> None:
    if output is not None and output.exists():
        raise InvalidArgument(f"{output} is there already; name another file, or remove it")


@command(check=_check, json=False)
@click.argument("wanted", metavar="FORMAT", type=_Format([each.name for each in FORMATS if each.write]))
@session_argument
@leaf_option("Export at this entry instead of the stored leaf.")
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a new file, readable by its owner only, instead of printing.",
)
async def export(session: Session, wanted: str, leaf: LeafChoice, output: Path | None) -> Answer:
    """Export SESSION in the format of another program.

    FORMAT is pi or flue (the whole tree), or openai-chat, openai-responses or anthropic (what the model sees). What
    the format cannot hold is reported on stderr.

    A file that is there is not written over.
    """
    exported = await export_session(session, wanted, leaf=leaf)
    notes = [str(note) for note in exported.notes]
    if output is None:
        return Answer(document=exported.text, is_json=True, notes=notes)
    write_whole(output, exported.text.encode())
    return Answer(notes=notes)
