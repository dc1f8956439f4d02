"""A disk that fails to sync or to read: the system calls really fail, in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import flue_py.sync
from tests.store.sqlite_batches import GUARD_SECONDS

FAILING_SYNC = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* While the file that FAILING names is there, no log of SQLite's can be synced. */
static int fails(int fd) {
    char link[64], path[4096];
    const char *flag = getenv("FAILING");
    if (!flag || access(flag, F_OK)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 4) return 0;
    path[length] = 0;
    return !strcmp(path + length - 4, "-wal");
}

static int cannot_be_read(int fd) {
    char link[64], path[4096];
    const char *name = getenv("UNREADABLE");
    if (!name) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return !strcmp(path, name);
}

ssize_t pread(int fd, void *buffer, size_t count, off_t offset) {
    if (cannot_be_read(fd) && offset + count > 8192) { errno = EIO; return -1; }
    return syscall(SYS_pread64, fd, buffer, count, offset);
}

ssize_t pread64(int fd, void *buffer, size_t count, off_t offset) {
    return pread(fd, buffer, count, offset);
}

int fsync(int fd) {
    if (fails(fd)) { errno = EIO; return -1; }
    return syscall(SYS_fsync, fd);
}

int fdatasync(int fd) {
    if (fails(fd)) { errno = EIO; return -1; }
    return syscall(SYS_fdatasync, fd);
}
"""

WRITE = """
import asyncio, os, signal, sys
import flue_py

target, flag, ending = sys.argv[1:]

async def main():
    async with flue_py.open(target, prices=False) as store:
        session = await store.open_session("k", mode="create")
        await session.append_message({"role": "user", "content": "before"})
        open(flag, "w").close()
        try:
            await session.append_message({"role": "user", "content": "perhaps"}, idempotency_key="perhaps")
        except flue_py.FlueError as error:
            print(type(error).__name__, "disk" in str(error), "idempotency_key" in str(error), flush=True)
        os.unlink(flag)
        if ending == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        await session.refresh()
        await session.append_message({"role": "user", "content": "perhaps"}, idempotency_key="perhaps")
        print(*[message["content"] for message in await session.build_context()])
        print((await store.verify()).problems)

asyncio.run(main())
"""

RETRY = """
import sys
import flue_py.sync

with flue_py.sync.open(sys.argv[1], prices=False) as store:
    session = store.open_session("k")
    session.append_message({"role": "user", "content": "perhaps"}, idempotency_key="perhaps")
    print(*[message["content"] for message in session.build_context()])
    print(store.verify().problems)
"""


@pytest.fixture(scope="module")
def failing_sync(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library to load before all others."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("a compiler is needed, and a loader that knows LD_PRELOAD")
    folder = tmp_path_factory.mktemp("sync")
    source, library = folder / "failing_sync.c", folder / "failing_sync.so"
    source.write_text(FAILING_SYNC)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return library


def run(
    script: str, *args: object, library: Path | None = None, flag: Path | None = None, unreadable: Path | None = None
) -> tuple[list[str], int]:
    """Run a program; return its lines and its exit code."""
    extra = {} if library is None else {"LD_PRELOAD": str(library), "FAILING": str(flag), "UNREADABLE": str(unreadable)}
    ended = subprocess.run(
        [sys.executable, "-c", script, *map(str, args)],
        check=False,
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
        env={**os.environ, **extra},
    )
    assert ended.stderr == ""
    return ended.stdout.splitlines(), ended.returncode


@pytest.mark.thorough(but=["path"])
@pytest.mark.parametrize("url", ["{}", "sqlite+aiosqlite:///{}"], ids=["path", "engine"])
def test_an_append_whose_sync_fails_has_an_unknown_outcome_and_a_retry_with_its_key_is_done_once(
    tmp_path: Path, failing_sync: Path, url: str
) -> None:
    path, flag = tmp_path / "s.db", tmp_path / "failing"
    lines, code = run(WRITE, url.format(path), flag, "on", library=failing_sync, flag=flag)
    assert (lines, code) == (["OutcomeUnknown True True", "before perhaps", "[]"], 0)


@pytest.mark.thorough(but=["path"])
@pytest.mark.parametrize("url", ["{}", "sqlite+aiosqlite:///{}"], ids=["path", "engine"])
def test_after_a_crash_an_append_whose_sync_failed_may_be_there_and_is_not_made_twice(
    tmp_path: Path, failing_sync: Path, url: str
) -> None:
    path, flag = tmp_path / "s.db", tmp_path / "failing"
    lines, code = run(WRITE, url.format(path), flag, "killed", library=failing_sync, flag=flag)
    assert (lines, code) == (["OutcomeUnknown True True"], -9)
    assert run(RETRY, path) == (["before perhaps", "[]"], 0)


READ = """
import sys
import flue_py.sync

try:
    with flue_py.sync.open(sys.argv[1], prices=False) as store:
        print(len(store.open_session("k").get_active_path()))
except flue_py.FlueError as error:
    said = str(error)
    print(type(error).__name__, "Input/output error" in said, "look at the disk" in said, "backup" in said)
"""


@pytest.mark.thorough(but=["path"])
@pytest.mark.parametrize("url", ["{}", "sqlite+aiosqlite:///{}"], ids=["path", "engine"])
def test_a_disk_that_cannot_read_is_named_and_not_taken_for_damage(
    tmp_path: Path, failing_sync: Path, url: str
) -> None:
    path = tmp_path / "s.db"
    with flue_py.sync.open(path, prices=False) as store:
        store.create_session(key="k").append_message({"role": "user", "content": "x"})
    lines, code = run(READ, url.format(path), library=failing_sync, unreadable=path)
    assert (lines, code) == (["StoreUnavailable True True False"], 0)
    assert run(READ, url.format(path)) == (["1"], 0)
