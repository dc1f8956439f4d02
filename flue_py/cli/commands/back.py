"""The back command."""

from __future__ import annotations

import click

from flue_py.cli.choosing import BY, session_argument, why_option
from flue_py.cli.output import Answer, look, said
from flue_py.cli.running import command
from flue_py.core.jsontext import JsonObject
from flue_py.render.lines import text_of
from flue_py.render.log import log_lines, log_row
from flue_py.sessions.session import Session


@command()
@session_argument
@click.argument("revision", type=click.IntRange(min=0))
@click.option("--before", is_flag=True, help="Restore what was there before that line instead.")
@why_option
async def back(session: Session, revision: int, before: bool, why: str | None) -> Answer:
    """Restore what line REVISION of the log of SESSION set: the leaf, or a title, label or pin.

    REVISION 0 is the session as it was created. With --json: an object: sessionId, changed, line (the new line, as
    in log, or null).
    """
    line = await session.go_back(to=revision, before=before, by=BY, why=why)
    shown = None if line is None else log_row(line)
    row: JsonObject = {"sessionId": session.id, "changed": line is not None, "line": shown}
    if line is None:
        return said("nothing changed: it is like that already", row)
    return Answer(lambda: [((text_of(each).strip(), ""),) for each in log_lines([line], look())], lambda: row)
