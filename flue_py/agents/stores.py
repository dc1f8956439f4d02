"""The stores of pydantic-ai's harness over sessions: what its capabilities write about a run belongs to a session.

    kept = HarnessStore(store)
    capabilities = [Recorded(store), StepPersistence(store=kept), ToolOutputLimits(store=kept)]

A run of the harness is a session beside that of its conversation, and is deleted with it.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal, localcontext
from functools import cache, partial
from itertools import takewhile
from operator import attrgetter
from typing import Any, TypeVar, cast

# The first import names the extra if the framework is missing.
from flue_py.agents import journal, recorded

# isort: split
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json, to_jsonable_python

from flue_py import errors
from flue_py.adapters import pydantic_ai_messages as adapter
from flue_py.adapters.common import key_of, restored_object, storable
from flue_py.agents.guard import check_parts
from flue_py.core.entries import Entry, NewEntry, artifact_ids, new_artifact
from flue_py.core.erasure import REDACTED
from flue_py.core.json import JsonObject, replace_lone_surrogates
from flue_py.core.kinds import COMPACTION
from flue_py.core.sessions import HARNESS, Scalar, SessionInfo
from flue_py.sessions.handle import listed_sessions, whole_list
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

try:
    from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
    from pydantic_ai_harness.media import MediaContext, media_uri_for, parse_media_uri
    from pydantic_ai_harness.spend import SpendEntry, Spent
    from pydantic_ai_harness.step_persistence import ContinuableSnapshot, RunRecord, StepEvent, ToolEffectRecord
except ImportError as error:
    needs = "flue_py.agents.stores needs pydantic-ai-harness: pip install 'flue-py[agents]' pydantic-ai-harness"
    raise errors.MissingExtra("agents", "flue_py.agents.stores", detail=needs) from error

EVENT, EFFECT, SNAPSHOT = "pydantic_ai.step_event", "pydantic_ai.tool_effect", "pydantic_ai.snapshot"
SPENT, MEDIA = "pydantic_ai.spent", "pydantic_ai.media"

_PAGE, _NEAR = 500, 20
_RUNS = 16
_BASE64 = "base64"
_MEDIA_KEY = "pydantic-ai-media"
_STAMPS = ("timestamp", "run_id", "conversation_id", "instructions")
"""The fields of a message that the framework sets when it is sent, after a snapshot may have it."""

Value = TypeVar("Value")


@dataclass(frozen=True)
class Snapshot:
    """A snapshot as it is stored: the messages that it does not share with an earlier history.

    It shares the first ``shared`` messages of the snapshot ``after``, or of a recorded ``session`` at a ``leaf``.
    ``stamps`` are what was set meanwhile in some of those, by their places.
    """

    record: dict[str, Any]
    messages: list[Any]
    shared: int = 0
    after: str | None = None
    session: str | None = None
    leaf: str | None = None
    stamps: Mapping[str, Any] = field(default_factory=dict)


class HarnessStore:
    """Is the `StepStore`, `BatchSpendStore`, `OverflowStore` and `MediaStore` of capabilities of pydantic-ai-harness.

    A run is linked to the session of its conversation as a task: it is deleted with that, and says how it ended. A
    snapshot of a recorded run refers to the messages of its session. What the harness counts in a window is not the
    bill, which is the ledger's: a window has a name of its own, other prices, and corrections without a call.

    After 200 steps it has 0.04 times the size of a `SqliteStepStore` of harness 0.36, and 0.13 times that of 0.62.
    """

    def __init__(self, store: Store, session: Session | None = None) -> None:
        """Use an open store, with the session of all runs if `Recorded` has one. Raises `InvalidArgument`."""
        check_parts(store, session, is_optional=True)
        self._store = store
        self._session = session
        self._last: dict[str, tuple[str, list[JsonObject]]] = {}
        """The id and the messages of the snapshot that was saved last beside no recorded session, by run session."""

    # -- runs -------------------------------------------------------------------------------------------------------

    async def register_run(self, record: RunRecord) -> None:
        """Store the record of a run, in place of an earlier one. O(1)."""
        run = await self._run(record.run_id, record.conversation_id)
        fields = _fields(record)
        names = {name: fields.get(name) for name in ("conversation_id", "parent_run_id")}
        await run.set_metadata({**names, "record": storable(fields)}, merge=True)

    async def get_run(self, *, run_id: str) -> RunRecord | None:
        """Return the record of a run; None if it has none. O(1)."""
        run = await self._opened(_run_key(run_id))
        return None if run is None else _record_of(run.info)

    async def list_runs(
        self, *, parent_run_id: str | None = None, conversation_id: str | None = None
    ) -> list[RunRecord]:
        """Return the runs of a parent and a conversation, or all, by the time they started. O(sessions).

        Those of the store's scope alone, or in none. Raises `CorruptStore`.
        """
        names = {"parent_run_id": parent_run_id, "conversation_id": conversation_id}
        wanted = {HARNESS: "run", **{name: value for name, value in names.items() if value is not None}}
        records = [_record_of(info) for info in await _listed(self._store, wanted)]
        return sorted((record for record in records if record is not None), key=attrgetter("started_at"))

    async def _run(self, run_id: str, conversation_id: str | None = None) -> Session:
        """Return the session of a run, made if it is missing: a task of its conversation, or of the call it is in."""
        key = _run_key(run_id)
        if (run := await self._opened(key)) is not None:
            return run
        call = recorded.open_call(self._store)
        parent = await self._recorded(conversation_id) or (None if call is None else call.session)
        with suppress(errors.SessionExists):
            async with self._store.atomic() as batch:
                run = batch.create_session(key=key, metadata={HARNESS: "run"})
                if parent is not None:
                    batch.link_task(parent.id, run, task_id=key)
        return _checked(await self._store.open_session(key), "run")

    async def _kept(self, key: str, what: str) -> Session:
        """Return the session of media or of a window, made if it is missing: completed, so that few lists show it."""
        session = _checked(await self._store.open_session(key, mode="get_or_create", metadata={HARNESS: what}), what)
        if session.info.completed_us is None:
            await session.set_completed(datetime.now(UTC))
        return session

    async def _opened(self, key: str, what: str = "run") -> Session | None:
        with suppress(errors.SessionNotFound):
            return _checked(await self._store.open_session(key), what)
        return None

    async def _recorded(self, conversation_id: str | None) -> Session | None:
        """Return the session in which the runs of a conversation are recorded, as it is now; None if there is none."""
        if self._session is not None:
            return await self._store.get_session(self._session.id)
        return None if conversation_id is None else await adapter.session_of(self._store, conversation_id)

    async def _add(self, run: Session, kind: str, fields: JsonObject, key: str | None = None) -> str | None:
        """Append an entry to a run and return its id; None if there is one of this key."""
        with suppress(errors.IdempotencyConflict):
            named = None if key is None else key_of(f"{kind}:{key}")
            appended = await run.append_custom(kind, storable(fields), idempotency_key=named, on_conflict="rebase")
            return appended.entry_id
        return None

    async def _stored(self, run_id: str, kind: str) -> dict[str, JsonObject]:
        """Return the entries of a kind of a run by id, in order, but for those that were redacted. O(entries)."""
        run = await self._opened(_run_key(run_id))
        entries = [] if run is None else await whole_list(partial(run.entries, kind=kind), _PAGE, attrgetter("id"))
        fields = {entry.id: restored_object(entry.data) for entry in entries}
        return {entry_id: each for entry_id, each in fields.items() if REDACTED not in each}

    # -- events and effects -----------------------------------------------------------------------------------------

    async def append_event(self, event: StepEvent) -> None:
        """Store an event, once for each idempotency key. The last event of a run completes its session."""
        run = await self._run(event.run_id, event.conversation_id)
        await self._add(run, EVENT, _fields(event), event.idempotency_key)
        if event.kind in ("run_completed", "run_failed"):
            self._last.pop(run.id, None)
            summary = (
                replace_lone_surrogates((event.error or "")[: journal.MOST_CHARACTERS].replace("\0", ""))[0] or None
            )
            if await run.tasks.parents():
                await run.tasks.end("done" if event.kind == "run_completed" else "failed", summary=summary)
            elif run.info.completed_us is None:
                await run.set_completed(datetime.now(UTC))

    async def list_events(self, *, run_id: str) -> list[StepEvent]:
        """Return the events of a run, in order."""
        return [_read(StepEvent, fields) for fields in (await self._stored(run_id, EVENT)).values()]

    async def record_tool_effect(self, record: ToolEffectRecord) -> None:
        """Store the state of a tool's call, which counts from now on."""
        await self._add(await self._run(record.run_id), EFFECT, _fields(record))

    async def get_tool_effect(self, *, run_id: str, tool_call_id: str) -> ToolEffectRecord | None:
        """Return the latest state of a tool's call; None if there is none. O(effects behind it)."""
        run, after = await self._opened(_run_key(run_id)), None
        while run is not None:
            page = await run.entries(kind=EFFECT, newest_first=True, after=after, limit=_NEAR)
            for fields in (restored_object(entry.data) for entry in page):
                if fields.get("tool_call_id") == tool_call_id:
                    return _read(ToolEffectRecord, fields)
            run, after = (run, page[-1].id) if len(page) == _NEAR else (None, None)
        return None

    async def list_unresolved_tool_effects(self, *, run_id: str) -> list[ToolEffectRecord]:
        """Return the calls of a run that began and have no end. O(effects)."""
        effects = (_read(ToolEffectRecord, fields) for fields in (await self._stored(run_id, EFFECT)).values())
        latest = {effect.tool_call_id: effect for effect in effects}
        return [effect for effect in latest.values() if effect.status == "started"]

    # -- snapshots --------------------------------------------------------------------------------------------------

    async def save_snapshot(self, snapshot: ContinuableSnapshot) -> None:
        """Store a snapshot, once for each idempotency key: the messages that are not stored already.

        O(messages), without writing those of a recorded session or of the snapshot before.
        """
        run = await self._run(snapshot.run_id, snapshot.conversation_id)
        messages = _dumped(snapshot.messages)
        stored = await self._difference(run, snapshot, messages)
        entry_id = await self._add(run, SNAPSHOT, _fields(stored), snapshot.idempotency_key)
        self._last.pop(run.id, None)
        if entry_id is not None and stored.session is None:
            self._last[run.id] = entry_id, messages
            if len(self._last) > _RUNS:
                del self._last[next(iter(self._last))]

    async def _difference(self, run: Session, snapshot: ContinuableSnapshot, messages: list[JsonObject]) -> Snapshot:
        """Return a snapshot as it is stored: beside its recorded session, or else behind the one before."""
        record = _fields(replace(snapshot, messages=[]))
        session = await self._recorded(snapshot.conversation_id)
        read = [] if session is None else _messages_in(await session.get_active_path(leaf=session.leaf_id))
        shared = _shared(_dumped(read), messages, with_times=False)
        before_id, before = (None, []) if shared == len(messages) else await self._before(run, snapshot.run_id)
        shared_before = _shared(before, messages)
        if session is not None and shared > shared_before:
            return Snapshot(record, messages[shared:], shared, session=session.id, leaf=session.leaf_id)
        stamps = {
            str(place): {name: messages[place].get(name) for name in _STAMPS}
            for place in range(shared_before)
            if before[place] != messages[place]
        }
        after = before_id if shared_before else None
        return Snapshot(record, messages[shared_before:], shared_before, after, stamps=stamps)

    async def _before(self, run: Session, run_id: str) -> tuple[str | None, list[JsonObject]]:
        """Return the id and the messages of the last snapshot of a run. O(snapshots), O(1) for one that was kept."""
        if (kept := self._last.get(run.id)) is not None:
            return kept
        stored = await self._snapshots(run_id)
        for last in reversed(stored):
            # Of one that lost what it builds on, nothing can be shared.
            with suppress(errors.CorruptStore, errors.SessionNotFound):
                return last, await self._messages(stored, last)
        return None, []

    async def _snapshots(self, run_id: str) -> dict[str, Snapshot]:
        stored = await self._stored(run_id, SNAPSHOT)
        return {entry_id: _read(Snapshot, fields) for entry_id, fields in stored.items()}

    async def _messages(self, stored: Mapping[str, Snapshot], entry_id: str) -> list[JsonObject]:
        """Return the messages of a snapshot. O(snapshots + messages). Raises `CorruptStore` if some are not there."""
        chain = [stored[entry_id]]
        while (before := chain[-1].after) is not None:
            if before not in stored:
                raise errors.CorruptStore(f"entry {before!r}: a snapshot builds on it, and it was redacted or is gone")
            chain.append(stored[before])
        messages: list[JsonObject] = []
        if chain[-1].session is not None:
            session = await self._store.get_session(chain[-1].session)
            if session is None:
                raise errors.SessionNotFound(chain[-1].session)
            messages = _dumped(_messages_in(await session.get_active_path(leaf=chain[-1].leaf)))
        for snapshot in reversed(chain):
            if len(messages) < snapshot.shared:
                raise errors.CorruptStore(f"{chain[-1].session or entry_id!r}: messages of a snapshot are missing")
            del messages[snapshot.shared :]
            for place, stamps in snapshot.stamps.items():
                messages[int(place)] = {**messages[int(place)], **stamps}
            messages += snapshot.messages
        return messages

    async def latest_snapshot(self, *, run_id: str, include_interrupted: bool = False) -> ContinuableSnapshot | None:
        """Return the last snapshot of a run whose calls have results, or any; None if there is none.

        What was redacted in a recorded session is text that says so. O(snapshots + messages). Raises `CorruptStore`.
        """
        stored = await self._snapshots(run_id)
        for entry_id, snapshot in reversed(stored.items()):
            if include_interrupted or snapshot.record["state"] == "complete":
                messages = to_json(await self._messages(stored, entry_id))
                record = _read(ContinuableSnapshot, {**snapshot.record, "messages": []})
                return replace(record, messages=ModelMessagesTypeAdapter.validate_json(messages))
        return None

    # -- results of tools that are put aside ------------------------------------------------------------------------

    async def write(self, key: str, data: bytes) -> str:
        """Store the result of a tool as an artifact of its run, which the key begins with; return the key. O(size).

        An artifact is one entry in base64, which is 64 MiB at most.
        """
        run_id, _, call_id = key.partition("/")
        try:
            text, form = data.decode(), ""
        except UnicodeDecodeError:
            text, form = b64encode(data).decode(), _BASE64
        drawn_id = self._store.backend.new_entry_id()
        # Only the longest id is of one text for certain.
        artifact_id = artifact_ids(text)[-1]
        artifact = new_artifact(artifact_id, text, tool=None, hint=form, call_id=call_id, parts=None, drawn_id=drawn_id)
        run = await self._run(run_id)
        async with self._store.atomic() as batch:
            batch.append_entries(run, [artifact], on_conflict="rebase")
        return key

    async def read(self, handle: str) -> bytes:
        """Return a result that `write` has stored. Raises `FileNotFoundError`. O(results of the run)."""
        run_id, _, call_id = handle.partition("/")
        run = await self._opened(_run_key(run_id))
        for artifact in () if run is None else reversed(await run.artifacts.all()):
            if run is not None and artifact.call_id == call_id:
                text = (await run.artifacts.read(artifact.id, length=None)).text
                return b64decode(text) if artifact.hint == _BASE64 else text.encode()
        raise FileNotFoundError(f"no result is stored as {errors.shown(handle)}: use the handle that its stub has")

    # -- media ------------------------------------------------------------------------------------------------------

    async def put(self, data: bytes, *, context: MediaContext | None = None) -> str:
        """Store bytes, once, and return their URI. The description of the first ones counts. O(size).

        They are one entry in base64, which is 64 MiB at most. Raises `InvalidArgument` for bytes that were redacted.
        """
        uri: str = media_uri_for(data)
        media = await self._kept(_MEDIA_KEY, "media")
        if (stored := await media.get_entry(_media_id(uri))) is not None:
            if REDACTED in stored.fields:
                raise errors.InvalidArgument(f"data: {uri} was redacted, so it is not stored again")
            return uri
        metadata: JsonObject = {} if context is None else {**context.metadata}
        fields: JsonObject = {"metadata": storable(metadata), "data": b64encode(data).decode()}
        with suppress(errors.IdempotencyConflict):
            async with self._store.atomic() as batch:
                entry = NewEntry.custom(MEDIA, fields, id=_media_id(uri))
                batch.append_entries(media, [entry], on_conflict="rebase", idempotency_key=uri)
        return uri

    async def get(self, uri: str, *, context: MediaContext | None = None) -> bytes:
        """Return the bytes of a URI. Raises `FileNotFoundError`, and `ValueError` for another URI. O(size)."""
        return b64decode(str((await self._there(uri))["data"]))

    async def exists(self, uri: str, *, context: MediaContext | None = None) -> bool:
        """Return whether the bytes of a URI are stored. Raises `ValueError` for another URI. O(size)."""
        with suppress(FileNotFoundError):
            return bool(await self._there(uri))
        return False

    async def public_url(self, uri: str, *, context: MediaContext | None = None) -> str | None:
        """Return None: a store serves nothing to models."""
        return None

    async def get_metadata(self, uri: str, *, context: MediaContext | None = None) -> Mapping[str, str]:
        """Return the metadata that bytes were stored with. Raises `FileNotFoundError`, and `ValueError`."""
        return _read(dict[str, str], restored_object((await self._there(uri))["metadata"]))

    async def _there(self, uri: str) -> JsonObject:
        entry_id, media = _media_id(uri), await self._opened(_MEDIA_KEY, "media")
        entry = None if media is None else await media.get_entry(entry_id)
        if entry is None or REDACTED in entry.fields:
            raise FileNotFoundError(f"nothing is stored under {errors.shown(uri)}: put() returns the URI of what is")
        return entry.fields

    # -- spending ---------------------------------------------------------------------------------------------------

    async def get_many(self, keys: Sequence[str]) -> Mapping[str, Spent]:
        """Return the spending in each window; zero for one that nothing was added to. O(windows)."""
        return {key: await _spent(await self._opened(_window_key(key), "window")) for key in keys}

    async def add_many(self, entries: Sequence[SpendEntry]) -> Mapping[str, Spent]:
        """Add to windows, all or nothing, each token once, and return the sums. O(windows) for each other writer.

        Windows stay, whatever their ``ttl``. Raises `InvalidArgument` for an amount that is no finite `Decimal`.
        """
        for entry in entries:
            if not (isinstance(entry.usd, Decimal) and entry.usd.is_finite()):
                where = errors.shown(entry.key)
                raise errors.InvalidArgument(f"usd: {entry.usd!r} in window {where} is no amount: name a Decimal")
        while True:
            # Who was slower than another writer adds to the sums of that.
            with suppress(errors.LeafConflict, errors.IdempotencyConflict):
                return await self._added(entries)

    async def _added(self, entries: Sequence[SpendEntry]) -> Mapping[str, Spent]:
        windows = {entry.key: await self._kept(_window_key(entry.key), "window") for entry in entries}
        sums = {key: await _spent(window) for key, window in windows.items()}
        tokens: set[tuple[str, str]] = set()
        async with self._store.atomic() as batch:
            for entry in entries:
                window = windows[entry.key]
                token = None if entry.token is None else key_of(entry.token)
                if token is not None:
                    is_stored = await self._store.backend.recall_append(window.ref, token) is not None
                    if is_stored or (entry.key, token) in tokens:
                        continue
                    tokens.add((entry.key, token))
                sums[entry.key] = _sum(sums[entry.key], entry)
                batch.append_entries(window, [NewEntry.custom(SPENT, _fields(sums[entry.key]))], idempotency_key=token)
        return sums


