"""The stores that are compared, and what has to be said of each. Nothing of theirs is imported here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

COPIES = "has no fork: the messages up to the middle are read, and written as another session"
SUMS = "keeps no usage: the messages after the middle are read, and summed"
SINGLY = "cannot write to several sessions as one: this appends to one after the other"
TAIL = "has no compaction: this reads the last 200 messages, and no summary"
WHOLE = "has no such read: everything is read, and the end of it is kept"
STATE = "the state is in memory, as a running graph has it; each append writes all of it as another checkpoint"
ONE_CHECKPOINT = "the history is in one checkpoint; a thread that grew to it has one for each step"
LANGGRAPH = {
    "append": STATE,
    "atomic": SINGLY,
    "append_100": ONE_CHECKPOINT,
    "append_10000": ONE_CHECKPOINT,
    "append_100000": ONE_CHECKPOINT,
    "fork": "a checkpoint below the middle one, which is read and written again",
    "fork_bytes": "a checkpoint below the middle one, which is read and written again",
    "usage": SUMS,
    "tail": WHOLE,
    "context": "a graph compacts by replacing its messages: the newest checkpoint has only what is left",
}


@dataclass(frozen=True)
class Store:
    """One store: its title in the table, its adapter module, and its packages, the first of which is the store's.

    ``is_raced`` says whether the goals count it. ``notes`` say by row what it does otherwise than flue_py.
    """

    name: str
    title: str
    module: str
    packages: tuple[str, ...]
    color: str
    is_raced: bool = True
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def missing(self) -> str | None:
        """The first of its packages that is not installed, or None."""
        for package in self.packages:
            try:
                version(package)
            except PackageNotFoundError:
                return package
        return None


OURS = Store("flue_py", "flue_py", "flue_store", ("flue-py",), "#111827")

STORES = (
    OURS,
    Store(
        "flue_sync",
        "flue_py.sync",
        "flue_sync",
        ("flue-py",),
        "#6b7280",
        is_raced=False,
        notes={"at_once": "one thread appends for all sessions, one after the other"},
    ),
    Store(
        "openai_sqlite",
        "SQLiteSession",
        "openai_sqlite",
        ("openai-agents",),
        "#2563eb",
        notes={"atomic": SINGLY, "fork": COPIES, "fork_bytes": COPIES, "usage": SUMS, "context": TAIL},
    ),
    Store(
        "openai_advanced",
        "AdvancedSQLiteSession",
        "openai_advanced",
        ("openai-agents",),
        "#0891b2",
        notes={
            "atomic": SINGLY,
            "usage": "keeps usage by turn, and has no window: all turns are read, and the later half is summed",
            "context": TAIL,
        },
    ),
    Store(
        "openai_sqlalchemy",
        "SQLAlchemySession",
        "openai_sqlalchemy",
        ("openai-agents", "sqlalchemy", "aiosqlite"),
        "#7c3aed",
        notes={"atomic": SINGLY, "fork": COPIES, "fork_bytes": COPIES, "usage": SUMS, "context": TAIL},
    ),
    Store(
        "langgraph",
        "AsyncSqliteSaver",
        "langgraph_saver",
        ("langgraph-checkpoint-sqlite", "aiosqlite"),
        "#ea580c",
        notes=LANGGRAPH,
    ),
    Store(
        "langgraph_dicts",
        "AsyncSqliteSaver, plain dicts",
        "langgraph_dicts",
        ("langgraph-checkpoint-sqlite", "aiosqlite"),
        "#fdba74",
        is_raced=False,
        notes=LANGGRAPH,
    ),
    Store(
        "adk",
        "DatabaseSessionService",
        "adk_database",
        ("google-adk", "sqlalchemy", "aiosqlite"),
        "#059669",
        notes={
            "atomic": SINGLY,
            "fork": "has no fork: the events up to the middle are read, and appended to another session one by one",
            "usage": SUMS,
            "context": TAIL,
        },
    ),
    Store(
        "jsonl",
        "JSONL, fsync",
        "plain_jsonl",
        (),
        "#9ca3af",
        is_raced=False,
        notes={
            "atomic": SINGLY,
            "at_once": "a file per session; each fsync holds up the event loop",
            "fork": "a new file with the lines up to the middle",
            "fork_bytes": "a new file with the lines up to the middle",
            "usage": SUMS,
            "context": "the whole file is read to find the summary",
            "tail": WHOLE,
        },
    ),
)

BY_NAME = {store.name: store for store in STORES}
PACKAGES = ("flue-py", "openai-agents", "langgraph-checkpoint-sqlite", "google-adk", "SQLAlchemy", "aiosqlite")
