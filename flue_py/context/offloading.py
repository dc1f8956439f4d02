"""Offloading: which results of tools are too long for the history, and the stub that stands in it instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeGuard

from flue_py.core.artifacts import OF, OFFLOADED, referred_artifact
from flue_py.core.exchange import answered_id
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.errors import InvalidArgument, shown

OFFLOAD_ABOVE = 40_000

READ_ARTIFACT = "read_artifact"
"""The name of the tool by which a model reads artifacts. Its results are never offloaded."""

_TELLING = ("path", "file_path", "filePath", "file", "filename", "command", "cmd", "url", "uri", "query", "pattern")
_LONGEST_HINT, _LONGEST_NAME = 200, 100


@dataclass(frozen=True, slots=True)
class OffloadSettings:
    """From which length on the result of a tool is stored as an artifact, with a stub in the history.

    One of more than ``above`` characters is; one of exactly as many stays. ``tools`` has other lengths for single
    tools, by name in any case, and None for one whose results always stay.

    ``round_above`` bounds what all results that answer one message have together: above so many characters the largest
    of those that are being appended are put aside, too, until the round fits; what is stored already stays. None bounds
    nothing. ``preview_chars`` is how much of the result stands in the stub as well, cut behind a whole line if that
    leaves more than half. Raises `InvalidArgument` naming what is wrong.
    """

    above: int = OFFLOAD_ABOVE
    tools: Mapping[str, int | None] = field(default_factory=dict)
    round_above: int | None = None
    preview_chars: int = 0

    def __post_init__(self) -> None:
        _check_length(self.above, "above")
        _check_length(self.preview_chars, "preview_chars")
        if self.round_above is not None:
            _check_length(self.round_above, "round_above")
        if not isinstance(self.tools, Mapping):
            raise InvalidArgument(f"tools: {shown(self.tools)} is no mapping of names of tools to lengths")
        tools: dict[str, int | None] = {}
        for name, above in self.tools.items():
            if not isinstance(name, str) or name.casefold() in tools:
                raise InvalidArgument(f"tools: {shown(name)} is no name of a tool, or is there twice")
            if above is not None:
                _check_length(above, f"tools[{shown(name)}]")
            tools[name.casefold()] = above
        object.__setattr__(self, "tools", tools)

    def above_of(self, tool: str | None) -> int | None:
        """Return above how many characters a result of this tool is offloaded; None for never."""
        name = (tool or "").casefold()
        return None if name == READ_ARTIFACT else self.tools.get(name, self.above)

    @property
    def least(self) -> int:
        """The least of the lengths: no result that is shorter is offloaded, whatever its tool."""
        return min((self.above, *(above for above in self.tools.values() if above is not None)))


def _check_length(value: object, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidArgument(
            f"{where}: {shown(value)} is no number of characters; give one >= 0, or None for a tool or a round"
        )


class LongResult(NamedTuple):
    """A result that is offloaded: its text, what is known of its call, and the parts that the text was joined from."""

    text: str
    tool: str | None
    hint: str
    call_id: str | None
    parts: list[JsonValue] | None


def long_result(
    message: Mapping[str, JsonValue], settings: OffloadSettings, call: Mapping[str, JsonValue] | None
) -> LongResult | None:
    """Return what is offloaded of a message; None for what stays: other messages, and results that are short enough.

    ``call`` is the tool call that it answers, where that is known. Texts in several parts are one, by lines. O(size).
    """
    result = any_result(message, settings, call)
    above = None if result is None else settings.above_of(result.tool)
    return None if result is None or above is None or len(result.text) <= above else result


def any_result(
    message: Mapping[str, JsonValue], settings: OffloadSettings, call: Mapping[str, JsonValue] | None
) -> LongResult | None:
    """Return what could be offloaded of a message, however short it is; None if nothing may be."""
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
    message: Mapping[str, JsonValue], result: LongResult, artifact_id: str, preview_chars: int = 0
) -> JsonObject:
    """Return a message with a stub in the place of its text; its other parts, such as pictures, stay."""
    text = stub(result, artifact_id, preview_chars)
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


def stub(result: LongResult, artifact_id: str, preview_chars: int = 0) -> str:
    """Return the text that stands in the history for a result, with how it begins where that is asked for."""
    about = " | ".join(said for said in (_on_one_line(result.tool or "", _LONGEST_NAME), result.hint) if said)
    return (
        f"[result offloaded — {len(result.text):,} chars stored to artifact store]\n"
        f"Tool: {about or 'unknown'}\n"
        f"Artifact: {artifact_id}\n"
        "Use targeted tools (e.g. read_file with startLine/maxLines, or grep_in_file) for specific sections."
        f"{_preview(result.text, preview_chars)}"
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
