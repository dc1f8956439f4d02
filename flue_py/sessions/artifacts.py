"""The artifacts of a session: results of tools that are stored whole, beside the conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from flue_py.core.artifacts import Artifact, artifact_of, entry_prefix, message_as_artifact, text_of_artifact
from flue_py.core.entries import Entry
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.kinds import ARTIFACT
from flue_py.errors import ArtifactNotFound, InvalidArgument, shown
from flue_py.lazy import lazy_module
from flue_py.sessions.arguments import checked_id, checked_text
from flue_py.sessions.handle import waiting_of
from flue_py.sessions.reading import Reading
from flue_py.store.backend import Backend

if TYPE_CHECKING:
    from flue_py.context import excerpts
    from flue_py.context.excerpts import ArtifactExcerpt
else:
    # Most sessions have none, and a command should start without this.
    excerpts = lazy_module("flue_py.context.excerpts")

_PAGE = 200


class Artifacts(Reading):
    """What a `Session` has put aside."""

    __slots__ = ()

    async def artifacts(self) -> tuple[Artifact, ...]:
        """Return the artifacts that the session sees, on the path or off it, in the order of `get_tree`.

        A result that came twice is there twice, with one id and an entry each. O(entries), though not their payloads,
        and nothing of the texts.
        """
        found: list[Artifact] = []
        after = None
        while True:
            page = await self._artifact_entries(after)
            found += [artifact for entry in page if (artifact := artifact_of(entry)) is not None]
            if len(page) < _PAGE:
                return tuple(found)
            after = page[-1].id

    async def read_artifact(
        self, artifact_id: str, *, start: int = 0, length: int | None = 20_000, grep: str | None = None
    ) -> ArtifactExcerpt:
        """Return a part of an artifact that the session sees, on the path or off it: in forks, after a rewind.

        The id of a message's entry, which the notes in a request have (`Session.request`), stands for its text: what a
        tool's result says, and the JSON of any other message.

        The ``length`` characters from ``start`` on, of which there may be fewer; None for all. With ``grep``, the lines
        from ``start`` on that have these words, taken literally and in any case, with their numbers: as many as
        ``length`` has room for, and one at least; of a long line 400 characters. Raises `ArtifactNotFound`,
        `InvalidArgument`, and `CorruptStore` where its text is lost. O(size of the artifact).
        """
        checked_id(artifact_id, "artifact_id")
        _check_range(start, length)
        if grep is not None and not excerpts.is_one_line(checked_text(grep, "grep") or ""):
            raise InvalidArgument(f"grep: {shown(grep)} is not words of one line")
        async with self._turn:
            entry = await artifact_entry(self._backend, self._ref, artifact_id)
            said = await self._backend.get_entry(self._ref, artifact_id) if entry is None else None

        def read() -> ArtifactExcerpt:
            artifact, text = _read(self.id, artifact_id, entry, said)
            if grep is None:
                return excerpts.read_range(artifact, text, start, length)
            return excerpts.read_lines(artifact, text, start, length, grep)

        return await waiting_of(self).call(read)

    async def answer_read_artifact(self, call: Mapping[str, JsonValue]) -> JsonObject:
        """Return the result of a model's call of `flue_py.context.excerpts.READ_ARTIFACT_TOOL`, as a message.

        ``call`` is the part of the model's answer: ``id``, ``name``, ``arguments``. What the arguments lack, and an
        artifact that the session does not see, is said in a result that failed. Nothing is appended. Raises
        `InvalidArgument` for a call without an id, and `CorruptStore`. The cost of `read_artifact`.
        """
        call_id = call.get("id") if isinstance(call, Mapping) else None
        if not isinstance(call_id, str):
            raise InvalidArgument(f"call: should be a tool call with an id, not {shown(call)}")
        asked = excerpts.asked_excerpt(call.get("arguments"))
        text, failed = "", isinstance(asked, str)
        if isinstance(asked, str):
            text = asked
        else:
            try:
                read = await self.read_artifact(
                    asked.artifact_id, start=asked.start, length=asked.length, grep=asked.grep
                )
                text = excerpts.excerpt_text(read, asked.grep)
            except (ArtifactNotFound, InvalidArgument) as error:
                text, failed = str(error), True
        return {
            "role": "toolResult",
            "toolCallId": call_id,
            "toolName": excerpts.READ_ARTIFACT_TOOL["name"],
            "content": [{"type": "text", "text": text}],
            "isError": failed,
        }

    async def _artifact_entries(self, after: str | None) -> list[Entry]:
        async with self._turn:
            return await _page(self._backend, self._ref, after)


def _read(session_id: str, artifact_id: str, entry: Entry | None, said: Entry | None) -> tuple[Artifact, str]:
    """Return an artifact and its text, from the entry that has it, or from the message of that id."""
    artifact = None if entry is None else artifact_of(entry)
    if entry is not None and artifact is not None:
        return artifact, text_of_artifact(entry)
    found = None if said is None else message_as_artifact(said)
    if found is None:
        raise ArtifactNotFound(session_id, artifact_id)
    return found


async def artifact_entry(backend: Backend, session_id: str, artifact_id: str) -> Entry | None:
    """Return an entry that has an artifact and that a session sees, with its text; None if there is none.

    Two point reads; O(entries) where the ids of the entries are others, because they were copied or imported.
    """
    ids = await backend.match_entry_ids(session_id, entry_prefix(artifact_id), 1)
    found = await backend.get_entry(session_id, ids[0]) if ids else None
    if found is not None and _has(found, artifact_id):
        return found
    after = None
    while True:
        page = await _page(backend, session_id, after)
        for entry in page:
            if _has(entry, artifact_id):
                return await backend.get_entry(session_id, entry.id)
        if len(page) < _PAGE:
            return None
        after = page[-1].id


async def _page(backend: Backend, session_id: str, after: str | None) -> list[Entry]:
    return await backend.read_entries(session_id, kind=ARTIFACT, after=after, limit=_PAGE, contents=False)


def _has(entry: Entry, artifact_id: str) -> bool:
    artifact = artifact_of(entry)
    return artifact is not None and artifact.id == artifact_id


def _check_range(start: int, length: int | None) -> None:
    if isinstance(start, bool) or not isinstance(start, int) or start < 0:
        raise InvalidArgument(f"start: {shown(start)} is no place in a text; give a whole number >= 0")
    if length is not None and (isinstance(length, bool) or not isinstance(length, int) or length < 1):
        raise InvalidArgument(f"length: {shown(length)} is no number of characters; give one >= 1, or None for all")
