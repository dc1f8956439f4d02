"""A version of this package to come, whose format has a migration more: the product has none yet, the tests bring it.

In the same process `later_version` puts it into effect for a block; a process of its own begins with `AS_LATER`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flue_py.db import backend
from flue_py.db import schema as ddl
from flue_py.db.postgres import runner as postgres_format
from flue_py.db.salvage import pages as shapes
from flue_py.db.salvage import rebuild as salvaging
from flue_py.db.sqlite import runner as read_only

LATER_FORMAT = ddl.FORMAT_VERSION + 1

TODAY = ddl.HEAD
"""The revision of today's version."""

REVISION = f"{int(TODAY) + 1:04}"

MIGRATION = f'''
"""Colours of sessions.

Revision: {REVISION}
Follows: {TODAY}
"""

from __future__ import annotations

import os
import signal

import sqlalchemy as sa
from alembic import op

revision = "{REVISION}"
down_revision = "{TODAY}"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("colour", sa.Text().with_variant(sa.Text(collation="C"), "postgresql")))
    op.execute("UPDATE sessions SET colour = 'blue' WHERE title IS NOT NULL")
    if os.environ.get("FLUE_TESTS_KILL"):
        os.kill(os.getpid(), signal.SIGKILL)
    op.create_index("ix_sessions_colour", "sessions", ["colour"])


def downgrade() -> None:
    raise NotImplementedError("restore the backup")
'''

_MAKE: dict[ddl.Dialect, tuple[str, ...]] = {
    "sqlite": ("ALTER TABLE sessions ADD COLUMN colour TEXT", "CREATE INDEX ix_sessions_colour ON sessions (colour)"),
    "postgresql": (
        'ALTER TABLE sessions ADD COLUMN colour TEXT COLLATE "C"',
        "CREATE INDEX ix_sessions_colour ON sessions (colour)",
    ),
}

AS_LATER = "from pathlib import Path\nfrom tests.migrations import later\nlater.install(Path({!r}))\n"
"""How a program begins that is to be of the later version. It runs in the checkout."""


def install(folder: Path, replace: Callable[[object, str, object], None] = setattr) -> None:
    """Make this process one of the later version, whose files are made in ``folder``."""
    if not folder.exists():
        _make_files(folder)
    replace(ddl, "migrations_directory", lambda: folder)
    replace(ddl, "printed_path", lambda dialect: folder / f"{dialect}.sql")
    replace(ddl, "REVISIONS", {**ddl.REVISIONS, LATER_FORMAT: REVISION})
    replace(ddl, "HEAD", REVISION)
    for module in (ddl, backend, read_only, postgres_format, salvaging):
        replace(module, "FORMAT_VERSION", LATER_FORMAT)
    replace(shapes, "_ADDED", {**shapes._ADDED, "sessions": {**shapes._ADDED["sessions"], "colour": None}})
    _forget()


def _forget() -> None:
    """Let the schema be read anew."""
    ddl._printed_schema.cache_clear()
    shapes.shapes.cache_clear()


def _make_files(folder: Path) -> None:
    shutil.copytree(ddl.migrations_directory(), folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / f"{REVISION}_colours.py").write_text(MIGRATION)
    for dialect, statements in _MAKE.items():
        printed = ddl.printed_path(dialect).read_text(encoding="utf-8").replace(f"'{ddl.HEAD}'", f"'{REVISION}'")
        added = "".join(f"{statement}{ddl.STATEMENT_END}" for statement in statements)
        (folder / f"{dialect}.sql").write_text(printed + added, encoding="utf-8")


@contextmanager
def later_version(folder: Path) -> Iterator[None]:
    """Let the block run as the later version does."""
    with pytest.MonkeyPatch.context() as patch:
        install(folder, patch.setattr)
        yield
    _forget()