class SessionHistory:
    """Is the `HistorySource` of a `ConversationSearch`: the recorded conversations of a store, each as one run.

    The run's id is that of the session. Messages that were compacted are there, those that were rewound are not.
    """

    def __init__(self, store: Store) -> None:
        """Search the sessions in no scope of an open store, or one tenant's (`Store.in_scope`).

        Raises `InvalidArgument`.
        """
        check_parts(store, None, is_optional=True)
        self._store = store

    async def list_runs(self) -> list[RunRecord]:
        """Return the sessions as runs, in the order in which they were made. O(sessions).

        Also those that no agent of pydantic-ai has written, whose history is empty: only their paths tell.
        """
        return [
            RunRecord(run_id=str(info.id), conversation_id=adapter.conversation_of(info), started_at=info.created_at)
            for info in await _listed(self._store)
            if HARNESS not in info.metadata
        ]

    async def run_history(self, *, run_id: str) -> list[ModelMessage]:
        """Return the messages of a session that agents of pydantic-ai have written, compacted ones too. O(path)."""
        session = await self._store.get_session(run_id)
        path = [] if session is None else await session.get_active_path()
        return _messages_in([entry for entry in path if entry.kind != COMPACTION])


def _checked(session: Session, what: str) -> Session:
    """Return a session in which the harness keeps this. Raises `SessionExists` for one of somebody else."""
    if session.info.metadata.get(HARNESS) != what:
        detail = f"session {errors.shown(session.info.key)} is not of the harness, which needs its key: delete it"
        raise errors.SessionExists(session.id, detail=detail)
    return session


