"""Sessions of Google's Agent Development Kit (ADK), kept in a store of ours.

Needs the extra ``adk``. `FlueSessionService` takes the place of ADK's own session services.
"""

from __future__ import annotations

from flue_py.errors import MissingExtra

try:
    import google.adk.sessions  # noqa: F401
except ImportError as error:
    raise MissingExtra("adk", "flue_py.adapters.adk") from error

from flue_py.adapters.adk.entries import names_of, scope_of
from flue_py.adapters.adk.service import FlueSessionService, copy_sessions, sent_to_adk

__all__ = ["FlueSessionService", "copy_sessions", "names_of", "scope_of", "sent_to_adk"]
