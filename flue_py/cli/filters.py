"""Which sessions a command is about: the same options for all commands that list, search or sum up sessions."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import click

from flue_py.cli.choosing import project_option
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonValue
from flue_py.core.sessions import SessionInfo
from flue_py.errors import InvalidArgument
from flue_py.formats.registry import canonical_name
from flue_py.homes import is_below
from flue_py.runtime.housekeeping import parse_age
from flue_py.sessions.store import Store

Command = TypeVar("Command", bound=Callable[..., object])

_PAGE = 1000
_SPAN = re.compile(r"[0-9]{1,6}[hdw]")


@frozen
class SessionChoice:
    """The sessions that the options of a command choose. ``git_branch`` is the one that a session began on."""

    program: str | None = None
    project: str | None = None
    model: str | None = None
    git_branch: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    newest: int | None = None

    @property
    def reads_sessions(self) -> bool:
        """Whether sessions have to be read to know which are chosen; the rest a ledger or a search knows itself."""
        return self.program is not None or self.git_branch is not None or self.newest is not None

    def has(self, info: SessionInfo, models: set[str]) -> bool:
        """Return whether a session that called ``models`` is chosen, but for how new it is."""
        imported = info.metadata.get("imported")
        return (
            (self.program is None or _field(imported, "format") == canonical_name(self.program))
            and (self.project is None or is_below(info.cwd, self.project))
            and (self.model is None or self.model in models)
            and (self.git_branch is None or self.git_branch == _git_branch(_field(imported, "header")))
            and (self.since is None or info.active_at >= self.since)
            and (self.until is None or info.created_at < self.until)
        )


def choice_options(function: Command) -> Command:
    """Add the options that choose sessions; the command gets them by the names of the fields of `SessionChoice`."""
    options = [
        click.option("--program", help="Only sessions imported from this program: codex, claude-code, pi ..."),
        project_option("Only sessions that work in this folder, or below it."),
        click.option("--model", help="Only sessions that called this model."),
        click.option("--git-branch", metavar="NAME", help="Only sessions that began on this branch of git."),
        click.option("--since", metavar="WHEN", help="Only what came since then: 2026-01-31, 2026-01-31T12:00, 7d."),
        click.option("--until", metavar="WHEN", help="Only what came until then; a day is included."),
        click.option(
            "--newest", metavar="N", type=click.IntRange(min=1), help="Only the N of them that were active last."
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


async def chooser(store: Store, choice: SessionChoice) -> Callable[[SessionInfo], bool]:
    """Return what says whether a session is chosen, but for how new it is."""
    models: dict[str, set[str]] = {}
    if choice.model is not None:
        for row in (await store.usage(model=choice.model, group_by=("session",))).rows:
            models[str(row.group["session"])] = {choice.model}
    return lambda info: choice.has(info, models.get(info.id, set()))


async def chosen_sessions(store: Store, choice: SessionChoice, *, completed: bool | None = None) -> list[SessionInfo]:
    """Return the sessions that are chosen, most recently active first. O(sessions)."""
    is_chosen = await chooser(store, choice)
    chosen: list[SessionInfo] = []
    cursor = None
    while choice.newest is None or len(chosen) < choice.newest:
        page = await store.list_sessions(completed=completed, limit=_PAGE, cursor=cursor)
        chosen += [info for info in page.sessions if is_chosen(info)]
        cursor = page.next_cursor
        if cursor is None:
            break
    return chosen[: choice.newest]


def moment(text: str | None, option: str, *, is_end: bool = False) -> datetime | None:
    """Return the moment that an option names, in UTC: a date, a date with a time, or how long ago.

    The end of what comes ``until`` a day is the end of that day. Raises `InvalidArgument`.
    """
    if text is None:
        return None
    try:
        if _SPAN.fullmatch(text):
            return datetime.now(UTC) - parse_age(text)
        parsed = datetime.fromisoformat(text)
        if is_end and re.fullmatch(r"[\d-]+", text):
            parsed += timedelta(days=1)
    except (ValueError, OverflowError):
        raise InvalidArgument(
            f"{option}: {text!r} is no date; write 2026-01-31, 2026-01-31T12:00, or 7d for the last seven days"
        ) from None
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)


def _field(value: JsonValue, name: str) -> JsonValue:
    return value.get(name) if isinstance(value, dict) else None


def _git_branch(header: JsonValue) -> JsonValue:
    """Return the branch in the header of an imported file, as Claude Code or as Codex writes it."""
    return _field(header, "gitBranch") or _field(_field(header, "git"), "branch")
