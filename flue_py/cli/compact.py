"""The compact command."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from flue_py.cli import command as cli
from flue_py.cli.command import Answer
from flue_py.cli.main import CHANGED
from flue_py.core.json import JsonObject
from flue_py.core.sessions import STORED, LeafChoice
from flue_py.core.usage import picodollars_to_usd
from flue_py.errors import InvalidArgument
from flue_py.lazy import lazy_module
from flue_py.render.lines import Line, counted, table
from flue_py.render.views import dollars, row_of
from flue_py.sessions.compact import Compact, Edit, Exclude, Fork, Resume, Rewind
from flue_py.sessions.session import Session

if TYPE_CHECKING:
    from flue_py import models
    from flue_py.compaction import modes
    from flue_py.compaction import plan as results
    from flue_py.compaction import settings as policy
    from flue_py.compaction.facts import Fact, LossReport, Recalled
    from flue_py.compaction.modes import Mode
    from flue_py.compaction.plan import CompactionResult
    from flue_py.context import sources
    from flue_py.prices import CallPrice, EditPlan, EditPrice
else:
    modes = lazy_module("flue_py.compaction.modes")
    results = lazy_module("flue_py.compaction.plan")
    policy = lazy_module("flue_py.compaction.settings")
    sources = lazy_module("flue_py.context.sources")
    models = lazy_module("flue_py.models")


# ---------------------------------------------------------------------------------------------------------------------
# The compact command.

_WITHOUT_MODEL = "intent"

_MEANWHILE = ("elsewhere", "leaf_moved", "compacted_meanwhile", "redacted_meanwhile")
"""The reasons that are somebody else's doing."""


def _check_compact(options: SimpleNamespace) -> None:
    further = [value for name, value in vars(options).items() if name not in ("session", "as_json", "undo", "expected")]
    if options.undo and (options.expected is not STORED or any(value not in (None, False) for value in further)):
        raise click.UsageError("--undo takes a compaction back, and goes with no other option")


