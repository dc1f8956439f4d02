"""Questions about a transcript, made and answered by rules. No model takes part.

A question is a cue and an answer, both copied out of the transcript. A context answers it where a passage of its text
has both: the answer, and the cue within `PASSAGE` characters of it. White space and case are passed over. The rules:

- **recall**: of each failed call, what was called (cue, its first 60 characters) and the first line of the error
  (answer, 80); of each shell command of at most 300 characters whose result is one line of at most 80 with a letter or
  digit, the command and that line; of each message of the user's of 80 to 400 characters, its first 40 and its last 40.
- **artifact**: of each file that a call names as its path, the path (cue) and how it was used last: the name of the
  tool that changed it, or, where none did, read it. The lists of modified and read files that a summary ends with
  answer it, too.
- **continuation**: at the end, without a cue: the user's first message and the last three, each by its first 80
  characters; the last ten files that were changed; the last three errors.
- **decision**: where the model ended on a question and the user answered: the question's first 60 characters (cue) and
  the answer's first 60. And each sentence of the model with *decided*, *because*, *instead of*, *rather than*, *the
  problem is*, *the issue is* or *root cause*, without a cue, by its first 80 characters.

Each question is asked once. A call that several results answer counts by the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from flue_py.core.entries import Pairing
from flue_py.core.json import JsonObject, JsonValue
from flue_py.core.kinds import message_text, spoken_text

Kind: TypeAlias = Literal["recall", "artifact", "continuation", "decision"]
KINDS: tuple[Kind, ...] = ("recall", "artifact", "continuation", "decision")
PASSAGE = 600

_CHANGING = ("edit", "write", "multiedit", "notebookedit", "apply_patch")
_COMMANDS = ("command", "cmd")
_PATHS = ("path", "file_path")
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")
_DECIDING = re.compile(
    r"\b(?:decided|because|instead of|rather than|the (?:problem|issue) is|root cause)\b", re.IGNORECASE
)
_LISTS = re.compile(r"<(modified|read)-files>\n(.*?)\n</\1-files>", re.DOTALL)


class Question(NamedTuple):
    """What is asked, and what a passage has to have; ``answers`` are several ways to say the same."""

    kind: Kind
    cue: str
    answers: tuple[str, ...]


def plain(text: str) -> str:
    """Return a text in lower case with one blank for each run of white space."""
    return " ".join(text.lower().split())


class Answering:
    """What a text answers."""

    def __init__(self, text: str) -> None:
        self._text = plain(text)
        self._used: dict[str, set[str]] = {"modified": set(), "read": set()}
        for found in _LISTS.finditer(text):
            self._used[found[1]].update(map(plain, found[2].splitlines()))

    def has(self, question: Question) -> bool:
        """Return whether the text answers a question."""
        if question.kind == "artifact":
            names = "modified" if question.answers[0] in _CHANGING else "read"
            if question.cue in self._used[names]:
                return True
        return any(self._has_passage(question.cue, answer) for answer in question.answers)

    def _has_passage(self, cue: str, answer: str) -> bool:
        at = self._text.find(answer)
        while at >= 0:
            if self._text.find(cue, max(at - PASSAGE, 0), at + len(answer) + PASSAGE) >= 0:
                return True
            at = self._text.find(answer, at + 1)
        return False


def questions_of(messages: Sequence[JsonObject]) -> list[Question]:
    """Return the questions about a transcript, each once, in order."""
    made = [*_of_calls(messages), *_of_the_user(messages), *_at_the_end(messages), *_of_decisions(messages)]
    return list(dict.fromkeys(made))


def _question(kind: Kind, cue: str, answer: str) -> Question:
    return Question(kind, plain(cue), (plain(answer),))


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if any(map(str.isalnum, line))), "")


def _is_short(command: str, result: str) -> bool:
    return len(command) <= 300 and len(result.strip()) <= 80 and "\n" not in result.strip()


class _Use(NamedTuple):
    """A call of a tool, and what came of it."""

    tool: str
    arguments: Mapping[str, JsonValue]
    result: str
    failed: bool

    def argument(self, names: Sequence[str]) -> str:
        return next((text for name in names if isinstance(text := self.arguments.get(name), str)), "")

    @property
    def target(self) -> str:
        """What it was called on."""
        return self.argument((*_PATHS, *_COMMANDS, *self.arguments))


def _uses(messages: Sequence[JsonObject]) -> Iterator[_Use]:
    for call, results in Pairing(messages).results.items():
        content = messages[call.at]["content"]
        assert isinstance(content, (list, tuple))
        part = content[call.part]
        assert isinstance(part, Mapping)
        arguments, name = part.get("arguments"), part.get("name")
        answer: Mapping[str, JsonValue] = messages[results[0]] if results else {}
        yield _Use(
            name if isinstance(name, str) else "",
            arguments if isinstance(arguments, Mapping) else {},
            message_text(answer),
            answer.get("isError") is True,
        )


def _of_calls(messages: Sequence[JsonObject]) -> Iterator[Question]:
    used: dict[str, str] = {}
    for use in _uses(messages):
        line = _first_line(use.result)
        if use.failed and use.target and line:
            yield _question("recall", use.target[:60], line[:80])
        elif (command := use.argument(_COMMANDS)) and line and _is_short(command, use.result):
            yield _question("recall", command[:60], line)
        if path := use.argument(_PATHS):
            tool = use.tool.lower()
            if tool in _CHANGING or used.get(path) not in _CHANGING:
                used[path] = tool
    for path, tool in used.items():
        yield _question("artifact", path, tool)


def _said(messages: Sequence[JsonObject]) -> list[tuple[int, str]]:
    """Return what the user said, with the place of each message."""
    said = [
        (at, spoken_text(message_text(message)).strip())
        for at, message in enumerate(messages)
        if message.get("role") == "user" and message.get("isMeta") is not True
    ]
    return [(at, text) for at, text in said if text]


def _of_the_user(messages: Sequence[JsonObject]) -> Iterator[Question]:
    for _, text in _said(messages):
        if 80 <= len(text) <= 400:
            yield _question("recall", text[:40], text[-40:])


def _at_the_end(messages: Sequence[JsonObject]) -> Iterator[Question]:
    said = [text for _, text in _said(messages)]
    changed: dict[str, None] = {}
    errors: list[str] = []
    for use in _uses(messages):
        path = use.argument(_PATHS)
        if path and use.tool.lower() in _CHANGING:
            changed.pop(path, None)
            changed[path] = None
        if use.failed:
            errors.append(_first_line(use.result)[:80])
    for text in [text[:80] for text in (*said[:1], *said[-3:])] + list(changed)[-10:] + errors[-3:]:
        if text:
            yield _question("continuation", "", text)


def _of_decisions(messages: Sequence[JsonObject]) -> Iterator[Question]:
    spoken = dict(_said(messages))
    asked = ""
    for at, message in enumerate(messages):
        text = message_text(message)
        if at in spoken:
            if asked:
                yield _question("decision", asked[:60], spoken[at][:60])
            asked = ""
        elif message.get("role") == "assistant" and text.strip():
            sentences = [found[0].strip() for found in _SENTENCE.finditer(text)]
            last = next((sentence for sentence in reversed(sentences) if sentence), "")
            asked = last if last.endswith("?") else ""
            for sentence in sentences:
                if _DECIDING.search(sentence):
                    yield _question("decision", "", sentence[:80])
