"""The verify command."""

from __future__ import annotations

from collections.abc import Iterable

from flue_py.cli.output import Answer
from flue_py.cli.running import command
from flue_py.render.lines import Line, counted
from flue_py.render.rows import verify_row
from flue_py.sessions.store import Store


@command(bar="verifying")
async def verify(store: Store) -> Answer:
    """Check everything that is stored twice, and show what disagrees. Exit code 1 if something does.

    With --json: an object: sessions, entries (how many were looked at), problems (kind, where, detail).
    """
    report = await store.verify()

    def lines() -> Iterable[Line]:
        for problem in report.problems:
            yield ((str(problem), "red"),)
        problems = counted(len(report.problems), "problem")
        entries = counted(report.entries, "entry", "entries")
        yield ((f"{counted(report.sessions, 'session')}, {entries}: {problems}", "bold"),)

    return Answer(lines, lambda: verify_row(report), code=1 if report.problems else 0)
