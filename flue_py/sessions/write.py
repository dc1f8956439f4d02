"""How entries come into a session: messages and their long results, sessions to be made, and artifacts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Unpack, cast

from msgspec.structs import replace

from flue_py import errors, providers
from flue_py.core import sessions
from flue_py.core.context import effective_pins
from flue_py.core.entries import (
    SHELL_SOURCE,
    Artifact,
    Entry,
    NewEntry,
    Pairing,
    artifact_ids,
    artifact_of,
    checked_source,
    entry_of_message,
    entry_prefix,
    exchange_of,
    is_of_text,
    kept_from,
    message_as_artifact,
    new_artifact,
    shell_exchange,
    tail_start,
    text_of_artifact,
)
from flue_py.core.json import Frozen, JsonObject, JsonValue, NamedTuple, decode_object, encode_json
from flue_py.core.kinds import ARTIFACT, EXCLUSION, MESSAGE
from flue_py.core.operations import MoveLeaf, Redo, Undo, Write
from flue_py.core.sessions import Appended, LeafChoice, Limits, Mark, NewSession, SessionInfo
from flue_py.core.usage import RESPONSE_ID, TOO_LARGE, SumTooLarge, ledger_name, program_of
from flue_py.db.backend import Backend
from flue_py.errors import CallConflict
from flue_py.lazy import lazy_module
from flue_py.prices import CallPricer
from flue_py.sessions import handle
from flue_py.sessions.handle import Group, Handle, Landing, Result

if TYPE_CHECKING:
    from pydantic import BaseModel

    from flue_py.context import artifacts
    from flue_py.context import blocks as protocol
    from flue_py.context.artifacts import ArtifactExcerpt, LongResult, OffloadSettings
    from flue_py.context.blocks import Block, BlocksAppended
    from flue_py.core import trees
    from flue_py.core.kinds import Shape
    from flue_py.core.messages import Message
    from flue_py.providers import base
    from flue_py.providers.base import Response
else:
    # A session may be only looked at.
    base = lazy_module("flue_py.providers.base")
    # Most appends put nothing aside and have no blocks, and a command should start without these.
    trees = lazy_module("flue_py.core.trees")
    artifacts = lazy_module("flue_py.context.artifacts")
    protocol = lazy_module("flue_py.context.blocks")


_NEUTRAL = frozenset({"role", "content", "name"})
_OUR_MODELS = "flue_py.core.messages"
_SPEAKERS = frozenset({"user", "assistant", "system", "developer"})


class Incoming(NamedTuple):
    """Messages as entries ready to be written, and which entries each of them became."""

    entries: list[NewEntry]
    starts: list[int]
    """Where the entries of each message begin, and where the last ones end."""
    shapes: list[Shape | None]

    def became(self, entries: Sequence[Sequence[NewEntry]]) -> Incoming:
        """Return the messages with the entries that each entry has become."""
        begins = [0]
        for parts in entries:
            begins.append(begins[-1] + len(parts))
        return Incoming(
            [entry for parts in entries for entry in parts], [begins[at] for at in self.starts], self.shapes
        )

    def noted_in(self, appended: Appended) -> Appended:
        """Return the result of the append with the messages that were converted."""
        if not any(self.shapes):
            return appended
        ids = appended.entry_ids
        spans = zip(self.shapes, pairwise(self.starts), strict=True)
        converted = tuple(
            sessions.ConvertedMessage(number, shape, ids[start:end])
            for number, (shape, (start, end)) in enumerate(spans)
            if shape is not None
        )
        return replace(appended, converted=converted)


def as_incoming(entries: list[NewEntry]) -> Incoming:
    """Return entries that are ours already, each a message of its own."""
    return Incoming(entries, list(range(len(entries) + 1)), [None] * len(entries))


def incoming_message(
    message: Mapping[str, object] | Message | BaseModel,
    source: str | None,
    calls: Sequence[Mapping[str, object]] = (),
    produced_under: str | None = None,
) -> Incoming:
    """Return one message as entries (see `incoming_messages`), its answer with the calls that made it."""
    value = _plain(message)
    if isinstance(value, (dict, Mapping)) and ("role" not in value or providers.shape_of(value) is not None):
        return _incoming([value], ["message"], source, calls, produced_under)
    return as_incoming([entry_of_message(value, source, calls=calls, produced_under=produced_under)])


def incoming_messages(
    messages: Sequence[Mapping[str, object] | Message | BaseModel],
    source: str | None,
    produced_under: str | None = None,
) -> Incoming:
    """Return messages as entries; those in the form of a provider are converted, all others taken as they are.

    A whole response is the messages in it. With ``produced_under``, answers with signed reasoning say so. Raises
    `InvalidEntry` naming the message and the field (``messages[1].content``). O(size).
    """
    where = [f"messages[{number}]" for number in range(len(messages))]
    return _incoming([_plain(message) for message in messages], where, source, (), produced_under)


def shell_entries(
    command: str, output: str, exit_code: int | None, drawn_id: str, idempotency_key: str | None
) -> list[NewEntry]:
    """Return the entries of a command. The call's id is that of its entry, or the same for each retry of a key."""
    if idempotency_key is None:
        return shell_exchange(command, output, exit_code, call_id=drawn_id, answer_id=drawn_id)
    return shell_exchange(command, output, exit_code, call_id=sessions.derived_id(SHELL_SOURCE, idempotency_key))


