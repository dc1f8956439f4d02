"""The rows of a Claude Code transcript: how a file of them begins, and what every row may have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeGuard

from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.formats.kit.rows import Notes, decode_row, has_type, is_name, unusable_id
from flue_py.formats.kit.streaming import first_rows
from flue_py.formats.kit.values import entry_kind, one_text

FORMAT = "claude-code"
PREFIX = "claude_code."
"""Before the type of a row that is not part of the conversation."""
UNREADABLE = "unreadable_"

CONSTANT = ("sessionId", "cwd", "version", "gitBranch", "userType", "entrypoint")
"""What is the same all over a file."""
API_ERROR = "api_error"
# Written between two turns only: what they follow is complete.
BETWEEN_TURNS = frozenset({"system", "summary", "custom-title", "last-prompt"})
KNOWN = BETWEEN_TURNS | {
    "permission-mode", "pr-link", "mode", "cost-state", "tools-used", "atis-latch",
    "api-request", "api-request-shape", "api-request-blob",
    "user", "assistant", "progress", "attachment", "file-history-snapshot", "queue-operation", "ai-title",
    "agent-name", "agent-color", "agent-setting", "worktree-state", "tag", "saved_hook_context", "content-replacement",
    "attribution-snapshot", "marble-origami-commit", "speculation-accept",
}  # fmt: skip
_NO_MESSAGE: JsonObject = {}
_BEGINNING = re.compile(rb"""\s*\{"parentUuid": ?(null|"[^"]{0,500}"),""")


def looks_like_claude_code(first_bytes: bytes, path: str) -> bool:
    """Return whether a file begins like a Claude Code transcript: other programs have such rows, too, not messages."""
    notes, has_row, has_others = Notes(), False, False
    for raw in first_rows(first_bytes):
        row = decode_row(2, raw, notes)
        if row is None or not isinstance(row.get("type"), str):
            continue
        message = row.get("message")
        is_row = "parentUuid" in row and ("sessionId" in row or "isSidechain" in row)
        if is_row and isinstance(message, dict) and row["type"] in ("user", "assistant"):
            if "content" in message:
                return True
            has_others = True
        has_row = (
            has_row
            or is_row
            or (row["type"] == "file-history-snapshot" and "messageId" in row)
            or (row["type"] == "summary" and "leafUuid" in row)
            or (row["type"] in KNOWN and "sessionId" in row and "uuid" not in row and "payload" not in row)
        )
    if has_row:
        return not has_others
    # A first line longer than what was read: a prompt with an image, say.
    start = first_bytes.removeprefix(b"\xef\xbb\xbf")
    return b"\n" not in start and _BEGINNING.match(start) is not None and b'"isSidechain":' in start[:2000]


@dataclass(slots=True)
class ClaudeRow:
    """One row, with what every row may have. ``message`` is empty if it has none."""

    line: int
    raw: bytes
    type: str
    fields: JsonObject
    uuid: str | None
    parent: str | None
    message: JsonObject
    has_message: bool
    lost_parent: bool = False

    @property
    def text(self) -> str:
        """The row as it stands in the file."""
        return self.raw.decode(errors="replace").strip()


def read_claude_row(number: int, raw: bytes, notes: Notes) -> ClaudeRow | None:
    """Return the row on a line; None for a blank line, and if it is not a row, which is noted. O(size)."""
    fields = decode_row(number, raw, notes)
    if fields is None or not has_type(number, fields, notes):
        return None
    uuid, parent, message = fields.get("uuid"), fields.get("parentUuid"), fields.get("message")
    is_object = isinstance(message, dict)
    if isinstance(uuid, str) and uuid and not is_name(uuid):
        notes.repair(number, f"{unusable_id(uuid)}; it was given another")
    return ClaudeRow(
        number,
        raw,
        str(fields["type"]),
        fields,
        uuid if is_name(uuid) else None,
        parent if isinstance(parent, str) and parent else None,
        message if isinstance(message, dict) else _NO_MESSAGE,
        is_object,
    )


def message_name(row: ClaudeRow) -> str:
    """Return what the rows of one message have in common; behind some gateways all messages have it in common."""
    for name in (row.message.get("id"), row.fields.get("requestId")):
        # A name of NULs alone is none.
        if isinstance(name, str) and (key := one_text(name)):
            return key
    return f"row {row.uuid or row.line}"


def is_failure(row: ClaudeRow) -> bool:
    """Return whether a row says that a call failed: the program shows it as an answer, and never sends it."""
    return row.type == "assistant" and row.fields.get("isApiErrorMessage") is True


def sent_with(row: ClaudeRow) -> JsonObject | None:
    """Return the message that an attachment was sent as; None if it was not sent, as far as the row says.

    That is what a person typed while the model worked, and, in rows of newer versions, the text that was made of it.
    """
    attachment = row.fields.get("attachment")
    about = attachment if isinstance(attachment, dict) else _NO_MESSAGE
    rendered = row.fields.get("rendered") or about.get("rendered")
    role = row.fields.get("renderedRole") or about.get("renderedRole")
    is_typed = about.get("type") == "queued_command"
    content = (about.get("prompt") if is_typed else None) or rendered
    if row.type != "attachment" or not content or not isinstance(content, (str, list)):
        return None
    is_prompt = is_typed and about.get("commandMode", "prompt") == "prompt"
    said: JsonObject = {"role": "system" if role == "system" and not is_typed else "user", "content": content}
    return said if is_prompt else {**said, "isMeta": True}


def is_result(part: JsonValue) -> TypeGuard[JsonObject]:
    """Return whether a part of a message is what a tool answered."""
    return isinstance(part, dict) and part.get("type") == "tool_result"


def is_said(row: ClaudeRow) -> bool:
    """Return whether a row is something that the user said: then the message before it is complete.

    What the program adds as the user (the body of a skill, say) may stand between two calls of one message.
    """
    if row.type != "user" or not row.has_message or row.fields.get("isMeta") is True:
        return False
    content = row.message.get("content")
    return not (isinstance(content, list) and any(is_result(part) for part in content))


def kept_rows(about: JsonObject) -> tuple[JsonValue, JsonValue]:
    """Return the first and the last row that a compaction keeps: as the ends of a segment, or in a list of all."""
    segment, listed = about.get("preservedSegment"), about.get("preservedMessages")
    if isinstance(segment, dict):
        return segment.get("headUuid"), segment.get("tailUuid")
    uuids = listed.get("uuids") if isinstance(listed, dict) else None
    return (uuids[0], uuids[-1]) if isinstance(uuids, list) and uuids else (None, None)


def kind_of(row: ClaudeRow) -> str:
    """Return the kind of entry that a row outside the conversation becomes."""
    if is_failure(row):
        return entry_kind(PREFIX, API_ERROR)
    subtype = row.fields.get("subtype")
    name = f"{row.type}.{subtype}" if row.type == "system" and isinstance(subtype, str) else row.type
    return entry_kind(PREFIX, name)