async def _listed(store: Store, metadata: Mapping[str, Scalar] | None = None) -> list[SessionInfo]:
    """Return the sessions of a store's scope, or in none, in the order in which they were made."""
    pages = partial(store.list_sessions, scope=store.scope or "", order_by="created", descending=False, limit=_PAGE)
    async with aclosing(listed_sessions(partial(pages, metadata=metadata))) as infos:
        return [info async for info in infos]


def _run_key(run_id: str) -> str:
    if not isinstance(run_id, str):
        raise errors.InvalidArgument(f"run_id: {errors.shown(run_id)} is not an id; ids are strings")
    return key_of(f"pydantic-ai-run:{run_id}")


def _window_key(key: str) -> str:
    return key_of(f"pydantic-ai-spend:{key}")


def _media_id(uri: str) -> str:
    return f"media-{parse_media_uri(uri)}"


def _fields(value: object) -> JsonObject:
    """Return the fields of a value of the harness as JSON, without those that say nothing."""
    return {name: each for name, each in to_jsonable_python(value).items() if each not in (None, {})}


_adapter_of: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


def _read(kind: type[Value], fields: JsonObject) -> Value:
    """Return a value of the harness. Raises `CorruptStore` for what is no such value, or was redacted."""
    if REDACTED in fields:
        raise errors.CorruptStore(f"{kind.__name__}: what was stored was redacted")
    try:
        return cast("Value", _adapter_of(kind).validate_python(fields))
    except ValidationError as error:
        raise errors.CorruptStore(f"{kind.__name__}: what is stored is none: {error}") from error


