"""The session of a conversation: what `agents.SQLiteSession` does, on a tree that forgets nothing."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from agents.memory import SessionSettings
from agents.memory.session import _CompactionSnapshot
from agents.memory.session_settings import coerce_session_settings, resolve_session_limit

import flue_py.sync
from flue_py.adapters.access import Access, Target, Work
from flue_py.adapters.openai_agents import branches, turns
from flue_py.adapters.openai_agents.below import Below
from flue_py.adapters.openai_agents.compacting import Compaction, append_compaction, planned, record_discarded
from flue_py.adapters.openai_agents.items import entries_of
from flue_py.adapters.openai_agents.sending import Sent, last_items
from flue_py.adapters.openai_agents.spending import Spending, counted, run_above
from flue_py.adapters.openai_agents.tail import ending, popped, replaced
from flue_py.compaction import SessionCompactionPlan, summarize
from flue_py.errors import InvalidArgument, LeafConflict, NotAStore, SessionNotFound, StoreClosed, SummaryFailed, shown
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.store.seam import committed_before

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Self, Unpack

    from agents import RunContextWrapper, TResponseInputItem, Usage
    from agents.memory import OpenAIResponsesCompactionArgs
    from agents.result import RunResultBase

    from flue_py.adapters.openai_agents.branches import Branch, SessionUsage, TurnUsage
    from flue_py.adapters.openai_agents.turns import ConversationTurn, TurnItem
    from flue_py.context.requests import ContextRequest
    from flue_py.context.settings import ContextSettings
    from flue_py.context.sources.protocol import SourceReader
    from flue_py.core.entries import NewEntry
    from flue_py.core.jsontext import JsonObject

_Told = TypeVar("_Told")

_NAMES = 10_000
"""How many names of tool calls are kept for their results."""


class Options(TypedDict, total=False):
    """What a `FlueSession` takes beside its id and its store."""

    session_settings: SessionSettings | dict[str, Any] | None
    model: str | None
    provider: str | None
    compaction: Compaction | None
    context: ContextSettings | Mapping[str, object] | None
    agent: str | None
    sources: Mapping[str, SourceReader] | None


class FlueSession:
    """A session of the SDK, for `Runner.run`, `run_streamed` and `run_sync`, from any event loop.

    ``session_id`` is the key of the session in the store, in the empty scope; it is made by the first write. What is
    read is the context: at the leaf, after a compaction its summary and what it kept, without what is excluded.
    """

    session_id: str
    """The id that the SDK knows it by."""
    session_settings: SessionSettings | None
    """The settings that count where a call gives none: the ``limit`` of `get_items`."""

    def __init__(
        self,
        session_id: str,
        db_path: Target = ":memory:",
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        model: str | None = None,
        provider: str | None = None,
        compaction: Compaction | None = None,
        context: ContextSettings | Mapping[str, object] | None = None,
        agent: str | None = None,
        sources: Mapping[str, SourceReader] | None = None,
    ) -> None:
        """Note which session is meant; the file is opened, or made, by the first call. O(1).

        ``db_path`` is the path of an SQLite file, ``":memory:"``, a URL as `flue_py.open` takes it, or an open store.
        ``model`` and ``provider`` name in the ledger who answered, which the SDK does not tell its sessions: without
        them calls have no price, and with ``context`` the reasoning of other models stays. ``compaction`` says who sums
        up what has become too long, and when. ``context`` are settings of what `get_items` leaves of the context for
        ``agent`` (`flue_py.context.ContextSettings`), and ``sources`` what a ``spec`` in them reads; what is stored
        stays whole. Raises `InvalidArgument`, and `TypeError` for unknown settings.
        """
        self.session_settings = (
            SessionSettings() if session_settings is None else coerce_session_settings(session_settings)
        )
        self.session_id = session_id
        self._below = Below(session_id)
        self._access = Access(db_path)
        self._model, self._provider, self._compaction = model, provider, compaction
        self._sent = None if context is None else Sent(context, agent, sources, model)
        self._last_request: ContextRequest | None = None
        self._spending = Spending()
        self._names: dict[str, str] = {}
        self._is_closed = False

    @classmethod
    def from_url(cls, session_id: str, url: str, **options: Unpack[Options]) -> Self:
        """Return the session in the store at a URL; ``options`` are those of the class. Raises as it does. O(1)."""
        return cls(session_id, url, **options)

    @classmethod
    def from_store(cls, session_id: str, store: Store | flue_py.sync.Store, **options: Unpack[Options]) -> Self:
        """Return the session in an open store, which stays open; ``options`` are those of the class. O(1).

        A store that `flue_py.open` has opened serves the event loop that it belongs to. Raises as the class does.
        """
        return cls(session_id, store, **options)

    async def get_items(
        self, limit: int | None = None, branch_id: str | None = None, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> list[TResponseInputItem]:
        """Return the items of the conversation, oldest first: all, or the last ``limit`` of them.

        Without ``limit``, that of ``session_settings`` counts. Below 0 it means all. ``branch_id`` names a branch other
        than the one in use. With ``context``, what the Responses API would refuse is repaired, as `last_request` says,
        and the last items begin with no half of an answer or a call, so that there may be fewer. Raises
        `InvalidArgument` (a ValueError) if there is none. O(items returned).
        """
        wanted = resolve_session_limit(limit, self.session_settings)
        if wanted is not None and not isinstance(wanted, int):
            raise InvalidArgument(f"limit: should be a number of items or None, not {shown(wanted)}")
        self._spending.begins(wrapper or run_above())
        wanted = None if wanted is None or wanted < 0 else wanted
        return await self._run(partial(self._read, wanted, branch_id))

    @property
    def last_request(self) -> ContextRequest | None:
        """What the last `get_items` was made of: report, repairs and what is broken all the same; None before one.

        It is None, too, without ``context``. A ``limit`` of `get_items` comes after it. O(1).
        """
        return self._last_request

    async def add_items(
        self, items: list[TResponseInputItem], *, wrapper: RunContextWrapper[Any] | None = None
    ) -> None:
        """Append items in one transaction, with what ``wrapper`` says was paid since the run wrote last.

        They come after whatever is stored. Raises `InvalidEntry` for what JSON cannot hold, with nothing written.
        O(items).
        """
        if self._is_closed:
            raise StoreClosed(f"{type(self).__name__} is closed; make another one")
        run = wrapper or run_above()
        usage = None if run is None else run.usage
        up_to = None if usage is None else counted(usage)
        calls = [] if usage is None else self._paid(self._spending.unbooked(usage))
        entries = entries_of(items, self._names, calls, self._model)
        if len(self._names) > _NAMES:
            self._names.clear()
        is_written = not entries
        try:
            if entries:
                await self._run(partial(self._append, entries))
                is_written = True
        except BaseException as error:
            # Who is cancelled while the commit is under way must not pay for it again.
            is_written = committed_before(error) is not None
            raise
        finally:
            if is_written and usage is not None and up_to is not None:
                self._spending.booked(usage, up_to)

    async def pop_item(self, *, wrapper: RunContextWrapper[Any] | None = None) -> TResponseInputItem | None:
        """Retract the last item, and return it; None if there is none. Undo brings it back. O(1)."""
        return await self._run(self._pop)

    async def clear_session(self, *, wrapper: RunContextWrapper[Any] | None = None) -> None:
        """Empty the session, with all of its branches, and use the main one. Nothing is deleted: undo brings it back.

        The leaf of each branch moves to before its first item, in one transaction. O(branches).
        """
        await self._run(lambda store: branches.cleared(store, self._below))

    async def run_compaction(
        self,
        args: OpenAIResponsesCompactionArgs | None = None,
        *,
        wrapper: RunContextWrapper[Any] | None = None,
        compaction: Compaction | None = None,
    ) -> None:
        """Append a compaction if one is due, or with ``force`` in ``args`` in any case; nothing is deleted.

        The SDK calls it after each turn of a run. ``compaction`` takes the place of the session's own; without either
        nothing is ever due, and ``force`` is refused. What the model reports is added to the usage of the run. A
        session that moved on while the summary was written is left as it is; what that cost is in the ledger. Raises
        `InvalidArgument`, `SummaryFailed`. O(context), and the calls of the model.
        """
        force = bool(args and args.get("force"))
        how = compaction or self._compaction
        if how is None:
            if force:
                raise InvalidArgument("compaction: nobody to write the summary; give compaction=Compaction(model=...)")
            return
        found = await self._run(partial(self._planned, how, force))
        if found is None:
            return
        session, leaf, plan = found
        try:
            summary = await summarize(plan.plan, how.completing(partial(self._add_to_run, wrapper)))
        except SummaryFailed as failed:
            answered = failed.answered
            await self._run(lambda _: record_discarded(session, answered))
            raise
        await self._run(lambda _: append_compaction(session, leaf, plan, summary))

    # -- the names of AdvancedSQLiteSession -----------------------------------------------------------------------

    async def create_branch_from_turn(self, turn_number: int, branch_name: str | None = None) -> str:
        """Begin a branch before a turn of the branch in use, counted from 1; use it, and return its name.

        A branch is a fork: it copies nothing. Raises `InvalidArgument` (a ValueError) for a turn that there is not, and
        for a name that is empty or was used before. O(turns).
        """
        return await self._run(lambda store: branches.branched(store, self._below, turn_number, branch_name))

    async def create_branch_from_content(self, search_term: str, branch_name: str | None = None) -> str:
        """Begin a branch before the first turn in which the user said ``search_term``; use it, and return its name.

        Raises `InvalidArgument` (a ValueError) if nobody said it, and as `create_branch_from_turn` does. O(path).
        """
        return await self._run(lambda store: branches.branched_at_content(store, self._below, search_term, branch_name))

    async def switch_to_branch(self, branch_id: str) -> None:
        """Use another branch, in this object. Raises `InvalidArgument` (a ValueError) if there is none. O(branches)."""
        await self._run(lambda store: self._below.switched(store, branch_id))

    async def delete_branch(self, branch_id: str, force: bool = False) -> None:
        """Delete a branch, with the items that no other branch has. This is the one call that deletes something.

        Its name stays taken, and what it cost stays in the ledger. Raises `InvalidArgument` (a ValueError) if there is
        no such branch, for the main one, and, without ``force``, for the one in use. O(items deleted).
        """
        await self._run(lambda store: branches.deleted(store, self._below, branch_id, force=force))

    async def list_branches(self) -> list[Branch]:
        """Return the branches in the order they were made; "main" is the first. O(their paths)."""
        return await self._run(lambda store: branches.listed(store, self._below))

    async def get_conversation_turns(self, branch_id: str | None = None) -> list[ConversationTurn]:
        """Return the turns of a branch, or of the one in use: what the user said in each, and when.

        Raises `InvalidArgument` (a ValueError) if there is no such branch. O(path).
        """
        return await self._of_branch(branch_id, turns.conversation_turns, [])

    async def find_turns_by_content(self, search_term: str, branch_id: str | None = None) -> list[ConversationTurn]:
        """Return the turns in which the user said ``search_term``; ASCII letters match in either case.

        ``content`` is all that was said, as text. Raises as `get_conversation_turns`. O(path).
        """
        return await self._of_branch(branch_id, lambda session: turns.turns_with(session, search_term), [])

    async def get_conversation_by_turns(self, branch_id: str | None = None) -> dict[int, list[TurnItem]]:
        """Return the types and tools of the items of a branch, by turn; what comes before the first is turn 0.

        Raises as `get_conversation_turns`. O(path).
        """
        return await self._of_branch(branch_id, turns.by_turns, {})

    async def get_tool_usage(self, branch_id: str | None = None) -> list[tuple[str, int, int]]:
        """Return how often each tool was called in each turn of a branch: its name, the calls, the turn.

        Raises as `get_conversation_turns`. O(path).
        """
        return await self._of_branch(branch_id, turns.tools_used, [])

    async def get_session_usage(self, branch_id: str | None = None) -> SessionUsage | None:
        """Return what all branches paid for, from the ledger, or what one did itself; None if that is nothing.

        Raises `InvalidArgument` (a ValueError) if there is no such branch. O(calls).
        """
        return await self._run(lambda store: branches.session_usage(store, self._below, branch_id))

    async def get_turn_usage(
        self, user_turn_number: int | None = None, branch_id: str | None = None
    ) -> list[TurnUsage] | TurnUsage:
        """Return what each turn of a branch paid for, or one turn, counted from 1; empty if that is nothing.

        The turns that a branch shares with the one that it was made from belong to that. Raises `InvalidArgument` (a
        ValueError) if there is no such branch. O(turns).
        """
        return await self._run(lambda store: branches.turn_usage(store, self._below, user_turn_number, branch_id))

    async def store_run_usage(self, result: RunResultBase) -> None:
        """Write into the ledger what a run paid for, as far as it is not there yet.

        What a run wrote to the session has brought its usage along. This is for the rest, such as the last call of a
        run that a guardrail stopped. O(calls).
        """
        await self.add_items([], wrapper=result.context_wrapper)

    def close(self) -> None:
        """Let go of the store, which is closed if nobody else uses it and it was not given open. Idempotent."""
        self._is_closed = True
        self._below.forget()
        self._access.close()

    # -- the session below ----------------------------------------------------------------------------------------

    async def _run(self, work: Work[_Told]) -> _Told:
        """Return what is done with the store. Who named a file of the SDK is told how its sessions come over."""
        try:
            return await self._access.run(work)
        except NotAStore as error:
            raise NotAStore(f"{error}. import_sqlite_sessions() brings sessions of the SDK's own file over") from error

    async def _read(self, wanted: int | None, branch: str | None, store: Store) -> list[TResponseInputItem]:
        session = await branches.chosen(store, self._below, branch)
        if session is None or wanted == 0:
            return []
        try:
            if self._sent is None:
                items = [item for _, of_entry in await ending(session, wanted) for item in of_entry]
                return items if wanted is None else items[-wanted:]
            self._last_request = await self._sent.request(session)
        except SessionNotFound:
            await self._below.lost(store)
            return await self._read(wanted, branch, store)
        return last_items(self._last_request.messages, wanted)

    async def _of_branch(
        self, branch: str | None, told: Callable[[Session], Awaitable[_Told]], nothing: _Told
    ) -> _Told:
        """Return what is told of a branch, or of the one in use; ``nothing`` if nothing was ever written to that."""

        async def work(store: Store) -> _Told:
            session = await branches.chosen(store, self._below, branch)
            try:
                return nothing if session is None else await told(session)
            except SessionNotFound:
                await self._below.lost(store)
                return await work(store)

        return await self._run(work)

    async def _append(self, entries: list[NewEntry], store: Store) -> None:
        session = await self._below.made(store)
        try:
            async with store.atomic() as batch:
                batch.append_entries(session, entries, on_conflict="rebase")
        except SessionNotFound:
            await self._below.lost(store)
            await self._append(entries, store)

    async def _pop(self, store: Store) -> TResponseInputItem | None:
        while (session := await self._below.found(store)) is not None:
            try:
                return await popped(store, session)
            except LeafConflict:
                continue
            except SessionNotFound:
                await self._below.lost(store)
        return None

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[TResponseInputItem], bool] | None = None
    ) -> _CompactionSnapshot | None:
        """Return the last items for a compaction by `OpenAIResponsesCompactionSession`, and what replaces some of them.

        What they are replaced by begins a branch, without what `EncryptedSession` says is expired; all of it stays.
        """
        return await self._run(partial(self._snapshot, limit, prune_prefix))

    async def _snapshot(
        self, limit: int, is_expired: Callable[[TResponseInputItem], bool] | None, store: Store
    ) -> _CompactionSnapshot | None:
        session = await self._below.found(store)
        if session is None:
            return None
        found = [item for _, of_entry in await ending(session, limit + 1) for item in of_entry]
        items, leaf = found[-limit:], session.leaf_id

        async def replace_suffix(start: int, output: list[TResponseInputItem]) -> bool:
            wanted = len(items) - start
            if wanted <= 0:
                return False
            try:
                await self._run(lambda store: replaced(store, session, wanted, leaf, output, is_expired))
            except LeafConflict:
                return False
            return True

        return _CompactionSnapshot(items, len(found) <= limit, replace_suffix)

    async def _planned(
        self, how: Compaction, force: bool, store: Store
    ) -> tuple[Session, str | None, SessionCompactionPlan] | None:
        session = await self._below.found(store)
        found = None if session is None else await planned(session, how, force=force)
        return None if session is None or found is None else (session, *found)

    def _add_to_run(self, wrapper: RunContextWrapper[Any] | None, usage: Usage) -> None:
        """Add to a run's usage what the compaction itself writes into the ledger."""
        if wrapper is not None:
            before = counted(wrapper.usage)
            wrapper.usage.add(usage)
            self._spending.passed_over(wrapper.usage, before)

    def _paid(self, calls: list[JsonObject]) -> list[JsonObject]:
        named = {"model": self._model, "provider": self._provider}
        return [{**call, **{name: text for name, text in named.items() if text is not None}} for call in calls]
