"""The cost of the engine, measured beside the plain `sqlite3` module. `python benchmarks/run.py` runs everything."""

from __future__ import annotations
