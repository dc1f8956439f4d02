"""The text a summarizer reads, and the lists of files a summary ends with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from flue_py.compaction.content import ASSISTANT, TOOL_RESULT, USER, Message, content_parts, string_field
from flue_py.compaction.file_calls import FileUse, file_call
from flue_py.compaction.policy import DEFAULT_POLICY, CompactionPolicy
from flue_py.compaction.quoting import without_tags
from flue_py.core.javascript import js_entries, js_json, utf16_prefix, utf16_sort_key
from flue_py.core.jsontext import JsonObject, JsonValue, utf16_length

TOOL_RESULT_UNITS = 2_000
"""How much of a tool result a summarizer is shown, in UTF-16 code units."""


def serialize_conversation(messages: Sequence[Message], policy: CompactionPolicy = DEFAULT_POLICY) -> str:
    """Return messages as labelled paragraphs, so that a model summarizes them rather than continuing the conversation.

    An assistant message gives up to three: its thinking, its text, its tool calls. Messages without text,
    images and unknown roles give none. A tool result over 2,000 UTF-16 code units is cut there and says how
    many units are missing; where that would split a surrogate pair, the default policy cuts before it. Cost:
    O(text); of a long tool result, only the length is taken beyond the cut.
    """
    paragraphs: list[str] = []
    for message in messages:
        role = message.get("role")
        if role == USER:
            _add(paragraphs, "User", _joined_text(message, policy))
        elif role == ASSISTANT:
            _add_assistant(paragraphs, message, policy)
        elif role == TOOL_RESULT:
            _add(paragraphs, "Tool result", _shortened(_joined_text(message, policy), policy))
    return "\n\n".join(paragraphs)


def _add(paragraphs: list[str], label: str, text: str) -> None:
    if text:
        paragraphs.append(f"[{label}]: {text}")


def _joined_text(message: Message, policy: CompactionPolicy) -> str:
    parts = content_parts(message, policy)
    return "".join(string_field(part, "text") for part in parts if part.get("type") == "text")


def _add_assistant(paragraphs: list[str], message: Message, policy: CompactionPolicy) -> None:
    thinking: list[str] = []
    text: list[str] = []
    calls: list[str] = []
    for part in content_parts(message, policy):
        kind = part.get("type")
        if kind == "thinking":
            thinking.append(string_field(part, "thinking"))
        elif kind == "text":
            text.append(string_field(part, "text"))
        elif kind == "toolCall":
            calls.append(_printed_call(part))
    # One empty part still makes a paragraph, unlike in user messages: the reference counts parts here.
    if thinking:
        paragraphs.append("[Assistant thinking]: " + "\n".join(thinking))
    if text:
        paragraphs.append("[Assistant]: " + "\n".join(text))
    if calls:
        paragraphs.append("[Assistant tool calls]: " + "; ".join(calls))


def _printed_call(part: Mapping[str, JsonValue]) -> str:
    arguments = part.get("arguments")
    if isinstance(arguments, Mapping):
        printed = ", ".join(f"{key}={js_json(value)}" for key, value in js_entries(arguments))
    else:
        printed = "" if arguments is None else js_json(arguments)
    return f"{string_field(part, 'name')}({printed})"


def _shortened(text: str, policy: CompactionPolicy) -> str:
    length = utf16_length(text)
    if length <= TOOL_RESULT_UNITS:
        return text
    head = utf16_prefix(text, TOOL_RESULT_UNITS, whole_characters=policy.whole_characters)
    return f"{head}\n\n[... {length - utf16_length(head)} more characters truncated]"


@dataclass(frozen=True, slots=True)
class FileLists:
    """Files that were only read, and files that were written or edited; each path once, in UTF-16 order."""

    read_files: tuple[str, ...] = ()
    modified_files: tuple[str, ...] = ()

    @property
    def details(self) -> JsonObject:
        """The lists as a compaction stores them, ``{"readFiles": [...], "modifiedFiles": [...]}``."""
        return {"readFiles": list(self.read_files), "modifiedFiles": list(self.modified_files)}


def file_lists(read: Iterable[str], written: Iterable[str], edited: Iterable[str]) -> FileLists:
    """Return the lists for paths read, written and edited; a modified file is not listed as read."""
    modified = {*written, *edited}
    return FileLists(
        tuple(sorted(set(read) - modified, key=utf16_sort_key)),
        tuple(sorted(modified, key=utf16_sort_key)),
    )


def appended_file_lists(lists: FileLists, *, of: FileLists | None = None) -> str:
    """Return what the lists add to the end of a summary: nothing, or tagged blocks after a blank line.

    ``of`` are the whole lists, where these are a part of them: what is missing is counted at the end of each.
    """
    whole = lists if of is None else of
    return "".join(
        f"\n\n<{tag}>\n" + "\n".join([*map(_shown_path, paths), *_missing(len(known) - len(paths))]) + f"\n</{tag}>"
        for tag, paths, known in (
            ("read-files", lists.read_files, whole.read_files),
            ("modified-files", lists.modified_files, whole.modified_files),
        )
        if known
    )


def _missing(count: int) -> list[str]:
    return [f"[… {count} more, which are stored with this summary]"] if count else []


def _shown_path(path: str) -> str:
    """Return a path as a line of a list: one that was made up by a model cannot end the list or begin another block."""
    return without_tags(path if path.isprintable() else " ".join(path.split()))


def listed_files(details: Mapping[str, JsonValue] | None) -> FileLists:
    """Return the lists that a compaction stored, in their stored order; anything that is not a string is skipped."""
    fields = details if isinstance(details, Mapping) else {}
    return FileLists(_strings(fields.get("readFiles")), _strings(fields.get("modifiedFiles")))


def _strings(value: JsonValue) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        return ()
    return tuple(item for item in value if isinstance(item, str))


def collect_file_lists(
    messages: Iterable[Message], earlier: FileLists | None = None, policy: CompactionPolicy = DEFAULT_POLICY
) -> FileLists:
    """Return the lists for the tool calls of ``messages``, on top of an earlier compaction's.

    A call counts if its tool is named ``read``, ``write`` or ``edit``, or by default as other tools for files are, and
    it has a non-empty string ``path`` (``file_path`` and the like).
    """
    earlier = earlier or FileLists()
    paths: dict[FileUse, set[str]] = {
        "read": set(earlier.read_files),
        "write": set(),
        "edit": set(earlier.modified_files),
    }
    for message in messages:
        content = message.get("content")
        if message.get("role") != ASSISTANT or not isinstance(content, (list, tuple)):
            continue
        for part in content:
            # A dict is told much faster than any other mapping, and None at once: there may be ten thousand.
            if part and isinstance(part, (dict, Mapping)) and part.get("type") == "toolCall":
                found = file_call(part, policy)
                if found is not None:
                    paths[found.use].add(found.path)
    return file_lists(paths["read"], paths["write"], paths["edit"])
