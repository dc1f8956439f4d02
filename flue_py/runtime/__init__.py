"""The runtime's side of sessions: names, roles and tasks."""

from __future__ import annotations
