"""The rm command."""

from __future__ import annotations

import click

from flue_py.cli.about import name_of
from flue_py.cli.choosing import SESSION_NAME, scope_option
from flue_py.cli.consent import Plan, destructive, plan_for
from flue_py.cli.output import Answer
from flue_py.cli.progress import progress_bar
from flue_py.core.sessions import Deletion, ScopeDeletion
from flue_py.render.lines import counted, printable
from flue_py.render.rows import deletion_row, scope_deletion_row
from flue_py.render.views import deletion_lines, scope_deletion_lines
from flue_py.runtime.housekeeping import find_completed
from flue_py.sessions.finding import all_sessions
from flue_py.sessions.store import Store


@destructive()
@click.argument("session", type=SESSION_NAME, required=False)
@scope_option
async def rm(store: Store, session: str | None) -> Plan:
    """Delete SESSION, its task sessions and theirs, and every entry that no other session sees.

    Forks are kept with all they see, and so is the record of costs. At a terminal it shows what would go, and asks; if
    SESSION changes meanwhile, it is kept.
    If SESSION is "all", and no session has that id or key, all completed sessions are deleted.
    With --scope and without SESSION everything of that tenant or user is deleted: sessions, memories, files, budgets,
    and from the record of costs folders and agents. What was paid stays.

    With --json: an object: dryRun, sessionIds, missingIds (linked, but not there), entriesDeleted, entriesKept; of
    all the object of prune; of a scope dryRun, sessionIds, entriesDeleted and entriesKept (null with --dry-run),
    memories, files, budgets, callsKept.
    """
    if session is None:
        return await _plan_for_scope(store)
    if session.lower() == "all" and not any(
        session in (info.id, info.key) for info in await all_sessions(store.backend, scope=store.scope)
    ):
        return await plan_for(store, find_completed(store))
    found = await store.find_session(session)
    seen = found.revision
    planned = await store.delete_session_tree(found.id, dry_run=True, expected_revision=seen)
    names = {each: await name_of(store, each) for each in planned.session_ids}

    def shown(deletion: Deletion, *, dry_run: bool) -> Answer:
        return Answer(
            lambda: deletion_lines(deletion, names, dry_run=dry_run), lambda: deletion_row(deletion, dry_run=dry_run)
        )

    async def go(store: Store) -> Answer:
        with progress_bar("deleting"):
            return shown(await store.delete_session_tree(found.id, expected_revision=seen), dry_run=False)

    return Plan(counted(len(planned.session_ids), "session"), shown(planned, dry_run=True), go)


async def _plan_for_scope(store: Store) -> Plan:
    if store.scope is None:
        raise click.UsageError("name a SESSION, or give --scope for everything of a tenant or user")
    scope = store.scope
    planned = await store.delete_scope(scope, dry_run=True)

    def shown(deletion: ScopeDeletion) -> Answer:
        return Answer(lambda: scope_deletion_lines(deletion), lambda: scope_deletion_row(deletion))

    async def go(store: Store) -> Answer:
        with progress_bar("deleting"):
            return shown(await store.delete_scope(scope, dry_run=False))

    is_empty = not (planned.session_ids or planned.memories or planned.files or planned.budgets or planned.calls)
    what = "" if is_empty else f"everything of scope {printable(repr(scope))}"
    return Plan(what, shown(planned), go)
