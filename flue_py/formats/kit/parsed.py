"""What a parser returns: sessions to create, with their entries, in terms that no foreign format knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flue_py.core.entries import NewEntry
from flue_py.core.sessions import NewSession
from flue_py.formats.kit.report import ParseReport


@dataclass(frozen=True, slots=True)
class LabelChange:
    """A label entry: from here on ``target_id`` is called ``label``; None clears it."""

    entry_id: str
    target_id: str
    label: str | None


@dataclass(frozen=True, slots=True)
class TaskOf:
    """The session that a task session belongs to, and the name of the task there."""

    session_id: str
    task_id: str


@dataclass(frozen=True, slots=True)
class ParsedSession:
    """One session of a file: the session to create, its entries, parents first, and its leaf.

    ``version`` is that of the format. ``lines`` gives the line (from 1) of each entry by id. ``labels`` are in file
    order: the last one counts. ``parent`` names the session whose task it is. ``completed_us`` is when its work was
    completed, where it was. ``tasks`` are the tasks that it names, with the ids of their sessions;
    ``restates`` says that the metadata are those of the file whenever it is imported.
    """

    format: str
    version: str
    session: NewSession
    entries: tuple[NewEntry, ...]
    leaf: str | None
    lines: Mapping[str, int]
    report: ParseReport
    labels: tuple[LabelChange, ...] = ()
    parent: TaskOf | None = None
    is_rewritten: bool = False
    completed_us: int | None = None
    tasks: tuple[TaskOf, ...] = ()
    restates: bool = False
