"""What commands tell of sessions and entries that their rows do not hold: names, models, sizes, marks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from flue_py.cli.progress import progress_bar
from flue_py.core.entries import Entry
from flue_py.core.kinds import SHOWN_KINDS
from flue_py.core.projection import ContextEntry
from flue_py.core.sessions import SessionInfo
from flue_py.render.entries import exclusion_text
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from flue_py.context.tokens import TokenCount

MOST_LINES = 10_000
"""How many entries a command shows that was not told how many: nobody reads more, and each takes a while to lay out."""

count_option = click.option(
    "--count", is_flag=True, help="Count tokens with the tokenizer, which takes time, instead of estimating them (~)."
)


async def name_of(store: Store, session_id: str) -> str:
    """Return what people know a session by; "" if it is missing."""
    session = await store.get_session(session_id)
    return "" if session is None else await session.name()


async def models_of(store: Store, listed: Sequence[SessionInfo]) -> dict[str, str]:
    """Return, by session, the model that most of its calls were made to. O(their calls)."""
    report = await store.usage(listed, group_by=("session", "model"))
    calls = sorted((row.calls, str(row.group["session"]), str(row.group["model"])) for row in report.rows)
    return {session: model for _, session, model in calls if model}


async def marks_of(session: Session) -> dict[str, str]:
    """Return the marks of a session's entries as a tree shows them: the label, and whether pinned or excluded."""
    marks = {entry_id: [text] for entry_id, text in (await session.labels()).items()}
    for entry_id in await session.pins():
        marks.setdefault(entry_id, []).append("pinned")
    for exclusion in await session.exclusions():
        if exclusion.in_effect:
            marks.setdefault(exclusion.entry_id, []).append(exclusion_text(exclusion))
    return {entry_id: ", ".join(words) for entry_id, words in marks.items()}


def entry_sizes(entries: Iterable[Entry], *, count: bool) -> dict[str, int]:
    """Return how many tokens each entry takes in a context, by id; entries that never are in one are left out."""
    items = (ContextEntry(entry) for entry in entries if entry.kind in SHOWN_KINDS)
    return {entry_id: size.tokens for entry_id, size in item_sizes(items, count=count).items()}


def item_sizes(items: Iterable[ContextEntry], *, count: bool) -> dict[str, TokenCount]:
    """Return how many tokens each item of a context takes, by the id of its entry: counted, or else estimated."""
    from flue_py.context.tokens import count_message_tokens, estimate_message_tokens

    if not count:
        return {item.entry.id: estimate_message_tokens(item.data) for item in items}
    with progress_bar("counting tokens"):
        return {item.entry.id: count_message_tokens(item.data) for item in items}
