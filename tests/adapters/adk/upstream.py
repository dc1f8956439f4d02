"""Run the framework's own tests of session services against ours, and say how many pass.

    python tests/adapters/adk/upstream.py [--tests CHECKOUT] [FILE...]

The distributions of ADK have no tests: ``CHECKOUT`` is one of google/adk-python, best at the pinned version. Without it
they are skipped, and nothing is kept. It needs pytest-asyncio and pytest-mock. `upstream_plugin` puts our class in the
place of theirs. In a checkout of another version some tests fail with their own services, too: named is what passes
with theirs and fails with ours.
The tests in `IN_MEMORY` count on events that are shared with the service; `SqliteSessionService` fails them as well.
Those in `INSIDE` look inside ADK's own services: their tables, engines, commits and forms of a path.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FILES = (
    "tests/unittests/sessions/test_session_service.py", "tests/unittests/sessions/test_get_user_state.py",
    "tests/unittests/sessions/test_session_filter_events.py", "tests/unittests/sessions/test_rewind_utils.py",
    "tests/unittests/agents", "tests/unittests/flows", "tests/unittests/runners", "tests/unittests/test_runners.py",
)  # fmt: skip
IN_MEMORY = ("test_functions_long_running.test_async_function", "same_ref_as_storage_session")
INSIDE = (
    "rollback_on_commit_failure", "state_row_missing", "storage_revision_before_commit", "prepare_tables",
    "get_or_create_state", "recovers_after_multiple_failures", "test_database_session_service_",
    "test_sqlite_session_service_accepts_sqlite_urls", "test_sqlite_session_service_preserves_uri_query_parameters",
)  # fmt: skip


def passed(checkout: Path, files: list[str], plugins: list[str], report: Path) -> tuple[set[str], int]:
    """Return the tests that passed, and how many there were."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", *plugins]
    command += ["--continue-on-collection-errors", f"--junit-xml={report}", *files]
    paths = os.pathsep.join((str(ROOT), str(HERE)))
    subprocess.run(
        command, cwd=checkout, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.DEVNULL, check=False
    )
    cases = list(ElementTree.parse(report).iter("testcase"))
    names = {f"{case.get('classname')}.{case.get('name')}" for case in cases if not len(case)}
    return names, len(cases)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", type=Path)
    parser.add_argument("files", nargs="*")
    given = parser.parse_args()
    if given.tests is None:
        print("skipped: the distributions of ADK have no tests; name a checkout of google/adk-python with --tests")
        return 0
    checkout: Path = given.tests.resolve()
    files = given.files or [file for file in FILES if (checkout / file).exists()]
    with tempfile.TemporaryDirectory() as folder:
        theirs, count = passed(checkout, files, [], Path(folder) / "theirs.xml")
        ours, _ = passed(checkout, files, ["-p", "upstream_plugin"], Path(folder) / "ours.xml")
    lost = {name for name in theirs - ours if not any(known in name for known in (*IN_MEMORY, *INSIDE))}
    for name in sorted(lost):
        print(f"passes with theirs only: {name}")
    print(f"of {count} tests {len(theirs)} pass with theirs, {len(ours)} with ours, {len(theirs & ours)} with both")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
