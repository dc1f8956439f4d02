"""The demo: what the engine does with a real session of a coding agent. NOTICE says where the session is from."""

from __future__ import annotations
