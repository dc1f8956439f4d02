"""What is imported with the rules: neither a database nor anything that does I/O."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

COLLECTING = """
import sys
import pytest

assert pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *sys.argv[1:]]) == 0
print(sorted({"aiosqlite", "alembic", "asyncpg", "flue_py.db", "sqlalchemy"}.intersection(sys.modules)))
"""


def test_tests_of_the_rules_need_no_database() -> None:
    folders = ["tests/core", "tests/compaction"]
    done = subprocess.run(
        [sys.executable, "-c", COLLECTING, *folders], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