def _incoming(
    messages: Sequence[Mapping[str, JsonValue] | Message],
    where: Sequence[str],
    source: str | None,
    calls: Sequence[Mapping[str, object]],
    digest: str | None,
) -> Incoming:
    responses = [
        base.response_in(message, path) if isinstance(message, Mapping) else None
        for message, path in zip(messages, where, strict=True)
    ]
    shapes = [
        providers.shape_of(message, path) if whole is None and isinstance(message, Mapping) else whole and whole.shape
        for message, whole, path in zip(messages, responses, where, strict=True)
    ]
    in_use = {shape for shape in shapes if shape is not None}
    only = in_use.pop() if len(in_use) == 1 else None
    names: dict[str, str] = {}
    entries: list[NewEntry] = []
    starts = [0]
    for message, whole, shape, path in zip(messages, responses, shapes, where, strict=True):
        if shape is not None and isinstance(message, Mapping):
            # Check for JSON before the conversion, so that an error names the path where the value was given.
            encode_json(message, path)
            parts = ((dict(message), path),) if whole is None else whole.messages
            converted = [
                (item.message, item.beside, at)
                for part, at in parts
                for item in providers.convert(part, shape, names, at)
            ]
            last = len(converted) - 1
            if whole is not None:
                last = _answer_of(whole, converted, path)
            entries += [
                _beside(entry_of_message(item, source, at, calls if number == last else (), digest), extra)
                for number, (item, extra, at) in enumerate(converted)
            ]
        else:
            entry = entry_of_message(message, source, path, calls, digest)
            extra = providers.beside_ours(dict(message), only) if only is not None and _is_neutral(message) else {}
            entries.append(_beside(entry, extra))
        starts.append(len(entries))
    return Incoming(entries, starts, shapes)


def _answer_of(whole: Response, converted: Sequence[tuple[JsonObject, JsonObject, str]], where: str) -> int:
    """Put the call of a response on the last answer in it; return the number of that."""
    answers = [number for number, (message, _, _) in enumerate(converted) if message.get("role") == "assistant"]
    if not answers:
        raise errors.InvalidEntry(f"{where}: is a response without an answer; append the messages in it, one by one")
    message = converted[answers[-1]][0]
    message.update(whole.call)
    return answers[-1]


def _plain(message: Mapping[str, object] | Message | BaseModel) -> Mapping[str, JsonValue] | Message:
    """Return an object of a provider's library as JSON, its set fields only. Anything else is returned as it is."""
    if isinstance(message, dict) or type(message).__module__ == _OUR_MODELS or not hasattr(message, "model_dump"):
        return cast("Mapping[str, JsonValue] | Message", message)
    dumped: Mapping[str, JsonValue] = message.model_dump(mode="json", exclude_unset=True, warnings=False)
    return dumped


def _beside(entry: NewEntry, extra: JsonObject) -> NewEntry:
    return replace(entry, extra=encode_json(extra, "extra")[0]) if extra else entry


def _is_neutral(message: Mapping[str, JsonValue] | Message) -> bool:
    """Return whether a message of ours is one of each provider's, too."""
    if not isinstance(message, Mapping) or not message.keys() <= _NEUTRAL or message.get("role") not in _SPEAKERS:
        return False
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return all(isinstance(part, dict) and part.get("type") == "text" for part in parts)


_NEAR = 32


class Ground(Frozen):
    """The place below which messages land: a leaf of a stored session, or None, and the entries of a batch on it."""

    session_id: str | None
    leaf: LeafChoice
    entries: Sequence[NewEntry] = ()


class _Aside:
    """Messages on their way in, behind those that come before them, and the entries each has become.

    Places are those of the messages; the messages before them have places below 0.
    """

    def __init__(self, entries: Sequence[NewEntry], near: Sequence[JsonObject | None]) -> None:
        self.entries = entries
        self.became: list[list[NewEntry]] = [[entry] for entry in entries]
        self._messages = [*near, *_messages(entries)]
        self._near = len(near)
        self._pairing = Pairing(self._messages)
        self._calls = {at: call for call, results in self._pairing.results.items() for at in results}

    def message(self, place: int) -> JsonObject:
        """Return a message as it came in, or as it is stored."""
        return self._messages[self._near + place] or {}

    def now(self, place: int) -> JsonObject:
        """Return a message as it will be stored, or is."""
        return self.message(place) if place < 0 else decode_object(self.became[place][-1].payload)

    def call(self, place: int) -> JsonObject | None:
        """Return the tool call that a result answers, None where that is unknown."""
        call = self._calls.get(self._near + place)
        return None if call is None else self._pairing.parts[call]

    def rounds(self) -> list[list[int]]:
        """Return the results that answer one message each, for those messages of which some are on their way in."""
        rounds: dict[int, list[int]] = {}
        for at, call in sorted(self._calls.items()):
            rounds.setdefault(call.at, []).append(at - self._near)
        lost = [[at - self._near] for at in sorted(self._pairing.unpaired)]
        return [results for results in [*rounds.values(), *lost] if results[-1] >= 0]


