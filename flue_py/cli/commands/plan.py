"""The plan command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from flue_py.cli.choosing import ENTRY_NAME, session_argument
from flue_py.cli.output import Answer
from flue_py.cli.running import command
from flue_py.core.jsontext import JsonObject
from flue_py.core.usage import picodollars_to_usd
from flue_py.lazy import lazy_module
from flue_py.render.lines import Line, counted, table
from flue_py.render.views import dollars
from flue_py.sessions.edits import Compact, Edit, Exclude, Fork, Resume, Rewind
from flue_py.sessions.session import Session

if TYPE_CHECKING:
    from flue_py.compaction import policy
    from flue_py.prices.weighing import CallPrice, EditPlan, EditPrice
else:
    policy = lazy_module("flue_py.compaction.policy")

_EDITS = ("compact", "rewind", "exclude", "fork", "resume")
_NEVER = {
    "nothing_to_do": "it would change nothing",
    "no_edit": "it takes nothing out of this session",
    "price_unknown": "the prices of the model are not known",
    "saves_nothing": "later calls would be no cheaper",
    "dearer_later": "the next call would be cheaper, the later ones dearer",
}


def _check(
    edit: str,
    entries: Sequence[str],
    mode: str | None,
    keep: int | None,
    first: str | None,
    last: str | None,
    **_: object,
) -> None:
    if edit in ("rewind", "exclude") and not entries:
        raise click.UsageError(f"plan {edit} needs an ENTRY")
    if len(entries) > {"rewind": 1, "fork": 1, "exclude": len(entries)}.get(edit, 0):
        raise click.UsageError(f"plan {edit} takes {'one ENTRY' if edit in ('rewind', 'fork') else 'no ENTRY'}")
    ends = (first, last) != (None, None)
    if edit != "compact" and (mode is not None or keep is not None or ends):
        raise click.UsageError(f"--mode, --keep, --from and --to are for plan compact, not for plan {edit}")
    if ends and keep is not None:
        raise click.UsageError("--keep says where a compaction ends; leave it out with --from and --to")


@command(check=_check)
@session_argument
@click.argument("edit", metavar="EDIT", type=click.Choice(_EDITS))
@click.argument("entries", metavar="ENTRY...", type=ENTRY_NAME, nargs=-1)
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
    if edit == "compact":
        settings = policy.settings_keeping(keep)
        ends = [None if end is None else await session.resolve_entry_id(end) for end in (first, last)]
        wanted: Edit = Compact(mode, settings, first=ends[0], last=ends[1])
    else:
        wanted = _edit(edit, ids)
    planned = await session.plan(wanted, model=model, cached=cached)
    return Answer(lambda: _lines(planned), lambda: _row(session, planned))


def _edit(edit: str, ids: list[str]) -> Edit:
    if edit == "rewind":
        return Rewind(to=ids[0])
    if edit == "exclude":
        return Exclude(ids)
    return (Fork(at=ids[0]) if ids else Fork()) if edit == "fork" else Resume()


def _lines(planned: EditPlan) -> list[Line]:
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
    cells = [[(name, ""), *_amounts(each)] for name, each in rows if each is not None]
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


def _row(session: Session, planned: EditPlan) -> JsonObject:
    call, price = planned.summary_call, planned.price
    return {
        "sessionId": session.id,
        "edit": planned.kind,
        "leafId": planned.leaf_id,
        "provider": planned.provider,
        "model": planned.model,
        "counter": planned.counter,
        "isEstimate": planned.is_estimate,
        "isWarm": planned.is_warm,
        "commonItems": planned.common_items,
        "tokensBefore": planned.tokens_before,
        "tokensAfter": planned.tokens_after,
        "kept": planned.kept,
        "rewritten": planned.rewritten,
        "keptUnedited": planned.kept_unedited,
        "summaryCall": None
        if call is None
        else {"cacheRead": call.cache_read, "cacheWrite": call.cache_write, "input": call.input, "output": call.output},
        "picodollars": None if price is None else _picodollars(price),
        "turnsToPay": planned.turns_to_pay,
        "never": planned.never,
    }


def _picodollars(price: EditPrice) -> JsonObject:
    return {
        "edit": None if price.edit is None else _by_kind(price.edit),
        "nextCall": _by_kind(price.next_call),
        "nextUnedited": _by_kind(price.next_unedited),
        "laterCall": _by_kind(price.later_call),
        "laterUnedited": _by_kind(price.later_unedited),
        "extra": price.extra,
        "savedPerCall": price.saved_per_call,
    }


def _by_kind(price: CallPrice) -> JsonObject:
    return {
        "cacheRead": price.cache_read,
        "cacheWrite": price.cache_write,
        "input": price.input,
        "output": price.output,
        "total": price.total,
    }
