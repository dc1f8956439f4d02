"""The path command."""

from __future__ import annotations

from collections.abc import Iterable

from flue_py.cli.about import MOST_LINES, count_option, entry_sizes
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
async def path(session: Session, leaf: LeafChoice, last: int | None, count: bool, as_json: bool) -> Answer:
    """Show the active path of SESSION, root to leaf, with sizes in tokens.

    Of a very long one the last 10,000 entries are shown, unless --last says how many.

    With --json: a list of whole entries: id, parentId, sessionId, kind, role, source, depth, createdAt, payload,
    and extra if an imported row carried more.
    """
    most = max(last or 0, MOST_LINES)
    entries = await session.get_active_path(leaf=leaf, limit=None if as_json else most)
    labels = await session.labels()

    def lines() -> Iterable[Line]:
        shown = entries
        if entries and entries[0].depth > 0:
            shown = entries[-(last or 0) :]
            yield (
                (f"{shown[0].depth:,} earlier entries are not shown; --last N shows more, --json all", "dim italic"),
            )
        style = look(sizes=entry_sizes(shown, count=count), counted=count, labels=labels)
        end = entries[-1].id if entries else None
        yield from path_lines(shown, style, leaf=end, head=None if last is None else 0, tail=last or 0)

    return Answer(lines, lambda: [entry_row(entry) for entry in entries[-(last or 0) :]])
