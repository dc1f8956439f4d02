"""pi session files for the tests: the real one, hand-made ones, and what a path of a parsed file shows."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from flue_py.core.context import project
from flue_py.core.entries import Entry
from flue_py.core.json import JsonObject, JsonValue
from flue_py.core.kinds import message_text
from flue_py.formats.kit import SessionPart, read_lines
from flue_py.formats.pi import PiReader
from flue_py.providers.lists import bash_text

DATA = Path(__file__).parent.parent / "data" / "pi"
SESSION_ID = "6f0c1c1e-0000-4000-8000-000000000001"
HEADER = {
    "type": "session", "version": 3, "id": SESSION_ID, "timestamp": "2026-01-05T10:00:00.000Z", "cwd": "/home/dev/demo",
}  # fmt: skip


def real_lines() -> list[bytes]:
    """Return the lines of the real session file."""
    return gzip.decompress((DATA / "large-session.jsonl.gz").read_bytes()).splitlines(keepends=True)


def real_facts() -> dict[str, Any]:
    """Return what pi itself makes of the real session file."""
    facts: dict[str, Any] = json.loads(gzip.decompress((DATA / "large-session.expected.json.gz").read_bytes()))
    return facts


def every_type() -> list[dict[str, Any]]:
    """Return a version 3 file with every entry type, two branches and a compaction, header first."""
    at = iter(f"2026-01-05T10:00:{second:02d}.000Z" for second in range(1, 60))
    usage = {
        "input": 100, "output": 20, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 120,
        "cost": {"input": 0.0003, "output": 0.0003, "cacheRead": 0, "cacheWrite": 0, "total": 0.0006},
    }  # fmt: skip
    said = {
        "u0000001": {"role": "user", "content": [{"type": "text", "text": "Add a parser"}], "timestamp": 1767607203000},
        "a0000001": {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Read first.", "thinkingSignature": "sig"},
                {"type": "text", "text": "Reading."},
                {"type": "toolCall", "id": "call_1", "name": "read", "arguments": {"path": "src/ini.py"}},
            ],
            "api": "anthropic-messages",
            "provider": "anthropic",
            "model": "claude-sonnet-4-5",
            "usage": usage,
            "stopReason": "toolUse",
            "timestamp": 1767607204000,
        },
        "r0000001": {
            "role": "toolResult",
            "toolCallId": "call_1",
            "toolName": "read",
            "content": [
                {"type": "text", "text": "(empty)"},
                {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            ],
            "details": {},
            "isError": False,
            "timestamp": 1767607205000,
        },
        "b0000001": bash("pytest -q", "1 failed", exitCode=1, truncated=True, fullOutputPath="/var/log/out.txt"),
        "b0000002": bash("ls ~", "secret", excludeFromContext=True),
        "h0000001": {"role": "custom", "customType": "hook", "content": "from a hook", "display": True, "timestamp": 1},
        "u0000002": {"role": "user", "content": "Try the standard library instead", "timestamp": 1767607220000},
    }

    def row(kind: str, entry_id: str, parent: str | None, **fields: Any) -> dict[str, Any]:
        return {"type": kind, "id": entry_id, "parentId": parent, "timestamp": next(at), **fields}

    def message(entry_id: str, parent: str | None) -> dict[str, Any]:
        return row("message", entry_id, parent, message=said[entry_id])

    details = {"readFiles": ["src/ini.py"], "modifiedFiles": []}
    return [
        HEADER,
        row("model_change", "m0000001", None, provider="openai", modelId="gpt-5.1-codex"),
        row("thinking_level_change", "t0000001", "m0000001", thinkingLevel="high"),
        message("u0000001", "t0000001"),
        message("a0000001", "u0000001"),
        message("r0000001", "a0000001"),
        message("b0000001", "r0000001"),
        message("b0000002", "b0000001"),
        row(
            "compaction",
            "k0000001",
            "b0000002",
            summary="## Goal: a parser",
            firstKeptEntryId="r0000001",
            tokensBefore=960,
            details=details,
            fromHook=False,
        ),
        message("h0000001", "k0000001"),
        row("branch_summary", "s0000001", "u0000001", fromId="u0000001", summary="Tried regex.", details=details),
        row("branch_summary", "s0000002", "s0000001", fromId="root", summary="", fromHook=True),
        row("custom", "c0000001", "s0000002", customType="todo-ext", data={"items": ["tests"]}),
        row("custom_message", "x0000001", "c0000001", customType="lint-ext", content="ruff: 0 issues", display=False),
        row("label", "l0000001", "x0000001", targetId="a0000001", label="first-version"),
        row("session_info", "i0000001", "l0000001", name="  INI parser session "),
        message("u0000002", "i0000001"),
        row("label", "l0000002", "u0000002", targetId="x0000001", label="lint"),
        row("label", "l0000003", "l0000002", targetId="x0000001"),
        row("future_kind", "f0000001", "l0000003", payload={"deep": [1, {"a": None}]}),
    ]


def row(kind: str, entry_id: str, parent: str | None, /, **fields: Any) -> dict[str, Any]:
    """Return a row of a kind, with the time at which all such rows were written."""
    return {"type": kind, "id": entry_id, "parentId": parent, "timestamp": "2026-01-05T10:00:01.000Z", **fields}


def said(entry_id: str, parent: str | None, text: str = "hello", **fields: Any) -> dict[str, Any]:
    """Return the row of a message of the user."""
    message = {"role": "user", "content": text, "timestamp": 1}
    return {**row("message", entry_id, parent, message=message), **fields}


def bash(command: str, output: str, **fields: Any) -> dict[str, Any]:
    """Return a bashExecution message."""
    message = {"role": "bashExecution", "command": command, "output": output, "exitCode": 0, "cancelled": False}
    return {**message, "truncated": False, "timestamp": 1767607206000, **fields}


def parse_pi(lines: Sequence[bytes], name: str = "the file") -> SessionPart:
    """Return the one session of a pi file."""
    reader = PiReader(name)
    (part,) = read_lines(reader, lines)
    return replace(part, report=reader.report())


def as_lines(rows: list[Any]) -> list[bytes]:
    """Return rows as the lines of a file; a str or bytes stands for itself."""
    texts = [row if isinstance(row, (str, bytes)) else json.dumps(row) for row in rows]
    return [(text if isinstance(text, bytes) else text.encode()) + b"\n" for text in texts]


def path_to(parsed: SessionPart, leaf: str | None) -> list[Entry]:
    """Return the path of a parsed file, root to leaf, as entries of a store would stand on it."""
    by_id = {entry.id: entry for entry in parsed.entries}
    path = []
    at = leaf
    while at is not None:
        path.append(by_id[at])
        at = by_id[at].parent_id
    return [
        Entry(
            id=str(new.id),
            parent_id=new.parent_id,
            session_id=SESSION_ID,
            kind=new.kind,
            role=new.role,
            source=None,
            depth=depth,
            revision=1,
            ordinal=depth,
            created_us=new.created_us or 0,
            payload=new.payload,
            extra=new.extra,
        )
        for depth, new in enumerate(reversed(path))
    ]


def context_at(parsed: SessionPart, leaf: str | None) -> list[dict[str, Any]]:
    """Return the messages of the context at a leaf of a parsed file."""
    return [item.data for item in project(path_to(parsed, leaf))]


def rule_text(message: dict[str, Any]) -> str:
    """Return the text of a message by the rule of the expected file."""
    if message["role"] == "bashExecution":
        return f"{message['command']}\n{message['output']}"
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or [] if part["type"] == "text")


def role_and_digest(message: dict[str, Any]) -> tuple[str, str]:
    """Return role and SHA-256 of the text of a message, as the expected file lists them."""
    return message["role"], sha256(rule_text(message).encode()).hexdigest()


def sequence_digest(messages: list[dict[str, Any]]) -> str:
    """Return the digest by which the expected file names a whole context."""
    return sha256("\n".join(":".join(role_and_digest(message)) for message in messages).encode()).hexdigest()


def messages_for_model(context: Iterable[JsonObject]) -> list[JsonObject]:
    """Return the messages of a context as pi sends them: roles user, assistant and toolResult only.

    A ``bashExecution`` becomes a user message with `bash_text`, and goes where it says ``excludeFromContext``; a
    ``custom`` message becomes a user message; any other role is left out. Cost: O(messages).
    """
    sent: list[JsonObject] = []
    for message in context:
        role = message.get("role")
        if role in ("user", "assistant", "toolResult"):
            sent.append(message)
        elif role == "bashExecution" and not message.get("excludeFromContext"):
            sent.append(_from_user(bash_text(message), message))
        elif role == "custom":
            content = message.get("content")
            sent.append(_from_user(content if isinstance(content, list) else message_text(message), message))
    return sent


def _from_user(content: str | list[JsonValue], message: JsonObject) -> JsonObject:
    parts: JsonValue = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {"role": "user", "content": parts, "timestamp": message.get("timestamp")}
