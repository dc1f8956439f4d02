"""What a `CompactionGuard` is made of: what it answers, remembers and finds out, and its claim on a session."""

from __future__ import annotations
