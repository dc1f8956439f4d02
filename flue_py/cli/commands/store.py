"""The store command."""

from __future__ import annotations

from collections.abc import Sequence
from os.path import abspath
from types import MappingProxyType

import click

from flue_py.cli.choosing import scope_option
from flue_py.cli.consent import Plan, destructive
from flue_py.cli.group import HelpfulGroup
from flue_py.cli.output import Answer, plain_lines, said
from flue_py.cli.running import command
from flue_py.core.documents import DocumentInfo
from flue_py.core.entries import from_microseconds
from flue_py.core.jsontext import JsonObject
from flue_py.errors import InvalidArgument
from flue_py.homes import in_full
from flue_py.render.documents import document_row, info_row
from flue_py.render.lines import Line, Span, counted, one_line, printable, table
from flue_py.render.views import minute
from flue_py.sessions.store import Store
from flue_py.transfer.filing import FilesReport, add_files


class _Stored(HelpfulGroup):
    synonyms = MappingProxyType({"ls": "list", "import": "add", "remove": "rm", "delete": "rm", "cat": "show"})


@click.group(cls=_Stored)
def store() -> None:
    """Add, list, show and remove files that agents read: texts, and the text of documents.

    A file has a name, in a project (a folder; default: for all) and a scope.
    """


_project = click.option("--project", metavar="FOLDER", help="What is for this folder alone (default: for all).")


def _in_full(project: str | None) -> str:
    return "" if project is None else abspath(in_full(project))


@command(create=True)
@click.argument("path")
@click.option("--name", metavar="NAME", help="The name it gets; of a folder, what its files' names begin with.")
@_project
@scope_option
async def add(store: Store, path: str, name: str | None, project: str | None) -> Answer:
    """Add PATH, a file or a folder, in place of what has its name.

    Of .pdf, .docx, .pptx and .xlsx files the text is stored, with flue-py[documents]. Hidden files and links in a
    folder are passed over.

    Everything else has to be text in UTF-8. Exit code 1 if a file of a folder was not added. With --json: an
    object: added (as in list), refused (a list of name, reason), notes.
    """
    report = await add_files(store, path, name=name, project=_in_full(project))
    return Answer(lambda: _report_lines(report), lambda: _report_json(report), code=1 if report.refused else 0)


@command("list", paged=True)
@click.option("--project", metavar="FOLDER", help="Only those for this folder.")
@scope_option
async def list_(store: Store, project: str | None) -> Answer:
    """List the files with type and size, by project and name.

    With --json: a list of name, type, space (empty), project (null for all folders), scope, source, characters,
    createdAt, changedAt.
    """
    found = await store.files(project=None if project is None else _in_full(project))
    return Answer(lambda: _lines(found), lambda: [info_row(file) for file in found])


@command(paged=True)
@click.argument("name")
@_project
@scope_option
async def show(store: Store, name: str, project: str | None) -> Answer:
    """Show the text of the file NAME.

    With --json: an object as in list, with text.
    """
    folder = _in_full(project)
    found = await store.read_file(name, project=folder)
    if found is None:
        raise InvalidArgument(f"there is no file {_called(name, folder)}; list has their names")
    return Answer(lambda: plain_lines(found.body), lambda: document_row(found))


@destructive()
@click.argument("name")
@_project
@scope_option
async def rm(store: Store, name: str, project: str | None) -> Plan:
    """Delete the file NAME. Its text is kept nowhere.

    With --json: an object: dryRun, and deleted, as in list, or null if there was none.
    """
    folder = _in_full(project)
    found = await store.read_file(name, project=folder)

    def answer(info: DocumentInfo | None, done: str, *, dry_run: bool) -> Answer:
        row: JsonObject = {"dryRun": dry_run, "deleted": None if info is None else info_row(info)}
        if info is None:
            return said(f"there is no file {_called(name, folder)}", row)
        return said(f"{done} {_called(name, folder)}, {counted(info.chars, 'character')}", row)

    async def go(store: Store) -> Answer:
        is_gone = await store.remove_file(name, project=folder)
        return answer(found.info if found is not None and is_gone else None, "deleted", dry_run=False)

    what = "" if found is None else f"file {_called(name, folder)}"
    return Plan(what, answer(None if found is None else found.info, "would delete", dry_run=True), go)


def _called(name: str, folder: str) -> str:
    return f"{printable(repr(name))} for {printable(folder)}" if folder else printable(repr(name))


def _lines(found: Sequence[DocumentInfo]) -> list[Line]:
    if not found:
        return plain_lines("there are no files")
    rows: list[list[Span]] = [[(name, "dim") for name in ("file", "characters", "changed", "type", "project")]]
    for file in found:
        about: list[Span] = [(f"{file.chars:,}", ""), (minute(from_microseconds(file.changed_us)), "")]
        rows.append([(one_line(file.name), "bold"), *about, (one_line(file.type), ""), (one_line(file.project), "dim")])
    return table(rows, right=frozenset({1}))


def _report_lines(report: FilesReport) -> list[Line]:
    lines = plain_lines(f"added {counted(len(report.added), 'file')}")
    if report.added:
        lines += _lines(report.added)
    for refusal in report.refused:
        lines += plain_lines(f"not added: {one_line(refusal.name)}: {one_line(refusal.reason)}")
    for note in report.notes:
        lines += plain_lines(f"note: {one_line(note)}")
    return lines


def _report_json(report: FilesReport) -> JsonObject:
    return {
        "added": [info_row(file) for file in report.added],
        "refused": [{"name": refusal.name, "reason": refusal.reason} for refusal in report.refused],
        "notes": [*report.notes],
    }


for each in (add, list_, show, rm):
    store.add_command(each)
