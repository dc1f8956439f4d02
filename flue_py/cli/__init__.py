"""The command line. The rules for all commands are in docs/reference/README.md.

Only click is imported here: a command's own module, and all it needs, is imported when the command is run, so
that ``flue-py --help`` answers at once.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper
from os.path import exists

import click

from flue_py.cli.main import LazyGroup, Place, expanded

DEFAULT_DATABASE = "~/.flue-py/sessions.db"


SECTIONS = {
    "Import and export": {
        "demo": "Show a real session: tree, path, context, usage, deletion.",
        "import": "Import session files of other programs.",
        "export": "Export a session: for a program, or as a page.",
        "report": "Write sessions as pages for people.",
        "resume": "Go on with a session in another program.",
        "skill": "Print the skill by which agents search sessions.",
        "bundle": "Write whole trees to one file.",
        "unbundle": "Add the trees of a bundle to the database.",
    },
    "Read sessions": {
        "sessions": "List sessions, most recently active first.",
        "browse": "Look at sessions, and change them, in the terminal.",
        "search": "Find what was said: in messages, tools, titles.",
        "show": "Show a session: facts, path, turns, or one entry.",
        "tree": "Draw a session's tree: branches, leaf, labels, costs.",
        "context": "Show what the model sees, with sizes in tokens.",
        "usage": "Show tokens and exact cost, of a session or of all.",
        "log": "Show the changes of a session: what, who and why.",
        "events": "Print what happened to sessions, as JSON lines.",
        "diff": "Compare two leaves: what they share, what only one has.",
        "artifacts": "List and show results of tools that are stored apart.",
    },
    "Serve": {
        "serve": "Answer on HTTP: a page for browsers, and JSON.",
        "mcp": "Let agents search and read sessions (MCP).",
    },
    "Run agents": {
        "repl": "Talk to an agent, each step stored.",
        "run": "Have several agents work on a task, turn by turn.",
    },
    "Write": {
        "new": "Create a session, and the database if it is missing.",
        "append": "Append a message, as a text or as JSON.",
        "task": "Create a task session, or say how it ended.",
    },
    "Branch and go back": {
        "fork": "Create a session that begins at an entry of another.",
        "move": "Set the leaf to an entry, or back by some turns.",
        "undo": "Undo the last operation, the last turn, or a line.",
        "redo": "Redo what was undone last.",
        "files": "List checkpoints of files, and bring files back.",
        "cherry-pick": "Copy entries of another branch or session to the leaf.",
        "merge-back": "Append a summary of a branch, a fork or a task.",
    },
    "Compact": {
        "plan": "Say what an edit of the context would cost.",
        "compact": "Replace the beginning of the context by a summary.",
        "loss": "Show what a compaction lost.",
        "recall": "Find words in what a compaction stands for.",
    },
    "Mark entries, set budgets, remember": {
        "title": "Give a session a title, or have a model write one.",
        "label": "Set or clear the label of an entry.",
        "pin": "Keep an entry word for word in later compactions.",
        "exclude": "Leave an entry out of the context, or put it back.",
        "budget": "Set, list, show and delete budgets of tokens or money.",
        "memory": "Keep, list, find and delete what agents remember.",
    },
    "Manage the database": {
        "store": "Add, list, show and remove files that agents read.",
        "redact": "Take the text of entries for good.",
        "hold": "Put a legal hold on a session or a scope, list or lift it.",
        "rm": "Delete a session and its tasks, or all unused ones.",
        "erase": "Delete for good, look for what is left, with a receipt.",
        "cleanup": "Erase what a policy says, but for what is held.",
        "reprice": "Price the calls whose cost is unknown.",
        "verify": "Check the database for errors.",
        "head": "Print heads of sessions, to be kept elsewhere.",
        "check": "Compare sessions with heads that were printed before.",
        "backup": "Copy the database to a file while it is in use.",
        "salvage": "Rescue what can be read of a damaged file.",
        "copy": "Copy all sessions to another database, online.",
        "rekey": "Give the database a key, another one, or none.",
        "migrate": "Upgrade the database to the current format, or print SQL.",
        "info": "Show the database's location, format and size.",
        "completion": "Print the script for completion in a shell.",
    },
}
"""The commands by section, with their lines in the overview. Each section is in a module of this package."""

READING = frozenset({*SECTIONS["Read sessions"], "export", "report", "resume"})
"""The commands before which files may be imported."""

MODULES = {
    "Import and export": "transfer",
    "Read sessions": "read",
    "Serve": "agents",
    "Run agents": "agents",
    "Write": "write",
    "Branch and go back": "write",
    "Compact": "compact",
    "Mark entries, set budgets, remember": "marks",
    "Manage the database": "manage",
}
"""The module of each section: a command is its function of that name."""


def _tell_of_interruption() -> None:
    from flue_py.cli.command import tell

    tell("Interrupted; what was committed before stays")


def _import_changed(place: Place) -> None:
    from flue_py.cli.main import read_config

    wanted = read_config().import_
    # What is not there is for the command to say.
    if wanted.before_reading and (exists(place.target) or not place.is_file):
        from flue_py.cli.transfer import import_changed

        import_changed(place, wanted.seconds)


@click.command(
    cls=LazyGroup,
    sections=SECTIONS,
    modules=MODULES,
    tell_of_interruption=_tell_of_interruption,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--db",
    "database",
    metavar="PATH",
    envvar="FLUE_PY_DB",
    default=DEFAULT_DATABASE,
    show_default=True,
    help="The database: a file, or a SQLAlchemy URL with an async driver. Also FLUE_PY_DB.",
)
@click.option(
    "--key-file",
    "key_files",
    metavar="FILE",
    type=click.Path(),
    multiple=True,
    envvar="FLUE_PY_KEY_FILE",
    help="The file with the key of the database; again for another that it may have. Also FLUE_PY_KEY_FILE.",
)
@click.option(
    "--witness",
    metavar="FILE|URL",
    envvar="FLUE_PY_WITNESS",
    help="What keeps the heads of sessions: a file, or an endpoint. Also FLUE_PY_WITNESS, and FLUE_PY_WITNESS_TOKEN.",
)
@click.option("--accept", metavar="ID", multiple=True, help="A session that was put back on purpose; again for others.")
@click.option("--unchecked", is_flag=True, help="Read a database without its key: nothing is checked or written.")
@click.option("--no-import", is_flag=True, help="Do not import first, whatever config.toml says.")
@click.version_option(package_name="flue-py", prog_name="flue-py")
@click.pass_context
def main(
    ctx: click.Context,
    database: str,
    key_files: tuple[str, ...],
    witness: str | None,
    accept: tuple[str, ...],
    unchecked: bool,
    no_import: bool,
) -> None:
    """Store, read and change the sessions of agents.

    SESSION is the id or key of a session, or the beginning of one. ENTRY is the id of an entry, or the beginning of
    one. Most commands take --json. --db may be given before or after the command.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    source = ctx.get_parameter_source("database")
    is_named = source not in (click.core.ParameterSource.DEFAULT, click.core.ParameterSource.DEFAULT_MAP)
    # A database that is named for one command may be any: sessions of others, a copy.
    is_typed = source is click.core.ParameterSource.COMMANDLINE
    imports = ctx.invoked_subcommand in READING and not (is_typed or no_import)
    before = _import_changed if imports and not unchecked else None
    ctx.obj = Place(expanded(database), is_named, before, key_files, unchecked, witness or None, accept)
    if ctx.invoked_subcommand is None:
        from flue_py.cli.read import print_next_steps

        ctx.exit(print_next_steps(ctx.obj, is_typed=is_typed))
