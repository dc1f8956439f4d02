"""The move command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flue_py.cli.changing import moved, shown_leaf
from flue_py.cli.choosing import BY, ENTRY, session_argument, why_option
from flue_py.cli.output import Answer, said
from flue_py.cli.running import command
from flue_py.lazy import lazy_module
from flue_py.sessions.session import Session

if TYPE_CHECKING:
    from flue_py import models
    from flue_py.compaction import policy
else:
    models = lazy_module("flue_py.models")
    policy = lazy_module("flue_py.compaction.policy")


def _check(
    entry: str | None,
    before_first: bool,
    summarize: bool,
    mode: str | None,
    model: str | None,
    instructions: str | None,
    **_: object,
) -> None:
    if (entry is None) != before_first:
        raise click.UsageError("name an ENTRY, or give --before-first")
    if summarize and before_first:
        raise click.UsageError("--summarize goes to an ENTRY")
    if not summarize and (mode or model or instructions):
        raise click.UsageError("--mode, --model and --instructions are for --summarize")


@command(check=_check)
@session_argument
@click.argument("entry", type=ENTRY, required=False)
@click.option("--before-first", is_flag=True, help="Move before the first entry: the next entry is a new root.")
@click.option("--summarize", is_flag=True, help="Append a summary of what is left below ENTRY.")
@click.option("--mode", metavar="MODE", help="How the summary is made (default: llm with a model, else intent).")
@click.option("--model", metavar="MODEL", help="The model that is asked, such as openai:gpt-5 (extra: models).")
@click.option("--instructions", metavar="TEXT", help="What the summary is to attend to.")
@why_option
async def move(
    session: Session,
    entry: str | None,
    before_first: bool,
    summarize: bool,
    mode: str | None,
    model: str | None,
    instructions: str | None,
    why: str | None,
) -> Answer:
    """Set the leaf of SESSION to ENTRY, on any branch.

    With --summarize, what the path has below the common ancestor is summarized in one entry at the new leaf; if ENTRY
    is a message of the user, that is its parent. If the summary fails, nothing changes.

    With --json: an object: sessionId, moved, reason, fromId, leafId; with --summarize sessionId, fromId, leafId,
    summaryId.
    """
    if not summarize or entry is None:
        return moved(session, await session.move_leaf(to=entry, by=BY, why=why))
    went = await session.navigate(
        entry,
        by=BY,
        why=why,
        model=models.open_model(model) if model else None,
        mode=mode,
        settings=policy.CompactionSettings(mode="llm" if model else "intent"),
        instructions=instructions,
    )
    text = f"the leaf went from {shown_leaf(went.from_id)} to {shown_leaf(went.to_id)}"
    if went.summary_id is not None:
        text += f", the summary of what was left: entry {went.summary_id}"
    return said(
        text, {"sessionId": session.id, "fromId": went.from_id, "leafId": went.to_id, "summaryId": went.summary_id}
    )
