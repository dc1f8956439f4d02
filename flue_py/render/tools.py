"""A tool call and its result as people read them: an edit as a diff, a command with its exit code, a list of todos.

What a call does is known by its arguments, of which programs have few forms, and by its name where these do not tell.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import field

from flue_py.core.json import MAX_JSON_DEPTH, Frozen, JsonObject, JsonValue, decode_json, without
from flue_py.core.kinds import Piece, message_text, pieces_of
from flue_py.errors import CorruptStore
from flue_py.lazy import lazy_module

if TYPE_CHECKING:
    import difflib

    from flue_py.providers import base
else:
    # Most of what is shown has no diff to be made, and no picture.
    difflib = lazy_module("difflib")
    base = lazy_module("flue_py.providers.base")

# ---------------------------------------------------------------------------------------------------------------------
# What a call does.


class FileEdit(Frozen):
    """The changes of one call in one file. Each of ``lines`` begins with +, -, a space, or @ (between places)."""

    path: str
    lines: str

    @property
    def counts(self) -> str:
        """How many lines come and go, as ``+3 -1``; "" for none."""
        lines = self.lines.split("\n")
        numbers = [(sign, sum(line.startswith(sign) for line in lines)) for sign in "+-"]
        return " ".join(f"{sign}{number}" for sign, number in numbers if number)


class Edits(Frozen):
    """The changes of a call in files."""

    files: Sequence[FileEdit]


class Command(Frozen):
    """A command that a shell runs, and the folder, None if the call does not state it."""

    line: str
    folder: str | None = None


class Todo(Frozen):
    """A thing to do. Its state is open, doing, done or dropped, or what the program calls it."""

    text: str
    state: str


class Todos(Frozen):
    """A list of things to do."""

    items: Sequence[Todo]


class ToolCall(Frozen):
    """A call: the name of its tool, what it does (None for any other call), and the other arguments."""

    name: str
    does: Edits | Command | Todos | None
    rest: JsonValue = field(default_factory=dict)


ShownKind: TypeAlias = Literal["words", "program", "thinking", "call", "diff", "result", "media", "error", "data"]


class Shown(Frozen):
    """A part of a message as people read it: a text, and the heading above it.

    A ``program`` is a text of a program in a message of the user, named by its heading; it may be folded away.
    """

    kind: ShownKind
    text: str
    heading: str = ""
    media: Media | None = None


_BYTES = re.compile(r"[\w+/=:;,.-]{1001}", re.ASCII)
"""How the bytes of pictures and files begin as text: of them the size is shown."""

_OF_RUN = ("cancelled", "truncated", "fullOutputPath")

_Does: TypeAlias = tuple[Edits | Command | Todos, JsonObject]


def read_call(name: str, arguments: JsonValue) -> ToolCall:
    """Return what a call does. No argument is left out. O(size)."""
    read = _patch_of(name, arguments)
    if read is None and isinstance(arguments, dict):
        read = _edit_of(name, arguments) or _todos_of(arguments) or _command_of(name, arguments)
    return ToolCall(name, None, arguments) if read is None else ToolCall(name, *read)


def call_of(part: Mapping[str, JsonValue]) -> ToolCall:
    """Return what the call in a part of a message does. O(size)."""
    return read_call(str(part.get("name")), part.get("arguments"))


def call_line(call: ToolCall) -> str:
    """Return a call as one text without line ends of its own: no JSON, and ids cut. O(size)."""
    does = call.does
    if isinstance(does, Edits):
        files = [" ".join(filter(None, (edit.path, edit.counts))) for edit in does.files]
        return f"{call.name} {'; '.join(files)}"
    if isinstance(does, Command):
        return with_short_ids(f"$ {does.line}")
    if isinstance(does, Todos):
        done = sum(todo.state == "done" for todo in does.items)
        doing = next((f": {todo.text}" for todo in does.items if todo.state == "doing"), "")
        return f"{call.name} {done} of {len(does.items)} done{doing}"
    return f"{call.name}({_main_argument(call.rest)})"


def shown_call(call: ToolCall) -> list[Shown]:
    """Return everything that a call says, below the tool's name; of long runs without a blank the size. O(size)."""
    does = call.does
    parts: list[Shown] = []
    if isinstance(does, Edits):
        parts += [Shown("diff", edit.lines, f"{call.name} {edit.path}") for edit in does.files]
    elif isinstance(does, Command):
        place = "" if does.folder is None else f" in {does.folder}"
        parts.append(Shown("call", f"$ {does.line}", f"{call.name}{place}"))
    elif isinstance(does, Todos):
        lines = [f"{_SIGNS.get(todo.state, f'[{todo.state}]')} {todo.text}" for todo in does.items]
        parts.append(Shown("call", "\n".join(lines), call.name))
    rest = without_bytes(call.rest)
    if parts and isinstance(rest, dict):
        rest = {name: value for name, value in rest.items() if value is not None and value is not False}
    return [*parts, Shown("call", "\n".join(fact_lines(rest)), call.name)] if rest or not parts else parts


