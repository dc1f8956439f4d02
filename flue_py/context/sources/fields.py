"""A field of a brief: what the task is, by its parts."""

from __future__ import annotations

import json

from flue_py.context.sources.protocol import Asked

BRIEF = "brief"
"""The metadata of a session in which a brief may be."""


def brief_field(asked: Asked) -> str | None:
    """Return a field of the metadata of the session, or of the object ``brief`` in it."""
    metadata = asked.session.metadata
    name = asked.parameter or ""
    found = field_text(metadata.get(BRIEF), name)
    return field_text(metadata, name) if found is None else found


def field_text(brief: object, name: str) -> str | None:
    """Return a field of a JSON object as a text, looked for by its name and then without capitals; None without it."""
    if not isinstance(brief, dict):
        return None
    value = brief.get(name, brief.get(name.lower()))
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
