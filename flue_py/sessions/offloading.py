"""Putting long results of tools aside as artifacts, on their way into a session."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from flue_py.core.artifacts import artifact_ids, entry_prefix, is_of_text, new_artifact
from flue_py.core.entries import NewEntry
from flue_py.core.exchange import answered_id, tool_calls
from flue_py.core.frozen import changed
from flue_py.core.jsontext import JsonObject, JsonValue, decode_object, encode_json
from flue_py.core.kinds import ARTIFACT
from flue_py.errors import CorruptStore, EntryNotFound, InvalidArgument, InvalidEntry, shown
from flue_py.lazy import lazy_module
from flue_py.sessions.contexts import Contexts
from flue_py.sessions.incoming import Incoming

if TYPE_CHECKING:
    from flue_py.context import offloading
    from flue_py.context.offloading import LongResult, OffloadSettings
else:
    # Most appends put nothing aside, and a command should start without this.
    offloading = lazy_module("flue_py.context.offloading")

_NEAR = 32
"""How many of the last messages are looked through for the call that a result answers, from which its hint is."""


class Offloading(Contexts):
    """How a `Session` puts long results aside."""

    __slots__ = ()

    async def _with_stubs(self, incoming: Incoming, settings: OffloadSettings, leaf: str | None) -> Incoming:
        """Return messages that come below ``leaf`` with each long result as an artifact and a stub.

        A result stays as it is where its artifact would be refused for its size, and its ``oddities`` say so.
        """
        long = [place for place, entry in enumerate(incoming.entries) if _may_be_long(entry, settings)]
        if not long:
            return incoming
        calls = await self._calls_near(leaf, incoming)
        became: list[list[NewEntry]] = [[entry] for entry in incoming.entries]
        for place in long:
            entry = incoming.entries[place]
            message = decode_object(entry.payload)
            result = offloading.long_result(message, settings, calls.get(answered_id(message) or ""))
            if result is not None:
                became[place] = await self._put_aside(entry, message, result)
        begins = [0]
        for entries in became:
            begins.append(begins[-1] + len(entries))
        starts = [begins[start] for start in incoming.starts]
        return Incoming([entry for entries in became for entry in entries], starts, incoming.shapes)

    async def _calls_near(self, leaf: str | None, incoming: Incoming) -> Mapping[str, JsonObject]:
        """Return the latest tool calls by their ids: those of the end of the context, and of the messages."""
        said: list[Mapping[str, JsonValue]] = []
        if leaf is not None:
            # A hint is no reason to refuse a result: what is wrong with the leaf, the append itself says.
            with suppress(EntryNotFound, CorruptStore):
                said += await self.build_context(leaf=leaf, limit=_NEAR)
        said += [decode_object(entry.payload) for entry in incoming.entries if entry.role == "assistant"]
        return {str(call.get("id")): call for message in said for call in tool_calls(message)}

    async def _put_aside(self, entry: NewEntry, message: JsonObject, result: LongResult) -> list[NewEntry]:
        artifact_id = await self._free_artifact_id(result.text)
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
        payload, _ = encode_json(offloading.with_stub(message, result, artifact_id), "message")
        return [artifact, changed(entry, payload=payload)]

    async def _free_artifact_id(self, text: str) -> str:
        """Return the id of the artifact of a text: the shortest that no artifact of another text has."""
        for artifact_id in artifact_ids(text):
            ids = await self._backend.match_entry_ids(self._ref, entry_prefix(artifact_id), 1)
            if not ids:
                return artifact_id
            try:
                there = await self._backend.get_entry(self._ref, ids[0])
            except CorruptStore:
                continue
            if there is None or there.kind != ARTIFACT or is_of_text(there, text):
                return artifact_id
        raise InvalidEntry("the artifacts that the session sees have all the ids that this one could have")


def checked_offload(settings: OffloadSettings) -> OffloadSettings:
    """Return settings unchanged. Raises `InvalidArgument` for anything else."""
    if not isinstance(settings, offloading.OffloadSettings):
        raise InvalidArgument(f"offload: should be OffloadSettings, not {shown(settings)}")
    return settings


def _may_be_long(entry: NewEntry, settings: OffloadSettings) -> bool:
    # A text is no longer than the JSON that has it: most results are not decoded for this.
    return entry.role == "toolResult" and len(entry.payload) > settings.least
