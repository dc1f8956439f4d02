"""Show the claims of a store: every program of its module, each in an empty folder.

python -m benchmarks.peers.claims.run openai_sqlite
"""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.peers.claims.page import TOPICS


def run(name: str) -> None:
    """Run the programs of a module; what one asserts and does not find is raised."""
    module = import_module(f"benchmarks.peers.claims.{name}")
    for topic in TOPICS:
        with TemporaryDirectory() as folder:
            asyncio.run(getattr(module, topic)(Path(folder)))
        print(f"{name} {topic}: shown")


if __name__ == "__main__":
    for each in sys.argv[1:]:
        run(each)