@cli.command(check=_check_compact)
@cli.session_argument
@click.option("--undo", is_flag=True, help="Take the compaction in effect back, one layer, instead.")
@cli.summary_options
@click.option("--keep", metavar="TOKENS", type=click.IntRange(0), help="How much of the end stays word for word.")
@click.option("--window", metavar="TOKENS", type=click.IntRange(1), help="The context window of the session's model.")
@click.option("--from", "first", metavar="ENTRY", help="Compact a range that begins here, and keep both ends.")
@click.option("--to", "last", metavar="ENTRY", help="Where the range ends (default: at the leaf).")
@click.option("--change-log", "log", metavar="FILE", help="What was changed, by a change log (JSON), not stored calls.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@cli.expected_option
async def compact(
    session: Session,
    undo: bool,
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
    """Replace the beginning of SESSION's context by a summary. Nothing is deleted: undo or --undo brings it back.

    With --from or --to it is a range instead, and what comes before and after it stays word for word.

    MODE is llm, intent, lossless, hybrid, window, native, or one of an installed package. --instructions stand in
    place of our instruction; the sections of a summary are described to the model all the same. --keep is by
    default 0 if a model writes the summary, 80,000 in mode window, else 20,000; what the last turn still owes stays
    in any case. --change-log, for llm and hybrid, is a file with a list "entries" that the model is to believe
    before the conversation. If there is nothing to do, it says why, and exits 0. If the leaf was moved or the
    session compacted meanwhile, nothing is appended: exit 5.

    With --json: an object: sessionId, entryId (null if nothing was appended), reason (then why, else null), mode,
    counter, tokensBefore, tokensStaying, tokensAfter, leaving (entry ids), firstKeptEntryId, summary, calls, notes.
    With --undo: sessionId, compactionId, restoredId (the compaction in effect again, or null), entryId, tokensBefore,
    tokensAfter; all but sessionId are null if there was nothing to take back. Entries written since stay after those
    that come back.
    """
    if undo:
        return await _uncompact(session)
    mode = mode or ("llm" if model else _WITHOUT_MODEL)
    settings = policy.settings_keeping(keep)
    run = session.compact
    if first is not None or last is not None:
        cli.refuse(keep is not None, "--keep says where a compaction ends; leave it out with --from and --to")
        ends = [None if end is None else await session.resolve_entry_id(end) for end in (first, last)]
        run = partial(session.compactions.compact_range, ends[0], ends[1])
    done = await run(
        models.open_model(model) if model else None,
        mode=mode if log is None else _told_by(mode, log, session),
        settings=settings,
        instructions=instructions,
        window=window,
        dry_run=dry_run,
        expected_leaf=expected,
    )
    answer = cli.said(_told(done), _row(session, done))
    return replace(answer, code=CHANGED) if done.reason in _MEANWHILE else answer


async def _uncompact(session: Session) -> Answer:
    done = await session.compactions.uncompact()
    names = ("compactionId", "restoredId", "entryId", "tokensBefore", "tokensAfter")
    row: JsonObject = {"sessionId": session.id, **dict.fromkeys(names)}
    if done is None:
        return cli.said("not compacted: there is nothing to take back", row)
    row |= row_of(done, "compaction_id restored_id tokens_before tokens_after")
    row["entryId"] = done.appended.entry_ids[0]
    change = cli.context_change(done.tokens_before, done.tokens_after)
    return cli.said(f"took compaction {done.compaction_id} back; {change}", row)


def _told_by(mode: str, log: str, session: Session) -> Mode:
    """Return a mode whose model is told the text of a change log. Raises `click.UsageError` if that cannot be read."""
    if mode not in ("llm", "hybrid"):
        raise click.UsageError("--change-log is for the modes that ask a model: --mode llm or hybrid, with --model")
    try:
        text = sources.change_log_text(log, session.id)
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
    change = cli.context_change(done.tokens_before, done.tokens_after or 0)
    return "\n".join([f"compacted by mode {done.mode}: entry {done.entry_id}; {change}", *done.notes])


def _row(session: Session, done: CompactionResult) -> JsonObject:
    return {
        "sessionId": session.id,
        **row_of(done, "entry_id reason mode counter tokens_before tokens_staying tokens_after"),
        "leaving": [] if done.planned is None else [item.entry_id for item in done.planned.leaving],
        "firstKeptEntryId": None if done.planned is None else done.planned.first_kept_entry_id or None,
        **row_of(done, "summary calls notes"),
    }


# ---------------------------------------------------------------------------------------------------------------------
# The loss command.


@cli.command(paged=True)
@cli.session_argument
@click.argument("compaction", type=cli.ENTRY, required=False)
@cli.most_option(50, 1000, "How many to list of each kind at most.")
async def loss(session: Session, compaction: str | None, most: int) -> Answer:
    """Show what a compaction of SESSION lost: what its summary no longer says, by default of the one in effect.

    Facts are instructions of the user, questions, decisions, error messages, files, identifiers and results of
    tools. Of each kind it counts those that the summary, or what it kept, still says word for word, and lists the
    rest, with the last entry that says it. COMPACTION is the id of its entry, also of one that was taken back.

    With --json: an object: sessionId, compactionId (null if none is in effect: then nothing else), entries (how
    many it stands for), firstEntryId, lastEntryId, kinds: a list of kind, total, covered, share (0 to 1, null of
    none), lost (a list of text, entryIds, count), leftOut.
    """
    report = await session.compactions.loss_report(compaction, limit=most)
    if report is None:
        return cli.said("not compacted: nothing is lost", {"sessionId": session.id, "compactionId": None})
    return Answer(lambda: _lines(report), lambda: {"sessionId": session.id, **report.json})


def _lines(report: LossReport) -> Iterable[Line]:
    stood_for = counted(len(report.entry_ids), "entry", "entries")
    yield ((f"compaction {report.compaction_id} stands for {stood_for}", "bold"),)
    for kind in report.kinds:
        if not kind.total:
            continue
        share = "" if kind.share is None else f" ({kind.share:.0%})"
        yield ((f"{kind.kind}: {kind.covered:,} of {kind.total:,} still said{share}", ""),)
        for fact in kind.lost:
            yield ((f"  - {fact.text}", ""), (f"  {_where(fact)}", "dim"))
        if kind.left_out:
            yield ((f"  ({kind.left_out:,} more are not listed)", "dim"),)


def _where(fact: Fact) -> str:
    """Return the last entry that says a fact, and how often it was said."""
    often = f", {fact.count:,} times" if fact.count > 1 else ""
    return f"entry {fact.entry_ids[-1]}{often}"


# ---------------------------------------------------------------------------------------------------------------------
# The plan command.

_EDITS = ("compact", "rewind", "exclude", "fork", "resume")
_NEVER = {
    "nothing_to_do": "it would change nothing",
    "no_edit": "it takes nothing out of this session",
    "price_unknown": "the prices of the model are not known",
    "saves_nothing": "later calls would be no cheaper",
    "dearer_later": "the next call would be cheaper, the later ones dearer",
}


def _check(options: SimpleNamespace) -> None:
    edit, count = options.edit, len(options.entries)
    cli.refuse(edit in ("rewind", "exclude") and not count, f"plan {edit} needs an ENTRY")
    if count > {"rewind": 1, "fork": 1, "exclude": count}.get(edit, 0):
        raise click.UsageError(f"plan {edit} takes {'one ENTRY' if edit in ('rewind', 'fork') else 'no ENTRY'}")
    has_ends = options.first is not None or options.last is not None
    if edit != "compact" and (options.mode is not None or options.keep is not None or has_ends):
        raise click.UsageError(f"--mode, --keep, --from and --to are for plan compact, not for plan {edit}")
    if has_ends and options.keep is not None:
        raise click.UsageError("--keep says where a compaction ends; leave it out with --from and --to")


@cli.command(check=_check)
@cli.session_argument
@click.argument("edit", metavar="EDIT", type=click.Choice(_EDITS))
@click.argument("entries", metavar="ENTRY...", type=cli.ENTRY_NAME, nargs=-1)
@click.option("--model", metavar="MODEL", help="The model of the next call (default: that of the last answer).")
@click.option("--mode", metavar="MODE", help="How the summary of a compaction is made (default: llm).")
@click.option("--keep", metavar="TOKENS", type=click.IntRange(0), help="How much of the end a compaction keeps.")
@click.option("--from", "first", metavar="ENTRY", help="Price a range that begins here, with both ends kept.")
@click.option("--to", "last", metavar="ENTRY", help="Where the range ends (default: at the leaf).")
@click.option("--cached/--not-cached", default=None, help="Whether the last request is in the cache (default: by age).")
async def plan(
    session: Session,
    edit: str,
    entries: tuple[str, ...],
    model: str | None,
    mode: str | None,
    keep: int | None,
    first: str | None,
    last: str | None,
    cached: bool | None,
) -> Answer:
    """Say what an edit of SESSION's context would cost, and when it pays for itself. Nothing is changed.

    EDIT is compact, rewind ENTRY, exclude ENTRY..., fork [ENTRY] or resume.

    It shows how much of the next request comes from the provider's cache and how much is processed anew, the same
    without the edit, the prices, and after how many calls the edit has paid for itself. The summary of a model is
    estimated.

    With --json: an object: sessionId, edit, leafId, provider, model, counter, isEstimate, isWarm, commonItems,
    tokensBefore, tokensAfter, kept, rewritten, keptUnedited, summaryCall (tokens cacheRead, cacheWrite, input,
    output; null for none), picodollars (null if a price is not known: edit, nextCall, nextUnedited, laterCall and
    laterUnedited, each by kind with total, then extra and savedPerCall), turnsToPay (null for never), never (why:
    nothing_to_do, no_edit, price_unknown, saves_nothing, dearer_later).
    """
    ids = [await session.resolve_entry_id(entry) for entry in entries]
    ends = [None if end is None else await session.resolve_entry_id(end) for end in (first, last)]
    edits: dict[str, Callable[[], Edit]] = {
        "compact": lambda: Compact(mode, policy.settings_keeping(keep), first=ends[0], last=ends[1]),
        "rewind": lambda: Rewind(to=ids[0]),
        "exclude": lambda: Exclude(ids),
        "fork": lambda: Fork(at=ids[0]) if ids else Fork(),
        "resume": Resume,
    }
    planned = await session.compactions.price(edits[edit](), model=model, cached=cached)
    return Answer(lambda: _plan_lines(planned), lambda: _plan_row(session, planned))


def _plan_lines(planned: EditPlan) -> list[Line]:
    about = "about " if planned.is_estimate else ""
    lines: list[Line] = [
        (
            (f"next request: {about}{counted(planned.tokens_after, 'token')}", ""),
            (f" ({-planned.tokens_saved:+,})" if planned.tokens_saved else "", ""),
        ),
        ((f"of these {planned.kept:,} from the cache, {planned.rewritten:,} anew", ""),),
    ]
    is_edit = planned.kind != "resume"
    if is_edit:
        lines.append(((f"without the edit {planned.kept_unedited:,} from the cache", ""),))
    if planned.price is not None:
        lines += _prices(planned.price, is_edit=is_edit)
    return [*lines, ((_payoff(planned), ""),)] if is_edit else lines


def _prices(price: EditPrice, *, is_edit: bool) -> list[Line]:
    rows = [
        ("the summary", price.edit),
        ("next call", price.next_call),
        ("without the edit", price.next_unedited if is_edit else None),
        ("each later call", price.later_call),
        ("without the edit", price.later_unedited if is_edit else None),
    ]
    head = ("", "cache read", "cache write", "input", "output", "US dollars")
    cells = [[(name, ""), *_amounts(price_of_call)] for name, price_of_call in rows if price_of_call is not None]
    return table([[(name, "bold") for name in head], *cells], right=frozenset(range(1, len(head))))


def _amounts(price: CallPrice) -> list[tuple[str, str]]:
    amounts = (price.cache_read, price.cache_write, price.input, price.output, price.total)
    return [(dollars(picodollars_to_usd(amount)), "") for amount in amounts]


def _payoff(planned: EditPlan) -> str:
    if planned.turns_to_pay is None:
        return f"it does not pay for itself: {_NEVER[planned.never or 'price_unknown']}"
    if planned.turns_to_pay == 1:
        return "it is cheaper from the next call on"
    return f"it has paid for itself after {counted(planned.turns_to_pay, 'call')}"


def _plan_row(session: Session, planned: EditPlan) -> JsonObject:
    call, price = planned.summary_call, planned.price
    tokens = "cache_read cache_write input output"
    return {
        "sessionId": session.id,
        **row_of(planned, "edit=kind leaf_id provider model counter is_estimate is_warm common_items"),
        **row_of(planned, "tokens_before tokens_after kept rewritten kept_unedited"),
        "summaryCall": None if call is None else row_of(call, tokens),
        "picodollars": None if price is None else _picodollars(price, f"{tokens} total"),
        **row_of(planned, "turns_to_pay never"),
    }


def _picodollars(price: EditPrice, kinds: str) -> JsonObject:
    calls = {
        "edit": price.edit,
        "nextCall": price.next_call,
        "nextUnedited": price.next_unedited,
        "laterCall": price.later_call,
        "laterUnedited": price.later_unedited,
    }
    rows = {name: None if call is None else row_of(call, kinds) for name, call in calls.items()}
    return {**rows, **row_of(price, "extra saved_per_call")}


# ---------------------------------------------------------------------------------------------------------------------
# The recall command.


@cli.command(paged=True)
@cli.session_argument
@click.argument("words", metavar="WORDS...", nargs=-1, required=True)
@click.option(
    "--compaction", metavar="ENTRY", type=cli.ENTRY, help="Look behind this one only (default: all in effect)."
)
@cli.most_option(10, 100, "How many entries to show at most.")
async def recall(session: Session, words: tuple[str, ...], compaction: str | None, most: int) -> Answer:
    """Find WORDS in what a compaction of SESSION stands for. They are taken literally; the best match comes first.

    First come the entries that have WORDS as they were given, then those with most of them, then the newest. With
    --json: an object: sessionId, compactionId, hits (a list of entryId, role, excerpt, words: how many of them it
    has, isWhole: as they were given), leftOut.
    """
    recalled = await session.compactions.recall(compaction, " ".join(words), limit=most)
    row = {"sessionId": session.id, **recalled.json}
    if recalled.compaction_id is None:
        return cli.said("not compacted: all of the conversation is in the context", row)
    return Answer(lambda: _recall_lines(recalled), lambda: row) if recalled.hits else cli.said("nothing found", row)


def _recall_lines(recalled: Recalled) -> Iterable[Line]:
    for hit in recalled.hits:
        yield ((f"{hit.entry_id} ", "bold"), (hit.role, "dim"))
        yield from (((f"  {line}", ""),) for line in hit.excerpt.splitlines())
    if recalled.left_out:
        yield ((f"({counted(recalled.left_out, 'more entry', 'more entries')} with some of these words)", "dim"),)
