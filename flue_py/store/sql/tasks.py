"""The statements on links to tasks."""

from __future__ import annotations

from typing import TypedDict

from flue_py.core.sessions import TaskLink
from flue_py.store.seam import Nothing, Statement
from flue_py.store.sql.dialects import in_ids, in_keys, per_dialect, same_as_column
from flue_py.store.sql.takes import Id, Ids, Keys

Parent = TypedDict("Parent", {"parent_key": int})
ChildParent = TypedDict("ChildParent", {"child_id": str, "parent_key": int})
Child = TypedDict("Child", {"child_id": str})
DepthChild = TypedDict("DepthChild", {"depth": int, "child_id": str})
UpdateDepth = TypedDict("UpdateDepth", {"session_key": int, "task_depth": int})
EntryChildParent = TypedDict("EntryChildParent", {"entry_id": str, "child_id": str, "parent_key": int})
ParentTask = TypedDict("ParentTask", {"parent_key": int, "task_id": str})
NoteTask = TypedDict("NoteTask", {"session_key": int, "task_of": str})

NEXT_POSITION = Statement(
    Parent, tuple[int], "SELECT COALESCE(MAX(t.position) + 1, 0) FROM task_links t WHERE t.parent_key = :parent_key"
)
LINKED_CHILD = Statement(
    ChildParent,
    tuple[str | None],
    "SELECT t.entry_id FROM task_links t WHERE t.parent_key = :parent_key AND t.child_id = :child_id",
)
PARENTS_OF_CHILD = Statement(Child, tuple[int], "SELECT COUNT(*) FROM task_links t WHERE t.child_id = :child_id")
# Links may go round in circles: each session is as deep as the shortest way to it.
SUNK_TASKS = Statement(
    DepthChild,
    tuple[int, str, int, int, int],
    "WITH RECURSIVE below(id, depth) AS (SELECT s.id, CAST(:depth AS BIGINT) FROM sessions s WHERE s.id = :child_id"
    " UNION SELECT t.child_id, b.depth + 1 FROM below b JOIN sessions p ON p.id = b.id"
    " JOIN task_links t ON t.parent_key = p.session_key WHERE b.depth < 100)"
    " SELECT s.session_key, s.id, s.revision, s.task_depth, MIN(b.depth) FROM below b JOIN sessions s ON s.id = b.id"
    " WHERE s.kind = 'task' GROUP BY s.session_key, s.id, s.revision, s.task_depth HAVING MIN(b.depth) <> s.task_depth"
    " ORDER BY s.session_key",
)
UPDATE_DEPTH = Statement(
    UpdateDepth, Nothing, "UPDATE sessions SET task_depth = :task_depth WHERE session_key = :session_key"
)
PLACE_LINK = Statement(
    EntryChildParent,
    Nothing,
    "UPDATE task_links SET entry_id = :entry_id WHERE parent_key = :parent_key AND child_id = :child_id",
)
TASK_CHILD = Statement(
    ParentTask,
    tuple[str],
    "SELECT t.child_id FROM task_links t WHERE t.parent_key = :parent_key AND t.task_id = :task_id ORDER BY t.position",
)
LINKS_OF = Statement(
    Id,
    TaskLink,
    "SELECT s.id, t.position, t.task_id, t.child_id, t.entry_id FROM sessions s"
    " JOIN task_links t ON t.parent_key = s.session_key WHERE s.id = :id ORDER BY t.position",
)
LINKS_TO = Statement(
    Id,
    TaskLink,
    "SELECT s.id, t.position, t.task_id, t.child_id, t.entry_id FROM task_links t"
    " JOIN sessions s ON s.session_key = t.parent_key WHERE t.child_id = :id ORDER BY s.id",
)
TASK_CLOSURE = per_dialect(
    Id,
    tuple[str, int | None, str | None],
    lambda dialect: (
        "WITH RECURSIVE doomed(id) AS ("
        f"  SELECT {same_as_column(dialect, 'CAST(:id AS TEXT)')}"
        "  UNION SELECT t.child_id FROM doomed d JOIN sessions s ON s.id = d.id"
        "   JOIN task_links t ON t.parent_key = s.session_key"
        ") SELECT d.id, s.session_key, s.scope FROM doomed d LEFT JOIN sessions s ON s.id = d.id"
    ),
)
# What a session's tasks have paid stays with it when the links to them go.
LINKS_OF_SESSIONS = per_dialect(
    Keys,
    tuple[str, str],
    lambda dialect: (
        "SELECT s.id, t.child_id FROM task_links t JOIN sessions s ON s.session_key = t.parent_key"
        f" WHERE {in_keys('t.parent_key', dialect)} ORDER BY t.parent_key, t.position"
    ),
)
# Of sessions that go or are gone, and of tasks that such a session took along without having paid for anything itself.
PAYERS_TO_NOTE = per_dialect(
    Ids,
    tuple[int, str, str, str | None],
    lambda dialect: (
        "SELECT n.session_key, n.session_id, n.session_id, n.task_of FROM ledger_sessions n"
        f" WHERE {in_ids('n.session_id', dialect)}"
        " UNION ALL SELECT n.session_key, n.task_of, n.session_id, NULL FROM ledger_sessions n"
        f" WHERE {in_ids('n.task_of', dialect)} AND NOT EXISTS"
        " (SELECT 1 FROM ledger_sessions p WHERE p.session_id = n.task_of)"
    ),
)
NOTE_TASK = Statement(
    NoteTask, Nothing, "UPDATE ledger_sessions SET task_of = :task_of WHERE session_key = :session_key"
)
GONE_TASKS = per_dialect(
    Ids,
    tuple[str],
    lambda dialect: (
        "WITH RECURSIVE gone(id) AS (SELECT "
        + (
            "value FROM json_each(:ids)"
            if dialect == "sqlite"
            else 'value COLLATE "C" FROM json_array_elements_text(CAST(:ids AS json))'
        )
        + " UNION SELECT n.session_id FROM gone g JOIN ledger_sessions n ON n.task_of = g.id) SELECT id FROM gone"
    ),
)
