"""Sessions of the OpenAI Agents SDK, kept in a store of ours.

`FlueSession` takes the place of `agents.SQLiteSession`, and has the methods of `AdvancedSQLiteSession` for branches and
usage. `import_sqlite_sessions` brings the file of either into a store.
"""

from __future__ import annotations

from flue_py.errors import MissingExtra

try:
    import agents  # noqa: F401
except ImportError as missing:
    raise MissingExtra("openai-agents", "flue_py.adapters.openai_agents") from missing

from flue_py.adapters.openai_agents.session import Compaction, FlueSession, ImportedSessions, import_sqlite_sessions

__all__ = ["Compaction", "FlueSession", "ImportedSessions", "import_sqlite_sessions"]
