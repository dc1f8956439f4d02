"""The salvage command."""

from __future__ import annotations

from pathlib import Path

import click

from flue_py.cli.output import Answer
from flue_py.cli.progress import progress_bar
from flue_py.cli.running import command
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.salvaging import Loss, SalvageReport
from flue_py.render.lines import Line, counted, printable
from flue_py.transfer.salvaging import salvage_file

SOMETHING_LOST = 3
"""The exit code of a rescue that was not complete: 1 is an error, 2 a wrong call."""

_SHOWN = 20


@command()
@click.argument("damaged", metavar="DAMAGED", type=click.Path(path_type=Path))
@click.argument("new", metavar="NEW", type=click.Path(path_type=Path))
def salvage(damaged: Path, new: Path) -> Answer:
    """Write what can be read of a DAMAGED SQLite file to the file NEW, and report what is lost.

    DAMAGED and its write-ahead log are only read; stop programs that write to them first. NEW must not exist. Exit
    code 0 if everything was rescued, 3 if something was lost.

    With --json: an object: path, complete, sessions, entries, calls, documents (how many were rescued),
    damagedPages, and lost and changed, lists of objects: what, sessionId, entryId, detail.
    """
    with progress_bar("rescuing"):
        report = salvage_file(damaged, new)
    code = 0 if report.is_complete else SOMETHING_LOST
    return Answer(lambda: _lines(report, new), lambda: _row(report, new), code=code)


def _lines(report: SalvageReport, new: Path) -> list[Line]:
    lines: list[Line] = [((f"lost {printable(str(loss))}", "red"),) for loss in report.losses[:_SHOWN]]
    lines += _more(len(report.losses), "more were lost")
    lines += [((f"changed {printable(str(change))}", "yellow"),) for change in report.changes[:_SHOWN]]
    lines += _more(len(report.changes), "more were changed")
    found = f"{counted(report.sessions, 'session')}, {counted(report.entries, 'entry', 'entries')}"
    pages = counted(len(report.damaged_pages), "damaged page")
    said = (
        "everything is as it was" if report.is_complete else f"{len(report.losses)} lost, {len(report.changes)} changed"
    )
    calls = counted(report.calls, "paid call") + (f", {counted(report.documents, 'document')}" * bool(report.documents))
    lines.append(((f"{new}: {found}, {calls}; {pages}: {said}", "bold"),))
    return lines


def _more(count: int, what: str) -> list[Line]:
    return [((f"{count - _SHOWN} {what}; --json tells all", "dim"),)] if count > _SHOWN else []


def _row(report: SalvageReport, new: Path) -> JsonObject:
    return {
        "path": str(new),
        "complete": report.is_complete,
        "sessions": report.sessions,
        "entries": report.entries,
        "calls": report.calls,
        "documents": report.documents,
        "damagedPages": list(report.damaged_pages),
        "lost": _loss_rows(report.losses),
        "changed": _loss_rows(report.changes),
    }


def _loss_rows(losses: tuple[Loss, ...]) -> list[JsonValue]:
    return [
        {"what": loss.what, "sessionId": loss.session_id, "entryId": loss.entry_id, "detail": loss.detail}
        for loss in losses
    ]
