"""The pin command."""

from __future__ import annotations

from flue_py.cli.changing import marked
from flue_py.cli.choosing import BY, entry_argument, session_argument, why_option
from flue_py.cli.output import Answer
from flue_py.cli.running import command
from flue_py.sessions.session import Session


@command()
@session_argument
@entry_argument
@why_option
async def pin(session: Session, entry: str, why: str | None) -> Answer:
    """Keep ENTRY word for word in every later compaction of SESSION, a tool call with its results.

    It says how many tokens that is. With --json: an object: sessionId, entryId, entryIds, exclusionIds,
    tokensBefore, tokensAfter (of the context), ownTokens (of the entries).
    """
    return marked(session, "pinned", entry, await session.pin(entry, by=BY, why=why))
