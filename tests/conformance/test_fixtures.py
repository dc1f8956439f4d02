"""The reference's fixtures hold, on every backend, and the runner would notice if they did not."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.calls import CALLS, PRODUCT, run_call
from tests.conformance.comparing import Json, Mismatch, difference
from tests.conformance.run import FORMAT, Outcome, read_fixture, run_cases, run_file
from tests.postgres import require_programs
from tests.tables import inputs

DATA = Path(__file__).resolve().parents[1] / "data" / "conformance"
FILES = sorted(DATA.glob("*.json.gz"))
SUITES = {path.name.removesuffix(".json.gz"): path for path in FILES}

# Where flue_py answers a tagged state in its own way; docs/conformance.md says how.
OWN_ANSWERS = {
    "history_hand": {
        "load-out-of-order-entries": "out_of_order_entries",
        "move-leaf-to-unknown-id": "dangling_leaf",
        "remove-leaf-after-move-leaf-keeps-the-tail-orphaned": "orphans",
        "remove-leaf-equal-copy-is-not-the-leaf": "identity",
    },
    "history_random": {"random-short-1090": "orphans"},
}
COUNTS = {
    "compaction_prepare": 137, "delete_tree": 58, "history_hand": 43, "history_long": 6, "history_random": 186,
    "lifecycle": 28, "serialize": 38, "tokens": 159,
}  # fmt: skip
PURE = {"compaction_prepare", "serialize", "tokens"}
LENGTHY = ("history_random", "history_long")
SHORT = [suite for suite in COUNTS if suite not in PURE and suite not in LENGTHY]
RUNS = [
    *((suite, "memory") for suite in COUNTS if suite not in LENGTHY),
    *((suite, "sqlite") for suite in SHORT),
    *(pytest.param(suite, "sqlite", marks=pytest.mark.thorough) for suite in LENGTHY),
    *(pytest.param(suite, "aiosqlite", marks=pytest.mark.thorough) for suite in ("history_hand", "lifecycle")),
    # The same deletions as on a file, slower.
    pytest.param("delete_tree", "aiosqlite", marks=pytest.mark.slow),
    *(pytest.param(suite, "postgres", marks=pytest.mark.thorough) for suite in SHORT),
    # Half a minute of round trips each.
    *(pytest.param(suite, "postgres", marks=pytest.mark.slow) for suite in LENGTHY),
]


def test_all_655_cases_are_here() -> None:
    assert {suite: read_fixture(path)["count"] for suite, path in SUITES.items()} == COUNTS
    assert sum(COUNTS.values()) == 655


@pytest.mark.parametrize(("suite", "backend"), RUNS)
async def test_every_case_passes_or_gets_the_documented_own_answer(
    suite: str, backend: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("new_database")() if backend == "postgres" else None
    check_outcome(await run_file(SUITES[suite], backend, url), read_fixture(SUITES[suite])["cases"])


def test_flue_py_answers_as_the_reference_but_for_its_departures() -> None:
    differing = {
        suite: [case["name"] for case in read_fixture(SUITES[suite])["cases"] if differs(case)] for suite in PURE
    }
    assert {suite: len(names) for suite, names in differing.items()} == {
        "compaction_prepare": 48,
        "serialize": 0,
        "tokens": 3,
    }


def differs(case: Json) -> bool:
    try:
        run_call(case, PRODUCT)
    except Mismatch:
        return True
    return False


@pytest.mark.thorough(but=["memory"])
@pytest.mark.parametrize("backend", ["memory", "postgres"])
@pytest.mark.parametrize(("suite", "share"), [("history_random", 5), ("history_long", 3)])
async def test_many_cases_pass(suite: str, share: int, backend: str, request: pytest.FixtureRequest) -> None:
    """All of them are played on a file, with --thorough."""
    cases = read_fixture(SUITES[suite])["cases"][::share]
    url = request.getfixturevalue("new_database")() if backend == "postgres" else None
    check_outcome(await run_cases(suite, cases, backend, url), cases)


def check_outcome(outcome: Outcome, cases: list[Json]) -> None:
    """All cases passed, but those that have a documented answer of our own."""
    names = {case["name"] for case in cases}
    assert len(names) == len(cases) > 0
    own_answers = {name: tag for name, tag in OWN_ANSWERS.get(outcome.suite, {}).items() if name in names}
    assert outcome.failed == {}
    assert outcome.skipped == own_answers
    assert {*outcome.passed} == names - own_answers.keys()


def test_own_answers_are_given_to_tagged_cases_only() -> None:
    for suite, skipped in OWN_ANSWERS.items():
        tags = {case["name"]: case.get("tags", []) for case in read_fixture(SUITES[suite])["cases"]}
        assert all(tag in tags[name] for name, tag in skipped.items())


def changed(value: Json) -> Json:
    """Return the value with one thing in it different."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, list):
        return [*value[:-1], changed(value[-1])] if value else ["e0"]
    if isinstance(value, dict):
        name = max(value, default="more")
        return {**value, name: changed(value.get(name))}
    return "e0" if value is None else value + "x"