class Offloader(Frozen):
    """Puts results aside in a store, each with a stub in its place. Raises `InvalidArgument` for other settings."""

    _backend: Backend
    _limits: Limits
    _settings: OffloadSettings

    def __post_init__(self) -> None:
        checked_offload(self._settings)

    async def with_stubs(self, incoming: Incoming, ground: Ground) -> Incoming:
        """Return messages with each long result as an artifact and a stub, and as the settings say of a round.

        A result stays as it is where its artifact would be refused for its size, and its ``oddities`` say so. No turn
        of a handle is waited for.
        """
        long = [place for place, entry in enumerate(incoming.entries) if _may_be_put_aside(entry, self._settings)]
        if not long:
            return incoming
        near = [*await self._stored_near(ground), *_messages(ground.entries)]
        near = near[tail_start(near, _NEAR, is_all=True) :]
        aside = _Aside(incoming.entries, near)
        for place in long:
            result = artifacts.long_result(aside.message(place), self._settings, aside.call(place))
            if result is not None:
                aside.became[place] = await self._put_aside(aside, place, result, ground.session_id)
        if self._settings.round_above is not None:
            for results in aside.rounds():
                await self._fit_round(aside, results, self._settings.round_above, ground.session_id)
        return incoming.became(aside.became)

    async def _fit_round(self, aside: _Aside, results: Sequence[int], most: int, session_id: str | None) -> None:
        """Put the largest results of a round aside that are not stored yet, until all of it has ``most`` characters."""
        lengths = {at: artifacts.length_of(aside.now(at)) for at in results}
        for place in sorted((at for at in results if at >= 0), key=lambda at: (-lengths[at], at)):
            if sum(lengths.values()) <= most:
                break
            result = artifacts.any_result(aside.now(place), self._settings, aside.call(place))
            if result is not None and self._is_shorter_as_stub(result):
                aside.became[place] = await self._put_aside(aside, place, result, session_id)
                lengths[place] = artifacts.length_of(aside.now(place))

    def _is_shorter_as_stub(self, result: LongResult) -> bool:
        (artifact_id, *_) = artifact_ids(result.text)
        return len(artifacts.stub(result, artifact_id, self._settings)) < len(result.text)

    async def _stored_near(self, ground: Ground) -> list[JsonObject]:
        """Return the messages at the end of the context in which the results will stand."""
        if ground.session_id is None or ground.leaf is None:
            return []
        # A hint is no reason to refuse a result: the append itself reports a wrong leaf.
        with suppress(errors.EntryNotFound, errors.CorruptStore):
            read = await self._backend.read_context_end(ground.session_id, _NEAR, leaf=ground.leaf)
            return [item.data for item in read.items]
        return []

    async def _put_aside(self, aside: _Aside, place: int, result: LongResult, session_id: str | None) -> list[NewEntry]:
        entry = aside.entries[place]
        artifact_id = await self._free_artifact_id(result.text, session_id)
        artifact = new_artifact(
            artifact_id,
            result.text,
            tool=result.tool,
            hint=result.hint,
            call_id=result.call_id,
            parts=result.parts,
            drawn_id=self._backend.new_entry_id(),
        )
        try:
            self._limits.check_entries([artifact])
        except errors.InvalidEntry as error:
            return [replace(entry, oddities=(*entry.oddities, f"not offloaded, the result stays whole: {error}"))]
        stubbed = artifacts.with_stub(aside.message(place), result, artifact_id, self._settings)
        payload, _ = encode_json(stubbed, "message")
        return [artifact, replace(entry, payload=payload)]

    async def _free_artifact_id(self, text: str, session_id: str | None) -> str:
        """Return the id of the artifact of a text: the shortest that no artifact of another text has."""
        for artifact_id in artifact_ids(text):
            if session_id is None:
                return artifact_id
            ids = await self._backend.match_entry_ids(session_id, entry_prefix(artifact_id), 1)
            if not ids:
                return artifact_id
            try:
                there = await self._backend.get_entry(session_id, ids[0])
            except errors.CorruptStore:
                continue
            if there is None or there.kind != ARTIFACT or is_of_text(there, text):
                return artifact_id
        raise errors.InvalidEntry("the artifacts that the session sees have all the ids that this one could have")


async def first_landed(backend: Backend, session_id: str, idempotency_key: str | None) -> Entry | None:
    """Return the first entry of the append that had this key before; None if there was none.

    A retry looks for calls where the first try did, below the parent of this entry, so that it has the same hints.
    """
    first = None if idempotency_key is None else await backend.recall_append(session_id, idempotency_key)
    return None if first is None or not first.entry_ids else await backend.get_entry(session_id, first.entry_ids[0])


def checked_offload(settings: OffloadSettings) -> OffloadSettings:
    """Return settings unchanged. Raises `InvalidArgument` for anything else."""
    if not isinstance(settings, artifacts.OffloadSettings):
        raise errors.InvalidArgument(f"offload: should be OffloadSettings, not {errors.shown(settings)}")
    return settings


def _may_be_put_aside(entry: NewEntry, settings: OffloadSettings) -> bool:
    # A text is no longer than the JSON that has it: most results are not decoded for this.
    least = settings.least if settings.round_above is None else 0
    return entry.role == "toolResult" and len(entry.payload) > least


def _messages(entries: Sequence[NewEntry]) -> list[JsonObject | None]:
    return [decode_object(entry.payload) if entry.kind == MESSAGE else None for entry in entries]


_SINGLY = 8


def _pinned_callers(pairing: Pairing, ids: Sequence[str], pins: Sequence[str]) -> set[int]:
    places = {entry_id: at for at, entry_id in enumerate(ids)}
    groups = [pairing.group_of(places[pin]) for pin in pins if pin in places]
    return {group.caller for group in groups if group is not None and group.caller is not None}


