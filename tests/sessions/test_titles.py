"""Titles and turns of sessions with many messages that programs wrote in the user's name, in every format and store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py.runtime.conversation import Conversation
from tests.core.test_spoken import INSERTED
from tests.formats.pi_files import HEADER
from tests.formats.test_claude_code import user
from tests.formats.test_codex import META, item
from tests.formats.transcripts import as_lines
from tests.tables import inputs

pytestmark = pytest.mark.anyio

TEXTS = [*INSERTED, f"{INSERTED[9]}Fix the parser", "And the tests"]


def pi_rows() -> list[dict[str, Any]]:
    row = {"type": "message", "timestamp": "2026-01-05T10:00:01.000Z"}
    return [
        HEADER,
        *(
            {
                **row,
                "id": f"e{n}",
                "parentId": f"e{n - 1}" if n else None,
                "message": {"role": "user", "content": text, "timestamp": n},
            }
            for n, text in enumerate(TEXTS)
        ),
    ]


def noumen_rows() -> list[dict[str, Any]]:
    row = {"type": "message", "sessionId": "n", "timestamp": "2026-02-01T09:00:00.000Z"}
    return [{**row, "uuid": f"u{n}", "message": {"role": "user", "content": text}} for n, text in enumerate(TEXTS)]


FILES: dict[str, Any] = {
    "pi": pi_rows(),
    "noumen": noumen_rows(),
    "claude-code": [user(f"u{n}", f"u{n - 1}" if n else None, text) for n, text in enumerate(TEXTS)],
    "codex": [META, *(item(type="message", role="user", content=[{"type": "input_text", "text": t}]) for t in TEXTS)],
    "openai-chat": [{"role": "user", "content": text} for text in TEXTS],
    "openai-responses": [{"type": "message", "role": "user", "content": text} for text in TEXTS],
    "anthropic": {"max_tokens": 1, "messages": [{"role": "user", "content": text} for text in TEXTS]},
    "fuseraft-repl": {
        "SessionId": "a87569bcd7b0",
        "ModelId": "m",
        "StartedAt": "2026-05-25T14:32:00Z",
        "History": [{"Role": "user", "Contents": [{"Type": "text", "Text": text}]} for text in TEXTS],
    },
}


@inputs("format_name", FILES)
async def test_a_session_is_called_by_the_first_words_of_a_person_in_every_format(
    format_name: str, tmp_path: Path
) -> None:
    value = FILES[format_name]
    is_rows = format_name in ("pi", "noumen", "claude-code", "codex")
    file = tmp_path / "history"
    file.write_bytes(b"".join(as_lines(value)) if is_rows else json.dumps(value).encode())
    async with flue_py.open(":memory:") as store:
        report = await flue_py.import_file(store, file, format_name)
        session = await store.get_session(report.session_id)
        assert session is not None
        assert session.info.shown_title == "Fix the parser"
        talk = Conversation(store, session)
        assert [turn.preview.endswith(("Fix the parser", "And the tests")) for turn in await talk.turns()] == [
            True,
            True,
        ]
        assert (await store.verify()).problems == []


async def test_going_back_counts_the_turns_that_a_person_began(tmp_path: Path) -> None:
    async with flue_py.open(tmp_path / "store.db") as store:
        session = await store.create_session()
        for text in ("/clear", "one", INSERTED[9], "two"):
            await session.append_message({"role": "user", "content": text})
            await session.append_message({"role": "assistant", "content": f"to {text}"})
        assert [entry.fields["content"] for entry in await session.turns()] == ["one", "two"]
        text = await flue_py.transcript(session)
        assert text.count("## [Human] — Turn") == 2
        assert "## [Program] — Turn 1" in text
        await session.rewind(turns=1)
        assert (await session.build_context())[-1]["content"] == f"to {INSERTED[9]}"
        assert (await store.verify()).problems == []
