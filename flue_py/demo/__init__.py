"""The demo: a tour through a real session of a coding agent. NOTICE says where the session is from."""

from __future__ import annotations
