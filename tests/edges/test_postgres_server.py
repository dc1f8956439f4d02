"""The PostgreSQL server for tests and measurements: found, started, stopped after a crash, without leftovers."""

from __future__ import annotations

import os
import select
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from flue_py.errors import FixTheSetup, InvalidArgument, StoreClosed, StoreUnavailable
from tests import postgres
from tests import postgres_server as module
from tests.postgres_server import PostgresServer, find_binaries
from tests.values import existing

ROOT = Path(__file__).resolve().parents[2]
GUARD_SECONDS = 60
"""Turns a test that hangs into one that fails; nothing is measured with it."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres.own_server() as server:
        yield server


def is_running(pid: int) -> bool:
    """Return whether a process runs. One that has ended and that nobody asked about yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


# -- finding the programs ---------------------------------------------------------------------------------------------


def programs(folder: Path, version: str, names: tuple[str, ...] = ("initdb", "postgres", "psql")) -> Path:
    """Make a folder with programs that know their version and nothing else."""
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) {version}'\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that takes the place of the distribution's, and an empty PATH."""
    monkeypatch.setattr(module, "_VERSIONED_FOLDERS", ((str(tmp_path / "versions"), "*/bin"),))
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    return tmp_path / "versions"


def test_without_programs_the_refusal_says_what_to_install(nothing_installed: Path) -> None:
    with pytest.raises(FixTheSetup, match=r"initdb, postgres, psql of PostgreSQL 15 or newer .* install"):
        find_binaries()
    with pytest.raises(FixTheSetup):
        PostgresServer()


def test_the_newest_version_is_taken_first(nothing_installed: Path) -> None:
    for version in ("9.6", "15", "101", "16"):
        programs(nothing_installed / version / "bin", f"{version}.1 (Some Distribution)")
    assert find_binaries() == nothing_installed / "101" / "bin"


def test_versions_before_15_and_folders_with_a_program_missing_are_passed_over(nothing_installed: Path) -> None:
    programs(nothing_installed / "14" / "bin", "14.9")
    programs(nothing_installed / "17" / "bin", "17.1", names=("postgres", "psql"))
    with pytest.raises(FixTheSetup):
        find_binaries()
    programs(nothing_installed / "15" / "bin", "15devel")
    assert find_binaries() == nothing_installed / "15" / "bin"


def test_programs_in_the_path_come_first_and_links_are_followed(
    nothing_installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(nothing_installed / "17" / "bin", "17.1")
    real = programs(tmp_path / "real", "16.2")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "postgres").symlink_to(real / "postgres")
    monkeypatch.setenv("PATH", f"{tmp_path / 'links'}:{os.defpath}")
    assert find_binaries() == real


def test_a_program_in_the_path_without_the_others_beside_it_is_passed_over(
    nothing_installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lone = programs(tmp_path / "lone", "16.2", names=("postgres",))
    complete = programs(nothing_installed / "15" / "bin", "15.8")
    monkeypatch.setenv("PATH", f"{lone}:{os.defpath}")
    assert find_binaries() == complete


@pytest.mark.parametrize("missing", ["driver", "programs", "wish"])
def test_tests_skip_with_a_reason_and_fail_where_postgresql_is_required(
    missing: str, nothing_installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing == "driver":
        monkeypatch.setitem(sys.modules, "asyncpg", None)
    monkeypatch.setenv(postgres.URL_VARIABLE, "none" if missing == "wish" else "")
    reason = {"driver": r"flue-py\[postgres\]", "programs": "install your distribution", "wish": "is none"}[missing]
    monkeypatch.delenv(postgres.REQUIRE_VARIABLE, raising=False)
    with pytest.raises(pytest.skip.Exception, match=reason):
        postgres.require_programs()
    monkeypatch.setenv(postgres.REQUIRE_VARIABLE, "1")
    with pytest.raises(pytest.fail.Exception, match=f"{reason}.*{postgres.REQUIRE_VARIABLE}"):
        postgres.require_programs()


# -- the server -------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_only_its_owner_reaches_the_server(server: PostgresServer) -> None:
    assert stat.S_IMODE(server.folder.stat().st_mode) == 0o700
    assert server.psql("SHOW listen_addresses") == ""
    assert server.psql("SHOW unix_socket_directories") == str(server.folder)
    assert server.folder.stat().st_uid != 0


def test_a_cluster_is_utf8_in_byte_order_and_commits_in_order(server: PostgresServer) -> None:
    assert server.psql("SHOW server_encoding") == "UTF8"
    assert server.psql("SELECT 'B' COLLATE \"default\" < 'a', length('é日🚨')") == "t|3"
    assert server.psql("SHOW synchronous_commit") == "on"
    assert server.psql("SHOW fsync") == "off"


def test_a_temporary_folder_with_a_path_too_long_for_a_socket_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path / ("long" * 30)))
    folder = module._private_folder(module._server_account())
    folder.rmdir()
    assert folder.parent == Path("/tmp")
    assert len(os.fsencode(folder / ".s.PGSQL.5432")) <= 103


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_what_was_committed_is_there_after_a_stop(server: PostgresServer, mode: module.StopMode) -> None:
    database = f"kept_{mode}"
    server.create_database(database)
    server.psql("CREATE TABLE kept AS SELECT generate_series(1, 1000) AS n", database)
    stopped = server.process_id
    server.stop(mode)
    assert (server.process_id, is_running(stopped or 0)) == (None, False)
    server.stop(mode)
    server.start()
    assert server.process_id not in (None, stopped)
    assert server.psql("SELECT count(*), sum(n) FROM kept", database) == "1000|500500"


def test_a_server_that_was_killed_starts_again(server: PostgresServer) -> None:
    server.psql("CREATE TABLE survivor AS SELECT 7 AS n")
    killed = existing(server.process_id)
    os.kill(killed, signal.SIGKILL)
    server.restart()
    assert server.psql("SELECT n FROM survivor") == "7"


def test_settings_hold_for_one_run_and_do_not_stop_databases_from_being_made(server: PostgresServer) -> None:
    server.restart({"max_connections": 7, "default_transaction_read_only": True, "fsync": True})
    assert [server.psql(f"SHOW {name}") for name in ("max_connections", "fsync")] == ["7", "on"]
    server.create_database("made_on_a_read_only_server")
    server.restart()
    assert [server.psql(f"SHOW {name}") for name in ("max_connections", "fsync")] == ["100", "off"]


async def test_a_read_only_server_is_read_only_for_a_driver(server: PostgresServer) -> None:
    server.restart({"default_transaction_read_only": True})
    async with postgres.connected(server.url()) as connection:
        assert await connection.fetchval("SHOW default_transaction_read_only") == "on"
    server.restart()


def test_a_setting_that_the_server_refuses_is_told_and_the_next_start_works(server: PostgresServer) -> None:
    with pytest.raises(StoreUnavailable, match=r'did not start: .*"max_connections": "many"'):
        server.restart({"max_connections": "many"})
    assert server.process_id is None
    server.start()
    assert server.psql("SELECT 1") == "1"


def test_a_setting_that_is_the_servers_own_is_refused_and_nothing_stops(server: PostgresServer) -> None:
    running = server.process_id
    with pytest.raises(InvalidArgument, match="listen_addresses"):
        server.restart({"listen_addresses": "*"})
    assert server.process_id == running is not None


def test_databases_are_made_copied_and_dropped_under_any_name(server: PostgresServer) -> None:
    name = 'a "b" / c?é'
    server.create_database(name)
    server.psql("CREATE TABLE t AS SELECT 3 AS n", name)
    assert make_url(server.create_database("copied", template=name)).database == "copied"
    assert server.psql("SELECT n FROM t", "copied") == "3"
    with pytest.raises(StoreUnavailable, match="already exists"):
        server.create_database("copied")
    server.drop_database(name)
    with pytest.raises(StoreUnavailable, match="does not exist"):
        server.drop_database(name)


@pytest.mark.thorough
def test_a_closed_server_leaves_no_process_and_no_folder() -> None:
    with postgres.own_server() as server:
        own = "SELECT pid FROM pg_stat_activity WHERE backend_type IN ('checkpointer', 'background writer')"
        pids = [int(pid) for pid in server.psql(own).split()] + [server.process_id or 0, server._guard.pid]
        assert [is_running(pid) for pid in pids] == [True] * 4
        server.close()
        assert not any(is_running(pid) for pid in pids)
        assert not server.folder.exists()
        with pytest.raises(StoreClosed):
            server.start()


def test_a_cluster_that_cannot_be_made_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = programs(tmp_path / "bin", "15.1")
    (fake / "initdb").write_text("#!/bin/sh\necho no space left >&2\nexit 1\n")
    monkeypatch.setattr(module, "find_binaries", lambda: fake)
    monkeypatch.setattr(module, "_server_account", module._Account)
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: "/tmp")
    monkeypatch.setattr(module.tempfile, "mkdtemp", lambda **_: str(tmp_path / "server"))
    (tmp_path / "server").mkdir()
    with pytest.raises(StoreUnavailable, match="initdb failed: no space left"):
        PostgresServer()
    assert not (tmp_path / "server").exists()


MAKE = """
from tests.postgres_server import PostgresServer
server = PostgresServer()
print(server.folder, server.process_id, server._guard.pid, flush=True)
"""

FORK = """
import os, sys
child = os.fork()
if child == 0:
    sys.exit()
