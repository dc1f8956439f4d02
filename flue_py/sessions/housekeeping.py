"""Deleting many sessions: those that are completed, those whose configuration is gone, those that are old.

Nothing is deleted unasked. A task session is deleted with its parent, and never chosen by itself.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import accumulate
from os.path import exists, join
from typing import Annotated, Literal, Unpack

from msgspec import Meta

from flue_py.core.erasure import Receipt
from flue_py.core.json import Frozen
from flue_py.core.sessions import SessionInfo
from flue_py.db.runner import now_us
from flue_py.errors import InvalidArgument, OnHold, shown
from flue_py.lazy import expression
from flue_py.sessions.erase import as_one, receipt_of
from flue_py.sessions.handle import SeenOptions, all_sessions, checked_ids, checked_seen, checked_session
from flue_py.sessions.store import Store

DEFAULT_AGE = "30d"
_AGE = expression(r"([0-9]{1,6})([hdw])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def parse_age(text: str) -> timedelta:
    """Return a span of time written as ``Nd``, ``Nw`` or ``Nh``. Raises `InvalidArgument`."""
    match = _AGE.fullmatch(text.strip().lower()) if isinstance(text, str) else None
    if match is None:
        raise InvalidArgument(f"{shown(text)} is not an age; write a number of days, weeks or hours as 30d, 4w or 12h")
    return int(match[1]) * _UNITS[match[2]]


def moment(text: str | None, option: str, *, is_end: bool = False) -> datetime | None:
    """Return the moment that an option names, in UTC: a date, a date with a time, or how long ago.

    A span ``until`` a day ends at the end of that day. Raises `InvalidArgument`.
    """
    if text is None:
        return None
    try:
        if _AGE.fullmatch(text):
            return datetime.now(UTC) - parse_age(text)
        parsed = datetime.fromisoformat(text)
        if is_end and re.fullmatch(r"[\d-]+", text):
            parsed += timedelta(days=1)
    except (ValueError, OverflowError):
        raise InvalidArgument(
            f"{option}: {text!r} is no date; write 2026-01-31, 2026-01-31T12:00, or 7d for the last seven days"
        ) from None
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)


class Rule(Frozen, forbid_unknown_fields=True):
    """Which sessions go: of a scope and a kind, or of all; those not active for ``max_age``, and, of the rest, those
    that were active longest ago, until at most ``max_sessions`` with at most ``max_entries`` and ``max_bytes`` of
    payload are left.
    """

    scope: str | None = None
    kind: Literal["root", "fork"] | None = None
    max_age: str | None = None
    max_sessions: Annotated[int, Meta(ge=0)] | None = None
    max_entries: Annotated[int, Meta(ge=0)] | None = None
    max_bytes: Annotated[int, Meta(ge=0)] | None = None


class Policy(Frozen, forbid_unknown_fields=True):
    """Rules of what goes, but for what a hold is on."""

    rule: tuple[Rule, ...] = ()


async def without_held(sessions: Sequence[SessionInfo], plan: Callable[[str], Awaitable[object]]) -> list[SessionInfo]:
    """Return the sessions that no hold keeps from what ``plan`` plans for an id. The cost of as many plans."""
    free = []
    for info in sessions:
        with suppress(OnHold):
            await plan(info.id)
            free.append(info)
    return free


async def find_due(store: Store, policy: Policy, now: datetime) -> list[SessionInfo]:
    """Return the sessions that a rule of a policy takes. O(sessions x rules)."""
    due: dict[str, SessionInfo] = {}
    has_bytes = any(rule.max_bytes is not None for rule in policy.rule)
    bytes_of = await store.backend.stored_bytes() if has_bytes else {}
    for rule in policy.rule:
        chosen = await _chosen(store, partial(_is_of, rule))
        old = [] if rule.max_age is None else await find_older(store, parse_age(rule.max_age), now)
        ids = {info.id for info in old}
        due |= {info.id: info for info in chosen if info.id in ids}
        rest = sorted((info for info in chosen if info.id not in ids), key=lambda info: info.active_at, reverse=True)
        sums = zip(
            range(1, len(rest) + 1),
            accumulate(info.entry_count for info in rest),
            accumulate(bytes_of.get(info.id, 0) for info in rest),
            strict=True,
        )
        limits = (rule.max_sessions, rule.max_entries, rule.max_bytes)
        for info, sizes in zip(rest, sums, strict=True):
            if any(limit is not None and size > limit for size, limit in zip(sizes, limits, strict=True)):
                due[info.id] = info
    return [*due.values()]


def _is_of(rule: Rule, info: SessionInfo) -> bool:
    return rule.scope in (None, info.scope) and rule.kind in (None, info.kind)


async def find_completed(store: Store) -> list[SessionInfo]:
    """Return the completed sessions that are no tasks, the most recently active first. O(sessions)."""
    return await _chosen(store, lambda info: info.completed_us is not None)


async def find_prunable(
    store: Store, *, without_config: bool = False, is_there: Callable[[str], bool] = exists
) -> list[SessionInfo]:
    """Return the sessions whose configuration path is not on disk any more, completed or not. O(sessions).

    Sessions that never had one are included only with ``without_config``: most programs set none. A relative path is in
    the session's working directory. ``is_there`` says whether a path is on disk.
    """

    def is_gone(info: SessionInfo) -> bool:
        if not info.config_path:
            return without_config
        return not is_there(join(info.cwd or "", info.config_path))

    return await _chosen(store, is_gone)


async def find_older(store: Store, age: timedelta, now: datetime) -> list[SessionInfo]:
    """Return the sessions that were last active longer ago than ``age``, if all of their task sessions were, too.

    Without these; the most recently active first. O(sessions), and for each that is as old, the cost of planning its
    deletion.
    """
    try:
        before = now - age
    except OverflowError:
        return []
    old = []
    holds = [hold.name for hold in await store.holds()]
    for info in await _chosen(store, lambda info: info.active_at < before):
        planned = await store.delete_session_tree(info.id, dry_run=True, despite_holds=holds)
        tasks = [await store.get_session(session_id) for session_id in planned.session_ids if session_id != info.id]
        if all(task is None or task.info.active_at < before for task in tasks):
            old.append(info)
    return old


async def delete_all(
    store: Store,
    session_ids: Sequence[str],
    *,
    dry_run: bool = False,
    despite_holds: Sequence[str] = (),
    **options: Unpack[SeenOptions],
) -> Receipt:
    """Delete sessions, each with its task sessions in a transaction of its own, or only say which would go.

    A hold on any of them, or a leaf that is not as expected, is raised before the first one goes.
    """
    names, seen = [checked_session(session_id) for session_id in session_ids], checked_seen(**options)
    despite = checked_ids(despite_holds)
    planned = await store.backend.plan_deletion(names, store.scope, seen, despite=despite)
    delete = partial(store.backend.delete_tree, scope=store.scope, expected=seen, despite=despite)
    trees = [planned] if dry_run else as_one([await delete(name) for name in names], planned)
    return receipt_of(trees, now_us(), dry_run=dry_run)


async def _chosen(store: Store, is_chosen: Callable[[SessionInfo], bool]) -> list[SessionInfo]:
    sessions = await all_sessions(store.backend, scope=store.scope)
    return [info for info in sessions if info.kind != "task" and is_chosen(info)]