async def write_what_fits(
    write: Callable[[Sequence[NewEntry]], Awaitable[Result]], entries: Sequence[NewEntry], pricer: CallPricer
) -> tuple[Result, Sequence[NewEntry]]:
    """Price entries and write them; return the result, and the entries as they were written.

    An answer is not refused for a number that is too large to be added up: the entry that reports the most is written
    without being counted, which its ``oddities`` say, and so on until the rest fits. Nor is it refused for an id of its
    provider's that another call has, too. Raises as ``write``.
    """
    if any(entry.calls for entry in entries):
        entries = pricer.price_entries(entries)
    tries = 0
    while True:
        try:
            return await write(entries), entries
        except (SumTooLarge, CallConflict) as error:
            fitting = fitting_entries(entries, tries, error)
            if fitting is None:
                raise
            entries, tries = fitting, tries + 1


def fitting_entries(
    entries: Sequence[NewEntry], tries: int, error: SumTooLarge | CallConflict
) -> Sequence[NewEntry] | None:
    """Return entries without the number or id that kept them from being written; None if it cannot be left out."""
    return with_another_id(entries, error) if isinstance(error, CallConflict) else without_largest(entries, tries)


def with_another_id(entries: Sequence[NewEntry], conflict: CallConflict) -> list[NewEntry] | None:
    """Return entries of which the last answer whose response has the id of another call goes by an id of its own.

    Some servers number their answers anew at each start, or at random among a thousand. None if a caller gave the id.
    """
    for place, entry in reversed([*enumerate(entries)]):
        if conflict.call_id not in [call.call_id for call in entry.calls] or entry.kind != MESSAGE:
            continue
        name = ledger_name(decode_object(entry.payload).get(RESPONSE_ID))
        if name == entry.calls[0].call_id:
            # The calls of other models in it are named after the answer's.
            own = sessions.derived_id(name, repr([(call.usage, call.model) for call in entry.calls]))
            calls = tuple(replace(call, call_id=f"{own}{(call.call_id or '')[len(name) :]}") for call in entry.calls)
            oddity = (
                f"{RESPONSE_ID}: call {errors.shown(conflict.call_id)} was reported before with other numbers "
                f"({', '.join(conflict.differences)}); this answer is counted as another call"
            )
            named = replace(entry, calls=calls, oddities=(*entry.oddities, oddity))
            return [*entries[:place], named, *entries[place + 1 :]]
    return None


def without_largest(entries: Sequence[NewEntry], tries: int) -> list[NewEntry] | None:
    """Return entries of which the one that reports the most is not counted; after several tries, all of them are not.

    None if none of them is counted.
    """
    counted = [place for place, entry in enumerate(entries) if entry.counted and _most(entry)]
    if not counted:
        return None
    largest = max(counted, key=lambda place: _most(entries[place]))
    left_out = {largest} if tries < _SINGLY else set(counted)
    return [_uncounted(entry) if place in left_out else entry for place, entry in enumerate(entries)]


def with_oddities(appended: Appended, entries: Sequence[NewEntry]) -> Appended:
    """Return the result of writing entries with their oddities."""
    oddities = oddities_of(entries)
    return replace(appended, oddities=oddities) if oddities else appended


def oddities_of(entries: Sequence[NewEntry]) -> tuple[str, ...]:
    """Return the oddities of entries."""
    return tuple(chain.from_iterable(map(attrgetter("oddities"), entries)))


def _most(entry: NewEntry) -> int:
    numbers = [*entry.usage, *(number for call in entry.calls for number in (*call.usage, call.known_cost or 0))]
    return max(numbers)


def _uncounted(entry: NewEntry) -> NewEntry:
    where = "usage" if entry.id is None else f"entry {entry.id!r}: usage"
    return replace(entry, counted=False, oddities=(*entry.oddities, f"{where}: {TOO_LARGE}"))


_PAGE = 200


def _read(session_id: str, artifact_id: str, entry: Entry | None, message: Entry | None) -> tuple[Artifact, str]:
    """Return an artifact and its text, from the entry that has it, or from the message of that id."""
    artifact = None if entry is None else artifact_of(entry)
    if entry is not None and artifact is not None:
        return artifact, text_of_artifact(entry)
    artifact_and_text = None if message is None else message_as_artifact(message)
    if artifact_and_text is None:
        raise errors.ArtifactNotFound(session_id, artifact_id)
    return artifact_and_text


async def artifact_entry(backend: Backend, session_id: str, artifact_id: str) -> Entry | None:
    """Return an entry that has an artifact and that a session sees, with its text; None if there is none.

    Two point reads; O(entries) where the ids of the entries are others, because they were copied or imported.
    """
    ids = await backend.match_entry_ids(session_id, entry_prefix(artifact_id), 1)
    stored = await backend.get_entry(session_id, ids[0]) if ids else None
    if stored is not None and _has(stored, artifact_id):
        return stored
    for entry in await _artifact_entries(backend, session_id):
        if _has(entry, artifact_id):
            return await backend.get_entry(session_id, entry.id)
    return None


async def _artifact_entries(backend: Backend, session_id: str) -> list[Entry]:
    """Return the entries of the artifacts that a session sees, without their texts."""
    read = partial(backend.read_entries, session_id, kind=ARTIFACT, contents=False)
    return await handle.whole_list(read, _PAGE, lambda entry: entry.id)


def _has(entry: Entry, artifact_id: str) -> bool:
    artifact = artifact_of(entry)
    return artifact is not None and artifact.id == artifact_id


