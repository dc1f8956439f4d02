"""The clear command."""

from __future__ import annotations

from flue_py.cli.choosing import session_argument
from flue_py.cli.consent import Plan, destructive
from flue_py.cli.output import Answer
from flue_py.core.sessions import Moved
from flue_py.render.conversation import turn_lines
from flue_py.render.lines import counted
from flue_py.render.rows import moved_row
from flue_py.runtime.conversation import Conversation
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store


@destructive(bar="reading")
@session_argument
async def clear(store: Store, session: Session) -> Plan:
    """Drop all turns of SESSION. What comes before the first turn stays. undo brings the turns back.

    With --json: as move, with dryRun.
    """
    turns = await Conversation(store, session).turns()
    nothing = "there is nothing to clear"

    def shown(text: str, moved: Moved | None, leaf: str | None, *, dry_run: bool) -> Answer:
        row = {**moved_row(session.id, moved, leaf), "dryRun": dry_run}
        return Answer(lambda: [((text, "bold"),), *turn_lines(turns)], lambda: row)

    async def go(store: Store) -> Answer:
        talk = Conversation(store, await store.find_session(session.id))
        done = await talk.clear()
        text = f"cleared: {counted(done.total, 'turn')} dropped" if done.moved else nothing
        return shown(text, done.moved, talk.session.leaf_id, dry_run=False)

    what = counted(len(turns), "turn") if turns else ""
    would = shown(f"{what} would be dropped" if what else nothing, None, session.leaf_id, dry_run=True)
    return Plan(what, would, go, verb="drop")
