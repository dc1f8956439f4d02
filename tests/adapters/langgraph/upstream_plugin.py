"""A plugin of pytest for the framework's own tests: its SQLite savers are ours, before they are imported."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from flue_py.adapters.langgraph import FlueSaver

if TYPE_CHECKING:
    savers: Any
else:
    from tests import conftest_checkpointer as savers


@asynccontextmanager
async def _asynchronous() -> AsyncIterator[FlueSaver]:
    async with FlueSaver.from_conn_string(":memory:") as saver:
        yield saver


@contextmanager
def _blocking() -> Iterator[FlueSaver]:
    with FlueSaver.from_conn_string(":memory:") as saver:
        yield saver


@contextmanager
def _encrypting() -> Iterator[FlueSaver]:
    from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

    with FlueSaver.from_conn_string(":memory:") as saver:
        saver.serde = EncryptedSerializer.from_pycryptodome_aes(key=b"1234567890123456")
        yield saver


savers._checkpointer_sqlite_aio = _asynchronous
savers._checkpointer_sqlite = _blocking
savers._checkpointer_sqlite_aes = _encrypting
