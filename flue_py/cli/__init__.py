"""The command line. What each command does is in docs/reference/cli.md.

Only click is imported here: a command's own module, and all it needs, is imported when the command is run, so
that ``flue-py --help`` answers at once.
"""

from __future__ import annotations

import sys
from importlib import import_module
from io import TextIOWrapper
from typing import NamedTuple

import click

from flue_py.cli.place import Place, expanded
from flue_py.errors import FlueError

DEFAULT_DATABASE = "~/.flue-py/sessions.db"


class _Home(NamedTuple):
    """Where a command is, and what the overview says of it."""

    module: str
    name: str
    summary: str


_COMMANDS = {
    "demo": _Home("flue_py.demo.command", "demo", "Show a real session: tree, path, context, usage, deletion."),
    "import": _Home("flue_py.cli.importing_files", "import_files", "Import session files of another program."),
    "sessions": _Home("flue_py.cli.listing", "sessions", "List the sessions, most recently changed first."),
    "show": _Home("flue_py.cli.listing", "show", "Show what is known of a session, or one entry whole."),
    "tree": _Home("flue_py.cli.history", "tree", "Show the tree of a session: every branch, the leaf, sizes."),
    "path": _Home("flue_py.cli.history", "path", "Show the active path of a session, root to leaf."),
    "context": _Home("flue_py.cli.history", "context", "Show what the model sees, with sizes in tokens."),
    "usage": _Home("flue_py.cli.spending", "usage", "Show tokens and exact cost: of a path, or all that was paid."),
    "fork": _Home("flue_py.cli.moving", "fork", "Make a new session that begins at an entry."),
    "move": _Home("flue_py.cli.moving", "move", "Set the leaf of a session to any of its entries."),
    "rewind": _Home("flue_py.cli.moving", "rewind", "Go back on the active path."),
    "undo": _Home("flue_py.cli.moving", "undo", "Undo the last operation of a session."),
    "redo": _Home("flue_py.cli.moving", "redo", "Do again what was undone last."),
    "label": _Home("flue_py.cli.moving", "label", "Label an entry, or clear its label."),
    "rm": _Home("flue_py.cli.deleting", "rm", "Delete a session and its task sessions."),
    "verify": _Home("flue_py.cli.deleting", "verify", "Check everything that is stored twice."),
    "backup": _Home("flue_py.cli.rescuing", "backup", "Copy the database into a file while others write."),
    "salvage": _Home("flue_py.cli.rescuing", "salvage", "Rescue what is readable in a damaged file."),
    "info": _Home("flue_py.cli.deleting", "info", "Show what the database says of itself."),
    "copy": _Home("flue_py.cli.copying", "copy", "Copy every session into another database."),
    "migrate": _Home("flue_py.cli.migrating", "migrate", "Bring the database to the current format, or print the SQL."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for, and whose errors are one line each."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order of a first day with them."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, imported now; None where there is none of that name."""
        home = _COMMANDS.get(cmd_name)
        if home is None:
            return None
        command = getattr(import_module(home.module), home.name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the overview from the table above, without importing a command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, home.summary) for name, home in _COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; an error of ours becomes one line on stderr and exit code 1."""
        try:
            return super().invoke(ctx)
        except FlueError as error:
            raise click.ClickException(_printable(str(error))) from error


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--db",
    "database",
    metavar="PATH",
    envvar="FLUE_PY_DB",
    default=DEFAULT_DATABASE,
    show_default=True,
    help="The database: a file, or a SQLAlchemy URL with an async driver. Also FLUE_PY_DB.",
)
@click.version_option(package_name="flue-py", prog_name="flue-py")
@click.pass_context
def main(ctx: click.Context, database: str) -> None:
    """Keep, show and change the histories of agents.

    SESSION is a session's id, key, or a beginning of either that fits only one; ENTRY is an entry's id or a
    beginning of it. Reading commands take --json.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    source = ctx.get_parameter_source("database")
    is_named = source not in (click.core.ParameterSource.DEFAULT, click.core.ParameterSource.DEFAULT_MAP)
    ctx.obj = Place(expanded(database), is_named=is_named)
