"""The snapshot command."""

from __future__ import annotations

import json
from pathlib import Path

from flue_py.cli.choosing import session_argument
from flue_py.cli.output import Answer
from flue_py.cli.running import command
from flue_py.cli.saving import file_argument, saved
from flue_py.runtime.conversation import Conversation
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store


@command(bar="reading", json=False)
@session_argument
@file_argument
async def snapshot(store: Store, session: Session, file: Path | None) -> Answer:
    """Write the full state of SESSION as JSON to a new FILE, readable by its owner only, or print it.

    It is an object: session (as in sessions), entries (all of the tree, as in path), labels (by entry id), tasks.
    """
    state = await Conversation(store, session).snapshot()
    return saved(json.dumps(state, ensure_ascii=False, indent=2) + "\n", file, is_json=True)
