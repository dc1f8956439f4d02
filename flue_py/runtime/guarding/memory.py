"""What a guard remembers between processes, and its events: the metadata of the session, and the log of their changes.

Each event is one change of the metadata under the key ``compactionGuard``, by ``compaction guard``, with its reason, so
that it is a line of the session's log. It moves no leaf and is no step of `undo`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeAlias

from flue_py.compaction.triggers import GuardState
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject
from flue_py.core.log import GUARD_KEY, MAX_WHY_CHARACTERS
from flue_py.core.sessions import SessionInfo
from flue_py.errors import RevisionConflict
from flue_py.sessions.claims import Claim
from flue_py.sessions.handle import stored_row
from flue_py.sessions.session import Session

BY = "compaction guard"


@frozen
class Remembered:
    """What is stored: the state, and the claim of whoever compacts the session now, None for nobody.

    The claim of a process that has ended is none, and counts as a failure if it came to no compaction: what kills
    each process that tries it would otherwise be tried, and paid for, without end. ``is_after_end`` says so.
    """

    state: GuardState
    claim: Claim | None
    is_after_end: bool = False


Change: TypeAlias = Callable[[Remembered], tuple[Remembered, str] | None]
"""Returns what is to be stored, and why; None to leave it."""


class Memory:
    """The memory of the guard of one session."""

    def __init__(self, session: Session, clock: Callable[[], datetime]) -> None:
        self._session = session
        self._clock = clock

    def now(self) -> int:
        """Return the time in seconds since 1970."""
        return int(self._clock().timestamp())

    async def read(self, cycle: str | None) -> Remembered:
        """Return what is stored, as of the latest compaction ``cycle``. One point read."""
        return self._read(await stored_row(self._session), cycle)

    def _read(self, info: SessionInfo, cycle: str | None) -> Remembered:
        stored = info.metadata.get(GUARD_KEY)
        fields: JsonObject = stored if isinstance(stored, dict) else {}
        state, claim = GuardState.from_json(fields).in_cycle(cycle), Claim.from_json(fields.get("claim"))
        if claim is None or claim.holds(self._session.id, self.now()):
            return Remembered(state, claim)
        if claim.session_id != self._session.id or claim.cycle != state.cycle:
            return Remembered(state, None)
        return Remembered(state.with_failure(), None, is_after_end=True)

    async def change(self, cycle: str | None, change: Change) -> Remembered:
        """Change what is stored, and return it: what anybody else writes meanwhile is taken into account.

        One point read and one write, again for each change of the session that comes in between.
        """
        while True:
            info = await stored_row(self._session)
            found = self._read(info, cycle)
            made = change(found)
            if made is None:
                return found
            to_store, why = made
            if found.is_after_end:
                why = f"the process that compacted the session has ended, which counts as a failure; {why}"
            fields = to_store.state.to_json()
            if to_store.claim is not None:
                fields["claim"] = to_store.claim.to_json()
            try:
                await self._session.set_metadata(
                    {GUARD_KEY: fields},
                    merge=True,
                    by=BY,
                    why=why[:MAX_WHY_CHARACTERS],
                    expected_revision=info.revision,
                )
            except RevisionConflict:
                continue
            return to_store
