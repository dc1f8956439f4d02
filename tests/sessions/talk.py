"""Short helpers for messages and their texts."""

from __future__ import annotations

from collections.abc import Iterable

from flue_py import Entry, JsonObject, Session


def user(text: str) -> JsonObject:
    return {"role": "user", "content": text}


def assistant(text: str, tokens: int = 0) -> JsonObject:
    usage: JsonObject = {
        "input": tokens, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": tokens,
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": tokens / 1000},
    }  # fmt: skip
    return {"role": "assistant", "content": [{"type": "text", "text": text}], "stopReason": "stop", "usage": usage}


def answer(text: str, **fields: object) -> JsonObject:
    return {"role": "assistant", "content": [{"type": "text", "text": text}], **fields}  # type: ignore[dict-item]


def text_of(message: JsonObject) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    assert isinstance(content, list)
    (part,) = content
    assert isinstance(part, dict)
    return str(part["text"])


def texts(entries: Iterable[Entry]) -> list[str]:
    """Return the texts of message entries; other entries are named by their kind in brackets."""
    return [text_of(entry.fields) if entry.kind == "message" else f"[{entry.kind}]" for entry in entries]


async def path_of(session: Session) -> list[str]:
    return texts(await session.get_active_path())


async def say(session: Session, *said: str) -> list[str]:
    """Append user messages one by one; return the ids of their entries."""
    return [(await session.append_message(user(text))).entry_ids[0] for text in said]


async def talk(session: Session, turns: int = 10, start: int = 0) -> list[str]:
    """Append questions and answers of some 200 characters; return the ids of the entries."""
    asked = [
        message
        for number in range(start, start + turns)
        for message in (user(f"question {number} " + "q" * 200), answer(f"answer {number} " + "a" * 200))
    ]
    return [(await session.append_message(message)).entry_id for message in asked]


async def hold_turns(session: Session, turns: int) -> list[str]:
    """Append that many turns, ``U1 A1 U2 A2 ...``; return the ids of the entries."""
    messages = [message for n in range(1, turns + 1) for message in (user(f"U{n}"), assistant(f"A{n}", n))]
    return list((await session.append_messages(messages)).entry_ids)
