"""Offloading: which results of tools are too long for the history, and the stub that stands in it instead."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import TypeGuard

from msgspec import field
from msgspec.structs import force_setattr

from flue_py.context.document_texts import ExtractedText, check_document
from flue_py.core.entries import OF, OFFLOADED, Artifact, answered_id, referred_artifact
from flue_py.core.json import Frozen, JsonObject, JsonValue, NamedTuple
from flue_py.core.sessions import DEFAULT_LIMITS, Limits
from flue_py.errors import InvalidArgument, MissingExtra, UnreadableFile, shown

# ---------------------------------------------------------------------------------------------------------------------
# Offloading: which results of tools are too long for the history, and the stub that stands in it instead.

OFFLOAD_ABOVE = 40_000

READ_ARTIFACT = "read_artifact"
"""The name of the tool by which a model reads artifacts. Its results are never offloaded."""

_TELLING = ("path", "file_path", "filePath", "file", "filename", "command", "cmd", "url", "uri", "query", "pattern")
_LONGEST_HINT, _LONGEST_NAME = 200, 100
_ADVICE = "Use targeted tools (e.g. read_file with startLine/maxLines, or grep_in_file) for specific sections."
READ_ADVICE = f"Read a range of its characters, or the lines that have some words, with the tool {READ_ARTIFACT}."
"""The ``advice`` of `OffloadSettings` for a model that has the tool."""


class OffloadSettings(Frozen):
    """From which length on the result of a tool is stored as an artifact, with a stub in the history.

    One of more than ``above`` characters is; one of exactly as many stays. ``tools`` has other lengths for single
    tools, by name in any case, and None for one whose results always stay.

    ``round_above`` bounds all results that answer one message together: above so many characters the largest of those
    that are being appended are put aside, too, until the round fits; results that are stored already stay. None bounds
    nothing. ``preview_chars`` is how much of the result stands in the stub as well, cut behind a whole line if that
    leaves more than half. ``advice`` is the line of the stub on how to read parts of it, None for that of fuseraft.
    Raises `InvalidArgument` naming the field.
    """

    above: int = OFFLOAD_ABOVE
    tools: Mapping[str, int | None] = field(default_factory=dict)
    round_above: int | None = None
    preview_chars: int = 0
    advice: str | None = None

    def __post_init__(self) -> None:
        _check_length(self.above, "above")
        _check_length(self.preview_chars, "preview_chars")
        if self.round_above is not None:
            _check_length(self.round_above, "round_above")
        if not isinstance(self.advice, str | None):
            raise InvalidArgument(f"advice: {shown(self.advice)} is not a text")
        if not isinstance(self.tools, Mapping):
            raise InvalidArgument(f"tools: {shown(self.tools)} is no mapping of names of tools to lengths")
        tools: dict[str, int | None] = {}
        for name, above in self.tools.items():
            if not isinstance(name, str) or name.casefold() in tools:
                raise InvalidArgument(f"tools: {shown(name)} is no name of a tool, or is there twice")
            if above is not None:
                _check_length(above, f"tools[{shown(name)}]")
            tools[name.casefold()] = above
        force_setattr(self, "tools", tools)

    def above_of(self, tool: str | None) -> int | None:
        """Return above how many characters a result of this tool is offloaded; None for never."""
        name = (tool or "").casefold()
        return None if name == READ_ARTIFACT else self.tools.get(name, self.above)

    @property
    def least(self) -> int:
        """The least of the lengths: no shorter result of any tool is offloaded."""
        return min((self.above, *(above for above in self.tools.values() if above is not None)))


def _check_length(value: object, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidArgument(
            f"{where}: {shown(value)} is no number of characters; give one >= 0, or None for a tool or a round"
        )


class LongResult(Frozen):
    """A result that is offloaded: its text, its call, and the parts that the text was joined from."""

    text: str
    tool: str | None
    hint: str
    call_id: str | None
    parts: list[JsonValue] | None


def long_result(
    message: Mapping[str, JsonValue], settings: OffloadSettings, call: Mapping[str, JsonValue] | None
) -> LongResult | None:
    """Return the result that is offloaded of a message; None for other messages, and results that are short enough.

    ``call`` is the tool call that it answers, where that is known. Texts in several parts are one, by lines. O(size).
    """
    result = any_result(message, settings, call)
    above = None if result is None else settings.above_of(result.tool)
    return None if result is None or above is None or len(result.text) <= above else result


def any_result(
    message: Mapping[str, JsonValue], settings: OffloadSettings, call: Mapping[str, JsonValue] | None
) -> LongResult | None:
    """Return the result of a message, however short it is; None if nothing may be offloaded."""
    tool = message.get("toolName") or (call or {}).get("name")
    tool = tool if isinstance(tool, str) and tool else None
    texts = _texts(message)
    if not texts or settings.above_of(tool) is None or referred_artifact(message) is not None:
        return None
    joined: list[JsonValue] | None = None
    if len(texts) > 1:
        joined = [{**_without_text(part), "chars": len(str(part["text"]))} for part in texts]
    return LongResult(_joined(texts), tool, _hint(call), answered_id(message), joined)


def length_of(message: Mapping[str, JsonValue]) -> int:
    """Return how many characters of a result count. O(parts)."""
    return len(_joined(_texts(message)))


def with_stub(
    message: Mapping[str, JsonValue], result: LongResult, artifact_id: str, settings: OffloadSettings
) -> JsonObject:
    """Return a message with a stub in the place of its text; its other parts, such as pictures, stay."""
    text = stub(result, artifact_id, settings)
    content = message.get("content")
    if not isinstance(content, list):
        return {**message, "content": text, OFFLOADED: {OF: artifact_id}}
    parts: list[JsonValue] = []
    stands = False
    for part in content:
        if not _is_text(part):
            parts.append(part)
        elif not stands:
            parts.append({**_without_text(part), "text": text})
            stands = True
    return {**message, "content": parts, OFFLOADED: {OF: artifact_id}}


def stub(result: LongResult, artifact_id: str, settings: OffloadSettings) -> str:
    """Return the text that stands in the history for a result, with how it begins where that is asked for."""
    about = " | ".join(words for words in (_on_one_line(result.tool or "", _LONGEST_NAME), result.hint) if words)
    return (
        f"[result offloaded — {len(result.text):,} chars stored to artifact store]\n"
        f"Tool: {about or 'unknown'}\n"
        f"Artifact: {artifact_id}\n"
        f"{settings.advice or _ADVICE}{_preview(result.text, settings.preview_chars)}"
    )


def _preview(text: str, most: int) -> str:
    """Return how a text begins, under a line that says so: whole lines, unless the last of them takes half of it."""
    if not most:
        return ""
    begins = text[:most]
    if len(text) > most and (end := begins.rfind("\n")) > most // 2:
        begins = begins[:end]
    return f"\n\nPreview (first {len(begins):,} chars):\n{begins}"


def _texts(message: Mapping[str, JsonValue]) -> list[JsonObject]:
    content = message.get("content")
    parts: list[JsonValue] = content if isinstance(content, list) else [{"type": "text", "text": content}]
    return [part for part in parts if _is_text(part)]


def _joined(texts: Sequence[JsonObject]) -> str:
    return "\n".join(str(part["text"]) for part in texts)


def _is_text(part: JsonValue) -> TypeGuard[JsonObject]:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _without_text(part: JsonObject) -> JsonObject:
    return {name: value for name, value in part.items() if name != "text"}


def _hint(call: Mapping[str, JsonValue] | None) -> str:
    """Return the argument of a call that tells most, as ``name=value`` on one line; "" without any."""
    arguments = (call or {}).get("arguments")
    if not isinstance(arguments, Mapping):
        return ""
    names = [name for name in (*_TELLING, *arguments) if _tells(arguments.get(name))]
    return _on_one_line(f"{names[0]}={arguments[names[0]]}", _LONGEST_HINT) if names else ""


def _tells(value: JsonValue) -> bool:
    return bool(value.strip()) if isinstance(value, str) else isinstance(value, int) and not isinstance(value, bool)


def _on_one_line(text: str, most: int) -> str:
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most else line[: most - 1] + "…"


# ---------------------------------------------------------------------------------------------------------------------
# Reading parts of a long text: a range of its characters, or the lines that have some words; and the tool for it.

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
            "start": {"type": "integer", "minimum": 0, "description": "The character to begin at; 0 by default."},
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
"""The tool to declare to a model, as in `ModelRequest.tools`; `Session.artifacts.answer_read` answers its calls."""


class FoundLine(Frozen):
    """A line of a text, by its number from 1. A long one is cut to the words and their surroundings, with ``…``."""

    number: int
    text: str


class ArtifactExcerpt(Frozen):
    """A part of an artifact: its characters from ``start`` up to ``end``, the first of them on line ``first_line``.

    ``text`` is that range, or, where words were asked for, the lines of it that have them, which ``found`` has with
    their numbers. ``left_out`` more lines have the words; ``end`` is where to go on after these.
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
    """Return a range of a text, as `Session.artifacts.read` says. O(size)."""
    start = min(start, len(text))
    end = len(text) if length is None else min(start + length, len(text))
    return ArtifactExcerpt(artifact, text[start:end], start, end, text.count("\n", 0, start) + 1)


