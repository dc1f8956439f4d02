"""The stores that hostile things are brought to: those of the tests of sessions."""

from __future__ import annotations

from tests.sessions.conftest import target

__all__ = ["target"]
