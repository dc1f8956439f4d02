"""A path as a Markdown transcript: messages with their times and costs, tool calls folded, summaries marked.

It can be continued later: it ends with a comment that names the session and the last entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from html import escape, unescape
from pathlib import PurePath
from types import MappingProxyType
from typing import TypeAlias

from flue_py.core.context import EntryCost, Turn, Turns, entry_cost, part_of, reported_counts
from flue_py.core.entries import BASE, Entry, Pairing, from_microseconds, is_silent, messages_of
from flue_py.core.json import Frozen, JsonObject, JsonValue
from flue_py.core.kinds import COMPACTION, MESSAGE, as_typed, is_spoken, kind_of, message_text, pieces_in
from flue_py.core.sessions import SessionInfo
from flue_py.core.usage import agent_of, read_reported
from flue_py.render.lines import Line, Span, clip, counted, one_line, printable, shortest_ids, table
from flue_py.render.tools import Shown, call_line, call_of, command_run, result_of, shown_call, shown_part
from flue_py.render.views import whole_cost_text

# ---------------------------------------------------------------------------------------------------------------------
# A conversation as people read it: turns, what was said, the list of sessions, and the transcript that is saved.

MODEL_CHARACTERS = 28


class Listed(Frozen):
    """A session in the list of a REPL: its row, the model that answered last, how many turns its path has."""

    info: SessionInfo
    model: str
    turns: int
    is_current: bool = False


def listed_lines(sessions: Sequence[Listed], now: datetime) -> list[Line]:
    """Return sessions, one line each: id, model (cut at 28 characters), turns, age, last part of the path."""
    short = shortest_ids([listed.info.id for listed in sessions], least=8, most=36)
    rows: list[list[Span]] = [
        [
            (f"{'*' if listed.is_current else ' '} {one_line(short[listed.info.id])}", "bold"),
            (one_line(listed.model[:MODEL_CHARACTERS]) or "-", ""),
            (counted(listed.turns, "turn"), ""),
            (f"{age(now - listed.info.active_at)} ago", "dim"),
            (one_line(PurePath(listed.info.cwd or "").name, 40), ""),
        ]
        for listed in sessions
    ]
    return table(rows, right=frozenset({2, 3}))


def age(passed: timedelta) -> str:
    """Return a span of time as days, else hours, else minutes: ``3d``, ``5h``, ``0m``."""
    seconds = max(0, int(passed.total_seconds()))
    if seconds >= 86_400:
        return f"{seconds // 86_400}d"
    return f"{seconds // 3600}h" if seconds >= 3600 else f"{seconds // 60}m"


def turn_lines(turns: Sequence[Turn], *, whole: bool = False) -> list[Line]:
    """Return the turns that the model sees, one line each, and how many earlier ones it no longer sees.

    With ``whole`` these have lines, too.
    """
    compacted = sum(turn.is_compacted for turn in turns)
    lines: list[Line] = []
    if compacted:
        text = f"{counted(compacted, 'earlier turn')} compacted; of what they said the model sees a summary"
        lines.append(((text, "yellow"),))
    lines += [
        ((f"{turn.number:>4}  ", "dim"), (printable(turn.preview), "dim" if turn.is_compacted else ""))
        for turn in turns
        if whole or not turn.is_compacted
    ]
    return lines


def said_lines(entries: Sequence[Entry]) -> list[Line]:
    """Return the conversation on a path: the words of the user after ``>``, each answer below them, unchanged.

    Tools, thinking and settings are left out; a compaction is one line, and so is a text of a program.
    """
    lines: list[Line] = []
    for entry in entries:
        text = printable(said(entry))
        if entry.kind == COMPACTION:
            note = "a range of the turns before was" if BASE in entry.fields else "the turns before were"
            note = "the turns before were left out" if is_silent(entry) else f"{note} compacted"
            lines.append(((f"({note} here)", "yellow"),))
        elif text and entry.role == "user":
            for piece in as_typed(pieces_in(entry.fields)):
                words = printable(piece.text).strip().splitlines()
                own: list[Line] = [((f"> {line}", "bold cyan"),) for line in words]
                lines += [((f"[{piece.name}]", "dim"),)] if piece.name else own
        elif text and entry.role == "assistant":
            lines += [((line, ""),) for line in text.splitlines()]
    return lines


def said(entry: Entry) -> str:
    """Return the words of a message without its tool calls and thinking; "" of any other entry."""
    if entry.kind != MESSAGE or entry.role not in ("system", "user", "assistant"):
        return ""
    return message_text(entry.fields).strip()


_ROLES = {"system": "System", "user": "User", "assistant": "Assistant"}


_UNCHECKED = "**Unchecked:** read without the key of the store; others may have changed it"


def saved_transcript(entries: Sequence[Entry], *, model: str, saved: datetime, unchecked: bool = False) -> str:
    """Return a path as the Markdown that saving a conversation writes: its messages, without tools."""
    parts = ["# REPL Transcript", f"**Model:** {one_line(model) or '-'}  \n**Saved:** {saved:%Y-%m-%d %H:%M:%S} UTC"]
    parts += [_UNCHECKED] if unchecked else []
    for entry in entries:
        text = said(entry)
        kind = kind_of(entry.kind)
        if kind.says == "summary":
            fields = entry.data if isinstance(entry.data, dict) else {}
            name = kind.heading
            if entry.kind == COMPACTION:
                name = "Summary of a range of the turns before" if BASE in fields else "Summary of the turns before"
                name = "The turns before are left out" if is_silent(entry) else name
            parts += filter(None, ["---", f"**{name}**", str(fields.get("summary", "")).strip()])
        elif text:
            parts += ["---", f"**{_ROLES[entry.role or '']}**", text]
    return "\n\n".join(parts) + "\n"


# ---------------------------------------------------------------------------------------------------------------------
# A path as a Markdown transcript: messages with their times and costs, tool calls folded, summaries marked.
#
# It can be continued later: it ends with a comment that names the session and the last entry.

_MARKER = re.compile(r"^<!-- flue-py transcript: session (\S+) up to (\S+) -->$", re.MULTILINE)
_SHOWN_CALL = 80

_Results: TypeAlias = Mapping[tuple[str, int], Entry]


class WrittenUpTo(Frozen):
    """How far a transcript goes: its session, and the last entry in it."""

    session_id: str
    entry_id: str


def written_up_to(text: str) -> WrittenUpTo | None:
    """Return how far a transcript goes, by its last marker; None if the text has no marker."""
    markers = _MARKER.findall(text)
    return WrittenUpTo(_decoded(markers[-1][0]), _decoded(markers[-1][1])) if markers else None


def transcript_head(info: SessionInfo, name: str, *, task_of: str | None = None, unchecked: bool = False) -> str:
    """Return the head of a transcript: the session, when it began, and the first request.

    ``name`` is the one that people know. ``task_of`` is the id of the session whose task it is, if it follows that
    one's transcript; ``unchecked`` says that the store was read without its key.
    """
    facts = [f"**Session:** {_code(info.id)}", f"**Date:** {_moment(info.created_us)}"]
    if unchecked:
        facts.append(_UNCHECKED)
    if info.forked_from_session is not None:
        facts.append(f"**Forked from:** {_code(info.forked_from_session)}")
    if task_of is not None:
        facts.append(f"**Task of:** {_code(task_of)}")
    if info.cwd:
        facts.append(f"**Folder:** {_code(info.cwd)}")
    if task := _task_given(info) or info.first_message:
        facts.append(f"**Task:** {_inline(task)}")
    title = "Transcript" if task_of is None else "Task session"
    return f"# {title}: {_inline(name)}\n\n" + "  \n".join(facts) + "\n"


def _task_given(info: SessionInfo) -> str | None:
    """Return the first line of the task of an imported run, which is in none of its messages."""
    value: JsonValue = info.metadata
    for name in ("imported", "checkpoint", "Task"):
        value = value.get(name) if isinstance(value, dict) else None
    lines = value.splitlines() if isinstance(value, str) else []
    return next((task for line in lines if (task := line.lstrip("# ").strip())), None)


def transcript_body(
    session_id: str,
    entries: Sequence[Entry],
    *,
    before: Sequence[Entry] = (),
    costs: Mapping[str, EntryCost] = MappingProxyType({}),
) -> str:
    """Return entries, in order of the path, as Markdown; with the marker of where they end. "" for no entries.

    ``before`` is the path before them, whose turns are counted, ``costs`` those of entries in the ledger, by id. A
    tool call is folded, with its result inside if that is among the entries.
    """
    if not entries:
        return ""
    results = _results_by_call(entries)
    folded_in = {result.id for result in results.values()}
    turns = Turns()
    for earlier in before:
        turns.add(part_of(earlier))
    parts: list[str] = []
    for entry in entries:
        turn = turns.add(part_of(entry))
        if entry.id not in folded_in:
            parts += _section(entry, turn, results, costs)
    marker = f"<!-- flue-py transcript: session {_encoded(session_id)} up to {_encoded(entries[-1].id)} -->"
    return "\n".join([*parts, marker, ""])


def rewound_note(turns_kept: int) -> str:
    """Return the note that the session went back to a turn, left its successors, and goes on from there."""
    where = f"turn {turns_kept}" if turns_kept else "the beginning"
    return (
        f"\n---\n\n## Rewound to {where}\n\n*What was said after that was left. What follows continues from there.*\n"
    )


def _results_by_call(entries: Sequence[Entry]) -> _Results:
    """Return the results of tool calls, by the entry of the call and the call's position in its content."""
    pairing = Pairing(messages_of(entries))
    return {
        (entries[call.at].id, call.part): entries[results[0]] for call, results in pairing.results.items() if results
    }


