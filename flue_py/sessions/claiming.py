"""One compaction of a session at a time, in all processes: who compacts it by hand respects the claim of a guard."""

from __future__ import annotations

from functools import partial

from flue_py.core.jsontext import JsonObject
from flue_py.core.log import GUARD_KEY, Note
from flue_py.core.sessions import STORED, Seen
from flue_py.errors import RevisionConflict
from flue_py.sessions.arguments import ChangedMetadata, checked_metadata
from flue_py.sessions.claims import Claim
from flue_py.sessions.handle import Handle

BY = "compaction guard"


class Claiming(Handle):
    """What a `Session` knows of who compacts it now."""

    __slots__ = ()

    async def _is_claimed_elsewhere(self) -> bool:
        """Return whether somebody else has claimed the session for a compaction that still runs. One point read."""
        self._note_row(await self._stored_info())
        found = Claim.from_json(self._guarded.get("claim"))
        return found is not None and found.holds(self.id, self._pricer.now_us() // 1_000_000)

    async def _renew_claim(self, claim: Claim, seconds: float) -> None:
        """Have a claim hold for as long as a call of a model may take.

        One point read, and a write where the claim would end before.
        """
        while True:
            info = await self._stored_info()
            self._note_row(info)
            stored = Claim.from_json(self._guarded.get("claim"))
            if stored is None or stored.token != claim.token:
                return
            renewed = stored.renewed(self._pricer.now_us() // 1_000_000, seconds)
            if renewed is None:
                return
            try:
                await self._store_claim(renewed, info.revision)
            except RevisionConflict:
                continue
            return

    @property
    def _guarded(self) -> JsonObject:
        stored = self.metadata.get(GUARD_KEY)
        return {**stored} if isinstance(stored, dict) else {}

    async def _store_claim(self, claim: Claim, revision: int) -> None:
        fields = checked_metadata({GUARD_KEY: {**self._guarded, "claim": claim.to_json()}}, self._limits)
        update = partial(
            self._backend.update_session, self._ref, note=Note(BY, "still compacting: the claim is renewed")
        )
        change = ChangedMetadata(fields, merge=True, limits=self._limits)
        seen = Seen(STORED, revision)
        await self._commit(partial(update, metadata_text=change, expected=seen), self._note_row)
