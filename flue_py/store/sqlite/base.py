"""What every runner on SQLite does in the same way."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from flue_py.core.salvaging import BackupReport
from flue_py.core.sessions import Problem
from flue_py.lazy import lazy_module
from flue_py.store import ops
from flue_py.store.seam import Runner
from flue_py.store.sqlite.file import words_file

if TYPE_CHECKING:
    from flue_py.store.sqlite import backup as backups
    from flue_py.store.sqlite import words
    from flue_py.store.words import WordIndex
else:
    # Most programs make no backup, and search nothing.
    backups = lazy_module("flue_py.store.sqlite.backup")
    words = lazy_module("flue_py.store.sqlite.words")


class RunnerOnSqlite(Runner):
    """A runner whose database SQLite can check."""

    async def storage_problems(self) -> list[Problem]:
        return await self.read(lambda tx: ops.verify.storage_problems(tx, self.location))


class RunnerOnFile(RunnerOnSqlite):
    """A runner whose database is a file, which can be copied."""

    _path: Path
    _place: Path
    """The same from the root: the working directory may be another one later."""

    _writes_beside = True
    """Whether the store is open for writing, so that its index may be written, too."""

    async def backup(
        self, target: Path, *, overwrite: bool, verified: bool, progress: Callable[[int, int], None] | None
    ) -> BackupReport:
        return await backups.back_up_while_waiting(
            self.waiting, self._path, target, overwrite=overwrite, verified=verified, progress=progress
        )

    @property
    def words_name(self) -> str:
        return str(words_file(self._place))

    async def words_location(self) -> str | None:
        path = words_file(self._place)
        return str(path) if path.exists() else None

    async def open_words(self, version: int, turn: AbstractAsyncContextManager[object]) -> WordIndex | None:
        if not self._writes_beside:
            return None
        opened: list[words.SqliteWords] = []
        try:
            async with turn:
                await self.waiting.finish(self.waiting.call(lambda: opened.append(self._opened_words(version))))
        except BaseException:
            # Who is cancelled meanwhile closes it: nobody else can.
            for index in opened:
                index.close()
            raise
        return words.WaitedWords(opened[0], self.waiting, turn)

    def _opened_words(self, version: int) -> words.SqliteWords:
        return words.open_words(self._place, version)

    async def remove_words(self) -> None:
        await self.waiting.finish(self.waiting.call(partial(words.remove_words, self._place)))

    async def forget_words(self, session_ids: Collection[str]) -> None:
        # Without the module, which most programs never need.
        if words_file(self._place).exists():
            await self.waiting.call(partial(words.forget_sessions, self._place, session_ids))
