"""A stand-in for the model that summarizes: a function that copies out sentences, so that nothing here needs a network.

It is no measure of what a real model writes. What ``llm`` and ``hybrid`` put around a summary (the user's words, lists
of files, open work) does not depend on it.
"""

from __future__ import annotations

import re

from flue_py.core.context import Counter
from flue_py.core.json import JsonObject
from flue_py.core.kinds import message_text
from flue_py.core.model import FunctionModel, ModelReply, ModelRequest

NAME, PROVIDER = "claude-sonnet-4-5", "anthropic"
"""Whose list prices its calls are priced at."""
SUMMARY_CHARS = 6_000

_BEFORE = re.compile(r"<previous-summary>\n(.*?)\n</previous-summary>", re.DOTALL)
_CONVERSATION = re.compile(r"<conversation>\n(.*)\n</conversation>", re.DOTALL)
_MESSAGE = re.compile(r"^\[(Human|Agent) — Turn \d+, entry (\S+)\]\n\[\w[\w ]*\]: (.+)", re.MULTILINE)
_SENTENCE = re.compile(r".+?(?:[.!?](?=\s)|$)")


def stand_in(counter: Counter, window: int) -> FunctionModel:
    """Return a model of a window whose answer is the first sentence of each message, the newest as far as they go."""

    def answer(request: ModelRequest) -> ModelReply:
        prompt = "\n".join(map(message_text, request.messages))
        text = extract(prompt, min(SUMMARY_CHARS, (request.max_tokens or SUMMARY_CHARS) * 3))
        asked = counter.count({"role": "user", "content": f"{request.system}\n{prompt}"})
        usage: JsonObject = {"input": asked, "output": counter.count({"role": "assistant", "content": text})}
        said: JsonObject = {
            "role": "assistant",
            "content": text,
            "provider": PROVIDER,
            "model": NAME,
            "stopReason": "stop",
        }
        return ModelReply(({**said, "usage": usage},))

    return FunctionModel(answer, NAME, PROVIDER, window, 8_000)


def extract(prompt: str, most: int) -> str:
    """Return the newest first sentences of a conversation, behind half of what an earlier summary had."""
    before, conversation = _BEFORE.search(prompt), _CONVERSATION.search(prompt)
    earlier = [] if before is None else before[1].splitlines()
    found = [] if conversation is None else list(_MESSAGE.finditer(conversation[1]))
    new = [
        f"- {who}: {_first_sentence(text)} [entry {entry}]" for who, entry, text in (each.groups() for each in found)
    ]
    kept = _newest(new, most // 2 if earlier else most)
    return "\n".join([*_newest(earlier, most - sum(map(len, kept))), *kept]) or "Nothing was said."


def _first_sentence(text: str) -> str:
    found = _SENTENCE.match(text)
    return (found[0] if found else text)[:200]


def _newest(lines: list[str], most: int) -> list[str]:
    """Return the last of some lines, as many as take at most so many characters."""
    kept: list[str] = []
    for line in reversed(lines):
        most -= len(line) + 1
        if most < 0:
            break
        kept.append(line)
    return kept[::-1]
