"""The save command."""

from __future__ import annotations

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
async def save(store: Store, session: Session, file: Path | None) -> Answer:
    """Write what was said in SESSION as Markdown to a new FILE, readable by its owner only, or print it."""
    return saved(await Conversation(store, session).save(), file)
