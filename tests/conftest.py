"""What every test run shares: its options, hypothesis profiles, and the check that nothing is left running."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import re
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import WorkStealingScheduling

for package in ("contract", "model", "machine"):
    pytest.register_assert_rewrite(f"tests.{package}")

pytest_plugins = ("tests.browser", "tests.postgres")

# Days are those of the machine where a command does not name a zone: the same for everybody here.
os.environ["TZ"] = "UTC"
time.tzset()

GRACE_SECONDS = 5.0
"""How long a thread that is already ending may take at the end of the run."""
MEMORY_BYTES = 4 * 2**30
"""How much must be free in a file system in memory for temporary files to be there."""

# A slow machine is not a bug: no deadline per example, and no complaint about slow generation.
_ALWAYS = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
# The same examples every time, so that a red run is the change's doing. Failed examples are not kept for later runs:
# what a test draws must not depend on what ran before.
settings.register_profile("quick", _ALWAYS, max_examples=15, stateful_step_count=30, derandomize=True, database=None)
settings.register_profile("thorough", _ALWAYS, max_examples=50, derandomize=True, database=None)
settings.register_profile("seeded", _ALWAYS, max_examples=50, derandomize=False, database=None)
settings.register_profile("long", _ALWAYS, max_examples=2000, stateful_step_count=100, derandomize=False, database=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--thorough",
        action="store_true",
        help="also run the tests and variants marked thorough, and three times the examples of every property",
    )
    parser.addoption(
        "--run-slow",
        action="store_true",
        help="beyond --thorough, run the tests marked slow, and many more examples, from a seed that is printed",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the examples: the same ones each time, those of ``--hypothesis-seed``, or with --run-slow random ones.

    The seed is drawn here, before Hypothesis reads it and workers are started, so that all of them have the same.
    """
    slow = config.getoption("--run-slow")
    if slow and config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = str(secrets.randbelow(2**32))
    if not config.getoption("--hypothesis-profile"):
        seeded = config.getoption("--hypothesis-seed") is not None
        thorough = config.getoption("--thorough")
        settings.load_profile("long" if slow else "seeded" if seeded else "thorough" if thorough else "quick")
    if "TMPDIR" not in os.environ and not config.getoption("basetemp"):
        _keep_files_in_memory(config)


