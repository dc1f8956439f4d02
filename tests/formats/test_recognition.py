"""How files of programs begin, which beginnings are of others, and what their readers refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flue_py.errors import UnreadableFile
from flue_py.formats.kit import read_lines
from flue_py.formats.registry import find_format, recognize
from tests.formats.transcripts import CLAUDE, CODEX_REAL, lines_of
from tests.tables import inputs

SAID = {"role": "user", "content": "hi"}
SAVED = [{"role": "user", "parts": [{"text": "hi"}]}, {"role": "model", "parts": [{"text": "ho"}]}]
OF_GEMINI = {"sessionId": "s-1", "projectHash": "ab12", "startTime": "2026-11-27T10:00:00.000Z", "kind": "main"}
OF_CLAUDE: dict[str, Any] = {"uuid": "u", "parentUuid": None, "sessionId": "s", "type": "user", "message": SAID}
OF_QWEN = OF_CLAUDE | {"message": {"role": "user", "parts": [{"text": "hi"}]}}
OF_NOUMEN = {"type": "message", "uuid": "u1", "sessionId": "demo", "message": SAID}
OF_PI = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-05T10:00:00.000Z", "cwd": "/"}
OF_AMP = {"v": 195, "id": "T-1", "created": 1768822800000, "messages": []}
OF_CLINE = {"version": 1, "updated_at": "2026-11-28T10:00:00.000Z", "agent": "lead", "sessionId": "s", "messages": []}
OF_A_TASK = [{"role": "user", "content": [{"type": "text", "text": "Fix it"}], "ts": 1000}]
OF_REPL = {
    "SessionId": "a87569bcd7b0", "ModelId": "claude-sonnet-4-6", "Cwd": "/w", "StartedAt": "2026-05-25T14:32:00Z",
    "TurnIndex": 2, "History": [{"Role": "user", "Contents": [{"Type": "text", "Text": "hi"}]}],
}  # fmt: skip
OF_A_RUN = {
    "SessionId": "a3f92c1d", "Task": "x", "ConfigPath": "/w/o.yaml",
    "Messages": [{"Content": '"History": "ModelId"', "AgentName": "Developer", "Role": "assistant"}],
}  # fmt: skip
INDEX = {"a3f92c1d": {"SessionId": "a3f92c1d", "Task": "x", "TurnCount": 1}}
IN_KIMI = "/h/.kimi/sessions/ab/cd"

BEGINNINGS: list[tuple[str, Any, str, bool]] = [
    ("aider", b"# aider chat started at 2026-11-28 10:00:00\n", "", True),
    ("aider", b"# aider chat\n", "", False),
    ("amp", OF_AMP, "", True),
    ("amp", {"v": 1, "id": "x"}, "", False),
    ("claude-code", b"".join(lines_of(CLAUDE))[:65536], "x.jsonl", True),
    ("claude-code", b"".join(lines_of(CODEX_REAL)), "x.jsonl", False),
    ("claude-code", OF_QWEN, "x.jsonl", False),
    ("cline", OF_A_TASK, "C:\\tasks\\1\\api_conversation_history.json", True),
    ("cline", [{"ts": 900, "type": "say"}], "/x/ui_messages.json", True),
    ("cline", OF_CLINE, "/x/s.messages.json", True),
    ("cline", OF_CLINE, "/x/s.compaction.json", False),
    ("codex", b"".join(lines_of(CLAUDE))[:65536], "x.jsonl", False),
    ("copilot-cli", {"type": "session.start", "id": "e0", "data": {"sessionId": "s-1"}}, "events.jsonl", True),
    ("copilot-cli", {"type": "session.start", "data": {}}, "events.jsonl", True),
    ("copilot-cli", {"type": "session.start", "data": 7}, "events.jsonl", False),
    ("copilot-cli", {"type": "session", "data": {}}, "events.jsonl", False),
    ("droid", {"type": "session_start", "id": "s-1", "title": "About a", "cwd": "/w"}, "s.jsonl", True),
    ("droid", {"type": "session_start", "session_id": "x"}, "s.jsonl", False),
    ("droid", {"type": "message", "id": "m1", "message": SAID}, "s.jsonl", False),
    ("fuseraft-repl", OF_REPL, "", True),
    ("fuseraft-repl", OF_A_RUN, "", False),
    ("fuseraft-repl", INDEX, "repl-sessions/index.json", False),
    ("fuseraft-run", OF_A_RUN, "", True),
    ("fuseraft-run", OF_REPL, "", False),
    ("fuseraft-run", INDEX, "", False),
    ("fuseraft-run", b"[]", "", False),
    ("gemini-cli", OF_GEMINI, "", True),
    ("gemini-cli", OF_GEMINI | {"messages": []}, "", True),
    ("gemini-cli", b'{\n  "sessionId": "s",\n  "projectHash": "x",', "", True),
    ("gemini-cli", {"sessionId": "s", "messages": []}, "", False),
    ("gemini-cli", {"history": SAVED, "authType": "oauth"}, "checkpoint-a.json", True),
    ("gemini-cli", {"history": SAVED}, "elsewhere.json", True),
    ("gemini-cli", {"history": [{"parts": [], "role": "user"}]}, "checkpoint-a.json", True),
    ("gemini-cli", SAVED, "/home/me/.gemini/tmp/p/checkpoint-a.json", True),
    ("gemini-cli", SAVED, "contents.json", False),
    ("gemini-cli", {"history": SAVED}, "/home/me/.qwen/tmp/p/checkpoint-a.json", False),
    ("gemini-cli", {"history": [{"type": "user", "text": "hi"}]}, "checkpoint-a.json", False),
    ("gemini-cli", {"history": []}, "checkpoint-a.json", False),
    ("kimi", {"type": "metadata", "protocol_version": "1.5", "created_at": 1_795_897_000_000}, "", True),
    ("kimi", {"type": "metadata", "protocol_version": "1.9"}, "", False),
    ("kimi", {"role": "_checkpoint", "id": 0}, "", False),
    ("kimi-cli", {"role": "_checkpoint", "id": 0}, "x.jsonl", True),
    ("kimi-cli", SAID, f"{IN_KIMI}/context.jsonl", True),
    ("kimi-cli", SAID, "x.jsonl", False),
    ("kimi-cli", {"type": "metadata", "protocol_version": "1.9"}, f"{IN_KIMI}/wire.jsonl", False),
    ("kimi-cli", b"", f"{IN_KIMI}/context.jsonl", False),
    ("noumen", OF_NOUMEN, "", True),
    ("noumen", OF_PI, "", False),
    ("noumen", {"type": "summary", "summary": "T", "leafUuid": "a"}, "", False),
    ("opencode", b'{\n  "id": "ses_1",\n  "version": "0.1"', "/a/storage/session/p/ses_1.json", True),
    ("opencode", b'{\n  "id": "msg_1",\n  "role": "user"', "/a/storage/message/ses_1/msg_1.json", False),
    ("opencode", {"id": "abc", "messages": []}, "/a/session/other.json", False),
    ("opencode", b"SQLite format 3\0", "/a/opencode.db", False),
    ("openhands", {"id": "x", "agent": {}}, "", False),
    ("qwen-code", OF_QWEN, "x.jsonl", True),
    ("qwen-code", json.dumps(OF_QWEN).encode()[:-3], "x.jsonl", True),
    ("qwen-code", OF_CLAUDE | {"type": "system", "systemPayload": {}}, "x.jsonl", True),
    ("qwen-code", OF_CLAUDE, "x.jsonl", False),
    ("qwen-code", json.dumps(OF_CLAUDE).encode()[:-3], "x.jsonl", False),
    ("qwen-code", SAVED, "x.jsonl", False),
]
NONE = [b"", b"\n", b"null", b"7", b"{}", b"{", b"nothing\n", b'{"type":"x"}\n', b"SQLite format 3\0", b"{" * 9999]
REFUSED: dict[str, list[bytes]] = {
    "amp": [b"[]", b'{"id": "T-1", "messages": 1}', b'{"id": "x", "messages": []}'],
    "claude-code": [],
    "cline": [b'{"sessionId": "s", "messages": 1}', b'{"sessionId": "", "messages": []}', b'"x"'],
    "codex": [b'{"type":"message","role":"user"}\n'],
    "copilot-cli": [b'{"type":"session.start"}\n', b'{"type":"x","data":{}}\n'],
    "droid": [json.dumps(OF_PI).encode()],
    "fuseraft-repl": [b'{"SessionId":"a"}', b'{"SessionId":"","History":[]}', b"[" * 9999],
    "gemini-cli": [b"[]", b'{"projectHash":1}\n{"id":"x"}\n'],
    "kimi": [b'{"type":"metadata"}\n', b'{"type":"x","protocol_version":"1"}\n'],
    "noumen": [json.dumps(OF_PI).encode(), b'{"type":"user"}\n'],
    "pi": [
        b'{"type":"message","id":"a","parentId":null}\n', b'{"type":"session","version":3}\n',
        b'{"type":"session","version":3,"id":7}\n', b'{"type":"session","version":3,"id":""}\n',
        b'{"type":"session","version":3,"id":"a\\u0000b"}\n', b"SQLite format 3\0" + bytes(range(256)),
    ],
}  # fmt: skip


@inputs(("name", "beginning", "path", "is_one"), BEGINNINGS)
def test_the_beginning_and_the_place_of_a_file_tell_it_from_others(
    name: str, beginning: Any, path: str, is_one: bool
) -> None:
    form = find_format(name)
    for head in (beginning,) if isinstance(beginning, bytes) else written(beginning, is_document=name in DOCUMENTS):
        assert form.recognizes(head, path) is is_one
        assert (recognize(head, path) == form) is is_one
    assert not form.recognizes(b"", path)


DOCUMENTS = {"amp", "cline", "fuseraft", "fuseraft-repl"}
"""Their programs write one JSON document a file, in lines."""


def written(beginning: Any, *, is_document: bool) -> list[bytes]:
    """Return a beginning as a line of JSON, and a document also as an indented one."""
    return [json.dumps(beginning, indent=indent).encode() + b"\n" for indent in ((None, 2) if is_document else (None,))]


@inputs(("name", "data"), [(name, data) for name, own in REFUSED.items() for data in (*NONE, *own)])
def test_what_is_no_session_is_refused_in_one_line(name: str, data: bytes) -> None:
    with pytest.raises(UnreadableFile, match=r"^(s\.jsonl|the file)[^\n]*nothing was imported$"):
        read_lines(find_format(name).reader("s.jsonl"), data.splitlines(keepends=True) or [b""])
