"""What every runner on SQLite does in the same way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from flue_py.core.salvaging import BackupReport
from flue_py.core.sessions import Problem
from flue_py.lazy import lazy_module
from flue_py.store import ops
from flue_py.store.seam import Runner

if TYPE_CHECKING:
    from flue_py.store.sqlite import backup as backups
else:
    # Most programs make no backup.
    backups = lazy_module("flue_py.store.sqlite.backup")


class RunnerOnSqlite(Runner):
    """A runner whose database SQLite can check."""

    async def storage_problems(self) -> list[Problem]:
        return await self.read(lambda tx: ops.verify.storage_problems(tx, self.location))


class RunnerOnFile(RunnerOnSqlite):
    """A runner whose database is a file, which can be copied."""

    _path: Path

    async def backup(
        self, target: Path, *, overwrite: bool, verified: bool, progress: Callable[[int, int], None] | None
    ) -> BackupReport:
        return await backups.back_up_while_waiting(
            self.waiting, self._path, target, overwrite=overwrite, verified=verified, progress=progress
        )
