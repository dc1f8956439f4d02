"""The copy command."""

from __future__ import annotations

from os.path import exists
from pathlib import Path

import click

import flue_py
from flue_py.cli.output import Answer, joined
from flue_py.cli.place import Place, expanded, finished, is_only_readable
from flue_py.cli.progress import progress_bar
from flue_py.cli.running import command
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.sessions import Problem
from flue_py.errors import StoreUnavailable
from flue_py.render.lines import Line, counted, printable
from flue_py.render.rows import store_row
from flue_py.store.files.private import make_private_folder
from flue_py.transfer.copying import CopyProgress, CopyReport

_SHOWN = 10


@command()
@click.argument("source")
@click.argument("target")
@click.option("--no-verify", is_flag=True, help="Do not verify both databases at the end.")
def copy(source: str, target: str, no_verify: bool) -> Answer:
    """Copy all sessions of SOURCE to TARGET, each a file or a URL, while both are in use.

    If it is interrupted, run it again: later runs copy what has changed. A session that differs in TARGET, or was
    changed there, is reported and left alone; the others are copied. Nothing else in TARGET is touched.

    The exit code is 1 if a part is refused, or if either end has problems. The database of flue-py --db plays no
    part.

    With --json: an object: complete (what the exit code says), treesCopied, treesRefreshed, treesUnchanged;
    sessions, entries, paidCalls, budgets, documents, payloadBytes (what was written); budgetsKept and documentsKept
    (TARGET has them so already), budgetsLeft and documentsLeft (not copied, each with a reason, and refused if
    TARGET has another one in its place); removedIds (deleted in SOURCE, and now in TARGET); refused (sessionId,
    reason); onlyInTarget (how many), onlyInTargetIds (the first thousand); source, target (as info); sourceWentOn
    (it held less or more at the end); verified, sourceProblems, targetProblems (as verify).
    """
    ours, theirs = Place(expanded(source)), Place(expanded(target))
    needs_loop = not (ours.is_file and theirs.is_file)
    report = finished(_copy(ours, theirs, verify=not no_verify, needs_loop=needs_loop), needs_loop=needs_loop)
    return Answer(lambda: _lines(report), lambda: _row(report), code=0 if report.is_complete else 1)


async def _copy(source: Place, target: Place, *, verify: bool, needs_loop: bool) -> CopyReport:
    _require_file(source)
    threads = None if needs_loop else False
    async with flue_py.open(source.target, read_only=is_only_readable(source.target), threads=threads) as ours:
        if target.is_file:
            make_private_folder(Path(target.target).parent)
        async with flue_py.open(target.target, threads=threads) as theirs:
            with progress_bar("copying", "sessions") as tell:

                def on_progress(now: CopyProgress) -> None:
                    tell(now.sessions, now.sessions_total, now.phase)

                return await flue_py.copy_store(ours, theirs, progress=on_progress, verify=verify)


def _require_file(place: Place) -> None:
    """Raise `StoreUnavailable` if a file is missing, which opening it would make."""
    scheme, _, path = place.target.partition(":///")
    if place.is_file or scheme.startswith("sqlite"):
        path = place.target if place.is_file else path.partition("?")[0]
        if not exists(path):
            raise StoreUnavailable(f"there is no database at {path}; name one that is there")


def _lines(report: CopyReport) -> list[Line]:
    trees = joined(
        [
            f"{number:,} {what}" if number else ""
            for number, what in (
                (report.trees_copied, "copied"),
                (report.trees_refreshed, "brought up to date"),
                (report.trees_unchanged, "unchanged"),
                (len(report.refused), "refused"),
            )
        ]
    )
    lines: list[Line] = [
        ((f"trees: {trees or 'none'}", "bold"),),
        ((f"written: {_written(report)}", ""),),
        ((f"source: {_held(report.source.sessions, report.source.entries, report.source.ledger_rows)}", ""),),
        ((f"target: {_held(report.target.sessions, report.target.entries, report.target.ledger_rows)}", ""),),
    ]
    lines += [((f"refused: {printable(refusal.reason)}", "red"),) for refusal in report.refused]
    left_behind = [
        *((left.reason, left.is_refused) for left in report.budgets_left),
        *((left.reason, left.is_refused) for left in report.documents_left),
    ]
    lines += [((f"not copied: {printable(why)}", "red" if refused else "yellow"),) for why, refused in left_behind]
    if report.removed_ids:
        text = f"deleted in the source, and now in the target: {_named(report.removed_ids, len(report.removed_ids))}"
        lines.append(((text, "yellow"),))
    if report.only_in_target:
        text = f"only in the target: {_named(report.only_in_target_ids, report.only_in_target)}"
        lines.append(((text, "yellow"),))
    if report.source_went_on:
        lines.append((("the source has gone on meanwhile; copy again to catch up", "yellow"),))
    for end, problems in (("source", report.source_problems), ("target", report.target_problems)):
        lines += [((f"{end}: {printable(str(problem))}", "red"),) for problem in problems]
    if report.verified:
        found = counted(len(report.source_problems) + len(report.target_problems), "problem")
        lines.append(((f"verified at both ends: {found}", "bold"),))
    return lines


def _written(report: CopyReport) -> str:
    return joined(
        [
            counted(report.sessions, "session"),
            counted(report.entries, "entry", "entries"),
            counted(report.calls, "paid call"),
            counted(report.budgets, "budget") if report.budgets else "",
            counted(report.documents, "document") if report.documents else "",
            counted(report.payload_bytes, "byte") + " of payload",
        ]
    )


def _held(sessions: int, entries: int, calls: int) -> str:
    return ", ".join([counted(sessions, "session"), counted(entries, "entry", "entries"), counted(calls, "paid call")])


def _named(ids: tuple[str, ...], count: int) -> str:
    more = count - len(ids[:_SHOWN])
    listed = ", ".join(printable(session_id) for session_id in ids[:_SHOWN])
    return f"{counted(count, 'session')} ({listed}{f', and {more:,} more' if more else ''})"


def _row(report: CopyReport) -> JsonObject:
    refused: list[JsonValue] = [
        {"sessionId": refusal.session_id, "reason": refusal.reason} for refusal in report.refused
    ]
    return {
        "complete": report.is_complete,
        "treesCopied": report.trees_copied,
        "treesRefreshed": report.trees_refreshed,
        "treesUnchanged": report.trees_unchanged,
        "sessions": report.sessions,
        "entries": report.entries,
        "paidCalls": report.calls,
        "budgets": report.budgets,
        "budgetsKept": report.budgets_kept,
        "budgetsLeft": [
            {"budgetId": left.budget_id, "refused": left.is_refused, "reason": left.reason}
            for left in report.budgets_left
        ],
        "documents": report.documents,
        "documentsKept": report.documents_kept,
        "documentsLeft": [
            {**left.document._asdict(), "refused": left.is_refused, "reason": left.reason}
            for left in report.documents_left
        ],
        "payloadBytes": report.payload_bytes,
        "removedIds": list(report.removed_ids),
        "refused": refused,
        "onlyInTarget": report.only_in_target,
        "onlyInTargetIds": list(report.only_in_target_ids),
        "source": store_row(report.source),
        "target": store_row(report.target),
        "sourceWentOn": report.source_went_on,
        "verified": report.verified,
        "sourceProblems": _problem_rows(report.source_problems),
        "targetProblems": _problem_rows(report.target_problems),
    }


def _problem_rows(problems: tuple[Problem, ...]) -> list[JsonValue]:
    return [{"kind": problem.kind, "where": problem.where, "detail": problem.detail} for problem in problems]
