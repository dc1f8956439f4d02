"""Contexts for the tests of conversions: those of real transcripts, and one made by hand with everything in it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import flue_py
from flue_py.core.context import ContextEntry
from flue_py.core.json import JsonObject
from tests.formats.transcripts import CLAUDE, CODEX_MADE, CODEX_REAL, lines_of
from tests.values import existing

TRANSCRIPTS = (CLAUDE, CODEX_REAL, CODEX_MADE, "pi/large-session.jsonl.gz")

PNG = "iVBORw0KGgoA"
"""How a picture begins."""

EVERYTHING: list[JsonObject] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Why is the build red?", "timestamp": 1_790_000_000_000},
    {
        "role": "assistant",
        "provider": "anthropic",
        "model": "large-1",
        "content": [
            {"type": "thinking", "thinking": "Look first.", "thinkingSignature": "c2ln"},
            {"type": "text", "text": "I look."},
            {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "build.log"}},
            {"type": "toolCall", "id": "c2", "name": "show", "arguments": {}},
        ],
        "usage": {"input": 20, "output": 8, "cacheRead": 100, "totalTokens": 128, "reasoning": 3},
        "stopReason": "toolUse",
        "timestamp": 1_790_000_001_000,
    },
    {"role": "toolResult", "toolCallId": "c1", "toolName": "read", "content": "TIMEOUT", "isError": True},
    {
        "role": "toolResult",
        "toolCallId": "c2",
        "toolName": "show",
        "content": [{"type": "text", "text": "a"}, {"type": "image", "data": PNG, "mimeType": "image/png"}],
    },
    {"role": "assistant", "content": "It times out.", "provider": "anthropic", "stopReason": "stop"},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "And this?"},
            {"type": "image", "url": "https://example.org/a.png"},
            {"type": "file", "data": "JVBERi0x", "mimeType": "application/pdf", "filename": "a.pdf"},
        ],
    },
    {"role": "bashExecution", "command": "ls", "output": "a.py", "exitCode": 0},
    {"role": "assistant", "content": [{"type": "text", "text": "A plan."}], "provider": "anthropic"},
    {"role": "user", "content": "Thanks."},
]


@cache
def context_of(name: str) -> Sequence[ContextEntry]:
    """Return the context of a stored transcript, as an import and a session give it."""
    with TemporaryDirectory() as folder, flue_py.sync.open(":memory:", prices=False) as store:
        file = Path(folder) / "session.jsonl"
        file.write_bytes(b"".join(lines_of(name)))
        (imported,) = flue_py.sync.import_file(store, file).sessions
        session = existing(store.get_session(imported.session_id))
        return session.build_context_entries()