def _section(entry: Entry, turn: int, results: _Results, costs: Mapping[str, EntryCost]) -> Iterator[str]:
    """Yield the parts of one entry; an entry without text for people yields none."""
    kind = kind_of(entry.kind)
    if kind.says == "summary":
        fields = entry.fields
        yield from _heading(f"[{kind.heading}]", turn, entry, _usage_facts(entry, fields, costs))
        yield from ("> " + line for line in _said(str(fields.get("summary", ""))).splitlines())
        yield ""
    elif kind.says == "content":
        data = entry.data
        yield from _heading(f"[{kind.heading}]", turn, entry, [])
        yield _said(message_text(data) if isinstance(data, dict) else str(data))
    elif entry.kind == MESSAGE and entry.role == "toolResult":
        yield from _heading("[Tool result]", turn, entry, [])
        yield _folded_result(entry)
    elif entry.kind == MESSAGE:
        yield from _message(entry, turn, results, costs)


def _message(entry: Entry, turn: int, results: _Results, costs: Mapping[str, EntryCost]) -> Iterator[str]:
    fields = entry.fields
    facts = _usage_facts(entry, fields, costs) if entry.role == "assistant" else []
    if entry.role == "assistant" and fields.get("stopReason") in ("error", "aborted"):
        facts.append(f"**{fields['stopReason']}**")
    yield from _heading(f"[{_inline(_speaker(entry.role or '', fields))}]", turn, entry, facts)
    content = fields.get("content")
    if entry.role == "bashExecution":
        command, result = command_run(fields)
        yield _fenced(f"$ {command.line}\n{result.text}") + "".join(f"*{mark}*\n" for mark in result.marks)
    for place, part in enumerate(content if isinstance(content, list) else [] if content is None else [content]):
        if isinstance(part, dict) and part.get("type") == "toolCall":
            yield _folded_call(part, results.get((entry.id, place)))
        else:
            yield from map(_part, shown_part(part, is_user=entry.role == "user"))
    if isinstance(fields.get("errorMessage"), str):
        yield f"**Error:** {_inline(str(fields['errorMessage']))}\n"


