"""A conversation as people read it: turns, what was said, the list of sessions, and the transcript that is saved."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import PurePath

from flue_py.core.entries import Entry
from flue_py.core.frozen import frozen
from flue_py.core.kinds import COMPACTION, MESSAGE, kind_of
from flue_py.core.layout import BASE, is_silent
from flue_py.core.sessions import SessionInfo
from flue_py.core.spoken import message_text
from flue_py.core.turns import Turn
from flue_py.render.lines import Line, Span, counted, one_line, printable, shortest_ids, table

MODEL_CHARACTERS = 28


@frozen
class Listed:
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
    """Return what was said on a path: each message of the user after ``>``, each answer below it, unchanged.

    Tools, thinking and settings are left out; a compaction is one line.
    """
    lines: list[Line] = []
    for entry in entries:
        text = printable(said(entry))
        if entry.kind == COMPACTION:
            what = "a range of the turns before was" if BASE in entry.fields else "the turns before were"
            what = "the turns before were left out" if is_silent(entry) else f"{what} compacted"
            lines.append(((f"({what} here)", "yellow"),))
        elif text and entry.role == "user":
            lines += [((f"> {line}", "bold cyan"),) for line in text.splitlines()]
        elif text and entry.role == "assistant":
            lines += [((line, ""),) for line in text.splitlines()]
    return lines


def said(entry: Entry) -> str:
    """Return the words of a message without its tool calls and thinking; "" of any other entry."""
    if entry.kind != MESSAGE or entry.role not in ("system", "user", "assistant"):
        return ""
    return message_text(entry.fields).strip()


_ROLES = {"system": "System", "user": "User", "assistant": "Assistant"}


def saved_transcript(entries: Sequence[Entry], *, model: str, saved: datetime) -> str:
    """Return a path as the Markdown that saving a conversation writes: what was said, tools left out."""
    parts = ["# REPL Transcript", f"**Model:** {one_line(model) or '-'}  \n**Saved:** {saved:%Y-%m-%d %H:%M:%S} UTC"]
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
