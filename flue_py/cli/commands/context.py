"""The context command."""

from __future__ import annotations

from collections.abc import Iterable

from flue_py.cli.about import count_option, item_sizes, marks_of
from flue_py.cli.choosing import last_option, leaf_option, session_argument
from flue_py.cli.output import Answer, look
from flue_py.cli.running import command
from flue_py.core.sessions import LeafChoice
from flue_py.render.lines import Line
from flue_py.render.views import context_lines, context_summary
from flue_py.sessions.session import Session


@command(bar="reading", paged=True)
@session_argument
@leaf_option("Read at this entry instead of the stored leaf.")
@last_option
@count_option
async def context(session: Session, leaf: LeafChoice, last: int | None, count: bool, as_json: bool) -> Answer:
    """Show what the model sees of SESSION, with sizes in tokens.

    With --json: the list of messages, exactly as the model gets them.
    """
    if as_json:
        messages = await session.build_context(leaf=leaf)
        return Answer(row=lambda: [*messages[-(last or 0) :]])
    items, marks = await session.build_context_entries(leaf=leaf), await marks_of(session)

    def lines() -> Iterable[Line]:
        sizes = item_sizes(items, count=count)
        tokens = sum(size.tokens for size in sizes.values())
        is_estimate = any(size.is_estimate for size in sizes.values())
        yield ((context_summary(items, tokens, is_estimate=is_estimate), "bold"),)
        style = look(sizes={entry: size.tokens for entry, size in sizes.items()}, counted=count, labels=marks)
        yield from context_lines(items, style, head=None if last is None else 0, tail=last or 0)

    return Answer(lines)