def shown_parts(message: Mapping[str, JsonValue]) -> Iterator[Shown]:
    """Yield the parts of a message as people read them, in order. O(size)."""
    role = message.get("role")
    if role == "toolResult":
        yield _shown_result(result_of(message))
    elif isinstance(message.get("command"), str):
        command, result = command_run(message)
        yield Shown("call", f"$ {command.line}")
        yield _shown_result(result)
        if about := {name: message[name] for name in _OF_RUN if message.get(name)}:
            yield Shown("data", "\n".join(fact_lines(about)))
    content = message.get("content")
    for part in content if isinstance(content, list) else [] if content is None else [content]:
        if role != "toolResult" or not _is_text(part):
            yield from shown_part(part, is_user=role == "user")
    if isinstance(error := message.get("errorMessage"), str) and error:
        yield Shown("error", error, "error")


def _is_text(part: JsonValue) -> bool:
    return isinstance(part, str) or (isinstance(part, dict) and part.get("type") == "text")


def shown_part(value: JsonValue, *, is_user: bool) -> Iterator[Shown]:
    """Yield one part of the content of a message as people read it: a text of the user has several. O(size)."""
    part = value if isinstance(value, dict) else {"type": "text", "text": value}
    kind = part.get("type")
    if kind == "text" and isinstance(text := part.get("text"), str):
        for piece in pieces_of(text) if is_user else [Piece("", text)]:
            yield Shown("program" if piece.name else "words", piece.text, piece.name)
    elif kind == "thinking" and isinstance(text := part.get("thinking"), str):
        # A provider may keep its thoughts to itself: there is a signature alone.
        yield from [Shown("thinking", text, "thinking")] if text.strip() else []
    elif kind == "toolCall":
        yield from shown_call(call_of(part))
    elif (media := media_of(part)) is not None:
        yield Shown("media", media.name, media=media)
    else:
        yield Shown("data", "\n".join(fact_lines(without_bytes(value))))


def _shown_result(result: ToolResult) -> Shown:
    return Shown("result", result.text, ", ".join(result.marks))


def without_bytes(value: JsonValue) -> JsonValue:
    """Return a value with the sizes of pictures and files in place of their bytes."""
    if isinstance(value, str):
        return f"[{len(value):,} characters]" if _BYTES.match(value) else value
    if isinstance(value, dict):
        return {name: without_bytes(item) for name, item in value.items()}
    return [without_bytes(item) for item in value] if isinstance(value, list) else value


def _text_of(fields: Mapping[str, JsonValue], names: Sequence[str]) -> tuple[str, str] | None:
    """Return the first of these fields that is a text, by its name."""
    return next(((name, text) for name in names if isinstance(text := fields.get(name), str)), None)


# ---------------------------------------------------------------------------------------------------------------------
# Edits of files.

