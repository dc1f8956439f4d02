"""The recall command."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from flue_py.cli.choosing import ENTRY, session_argument
from flue_py.cli.output import Answer, said
from flue_py.cli.running import command
from flue_py.render.lines import Line, counted
from flue_py.sessions.session import Session

if TYPE_CHECKING:
    from flue_py.compaction.recall import Recalled


@command(paged=True)
@session_argument
@click.argument("words", metavar="WORDS...", nargs=-1, required=True)
@click.option("--compaction", metavar="ENTRY", type=ENTRY, help="Look behind this one only (default: all in effect).")
@click.option(
    "--most",
    metavar="N",
    type=click.IntRange(1, 100),
    default=10,
    show_default=True,
    help="How many entries to show at most.",
)
async def recall(session: Session, words: tuple[str, ...], compaction: str | None, most: int) -> Answer:
    """Find WORDS in what a compaction of SESSION stands for. They are taken literally; the best match comes first.

    First come the entries that have WORDS as they were given, then those with most of them, then the newest. With
    --json: an object: sessionId, compactionId, hits (a list of entryId, role, excerpt, words: how many of them it
    has, isWhole: as they were given), leftOut.
    """
    found = await session.recall(compaction, " ".join(words), limit=most)
    row = {"sessionId": session.id, **found.json}
    if found.compaction_id is None:
        return said("not compacted: all of the conversation is in the context", row)
    return Answer(lambda: _lines(found), lambda: row) if found.hits else said("nothing found", row)


def _lines(found: Recalled) -> Iterable[Line]:
    for hit in found.hits:
        yield ((f"{hit.entry_id} ", "bold"), (hit.role, "dim"))
        yield from (((f"  {line}", ""),) for line in hit.excerpt.splitlines())
    if found.left_out:
        yield ((f"({counted(found.left_out, 'more entry', 'more entries')} with some of these words)", "dim"),)
