"""Artifacts: results of tools that are stored beside the conversation, whole, with a stub in their place.

An artifact is an entry of its own, the parent of the message that refers to it: a fork that has the message has the
artifact, and both are deleted together. Its text is base64 of its UTF-8, which is cut out of the payload and stored
once per tree (`flue_py.core.cutting`): no context reads a byte of it.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256

from flue_py.core.entries import Entry, NewEntry
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.kinds import ARTIFACT, MESSAGE
from flue_py.core.spoken import message_text
from flue_py.errors import CorruptStore, shown

OFFLOADED = "offloaded"
"""The field of a tool's result that says of which artifact its text is the stub: ``{"artifact": id}``."""

OF = "artifact"
"""The field of that, and of an artifact's own entry, which has the id."""

_DIGITS, _MORE_DIGITS = 12, 4


@frozen
class Artifact:
    """A result that is stored whole, beside the conversation.

    ``tool`` is the tool's name, or None where nothing says it, ``hint`` the argument of the call that tells most
    (``path=src/a.py``), or "". ``call_id`` is the id of the tool call, ``entry_id`` that of the artifact's own entry,
    which the message with the stub comes after.
    """

    id: str
    tool: str | None
    hint: str
    characters: int
    call_id: str | None
    entry_id: str
    created_at: datetime

    @property
    def json(self) -> JsonObject:
        """The artifact as JSON."""
        return {
            "id": self.id,
            "tool": self.tool,
            "hint": self.hint,
            "characters": self.characters,
            "callId": self.call_id,
            "entryId": self.entry_id,
            "createdAt": self.created_at.isoformat(),
        }


def artifact_ids(text: str) -> list[str]:
    """Return the ids that an artifact of this text may have: the first that has no other text is its own. O(size)."""
    digest = sha256(text.encode()).hexdigest()
    return [digest[:digits] for digits in range(_DIGITS, len(digest) + 1, _MORE_DIGITS)]


def entry_prefix(artifact_id: str) -> str:
    """Return how the ids of the entries begin that an artifact is stored in by `new_artifact`."""
    return f"{artifact_id}-"


def new_artifact(
    artifact_id: str,
    text: str,
    *,
    tool: str | None,
    hint: str,
    call_id: str | None,
    parts: list[JsonValue] | None,
    drawn_id: str,
) -> NewEntry:
    """Return an artifact as an entry. ``parts`` are the parts that its text was joined from, if those were several.

    Its id begins with that of the artifact, so that it is found by that, and ends with one that was drawn. O(size).
    """
    data = text.encode()
    named: JsonObject = {OF: artifact_id, "tool": tool, "hint": hint or None, "chars": len(text)}
    named |= {"sha256": sha256(data).hexdigest(), "toolCallId": call_id, "parts": parts}
    payload: JsonObject = {name: value for name, value in named.items() if value is not None}
    payload["content"] = b64encode(data).decode()
    return NewEntry.custom(ARTIFACT, payload, id=entry_prefix(artifact_id) + drawn_id)


def artifact_of(entry: Entry) -> Artifact | None:
    """Return the artifact that an entry has, with its text or read without it; None for any other entry."""
    if entry.kind != ARTIFACT:
        return None
    fields = entry.data
    if not isinstance(fields, dict):
        return None
    artifact_id, characters, hint = fields.get(OF), fields.get("chars"), fields.get("hint")
    if not isinstance(artifact_id, str) or not isinstance(characters, int):
        return None
    tool, call_id = (text if isinstance(text := fields.get(name), str) else None for name in ("tool", "toolCallId"))
    told = hint if isinstance(hint, str) else ""
    return Artifact(artifact_id, tool, told, characters, call_id, entry.id, entry.created_at)


def message_as_artifact(entry: Entry) -> tuple[Artifact, str] | None:
    """Return a message as if it were an artifact with the id of its entry, and its text; None for any other entry.

    That is what a note stands for in whose place a request had no room for the whole. The text of a tool's result is
    what it says, that of any other message its JSON, since calls are a part of it. O(size).
    """
    if entry.kind != MESSAGE:
        return None
    message = entry.fields
    text = message_text(message) if entry.role == "toolResult" else entry.payload
    tool, call_id = (
        name if isinstance(name := message.get(field), str) else None for field in ("toolName", "toolCallId")
    )
    return Artifact(entry.id, tool, "", len(text), call_id, entry.id, entry.created_at), text


def is_of_text(entry: Entry, text: str) -> bool:
    """Return whether an artifact's entry, read with its text or without it, was made of this text. O(size)."""
    fields = entry.data
    return isinstance(fields, dict) and fields.get("sha256") == sha256(text.encode()).hexdigest()


def text_of_artifact(entry: Entry) -> str:
    """Return the text of an artifact's entry. Raises `CorruptStore` if it is lost, or is another. O(size)."""
    fields = entry.fields
    artifact_id, content = fields.get(OF), fields.get("content")
    try:
        text = b64decode(content, validate=True).decode() if isinstance(content, str) else ""
    except (NotBase64, UnicodeDecodeError):
        text = ""
    if not isinstance(artifact_id, str) or not sha256(text.encode()).hexdigest().startswith(artifact_id):
        raise CorruptStore(
            f"the text of artifact {shown(artifact_id)} in entry {entry.id!r} is lost; verify() names what is missing: "
            "restore a backup"
        )
    return text


def readable(entry: Entry) -> tuple[JsonObject, str] | None:
    """Return what an artifact's entry says beside its text, and that; None for any other entry, and if it is lost."""
    if artifact_of(entry) is None:
        return None
    try:
        text = text_of_artifact(entry)
    except CorruptStore:
        return None
    return {name: value for name, value in entry.fields.items() if name != "content"}, text


def referred_artifact(message: Mapping[str, JsonValue]) -> str | None:
    """Return the id of the artifact that a message has the stub of; None for any other message. O(1)."""
    said = message.get(OFFLOADED)
    artifact_id = said.get(OF) if isinstance(said, dict) else None
    return artifact_id if isinstance(artifact_id, str) else None
