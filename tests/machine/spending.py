"""The ledger against a tally: whatever happens to a history, its sums are what was reported, once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from flue_py.core.entries import NewEntry
from flue_py.core.json import JsonObject, JsonValue
from flue_py.core.ledger import DIMENSIONS, LedgerQuery
from flue_py.core.sessions import STORED, NewSession
from flue_py.core.usage import PaidCall, read_call
from flue_py.db.backend import Backend
from flue_py.errors import CallConflict
from tests.checks import check_window, raises
from tests.samples import ids_of, path_ids, placed, session_info, user
from tests.sources import OpenBackend, counted_sources

Step: TypeAlias = Literal[
    "answer", "answer again", "branch", "compact", "summarize", "record", "record again", "conflict", "import",
    "import again", "fork", "move", "retract", "undo", "delete",
]  # fmt: skip
_STEPS: tuple[Step, ...] = (
    "answer", "answer", "answer", "answer again", "branch", "compact", "summarize", "record", "record again",
    "conflict", "import", "import again", "fork", "fork", "move", "move", "retract", "undo", "delete",
)  # fmt: skip
_picks = st.integers(0, 119)
histories: st.SearchStrategy[list[tuple[Step, int, int]]] = st.lists(
    st.tuples(st.sampled_from(_STEPS), _picks, _picks), min_size=5, max_size=30
)


def check_spending(open_backend: OpenBackend, share: float = 1.0) -> None:
    """Run random histories, and after each step compare what the ledger answers with what was reported."""

    @settings(max_examples=max(5, round(settings().max_examples * share)))
    @given(histories)
    def run(history: list[tuple[Step, int, int]]) -> None:
        asyncio.run(_spend(open_backend, history))

    run()


async def _spend(open_backend: OpenBackend, history: Sequence[tuple[Step, int, int]]) -> None:
    backend = await open_backend(counted_sources())
    try:
        spending = _Spending(backend)
        spending.sessions.append((await backend.create_session(NewSession())).id)
        for step, session, other in history:
            await spending.do(step, session, other)
            await spending.compare()
        assert (await backend.verify()).problems == []
    finally:
        await backend.close()


@dataclass(slots=True)
class _Spending:
    """A store, and what was reported to it: tokens by kind and cost, by call."""

    backend: Backend
    sessions: list[str] = field(default_factory=list)
    files: list[list[NewEntry]] = field(default_factory=list)
    tally: dict[str, tuple[int, ...]] = field(default_factory=dict)
    calls: int = 0

    def _call(self, other: int) -> PaidCall:
        """Return a call that nobody has reported, and note it."""
        self.calls += 1
        call_id = f"c{self.calls}"
        reported: JsonObject = {"input": other, "output": 9, "cacheWrite": 5, "cacheWrite1h": other % 5, "reasoning": 3}
        cost: JsonValue = {"total": other / 1000} if other % 3 else None
        call = read_call({**reported, "callId": call_id, "cost": cost}, "usage")
        hour, cost_known = other % 5, other % 3 != 0
        picodollars = other * 10**9 if cost_known else 0
        self.tally[call_id] = (int(not cost_known), other, 9, 5 - hour, hour, 3, picodollars)
        return call

    def _answer(self, other: int) -> NewEntry:
        return replace(self._answer_of(other), calls=(self._call(other),))

    def _answer_of(self, other: int) -> NewEntry:
        return NewEntry.message({"role": "assistant", "content": [], "usage": {"input": other}})

    async def do(self, step: Step, session: int, other: int) -> None:
        """Take one step with a session that is there."""
        backend, session_id = self.backend, self.sessions[session % len(self.sessions)]
        seen = ids_of(await backend.read_tree(session_id))
        entry_id = seen[other % len(seen)] if seen else None
        match step:
            case "answer":
                await backend.append(session_id, [user(), self._answer(other)])
            case "answer again" if self.calls:
                entries = [self._answer_again(other), self._answer(other), self._answer_again(session)]
                await backend.append(session_id, [*entries, entries[1]])
            case "branch":
                await backend.append(session_id, [self._answer(other)], expected=entry_id, on_conflict="branch")
            case "compact" if entry_id is not None:
                new = NewEntry.compaction("so far", first_kept_entry_id=entry_id, tokens_before=9)
                await backend.append(session_id, [replace(new, calls=(self._call(other), self._call(session)))])
            case "summarize":
                new = NewEntry.branch_summary("left", from_id=entry_id)
                await backend.append(session_id, [replace(new, calls=(self._call(other),))])
            case "record":
                call = self._call(other)
                assert (await backend.record_call(session_id, call)).is_new
                assert not (await backend.record_call(session_id, call)).is_new
            case "record again" if self.calls:
                await self._report_again(session_id, other)
            case "conflict" if self.calls:
                call = read_call({"input": 10**6, "callId": f"c{other % self.calls + 1}"}, "usage")
                await raises(CallConflict, backend.record_call(session_id, call))
            case "import":
                first = f"f{len(self.files)}"
                self.files.append([placed(self._answer(other), first), placed(user(), f"{first}-2", first)])
                await self._import(self.files[-1])
            case "import again" if self.files:
                await self._import(self.files[other % len(self.files)])
            case _:
                await self._go_on(step, session_id, entry_id, other)

    async def _go_on(self, step: Step, session_id: str, entry_id: str | None, other: int) -> None:
        """Take a step that pays for nothing."""
        backend = self.backend
        match step:
            case "fork":
                at = STORED if other % 3 == 0 else entry_id
                self.sessions.append((await backend.fork(session_id, at, NewSession())).id)
            case "move":
                await backend.move(session_id, None if other % 7 == 0 else entry_id)
            case "retract":
                leaf = (await session_info(backend, session_id)).leaf_id
                await backend.retract(session_id, leaf or "none")
            case "undo":
                await backend.undo(session_id)
            case "delete" if len(self.sessions) > 1:
                await backend.delete_tree(session_id)
                self.sessions.remove(session_id)
            case _:
                pass

    async def _report_again(self, session_id: str, other: int) -> None:
        """Report a call a second time, with the same numbers, from whichever session."""
        assert not (await self.backend.record_call(session_id, self._call_again(other))).is_new

    def _call_again(self, other: int) -> PaidCall:
        """Return one of the calls that were reported, with the same numbers."""
        calls, tally = self.calls, dict(self.tally)
        self.calls = other % calls
        noted = self.tally[f"c{self.calls + 1}"]
        again = self._call(noted[1])
        self.calls, self.tally = calls, tally
        return again

    def _answer_again(self, other: int) -> NewEntry:
        return replace(self._answer_of(other), calls=(self._call_again(other),))

    async def _import(self, entries: list[NewEntry]) -> None:
        info = await self.backend.import_session(NewSession(), entries, leaf=entries[-1].id)
        self.sessions.append(info.id)

    async def compare(self) -> None:
        """Compare the sums of the ledger, whole and by every group, with the tally."""
        expected = tuple(map(sum, zip(*self.tally.values(), strict=True))) or (0,) * 7
        for group_by in ((), DIMENSIONS):
            total = (await self.backend.read_ledger(LedgerQuery(group_by=group_by))).total
            sums = (
                total.unpriced_calls, total.input, total.output, total.cache_write_5m, total.cache_write_1h,
                total.reasoning, total.picodollars,
            )  # fmt: skip
            assert (total.calls, sums) == (len(self.tally), expected)
        for session_id in self.sessions:
            path = await path_ids(self.backend, session_id)
            for since in (None, *path[len(path) // 2 :][:1]):
                await check_window(self.backend, session_id, since)
