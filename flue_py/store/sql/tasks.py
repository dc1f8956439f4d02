"""The statements on links to tasks."""

from __future__ import annotations

from typing import NamedTuple, TypedDict

from flue_py.core.sessions import TaskLink
from flue_py.store.seam import Nothing, Row
from flue_py.store.sql.dialects import ID, IDS, IN_IDS, IN_KEYS, statement
from flue_py.store.sql.takes import Id, Ids, Keys

IdInScope = TypedDict("IdInScope", {"id": str, "scope": str | None})
Parent = TypedDict("Parent", {"parent_key": int})
ChildParent = TypedDict("ChildParent", {"child_id": str, "parent_key": int})
Child = TypedDict("Child", {"child_id": str})
DepthChild = TypedDict("DepthChild", {"depth": int, "child_id": str})
UpdateDepth = TypedDict("UpdateDepth", {"session_key": int, "task_depth": int})
EntryChildParent = TypedDict("EntryChildParent", {"entry_id": str, "child_id": str, "parent_key": int})
ParentTask = TypedDict("ParentTask", {"parent_key": int, "task_id": str})
EndLinks = TypedDict("EndLinks", {"child_id": str, "status": str, "summary": str | None})
NoteTask = TypedDict("NoteTask", {"session_key": int, "task_of": str})

NEXT_POSITION = statement(Parent, tuple[int])(
    "SELECT COALESCE(MAX(t.position) + 1, 0) FROM task_links t WHERE t.parent_key = :parent_key"
)
LINKED_CHILD = statement(ChildParent, tuple[str | None])(
    "SELECT t.entry_id FROM task_links t WHERE t.parent_key = :parent_key AND t.child_id = :child_id"
)
PARENTS_OF_CHILD = statement(Child, tuple[int])("SELECT COUNT(*) FROM task_links t WHERE t.child_id = :child_id")
# Links may go round in circles: each session is as deep as the shortest way to it.
SUNK_TASKS = statement(DepthChild, tuple[int, str, int, int, int])(
    "WITH RECURSIVE below(id, depth) AS (SELECT s.id, CAST(:depth AS BIGINT) FROM sessions s WHERE s.id = :child_id"
    " UNION SELECT t.child_id, b.depth + 1 FROM below b JOIN sessions p ON p.id = b.id"
    " JOIN task_links t ON t.parent_key = p.session_key WHERE b.depth < 100)"
    " SELECT s.session_key, s.id, s.revision, s.task_depth, MIN(b.depth) FROM below b JOIN sessions s ON s.id = b.id"
    " WHERE s.kind = 'task' GROUP BY s.session_key, s.id, s.revision, s.task_depth HAVING MIN(b.depth) <> s.task_depth"
    " ORDER BY s.session_key"
)
UPDATE_DEPTH = statement(UpdateDepth, Nothing)(
    "UPDATE sessions SET task_depth = :task_depth WHERE session_key = :session_key"
)
PLACE_LINK = statement(EntryChildParent, Nothing)(
    "UPDATE task_links SET entry_id = :entry_id WHERE parent_key = :parent_key AND child_id = :child_id"
)
TASK_CHILD = statement(ParentTask, tuple[str])(
    "SELECT t.child_id FROM task_links t WHERE t.parent_key = :parent_key AND t.task_id = :task_id ORDER BY t.position"
)
_LINK = "s.id, t.position, t.task_id, t.child_id, t.entry_id, t.status, t.summary"
LINKS_OF = statement(Id, TaskLink)(
    f"SELECT {_LINK} FROM sessions s"
    " JOIN task_links t ON t.parent_key = s.session_key WHERE s.id = :id ORDER BY t.position"
)
LINKS_TO = statement(Id, TaskLink)(
    f"SELECT {_LINK} FROM task_links t"
    " JOIN sessions s ON s.session_key = t.parent_key WHERE t.child_id = :id ORDER BY s.id"
)


class ParentsLink(NamedTuple):
    """A link that leads to a task: the parent's key, id and revision, and what the link says of the task."""

    parent_key: int
    parent_id: str
    revision: int
    status: str | None
    summary: str | None


PARENTS_LINKS = statement(Child, ParentsLink)(
    "SELECT t.parent_key, s.id, s.revision, t.status, t.summary FROM task_links t"
    " JOIN sessions s ON s.session_key = t.parent_key WHERE t.child_id = :child_id ORDER BY t.parent_key"
)
END_LINKS = statement(EndLinks, Nothing)(
    "UPDATE task_links SET status = :status, summary = :summary WHERE child_id = :child_id"
)
# The tasks of a session of another scope than the one that is meant are not followed.
TASK_CLOSURE = statement(IdInScope, tuple[str, int | None, str | None])(
    "WITH RECURSIVE doomed(id) AS ("
    f"  SELECT {ID}"
    "  UNION SELECT t.child_id FROM doomed d"
    "   JOIN sessions s ON s.id = d.id AND (:scope IS NULL OR s.scope = :scope)"
    "   JOIN task_links t ON t.parent_key = s.session_key"
    ") SELECT d.id, s.session_key, s.scope FROM doomed d LEFT JOIN sessions s ON s.id = d.id"
)


def _pair(row: Row) -> tuple[str, str]:
    parent, child = row
    return parent, child


# What a session's tasks have paid stays with it when the links to them go.
LINKS_OF_SESSIONS = statement(Keys, _pair)(
    "SELECT s.id, t.child_id FROM task_links t JOIN sessions s ON s.session_key = t.parent_key"
    f" WHERE t.parent_key {IN_KEYS} ORDER BY t.parent_key, t.position"
)
# Of sessions that go or are gone, and of tasks that such a session took along without having paid for anything itself.
PAYERS_TO_NOTE = statement(Ids, tuple[int, str, str, str | None])(
    "SELECT n.session_key, n.session_id, n.session_id, n.task_of FROM ledger_sessions n"
    f" WHERE n.session_id {IN_IDS}"
    " UNION ALL SELECT n.session_key, n.task_of, n.session_id, NULL FROM ledger_sessions n"
    f" WHERE n.task_of {IN_IDS} AND NOT EXISTS"
    " (SELECT 1 FROM ledger_sessions p WHERE p.session_id = n.task_of)"
)
NOTE_TASK = statement(NoteTask, Nothing)(
    "UPDATE ledger_sessions SET task_of = :task_of WHERE session_key = :session_key"
)
GONE_TASKS = statement(Ids, tuple[str])(
    f"WITH RECURSIVE gone(id) AS (SELECT {IDS}"
    " UNION SELECT n.session_id FROM gone g JOIN ledger_sessions n ON n.task_of = g.id) SELECT id FROM gone"
)