def _check_range(start: int, length: int | None) -> None:
    if isinstance(start, bool) or not isinstance(start, int) or start < 0:
        raise errors.InvalidArgument(f"start: {errors.shown(start)} is no place in a text; give a whole number >= 0")
    if length is not None and (isinstance(length, bool) or not isinstance(length, int) or length < 1):
        raise errors.InvalidArgument(
            f"length: {errors.shown(length)} is no number of characters; give one >= 1, or None for all"
        )


def checked_root(new: NewSession) -> NewSession:
    """Return a session of its own unchanged. Raises `InvalidArgument` for a key or scope that none can have."""
    sessions.check_new_name(new.key, "key")
    sessions.check_new_name(new.scope, "scope")
    return new


def new_fork(
    source: SessionInfo,
    limits: Limits,
    *,
    id: str | None = None,
    scope: str | None = None,
    key: str | None = None,
    title: str | None = None,
    metadata: Mapping[str, object] | None = None,
    cwd: str | None = None,
    **seen: Unpack[handle.SeenOptions],
) -> tuple[NewSession, sessions.Seen]:
    """Return a fork, and what its source was seen as: scope and working directory are those of that unless given.

    Raises `InvalidArgument`, and `InvalidEntry` for metadata that JSON cannot hold.
    """
    sessions.check_new_name(key, "key")
    sessions.check_new_name(id, "id")
    sessions.check_name(scope, "scope")
    sessions.check_label(cwd, "cwd")
    place, folder = source.scope if scope is None else scope, source.cwd if cwd is None else cwd
    text = handle.checked_metadata(metadata, limits)
    return NewSession(key, title, place, text, folder, source.config_path, id), handle.checked_seen(**seen)


def new_task(
    parent: SessionInfo,
    limits: Limits,
    task_id: str,
    *,
    key: str | None = None,
    title: str | None = None,
    metadata: Mapping[str, object] | None = None,
    cwd: str | None = None,
    **seen: Unpack[handle.SeenOptions],
) -> tuple[NewSession, sessions.Seen]:
    """Return a task session in the scope of its parent, and what that was seen as.

    Raises as `new_fork`, and if ``task_id`` is not a name.
    """
    sessions.check_new_name(task_id, "task_id")
    sessions.check_new_name(key, "key")
    if task_id is None:
        raise errors.InvalidArgument("task_id: should be a string, not None")
    sessions.check_label(cwd, "cwd")
    new = NewSession(key, title, parent.scope, handle.checked_metadata(metadata, limits), cwd or parent.cwd)
    return new, handle.checked_seen(**seen)


PATIENCE = 10.0


def pins_in(marks: Sequence[Mark], compaction: Entry | None, tail: Sequence[Entry]) -> list[str]:
    """Return the pins of a session, from its marks, the compaction in effect, and the entries it keeps."""
    retracted = sessions.retracted_in(marks)
    own = {mark.entry_id: mark.value or "on" for mark in marks if mark.kind == "pin" and mark.entry_id not in retracted}
    pinned = effective_pins(own, None if compaction is None else compaction.fields)
    order = {entry.id: number for number, entry in enumerate(tail)} if len(pinned) > 1 else {}
    return sorted(pinned, key=lambda entry_id: (order.get(entry_id, len(order)), entry_id))


