"""A plugin of pytest for the framework's own tests: `agents.SQLiteSession` is ours, before they import it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import agents
import agents.memory
from agents.extensions import memory

from flue_py.adapters.openai_agents import FlueSession

# Its subclasses stay what they are.
_ADVANCED = memory.AdvancedSQLiteSession


class SQLiteSession(FlueSession):
    """Ours, with the arguments that name tables, of which there are none to name."""

    def __init__(
        self,
        session_id: str,
        db_path: str | Path = ":memory:",
        sessions_table: str = "",
        messages_table: str = "",
        session_settings: Any = None,
    ) -> None:
        super().__init__(session_id, db_path, session_settings=session_settings)


agents.SQLiteSession = agents.memory.SQLiteSession = SQLiteSession  # type: ignore[misc,assignment]
