"""Run the reference's fixtures against flue_py.

    python tests/conformance/run.py [--backend memory|sqlite|aiosqlite|postgres] [--url URL] FILE...

A FILE is a fixture file as it is, or compressed (``.gz``). Each mismatch is printed with its case and op, and the
last line is ``N passed, M failed, K skipped``; the exit code is 1 where anything failed. PostgreSQL without a URL is a
server of its own, with a new database for each file; it needs the server's programs.

A case has passed where every comparison holds as the fixture says. A case is skipped only for a tag, and only
where flue_py's answer differs there; that answer is asserted instead, and is in docs/conformance.md. History,
deletion and lifecycle go through the public surface (`flue_py.open`), stored data through
`flue_py.formats.flue`.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.conformance.calls import run_call
from tests.conformance.comparing import Case, Engine, Json, Mismatch, play, running
from tests.conformance.history import History
from tests.conformance.lifecycle import Lifecycle, run_deletion
from tests.postgres_server import PostgresServer

FORMAT = "flue_py-conformance/1"


@dataclass
class Outcome:
    """What became of the cases of one file: names that passed, and why the others did not."""

    suite: str
    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def read_fixture(path: Path) -> dict[str, Json]:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    fixture: dict[str, Json] = json.loads(raw)
    if fixture["format"] != FORMAT:
        raise SystemExit(f"{path}: format {fixture['format']!r} is not {FORMAT!r}")
    assert fixture["count"] == len(fixture["cases"])
    return fixture


async def run_case(engine: Engine, suite: str, case: Case) -> set[str]:
    """Run one case; return the tags at which flue_py's own answer took the fixture's place. Raises `Mismatch`."""
    if suite.startswith("history"):
        return await play(case, History(engine, case))
    if suite == "lifecycle":
        return await play(case, Lifecycle(engine, case))
    if suite == "delete_tree":
        await run_deletion(engine, case)
    else:
        run_call(case)
    return set()


async def run_cases(suite: str, cases: list[Case], backend: str = "memory", url: str | None = None) -> Outcome:
    """Run cases against one store, verify the store at the end, and return what became of them."""
    outcome = Outcome(suite)
    async with running(backend, url) as engine:
        for case in cases:
            name = case["name"]
            try:
                own_answers = await run_case(engine, suite, case)
            except Mismatch as error:
                outcome.failed[name] = str(error)
            else:
                if own_answers:
                    outcome.skipped[name] = ", ".join(sorted(own_answers))
                else:
                    outcome.passed.append(name)
    return outcome


async def run_file(path: Path, backend: str = "memory", url: str | None = None) -> Outcome:
    """Run every case of a file; see `run_cases`."""
    fixture = read_fixture(path)
    return await run_cases(fixture["suite"], fixture["cases"], backend, url)


@contextmanager
def new_urls(backend: str, url: str | None) -> Iterator[Callable[[], str | None]]:
    """Give a function that returns the URL for the next file, or None where the backend makes a file of its own."""
    if backend != "postgres" or url is not None:
        yield lambda: url
        return
    with PostgresServer() as server:
        numbers = count(1)
        yield lambda: server.create_database(f"conformance_{next(numbers)}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--backend", default="memory", choices=("memory", "sqlite", "aiosqlite", "postgres"))
    parser.add_argument("--url", help="a SQLAlchemy URL to use in place of the backend's own")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    total: Counter[str] = Counter(passed=0, failed=0, skipped=0)
    with new_urls(options.backend, options.url) as next_url:
        for path in options.files:
            outcome = asyncio.run(run_file(path, options.backend, next_url()))
            for name, tags in outcome.skipped.items():
                print(f"skipped {outcome.suite}/{name}: our own answer was given to {tags}")
            for name, text in outcome.failed.items():
                print(f"FAILED {outcome.suite}/{name}: {text}")
            total += Counter(passed=len(outcome.passed), failed=len(outcome.failed), skipped=len(outcome.skipped))
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
