"""The command line. What each command does is in docs/reference/cli.md.

Only click is imported here: a command's own module, and all it needs, is imported when the command is run, so
that ``flue-py --help`` answers at once.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper

import click

from flue_py.cli.group import Home, LazyGroup
from flue_py.cli.place import Place, expanded

DEFAULT_DATABASE = "~/.flue-py/sessions.db"


_SECTIONS = {
    "Coming in and going out": {
        "demo": Home("flue_py.demo.command", "demo", "Show a real session: tree, path, context, usage, deletion."),
        "import": Home("flue_py.cli.importing_files", "import_files", "Import session files of another program."),
        "export": Home("flue_py.cli.exporting", "export", "Export a session in the format of another program."),
        "transcript": Home(
            "flue_py.cli.transcribing", "transcript_of", "Write a path as Markdown, or continue a file."
        ),
        "report": Home("flue_py.cli.reporting", "report", "Write a session as one HTML page: tree, contexts, costs."),
        "bundle": Home("flue_py.cli.bundling", "bundle", "Write whole trees into one file, to take elsewhere."),
        "unbundle": Home("flue_py.cli.bundling", "unbundle", "Bring the trees of a bundle into the database."),
    },
    "Looking": {
        "sessions": Home("flue_py.cli.listing", "sessions", "List the sessions, most recently active first."),
        "show": Home("flue_py.cli.listing", "show", "Show what is known of a session, or one entry whole."),
        "tree": Home("flue_py.cli.graph", "tree", "Draw the tree of a session: branches, leaf, labels, costs."),
        "path": Home("flue_py.cli.history", "path", "Show the active path of a session, root to leaf."),
        "context": Home("flue_py.cli.history", "context", "Show what the model sees, with sizes in tokens."),
        "usage": Home("flue_py.cli.spending", "usage", "Show tokens and exact cost: of a path, or all that was paid."),
        "log": Home("flue_py.cli.log", "log", "Show what was done to a session, by whom and why."),
        "diff": Home("flue_py.cli.merging", "diff", "Show what two leaves share, and what each has by itself."),
    },
    "A conversation": {
        "resume": Home("flue_py.cli.conversing", "resume", "Show the last turns, to take a conversation up."),
        "conversation": Home("flue_py.cli.conversing", "conversation", "List the turns of a session."),
        "history": Home("flue_py.cli.conversing", "history", "Show what was said in a session, whole."),
        "last": Home("flue_py.cli.conversing", "last", "Show the last answer in a session."),
        "retry": Home("flue_py.cli.conversing", "retry", "Take the last user message back, to send it again."),
        "clear": Home("flue_py.cli.conversing", "clear", "Drop all turns of a session."),
        "save": Home("flue_py.cli.conversing", "save", "Write what was said in a session as Markdown."),
        "snapshot": Home("flue_py.cli.conversing", "snapshot", "Write the full state of a session as JSON."),
    },
    "Branching and going back": {
        "fork": Home("flue_py.cli.moving", "fork", "Make a new session that begins at an entry."),
        "move": Home("flue_py.cli.moving", "move", "Set the leaf of a session to any of its entries."),
        "rewind": Home("flue_py.cli.moving", "rewind", "Go back on the active path."),
        "undo": Home("flue_py.cli.moving", "undo", "Undo the last operation of a session."),
        "redo": Home("flue_py.cli.moving", "redo", "Do again what was undone last."),
        "back": Home("flue_py.cli.log", "back", "Go back to a line of the log."),
        "cherry-pick": Home(
            "flue_py.cli.merging", "cherry_pick", "Copy chosen entries of another branch or session here."
        ),
        "merge-back": Home("flue_py.cli.merging", "merge_back", "Bring a summary of a branch, a fork or a task back."),
    },
    "Marks and budgets": {
        "label": Home("flue_py.cli.moving", "label", "Label an entry, or clear its label."),
        "pin": Home("flue_py.cli.marking", "pin", "Have every later compaction keep an entry."),
        "unpin": Home("flue_py.cli.marking", "unpin", "Let go of a pinned entry."),
        "exclude": Home("flue_py.cli.marking", "exclude", "Leave an entry, or a part of it, out of the context."),
        "include": Home("flue_py.cli.marking", "include", "Take an excluded entry back in."),
        "budget": Home("flue_py.cli.budgeting", "budget", "Set, list, show and delete budgets of tokens or money."),
    },
    "The database": {
        "rm": Home("flue_py.cli.deleting", "rm", "Delete a session and its task sessions."),
        "prune": Home("flue_py.cli.housekeeping", "prune", "Delete sessions whose configuration is gone."),
        "cleanup": Home("flue_py.cli.housekeeping", "cleanup", "Delete sessions that were last active long ago."),
        "verify": Home("flue_py.cli.deleting", "verify", "Check everything that is stored twice."),
        "backup": Home("flue_py.cli.rescuing", "backup", "Copy the database into a file while others write."),
        "salvage": Home("flue_py.cli.rescuing", "salvage", "Rescue what is readable in a damaged file."),
        "copy": Home("flue_py.cli.copying", "copy", "Copy every session into another database."),
        "migrate": Home(
            "flue_py.cli.migrating", "migrate", "Bring the database to the current format, or print the SQL."
        ),
        "info": Home("flue_py.cli.deleting", "info", "Show what the database says of itself."),
        "schema": Home("flue_py.cli.schema", "schema", "Print the JSON Schema of a message."),
        "completion": Home("flue_py.cli.completion", "completion", "Print the script for completion in a shell."),
    },
}


@click.command(cls=LazyGroup, sections=_SECTIONS, context_settings={"help_option_names": ["-h", "--help"]})
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
    beginning of it. Reading commands take --json. --db may stand before the command or after it.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    source = ctx.get_parameter_source("database")
    is_named = source not in (click.core.ParameterSource.DEFAULT, click.core.ParameterSource.DEFAULT_MAP)
    ctx.obj = Place(expanded(database), is_named=is_named)