def _keep_files_in_memory(config: pytest.Config) -> None:
    """Have the temporary files of the run, thousands of stores among them, where nothing waits for a disk, and remove
    them at its end. With ``TMPDIR`` or ``--basetemp`` they are where these say, and stay.
    """
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK) or shutil.disk_usage(memory).free < MEMORY_BYTES:
        return
    folder = tempfile.mkdtemp(prefix="flue-py-", dir=memory)
    os.chmod(folder, 0o1777)  # some tests make a folder for all in it, which another user works in
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    os.environ["TMPDIR"] = tempfile.tempdir = folder


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Keep bytecode with what pytest keeps, where the shell says to write none beside the modules: tests start hundreds
    of processes, which would all compile everything anew, and the next run would do so, too.
    """
    if sys.dont_write_bytecode:
        _keep_bytecode(session.config)


def _keep_bytecode(config: pytest.Config) -> None:
    folder = _kept_folder(config)
    if folder is None:
        folder = tempfile.mkdtemp(prefix="flue-py-bytecode-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    sys.dont_write_bytecode, sys.pycache_prefix = False, folder
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = folder


def _kept_folder(config: pytest.Config) -> str | None:
    """Return a folder that stays until pytest's cache is cleared, or None where that is switched off or read-only."""
    if not config.pluginmanager.has_plugin("cacheprovider"):
        return None
    try:
        return str(config.cache.mkdir("bytecode"))
    except OSError:
        return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Have each worker begin with other modules of tests. They all need all of them, and whatever one has compiled
    already, assertions and all, the others read: of a fresh checkout each would compile everything itself.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    root, folders = session.config.rootpath, [Path(argument).absolute() for argument in session.config.args]
    modules = sorted({path for folder in folders if folder.is_dir() for path in folder.rglob("test_*.py")})
    for path in modules[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        if path.is_relative_to(root):
            # Whatever cannot be imported, or is to be skipped, is collected, too, and reported there.
            with suppress(Exception, pytest.skip.Exception):
                importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return how many workers ``-n auto`` starts: two a core, since they wait for other processes half of the time."""
    return 2 * (os.cpu_count() or 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> WorkStealingScheduling | None:
    """Have a worker that has nothing left take tests from the others, unless ``--dist`` says something else."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say the seed, so that a run can be repeated."""
    seed = config.getoption("--hypothesis-seed")
    return [] if seed is None else [f"examples drawn from --hypothesis-seed={seed}"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which errors of ours the inputs became that the fuzzers had refused."""
    counts: dict[str, Counter[str]] = {}
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, count in report.user_properties if report.when == "call" else ():
            if name.startswith("refused: "):
                of_file = counts.setdefault(report.nodeid.partition("::")[0], Counter())
                of_file[name.removeprefix("refused: ")] += count
    if counts:
        terminalreporter.section("what refused inputs became")
    for file, errors in counts.items():
        terminalreporter.line(f"{file}: {', '.join(f'{name} {count}' for name, count in errors.most_common())}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow = config.getoption("--run-slow")
    thorough = slow or config.getoption("--thorough")
    if not any("[" in argument for argument in config.args):
        check_variants_kept(items)
    for item in items:
        if not slow and item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: needs --run-slow"))
        elif not thorough and _is_left_to_thorough(item):
            item.add_marker(pytest.mark.skip(reason="thorough: needs --thorough"))


def check_variants_kept(items: Iterable[pytest.Item]) -> None:
    """Refuse a test that is thorough but for variants that it does not have, as rows of `tests.tables.inputs` are none:
    it would be skipped whole.
    """
    kept: dict[str, bool] = {}
    for item in items:
        marker = item.get_closest_marker("thorough")
        if marker is not None and "but" in marker.kwargs:
            test = item.nodeid.partition("[")[0]
            kept[test] = kept.get(test, False) or not _is_left_to_thorough(item)
    if whole := [test for test, is_kept in kept.items() if not is_kept]:
        raise pytest.UsageError(f"thorough(but=...) names no variant of {', '.join(whole)}; rows of a table are none")


def _is_left_to_thorough(item: pytest.Item) -> bool:
    """Return whether an item is marked thorough, and not one of the variants that always run."""
    marker = item.get_closest_marker("thorough")
    if marker is None:
        return False
    variant = item.callspec.id if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ""
    return not any(re.search(rf"(^|-){re.escape(name)}", variant) for name in marker.kwargs.get("but", ()))


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class, name: str, obj: object) -> None:
    """Have every coroutine function that is a test run on an event loop, without a mark of its own."""
    test = getattr(getattr(obj, "hypothesis", obj), "inner_test", obj)
    if iscoroutinefunction(test) and collector.istestfunction(obj, name):
        pytest.mark.anyio(obj)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run coroutines on asyncio only."""
    return "asyncio"


def _lasting_threads() -> set[threading.Thread]:
    """Return the threads that would keep this process from ending, the main one left out."""
    return {thread for thread in threading.enumerate() if not thread.daemon} - {threading.main_thread()}


def _children() -> dict[int, str]:
    """Return pid and command of each running child of this process.

    Where there is no /proc it sees only what `multiprocessing` started. The resource tracker of
    `multiprocessing` is left out: it ends with this process, by design. So is what has ended already.
    """
    proc = Path("/proc")
    if not (proc / "self" / "stat").exists():
        return {child.pid: child.name for child in multiprocessing.active_children() if child.pid is not None}
    children = {}
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            # "pid (name) state parent ...": the name may hold blanks and brackets, so cut behind the last one.
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue  # it ended while we looked
        if int(parent) == os.getpid() and state not in "ZX" and "multiprocessing.resource_tracker" not in command:
            children[int(folder.name)] = command
    return children


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    """Fail the last test of a run that leaves a non-daemon thread or a child process behind."""
    threads_before, children_before = _lasting_threads(), _children()
    yield
    for thread in _lasting_threads() - threads_before:
        thread.join(GRACE_SECONDS)
    threads = [thread.name for thread in _lasting_threads() - threads_before]
    children = {pid: command for pid, command in _children().items() if pid not in children_before}
    if threads or children:
        pytest.fail(f"the tests left behind threads {threads} and child processes {children}", pytrace=False)
