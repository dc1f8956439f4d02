"""Programs whose sessions no format reads: where they keep them, and how such files begin, so that each is named.

A line of a program is dropped when it gets a format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import translate
from functools import cache
from glob import iglob
from typing import NamedTuple

from flue_py.errors import InvalidArgument
from flue_py.homes import in_full


class Program(NamedTuple):
    """A program: its name, patterns of its files (``~`` is a home), and what only the beginning of such a file has."""

    name: str
    files: tuple[str, ...]
    sign: bytes | None = None


_EDITORS = ("~/.config/Code", "~/Library/Application Support/Code", "~/.vscode-server/data")
_DATA = ("~/.local/share", "~/Library/Application Support")


def _in(folders: tuple[str, ...], *patterns: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{pattern}" for folder in folders for pattern in patterns)


def _extension(name: str) -> tuple[str, ...]:
    return _in(_EDITORS, f"User/globalStorage/{name}/tasks/*/api_conversation_history.json")


OTHERS = (
    Program("aider", ("~/.aider.chat.history.md",), rb"\s*# aider chat started at "),
    Program("Amp", _in(_DATA, "amp/threads/T-*.json"), rb'\s*\{"v": ?\d+, ?"id": ?"T-'),
    Program("Antigravity", ("~/.gemini/antigravity*/conversations/*",)),
    Program(
        "Cline",
        ("~/.cline/data/sessions/*/*.messages.json", *_extension("saoudrizwan.claude-dev")),
        rb'\s*\{\s*"version": ?\d+,\s*"updated_at"[^{}\[\]]{0,300}"agent"',
    ),
    Program("Codebuff", ("~/.config/manicode/projects/*/chats/*/chat-messages.json",)),
    Program(
        "Codex (compressed rollouts)",
        _in(("~/.codex",), "sessions/**/*.jsonl.zst", "archived_sessions/*.jsonl.zst"),
    ),
    Program(
        "Continue",
        ("~/.continue/sessions/*-*.json",),
        rb'\s*\{\s*"sessionId"[^{}\[\]]{0,2000}"workspaceDirectory"',
    ),
    Program(
        "Copilot CLI",
        ("~/.copilot/session-state/*/events.jsonl", "~/.copilot/session-state/*.jsonl"),
        rb'\s*\{"type": ?"session\.start"',
    ),
    Program("Crush", ("~/.crush/crush.db", "~/.local/share/crush/*.db")),
    Program(
        "Cursor",
        (
            "~/.cursor/chats/*/*/store.db",
            "~/.cursor/projects/*/agent-transcripts/**/*.jsonl",
            *_in(("~/.config", *_DATA), "Cursor/User/globalStorage/state.vscdb"),
        ),
    ),
    Program("Droid", ("~/.factory/sessions/**/*.jsonl",), rb'\s*\{"type": ?"session_start"'),
    Program(
        "Gemini CLI",
        ("~/.gemini/tmp/*/chats/**/*.json*", "~/.gemini/tmp/*/checkpoint-*.json"),
        rb'\s*\{[^{}\[\]]{0,400}"projectHash"',
    ),
    Program("Goose", _in((*_DATA, "~/.config"), "goose/sessions/*.db", "goose/sessions/*.jsonl")),
    Program("Grok CLI", ("~/.grok/sessions/**/*.jsonl",)),
    Program("Hermes", ("~/.hermes/state.db", "~/.hermes/sessions/*.json*")),
    Program("Kilo", (*_extension("kilocode.kilo-code"), *_in(_DATA, "kilo/kilo.db"))),
    Program(
        "Kimi",
        ("~/.kimi-code/sessions/**/wire.jsonl", "~/.kimi/sessions/*/*/context*.jsonl"),
        rb'\s*\{[^{}\[\]]{0,200}"protocol_version"',
    ),
    Program("llm", _in(("~/.config", *_DATA), "io.datasette.llm/logs.db")),
    Program(
        "Mistral Vibe",
        _in(("~/.vibe/logs/session",), "unified/*/CURRENT", "unified/*/*/*.json*", "*.json", "*/messages.jsonl"),
        rb'\s*\[\s*\{"message": ?\{(?s:.)*"turn_index"|\s*\{[^{}]{0,400}"mistral\.vibe\.',
    ),
    Program(
        "OpenCode",
        _in(_DATA, "opencode/opencode*.db", "opencode/storage/session/**/ses_*.json"),
        rb'\s*\{\s*"id": ?"(ses|msg|prt)_[^"]*",\s*"(slug|version|projectID|sessionID|messageID)"',
    ),
    Program(
        "OpenHands",
        ("~/.openhands/conversations/*/base_state.json", "~/.openhands/sessions/*/events/*.json"),
    ),
    Program(
        "Qwen Code",
        ("~/.qwen/projects/*/chats/*.jsonl", "~/.qwen/projects/*/subagents/**/*.jsonl", "~/.qwen/tmp/*/chats/*.json*"),
        rb'([^\n]*\n){0,50}?\{[^\n{}]*"message": ?\{"role": ?"(user|model)", ?"parts": ?\[',
    ),
    Program("Roo Code", _extension("rooveterinaryinc.roo-cline")),
    Program("Zed", _in(_DATA, "[zZ]ed/threads/threads.db")),
)  # fmt: skip
"""By name. The order does not matter: no file has two signs."""


@cache
def _matchers() -> tuple[tuple[str, re.Pattern[str], re.Pattern[bytes] | None], ...]:
    return tuple(
        (
            each.name,
            re.compile("|".join(translate(f"*{file[1:]}") for file in each.files)),
            None if each.sign is None else re.compile(each.sign),
        )
        for each in OTHERS
    )


def program_by_content(first_bytes: bytes) -> str | None:
    """Return the program whose file begins like this, where that is certain whatever formats make of it; or None."""
    first = first_bytes.removeprefix(b"\xef\xbb\xbf")
    return next((name for name, _, sign in _matchers() if sign is not None and sign.match(first)), None)


def program_of(first_bytes: bytes, path: str) -> str | None:
    """Return the program that wrote a file, by how it begins, or by where it is (``path`` is absolute); or None."""
    place = path.replace("\\", "/")
    return program_by_content(first_bytes) or next((name for name, files, _ in _matchers() if files.match(place)), None)


def programs_seen() -> Iterator[tuple[str, int, str]]:
    """Yield each program that has files in its usual places, how many, and the first. O(files)."""
    for each in OTHERS:
        files: list[str] = []
        for pattern in each.files:
            with suppress(InvalidArgument):  # there is no home
                files += iglob(in_full(pattern), recursive=True)
        if files:
            yield each.name, len(set(files)), min(files)
