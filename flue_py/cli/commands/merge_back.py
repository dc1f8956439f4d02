"""The merge-back command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flue_py.cli.changing import appended
from flue_py.cli.choosing import SESSION_NAME, end_of, session_argument
from flue_py.cli.given import text_from_stdin
from flue_py.cli.output import Answer
from flue_py.cli.running import command
from flue_py.lazy import lazy_module
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from flue_py import models
    from flue_py.compaction import policy
else:
    models = lazy_module("flue_py.models")
    policy = lazy_module("flue_py.compaction.policy")


def _read(ctx: click.Context, param: click.Parameter, summary: str | None) -> str | None:
    if summary is None:
        return None
    text = text_from_stdin("--summary").strip() if summary == "-" else summary
    if not text.strip():
        raise click.UsageError("the summary is empty")
    return text


def _check(
    summary: str | None, summarize: bool, mode: str | None, model: str | None, instructions: str | None, **_: object
) -> None:
    if (summary is None) != summarize:
        raise click.UsageError("give --summary, or --summarize to have one made")
    if not summarize and (mode or model or instructions):
        raise click.UsageError("--mode, --model and --instructions are for --summarize")


@command(check=_check)
@session_argument
@click.argument("source", type=SESSION_NAME)
@click.option(
    "--summary",
    metavar="TEXT",
    callback=_read,
    help="The summary; - reads it from standard input.",
)
@click.option("--summarize", is_flag=True, help="Have the summary made.")
@click.option("--mode", metavar="MODE", help="How the summary is made (default: llm with a model, else intent).")
@click.option("--model", metavar="MODEL", help="The model that is asked, such as openai:gpt-5 (extra: models).")
@click.option("--instructions", metavar="TEXT", help="What the summary is to attend to.")
async def merge_back(
    store: Store,
    session: Session,
    source: str,
    summary: str | None,
    summarize: bool,
    mode: str | None,
    model: str | None,
    instructions: str | None,
) -> Answer:
    """Append a summary of what SOURCE did since it left SESSION, below the leaf of SESSION.

    SOURCE is a fork or a task session, SESSION@ENTRY, or @ENTRY on another branch of SESSION. Repeating the command
    changes nothing.

    If the summary that --summarize asks for fails, nothing changes. With --json: as cherry-pick.
    """
    there, leaf = await end_of(store, source, session)
    done = await session.merge_back(
        summary,
        source=there,
        source_leaf=leaf,
        model=models.open_model(model) if model else None,
        mode=mode,
        settings=policy.CompactionSettings(mode="llm" if model else "intent") if summarize else None,
        instructions=instructions,
    )
    what = "was there already; nothing was changed" if done.replayed else "appended"
    return appended(session, f"summary {done.entry_id} {what}", done)
