"""What a person said, apart from what programs put into messages of the user: commands, contexts, reminders, caveats.

Agents tell their model many things in the user's name. None of it is a title, and a message of nothing
else does not begin a turn. This is the one place that knows how such texts look, whichever program wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from flue_py.core.jsontext import JsonValue, replace_lone_surrogates
from flue_py.core.kinds import KINDS

_TAG = re.compile(
    r"<(?P<name>(?:[\w.-]+[ _-])?"
    r"(?:context|instructions?|reminders?|details|hook|notifications?|caveat|stdout|stderr|mode)"
    r"|command-(?:name|message|args|contents)|bash-input|user-memory-input|turn_aborted|user_shell_command|model_switch"
    r"|ide_(?:opened_file|selection|diagnostics)|new-diagnostics|personality_spec|realtime_conversation|skills?"
    r"|additional_data|attached_files|open_and_recently_viewed_files|user_info|project_layout|git_status"
    r"|teammate-message|retrieval_status|task_id|output-file|subagent_result"
    r")(?:\s[^<>]*)?>",
    re.IGNORECASE,
)
"""The first tag of a block that a program wrote; the block ends with the same name."""

_DOUBTFUL = re.compile(r"<(?:context|instructions?|details|reminders?|notifications?|caveat|mode)>", re.IGNORECASE)
"""Those of them that people write as well, around what they say."""

_WRAPPED = re.compile(r"<(?P<name>user_query|user_message|task|feedback|answer)>", re.IGNORECASE)
"""The tag around what a person said, where a program put one there."""

_LINE = re.compile(r"(?:Caveat:|\[Request interrupted by user)[^\n]*")
"""The beginning of a line that a program wrote."""

_SURE_LINE = re.compile(r"(?:Caveat: The messages below|\[Request interrupted by user)[^\n]*")
"""The same, of a line that nobody else begins so."""

_WHOLE = (
    "This session is being continued from a previous conversation",
    *(f"{kind.prefix}\n" for kind in KINDS if kind.prefix),
    "Base directory for this skill:",
    "[Image: source:",
    "[Image: original ",
)
"""How messages begin that a program wrote whole."""

_COMMAND = re.compile(r"/[A-Za-z][\w:.-]*(?=\s|$)")
"""A command of a program, such as ``/compact``; a path has a slash behind its first name."""

_RULES = re.compile(r"# (?:AGENTS|CLAUDE|GEMINI)\.md instructions\b")
_END_OF_RULES = "</INSTRUCTIONS>"
_IDE = "# Context from my IDE setup:"
_END_OF_IDE = re.compile(r"^## My request for [^\n:]*:[ \t]*", re.MULTILINE)
_FIRST_SIGNS = frozenset("</[#CTB")
_WORDS_IN_PAYLOAD = re.compile(r'{"role":"user","content":(?:"|\[{"type":"text","text":")[^\s"\\</\[#CTB]')
"""How the payload of a message of the user begins that a person began: with none of `_FIRST_SIGNS`."""


def spoken_text(text: str) -> str:
    """Return what a person said in a message of the user: "" where a program wrote all of it.

    Blocks that a program put before the words are taken off; words are never changed. O(size).
    """
    return _said(text, in_doubt=False)


def own_words(text: str) -> str:
    """Return what may be a person's own in a message of the user: what `spoken_text` does, and what that only guesses.

    A block in plain tags that people use as well, such as ``<context>``, and a command with words behind it count as
    said: for whoever must lose nothing that a person asked for. O(size).
    """
    return _said(text, in_doubt=True)


def words_of(message: Mapping[str, JsonValue]) -> str:
    """Return what may be a person's own in a message of the user, "" for nothing. O(size)."""
    return "" if message.get("isMeta") is True else own_words(message_text(message)).strip()


def _said(text: str, *, in_doubt: bool) -> str:
    at = _next_word(text, 0)
    while at < len(text) and text[at] in _FIRST_SIGNS:
        end = _end_of_insertion(text, at, in_doubt=in_doubt)
        if end is None:
            break
        at = _next_word(text, end)
    rest = text[at:]
    wrapped = _WRAPPED.match(rest)
    if wrapped is not None:
        inner, closing, _ = rest[wrapped.end() :].partition(f"</{wrapped['name']}>")
        return _said(inner, in_doubt=in_doubt) if closing else rest
    command = _COMMAND.match(rest)
    if command is not None and not (in_doubt and rest[command.end() :].strip()):
        return ""
    return "" if rest.startswith(_WHOLE) else rest