def _speaker(role: str, message: Mapping[str, JsonValue]) -> str:
    """Return who speaks: the agent that a message names, else its role; an assistant with its model."""
    agent = agent_of(message) if role == "assistant" else None
    person = "Human" if role == "user" and is_spoken(message) else "Program"
    name = agent or {"user": person}.get(role, role.capitalize())
    model = message.get("model")
    return f"{name}, {model}" if role == "assistant" and isinstance(model, str) and model else name


def _part(part: Shown) -> str:
    match part.kind:
        case "words":
            return _said(part.text)
        case "thinking":
            return _details("Thinking", _said(part.text))
        case "program":
            return _details(part.heading, _said(part.text))
        case "media":
            return f"*[{_inline(part.text)}]*\n"
        case _:
            return _fenced(part.text)


def _folded_call(part: JsonObject, answer: Entry | None) -> str:
    call = call_of(part)
    result = None if answer is None else result_of(answer.fields)
    state = "no result" if result is None else ", ".join(result.marks) or "ok"
    texts = [_fenced(shown.text, "diff" if shown.kind == "diff" else "") for shown in shown_call(call) if shown.text]
    if result is not None:
        texts.append(_fenced(result.text))
    return _details(f"{clip(one_line(call_line(call)), _SHOWN_CALL)}: {state}", "\n".join(texts))


def _folded_result(entry: Entry) -> str:
    result = result_of(entry.fields)
    return _details(f"{entry.fields.get('toolName')}: {', '.join(result.marks) or 'ok'}", _fenced(result.text))


def _heading(who: str, turn: int, entry: Entry, facts: Sequence[str]) -> Iterator[str]:
    yield "\n---\n"
    yield ("  ·  ".join([f"## {who} — Turn {_own_turn(entry) or turn}", _moment(entry.created_us), *facts]) + "\n")


def _own_turn(entry: Entry) -> int | None:
    """Return the turn number that a message of a run brought along; a run counts its agents' turns from 0."""
    number = entry.extra_fields.get("TurnIndex") if entry.extra is not None and "TurnIndex" in entry.extra else None
    return number + 1 if type(number) is int and number >= 0 else None