_PATHS = ("file_path", "path", "filePath")
_REPLACED = (
    ("old_string", "new_string"), ("oldText", "newText"), ("old_str", "new_str"), ("oldString", "newString"),
    ("old", "new"),
)  # fmt: skip
_CONTENTS = ("content", "file_text")
_WRITES = re.compile(r"write|create|new_?file|editor|\bsave", re.IGNORECASE)
_BLOCKS = ("diff", "content")
# The lines around and between the two texts of a place in a file, as some programs write it.
_BLOCK_LINES = (
    re.compile(r"(?:<{3,}|-{3,}) ?SEARCH>?"), re.compile(r"={3,}"), re.compile(r"(?:>{3,}|\+{3,}) ?REPLACE>?"),
)  # fmt: skip

_PATCHES = ("input", "patch", "patchText", "command", "cmd")
# The whole command has to be the patch: a command that does more is shown as it is.
_PATCH_BEGIN = re.compile(r"\s*+(?:apply_?patch\b\s*+(?:<<-?\s*+(['\"]?)\w++\1)?+\s*+)?+\*\*\* Begin Patch[^\n]*+\n")
_PATCH_END = "*** End Patch"
_HEAD = re.compile(r"\*\*\* (Update|Add|Delete) File: (.*)")
_HEADINGS = {"Update": "", "Add": " (new file)", "Delete": " (deleted)"}
_MOST_COMPARED = 100_000


def _edit_of(name: str, arguments: JsonObject) -> _Does | None:
    """Return the edits of ``{path, old, new}``, ``{path, edits: [{old, new}]}``, ``{path, content}`` or blocks."""
    found = _text_of(arguments, _PATHS)
    if found is None:
        return None
    path, rest = found[1], without(arguments, found[0])
    name_of_places = next((key for key in ("edits", "edit") if rest.get(key) is not None), None)
    if name_of_places is not None:
        places = rest[name_of_places]
        lines = _places(places if isinstance(places, list) else [places])
        return None if lines is None else (_one(path, lines), without(rest, name_of_places))
    if (replacement := _replacement(rest)) is not None:
        return _one(path, replacement[0]), replacement[1]
    text = _text_of(rest, _BLOCKS)
    if text is not None and (blocks := _blocks(text[1])):
        lines = [line for old, new in blocks for line in ("@@", *_compared(old, new))]
        return _one(path, lines), without(rest, text[0])
    content = _text_of(rest, _CONTENTS)
    if content is None or not _WRITES.search(name):
        return None
    return _one(path, [f"+{line}" for line in _lines(content[1])]), without(rest, content[0])


def _one(path: str, lines: Sequence[str]) -> Edits:
    return Edits([FileEdit(path, "\n".join(lines))])


def _blocks(text: str) -> list[tuple[list[str], list[str]]]:
    """Return the old and the new lines of each place; nothing if the text has anything else. O(size)."""
    blocks: list[tuple[list[str], list[str]]] = []
    part = 0
    for line in text.split("\n"):
        if _BLOCK_LINES[part].fullmatch(line.rstrip("\r")):
            part = (part + 1) % 3
            blocks += [([], [])] if part == 1 else []
        elif part:
            blocks[-1][part - 1].append(line)
        elif line.strip():
            return []
    return [] if part else blocks


def _places(places: Sequence[JsonValue]) -> list[str] | None:
    """Return the lines of several replacements; None if one of them is of another form, or says more."""
    lines: list[str] = []
    for place in places:
        replacement = _replacement(place) if isinstance(place, dict) else None
        if replacement is None or any(not isinstance(value, bool | None) for value in replacement[1].values()):
            return None
        note = "".join(f" {name}" for name, value in replacement[1].items() if value is True)
        lines += [f"@@{note}", *replacement[0]]
    return lines


def _replacement(fields: JsonObject) -> tuple[list[str], JsonObject] | None:
    for names in _REPLACED:
        old, new = (fields.get(name) for name in names)
        if isinstance(old, str) and isinstance(new, str):
            return list(_compared(_lines(old), _lines(new))), without(fields, *names)
    return None


