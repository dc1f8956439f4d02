"""The compact command."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from flue_py.cli.changing import context_change
from flue_py.cli.choosing import session_argument
from flue_py.cli.codes import CHANGED
from flue_py.cli.expecting import expected_option
from flue_py.cli.output import Answer, said
from flue_py.cli.running import command
from flue_py.core.jsontext import JsonObject
from flue_py.core.sessions import LeafChoice
from flue_py.errors import InvalidArgument
from flue_py.lazy import lazy_module
from flue_py.render.lines import counted
from flue_py.sessions.session import Session

if TYPE_CHECKING:
    from flue_py import models
    from flue_py.compaction import modes, policy
    from flue_py.compaction import result as results
    from flue_py.compaction.modes import Mode
    from flue_py.compaction.result import CompactionResult
    from flue_py.context.sources import files
else:
    files = lazy_module("flue_py.context.sources.files")
    models = lazy_module("flue_py.models")
    modes = lazy_module("flue_py.compaction.modes")
    policy = lazy_module("flue_py.compaction.policy")
    results = lazy_module("flue_py.compaction.result")

_WITHOUT_MODEL = "intent"

_MEANWHILE = ("elsewhere", "leaf_moved", "compacted_meanwhile")
"""The reasons that are somebody else's doing."""


@command()
@session_argument
@click.option("--mode", metavar="MODE", help="How the summary is made (default: llm with a model, else intent).")
@click.option("--model", metavar="MODEL", help="The model that is asked, such as openai:gpt-5 (extra: models).")
@click.option("--instructions", metavar="TEXT", help="What the summary is to attend to.")
@click.option("--keep", metavar="TOKENS", type=click.IntRange(0), help="How much of the end stays word for word.")
@click.option("--window", metavar="TOKENS", type=click.IntRange(1), help="The context window of the session's model.")
@click.option("--from", "first", metavar="ENTRY", help="Compact a range that begins here, and keep both ends.")
@click.option("--to", "last", metavar="ENTRY", help="Where the range ends (default: at the leaf).")
@click.option("--change-log", "log", metavar="FILE", help="What was changed, by a change log (JSON), not stored calls.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@expected_option
async def compact(
    session: Session,
    mode: str | None,
    model: str | None,
    instructions: str | None,
    keep: int | None,
    window: int | None,
    first: str | None,
    last: str | None,
    log: str | None,
    dry_run: bool,
    expected: LeafChoice,
) -> Answer:
    """Replace the beginning of SESSION's context by a summary. Nothing is deleted: undo or uncompact brings it back.

    With --from or --to it is a range instead, and what comes before and after it stays word for word.

    MODE is llm, intent, lossless, hybrid, window, native, or one of an installed package. --instructions stand in
    place of our instruction; the sections of a summary are described to the model all the same. --keep is by
    default 0 if a model writes the summary, 80,000 in mode window, else 20,000; what the last turn still owes stays
    in any case. --change-log, for llm and hybrid, is a file with a list "entries" that the model is to believe
    before the conversation. If there is nothing to do, it says why, and exits 0. If the leaf was moved or the
    session compacted meanwhile, nothing is appended: exit 5.

    With --json: an object: sessionId, entryId (null if nothing was appended), reason (then why, else null), mode,
    counter, tokensBefore, tokensStaying, tokensAfter, leaving (entry ids), firstKeptEntryId, summary, calls, notes.
    """
    mode = mode or ("llm" if model else _WITHOUT_MODEL)
    settings = policy.settings_keeping(keep)
    asked = models.open_model(model) if model else None
    how = mode if log is None else _told_by(mode, log, session)
    if first is None and last is None:
        done = await session.compact(
            asked,
            mode=how,
            settings=settings,
            instructions=instructions,
            window=window,
            dry_run=dry_run,
            expected_leaf=expected,
        )
    else:
        if keep is not None:
            raise click.UsageError("--keep says where a compaction ends; leave it out with --from and --to")
        done = await session.compact_range(
            None if first is None else await session.resolve_entry_id(first),
            None if last is None else await session.resolve_entry_id(last),
            asked,
            mode=how,
            settings=settings,
            instructions=instructions,
            window=window,
            dry_run=dry_run,
            expected_leaf=expected,
        )
    answer = said(_told(done), _row(session, done))
    return replace(answer, code=CHANGED) if done.reason in _MEANWHILE else answer


def _told_by(mode: str, log: str, session: Session) -> Mode:
    """Return a mode whose model is told what a change log says. What cannot be read is said, before it is asked."""
    if mode not in ("llm", "hybrid"):
        raise click.UsageError("--change-log is for the modes that ask a model: --mode llm or hybrid, with --model")
    try:
        text = files.change_log_text(log, session.id)
    except (OSError, InvalidArgument) as error:
        raise click.UsageError(f"--change-log: {log}: {getattr(error, 'strerror', error)}") from error
    llm = modes.Llm(change_log=lambda: text)
    return llm if mode == "llm" else modes.Hybrid(llm=llm)


def _told(done: CompactionResult) -> str:
    if done.reason == "dry_run" and done.planned is not None:
        leaving = counted(len(done.planned.leaving), "message")
        return (
            f"{leaving} would be summarized by mode {done.mode}; {done.tokens_staying:,} of "
            f"{counted(done.tokens_before, 'token')} would stay"
        )
    if done.reason is not None:
        return f"not compacted: {results.WHY_NOT.get(done.reason, done.reason)}"
    change = context_change(done.tokens_before, done.tokens_after or 0)
    return "\n".join([f"compacted by mode {done.mode}: entry {done.entry_id}; {change}", *done.notes])


def _row(session: Session, done: CompactionResult) -> JsonObject:
    return {
        "sessionId": session.id,
        "entryId": done.entry_id,
        "reason": done.reason,
        "mode": done.mode,
        "counter": done.counter,
        "tokensBefore": done.tokens_before,
        "tokensStaying": done.tokens_staying,
        "tokensAfter": done.tokens_after,
        "leaving": [] if done.planned is None else [item.entry_id for item in done.planned.leaving],
        "firstKeptEntryId": None if done.planned is None else done.planned.first_kept_entry_id or None,
        "summary": done.summary,
        "calls": [*done.calls],
        "notes": [*done.notes],
    }