def _usage_facts(entry: Entry, fields: JsonObject, costs: Mapping[str, EntryCost]) -> list[str]:
    """Return tokens and cost in words; an unknown number is a dash, since it need not be zero.

    A copy shows no cost: its original was paid for.
    """
    reported = fields.get("usage")
    if not isinstance(reported, dict):
        return []
    read = read_reported(reported)
    used = reported_counts(read)
    sent, received = ("–" if used[name] is None else f"{used[name]:,}" for name in ("input", "output"))
    cached = f" cached:{used['cacheRead']:,}" if used["cacheRead"] else ""
    written = f" cache-written:{used['cacheWrite']:,}" if used["cacheWrite"] else ""
    facts = [f"in:{sent} out:{received}{cached}{written}"]
    cost = entry_cost(entry, costs)
    if cost is not None:
        facts.append(f"${whole_cost_text(cost)}" if cost.is_known else "$–")
    return facts


# -- text that cannot act as markup -------------------------------------------------------------------------------


def _said(text: str) -> str:
    """Return Markdown with everything that it left open closed, so that it cannot swallow the text below it.

    A line that looks like a heading of the transcript is shown as text.
    """
    fence = ""
    lines = []
    for line in _LINE_END.split(text):
        match = re.match(r" {0,3}(`{3,}|~{3,})(.*)", line)
        if match and not fence:
            fence = match[1]
        elif match and match[1].startswith(fence) and not match[2].strip():
            fence = ""
        if fence:
            lines.append(f" {line}" if _is_forged(line) else line)
        else:
            lines.append(_unforged(line, lines[-1] if lines else ""))
    if fence:
        lines.append(fence)
    # An open comment would hide the rest; a closing tag would end the fold around it.
    tags = r"<(?=!--|/?details|/?summary|/?h[1-6]\b)"
    return re.sub(tags, "&lt;", "\n".join(lines), flags=re.IGNORECASE) + "\n"


_LINE_END = re.compile("\r\n|[\n\r\x0b\x0c\x85\u2028\u2029]")
_HEADING = re.compile(r"(?P<before>(?:\s*(?:>|[-*+]|\d{1,9}[.)]))*\s*)(?P<signs>#{1,2})(?P<text>\s.*)")
_UNDERLINE = re.compile(r"\s{0,3}(?:=+|-+)\s*")
_OURS = re.compile(r"\[|\bturn\W*\d|\brewound\b|\btranscript\b|\btask session\b", re.IGNORECASE)


def _is_forged(line: str) -> bool:
    """Return whether a line looks like a heading of the transcript."""
    match = _HEADING.fullmatch(line)
    return match is not None and _OURS.search(unescape(match["text"])) is not None


def _unforged(line: str, before: str) -> str:
    """Return a line of Markdown that does not look like a heading of the transcript, alone or as an underline."""
    match = _HEADING.fullmatch(line)
    if match is not None and _is_forged(line):
        return match["before"] + "\\#" * len(match["signs"]) + match["text"]
    is_underline = _UNDERLINE.fullmatch(line) is not None and _OURS.search(unescape(before)) is not None
    return "\\" + line.lstrip() if is_underline else line


def _inline(text: str) -> str:
    """Return a text for the middle of a line, without anything that Markdown or HTML would act on."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", one_line(text))


def _code(text: str) -> str:
    shown = one_line(text)
    ticks = "`" * (1 + max((len(run) for run in re.findall(r"`+", shown)), default=0))
    return f"{ticks}{shown}{ticks}" if "`" not in shown else f"{ticks} {shown} {ticks}"


def _fenced(text: str, language: str = "") -> str:
    """Return a text in a fence that is longer than any in it."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    lines = [f"{fence}{language}", *_LINE_END.split(text), fence]
    # The content is indented like its fence, which Markdown removes: so no line of it begins like a heading.
    indent = " " if any(_is_forged(line) for line in lines) else ""
    return "".join(f"{indent}{line}\n" for line in lines)


def _details(summary: str, body: str) -> str:
    return f"<details><summary>{escape(one_line(summary))}</summary>\n\n{body}\n</details>\n"


def _moment(microseconds: int) -> str:
    return from_microseconds(microseconds).strftime("%Y-%m-%d %H:%M:%S UTC")


def _encoded(name: str) -> str:
    """Return an id as one word that cannot end a comment."""
    return json.dumps(name).replace("-", "\\u002d").replace(" ", "\\u0020").replace(">", "\\u003e")


def _decoded(word: str) -> str:
    try:
        value = json.loads(word)
    except ValueError:
        return ""
    return value if isinstance(value, str) else ""
