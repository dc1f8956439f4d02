"""Session files of Kimi CLI, the program before Kimi Code, which has ended."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from functools import partial
from hashlib import md5
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from flue_py.core.entries import NewEntry
from flue_py.core.json import JsonObject, JsonValue
from flue_py.core.sessions import made_id
from flue_py.core.usage import PaidCall, call_of, read_reported
from flue_py.errors import UnreadableFile
from flue_py.formats import kit
from flue_py.formats.gathered import SESSION, GatheredReader, gathered_row, lines_of, object_beside, states_of
from flue_py.providers.base import fields_of, listed, only
from flue_py.providers.openai_chat import calls_in, message_from_chat

# A session is a folder. context.jsonl is the list of its messages; before a list is begun anew, the program keeps it as
# context_N.jsonl. Each list is a path of the tree. wire.jsonl says when a step ended, and the tokens that it took.
# docs/formats/kimi.md lists the fields that are kept.

FORMAT = "kimi-cli"
LIST, ITEM, EVENT = "list", "item", "event"
"""The types of gathered rows: the beginning of a list, a row of one, and a row of wire.jsonl."""

_BEGINNING = re.compile(rb'\s*\{"role": ?"_(system_prompt|checkpoint|usage)"')
_IN_PLACE = re.compile(rb'\s*\{"role": ?"(user|assistant)"')
_LIST = re.compile(r"context(?:_(\d+))?\.jsonl")
_TOKENS = {"input_other": "input", "input_cache_read": "cacheRead", "input_cache_creation": "cacheWrite"}


def looks_like_kimi_cli(head: bytes, path_name: str = "") -> bool:
    """Return whether the beginning of a file may be the messages of Kimi CLI; without marks of it, its place tells."""
    head = head.removeprefix(b"\xef\xbb\xbf")
    is_there = ".kimi/sessions/" in path_name.replace("\\", "/") and _IN_PLACE.match(head)
    return bool(_BEGINNING.match(head) or is_there)


def _lists(path: Path) -> list[Path]:
    """Return the lists of the session of a file, the newest last."""
    if not _LIST.fullmatch(path.name):
        return [path]
    numbers = {file: match[1] for file in path.parent.glob("context*.jsonl") if (match := _LIST.fullmatch(file.name))}
    return sorted(numbers, key=lambda file: (numbers[file] is None, int(numbers[file] or 0)))


def _files(path: Path) -> tuple[Path, Path]:
    """Return the folder of the session of a file, and that of the agent that wrote it."""
    folder = path.absolute().parent
    return (folder.parent.parent if folder.parent.name == "subagents" else folder), folder


def beside_kimi_cli(path: Path) -> JsonValue:
    """Return the states of the other files of the session. Never raises."""
    root, folder = _files(path)
    return states_of([*_lists(path), root / "state.json", folder / "wire.jsonl"])


def gather_kimi_cli(path: Path) -> Generator[bytes, None, None]:
    """Yield a row about the session of a file, and the rows of its files."""
    root, folder = _files(path)
    is_list = _LIST.fullmatch(path.name) is not None
    known = listed(object_beside(root.parent.parent.parent / "kimi.json").get("work_dirs"))
    # The folder above is named for the project's path, which only a digest tells.
    places = {md5(name.encode(), usedforsecurity=False).hexdigest(): name for name in map(_path_of, known)}
    is_of_folder = root != folder or path.stem.startswith("context")
    about: JsonObject = {"session": root.name if is_of_folder else path.stem, "file": path.name}
    about["cwd"] = places.get(root.parent.name)
    if root != folder or (is_of_folder and not is_list):
        about["agent"] = folder.name if root != folder else path.stem
    yield gathered_row(SESSION, {**about, "state": object_beside(root / "state.json")})
    for file in _lists(path):
        yield gathered_row(LIST, {})
        yield from (_row(ITEM, line) for line in lines_of(file) if not line.isspace())
    if is_list:
        yield from (_row(EVENT, line) for line in lines_of(folder / "wire.jsonl") if b'"StatusUpdate"' in line)


def _row(kind: str, line: bytes) -> bytes:
    return b'{"row":%s,"type":"%s"}\n' % (line.strip(), kind.encode())


def _path_of(place: JsonValue) -> str:
    return kit.one_text(fields_of(place).get("path")) or ""


class _Reading(Struct):
    """The rows that were read so far."""

    chain: kit.Chain
    tools: dict[str, str] = field(default_factory=dict)
    placed: dict[tuple[str | None, str], str] = field(default_factory=dict)
    """The entries, by the one before them, and their payloads: lists have beginnings in common."""
    calls: list[PaidCall] = field(default_factory=list)
    began_us: int | None = None

    def read(self, row: kit.Row) -> None:
        """Take over a row."""
        notes, value = self.chain.notes, fields_of(row.fields.get("row"))
        role = value.get("role")
        if row.type == LIST:
            notes.left_out["is about the session"] += 1
            self.chain.leaf = None
        elif row.type == EVENT:
            notes.left_out["is about a step"] += 1
            self._pay(value)
        elif role in ("_checkpoint", "_usage"):
            notes.left_out["is a mark in the list"] += 1
        elif role == "_system_prompt":
            self._place(row, kit.plain_entry("kimi_cli.system_prompt", only(value, "content")), {})
        else:
            content = value.get("content")
            parts = [_part(part) for part in content] if isinstance(content, list) else content
            message = message_from_chat({**value, "content": parts}, self.tools)
            self.tools |= calls_in(message)
            self._place(row, *kit.message_entry(message, value, row.line, notes))

    def _place(self, row: kit.Row, entry: NewEntry, extra: JsonObject) -> None:
        key = self.chain.leaf, entry.payload
        self.chain.notes.merged += key in self.placed
        # The same list gives the same ids, whichever file it is in.
        self.chain.linked = self.chain.leaf or ""
        self.chain.leaf = self.placed[key] = self.placed.get(key) or self.chain.add(entry, row.line, beside=extra)

    def _pay(self, value: JsonObject) -> None:
        """Book the tokens of a step: nothing says which message it made."""
        payload = fields_of(fields_of(value.get("message")).get("payload"))
        time, usage = value.get("timestamp"), payload.get("token_usage")
        if not isinstance(usage, dict):
            return
        at_us = int(time * 1_000_000) if isinstance(time, (int, float)) and 0 <= time < 253_402_300_800 else None
        self.began_us = self.began_us or at_us
        reported = read_reported({_TOKENS.get(name, name): count for name, count in usage.items()})
        call_id = made_id(FORMAT, f"{at_us}:{kit.one_text(payload.get('message_id'))}")
        self.calls.append(replace(call_of(reported, call_id=call_id), at_us=at_us))


def _part(value: JsonValue) -> JsonValue:
    part = fields_of(value)
    seal = part.get("encrypted")
    if part.get("type") == "think":
        return {"type": "thinking", "thinking": part.get("think"), **({"thinkingSignature": seal} if seal else {})}
    image = fields_of(part.get("image_url"))
    return {**part, "image_url": only(image, "url")} if image else value


def parse_kimi_cli(rows: Sequence[kit.Row], notes: kit.Notes, take_all: bool) -> kit.ParsedSession | None:
    """Return the session of gathered rows. Raises `UnreadableFile` if no row is of Kimi CLI."""
    about = rows[0].fields
    file, name, agent = kit.one_text(about.get("file")) or "the file", about.get("session"), about.get("agent")
    if not any("role" in fields_of(row.fields.get("row")) for row in rows):
        raise UnreadableFile(f"{file} is not a session of Kimi CLI: no row has a role; nothing was imported")
    notes.left_out["is about the session"] += 1
    root = name if kit.is_name(name) else made_id(FORMAT, file)
    parent = kit.TaskOf(root, agent) if kit.is_name(agent) else None
    session_id = root if parent is None else f"{root}:{agent}"
    reading = _Reading(kit.Chain(session_id, notes))
    for row in rows[1:]:
        reading.read(row)
    state = fields_of(about.get("state")) if parent is None else {}
    titles = {state.get("title_generated") is True: kit.one_text(state.get("custom_title"))}
    cwd, began_us = about.get("cwd"), reading.began_us
    names: kit.SessionFields = {"auto_title": titles.get(True), "cwd": cwd, "created_us": began_us, "parent": parent}
    parsed = reading.chain.parsed(FORMAT, file, {"state": state}, **names)
    bill = kit.SessionPart(FORMAT, "1", parsed.session, (), calls=tuple(reading.calls), parent=parent)
    payer = bill if reading.calls else None
    return replace(parsed, name=titles.get(False), restates=True, payer=payer)


read_kimi_cli = partial(GatheredReader, parse_kimi_cli)