def _record_of(info: SessionInfo) -> RunRecord | None:
    record = info.metadata.get("record")
    return None if record is None else _read(RunRecord, restored_object(record))


def _messages_in(path: Sequence[Entry]) -> list[ModelMessage]:
    """Return the messages of a path that agents of pydantic-ai have written."""
    groups = [group for group in adapter.groups_of(path) if group.beside is not None or _is_redacted(group.entries[-1])]
    return journal.rounds(adapter.ReadMessages().messages_of(groups))


def _is_redacted(entry: Entry) -> bool:
    return REDACTED in entry.fields and entry.role in ("system", "user", "assistant", "toolResult")


def _dumped(messages: Sequence[ModelMessage]) -> list[JsonObject]:
    try:
        return cast("list[JsonObject]", from_json(ModelMessagesTypeAdapter.dump_json([*messages], warnings=False)))
    except PydanticSerializationError as error:
        raise errors.InvalidEntry(f"messages: pydantic-ai cannot write them as JSON: {error}") from error


def _shared(before: Sequence[JsonObject], messages: Sequence[JsonObject], *, with_times: bool = True) -> int:
    """Return how many messages two histories begin with in common, but for their stamps and, if so, all times."""
    pairs = zip(before, messages, strict=False)
    same = takewhile(lambda pair: _bare(pair[0], with_times) == _bare(pair[1], with_times), pairs)
    return sum(1 for _ in same)


def _bare(message: JsonObject, with_times: bool) -> JsonObject:
    bare = {name: value for name, value in message.items() if name not in _STAMPS}
    if not with_times:
        parts = cast("list[JsonObject]", bare["parts"])
        bare["parts"] = [{name: value for name, value in part.items() if name != "timestamp"} for part in parts]
    return bare


def _sum(spent: Spent, entry: SpendEntry) -> Spent:
    with localcontext(prec=40):
        return Spent(
            usd=spent.usd + entry.usd,
            tokens=spent.tokens + entry.tokens,
            requests=spent.requests + entry.requests,
            unpriced_requests=spent.unpriced_requests + entry.unpriced,
        )


async def _spent(window: Session | None) -> Spent:
    """Return the sums in a window, which are in its last entry."""
    entry = None if window is None or window.leaf_id is None else await window.get_entry(window.leaf_id)
    return Spent() if entry is None else _read(Spent, entry.fields)
