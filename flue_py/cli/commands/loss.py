"""The loss command."""

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
    from flue_py.compaction.facts import Fact
    from flue_py.compaction.loss import LossReport


@command(paged=True)
@session_argument
@click.argument("compaction", type=ENTRY, required=False)
@click.option(
    "--most",
    metavar="N",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    help="How many to list of each kind at most.",
)
async def loss(session: Session, compaction: str | None, most: int) -> Answer:
    """Show what a compaction of SESSION lost: what its summary no longer says, by default of the one in effect.

    Facts are instructions of the user, questions, decisions, error messages, files, identifiers and results of
    tools. Of each kind it counts those that the summary, or what it kept, still says word for word, and lists the
    rest, with the last entry that says it. COMPACTION is the id of its entry, also of one that was taken back.

    With --json: an object: sessionId, compactionId (null if none is in effect: then nothing else), entries (how
    many it stands for), firstEntryId, lastEntryId, kinds: a list of kind, total, covered, share (0 to 1, null of
    none), lost (a list of text, entryIds, count), leftOut.
    """
    report = await session.loss_report(compaction, limit=most)
    if report is None:
        return said("not compacted: nothing is lost", {"sessionId": session.id, "compactionId": None})
    return Answer(lambda: _lines(report), lambda: {"sessionId": session.id, **report.json})


def _lines(report: LossReport) -> Iterable[Line]:
    stood_for = counted(len(report.entry_ids), "entry", "entries")
    yield ((f"compaction {report.compaction_id} stands for {stood_for}", "bold"),)
    for each in report.kinds:
        if not each.total:
            continue
        share = "" if each.share is None else f" ({each.share:.0%})"
        yield ((f"{each.kind}: {each.covered:,} of {each.total:,} still said{share}", ""),)
        for fact in each.lost:
            yield ((f"  - {fact.text}", ""), (f"  {_where(fact)}", "dim"))
        if each.left_out:
            yield ((f"  ({each.left_out:,} more are not listed)", "dim"),)


def _where(fact: Fact) -> str:
    """Return the last entry that says a fact, and how often it was said."""
    often = f", {fact.count:,} times" if fact.count > 1 else ""
    return f"entry {fact.entry_ids[-1]}{often}"
