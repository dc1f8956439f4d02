"""The export command."""

from __future__ import annotations

from pathlib import Path

import click

from flue_py.cli.output import print_document, tell
from flue_py.cli.place import Place
from flue_py.cli.running import leaf_of, run
from flue_py.errors import InvalidArgument
from flue_py.formats.kit.exported import Exported
from flue_py.formats.registry import FORMATS, export_names, known_format
from flue_py.runtime.finding import find_session
from flue_py.sessions.store import Store
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


@click.command("export")
@click.argument("format", metavar="FORMAT", type=_Format([each.name for each in FORMATS if each.write]))
@click.argument("session")
@click.option("--leaf", metavar="ENTRY", help="Export at this entry instead of the stored leaf.")
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a new file, for its owner alone, instead of printing.",
)
@click.pass_obj
def export(place: Place, format: str, session: str, leaf: str | None, output: Path | None) -> None:  # noqa: A002
    """Export SESSION in the format of another program.

    FORMAT is pi or flue (the whole tree), or openai-chat, openai-responses or anthropic (what the model sees). What
    the format has no place for is said on stderr.
    """

    async def work(store: Store) -> Exported:
        found = await find_session(store, session)
        return await export_session(found, format, leaf=await leaf_of(found, leaf))

    if output is not None and output.exists():
        raise InvalidArgument(f"{output} is there already; name another file, or remove it")
    exported = run(place, work)
    if output is None:
        print_document(exported.text, is_json=True)
    else:
        write_whole(output, exported.text.encode())
    for note in exported.notes:
        tell(str(note))
