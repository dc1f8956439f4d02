"""The lease of a run on its session: a second run is told, and one whose process has ended is taken over.

It is a `Claim` in the metadata of the session. On the same machine it holds as long as its process; elsewhere it is
renewed while the run goes on. Whoever takes over moves the leaf, so that a run that only seemed to have ended commits
nothing more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

from flue_py.core.entries import NewEntry
from flue_py.errors import FlueError, RevisionConflict, SessionInUse
from flue_py.sessions.compact import ELSEWHERE_SECONDS, Claim
from flue_py.sessions.handle import stored_row
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

LEASE = "recordedRun"
"""The field of a session's metadata that has the lease."""

TAKEN_OVER = "agents.taken_over"
"""The kind of the entry behind the last one of a run that was taken over."""


def _now() -> int:
    return int(datetime.now(UTC).timestamp())


@asynccontextmanager
async def leased(store: Store, session: Session) -> AsyncIterator[None]:
    """Hold the lease of a session in the block. Raises `SessionInUse`. Two writes."""
    claim = await _take(store, session)
    renewing = asyncio.create_task(_renew(session, claim))
    try:
        yield
    finally:
        renewing.cancel()
        claim.drop()
        with suppress(FlueError):
            # One that is not given back holds no longer than this process.
            await store.backend.waiting.finish(_set(session, claim, None))


async def _take(store: Store, session: Session) -> Claim:
    while True:
        # Whoever had the lease before has moved the leaf: the run builds on the session as it is stored now.
        info = await session.refresh()
        before = Claim.from_json(info.metadata.get(LEASE))
        if before is not None and before.holds(session.id, _now()):
            raise SessionInUse(
                session.id,
                f"an agent runs in it, in process {before.pid} on {before.host}; run again when that has ended",
            )
        claim = Claim.make(session.id, "", _now())
        try:
            async with store.atomic() as batch:
                batch.set_metadata(session, {LEASE: claim.to_json()}, merge=True, expected_revision=info.revision)
                if before is not None and before.session_id == session.id:
                    batch.append_entries(session, [NewEntry.custom(TAKEN_OVER, before.to_json())])
        except RevisionConflict:
            claim.drop()
        except BaseException:
            claim.drop()
            raise
        else:
            return claim


async def _set(session: Session, claim: Claim, renewed: Claim | None) -> None:
    """Set the lease of a claim, or with None end it, unless somebody else has taken it."""
    info = await stored_row(session)
    stored = Claim.from_json(info.metadata.get(LEASE))
    if stored is not None and stored.token == claim.token:
        fields = None if renewed is None else renewed.to_json()
        await session.set_metadata({LEASE: fields}, merge=True)


async def _renew(session: Session, claim: Claim) -> None:
    while True:
        await asyncio.sleep(ELSEWHERE_SECONDS / 3)
        if (renewed := claim.renewed(_now(), ELSEWHERE_SECONDS / 2)) is not None:
            with suppress(FlueError):
                await _set(session, claim, renewed)