class Writing(Handle):
    """The appends of a `Session`."""

    __slots__ = ()

    async def _do(self, operation: Write[Result]) -> Result:
        """Do an operation that is checked, when it is this call's turn. The session of a batch collects it instead."""
        return await self._commit(lambda: self._backend.do(self._on_leaf(operation)), self._note_outcome)

    def _on_leaf(self, operation: Write[Result]) -> Write[Result]:
        """Return an operation with the leaf that it builds on."""
        if isinstance(operation, (MoveLeaf, Undo, Redo)) and isinstance(operation.expected, sessions.Seen):
            return cast("Write[Result]", replace(operation, expected=self._expected(operation.expected)))
        return operation

    async def append_message(
        self,
        message: Mapping[str, object] | Message | BaseModel,
        *,
        source: str | None = None,
        calls: Sequence[Mapping[str, object]] = (),
        produced_under: str | None = None,
        offload: OffloadSettings | None = None,
        **options: Unpack[handle.LandingOptions],
    ) -> Appended:
        """Append one message below the leaf, and return where it landed.

        ``source`` tags it (prompt, skill, shell, task, retry). An exact retry of an ``idempotency_key`` returns
        the first result. If another writer has moved the leaf, ``on_conflict="raise"`` raises `LeafConflict`,
        ``"branch"`` adds a sibling branch, without moving the stored leaf, and ``"rebase"`` appends below whatever is
        stored, for a log without branches; ``parent_id`` says where it landed. ``expected_leaf`` and
        ``expected_revision`` are those that the caller has seen, to be compared (see `Session`). Lone surrogates are
        replaced, and counted in ``surrogates_replaced``. Usage is read in the shape of any provider and kept as it is
        given; ``oddities`` name the numbers that cannot be counted, which refuses nothing.

        ``calls`` are the single usages of the paid calls behind an answer, where it took several: usage objects, each
        with a ``provider``, ``model`` and ``callId`` of its own or else those of the message. Each has a row in the
        ledger. The message's usage is their sum, and is written so if it has none.

        ``produced_under`` is `ContextRequest.prefix_digest` of the request that an answer came from. An answer with
        signed reasoning is stored with it (``producedUnder``), so that no later request has that reasoning behind
        another beginning.

        With ``offload``, the result of a tool that is longer than those settings say is stored whole as an artifact, an
        entry of its own that no context reads, and the message after it has a stub in the place of its text: its call,
        and the id for `read_artifact`. The last of ``entry_ids`` is the message.

        A message in the form of OpenAI's Chat Completions or Responses, of Anthropic or of Gemini is converted into
        ours, as importing it would, and ``converted`` says so; it may become several entries, and `export_session`
        gives it back as it came. So is a whole response of theirs, as JSON or as the object that their library returns:
        its usage, its model and its id are kept with its last answer. The id (``responseId`` of a message of ours)
        is that of the paid call, which is counted once however often it is appended.

        Raises `InvalidEntry` naming the field that is wrong or cannot be converted, `IdempotencyConflict`,
        `RevisionConflict`. O(1).
        """
        landing = handle.checked_landing(**options)
        if produced_under is not None:
            handle.checked_text(produced_under, "produced_under")
        incoming = incoming_message(message, source, calls, produced_under)
        return await self._append_incoming(incoming, offload, landing)

    async def append_messages(
        self,
        messages: Sequence[Mapping[str, object] | Message | BaseModel],
        *,
        source: str | None = None,
        produced_under: str | None = None,
        offload: OffloadSettings | None = None,
        **options: Unpack[handle.LandingOptions],
    ) -> Appended:
        """Append messages as a chain, all or none of them, in one transaction; otherwise as `append_message`.

        An error names the message, too (``messages[1].content``). No messages change nothing, and only compare the
        leaf. O(len(messages)).
        """
        landing = handle.checked_landing(**options)
        incoming = incoming_messages(
            handle.checked_messages(messages), source, handle.checked_text(produced_under, "produced_under")
        )
        checked_source(source)
        return await self._append_incoming(incoming, offload, landing)

    async def _append_incoming(self, incoming: Incoming, offload: OffloadSettings | None, landing: Landing) -> Appended:
        if offload is not None:
            offloader = Offloader(self._backend, self._limits, offload)
            ground = Ground(self._ref, await self._leaf_before(landing))
            incoming = await offloader.with_stubs(incoming, ground)
        return incoming.noted_in(await self._append(incoming.entries, landing))

    async def append_shell(
        self,
        command: str,
        output: str,
        exit_code: int | None,
        *,
        offload: OffloadSettings | None = None,
        **options: Unpack[handle.LandingOptions],
    ) -> Appended:
        """Append a shell command that a person ran, with its output, so that the model and compaction see it.

        Three messages with the source ``shell``: the command as a message of the user, a call of the tool ``bash``, and
        its result, an error unless ``exit_code`` is 0. None is a command that was killed. Nothing is run. With
        ``offload`` a long output is put aside, too. Raises `InvalidArgument`; otherwise as `append_messages`. O(1).
        """
        landing = handle.checked_landing(**options)
        entries = shell_entries(command, output, exit_code, self._backend.new_entry_id(), landing.idempotency_key)
        return await self._append_incoming(as_incoming(entries), offload, landing)

    async def append_compaction(
        self,
        summary: str,
        *,
        first_kept_entry_id: str,
        tokens_before: int,
        details: object = None,
        usage: Mapping[str, object] | None = None,
        calls: Sequence[Mapping[str, object]] = (),
        from_hook: bool = False,
        keep_exchanges_whole: bool = True,
        **options: Unpack[handle.LandingOptions],
    ) -> Appended:
        """Append a compaction: from here on, the summary stands for the entries before the first kept one.

        ``usage`` is the sum of the usages of the summarization calls, ``calls`` their single usages for the
        ledger. A first kept entry that would leave a tool call out and keep its result, which no provider takes, is
        moved back to the message of the call, and ``oddities`` say so; with ``keep_exchanges_whole=False`` it is not.
        ``from_hook`` notes that a program gave the text in place of a mode: later compactions read none of its details.
        Raises `EntryNotFound` if the session sees no such first kept entry (on the path or off it),
        `InvalidEntry`; otherwise as `append_message`. The cost of the context, or else O(1).
        """
        handle.checked_flag(keep_exchanges_whole, "keep_exchanges_whole")
        handle.checked_flag(from_hook, "from_hook")
        landing = handle.checked_landing(**options)
        if first_kept_entry_id == "":
            raise errors.EntryNotFound(self.id, first_kept_entry_id)
        entry = NewEntry.compaction(
            summary,
            first_kept_entry_id=first_kept_entry_id,
            tokens_before=tokens_before,
            details=details,
            usage=usage,
            calls=calls,
            from_hook=from_hook,
        )
        if keep_exchanges_whole:
            leaf = await self._leaf_before(landing)
            entry = kept_from(entry, await self._whole_first_kept(first_kept_entry_id, leaf))
        return await self._append([entry], landing)

    async def _whole_first_kept(self, first_kept: str, leaf: str | None) -> str:
        """Return the entry to keep from, so that no call leaves the context whose result is kept or still to come.

        That is ``first_kept`` itself, or the message of the call if it lies before that. Pinned calls are kept anyway.
        An entry off the path to ``leaf`` stays as it is. The cost of the context, or else of the path.
        """
        if leaf is None:
            return first_kept
        read = await self._read_context(leaf)
        # Not the items: an excluded entry can be shown again.
        ids, messages = [entry.id for entry in read.tail], list(map(exchange_of, read.tail))
        if first_kept not in (item.entry_id for item in read.items):
            path = await self.get_active_path(leaf=leaf)
            ids = [entry.id for entry in path]
            messages = list(map(exchange_of, path))
        if first_kept not in ids:
            return first_kept
        pairing, at = Pairing(messages), ids.index(first_kept)
        if pairing.whole_cut(at) == at:
            return first_kept
        return ids[pairing.whole_cut(at, _pinned_callers(pairing, ids, await self._pins()))]

    async def _pins(self) -> list[str]:
        marks = await self._ask(self._backend.read_marks)
        context = await self._read_context(sessions.STORED)
        return pins_in(marks, context.compaction, context.tail)

    async def _leaf_before(self, landing: Landing) -> str | None:
        """Return the leaf that an append builds on; for a retry, the one that the first try built on."""
        if (first := await first_landed(self._backend, self._ref, landing.idempotency_key)) is not None:
            return first.parent_id
        if landing.on_conflict != "rebase":
            return self._built_on(landing.seen)
        return (await self._stored_info()).leaf_id

    async def append_branch_summary(
        self,
        summary: str,
        *,
        from_id: str | None,
        details: object = None,
        usage: Mapping[str, object] | None = None,
        calls: Sequence[Mapping[str, object]] = (),
        **options: Unpack[handle.LandingOptions],
    ) -> Appended:
        """Append the summary of a branch that was left. ``from_id`` is kept as given, not checked.

        ``usage`` is the usage of the summarization calls, ``calls`` their single usages: the ledger counts them,
        windows over the path do not. Otherwise as `append_compaction`.
        """
        landing = handle.checked_landing(**options)
        entry = NewEntry.branch_summary(summary, from_id=from_id, details=details, usage=usage, calls=calls)
        return await self._append([entry], landing)

    async def append_custom(self, kind: str, data: object = None, **options: Unpack[handle.LandingOptions]) -> Appended:
        """Append an entry of a further kind.

        ``custom_message`` is seen by the model as a user message; every other kind is never part of the context.
        Raises `InvalidEntry` for a kind that has a method of its own (message, compaction, branch_summary, exclusion).
        """
        if kind == EXCLUSION:
            raise errors.InvalidEntry(f"kind: {kind!r} has methods of its own; use exclude() and include()")
        landing = handle.checked_landing(**options)
        return await self._append([NewEntry.custom(kind, data)], landing)

    def _append(self, entries: Sequence[NewEntry], landing: Landing) -> Awaitable[Appended]:
        seen, on_conflict, key = landing

        def write(priced: Sequence[NewEntry]) -> Awaitable[Appended]:
            return self._commit(
                lambda: self._backend.append(
                    self._ref, priced, expected=self._expected(seen), on_conflict=on_conflict, idempotency_key=key
                ),
                self._note_append,
            )

        return self._write(write, entries)

    async def _write(
        self, write: Callable[[Sequence[NewEntry]], Awaitable[Appended]], entries: Sequence[NewEntry]
    ) -> Appended:
        """Check how large entries are, price them, write them, and return the result with their oddities."""
        self._limits.check_entries(entries)
        return with_oddities(*await write_what_fits(write, entries, self._pricer))

    async def import_entries(
        self, entries: Sequence[NewEntry], *, leaf: str | None, **options: Unpack[handle.SeenOptions]
    ) -> Appended:
        """Add entries that bring their own ids, parents and times, parents first, and set the leaf.

        A parent of None makes a root; any other is an entry the session sees, or an earlier one of these.
        ``leaf`` is one the session then sees, or None. All or nothing, and one step of `undo`. ``call_conflicts`` has
        the paid calls that were reported before with other numbers; the ledger keeps the first. The usage
        of entries is read from their payloads; one that names no paid call gets the one that its usage is of. Raises
        `LeafConflict`, `EntryNotFound`, and `InvalidEntry` for an id that is taken. O(len(entries)).
        """
        entries = trees.checked_imported_entries(entries, program_of(self.metadata))
        handle.checked_place(leaf, "leaf")
        seen = handle.checked_seen(**options)

        def write(priced: Sequence[NewEntry]) -> Awaitable[Appended]:
            return self._commit(
                lambda: self._backend.import_entries(self._ref, priced, leaf=leaf, expected=self._expected(seen)),
                lambda result: self._note(result.leaf_id, result.revision),
            )

        return await self._write(write, entries)

    async def append_blocks(
        self, blocks: Iterable[Block], *, patience: float = PATIENCE, **options: Unpack[handle.LandingOptions]
    ) -> BlocksAppended:
        """Append the texts that blocks have now, unless the context shows the same already.

        A block (`flue_py.context.blocks.Block`) is a text for the model beside the conversation: where it runs,
        its memories. An earlier text is never rewritten, so that a request goes on beginning with the one
        before it; a block that a compaction or an exclusion has taken out of the context is told again. One that no
        longer says anything is withdrawn by a line. Each is a ``custom_message`` with the ``customType``
        ``block:NAME``, all in one append.

        Blocks are read at the same time, each for at most ``patience`` seconds. One that fails, or takes longer, is
        among the ``failures`` of the result, and raises nothing. A retry of an ``idempotency_key`` returns the
        first result. Raises `InvalidArgument` for anything but a block; otherwise as `append_message`. The cost of the
        context, and of the blocks.
        """
        wanted = protocol.checked_blocks(blocks)
        handle.checked_patience(patience)
        landing = handle.checked_landing(**options)
        if (key := landing.idempotency_key) is not None:
            first = await self._backend.recall_append(self._ref, key)
            if first is not None:
                return await self._told_before(first, key)
        await self._compare(landing.seen)
        # No turn is held meanwhile: a block may ask this session, or take its time.
        texts = await self._backend.waiting.ask(lambda: protocol.read_blocks(wanted, patience), None)
        read = await self._read_context(await self._leaf_before(landing._replace(idempotency_key=None)))
        news = protocol.to_tell(wanted, texts, protocol.shown_blocks(read.items))
        if not news.entries:
            return protocol.BlocksAppended((), news.unchanged, news.failures)
        entries = [entry for _, entry, _ in news.entries]
        appended = await self._append(entries, landing)
        appended_blocks = tuple(
            protocol.BlockTold(name, entry_id, is_withdrawn)
            for (name, _, is_withdrawn), entry_id in zip(news.entries, appended.entry_ids, strict=True)
        )
        return protocol.BlocksAppended(appended_blocks, news.unchanged, news.failures, appended)

    async def _told_before(self, first: Appended, idempotency_key: str) -> BlocksAppended:
        """Return the result of the first try. Raises `IdempotencyConflict` if that appended something else."""
        appended = replace(first, replayed=True)
        self._note_append(appended)
        blocks = []
        for entry in await self.get_entries(first.entry_ids):
            block = None if entry is None else protocol.shown_block(entry.data)
            if entry is not None and block is None:
                raise errors.IdempotencyConflict(self.id, idempotency_key)
            if entry is not None and block is not None:
                blocks.append(protocol.BlockTold(block.name, entry.id, not block.same))
        return protocol.BlocksAppended(tuple(blocks), appended=appended)


