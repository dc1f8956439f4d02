"""The chat history of aider: `.aider.chat.history.md`."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator
from functools import partial
from io import StringIO
from pathlib import Path

from flue_py.core.json import JsonObject, JsonValue
from flue_py.core.sessions import made_id
from flue_py.errors import UnreadableFile
from flue_py.formats import kit
from flue_py.formats.gathered import SESSION, GatheredReader, gathered_row, read_beside

# The file is Markdown that aider only appends to. Its notes and the lines of a person end with two spaces; a line of an
# answer that begins in the same way has none, as a rule. A note of several lines has them at the end of the last.
# A text editor may have taken these spaces away: `_parts` decides that first, once for a session.
#
# A part is complete when the next one follows, or if it is a report of tokens: its entry has an id made of its text.
# docs/formats/aider.md names all that is lost.

FORMAT = "aider"
HISTORY = ".aider.chat.history.md"

_HEADING = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*")
# A file that was made by a Windows shell begins with a mark and an empty line in UTF-16, to which aider adds UTF-8.
_END, _BEFORE = "  ", "\ufeff\ufffd\0\r\n\t "
_LAST_LINE = re.compile(r"\S  $")
_USER, _NOTE, _REPORT = "#### ", "> ", "Tokens: "
_TOKENS = re.compile(r"Tokens: (\S+) sent,(?: (\S+) cache write,)?(?: (\S+) cache hit,)? (\S+) received\.")
_COST = re.compile(r"Cost: \$([\d.]+) message")
_MODEL = re.compile(r"(Main model|Editor model|Models?): (?:([^\s/]+)/)?([^\s/]+(?:/[^\s/]+)*)(?: (?:with|using) .+)?")
_CLEARED = re.compile(r"All (?:files dropped and )?chat history cleared\.?")
_CLEAR = re.compile(r"/(?:clear|reset)(?:\s.*)?", re.DOTALL)
_THOUGHT = re.compile(r"\A<(think|thinking-content-[0-9a-f]{32})>(.*?)</\1>\s*(.*)", re.DOTALL)
_COMMAND = re.compile(r"[/!].*|<blank>", re.DOTALL)
"""The texts of a person that are sent to no model: commands, and that nothing was typed."""

_TRIMMED = re.compile(r"^(####|>)(?: (.*\S))?[ \r]*$", re.MULTILINE)
# Some editors put empty lines between the lines of a question. The end of a file may become such a line.
_GAP = re.compile(r"^(####(?! [/!]| <blank>|\S).*\n)[\r\n]+(?=####(?! [/!]| <blank>|\S)|#{0,3}\Z)", re.MULTILINE)


def looks_like_aider(head: bytes, path_name: str = "") -> bool:
    """Return whether the beginning of a file may be a chat history of aider."""
    return _HEADING.match(head.decode(errors="replace").lstrip(_BEFORE)) is not None


def gather_aider(path: Path) -> Generator[bytes, None, None]:
    """Yield the rows of each session of a history: one about it, and its parts. Raises `UnreadableFile`."""
    data = read_beside(path)
    if data is None:
        raise UnreadableFile(f"{path} is not a file that can be read as a chat history; nothing was imported")
    folder = str(path.absolute().parent) if path.name == HISTORY else None
    sessions: list[tuple[str | None, list[str]]] = [(None, [])]
    for line in StringIO(data.decode(errors="replace").lstrip(_BEFORE)):
        heading = _HEADING.fullmatch(line)
        if heading is None:
            sessions[-1][1].append(line)
        else:
            sessions.append((heading[1], []))
    counts: dict[str, int] = {}
    for number, (started, lines) in enumerate(sessions, 1):
        parts = [*_parts(lines, is_begun=started is None)]
        if number < len(sessions) and parts:
            parts[-1]["complete"] = True
        first = next((str(part["text"]) for part in parts if part["complete"]), None)
        if started is not None or first is not None:
            counts[f"{started} {first}"] = counts.get(f"{started} {first}", 0) + 1
            name = made_id(FORMAT, str(started), str(first), str(counts[f"{started} {first}"]))
            yield gathered_row(SESSION, {"session": name, "started": started, "cwd": folder})
            yield from (gathered_row(str(part["type"]), part) for part in parts)


def _parts(lines: list[str], *, is_begun: bool) -> Iterator[JsonObject]:
    """Yield the parts of a session: the words of a person, notes, and answers. ``is_begun``: its beginning is lost."""
    kind, texts, is_open = "answer", list[str](), False
    ends = {line.rstrip("\r\n").endswith(_END) for line in lines if line.startswith(_USER) and line.endswith("\n")}
    is_trimmed = ends == {False}
    for line in _restored(lines) if is_trimmed else lines:
        text = line.rstrip("\r\n")
        starts, is_own = text.startswith((_USER, _NOTE)), text.endswith(_END)
        # Before an answer stands an empty line: any other line behind a note is of the note.
        if (is_open and not (is_own and starts)) or (kind == "note" and text.strip() and not starts):
            texts.append(text)
            # aider takes other spaces away before it adds its own.
            is_open = not is_trimmed and not _LAST_LINE.search(text)
            continue
        begins = "user" if text.startswith(_USER) else "note" if text.startswith(_NOTE) else "answer"
        if not is_own and kind == "answer" and is_begun and not text.startswith(_NOTE + _REPORT):
            begins = "answer"
        if begins != kind or kind == "note":
            yield from _part(kind, texts, is_complete=line.endswith("\n") or kind == "note")
            kind, texts = begins, []
        texts.append(text if begins == "answer" else text[len(_USER if begins == "user" else _NOTE) :])
        is_open, is_begun = begins == "note" and not is_own, is_begun or begins == "user"
    is_report = kind == "note" and texts[0].startswith(_REPORT) and not is_open and lines[-1].endswith("\n")
    yield from _part(kind, texts, is_complete=is_report and not is_trimmed)


def _restored(lines: list[str]) -> Iterable[str]:
    """Return the lines of a trimmed session with the spaces of aider, and without empty lines within a question."""
    return StringIO(_TRIMMED.sub(r"\1 \2  ", _GAP.sub(r"\1", "".join(lines))))


def _part(kind: str, texts: list[str], *, is_complete: bool) -> Iterator[JsonObject]:
    text = "\n".join(text.removesuffix(_END) for text in texts) if kind != "answer" else "\n".join(texts).strip("\n")
    if text.strip():
        yield {"type": kind, "text": text, "complete": is_complete}


def parse_aider(rows: list[kit.Row], notes: kit.Notes, take_all: bool) -> kit.SessionPart | None:
    """Return the session of a row about it and its parts; None if it says nothing. O(rows)."""
    about = rows[0].fields
    started, folder = kit.one_text(about.get("started")), kit.one_text(about.get("cwd"))
    moment = kit.read_time(started)
    chain, main_model, editor_model = kit.Chain(str(about.get("session")), notes), dict[str, str](), dict[str, str]()
    is_editor, answer = False, ""
    notes.left_out["is about a session"] += 1
    whole = [row for row in rows[1:] if row.fields.get("complete") is True or take_all]
    following = rows[1 + len(whole) :]
    if whole and following and whole[-1].type == "answer" and str(following[0].fields.get("text")).startswith(_REPORT):
        following = [whole.pop(), *following]  # its tokens are in the note
    for row in following:
        notes.hold_back(row.line)
    for at, row in enumerate(whole):
        text = str(row.fields.get("text"))
        is_note, is_user = row.type == "note", row.type == "user"
        if is_note and (named := _MODEL.fullmatch(text)) is not None:
            names = {"provider": named[2], "model": named[3]} if named[2] else {"model": named[3]}
            main_model, editor_model = (main_model, names) if named[1] == "Editor model" else (names, {})
        elif is_user:
            # The plan of an architect is the question to the editor: aider writes it a second time.
            is_editor = bool(editor_model) and text.split() == _THOUGHT.sub(r"\3", answer).split()
        model = editor_model if is_editor else main_model
        if is_note or (is_user and (is_editor or _COMMAND.fullmatch(text))):
            kind = "aider.note" if is_note else "aider.editor" if is_editor else "aider.command"
            entry, usage = kit.plain_entry(kind, {"text": text}), _usage(row)
            if usage and whole[at - 1].type != "answer":
                names = {"provider": "", "model": "", **model, "call_id": ""}
                entry = kit.with_call(entry, usage, notes, row.line, **names)
            is_new = chain.leaf is None
            chain.add(entry, row.line, created_us=moment)
            chain.leaf = None if (_CLEARED if is_note else _CLEAR).fullmatch(text) and not is_new else chain.leaf
            continue
        message: JsonObject = {"role": "user", "content": text}
        if row.type == "answer":
            answer = text
            usage = _usage(whole[at + 1]) if at + 1 < len(whole) else {}
            message = {"role": "assistant", "content": _content(text), **model, **({"usage": usage} if usage else {})}
        entry, extra = kit.message_entry(message, {**message}, row.line, notes)
        chain.add(entry, row.line, beside=extra, created_us=moment)
    if not chain.entries:
        return None
    chain.leaf = chain.entries[-1].id
    return chain.parsed(FORMAT, HISTORY, {"started": started}, cwd=folder, created_us=moment)


read_aider = partial(GatheredReader, parse_aider)


def _content(answer: str) -> JsonValue:
    """Return an answer as parts if thoughts stand before it."""
    thought = _THOUGHT.match(answer)
    if thought is None:
        return answer
    return [kit.thought(thought[2].strip()), *([{"type": "text", "text": thought[3]}] if thought[3] else [])]


def _usage(row: kit.Row) -> JsonObject:
    """Return the usage that a note reports of the answer before it, in rounded numbers."""
    text = str(row.fields.get("text"))
    report, cost = _TOKENS.match(text) if row.type == "note" else None, _COST.search(text)
    counts = [_count(number) for number in report.groups()] if report is not None else []
    if not counts or counts[0] is None or counts[3] is None:
        return {}
    names = ("cacheWrite", "cacheRead")
    cached = {name: count for name, count in zip(names, counts[1:3], strict=True) if count is not None}
    usage: JsonObject = {**cached, "input": max(0, counts[0] - sum(cached.values())), "output": counts[3]}
    return usage | ({"cost": {"total": float(cost[1])}} if cost is not None and cost[1].count(".") < 2 else {})


def _count(number: str | None) -> int | None:
    """Return a number of tokens as aider writes it: 581, 2.1k, 12k."""
    match = re.fullmatch(r"(\d{1,9}(?:[.,]\d{1,9})?)(k?)", number or "")
    return None if match is None else round(float(match[1].replace(",", "")) * (1000 if match[2] else 1))
