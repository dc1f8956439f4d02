"""Run all benchmarks, each in a process of its own, and print one table.

`python benchmarks/run.py` takes some minutes; `--short` takes seconds and only proves that everything runs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.measuring import Line, Options, header, parser, table  # noqa: E402 - found by the lines above

NAMES = (
    "append",
    "many_sessions",
    "atomic",
    "load",
    "fork",
    "usage",
    "context",
    "counting",
    "prefixes",
    "compaction_speed",
    "context_pipeline",
    "size",
    "open",
    "large",
    "delete",
    "report",
    "importing",
    "listing",
    "search",
    "postgres",
    "server",
    "choices",
)


def main() -> None:
    """Run what was asked for, and print the table."""
    arguments = parser(__doc__)
    arguments.add_argument("--only", action="append", choices=NAMES, metavar="NAME", help=f"one of {', '.join(NAMES)}")
    given = arguments.parse_args()
    rounds = given.rounds or (1 if given.short else 5)
    options = Options(given.short, given.long, rounds, given.dir.resolve())
    print(header(options), flush=True)
    lines: list[Line] = []
    for name in given.only or NAMES:
        print(f"{name} ...", file=sys.stderr, flush=True)
        lines += run(name, options)
    print(table(lines, judged=not given.short))


def run(name: str, options: Options) -> list[Line]:
    """Run one benchmark in a process of its own and return its lines."""
    command = [sys.executable, "-m", f"benchmarks.{name}", "--json", "--dir", str(options.directory)]
    command += ["--rounds", str(options.rounds), *["--short"] * options.short, *["--long"] * options.long]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return [Line(**line) for line in json.loads(done.stdout)]


if __name__ == "__main__":
    main()
