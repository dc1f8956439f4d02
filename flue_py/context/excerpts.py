"""Reading parts of a long text: a range of its characters, or the lines that have some words; and the tool for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from flue_py.context.offloading import READ_ARTIFACT
from flue_py.core.artifacts import Artifact
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.errors import shown

LENGTH = 20_000
"""How many characters of an artifact are read where nothing else is said."""
MOST_AT_ONCE = 30_000
"""How many a model reads at most in one call of the tool."""
LINE_CHARS = 400
"""How many characters of a line that was found are returned, around the words."""

READ_ARTIFACT_TOOL: JsonObject = {
    "name": READ_ARTIFACT,
    "description": (
        "Read a part of a result that was too long for this conversation and was stored as an artifact: a range of its "
        "characters, or, with grep, the lines that have some words, with their numbers."
    ),
    "parameters": {
        "type": "object",
        "properties": {
            "id": {
                "type": "string",
                "description": "The id of the artifact, or of the entry, as the note in its place says it.",
            },
            "start": {
                "type": "integer",
                "minimum": 0,
                "description": "The character to begin at, from 0; 0 by default.",
            },
            "length": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_AT_ONCE,
                "description": f"How many characters to return at most; {LENGTH} by default.",
            },
            "grep": {
                "type": "string",
                "description": "Return only the lines that have this text, taken literally, in any case.",
            },
        },
        "required": ["id"],
        "additionalProperties": False,
    },
}
"""The tool to declare to a model, as in `ModelRequest.tools`; `Session.answer_read_artifact` answers its calls."""


@frozen
class FoundLine:
    """A line of a text, by its number from 1. A long one is cut to what stands around the words, with ``…``."""

    number: int
    text: str


@frozen
class ArtifactExcerpt:
    """A part of an artifact: its characters from ``start`` up to ``end``, the first of them on line ``first_line``.

    ``text`` is that range, or, where words were asked for, the lines of it that have them, which ``found`` has with
    their numbers. ``left_out`` more lines have the words; ``end`` is where to go on after what was returned.
    """

    artifact: Artifact
    text: str
    start: int
    end: int
    first_line: int
    found: tuple[FoundLine, ...] = ()
    left_out: int = 0

    @property
    def json(self) -> JsonObject:
        """The excerpt as JSON."""
        return {
            "artifact": self.artifact.json,
            "text": self.text,
            "start": self.start,
            "end": self.end,
            "firstLine": self.first_line,
            "found": [{"number": line.number, "text": line.text} for line in self.found],
            "leftOut": self.left_out,
        }


def read_range(artifact: Artifact, text: str, start: int, length: int | None) -> ArtifactExcerpt:
    """Return a range of a text, as `Session.read_artifact` says. O(size)."""
    start = min(start, len(text))
    end = len(text) if length is None else min(start + length, len(text))
    return ArtifactExcerpt(artifact, text[start:end], start, end, text.count("\n", 0, start) + 1)


def read_lines(artifact: Artifact, text: str, start: int, length: int | None, words: str) -> ArtifactExcerpt:
    """Return the lines of a text with some words, from a place on, as `Session.read_artifact` says. O(size)."""
    start = min(start, len(text))
    first_line = text.count("\n", 0, start) + 1
    sought, room = words.casefold(), length
    found: list[FoundLine] = []
    end, left_out = len(text), 0
    for number, begin, line in _lines(text, start, first_line):
        if sought not in line.casefold():
            continue
        shown_line = _around(line, sought)
        if left_out or (room is not None and len(shown_line) + 1 > room and found):
            end, left_out = end if left_out else begin, left_out + 1
            continue
        found.append(FoundLine(number, shown_line))
        room = None if room is None else room - len(shown_line) - 1
    said = "\n".join(line.text for line in found)
    return ArtifactExcerpt(artifact, said, start, end, first_line, tuple(found), left_out)


def _lines(text: str, start: int, number: int) -> Iterator[tuple[int, int, str]]:
    """Yield the lines of a text from a place on: their numbers, where they begin, and what they say.

    Only a line feed ends a line, as in editors and in `grep`; a carriage return before it belongs to that.
    """
    begin = start
    while begin < len(text):
        end = text.find("\n", begin)
        end = len(text) if end < 0 else end
        yield number, begin, text[begin:end].removesuffix("\r")
        begin, number = end + 1, number + 1


def _around(line: str, sought: str) -> str:
    """Return the part of a line around the words, which is all of it unless it is long."""
    if len(line) <= LINE_CHARS:
        return line
    at = max(_place(line, sought) - LINE_CHARS // 4, 0)
    end = at + LINE_CHARS
    return ("…" if at else "") + line[at:end] + ("…" if end < len(line) else "")


def _place(line: str, sought: str) -> int:
    """Return where the words begin in a line. Some letters are several in folded case."""
    folded = line.casefold()
    at = folded.find(sought)
    if len(folded) == len(line):
        return at
    passed = 0
    for place, letter in enumerate(line):
        passed += len(letter.casefold())
        if passed > at:
            return place
    return 0


class Asked(NamedTuple):
    """What a call of `READ_ARTIFACT_TOOL` asks for."""

    artifact_id: str
    start: int
    length: int
    grep: str | None


def asked_excerpt(arguments: JsonValue) -> Asked | str:
    """Return what a call of `READ_ARTIFACT_TOOL` asks for, or as a string what is wrong with its arguments."""
    if not isinstance(arguments, Mapping):
        return "the arguments should be an object with an id"
    artifact_id, grep = arguments.get("id"), arguments.get("grep")
    start, length = arguments.get("start", 0), arguments.get("length", LENGTH)
    if not isinstance(artifact_id, str) or not artifact_id:
        return "id should be the id of an artifact or of an entry, as the note in its place says it"
    if isinstance(start, bool) or not isinstance(start, int) or start < 0:
        return f"start should be a whole number from 0, not {shown(start)}"
    if isinstance(length, bool) or not isinstance(length, int) or not 1 <= length <= MOST_AT_ONCE:
        return f"length should be a whole number from 1 to {MOST_AT_ONCE}, not {shown(length)}"
    if grep is not None and not (isinstance(grep, str) and is_one_line(grep)):
        return f"grep should be words of one line, not {shown(grep)}"
    return Asked(artifact_id, start, length, grep)


def is_one_line(words: str) -> bool:
    """Return whether words can be found in a line."""
    return bool(words) and "\n" not in words


def excerpt_text(excerpt: ArtifactExcerpt, grep: str | None) -> str:
    """Return an excerpt as a text for a model, under a line that says what part it is of what."""
    artifact = excerpt.artifact
    whole = f"artifact {artifact.id}, {artifact.characters:,} chars"
    if grep is None:
        return f"[{whole}: from {excerpt.start} to {excerpt.end}, from line {excerpt.first_line} on]\n{excerpt.text}"
    if not excerpt.found:
        return f"[{whole}: no line from character {excerpt.start} on has {shown(grep)}]"
    left = f"{excerpt.left_out} more line" + ("s" if excerpt.left_out > 1 else "")
    more = f"\n[{left}; go on with start {excerpt.end}]" if excerpt.left_out else ""
    lines = "\n".join(f"{line.number}: {line.text}" for line in excerpt.found)
    return f"[{whole}: the lines that have {shown(grep)}]\n{lines}{more}"
