"""Run the framework's own tests of sessions against `FlueSession`, and say how many pass.

    python tests/adapters/openai_agents/upstream.py [--tests DIRECTORY]

The tests come with the source distribution of the pinned version, which pip downloads; ``--tests`` names one that is
unpacked already. Nothing of it is kept. Where pip cannot have it, they are skipped. `upstream_plugin` puts our class in
the place of `agents.SQLiteSession`. The tests named in `PRIVATE` reach into its connections and tables, which ours does
not have.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PINNED = "openai-agents==0.24.0"

GROUPS = {
    "session": ["tests/memory/test_session.py"],
    "limit": ["tests/memory/test_session_limit.py"],
    "encryption": ["tests/extensions/memory/test_encrypt_session.py"],
    "persistence, compaction, wrapper": [
        "tests/memory/test_compaction_model_visibility.py", "tests/memory/test_compaction_suffix.py",
        "tests/memory/test_openai_responses_compaction_session.py", "tests/memory/test_session_context_wrapper.py",
        "tests/memory/test_session_persistence_sanitize.py", "tests/deferred_session_writes",
    ],
    "runner": [
        "tests/test_agent_runner.py", "tests/test_agent_runner_streamed.py", "tests/test_hitl_session_scenario.py",
        "tests/test_max_turns.py", "tests/test_native_tool_failure_history.py",
        "tests/test_programmatic_tool_calling.py", "tests/test_run_impl_resume_paths.py", "tests/test_soft_cancel.py",
        "tests/test_tool_batch_failure_history.py", "tests/test_tool_failure_boundaries.py",
    ],
}  # fmt: skip

PRIVATE = frozenset(
    {
        # Connections, locks and tables of SQLiteSession, and SQL beside it.
        "test_sqlite_session_close_closes_worker_thread_connections",
        "test_sqlite_session_close_retries_quarantined_connection",
        "test_sqlite_session_closes_retired_connections_before_the_next_allocation",
        "test_sqlite_session_failed_add_items_releases_write_lock",
        "test_sqlite_session_failed_clear_session_rolls_back",
        "test_sqlite_session_failed_pop_item_releases_write_lock",
        "test_sqlite_session_file_lock_is_shared_across_instances",
        "test_sqlite_session_get_items_limit_skips_corrupt_newest_rows",
        "test_sqlite_session_get_items_session_settings_limit_skips_corrupt_rows",
        "test_sqlite_session_keeps_connections_of_live_worker_threads",
        "test_sqlite_session_pop_item_returns_none_after_dropping_only_corrupt_rows",
        "test_sqlite_session_pop_item_skips_corrupt_most_recent",
        "test_sqlite_session_post_commit_cancellation_propagates_after_known_outcome",
        "test_sqlite_session_reaps_connections_from_exited_worker_threads",
        "test_sqlite_session_rollback_failure_evicts_connection",
        "test_cancelled_suffix_transaction_settles_before_newer_append",
        "test_failed_encrypted_suffix_transaction_preserves_original_tokens",
        "test_handoff_resume_after_cancelled_compaction_commits",
        "test_settled_clear_failure_invalidates_response_chain",
        "test_settled_pop_failure_invalidates_response_chain",
        "test_suffix_transaction_rolls_back_failed_insert",
        # EncryptedSession checks what it pops inside the transaction of a SQLiteSession, and of no other.
        "test_encrypted_pop_authentication_is_atomic_with_concurrent_mutations",
        "test_encrypted_pop_cancellation_waits_for_authentication_rollback",
        "test_encrypted_pop_rechecks_authentication_after_expired_tail",
        "test_encrypted_pop_wrong_key_preserves_recoverable_history",
        "test_encrypted_pop_wrong_key_preserves_row_identity",
    }
)


def downloaded(folder: Path) -> Path:
    """Return the unpacked source distribution. Raises `CalledProcessError` where pip cannot have it."""
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", str(folder)]
    subprocess.run([*pip, PINNED], check=True)
    [archive] = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return next(path for path in folder.iterdir() if path.is_dir())


def installed(folder: Path) -> Path:
    """Return a folder with what the tests need, apart from this environment."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), "-r", str(HERE / "upstream.txt")]
    subprocess.run(pip, check=True)
    return folder


def outcomes(tests: Path, beside: Path, report: Path) -> dict[str, Counter[str]]:
    """Run the tests, and return how many of each group passed, failed, or failed as `PRIVATE` says."""
    paths = os.pathsep.join(map(str, (ROOT, HERE, beside)))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "upstream_plugin", "-n", "0"]
    files = [file for group in GROUPS.values() for file in group]
    command += ["-o", "junit_family=xunit1", f"--junit-xml={report}", *files]
    subprocess.run(command, cwd=tests, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.DEVNULL, check=False)
    counts = {group: Counter[str]() for group in GROUPS}
    for case in ElementTree.parse(report).iter("testcase"):
        file, name = str(case.get("file")), str(case.get("name")).partition("[")[0]
        [group] = [group for group, within in GROUPS.items() if file.startswith(tuple(within))]
        kinds = {child.tag for child in case}
        what = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        if what == "failed":
            what = "private" if name in PRIVATE else "failed"
            print(
                "" if what == "private" else f"FAILED {file}::{case.get('name')}", end="\n" if what == "failed" else ""
            )
        counts[group][what] += 1
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", type=Path)
    given: Path | None = parser.parse_args().tests
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        (at / "tests").mkdir()
        try:
            tests = given.resolve() if given is not None else downloaded(at / "tests")
            beside = installed(at / "beside")
        except subprocess.CalledProcessError as error:
            print(f"skipped: pip cannot have the tests of {PINNED}, or what they need ({error})")
            return 0
        counts = outcomes(tests, beside, at / "report.xml")
    for group, found in counts.items():
        rest = ", ".join(f"{number} {what}" for what, number in sorted(found.items()) if what != "passed")
        print(f"{group}: {found['passed']} of {found.total()} passed{rest and f' ({rest})'}")
    return 1 if any(found["failed"] or not found["passed"] for found in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
