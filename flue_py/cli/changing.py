"""What commands that change a session answer: a moved leaf, a marked entry, appended entries."""

from __future__ import annotations

import click

from flue_py.cli.output import Answer, look, said
from flue_py.core.jsontext import JsonObject
from flue_py.core.log import LogLine
from flue_py.core.sessions import Appended, Moved
from flue_py.render.lines import counted, text_of
from flue_py.render.log import log_lines, log_row
from flue_py.render.rows import moved_row
from flue_py.sessions.marking import MarkEffect
from flue_py.sessions.session import Session


def moved(session: Session, done: Moved | LogLine | None, *, nothing: str = "nothing moved") -> Answer:
    """Return the answer of a command that moves the leaf, or takes an edit back."""
    if isinstance(done, LogLine):
        row = {**moved_row(session.id, None, session.leaf_id), "line": log_row(done)}
        return said(" ".join(text_of(line).strip() for line in log_lines([done], look())), row)
    text = f"{nothing}; the leaf is {shown_leaf(session.leaf_id)}"
    if done is not None:
        text = f"{done.reason}: the leaf went from {shown_leaf(done.from_id)} to {shown_leaf(done.to_id)}"
    return said(text, moved_row(session.id, done, session.leaf_id))


def shown_leaf(entry_id: str | None) -> str:
    """Return a leaf in words."""
    return "before the first entry" if entry_id is None else entry_id


def marked(session: Session, action: str, entry: str, effect: MarkEffect) -> Answer:
    """Return the answer of a command that marks an entry, with what that does to the context in tokens."""
    others = len(effect.entry_ids) - 1
    text = f"{action} entry {entry}" + (f" and {others} that belong to it" if others else "")
    if action == "pinned":
        text += f" ({counted(effect.own_tokens, 'token')} that every later compaction keeps)"
    row: JsonObject = {
        "sessionId": session.id,
        "entryId": entry,
        "entryIds": [*effect.entry_ids],
        "exclusionIds": [*effect.exclusion_ids],
        "tokensBefore": effect.tokens_before,
        "tokensAfter": effect.tokens_after,
        "ownTokens": effect.own_tokens,
    }
    return said(f"{text}; {context_change(effect.tokens_before, effect.tokens_after)}", row)


def context_change(before: int, after: int) -> str:
    """Return what became of a context's size in words: ``context 12,345 -> 11,002 tokens (-1,343)``."""
    if before == after:
        return f"context {counted(after, 'token')}, unchanged"
    return f"context {before:,} -> {counted(after, 'token')} ({after - before:+,})"


def _part(ctx: click.Context, param: click.Parameter, text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else text


part_option = click.option(
    "--part", metavar="PART", callback=_part, help="Only this part of the entry: a position from 0, or an id."
)


def appended(session: Session, text: str, done: Appended) -> Answer:
    """Return the answer of a command that appends entries."""
    row: JsonObject = {
        "sessionId": session.id,
        "entryIds": list(done.entry_ids),
        "leafId": done.leaf_id,
        "replayed": done.replayed,
    }
    return said(text, row)