def checked_call_id(call: Mapping[str, object]) -> str:
    """Return the id of a model's call of a tool. Raises `InvalidArgument` if it has none."""
    call_id = call.get("id") if isinstance(call, Mapping) else None
    if not isinstance(call_id, str):
        raise errors.InvalidArgument(f"call: should be a tool call with an id, not {errors.shown(call)}")
    return call_id


def tool_result(call_id: str, tool: JsonValue, text: str, *, is_error: bool) -> JsonObject:
    """Return the message of a tool's result with a text."""
    content: JsonValue = [{"type": "text", "text": text}]
    return {"role": "toolResult", "toolCallId": call_id, "toolName": tool, "content": content, "isError": is_error}


class Artifacts(Group[Handle]):
    """The artifacts of a session: results of tools that are stored whole, beside the conversation."""

    async def all(self) -> tuple[Artifact, ...]:
        """Return the artifacts that the session sees, on the path or off it, in the order of `get_tree`.

        A result that came twice is there twice, with one id and an entry each. O(entries), though not their payloads,
        and nothing of the texts.
        """
        entries = await self._ask(partial(_artifact_entries, self._backend))
        return tuple(artifact for entry in entries if (artifact := artifact_of(entry)) is not None)

    async def read(
        self, artifact_id: str, *, start: int = 0, length: int | None = 20_000, grep: str | None = None
    ) -> ArtifactExcerpt:
        """Return a part of an artifact that the session sees, on the path or off it: in forks, after a rewind.

        The id of a message's entry, which the notes in a request have (`Session.request`), stands for its text: that of
        a tool's result, and the JSON of any other message.

        The ``length`` characters from ``start`` on, of which there may be fewer; None for all. With ``grep``, the lines
        from ``start`` on that have these words, taken literally and in any case, with their numbers: as many as
        ``length`` has room for, and one at least; of a long line 400 characters. Raises `ArtifactNotFound`,
        `InvalidArgument`, and `CorruptStore` where its text is lost. O(size of the artifact).
        """
        handle.checked_id(artifact_id, "artifact_id")
        _check_range(start, length)
        if grep is not None and not artifacts.is_one_line(handle.checked_text(grep, "grep") or ""):
            raise errors.InvalidArgument(f"grep: {errors.shown(grep)} is not words of one line")
        async with self._session._turn:
            entry = await artifact_entry(self._backend, self._ref, artifact_id)
            message = await self._backend.get_entry(self._ref, artifact_id) if entry is None else None

        def read() -> ArtifactExcerpt:
            artifact, text = _read(self._session.id, artifact_id, entry, message)
            if grep is None:
                return artifacts.read_range(artifact, text, start, length)
            return artifacts.read_lines(artifact, text, start, length, grep)

        return await handle.waiting_of(self._session).call(read)

    async def answer_read(self, call: Mapping[str, object]) -> JsonObject:
        """Return the result of a model's call of `flue_py.context.artifacts.READ_ARTIFACT_TOOL`, as a message.

        ``call`` is the part of the model's answer: ``id``, ``name``, ``arguments``. A missing argument, and an artifact
        that the session does not see, are named in a result that failed. Nothing is appended. Raises
        `InvalidArgument` for a call without an id, and `CorruptStore`. The cost of `read_artifact`.
        """
        call_id = checked_call_id(call)
        wanted = artifacts.asked_excerpt(call.get("arguments"))
        text, failed = "", isinstance(wanted, str)
        if isinstance(wanted, str):
            text = wanted
        else:
            try:
                read = await self.read(wanted.artifact_id, start=wanted.start, length=wanted.length, grep=wanted.grep)
                text = artifacts.excerpt_text(read, wanted.grep)
            except (errors.ArtifactNotFound, errors.InvalidArgument) as error:
                text, failed = str(error), True
        return tool_result(call_id, artifacts.READ_ARTIFACT_TOOL["name"], text, is_error=failed)
