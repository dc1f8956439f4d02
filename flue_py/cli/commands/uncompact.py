"""The uncompact command."""

from __future__ import annotations

from flue_py.cli.changing import context_change
from flue_py.cli.choosing import session_argument
from flue_py.cli.output import Answer, said
from flue_py.cli.running import command
from flue_py.core.jsontext import JsonObject
from flue_py.sessions.session import Session


@command()
@session_argument
async def uncompact(session: Session) -> Answer:
    """Take the compaction in effect in SESSION back, one layer. What was written since stays after what comes back.

    With --json: an object: sessionId, compactionId, restoredId (the compaction in effect again, or null), entryId,
    tokensBefore, tokensAfter. All but sessionId are null if there was nothing to take back.
    """
    done = await session.uncompact()
    names = ("compactionId", "restoredId", "entryId", "tokensBefore", "tokensAfter")
    row: JsonObject = {"sessionId": session.id, **dict.fromkeys(names)}
    if done is None:
        return said("not compacted: there is nothing to take back", row)
    row |= {
        "compactionId": done.compaction_id,
        "restoredId": done.restored_id,
        "entryId": done.appended.entry_ids[0],
        "tokensBefore": done.tokens_before,
        "tokensAfter": done.tokens_after,
    }
    change = context_change(done.tokens_before, done.tokens_after)
    return said(f"took compaction {done.compaction_id} back; {change}", row)
