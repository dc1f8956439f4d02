"""What a tool call changes in files, as the lines of a diff: the editing tools of Claude Code, Codex and pi."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from flue_py.core.jsontext import JsonObject, JsonValue

_PATHS = ("file_path", "path")
_REPLACED = (("old_string", "new_string"), ("oldText", "newText"))
_SHELLS = frozenset({"shell", "local_shell", "shell_command", "exec_command", "container.exec"})
_COMMANDS = ("command", "cmd")
# The whole command has to be the patch: a command that does more is shown as it is.
_PATCH = re.compile(
    r"\s*(?:apply_?patch\b\s*(?:<<-?\s*(['\"]?)\w+\1)?)?\s*\*\*\* Begin Patch[^\n]*\n(?P<body>.*?)"
    r"\*\*\* End Patch\s*\w*\s*",
    re.DOTALL,
)
_HEAD = re.compile(r"\*\*\* (Update|Add|Delete) File: (.*)")
_HEADINGS = {"Update": "", "Add": " (new file)", "Delete": " (deleted)"}
_MOST_COMPARED = 100_000


@dataclass(frozen=True, slots=True)
class FileEdit:
    """What one call changes in one file. Each of its ``lines`` begins with +, -, a space, or @ (between two places)."""

    path: str
    lines: str


@dataclass(frozen=True, slots=True)
class Edits:
    """What a tool call changes, and its other arguments."""

    files: Sequence[FileEdit]
    rest: JsonObject = field(default_factory=dict)


def edits_of(tool: str, arguments: JsonValue) -> Edits | None:
    """Return what a call changes in files; None if it is not known to edit files.

    No argument is left out. O(their size).
    """
    name = tool.casefold()
    if name in ("edit", "multiedit"):
        return _replaced(arguments)
    if name == "write":
        return _written(arguments)
    if name in ("apply_patch", "applypatch") or name in _SHELLS:
        return _patched(arguments)
    return None


def _replaced(arguments: JsonValue) -> Edits | None:
    """Return the edits of `{path, old, new}` or of `{path, edits: [{old, new}]}`."""
    path, rest = _path_of(arguments)
    if path is None:
        return None
    places = rest.pop("edits", None)
    if places is None:
        found = _replacement(rest)
        if found is None:
            return None
        lines, rest = found
        return Edits([FileEdit(path, "\n".join(lines))], rest)
    all_lines: list[str] = []
    for place in places if isinstance(places, list) else [None]:
        found = _replacement(place) if isinstance(place, dict) else None
        if found is None:
            return None
        lines, left = found
        note = "".join(f" {name}" for name, value in left.items() if value is True)
        if any(value not in (True, False, None) for value in left.values()):
            return None
        all_lines += [f"@@{note}", *lines]
    return Edits([FileEdit(path, "\n".join(all_lines))], rest)


def _path_of(arguments: JsonValue) -> tuple[str | None, JsonObject]:
    if isinstance(arguments, dict):
        for name in _PATHS:
            path = arguments.get(name)
            if isinstance(path, str):
                return path, {key: value for key, value in arguments.items() if key != name}
    return None, {}


def _replacement(fields: JsonObject) -> tuple[list[str], JsonObject] | None:
    for names in _REPLACED:
        old, new = (fields.get(name) for name in names)
        if isinstance(old, str) and isinstance(new, str):
            rest = {key: value for key, value in fields.items() if key not in names}
            return list(_compared(_lines(old), _lines(new))), rest
    return None


def _lines(text: str) -> list[str]:
    return text.split("\n") if text else []


def _compared(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Yield all lines of both, unchanged ones once. Texts too long to compare are replaced as a whole."""
    if len(old) * len(new) > _MOST_COMPARED:
        steps = [("replace", 0, len(old), 0, len(new))]
    else:
        steps = list(SequenceMatcher(None, old, new, autojunk=False).get_opcodes())
    for step, first, last, new_first, new_last in steps:
        if step == "equal":
            yield from (f" {line}" for line in old[first:last])
        else:
            yield from (f"-{line}" for line in old[first:last])
            yield from (f"+{line}" for line in new[new_first:new_last])


def _written(arguments: JsonValue) -> Edits | None:
    path, rest = _path_of(arguments)
    content = rest.pop("content", None)
    if path is None or not isinstance(content, str):
        return None
    return Edits([FileEdit(path, "\n".join(f"+{line}" for line in _lines(content)))], rest)


def _patched(arguments: JsonValue) -> Edits | None:
    """Return the edits of a patch in the format of Codex: the arguments themselves, one of them, or a shell command."""
    if isinstance(arguments, str):
        return _patch(arguments, {})
    if not isinstance(arguments, dict):
        return None
    for name in ("input", "patch", *_COMMANDS):
        value = arguments.get(name)
        # A command is a list of words: the program and the patch, or a shell, its switch and a command line.
        words = value if isinstance(value, list) else [value]
        if words and isinstance(words[-1], str) and "*** Begin Patch" in words[-1]:
            known = len(words) == 1 or words[:-1] == ["apply_patch"] or (len(words) == 3 and words[1] in ("-lc", "-c"))
            return _patch(words[-1], _without(arguments, name)) if known else None
    return None


def _without(arguments: JsonObject, name: str) -> JsonObject:
    return {key: value for key, value in arguments.items() if key != name}


def _patch(text: str, rest: JsonObject) -> Edits | None:
    found = _PATCH.fullmatch(text)
    if found is None:
        return None
    files: list[tuple[str, list[str]]] = []
    for line in found["body"].removesuffix("\n").split("\n"):
        head = _HEAD.match(line)
        if head is not None:
            files.append((head[2] + _HEADINGS[head[1]], []))
        elif not files:
            return None
        else:
            # Models write an empty line without its leading space; lines such as "*** Move to" are marked.
            files[-1][1].append(line if line[:1] in ("+", "-", " ", "@") else f"@{line}" if line else " ")
    return Edits([FileEdit(path, "\n".join(lines)) for path, lines in files], rest) if files else None