ANSWERS = {"expect", "result", "error_kind", "reason", "entry", "calls", "context_len"}


def answered_ops(suites: list[str]) -> dict[tuple[str, str, str], tuple[Json, int]]:
    """Return, for each kind of op and each field that holds an answer, the first case with one, and its place."""
    found: dict[tuple[str, str, str], tuple[Json, int]] = {}
    for suite in suites:
        for case in read_fixture(SUITES[suite])["cases"]:
            if case.get("tags"):
                continue
            for number, op in enumerate(case.get("ops", ())):
                for name in ANSWERS & op.keys():
                    if (op["op"], name) == ("remove_leaf_message", "entry"):
                        continue  # that is an argument
                    found.setdefault((suite, op["op"], name), (case, number))
    return found


OPS = answered_ops(["history_hand", "lifecycle"])


@inputs("kind", sorted(OPS), ids="/".join)
async def test_a_changed_answer_of_any_op_is_a_failure(kind: tuple[str, str, str]) -> None:
    suite, op, field = kind
    original, number = OPS[kind]
    case = copy.deepcopy(original)
    case["ops"][number][field] = changed(case["ops"][number][field])
    assert difference(original, case) is not None
    outcome = await run_cases(suite, [case])
    assert outcome.failed[case["name"]].startswith(f"op {number} ({op}): ")


async def test_an_error_that_does_not_come_is_a_failure() -> None:
    case = {
        "name": "no-error",
        "instance": "i",
        "harness": "h",
        "ops": [{"op": "open", "mode": "create", "error": 'Session "default" already exists in harness "h".'}],
    }
    outcome = await run_cases("lifecycle", [case])
    assert "expected" in outcome.failed["no-error"]


async def test_an_op_that_is_not_known_is_a_failure() -> None:
    outcome = await run_cases("history_hand", [{"name": "odd", "ops": [{"op": "levitate"}]}])
    assert outcome.failed["odd"].startswith("op 0 (levitate): raised AttributeError")


async def test_a_changed_answer_of_any_call_is_a_failure() -> None:
    cases = [case for path in FILES for case in read_fixture(path)["cases"] if "ops" not in case and "root" not in case]
    for function in sorted(CALLS):
        case = next(case for case in cases if case.get("fn", "prepare_compaction") == function and case["expect"])
        tampered = {**case, "expect": changed(case["expect"])}
        assert (await run_cases("calls", [case])).passed == [case["name"]], function
        assert list((await run_cases("calls", [tampered])).failed) == [case["name"]], function


@inputs("field", ["remaining", "delete_calls"])
async def test_a_changed_deletion_is_a_failure(field: str) -> None:
    case = copy.deepcopy(read_fixture(SUITES["delete_tree"])["cases"][2])
    del case["expect"][field][0]
    assert list((await run_cases("delete_tree", [case])).failed) == [case["name"]]


def run_script(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    script = Path(__file__).with_name("run.py")
    return subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=False)


def test_the_script_counts_over_all_files_and_exits_with_0() -> None:
    done = run_script(SUITES["lifecycle"], SUITES["history_hand"])
    assert done.stdout.splitlines()[-1] == "67 passed, 0 failed, 4 skipped"
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.thorough
def test_the_script_starts_a_server_where_it_is_given_no_url() -> None:
    require_programs()
    # The same file twice: a database that has its sessions already would not do.
    done = run_script("--backend", "postgres", SUITES["lifecycle"], SUITES["lifecycle"])
    assert done.stdout.splitlines() == ["56 passed, 0 failed, 0 skipped"]
    assert (done.returncode, done.stderr) == (0, "")


def test_the_script_names_case_and_op_of_a_mismatch_and_exits_with_1(tmp_path: Path) -> None:
    case = {"name": "wrong", "ops": [{"op": "leaf", "expect": None}, {"op": "leaf", "expect": "e7"}]}
    path = tmp_path / "history_x.json"
    path.write_text(json.dumps({"format": FORMAT, "suite": "history_x", "count": 1, "cases": [case]}))
    done = run_script("--backend", "sqlite", path)
    assert done.stdout.splitlines() == [
        "FAILED history_x/wrong: op 1 (leaf): .: expected 'e7', got None",
        "0 passed, 1 failed, 0 skipped",
    ]
    assert done.returncode == 1
