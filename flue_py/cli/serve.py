"""The commands that serve a store to others. The table of all commands is in `flue_py.cli`."""

from __future__ import annotations

import click

from flue_py.cli import command as cli
from flue_py.cli.command import Answer
from flue_py.cli.main import Place, read_config
from flue_py.server import serve as run_server


@cli.command(json=False)
@click.option(
    "--http",
    "address",
    metavar="[HOST:]PORT",
    default="8765",
    show_default=True,
    help="Where to answer; port 0 is a free one.",
)
@click.option("--token-file", metavar="FILE", help="A file of tokens, one a line: TOKEN, or TOKEN SCOPE.")
@click.option(
    "--allow-host", "hosts", metavar="NAME", multiple=True, help="A name by which it is called; again for others."
)
def serve(place: Place, address: str, token_file: str | None, hosts: tuple[str, ...]) -> Answer:
    """Answer on HTTP: sessions, entries, appends, contexts, usage, search and events, as JSON.

    GET /openapi.json describes it. Without --token-file it answers this machine alone. A token with a SCOPE sees that
    scope alone. The URL is printed on stderr. A signal ends it. Needs the extra server: pip install 'flue-py[server]'.
    """
    cli.require_database(place)
    run_server(
        place.target,
        address,
        token_file=token_file,
        hosts=hosts,
        tell=cli.tell,
        key=place.keys(),
        unchecked=place.unchecked,
        witness=place.witnessed(),
        accept=place.accept,
        secrets=read_config().secrets,
    )
    return Answer()
