"""The show command."""

from __future__ import annotations

import click

from flue_py.cli.about import models_of
from flue_py.cli.choosing import ENTRY, session_argument
from flue_py.cli.output import Answer, look, said
from flue_py.cli.running import command
from flue_py.core.jsontext import JsonObject
from flue_py.core.sessions import TaskLink
from flue_py.render.lines import Line, one_line
from flue_py.render.rows import entry_row, session_row, task_row
from flue_py.render.views import entry_block, facts_lines, session_facts
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store


def _check(entry: str | None, print_leaf: bool, **_: object) -> None:
    if print_leaf and entry is not None:
        raise click.UsageError("--print-leaf is of a session; leave ENTRY out")


@command(check=_check, bar="reading", paged=True)
@session_argument
@click.argument("entry", type=ENTRY, required=False)
@click.option(
    "--print-leaf", is_flag=True, help="Print the id of the leaf alone; an empty line before the first entry."
)
async def show(store: Store, session: Session, entry: str | None, print_leaf: bool) -> Answer:
    """Show the facts about SESSION, or one ENTRY of it in full.

    "set to" is the model that is asked next, "model" the one of most calls. With --json: the object of sessions,
    with settings (thinkingLevel, provider, model) and tasks (taskId, sessionId, entryId: the entry below which it
    began, or null; status and summary: how it ended); or the object of path for ENTRY, with its label.
    """
    if print_leaf:
        return said(session.leaf_id or "", session.leaf_id)
    if entry is None:
        return await _session(store, session)
    found, label = await session.get_entry(entry), (await session.labels()).get(entry)
    assert found is not None
    return Answer(lambda: entry_block(found, label), lambda: {**entry_row(found), "label": label})


async def _session(store: Store, session: Session) -> Answer:
    """Return the facts of a session. Its model is the one of most calls; its settings say which one comes next."""
    settings = await session.settings()
    thinking = settings.thinking_level or "off"
    info = await session.refresh()
    model = (await models_of(store, [info])).get(info.id)
    name, tasks, parents = await session.name(), await session.task_links(), await session.task_parents()

    def lines() -> list[Line]:
        facts = session_facts(info, name)
        facts.append(("model", one_line(model or "")))
        facts.append(("set to", "/".join(part for part in (settings.provider, settings.model) if part)))
        facts.append(("thinking", thinking))
        facts += [("task of", f"{link.parent_id} as {link.task_id}") for link in parents]
        facts += [("task", _told(link)) for link in tasks]
        return facts_lines(facts, look())

    def row() -> JsonObject:
        set_to: JsonObject = {
            "thinkingLevel": thinking,
            "provider": settings.provider,
            "model": settings.model,
        }
        return {
            **session_row(info, name),
            "model": model,
            "settings": set_to,
            "tasks": [task_row(link) for link in tasks],
        }

    return Answer(lines, row)


def _told(link: TaskLink) -> str:
    """Return a task on one line: its session, what the parent calls it, and how it ended."""
    said = f"{link.child_id} as {link.task_id}" + (f", {link.status}" if link.status is not None else "")
    return said if link.summary is None else f"{said}: {one_line(link.summary)}"
