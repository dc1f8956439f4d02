"""The browse command."""

from __future__ import annotations

import sys

import click

from flue_py.cli.choosing import SESSION_NAME
from flue_py.cli.output import Answer
from flue_py.cli.place import Place, is_only_readable
from flue_py.cli.running import command, require_database


def _check(session: str | None, entry: str | None, **_: object) -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("this needs a terminal; without one, sessions, tree, show and search print the same")


@command(check=_check, json=False)
@click.argument("session", type=SESSION_NAME, required=False)
@click.argument("entry", required=False)
def browse(place: Place, session: str | None, entry: str | None) -> Answer:
    """Look at all sessions, or at SESSION from ENTRY on, and change them, with the keyboard.

    The key ? shows the keys (F1 where text is typed). Secrets are hidden until they are asked for. It follows what
    other programs write. Needs the extra tui: pip install 'flue-py[tui]'.

    A database that can only be read is not changed. After a signal that ends it, the exit code is 128 and the
    number of the signal.
    """
    from flue_py.tui.opening import browse as run_browser

    require_database(place)
    code = run_browser(place.target, read_only=is_only_readable(place.target), session=session, entry=entry)
    return Answer(code=code)
