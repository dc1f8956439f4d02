"""The path command."""

from __future__ import annotations

from collections.abc import Iterable

from flue_py.cli.about import count_option, entry_sizes
from flue_py.cli.choosing import last_option, leaf_option, session_argument
from flue_py.cli.output import Answer, look
from flue_py.cli.running import command
from flue_py.core.sessions import LeafChoice
from flue_py.render.lines import Line
from flue_py.render.rows import entry_row
from flue_py.render.views import path_lines
from flue_py.sessions.session import Session


@command(bar="reading", paged=True)
@session_argument
@leaf_option("Read at this entry instead of the stored leaf.")
@last_option
@count_option
async def path(session: Session, leaf: LeafChoice, last: int | None, count: bool) -> Answer:
    """Show the active path of SESSION, root to leaf, with sizes in tokens."""
    entries, labels = await session.get_active_path(leaf=leaf), await session.labels()

    def lines() -> Iterable[Line]:
        style = look(sizes=entry_sizes(entries, count=count), counted=count, labels=labels)
        end = entries[-1].id if entries else None
        return path_lines(entries, style, leaf=end, head=None if last is None else 0, tail=last or 0)

    return Answer(lines, lambda: [entry_row(entry) for entry in entries[-(last or 0) :]])
