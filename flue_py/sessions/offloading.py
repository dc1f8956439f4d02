"""Putting long results of tools aside as artifacts, on their way into a session."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from flue_py.core.artifacts import artifact_ids, entry_prefix, is_of_text, new_artifact
from flue_py.core.entries import Entry, NewEntry
from flue_py.core.exchange import Pairing, tail_start
from flue_py.core.frozen import changed
from flue_py.core.jsontext import JsonObject, decode_object, encode_json
from flue_py.core.kinds import ARTIFACT, MESSAGE
from flue_py.core.limits import Limits
from flue_py.core.sessions import LeafChoice
from flue_py.errors import CorruptStore, EntryNotFound, InvalidArgument, InvalidEntry, shown
from flue_py.lazy import lazy_module
from flue_py.sessions.incoming import Incoming
from flue_py.store.backend import Backend

if TYPE_CHECKING:
    from flue_py.context import offloading
    from flue_py.context.offloading import LongResult, OffloadSettings
else:
    # Most appends put nothing aside, and a command should start without this.
    offloading = lazy_module("flue_py.context.offloading")

_NEAR = 32
"""How many of the last messages are looked through for the call that a result answers, from which its hint is."""


class Ground(NamedTuple):
    """What messages come below: a leaf of a session that is stored, None for nothing, and what a batch puts on it."""

    session_id: str | None
    leaf: LeafChoice
    entries: Sequence[NewEntry] = ()


class _Aside:
    """Messages on their way in, behind those that come before them, and what has become of each.

    Places are those of the messages; what comes before them has places below 0.
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
        found: dict[int, list[int]] = {}
        for at, call in sorted(self._calls.items()):
            found.setdefault(call.at, []).append(at - self._near)
        lost = [[at - self._near] for at in sorted(self._pairing.unpaired)]
        return [results for results in [*found.values(), *lost] if results[-1] >= 0]


class Offloader:
    """Puts results aside in a store, each with a stub in its place."""

    __slots__ = ("_backend", "_limits", "_settings")

    def __init__(self, backend: Backend, limits: Limits, settings: OffloadSettings) -> None:
        self._backend = backend
        self._limits = limits
        self._settings = checked_offload(settings)

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
            result = offloading.long_result(aside.message(place), self._settings, aside.call(place))
            if result is not None:
                aside.became[place] = await self._put_aside(aside, place, result, ground.session_id)
        if self._settings.round_above is not None:
            for results in aside.rounds():
                await self._fit_round(aside, results, self._settings.round_above, ground.session_id)
        return incoming.became(aside.became)

    async def _fit_round(self, aside: _Aside, results: Sequence[int], most: int, session_id: str | None) -> None:
        """Put the largest results of a round aside that are not stored yet, until all of it has ``most`` characters."""
        lengths = {at: offloading.length_of(aside.now(at)) for at in results}
        for place in sorted((at for at in results if at >= 0), key=lambda at: (-lengths[at], at)):
            if sum(lengths.values()) <= most:
                break
            result = offloading.any_result(aside.now(place), self._settings, aside.call(place))
            if result is not None and self._is_shorter_as_stub(result):
                aside.became[place] = await self._put_aside(aside, place, result, session_id)
                lengths[place] = offloading.length_of(aside.now(place))

    def _is_shorter_as_stub(self, result: LongResult) -> bool:
        (artifact_id, *_) = artifact_ids(result.text)
        return len(offloading.stub(result, artifact_id, self._settings.preview_chars)) < len(result.text)

    async def _stored_near(self, ground: Ground) -> list[JsonObject]:
        """Return the messages at the end of the context in which the results will stand."""
        if ground.session_id is None or ground.leaf is None:
            return []
        # A hint is no reason to refuse a result: what is wrong with the leaf, the append itself says.
        with suppress(EntryNotFound, CorruptStore):
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
        except InvalidEntry as error:
            return [changed(entry, oddities=(*entry.oddities, f"not offloaded, the result stays whole: {error}"))]
        stubbed = offloading.with_stub(aside.message(place), result, artifact_id, self._settings.preview_chars)
        payload, _ = encode_json(stubbed, "message")
        return [artifact, changed(entry, payload=payload)]

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
            except CorruptStore:
                continue
            if there is None or there.kind != ARTIFACT or is_of_text(there, text):
                return artifact_id
        raise InvalidEntry("the artifacts that the session sees have all the ids that this one could have")


async def first_landed(backend: Backend, session_id: str, idempotency_key: str | None) -> Entry | None:
    """Return the first entry of the append that had this key before; None if there was none.

    A retry looks for calls where the first try did, below the parent of this entry, so that it has the same hints.
    """
    first = None if idempotency_key is None else await backend.recall_append(session_id, idempotency_key)
    return None if first is None or not first.entry_ids else await backend.get_entry(session_id, first.entry_ids[0])


def checked_offload(settings: OffloadSettings) -> OffloadSettings:
    """Return settings unchanged. Raises `InvalidArgument` for anything else."""
    if not isinstance(settings, offloading.OffloadSettings):
        raise InvalidArgument(f"offload: should be OffloadSettings, not {shown(settings)}")
    return settings


def _may_be_put_aside(entry: NewEntry, settings: OffloadSettings) -> bool:
    # A text is no longer than the JSON that has it: most results are not decoded for this.
    least = settings.least if settings.round_above is None else 0
    return entry.role == "toolResult" and len(entry.payload) > least


def _messages(entries: Sequence[NewEntry]) -> list[JsonObject | None]:
    return [decode_object(entry.payload) if entry.kind == MESSAGE else None for entry in entries]
