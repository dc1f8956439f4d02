"""The list of sessions: grouped by the folder that they work in, and filtered by what is typed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from flue_py.core.frozen import frozen
from flue_py.core.sessions import SessionInfo
from flue_py.render.lines import one_line

NO_FOLDER = "(no folder)"


@frozen
class Project:
    """The head of a group: the folder, and how many of its sessions are listed."""

    folder: str
    sessions: int


Listed: TypeAlias = Project | SessionInfo


def grouped(sessions: Iterable[SessionInfo], words: str, name: Callable[[SessionInfo], str]) -> list[Listed]:
    """Return the sessions that fit ``words``, below the heads of their projects.

    The project with the session that was active last comes first; the sessions keep their order. Every word has to be
    in the name, the folder, the scope, the key or the id, in any case. O(sessions).
    """
    wanted = words.casefold().split()
    groups: dict[str, list[SessionInfo]] = {}
    for info in sessions:
        if not wanted or _fits(info, wanted, name(info)):
            groups.setdefault(one_line(info.cwd or "") or NO_FOLDER, []).append(info)
    rows: list[Listed] = []
    for folder, infos in groups.items():
        rows += (Project(folder, len(infos)), *infos)
    return rows


def next_session(rows: Sequence[Listed], at: int, step: int) -> int:
    """Return the row of the next session from ``at`` on, heads of projects passed over, as `next_row` does."""
    return next_row(len(rows), lambda place: not isinstance(rows[place], Project), at, step)


def next_row(count: int, stands: Callable[[int], bool], at: int, step: int) -> int:
    """Return the next of ``count`` rows from ``at`` on, in the direction of ``step``, on which one ``stands``.

    If there is none, that in the other direction; 0 without any. O(rows passed over).
    """
    for way in (1 if step >= 0 else -1, -1 if step >= 0 else 1):
        place = min(max(at, 0), count - 1)
        while 0 <= place < count:
            if stands(place):
                return place
            place += way
    return 0


def _fits(info: SessionInfo, wanted: Sequence[str], name: str) -> bool:
    text = "\n".join((name, info.cwd or "", info.scope, info.key or "", info.id)).casefold()
    return all(word in text for word in wanted)
