"""How `context --explain` shows what an agent is sent: by step, and by entry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from flue_py.lazy import lazy_module
from flue_py.render.lines import Line, counted, one_line, table

if TYPE_CHECKING:
    from flue_py.context import explained
    from flue_py.context.report import ContextReport
    from flue_py.context.requests import ContextRequest
    from flue_py.core.projection import ContextEntry
else:
    explained = lazy_module("flue_py.context.explained")


def explained_lines(
    items: Sequence[ContextEntry], sent: ContextRequest, before: ContextRequest | None
) -> Iterator[Line]:
    """Yield what the steps did, one line each, and then what became of each entry.

    ``before`` is the request that the last answer came from, if there is one.
    """
    report = sent.report
    about = "about " if sent.is_estimate else ""
    agent = f" for {one_line(report.agent)}" if report.agent else ""
    text = f"{counted(len(items), 'message')}{agent}: {about}{counted(report.tokens_before, 'token')}"
    yield ((f"{text}, {sent.tokens_sent:,} of them sent (counted by {report.counter})", "bold"),)
    if report.epoch_end is not None:
        yield ((f"what is newer than {report.epoch_end} waits for the next epoch", "dim"),)
    for event in report.events:
        yield ((one_line(str(event)), "yellow"),)
    if before is not None:
        found = sent.break_since(before)
        kept = "it begins with all of the request before it"
        yield (
            (kept if found is None else one_line(f"it begins otherwise than the request before it: {found}"), "dim"),
        )
    yield ()
    yield from _step_lines(report)
    yield ()
    yield from _entry_lines(items, sent)
    for broken in sent.broken:
        yield ((f"{sent.target} refuses it: {one_line(str(broken))}", "red"),)


def _step_lines(report: ContextReport) -> Iterator[Line]:
    if not report.steps:
        yield (("no step is asked for: all of it is sent as it is", "dim"),)
        return
    rows: list[list[tuple[str, str]]] = [[("step", "dim"), ("what it did", "dim"), ("tokens freed", "dim")]]
    for step in report.steps:
        done = [change.how for change in step.changes]
        said = ", ".join(f"{done.count(how)} {how}" for how in dict.fromkeys(done)) or "-"
        rows.append([(one_line(step.name), ""), (said, ""), (f"{step.tokens_freed:,}", "")])
    yield from table(rows)


def _entry_lines(items: Sequence[ContextEntry], sent: ContextRequest) -> Iterator[Line]:
    told = sent.report.by_entry()
    repaired: dict[str, list[str]] = {}
    for repair in sent.repairs:
        repaired.setdefault(repair.entry_id or "", []).append(repair.what)
    rows: list[list[tuple[str, str]]] = [[("entry", "dim"), ("role", "dim"), ("sent", "dim"), ("why", "dim")]]
    for item in items:
        changes = told.get(item.entry_id, ())
        reasons = {step.name: step.reason for step in sent.report.steps}
        why = [f"{change.step}: {reasons[change.step]}" for change in changes] + repaired.get(item.entry_id, [])
        state = explained.state_of(changes, is_repaired=item.entry_id in repaired)
        style = {"whole": "", "out": "dim"}.get(state.split(" ")[0], "yellow")
        rows.append([(item.entry_id, ""), (one_line(item.role), ""), (state, style), (one_line("; ".join(why)), "dim")])
    yield from table(rows)
    for what in repaired.get("", ()):
        yield ((f"for {sent.target}: {one_line(what)}", "dim"),)