def read_lines(artifact: Artifact, text: str, start: int, length: int | None, words: str) -> ArtifactExcerpt:
    """Return the lines of a text with some words, from a place on, as `Session.artifacts.read` says. O(size)."""
    start = min(start, len(text))
    first_line = text.count("\n", 0, start) + 1
    sought, room = words.casefold(), length
    lines: list[FoundLine] = []
    end, left_out = len(text), 0
    for number, begin, line in _lines(text, start, first_line):
        if sought not in line.casefold():
            continue
        shown_line = _around(line, sought)
        if left_out or (room is not None and len(shown_line) + 1 > room and lines):
            end, left_out = end if left_out else begin, left_out + 1
            continue
        lines.append(FoundLine(number, shown_line))
        room = None if room is None else room - len(shown_line) - 1
    shown_text = "\n".join(line.text for line in lines)
    return ArtifactExcerpt(artifact, shown_text, start, end, first_line, tuple(lines), left_out)


def _lines(text: str, start: int, number: int) -> Iterator[tuple[int, int, str]]:
    """Yield the lines of a text from a place on: their numbers, where they begin, and their texts.

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
    """The arguments of a call of `READ_ARTIFACT_TOOL`."""

    artifact_id: str
    start: int
    length: int
    grep: str | None


def asked_excerpt(arguments: object) -> Asked | str:
    """Return the arguments of a call of `READ_ARTIFACT_TOOL`, or a string that says why they are wrong."""
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
    """Return an excerpt as a text for a model, under a line that names the part and the whole."""
    artifact = excerpt.artifact
    whole = f"artifact {artifact.id}, {artifact.characters:,} chars"
    if grep is None:
        return f"[{whole}: from {excerpt.start} to {excerpt.end}, from line {excerpt.first_line} on]\n{excerpt.text}"
    if not excerpt.found:
        return f"[{whole}: no line from character {excerpt.start} on has {shown(grep)}]"
    left = f"{excerpt.left_out} more line" + ("s" if excerpt.left_out > 1 else "")
    ending = f"\n[{left}; go on with start {excerpt.end}]" if excerpt.left_out else ""
    lines = "\n".join(f"{line.number}: {line.text}" for line in excerpt.found)
    return f"[{whole}: the lines that have {shown(grep)}]\n{lines}{ending}"


# ---------------------------------------------------------------------------------------------------------------------
# The text of documents, extracted in a process of its own, where time and memory are bounded.

_COMMAND = (sys.executable, "-P", "-W", "ignore", "-m", "flue_py.context.document_texts")


def extract_text(data: bytes, name: str, *, limits: Limits = DEFAULT_LIMITS) -> ExtractedText:
    """Return the text of a document, whose kind is that of its name: ``.pdf``, ``.docx``, ``.pptx`` or ``.xlsx``.

    In the order of pages, slides or sheets, with a line for each that is not the first of a PDF. Cells of a row are
    parted by tabs. Formulas have the values with which the file was saved. Pictures have no text here.

    It is read in a process of its own, which may take as much memory (on Linux) and time as the ``limits`` say. Raises
    `UnreadableFile` for one that is encrypted, damaged, too large, takes more than that, or has no text, such as a
    scan; `InvalidArgument` for a name with another ending, and `MissingExtra`. It blocks, for seconds where it is
    large.
    """
    check_document(data, name)
    memory, seconds = limits.extraction_bytes, limits.extraction_seconds
    order = json.dumps({"name": name, "memory": memory, "seconds": seconds}).encode() + b"\n"
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(  # noqa: S603 - our own module, by our own Python
        _COMMAND,
        input=order + data,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # A library of numbers would take address space for as many threads as there are processors.
        env={**os.environ, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1"},
        check=False,
    )
    called = shown(PurePath(name).name)
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise UnreadableFile(
            f"{called} takes more than {seconds:,} seconds to read; "
            "if you trust it, extract it with other limits (extraction_seconds)"
        )
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = {"memory": True}
    if "memory" in answer:
        raise UnreadableFile(
            f"{called} takes more than {memory:,} bytes of memory to read, or breaks its reader; "
            "if you trust it, extract it with other limits (extraction_bytes)"
        )
    if "missing" in answer:
        raise MissingExtra("documents", "the text of PDF, Word, PowerPoint and Excel files")
    if "unreadable" in answer:
        raise UnreadableFile(answer["unreadable"])
    return ExtractedText(answer["text"], tuple(answer["notes"]))
