"""What every runner on SQLite does in the same way."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager, suppress
from functools import cached_property, partial
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

    _closed: bool
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
        return words.WaitedWords(opened[0], self.waiting, turn, self._leave_words_open)

    @cached_property
    def _left_open(self) -> list[words.SqliteWords]:
        """The index as the last search has left it, if it has: opening its many tables takes longer than asking them.

        Threads take it out and put it back, which a list does at once.
        """
        return []

    def _opened_words(self, version: int) -> words.SqliteWords:
        with suppress(IndexError):
            left = self._left_open.pop()
            if left.is_current(self._place, version):
                return left
            left.close()
        return words.open_words(self._place, version)

    def _leave_words_open(self, index: words.SqliteWords) -> None:
        self._left_open.append(index)
        self.close_words(0 if self._closed else 1)

    def close_words(self, but: int = 0) -> None:
        """Let go of the index, as far as no search uses it; ``but`` so many connections."""
        with suppress(IndexError):
            while len(self._left_open) > but:
                self._left_open.pop().close()

    async def remove_words(self) -> None:
        self.close_words()
        await self.waiting.finish(self.waiting.call(partial(words.remove_words, self._place)))

    async def forget_words(self, session_ids: Collection[str]) -> None:
        # Without the module, which most programs never need.
        if words_file(self._place).exists():
            await self.waiting.call(partial(words.forget_sessions, self._place, session_ids))
