"""The commands that serve a store to others. The table of all commands is in `flue_py.cli`."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

import click

from flue_py.cli import command as cli
from flue_py.cli.command import Answer
from flue_py.cli.main import Place, in_commands, key_in, on_one_line
from flue_py.errors import FlueError
from flue_py.server import mcp as tools
from flue_py.server import serve as run_server
from flue_py.server.listener import checked_address
from flue_py.sessions.store import Store


@cli.command(json=False)
@click.option("--http", "address", metavar="[HOST:]PORT", default="8765", help="By default 8765; port 0 is a free one.")
@click.option("--token-file", metavar="FILE", help="A file of tokens, one a line: TOKEN, or TOKEN SCOPE.")
@click.option(
    "--allow-host", "hosts", metavar="NAME", multiple=True, help="A name by which it is called; again for others."
)
@click.option("--settings", metavar="FILE", help="Show on pages the requests of agents by these settings (JSON).")
def serve(place: Place, address: str, token_file: str | None, hosts: tuple[str, ...], settings: str | None) -> Answer:
    """Answer on HTTP: a page for a browser at /, and sessions, entries, appends, contexts, usage, search and events.

    GET /openapi.json describes what is JSON. Without --token-file it answers this machine alone. A token with a SCOPE
    sees that scope alone. The URL is printed on stderr. A signal ends it. Needs the extra server: pip install
    'flue-py[server]'.
    """
    cli.require_database(place)
    run_server(
        cli.opening(place, threads=None),
        address,
        token_file=token_file,
        hosts=hosts,
        settings=cli.settings_in(settings),
        tell=cli.tell,
    )
    return Answer()


@cli.command(json=False)
@click.option("--http", "address", metavar="[HOST:]PORT", help="Answer on HTTP instead; port 0 is a free one.")
@click.option("--token-file", metavar="FILE", help="The file with the token that requests on HTTP have to bring.")
@cli.scope_option
@click.option("--write", is_flag=True, help="Offer the tool remember, too, which adds a memory.")
def mcp(place: Place, address: str | None, token_file: str | None, scope: str | None, write: bool) -> Answer:
    """Let agents search and read sessions, by the Model Context Protocol on standard input and output.

    The tools are search, read, recall, sessions, usage and memories. An answer has 20,000 tokens at most, and says how
    to read on. Nothing is deleted or replaced. Each call opens the database anew. Needs the extra mcp: pip install
    'flue-py[mcp]'.

    On HTTP, other machines need --token-file: at least 16 characters, sent as Authorization: Bearer. The URL is
    printed on stderr. A signal ends it.
    """
    cli.refuse(token_file is not None and address is None, "--token-file is for --http")
    token = None if token_file is None else tools.checked_token(key_in(token_file, "--token-file") or b"")
    at = None if address is None else checked_address(address, has_token=token is not None)

    server = server_on(place, scope=scope, writes=write)
    asyncio.run(tools.serve_stdio(server) if at is None else tools.serve_http(server, at, token, cli.tell))
    return Answer()


def server_on(place: Place, *, scope: str | None = None, writes: bool = False) -> tools.Server:
    """Return a server of the tools on the database that was named."""

    def opening() -> AbstractAsyncContextManager[Store]:
        cli.require_database(place)
        return cli.opening(place, threads=None)

    def explain(error: FlueError) -> str:
        return on_one_line(in_commands(str(error)))

    return tools.make_server(opening, explain, scope=scope, writes=writes)
