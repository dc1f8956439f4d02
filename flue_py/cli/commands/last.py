"""The last command."""

from __future__ import annotations

from flue_py.cli.choosing import newest_argument
from flue_py.cli.output import Answer, plain_lines
from flue_py.cli.running import command
from flue_py.core.spoken import message_text
from flue_py.render.rows import entry_row
from flue_py.sessions.session import Session


@command(bar="reading", paged=True)
@newest_argument
async def last(session: Session) -> Answer:
    """Show the last answer in SESSION, by default the newest.

    With --json: its entry, as in path; null if there is none.
    """
    answer = await session.latest_assistant()
    if answer is None:
        return Answer(lambda: plain_lines("there is no answer yet"), lambda: None)
    return Answer(lambda: plain_lines(message_text(answer.fields)), lambda: entry_row(answer))
