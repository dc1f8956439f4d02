"""A process that has one store loaded, and measures the rows it is asked for: ``python -m benchmarks.peers.child``.

It reads one line of JSON per group of rows from standard input, and answers with one. What the store's own package
prints goes to standard error.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import IO

from benchmarks.peers import work
from benchmarks.peers.rows import GROUPS
from benchmarks.peers.stores import BY_NAME

LOG = logging.getLogger(__name__)
GROUPS_BY_NAME = {group.name: group for group in GROUPS}


async def answer_all(store: str, folder: Path, budget: float, answers: IO[str], *, short: bool) -> None:
    """Answer until there is no further line. Where a group fails, what failed is the answer."""
    module = importlib.import_module(f"benchmarks.peers.{BY_NAME[store].module}")
    bench = work.Bench(store, module.open_peer, folder, short, budget)
    await bench.history(2)
    print(json.dumps({"durability": work.durability(folder / "2")}), file=answers, flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        group = GROUPS_BY_NAME[line.strip()]
        measure = getattr(work, group.work)
        try:
            rows = {name: asdict(measured) for name, measured in (await measure(bench, group)).items()}
            print(json.dumps({"rows": rows}), file=answers, flush=True)
        except Exception as error:
            LOG.exception("%s, %s", store, group.name)
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=answers, flush=True)


def main() -> None:
    """Answer on what was standard output; let everything else that is printed go to standard error."""
    store, folder, budget, form = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    asyncio.run(answer_all(store, Path(folder), float(budget), answers, short=form == "short"))


if __name__ == "__main__":
    main()