os.waitpid(child, 0)
server.psql("SELECT 1")
"""


@pytest.mark.thorough
def test_a_server_ends_with_the_process_that_forgot_it() -> None:
    postgres.require_programs()
    done = subprocess.run([sys.executable, "-c", MAKE], cwd=ROOT, capture_output=True, text=True, check=True)
    folder, *pids = done.stdout.split()
    assert (Path(folder).exists(), [is_running(int(pid)) for pid in pids], done.stderr) == (False, [False, False], "")


@pytest.mark.thorough
def test_the_end_of_a_forked_child_leaves_the_server_alone() -> None:
    postgres.require_programs()
    command = [sys.executable, "-W", "ignore", "-c", MAKE + FORK]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.thorough(but=["9"])
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="there is no way to wait for a process that is not a child")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_ends_with_the_process_that_was_killed(number: signal.Signals) -> None:
    postgres.require_programs()
    code = MAKE + "import signal\nsignal.pause()"
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdout is not None
        folder, pid, guard = maker.stdout.readline().split()
        assert is_running(int(pid))
        ends = [os.pidfd_open(int(each)) for each in (guard, pid)]
        maker.send_signal(number)
    try:
        # Whoever takes the server over may look after it later than the guard ends.
        assert [select.select([end], [], [], GUARD_SECONDS)[0] for end in ends] == [[end] for end in ends]
    finally:
        for end in ends:
            os.close(end)
    assert not Path(folder).exists()


# -- empty databases --------------------------------------------------------------------------------------------------

NAMESPACES = "SELECT nspname, nspacl::text, nspowner::regrole::text FROM pg_namespace ORDER BY nspname"


@pytest.fixture
def databases(server: PostgresServer) -> Iterator[postgres.Databases]:
    databases = postgres.Databases(server.url())
    yield databases
    databases.close()


async def test_a_database_that_is_used_again_is_empty_again(databases: postgres.Databases) -> None:
    first = databases.take()
    async with postgres.connected(first) as connection:
        fresh = await connection.fetch(NAMESPACES)
        await connection.execute(f'ALTER DATABASE "{make_url(first).database}" SET statement_timeout = 1')
        await connection.execute("CREATE TABLE t (n int); CREATE SCHEMA more; CREATE TABLE more.t (n int)")
        await connection.execute("BEGIN; LOCK TABLE t")
        databases.give_back(first)
        assert databases.take() == first
        assert databases.take() != first
    async with postgres.connected(first) as connection:
        assert await connection.fetch(NAMESPACES) == fresh
        assert await connection.fetchval("SELECT to_regclass('t')") is None
        assert await connection.fetchval("SHOW statement_timeout") == "0"
        others = f"application_name <> '{postgres.KEPT}' AND pid <> pg_backend_pid()"
        counted = f"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND {others}"
        assert await connection.fetchval(counted) == 0


def test_databases_are_dropped_at_the_end(server: PostgresServer) -> None:
    databases = postgres.Databases(server.url())
    names = {make_url(databases.take()).database for _ in range(2)}
    listed = "SELECT datname FROM pg_database WHERE datname LIKE 'flue_py_test_%'"
    assert names <= set(server.psql(listed).split())
    databases.close()
    assert not names & set(server.psql(listed).split())


def test_each_call_gives_another_database(new_database: postgres.NewDatabase) -> None:
    assert len({new_database() for _ in range(3)}) == 3