def _lines(text: str) -> list[str]:
    return text.split("\n") if text else []


def _compared(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Yield all lines of both, unchanged ones once. Texts too long to compare are replaced as a whole."""
    if len(old) * len(new) > _MOST_COMPARED:
        steps = [("replace", 0, len(old), 0, len(new))]
    else:
        steps = list(difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes())
    for step, first, last, new_first, new_last in steps:
        if step == "equal":
            yield from (f" {line}" for line in old[first:last])
        else:
            yield from (f"-{line}" for line in old[first:last])
            yield from (f"+{line}" for line in new[new_first:new_last])


def _patch_of(tool: str, arguments: JsonValue) -> _Does | None:
    """Return the edits of a patch in the format of Codex: the arguments themselves, one of them, or a shell command."""
    if isinstance(arguments, str):
        return _patch(arguments, {})
    if not isinstance(arguments, dict):
        return None
    for name in _PATCHES:
        value = arguments.get(name)
        # A command is a list of words: the program and the patch, or a shell, its switch and a command line.
        words = value if isinstance(value, list) else [value]
        if words and isinstance(words[-1], str) and "*** Begin Patch" in words[-1]:
            is_patch = len(words) == 1 or words[:-1] == ["apply_patch"] or _is_shell(words)
            return _patch(words[-1], without(arguments, name)) if is_patch else None
    return None


def _is_shell(words: Sequence[JsonValue]) -> bool:
    """Return whether words are a shell, its switch and a command line."""
    return len(words) == 3 and words[1] in ("-lc", "-c") and str(words[0]).rpartition("/")[2] in _SHELL_PROGRAMS


def _patch(text: str, rest: JsonObject) -> _Does | None:
    begun = _PATCH_BEGIN.match(text)
    body, end, behind = text[begun.end() if begun else 0 :].rpartition(_PATCH_END)
    if begun is None or not end or not re.fullmatch(r"\w*", behind.strip()):
        return None
    files: list[tuple[str, list[str]]] = []
    for line in body.removesuffix("\n").split("\n"):
        head = _HEAD.match(line)
        if head is not None:
            files.append((head[2] + _HEADINGS[head[1]], []))
        elif not files:
            return None
        else:
            # Models write an empty line without its leading space; lines such as "*** Move to" are marked.
            files[-1][1].append(line if line[:1] in ("+", "-", " ", "@") else f"@{line}" if line else " ")
    return (Edits([FileEdit(path, "\n".join(lines)) for path, lines in files]), rest) if files else None


# ---------------------------------------------------------------------------------------------------------------------
# Commands of a shell.

_SHELLS = re.compile(r"bash|shell|exec|command|terminal|\brun\b", re.IGNORECASE)
_SHELL_PROGRAMS = ("bash", "sh", "zsh", "dash", "ksh", "fish")
_NO_SHELLS = re.compile(r"slash|skill", re.IGNORECASE)
_FOLDERS = ("workdir", "cwd", "working_directory", "directory", "dir_path")


def _command_of(name: str, arguments: JsonObject) -> _Does | None:
    """Return the command of ``{command}``, ``{cmd}``, or ``{commands: [...]}``, if the tool is a shell by its name."""
    if not _SHELLS.search(name) or _NO_SHELLS.search(name):
        return None
    key = next((key for key in ("command", "cmd", "commands") if arguments.get(key)), "")
    value = arguments.get(key)
    if isinstance(value, list):
        words = [word for word in value if isinstance(word, str)]
        if len(words) < len(value):
            return None
        value = "\n".join(words) if key == "commands" else words[2] if _is_shell(words) else shlex.join(words)
    if not isinstance(value, str):
        return None
    folder = _text_of(arguments, _FOLDERS)
    rest = without(arguments, key, *([] if folder is None else [folder[0]]))
    return Command(value, None if folder is None else folder[1]), rest


# ---------------------------------------------------------------------------------------------------------------------
# Lists of things to do.

_SIGNS = {"open": "[ ]", "doing": "[>]", "done": "[x]", "dropped": "[-]"}
_STATES = {
    "pending": "open", "open": "open", "todo": "open", "not_started": "open", "in_progress": "doing",
    "completed": "done", "complete": "done", "done": "done", "cancelled": "dropped", "canceled": "dropped",
}  # fmt: skip
_LISTS = ("todos", "plan", "todoList", "task_list", "items")
_TEXTS = ("content", "step", "title", "description", "text")
_OF_TODO = {"status", "id", "priority", "activeForm"}
_CHECKBOX = re.compile(r"\s*(?:[-*]|\d+\.)\s*\[(?P<state>[^\[\]\n]{0,12})\]\s*(?P<text>.*)")
_CHECKS = {"": "open", "x": "done", "-": "doing", ">": "doing", "~": "doing"}


def _todos_of(arguments: JsonObject) -> _Does | None:
    """Return the list of ``{todos: [{content, status}]}`` and its like, or of lines with a box before each text."""
    for name in _LISTS:
        value = arguments.get(name)
        if isinstance(value, str):
            items = [_boxed(line) for line in value.splitlines() if line.strip()]
        else:
            items = [_todo(item) for item in value] if isinstance(value, list) else []
        todos = [item for item in items if item is not None]
        if todos and len(todos) == len(items):
            return Todos(todos), without(arguments, name)
    return None


def _boxed(line: str) -> Todo | None:
    box = _CHECKBOX.fullmatch(line)
    sign = "" if box is None else box["state"].strip().lower()
    return None if box is None else Todo(box["text"], _CHECKS.get(sign) or _STATES.get(sign, sign))


def _todo(item: JsonValue) -> Todo | None:
    text, state = (_text_of(item, _TEXTS), item.get("status")) if isinstance(item, dict) else (None, None)
    if text is None or not isinstance(state, str) or not isinstance(item, dict) or item.keys() - {*_OF_TODO, text[0]}:
        return None
    return Todo(text[1], _STATES.get(state, state))


# ---------------------------------------------------------------------------------------------------------------------
# Results. A command's exit code is where each program states it; where none does, it is not known, and not 0.


class ToolResult(Frozen):
    """The result of a call: its text, whether it failed, and the exit code of a command, None if it is not stated."""

    text: str
    failed: bool = False
    exit_code: int | None = None

    @property
    def marks(self) -> list[str]:
        """How it ended, in words, if that is stated."""
        code = [] if self.exit_code is None else [f"exit {self.exit_code}"]
        return [*code, "failed"] if self.failed and not self.exit_code else code


_CODES = ("returncode", "exit_code", "exitCode")
_OUTPUTS = ("output", "stdout", "stderr")
_HEADED = re.compile(
    r"(?:Chunk ID: [^\n]*\n)?(?:Exit code: (?P<code>-?\d{1,10})\n)?Wall time: [^\n]*\n"
    r"(?:Process (?:exited with code (?P<exit>-?\d{1,10})|(?P<running>running[^\n]*))\n)?(?:[^\n]*\n){0,2}?Output:\n"
)
"""The lines that Codex writes before the output of a command."""

_FAILURES = (
    re.compile(r"(?:Error: )?Exit code (-?\d{1,10})(?=\n|\Z)"),
    re.compile(r"Command exited with code (-?\d{1,10})\s*\Z"),
    re.compile(r"Command failed with exit code: (-?\d{1,10})\.?[^\n]*\s*\Z"),
)
_ENDINGS = (
    re.compile(
        r"\[(?:The command completed|Command finished|Process exited) with (?:exit )?code (-?\d{1,10})[^\n]*\](?=\s*\Z)"
    ),
    re.compile(r"<(?:exited|[^<>\n]* completed) with exit code (-?\d{1,10})>\s*\Z"),
    re.compile(
        r"^Exit Code: (-?\d{1,10})$(?=(?:\n(?:Signal|Background PIDs|Process Group PGID)[^\n]*)*\s*\Z)", re.MULTILINE
    ),
)
_END_SEARCHED = 400


def result_of(message: Mapping[str, JsonValue]) -> ToolResult:
    """Return what a message says that is the result of a call. O(size)."""
    text, failed = message_text(message), message.get("isError") is True
    name = message.get("toolName")
    value = _json_line(text)
    is_shell = isinstance(name, str) and _SHELLS.search(name) is not None
    read = _wrapped(value, failed=failed) if isinstance(value, list) or (is_shell and value is not None) else None
    if read is not None:
        return read
    if not is_shell:
        return ToolResult(text if value is None else "\n".join(fact_lines(value)), failed)
    headed = _HEADED.match(text)
    if headed is None:
        return _ended(text, _stated_code(text, failed=failed), failed=failed)
    code = headed["code"] or headed["exit"]
    running = f"Process {headed['running']}\n" if headed["running"] else ""
    return _ended(running + text[headed.end() :], None if code is None else int(code), failed=failed)


def _ended(text: str, code: int | None, *, failed: bool) -> ToolResult:
    """Return the result of a command. One that failed, and states 0, was ended by something else: it has no code."""
    return ToolResult(text, failed, None if failed and code == 0 else code)


def command_run(message: Mapping[str, JsonValue]) -> tuple[Command, ToolResult]:
    """Return the command of a ``bashExecution``, and its result."""
    code, output = message.get("exitCode"), message.get("output")
    result = ToolResult(output if isinstance(output, str) else "", exit_code=code if type(code) is int else None)
    return Command(str(message.get("command"))), result


def _stated_code(text: str, *, failed: bool) -> int | None:
    """Return the exit code in the words of a program; those of a failure count for a result that failed."""
    if failed and (first := _FAILURES[0].match(text)):
        return int(first[1])
    end = text[-_END_SEARCHED:]
    matches = (words.search(end) for words in (*(_FAILURES[1:] if failed else ()), *_ENDINGS))
    return next((int(match[1]) for match in matches if match is not None), None)


def _json_line(text: str) -> JsonObject | list[JsonValue] | None:
    """Return the object or the list that a text is, if it is one line: files of JSON mostly have more."""
    line = text.strip()
    if not line.startswith(("{", "[")) or not line.endswith(("}", "]")) or "\n" in line:
        return None
    try:
        value = decode_json(line)
    except CorruptStore:
        return None
    return value if isinstance(value, dict | list) else None


def _wrapped(value: JsonObject | list[JsonValue], *, failed: bool) -> ToolResult | None:
    """Return the result that a program wrote as an object with an exit code, or as a list of queries and results.

    None for any other value. No field is left out but the command, which the call has.
    """
    if isinstance(value, list):
        rows = [
            row for row in value if isinstance(row, dict) and "success" in row and isinstance(row.get("result"), str)
        ]
        if not rows or len(rows) < len(value):
            return None
        lines: list[str] = []
        for row in rows:
            query = row.get("query")
            lines += [query] if isinstance(query, str) and len(rows) > 1 else []
            lines += [str(row["result"]), *_rest(row, "success", "query", "result")]
        return ToolResult("\n".join(lines), failed or any(row["success"] is False for row in rows))
    metadata = value.get("metadata")
    about = metadata if isinstance(metadata, dict) else {}
    fields = {**about, **value}
    codes = {code for name in _CODES if type(code := fields.get(name)) is int}
    outputs = {name: text for name in _OUTPUTS if isinstance(text := value.get(name), str)}
    if len(codes) != 1 or not outputs:
        return None
    rest = _rest({**about, **without(value, "metadata", "command")}, *_CODES, *outputs)
    return _ended("\n".join([*filter(None, outputs.values()), *rest]), codes.pop(), failed=failed)


def _rest(fields: Mapping[str, JsonValue], *shown: str) -> list[str]:
    """Return the other fields of a result in lines, but for those that say nothing, and how long it took."""
    others = without(fields, *shown, "duration_seconds")
    rest: JsonObject = {
        name: part for name, part in others.items() if part is not None and part is not False and part != ""
    }
    return fact_lines(rest) if rest else []


# ---------------------------------------------------------------------------------------------------------------------
# Values as names and texts, without JSON.

_ID = re.compile(
    r"(?<![0-9A-Za-z])(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{24,}"
    r"|(?:call|toolu|ses|msg|prt|resp|fc)_(?=\w*\d)\w{5,})(?![0-9A-Za-z])"
)
_OF_ID = re.compile(r"(?:^|_|(?<!model)(?<!provider)(?=[A-Z]))(?<!model_)(?<!provider_)(?:[iI]d|ID|[uU]uid)$")
"""The name of a field that has an id, other than that of a model or of its provider."""

_ID_SHOWN = 8
_OBJECT = re.compile(r'\{\s*"[^"\n]*"\s*:|\[\s*\{\s*"')
_MOST_OBJECTS = 3
_LINE_SEARCHED, _LINE_SHOWN = 1_600, 450
"""How much of a text is searched for a line, and how much is kept: more than a line shows, so that no id is halved."""
_DECODER = json.JSONDecoder()
_DEEPEST, _MOST_FACTS = 3, 20
_MAIN_ARGUMENTS = ("file_path", "path", "filePath", "pattern", "query", "url", "prompt", "task", "description")


def with_short_ids(text: str) -> str:
    """Return a text with the beginnings of the long ids in it. O(size)."""
    return _ID.sub(lambda match: f"{match[0][:_ID_SHOWN]}…", text)


def plain_line(text: str) -> str:
    """Return the beginning of a text of a program with facts in place of its JSON, and with ids cut. O(JSON)."""
    for _ in range(_MOST_OBJECTS):
        begun = _OBJECT.search(text, 0, _LINE_SEARCHED)
        if begun is None:
            break
        try:
            value, end = _DECODER.raw_decode(text, begun.start())
        except (ValueError, RecursionError):
            break
        text = f"{text[: begun.start()]}{fact_line(value)}{text[end : end + _LINE_SEARCHED]}"
    return with_short_ids(" ".join(text[:_LINE_SEARCHED].split())[:_LINE_SHOWN])


def fact_line(value: JsonValue) -> str:
    """Return a value as ``name: text, name: text``: no JSON, deep parts left out, ids only if it has nothing else."""
    facts = list(islice(_facts(value, "", 0), _MOST_FACTS))
    texts = [(name, text) for name, text in facts if not (_ID.fullmatch(text) or _OF_ID.search(name))]
    return ", ".join(with_short_ids(f"{name}: {text}" if name else text) for name, text in texts or facts)


def _facts(value: JsonValue, name: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield names and texts of the fields of an object, those of the objects in it included."""
    if isinstance(value, str) and (read := _json_line(value)) is not None:
        value = read
    if isinstance(value, dict | list) and depth >= _DEEPEST:
        if value:
            yield name, "…"
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _facts(part, key, depth + 1)
    elif isinstance(value, list):
        texts = [_scalar(item) for item in value[:_MOST_FACTS] if not isinstance(item, dict | list)]
        if texts:
            yield name, " ".join(texts)
        for item in value:
            if isinstance(item, dict | list):
                yield from _facts(item, name, depth + isinstance(item, list))
    elif isinstance(value, str):
        if value:
            yield name, plain_line(value) if depth <= _DEEPEST else value
    elif value is not None:
        yield name, _scalar(value)


def fact_lines(value: JsonValue, indent: str = "") -> list[str]:
    """Return a value in lines, names before their values, without JSON. Nothing is left out. O(size)."""
    if len(indent) > 2 * MAX_JSON_DEPTH:  # only of JSON within a text
        return [f"{indent}…"]
    if not isinstance(value, dict | list) or not value:
        return [f"{indent}{line}" for line in _scalar(value).split("\n")]
    lines: list[str] = []
    for name, part in value.items() if isinstance(value, dict) else [("-", item) for item in value]:
        head = f"{indent}{name}" if isinstance(value, list) else f"{indent}{name}:"
        inner = fact_lines(part, f"{indent}  ")
        is_block = len(inner) > 1 or (isinstance(part, dict | list) and bool(part))
        lines += [head, *inner] if is_block else [f"{head} {inner[0].strip()}".rstrip()]
    return lines


def _scalar(value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return "none" if value in (None, {}, []) else str(value)


def _main_argument(arguments: JsonValue) -> str:
    """Return the argument that says most about a call: one of a common name, else the first text, else all of them."""
    if not isinstance(arguments, dict):
        return fact_line(arguments)
    texts = [text for name in (*_MAIN_ARGUMENTS, *arguments) if isinstance(text := arguments.get(name), str) and text]
    text = next((text for text in texts if not _ID.fullmatch(text)), None)
    return fact_line(arguments) if text is None else plain_line(text)


# ---------------------------------------------------------------------------------------------------------------------
# Pictures and files in messages, in the form of any provider: their names, and the pictures that may be shown.

MOST_CHARACTERS = 4_000_000
"""How long the base64 of a picture may be that is shown."""
MOST_PIXELS = 40_000_000
PICTURES = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}
"""The types of pictures that browsers show, and how their files end."""
_LONGEST_WORD = 80
_KINDS = ("image", "file", "document", "audio", "input_audio")
# The objects of a part that data lie in, and the names of the fields with data, or with a URL that has them.
_HOLDERS = ("source", "image_url", "inlineData", "inline_data", "file", "input_audio")
_FIELDS = ("data", "url", "image_url", "file_data")
_DATA_URL = re.compile(r"data:([^;,]*)[^,]*;base64,")
_TYPES = ("mimeType", "media_type", "mime_type", "format")


class Media(Frozen):
    """A picture or a file: its name for people, its base64, its type by its bytes ("" if unknown), width and height."""

    name: str
    data: str
    mime_type: str
    size: tuple[int, int] | None

    @property
    def is_picture(self) -> bool:
        """Return whether its bytes are those of a picture that browsers show."""
        return self.mime_type in PICTURES

    @property
    def is_small(self) -> bool:
        """Return whether it is a picture that a page shows: its size is known, and below the bounds."""
        is_bounded = self.size is not None and self.size[0] * self.size[1] <= MOST_PIXELS
        return self.is_picture and is_bounded and len(self.data) <= MOST_CHARACTERS


def media_of(part: Mapping[str, JsonValue]) -> Media | None:
    """Return the picture or the file that a part of a message has the bytes of; None for any other part. O(size)."""
    for fields in (part, *(part.get(name) for name in _HOLDERS)):
        if not isinstance(fields, dict) or fields.get("type") == "text":
            continue
        declared = next((value for name in _TYPES if isinstance(value := fields.get(name), str)), None)
        for name in _FIELDS:
            text = fields.get(name)
            if not isinstance(text, str):
                continue
            if (url := _DATA_URL.match(text)) is not None:
                return _media({**fields, **part}, url[1], text[url.end() :])
            if name == "data" and (declared or part.get("type") in _KINDS):
                return _media({**fields, **part}, declared, text)
    return None


def _media(part: Mapping[str, JsonValue], declared: str | None, data: str) -> Media:
    real, size = base.type_of_bytes(data), base.pixels(data)
    count = len(data.rstrip("=")) * 3 // 4
    words = [
        *(word for name in ("name", "filename", "title") if isinstance(word := part.get(name), str)),
        str(part.get("type") or "file"),
        real or declared or "type unknown",
        f"{size[0]:,} x {size[1]:,} pixels" if size else "",
        f"{count:,} byte{'s' * (count != 1)}",
    ]
    name = ", ".join(word[:_LONGEST_WORD] for word in words if word)
    return Media(name, data.translate(base.OTHER_ALPHABET), real or "", size)
