"""The command line. What each command does is in docs/reference/cli.md.

Only click is imported here: a command's own module, and all it needs, is imported when the command is run, so
that ``flue-py --help`` answers at once.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper

import click

from flue_py.cli.group import LazyGroup
from flue_py.cli.place import Place, expanded

DEFAULT_DATABASE = "~/.flue-py/sessions.db"


SECTIONS = {
    "Coming in and going out": {
        "demo": "Show a real session: tree, path, context, usage, deletion.",
        "import": "Import session files of another program.",
        "export": "Export a session in the format of another program.",
        "transcript": "Write a path as Markdown, or continue a file.",
        "report": "Write a session as one HTML page: tree, contexts, costs.",
        "bundle": "Write whole trees into one file, to take elsewhere.",
        "unbundle": "Bring the trees of a bundle into the database.",
    },
    "Looking": {
        "sessions": "List the sessions, most recently active first.",
        "show": "Show what is known of a session, or one entry whole.",
        "tree": "Draw the tree of a session: branches, leaf, labels, costs.",
        "path": "Show the active path of a session, root to leaf.",
        "context": "Show what the model sees, with sizes in tokens.",
        "usage": "Show tokens and exact cost: of a path, or all that was paid.",
        "log": "Show what was done to a session, by whom and why.",
        "diff": "Show what two leaves share, and what each has by itself.",
    },
    "A conversation": {
        "resume": "Show the last turns, to take a conversation up.",
        "conversation": "List the turns of a session.",
        "history": "Show what was said in a session, whole.",
        "last": "Show the last answer in a session.",
        "retry": "Take the last user message back, to send it again.",
        "clear": "Drop all turns of a session.",
        "save": "Write what was said in a session as Markdown.",
        "snapshot": "Write the full state of a session as JSON.",
    },
    "Branching and going back": {
        "fork": "Make a new session that begins at an entry.",
        "move": "Set the leaf of a session to any of its entries.",
        "rewind": "Go back on the active path.",
        "undo": "Undo the last operation of a session.",
        "redo": "Do again what was undone last.",
        "back": "Go back to a line of the log.",
        "cherry-pick": "Copy chosen entries of another branch or session here.",
        "merge-back": "Bring a summary of a branch, a fork or a task back.",
    },
    "Marks and budgets": {
        "label": "Label an entry, or clear its label.",
        "pin": "Have every later compaction keep an entry.",
        "unpin": "Let go of a pinned entry.",
        "exclude": "Leave an entry, or a part of it, out of the context.",
        "include": "Take an excluded entry back in.",
        "budget": "Set, list, show and delete budgets of tokens or money.",
    },
    "The database": {
        "rm": "Delete a session and its task sessions.",
        "prune": "Delete sessions whose configuration is gone.",
        "cleanup": "Delete sessions that were last active long ago.",
        "verify": "Check everything that is stored twice.",
        "backup": "Copy the database into a file while others write.",
        "salvage": "Rescue what is readable in a damaged file.",
        "copy": "Copy every session into another database.",
        "migrate": "Bring the database to the current format, or print the SQL.",
        "info": "Show what the database says of itself.",
        "schema": "Print the JSON Schema of a message.",
        "completion": "Print the script for completion in a shell.",
    },
}
"""The commands by section, with what the overview says of them. A module of `flue_py.cli.commands` is named as each."""


@click.command(cls=LazyGroup, sections=SECTIONS, context_settings={"help_option_names": ["-h", "--help"]})
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
