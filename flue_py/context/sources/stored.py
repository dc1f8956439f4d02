"""The sources that come with the package, and read what the session has stored."""

from __future__ import annotations

from collections.abc import Mapping

from flue_py.context.sources.changes import changes_recent
from flue_py.context.sources.fields import brief_field
from flue_py.context.sources.files import file_source
from flue_py.context.sources.protocol import Asked, SourceReader


def session_context(asked: Asked) -> str | None:
    """Return the texts that are registered in the session, each under its name."""
    return "\n\n".join(f"### {each.name}\n{each.text}" for each in asked.registered) or None


STORED_SOURCES: Mapping[str, SourceReader] = {
    "session_context": session_context,
    "changes_recent": changes_recent,
    "brief_field": brief_field,
    "file": file_source(),
}
