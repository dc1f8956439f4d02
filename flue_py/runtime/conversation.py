"""A conversation with an agent: what a REPL does to its history.

A `Conversation` has one current session. Every change is stored at once, so nothing need be saved before it
switches to another. Going back, clearing and retrying move the leaf: nothing is deleted, and `undo` takes them
back. It calls no model; `take_turn` and `compact` are given one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from flue_py.core.entries import Entry
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.sessions import Moved
from flue_py.core.spoken import message_text
from flue_py.core.task_names import without_tasks
from flue_py.core.turns import Turn, begins_turn, kept_turns, numbered_turns
from flue_py.errors import AbortedToCompact, InvalidArgument, InvalidEntry, LeafConflict, shown
from flue_py.lazy import lazy_module
from flue_py.render.conversation import Listed, said_lines, saved_transcript
from flue_py.render.lines import counted, one_line, text_of
from flue_py.render.rows import entry_row, session_row, task_row
from flue_py.runtime import ending, sending
from flue_py.sessions.arguments import checked_flag, checked_patience, checked_text
from flue_py.sessions.asking import model_of
from flue_py.sessions.contexts import shown_context
from flue_py.sessions.handle import stored_row
from flue_py.sessions.hooking import checked_hook
from flue_py.sessions.offloading import checked_offload
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.sessions.telling import PATIENCE

if TYPE_CHECKING:
    from flue_py.compaction.hooks import BeforeCompaction
    from flue_py.compaction.modes import Mode
    from flue_py.compaction.policy import CompactionSettings
    from flue_py.compaction.result import CompactionResult
    from flue_py.context import offloading
    from flue_py.context.blocks import reading
    from flue_py.context.blocks.protocol import Block, BlockFailure
    from flue_py.context.offloading import OffloadSettings
    from flue_py.context.report import ContextReport
    from flue_py.context.settings import ContextSettings
    from flue_py.context.sources.protocol import SourceReader
    from flue_py.core.model_seam import Model as CompactionModel
else:
    offloading = lazy_module("flue_py.context.offloading")
    reading = lazy_module("flue_py.context.blocks.reading")

REPLAYED_TURNS = 3
"""How many turns are shown again when a conversation is resumed."""

BY = "conversation"

Model: TypeAlias = Callable[[list[JsonObject]], Awaitable[Sequence[Mapping[str, JsonValue]]]]
"""Takes the context, and returns the messages to append: answers and tool results, the last answer at the end."""


@frozen
class Rewound:
    """The result of a rewind: how many turns there were, how many are left, and the move (None: nothing to rewind)."""

    total: int
    kept: int
    moved: Moved | None


@frozen
class Retried:
    """The result of a retry: the whole user message to send again, and its words."""

    message: JsonObject
    text: str
    moved: Moved


class Conversation:
    """A store and the current session. ``replay`` is how many turns are shown on resuming; 0 shows none.

    ``before_compaction`` is asked before each compaction, and may cancel it or give its text
    (`flue_py.compaction.hooks`); ``summarizer`` is the model that is asked for one unless `compact` names another.
    ``context`` says what the model is sent of the context (`flue_py.context.ContextSettings`), ``agent`` for whom,
    ``sources`` what a ``spec`` in it reads. By default that is the newest turns that fit 80,000 tokens, of 4 characters
    each; None sends all. ``context_report`` has what was left out of the latest request, and warns from 60,000 on.
    Results of tools above 40,000 characters in what a model answers are stored as artifacts (`Session.append_message`);
    ``offload`` has other limits, and False stores all in the history.

    ``blocks`` are told before the words of the user where they have changed (`Session.append_blocks`), and those that
    save are given the messages of a turn after it. Each has ``patience`` seconds. ``block_failures`` are those of the
    latest turn, which they do not break.

    Other sessions are found in the scope of the current one.
    """

    def __init__(
        self,
        store: Store,
        session: Session,
        *,
        replay: int = REPLAYED_TURNS,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        before_compaction: BeforeCompaction | None = None,
        summarizer: CompactionModel | None = None,
        context: ContextSettings | Mapping[str, object] | bool | None = True,
        sources: Mapping[str, SourceReader] | None = None,
        agent: str | None = None,
        offload: OffloadSettings | bool | None = True,
        blocks: Iterable[Block] = (),
        patience: float = PATIENCE,
    ) -> None:
        self.store = store
        self.session = session
        self.replay = _checked_replay(replay)
        self.clock = clock
        self.before_compaction = checked_hook(before_compaction)
        self.summarizer = None if summarizer is None else model_of(summarizer)
        self._sending = sending.Sending(context, sources)
        self.agent = checked_text(agent, "agent")
        offload = offloading.OffloadSettings() if offload is True else offload or None
        self.offload = None if offload is None else checked_offload(offload)
        self.blocks = tuple(reading.checked_blocks(blocks)) if blocks != () else ()
        self.patience = checked_patience(patience)
        self.block_failures: tuple[BlockFailure, ...] = ()
        self._running = ending.RunningCalls(store.backend.waiting, store.backend.new_entry_id)

    @property
    def context_report(self) -> ContextReport | None:
        """What was left out of the latest request, and what a program may want to tell of it; None without settings."""
        return self._sending.report

    # -- reading ----------------------------------------------------------------------------------------------

    async def turns(self) -> list[Turn]:
        """Return the turns of the active path, numbered from 1 as `rewind` counts them. O(path).

        ``is_compacted`` marks those of which the model sees only a summary.
        """
        messages = await self.session.turns()
        seen = {item.entry.id for item in (await shown_context(self.session)).items}
        return numbered_turns(messages, seen)

    async def history(self, *, turns: int | None = None) -> list[Entry]:
        """Return the messages, compactions and summaries of the active path; with ``turns``, of the last n turns."""
        path = await self.session.get_active_path()
        if turns is not None:
            started = [place for place, entry in enumerate(path) if begins_turn(entry)]
            keep = _checked_replay(turns)
            path = path[started[-keep] :] if 0 < keep <= len(started) else path if keep else []
        return path

    async def last(self) -> str | None:
        """Return the words of the last answer on the active path; None before the first."""
        answer = await self.session.latest_assistant()
        return None if answer is None else message_text(answer.fields)

    async def model(self) -> str:
        """Return the model that answered last; "" before the first answer."""
        return await _model_of(self.session)

    async def resume_text(self, turns: int | None = None) -> str:
        """Return what to show when the conversation is resumed: its name, and its last turns.

        ``turns`` is how many, by default ``replay``; 0 gives "". Whatever a terminal would act on is replaced.
        """
        wanted = self.replay if turns is None else _checked_replay(turns)
        if not wanted:
            return ""
        total = len(await self.session.turns())
        name = one_line(self.session.title or self.session.key or self.session.id)
        said = said_lines(await self.history(turns=wanted)) if total else []
        return "\n".join([f"{name}: {counted(total, 'turn')}", *map(text_of, said)])

    async def sessions(self, *, limit: int = 20) -> list[Listed]:
        """Return the conversations of the scope, without task sessions, most recently active first.

        O(limit x their paths).
        """
        found: list[Listed] = []
        cursor = None
        while len(found) < limit:
            page = await self.store.list_sessions(scope=self.session.scope, limit=min(limit * 2, 200), cursor=cursor)
            for info in page.sessions:
                if info.kind != "task" and len(found) < limit:
                    session = await self.store.get_session(info.id)
                    if session is not None:
                        turns = len(await session.turns())
                        found.append(Listed(info, await _model_of(session), turns, info.id == self.session.id))
            cursor = page.next_cursor
            if cursor is None:
                break
        return found

    async def save(self) -> str:
        """Return the active path as Markdown: what was said, without tool calls and results."""
        return saved_transcript(
            await self.session.get_active_path(), model=await self.model(), saved=self.clock().astimezone(UTC)
        )

    async def snapshot(self) -> JsonObject:
        """Return the full state as JSON: the session's row, every entry of its tree, labels, task links."""
        info = await stored_row(self.session)
        return {
            "session": session_row(info, await self.session.name()),
            "entries": [entry_row(entry) for entry in await self.session.get_tree()],
            "labels": {**await self.session.labels()},
            "tasks": [task_row(link) for link in await self.session.task_links()],
        }

    # -- going back -------------------------------------------------------------------------------------------

    async def rewind(self, turns: str | int) -> Rewound:
        """Keep turns 1 to n; -n drops the last n, 0 drops all, "-0" none. Numbers out of range are clamped.

        The leaf moves to the end of turn n, and `Session.undo` takes it back. What comes before the first turn, such
        as a system message, stays. Raises `InvalidArgument` if it is not a number, and nothing changes.
        """
        await self.session.refresh()
        total = len(await self.session.turns())
        kept = kept_turns(turns, total)
        moved = await self.session.rewind(turns=kept, by=BY) if kept < total else None
        return Rewound(total, kept, moved)

    async def clear(self) -> Rewound:
        """Drop all turns; what comes before the first, such as a system message, stays."""
        return await self.rewind(0)

    async def retry(self) -> Retried | None:
        """Take back the last user message and all that follows, and return it; None if there is none."""
        await self.session.refresh()
        turns = await self.session.turns()
        if not turns:
            return None
        moved = await self.session.rewind(turns=-1, by=BY)
        if moved is None:
            return None
        message = turns[-1].fields
        return Retried(message, message_text(message), moved)

    async def take_turn(
        self, message: str | Mapping[str, JsonValue], model: Model, *, source: str = "prompt"
    ) -> list[JsonObject]:
        """Append a user message, call ``model`` with the context, append its answers, and return them.

        ``blocks`` that have changed are appended first, and stay whatever comes of the turn. A `ContextOverflow` of the
        model is met by calling it again with less of what tools gave back (`Session.attempts`), as far as there is
        less; the session keeps all of it.
        The user message is stored before the model is called. If the call fails or is cancelled, the message is
        retracted, and the error raised; if `compact` ends it, the message stays, unanswered, and `AbortedToCompact` is
        raised: `retry` takes it back. Raises `LeafConflict` if another writer has changed the session: nothing
        is appended, and the next turn builds on what is there now. If that happens while the model answers, the
        answers become a branch, so that what was paid for is kept. Raises `InvalidArgument`, with nothing stored, for
        a model that cannot be called, and for one that answers with anything but a list of messages; `InvalidEntry`,
        with nothing stored, for a message in it that is none.

        An answer with signed reasoning is stored with what it was produced under, and a later turn whose context begins
        otherwise is without that reasoning.
        """
        if not callable(model):
            raise InvalidArgument(f"model: {shown(model)} is not a function")
        asking = {"role": "user", "content": message} if isinstance(message, str) else message
        session = self.session
        self.block_failures = ()
        try:
            if self.blocks:
                self.block_failures = (await session.append_blocks(self.blocks, patience=self.patience)).failures
            asked = await session.append_message(asking, source=source)
        except LeafConflict:
            await session.refresh()
            raise
        try:
            context, answered = await self._sending.ask(
                session,
                self.agent,
                lambda messages: self._running.run(session, lambda: sending.asked_of(model, "model", messages)),
                leaf=asked.entry_id,
            )
            answers = _messages_of(answered)
        except AbortedToCompact:
            raise
        except BaseException:
            # Whoever cancels the task would cancel this as well.
            await self.store.backend.waiting.finish(_take_back(session, asked.entry_ids))
            raise
        bound = sending.answers_to(context, answers)
        try:
            await session.append_messages(bound, source=source, offload=self.offload, on_conflict="branch")
        except InvalidEntry:
            await self.store.backend.waiting.finish(_take_back(session, asked.entry_ids))
            raise
        if self.blocks:
            turn = [dict(asking), *answers]
            failures = await self.store.backend.waiting.ask(
                lambda: reading.save_turn(self.blocks, turn, self.patience), None
            )
            self.block_failures += tuple(failures)
        return answers

    # -- making room ------------------------------------------------------------------------------------------

    async def compact(
        self,
        model: CompactionModel | None = None,
        *,
        mode: str | Mode | None = None,
        settings: CompactionSettings | None = None,
        instructions: str | None = None,
        window: int | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, JsonValue]] | None = None,
        abort: bool = True,
        dry_run: bool = False,
    ) -> CompactionResult:
        """Replace the beginning of the context by a text that stands for it, as `Session.compact` does.

        Of the session as it is stored now. A turn that `take_turn` waits for is ended first, but with ``abort=False``;
        a model that is a plain function cannot be ended, and is waited for. `Session.undo` takes it back. With
        ``dry_run`` nothing is ended, asked or changed: the result says what would be done. Raises what that raises.
        """
        checked_flag(dry_run, "dry_run")
        if checked_flag(abort, "abort") and not dry_run:
            await self._running.end()
        if not dry_run:
            await self.session.refresh()
        return await self.session.compact(
            model or self.summarizer,
            mode=mode,
            settings=settings,
            instructions=instructions,
            window=window,
            system=system,
            tools=tools,
            dry_run=dry_run,
            aligned=await self._sending.is_whole(self.session, self.agent, system=system, tools=tools),
            before_compaction=self.before_compaction,
        )

    # -- other sessions ---------------------------------------------------------------------------------------

    async def fork(self, *, switch: bool = False, title: str | None = None) -> Session:
        """Return a new session that begins at the leaf, with the title and metadata of this one.

        It is stored at once. The conversation goes on where it is, or with ``switch`` in the fork.
        """
        info = await stored_row(self.session)
        fork = await self.session.fork(title=title or info.title, metadata=without_tasks(info.metadata))
        if switch:
            self.session = fork
        return fork

    async def find(self, name: str) -> Session:
        """Return the session of the scope that ``name`` names, as `Store.find_session` finds it.

        Raises `SessionNotFound`, `AmbiguousId`.
        """
        if name.lower() == self.session.id.lower():
            return self.session
        return await self.store.find_session(name, scope=self.session.scope)

    async def switch(self, name: str) -> bool:
        """Go on in another session; False if it is the current one already.

        Raises `SessionNotFound` and `AmbiguousId`, and then nothing changes.
        """
        found = await self.find(name)
        if found.id == self.session.id:
            return False
        self.session = found
        return True


def _checked_replay(turns: int) -> int:
    if isinstance(turns, bool) or not isinstance(turns, int) or turns < 0:
        raise InvalidArgument(f"turns: {turns!r} is not a number of turns to show; 0 shows none")
    return turns


async def _model_of(session: Session) -> str:
    answer = await session.latest_assistant()
    name = None if answer is None else answer.fields.get("model")
    return name if isinstance(name, str) else ""


async def _take_back(session: Session, entry_ids: Sequence[str]) -> None:
    for entry_id in reversed(entry_ids):
        await session.remove_leaf_message(entry_id)


def _messages_of(answered: Iterable[Mapping[str, JsonValue]]) -> list[JsonObject]:
    """Return what a model answered. Raises `InvalidArgument` for anything but a list of messages."""
    is_list = isinstance(answered, Iterable) and not isinstance(answered, (str, bytes))
    messages = list(answered) if is_list else []
    if not is_list or not all(isinstance(each, Mapping) for each in messages):
        raise InvalidArgument(f"model: answered {shown(answered)}; return a list of messages, the answer last")
    return [dict(each) for each in messages]
