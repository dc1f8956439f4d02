"""How much of a session the modes of compaction keep. ``python -m benchmarks.compaction`` prints the tables."""

from __future__ import annotations
