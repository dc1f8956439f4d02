"""The memory command."""

from __future__ import annotations

from collections.abc import Sequence
from os.path import abspath
from types import MappingProxyType

import click

from flue_py.cli.choosing import scope_option
from flue_py.cli.consent import Plan, destructive
from flue_py.cli.given import text_from_stdin
from flue_py.cli.group import HelpfulGroup
from flue_py.cli.output import Answer, said
from flue_py.cli.running import command
from flue_py.core.documents import Document, DocumentFilter, DocumentInfo, DocumentName
from flue_py.core.jsontext import JsonObject
from flue_py.homes import in_full
from flue_py.render.documents import document_row, info_row, memory_lines, place_of
from flue_py.render.lines import counted, printable
from flue_py.sessions.remembering import REPL
from flue_py.sessions.store import Store

_PAGE = 1000


class _Memories(HelpfulGroup):
    synonyms = MappingProxyType(
        {
            "ls": "list",
            "delete": "rm",
            "remove": "rm",
            "forget": "rm",
            "set": "add",
            "remember": "add",
            "find": "search",
        }
    )


@click.group(cls=_Memories)
def memory() -> None:
    """Keep, list, find and delete what agents remember from session to session.

    With --json, of add an object: name, type, space (repl, or agents/ and a name), project (null for all folders),
    scope, source, characters, createdAt, changedAt; of list and search an array of them, each with text; of rm an
    object: dryRun, and forgotten, which is one, or null if there was none.
    """


agent_option = click.option("--agent", metavar="NAME", help="The memory of this agent (default: that of the REPL).")
project_option = click.option("--project", metavar="FOLDER", help="What is for this folder alone (default: for all).")


def _space(agent: str | None) -> str:
    return REPL if agent is None else f"agents/{agent}"


def _project(folder: str | None) -> str:
    return "" if folder is None else abspath(in_full(folder))


@command(create=True)
@click.argument("name")
@click.argument("text")
@click.option("--type", "type_", metavar="WORD", default="user", show_default=True, help="What it is about.")
@agent_option
@project_option
@scope_option
async def add(store: Store, name: str, text: str, type_: str, agent: str | None, project: str | None) -> Answer:
    """Remember TEXT under NAME, in place of what was remembered under it. "-" reads TEXT from standard input.

    A WORD of --type is user, feedback, project, reference or another one. A database that is missing is made.
    """
    body = text_from_stdin("TEXT") if text == "-" else text
    kept = await store.remember(name, body, type=type_, space=_space(agent), project=_project(project))
    return said(f"remembered {kept.name!r}{place_of(kept)}, {counted(kept.chars, 'character')}", info_row(kept))


@command("list", paged=True)
@agent_option
@project_option
@scope_option
async def list_(store: Store, agent: str | None, project: str | None) -> Answer:
    """List what is remembered: everything, or of one agent or folder, in order of agent, folder and name."""
    where = DocumentFilter(
        "memory",
        store.scope or "",
        None if agent is None else _space(agent),
        None if project is None else _project(project),
    )
    return _listed(await _all(store, where), "nothing is remembered")


async def _all(store: Store, where: DocumentFilter) -> list[Document]:
    found: list[Document] = []
    while True:
        page = await store.backend.read_documents(where, after=found[-1].info.id if found else None, limit=_PAGE)
        found += page
        if len(page) < _PAGE:
            return found


@command(paged=True)
@click.argument("words", metavar="WORDS...", nargs=-1, required=True)
@agent_option
@project_option
@scope_option
async def search(store: Store, words: tuple[str, ...], agent: str | None, project: str | None) -> Answer:
    """Find memories whose names or texts have all WORDS, taken literally and in any case."""
    found: list[Document] = []
    after: DocumentName | None = None
    while True:
        page = await store.search_memories(
            " ".join(words),
            space=None if agent is None else _space(agent),
            project=None if project is None else _project(project),
            after=after,
            limit=_PAGE,
        )
        found += page.documents
        after = page.after
        if after is None:
            return _listed(found, "nothing found")


def _listed(found: Sequence[Document], nothing: str) -> Answer:
    if not found:
        return said(nothing, [])
    return Answer(lambda: memory_lines(found), lambda: [document_row(each) for each in found])


@destructive()
@click.argument("name")
@agent_option
@project_option
@scope_option
async def rm(store: Store, name: str, agent: str | None, project: str | None) -> Plan:
    """Forget the memory NAME. Its text is kept nowhere."""
    asked = DocumentName(store.scope or "", "memory", _space(agent), _project(project), name)
    found = await store.backend.get_document(asked)

    def answer(info: DocumentInfo | None, done: str, *, dry_run: bool) -> Answer:
        row: JsonObject = {"dryRun": dry_run, "forgotten": None if info is None else info_row(info)}
        if info is None:
            return said(f"there is no memory {printable(repr(name))}{place_of(asked)}", row)
        return said(f"{done} {printable(repr(name))}{place_of(asked)}, {counted(info.chars, 'character')}", row)

    async def go(store: Store) -> Answer:
        is_gone = await store.forget(name, space=asked.space, project=asked.project)
        return answer(found.info if found is not None and is_gone else None, "forgot", dry_run=False)

    info = None if found is None else found.info
    what = "" if info is None else f"memory {printable(repr(name))}{place_of(asked)}"
    return Plan(what, answer(info, "would forget", dry_run=True), go, verb="forget")


for each in (add, list_, search, rm):
    memory.add_command(each)
