"""Commands against damage: backup and salvage."""

from __future__ import annotations

from pathlib import Path

import click

from flue_py.cli.output import json_option, print_json, print_lines, print_result
from flue_py.cli.place import Place
from flue_py.cli.progress import progress_bar
from flue_py.cli.running import run
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.salvaging import BackupReport, Loss, SalvageReport
from flue_py.render.lines import Line, counted, printable

SOMETHING_LOST = 3
"""The exit code of a rescue that was not complete: 1 is an error, 2 a wrong call."""

_SHOWN = 20


@click.command()
@click.argument("target", metavar="TARGET", type=click.Path(path_type=Path))
@click.option("--overwrite", is_flag=True, help="Replace the file that is there, once the new one is whole.")
@click.option("--no-verify", is_flag=True, help="Keep the copy without looking into it.")
@json_option
@click.pass_obj
def backup(place: Place, target: Path, overwrite: bool, no_verify: bool, as_json: bool) -> None:
    """Copy the database into a file, as it is now, while others go on writing to it.

    The copy is verified, readable by its owner only, and gets its name when it is whole. For SQLite files.
    """
    with progress_bar("backing up", "pages") as tell:
        made = run(place, lambda store: store.backup(target, overwrite=overwrite, verify=not no_verify, progress=tell))
    holds = f"{counted(made.sessions, 'session')}, {counted(made.entries, 'entry', 'entries')}"
    checked = "verified" if made.is_verified else "not verified"
    print_result(f"{made.path}: {holds}, {made.size_bytes:,} bytes, {checked}", _backup_row(made), as_json=as_json)


def _backup_row(made: BackupReport) -> JsonObject:
    return {
        "path": made.path,
        "sizeBytes": made.size_bytes,
        "sessions": made.sessions,
        "entries": made.entries,
        "verified": made.is_verified,
    }


@click.command()
@click.argument("damaged", metavar="DAMAGED", type=click.Path(path_type=Path))
@click.argument("new", metavar="NEW", type=click.Path(path_type=Path))
@json_option
@click.pass_context
def salvage(ctx: click.Context, damaged: Path, new: Path, as_json: bool) -> None:
    """Write what is readable in a damaged SQLite file into a new one, and say what is lost.

    DAMAGED is only read, with the write-ahead log beside it; end whoever writes to it first. NEW must not be there.
    Exit code 0 where everything is as it was, 3 where something was lost.
    """
    from flue_py.transfer.salvaging import salvage_file

    with progress_bar("rescuing"):
        report = salvage_file(damaged, new)
    if as_json:
        print_json(_salvage_row(report, new))
    else:
        print_lines(_lines(report, new))
    if not report.is_complete:
        ctx.exit(SOMETHING_LOST)


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
    lines.append(((f"{new}: {found}, {counted(report.calls, 'paid call')}; {pages}: {said}", "bold"),))
    return lines


def _more(count: int, what: str) -> list[Line]:
    return [((f"{count - _SHOWN} {what}; --json tells all", "dim"),)] if count > _SHOWN else []


def _salvage_row(report: SalvageReport, new: Path) -> JsonObject:
    return {
        "path": str(new),
        "complete": report.is_complete,
        "sessions": report.sessions,
        "entries": report.entries,
        "calls": report.calls,
        "damagedPages": list(report.damaged_pages),
        "lost": _loss_rows(report.losses),
        "changed": _loss_rows(report.changes),
    }


def _loss_rows(losses: tuple[Loss, ...]) -> list[JsonValue]:
    return [
        {"what": loss.what, "sessionId": loss.session_id, "entryId": loss.entry_id, "detail": loss.detail}
        for loss in losses
    ]
