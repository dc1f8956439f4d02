"""Sessions as people list them: what each is about, where, with which model, when, how much."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PureWindowsPath

from flue_py.core.sessions import SessionInfo
from flue_py.render.entries import Cost, Look, cost_text
from flue_py.render.lines import Line, Span, one_line, short_count, shortest_ids, table
from flue_py.render.views import clipped, name_among, spent

_DATED = re.compile(r"[-@_]?(20\d{2}-?\d{2}-?\d{2})$")
_COLUMNS = ("session", "active", "msgs", "$", "project", "model", "title")
_RIGHT = frozenset({2, 3})
_NARROW, _NAMES = 80, 10
"""At 80 cells a project and a model get 10 each. Of a wider screen, each gets an eighth of the rest."""


def session_lines(
    sessions: Sequence[SessionInfo],
    look: Look,
    *,
    models: Mapping[str, str] | None = None,
    sources: Mapping[str, SessionInfo] | None = None,
) -> list[Line]:
    """Return sessions, one line each: id, day of the last activity (UTC), messages, cost, project, model, title.

    ``models`` has the model of each session by its id, ``sources`` the sessions that were forked, by their ids. The
    columns of projects and models are left out if no session has one.
    """
    short = shortest_ids([info.id for info in sessions], least=8, most=36)
    width = _NAMES + max(0, look.width - _NARROW) // 8
    rows: list[list[Span]] = [[(name, "dim") for name in _COLUMNS]]
    for info in sessions:
        model = short_model((models or {}).get(info.id, ""))
        rows.append(
            [
                (short[info.id], "bold"),
                (f"{info.active_at:%Y-%m-%d}", "dim"),
                (short_count(info.message_count), ""),
                (spent(info, cost_text(Cost(info.spent_picodollars))), ""),
                (look.fit(project_name(info), width), ""),
                (look.fit(model, width), "dim"),
                (_listed_name(info, sources or {}), "yellow" if info.kind == "task" else ""),
            ]
        )
    kept = [at for at in range(len(_COLUMNS)) if at not in (4, 5) or any(row[at][0] for row in rows[1:])]
    shown = [[row[at] for at in kept] for row in rows]
    return [clipped(line, look) for line in table(shown, right=_RIGHT)]


def _listed_name(info: SessionInfo, sources: Mapping[str, SessionInfo]) -> str:
    name = name_among(info, sources)
    return f"task: {name}" if info.kind == "task" else name


def project_name(info: SessionInfo) -> str:
    """Return the last part of the folder that a session works in (POSIX or Windows); "" if it has none."""
    return one_line(PureWindowsPath(info.cwd).name or info.cwd) if info.cwd else ""


def short_model(name: str) -> str:
    """Return a model's name without its provider, its maker's prefix and the date of its release."""
    return one_line(_DATED.sub("", name.rpartition("/")[2]).removeprefix("claude-"))
