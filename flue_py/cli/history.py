"""Commands that read a history: path, context."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from flue_py.cli.marking import marks_of
from flue_py.cli.output import json_option, look, print_json, print_lines
from flue_py.cli.place import Place
from flue_py.cli.progress import progress_bar
from flue_py.cli.running import leaf_of, run
from flue_py.core.entries import Entry
from flue_py.core.jsontext import JsonObject
from flue_py.core.kinds import SHOWN_KINDS
from flue_py.core.projection import ContextEntry
from flue_py.render.lines import Line
from flue_py.render.rows import entry_row
from flue_py.render.views import context_lines, context_summary, path_lines
from flue_py.runtime.finding import find_session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from flue_py.context.tokens import TokenCount

leaf_option = click.option("--leaf", metavar="ENTRY", help="Read at this entry instead of the stored leaf.")
last_option = click.option("--last", type=click.IntRange(min=1), help="Only this many at the end.")


count_option = click.option(
    "--count", is_flag=True, help="Count tokens with the tokenizer, which takes time; they are estimated (~) otherwise."
)


def entry_sizes(entries: Iterable[Entry], *, count: bool) -> dict[str, int]:
    """Return how many tokens each entry takes in a context, by id; entries that never are in one are left out."""
    items = (ContextEntry(entry) for entry in entries if entry.kind in SHOWN_KINDS)
    return {entry_id: size.tokens for entry_id, size in _item_sizes(items, count=count).items()}


def _item_sizes(items: Iterable[ContextEntry], *, count: bool) -> dict[str, TokenCount]:
    """Return how many tokens each item of a context takes, by the id of its entry: counted, or else estimated."""
    from flue_py.context.tokens import count_message_tokens, estimate_message_tokens

    if not count:
        return {item.entry.id: estimate_message_tokens(item.data) for item in items}
    with progress_bar("counting tokens"):
        return {item.entry.id: count_message_tokens(item.data) for item in items}


@click.command()
@click.argument("session")
@leaf_option
@last_option
@count_option
@json_option
@click.pass_obj
def path(place: Place, session: str, leaf: str | None, last: int | None, count: bool, as_json: bool) -> None:
    """Show the active path of SESSION, root to leaf, with sizes in tokens."""

    async def work(store: Store) -> tuple[list[Entry], dict[str, str]]:
        found = await find_session(store, session)
        return await found.get_active_path(leaf=await leaf_of(found, leaf)), await found.labels()

    entries, labels = run(place, work, bar="reading")
    if as_json:
        print_json([entry_row(entry) for entry in entries[-(last or 0) :]])
        return
    style = look(sizes=entry_sizes(entries, count=count), counted=count, labels=labels)
    end = entries[-1].id if entries else None
    print_lines(path_lines(entries, style, leaf=end, head=None if last is None else 0, tail=last or 0), paged=True)


@click.command()
@click.argument("session")
@leaf_option
@last_option
@count_option
@json_option
@click.pass_obj
def context(place: Place, session: str, leaf: str | None, last: int | None, count: bool, as_json: bool) -> None:
    """Show what the model sees of SESSION, with sizes in tokens.

    With --json: the list of messages, exactly as they are.
    """
    if as_json:

        async def read(store: Store) -> list[JsonObject]:
            found = await find_session(store, session)
            return await found.build_context(leaf=await leaf_of(found, leaf))

        messages = run(place, read, bar="reading")
        print_json([*messages[-(last or 0) :]])
        return

    async def work(store: Store) -> tuple[list[ContextEntry], dict[str, str]]:
        found = await find_session(store, session)
        return await found.build_context_entries(leaf=await leaf_of(found, leaf)), await marks_of(found)

    items, marks = run(place, work, bar="reading")
    sizes = _item_sizes(items, count=count)
    tokens = sum(size.tokens for size in sizes.values())
    is_estimate = any(size.is_estimate for size in sizes.values())
    style = look(sizes={entry_id: size.tokens for entry_id, size in sizes.items()}, counted=count, labels=marks)
    title: Line = ((context_summary(items, tokens, is_estimate=is_estimate), "bold"),)
    print_lines([title, *context_lines(items, style, head=None if last is None else 0, tail=last or 0)], paged=True)
