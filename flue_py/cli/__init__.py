"""The command line. What each command does is in docs/reference/cli.md.

Only click is imported here: a command's own module, and all it needs, is imported when the command is run, so
that ``flue-py --help`` answers at once.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import NamedTuple

import click

from flue_py.cli.place import Place, expanded
from flue_py.errors import FlueError

DEFAULT_DATABASE = "~/.flue-py/sessions.db"
INTERRUPTED = 130
READER_GONE = 141


class _Home(NamedTuple):
    """Where a command is, and what the overview says of it."""

    module: str
    name: str
    summary: str


_SECTIONS = {
    "Coming in and going out": {
        "demo": _Home("flue_py.demo.command", "demo", "Show a real session: tree, path, context, usage, deletion."),
        "import": _Home("flue_py.cli.importing_files", "import_files", "Import session files of another program."),
        "export": _Home("flue_py.cli.exporting", "export", "Export a session in the format of another program."),
        "transcript": _Home(
            "flue_py.cli.transcribing", "transcript_of", "Write a path as Markdown, or continue a file."
        ),
        "report": _Home("flue_py.cli.reporting", "report", "Write a session as one HTML page: tree, contexts, costs."),
        "bundle": _Home("flue_py.cli.bundling", "bundle", "Write whole trees into one file, to take elsewhere."),
        "unbundle": _Home("flue_py.cli.bundling", "unbundle", "Bring the trees of a bundle into the database."),
    },
    "Looking": {
        "sessions": _Home("flue_py.cli.listing", "sessions", "List the sessions, most recently changed first."),
        "show": _Home("flue_py.cli.listing", "show", "Show what is known of a session, or one entry whole."),
        "tree": _Home("flue_py.cli.graph", "tree", "Draw the tree of a session: branches, leaf, labels, costs."),
        "path": _Home("flue_py.cli.history", "path", "Show the active path of a session, root to leaf."),
        "context": _Home("flue_py.cli.history", "context", "Show what the model sees, with sizes in tokens."),
        "usage": _Home("flue_py.cli.spending", "usage", "Show tokens and exact cost: of a path, or all that was paid."),
        "log": _Home("flue_py.cli.log", "log", "Show what was done to a session, by whom and why."),
        "diff": _Home("flue_py.cli.merging", "diff", "Show what two leaves share, and what each has by itself."),
    },
    "A conversation": {
        "resume": _Home("flue_py.cli.conversing", "resume", "Show the last turns, to take a conversation up."),
        "conversation": _Home("flue_py.cli.conversing", "conversation", "List the turns of a session."),
        "history": _Home("flue_py.cli.conversing", "history", "Show what was said in a session, whole."),
        "last": _Home("flue_py.cli.conversing", "last", "Show the last answer in a session."),
        "retry": _Home("flue_py.cli.conversing", "retry", "Take the last user message back, to send it again."),
        "clear": _Home("flue_py.cli.conversing", "clear", "Drop all turns of a session."),
        "save": _Home("flue_py.cli.conversing", "save", "Write what was said in a session as Markdown."),
        "snapshot": _Home("flue_py.cli.conversing", "snapshot", "Write the full state of a session as JSON."),
    },
    "Branching and going back": {
        "fork": _Home("flue_py.cli.moving", "fork", "Make a new session that begins at an entry."),
        "move": _Home("flue_py.cli.moving", "move", "Set the leaf of a session to any of its entries."),
        "rewind": _Home("flue_py.cli.moving", "rewind", "Go back on the active path."),
        "undo": _Home("flue_py.cli.moving", "undo", "Undo the last operation of a session."),
        "redo": _Home("flue_py.cli.moving", "redo", "Do again what was undone last."),
        "back": _Home("flue_py.cli.log", "back", "Go back to a line of the log."),
        "cherry-pick": _Home(
            "flue_py.cli.merging", "cherry_pick", "Copy chosen entries of another branch or session here."
        ),
        "merge-back": _Home("flue_py.cli.merging", "merge_back", "Bring a summary of a branch, a fork or a task back."),
    },
    "Marks and budgets": {
        "label": _Home("flue_py.cli.moving", "label", "Label an entry, or clear its label."),
        "pin": _Home("flue_py.cli.marking", "pin", "Have every later compaction keep an entry."),
        "unpin": _Home("flue_py.cli.marking", "unpin", "Let go of a pinned entry."),
        "exclude": _Home("flue_py.cli.marking", "exclude", "Leave an entry, or a part of it, out of the context."),
        "include": _Home("flue_py.cli.marking", "include", "Take an excluded entry back in."),
        "budget": _Home("flue_py.cli.budgeting", "budget", "Set, list, show and delete budgets of tokens or money."),
    },
    "The database": {
        "rm": _Home("flue_py.cli.deleting", "rm", "Delete a session and its task sessions."),
        "prune": _Home("flue_py.cli.housekeeping", "prune", "Delete sessions whose configuration is gone."),
        "cleanup": _Home("flue_py.cli.housekeeping", "cleanup", "Delete sessions that have not changed for long."),
        "verify": _Home("flue_py.cli.deleting", "verify", "Check everything that is stored twice."),
        "backup": _Home("flue_py.cli.rescuing", "backup", "Copy the database into a file while others write."),
        "salvage": _Home("flue_py.cli.rescuing", "salvage", "Rescue what is readable in a damaged file."),
        "copy": _Home("flue_py.cli.copying", "copy", "Copy every session into another database."),
        "migrate": _Home(
            "flue_py.cli.migrating", "migrate", "Bring the database to the current format, or print the SQL."
        ),
        "info": _Home("flue_py.cli.deleting", "info", "Show what the database says of itself."),
        "completion": _Home("flue_py.cli.completion", "completion", "Print the script for completion in a shell."),
    },
}
_COMMANDS = {name: home for section in _SECTIONS.values() for name, home in section.items()}


class WrongCall(click.ClickException):
    """A command that was used wrongly, told in one line."""

    exit_code = 2


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
        if ctx.resilient_parsing:
            from flue_py.cli.completion import offer_names

            return offer_names(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the overview from the table above, without importing a command."""
        for title, homes in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, home.summary) for name, home in homes.items()])

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: object
    ) -> click.Context:
        """Return the context of a run; options before the command that are wrong are told in one line."""
        is_bare = not args  # which gets the help, by way of an error
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            if is_bare:
                raise
            raise _in_one_line(error, info_name or "flue-py") from error

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; an error of ours becomes one line on stderr and exit code 1.

        Who interrupts it gets 130. Where whoever read the output went away, it ends quietly with 141, as other
        programs do, whom the signal for it kills.
        """
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except FlueError as error:
            raise click.ClickException(_printable(str(error))) from error
        except click.UsageError as error:
            raise _in_one_line(error, ctx.command_path) from error
        except BrokenPipeError:
            # What is still to be flushed when the interpreter ends must not fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(READER_GONE)
        except OSError as error:
            where = "" if error.filename is None else f"{error.filename}: "
            raise click.ClickException(_printable(f"{where}{error.strerror or error}")) from error
        except KeyboardInterrupt:
            click.echo("Interrupted; what was committed before stays", err=True)
            ctx.exit(INTERRUPTED)
        return result


def _in_one_line(error: click.UsageError, command_path: str) -> WrongCall:
    where = command_path if error.ctx is None else error.ctx.command_path
    return WrongCall(_printable(f"{error.format_message().rstrip('.')}; see {where} --help"))


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