def has_words(payload: str) -> bool:
    """Return whether a payload is surely a message in which a person says something. It is not decoded for it.

    Of most of those that are, that can be told from how they begin: a quotation mark within a text has a backslash
    before it, so that what looks like a field is one. O(size), but a small part of it.
    """
    begun = _WORDS_IN_PAYLOAD.match(payload)
    # A second field of the name would count.
    return begun is not None and payload.find('"content":', begun.end()) < 0 and '"isMeta":' not in payload


def _next_word(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _end_of_insertion(text: str, at: int, *, in_doubt: bool) -> int | None:
    """Return where what a program wrote at a place ends; None if it wrote nothing there, or if that is in doubt."""
    tag = _TAG.match(text, at)
    if tag is not None and in_doubt and _DOUBTFUL.match(text, at):
        return None
    if tag is not None:
        return _behind(text, f"</{tag['name']}>", tag.end())
    if _RULES.match(text, at):
        return _behind(text, _END_OF_RULES, at)
    if text.startswith(_IDE, at):
        request = _END_OF_IDE.search(text, at)
        return len(text) if request is None else request.end()
    line = (_SURE_LINE if in_doubt else _LINE).match(text, at)
    return None if line is None else line.end()


def _behind(text: str, closing: str, at: int) -> int:
    """Return the place behind a closing tag; the end of the text where it was cut off."""
    found = text.find(closing, at)
    return len(text) if found < 0 else found + len(closing)


def message_text(value: Mapping[str, JsonValue]) -> str:
    """Return what a person would read of a message: its content, or its text parts joined by newlines.

    Thinking, tool calls, images and other parts are left out. Never raises: a value that is not a message has no text.
    """
    content: object = value.get("content") if isinstance(value, (dict, Mapping)) else None
    if isinstance(content, str):
        return content
    if not isinstance(content, (list, tuple)):
        return ""
    parts = [part for part in content if isinstance(part, (dict, Mapping)) and part.get("type") == "text"]
    return "\n".join([text for part in parts if isinstance(text := part.get("text"), str)])


SECTIONS = "sections"
"""The field of a system message that has its text in parts, by name, as pi writes it."""


def prompt_text(value: Mapping[str, JsonValue]) -> str:
    """Return the text of a system message: its own, or that of its sections, in the order of their names."""
    sections = value.get(SECTIONS)
    if (own := message_text(value)) or not isinstance(sections, dict):
        return own
    return "\n\n".join(text for _, text in sorted(sections.items()) if isinstance(text, str) and text)


PREVIEW_LENGTH = 120
_PREVIEW_SEARCHED = 4000


_HEADING = re.compile(r"#{1,6}\s+(.*?)[\s#]*\Z")


def message_preview(text: str) -> str | None:
    """Return the first line with text in it, at most `PREVIEW_LENGTH` characters; None if there is none."""
    return next(_preview_lines(text), None)


def _preview_lines(text: str) -> Iterator[str]:
    for line in text[:_PREVIEW_SEARCHED].splitlines():
        stripped = line.replace("\0", "").strip()
        if stripped:
            yield replace_lone_surrogates(stripped[:PREVIEW_LENGTH])[0]


def is_spoken(message: Mapping[str, JsonValue]) -> bool:
    """Return whether a message of the user says something of a person's own, rather than of a program's alone.

    Pictures and other parts that are not text count as a person's; so does a message that says nothing.
    """
    if message.get("isMeta") is True:
        return False
    content = message.get("content")
    if isinstance(content, list) and any(isinstance(part, dict) and part.get("type") != "text" for part in content):
        return True
    text = message_text(message)
    return not text.strip() or bool(spoken_text(text))


def message_title(message: Mapping[str, JsonValue]) -> str | None:
    """Return a title from what a person said in a message of the user; None if there is none.

    It is the first line; one that ends with a colon only leads to the next, of which a heading is the title alone.
    Every format, and every store, takes the title of a session without one from here: from its first such message.
    """
    if message.get("isMeta") is True:
        return None
    lines = _preview_lines(spoken_text(message_text(message)))
    first = next(lines, None)
    if first is None or not first.endswith(":"):
        return first
    second = next(lines, "")
    heading = _HEADING.match(second)
    return heading[1] if heading and heading[1] else f"{first} {second}".strip()[:PREVIEW_LENGTH]
