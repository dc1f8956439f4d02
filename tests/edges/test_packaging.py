"""The promises about the package: version, bounds, extras, README commands, and the shipped files."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import flue_py
from tests.values import existing

ROOT = Path(__file__).resolve().parent.parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXTRAS = PROJECT["optional-dependencies"]


def script(name: str) -> ModuleType:
    """Return a script of the folder .ci as a module."""
    spec = existing(importlib.util.spec_from_file_location(f"ci_{name}", ROOT / ".ci" / f"{name}.py"))
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FRAMEWORKS = {
    *("adk", "agents", "langgraph", "mcp", "models", "openai-agents", "opentelemetry", "pydantic-ai", "server", "tui")
}
"""Extras that have upper bounds too. Their lower ones stand in a file for each, since they do not agree on versions."""


def lower_bounds(requirements: list[str]) -> dict[str, str]:
    """Return name -> version of ``name>=version`` lines; anything but one lower bound is a failure."""
    bounds: dict[str, str] = {}
    for requirement in map(Requirement, requirements):
        if canonicalize_name(requirement.name) == canonicalize_name(PROJECT["name"]):
            continue  # an extra that includes another extra
        (specifier,) = requirement.specifier
        assert specifier.operator == ">=", f"{requirement} has no lower bound"
        bounds[canonicalize_name(requirement.name)] = specifier.version
    return bounds


def pins(path: Path) -> dict[str, str]:
    """Return name -> version of the ``name==version`` lines of a requirements file."""
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    found: dict[str, str] = {}
    for requirement in (Requirement(line) for line in lines if line):
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", f"{path.name}: {requirement} is not an exact version"
        found[canonicalize_name(requirement.name)] = specifier.version
    return found


def test_the_version_is_the_same_in_pyproject_in_the_metadata_and_in_the_package() -> None:
    assert importlib.metadata.version("flue-py") == PROJECT["version"]
    assert flue_py.__version__ == PROJECT["version"]


def test_the_changelog_begins_with_what_is_unreleased() -> None:
    changelog = (ROOT / "docs" / "changelog.md").read_text(encoding="utf-8")
    assert re.findall(r"^## \[(.+?)\]", changelog, re.MULTILINE)[0] == "UNRELEASED"
    assert "docs/changelog.md" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_lowest_versions_that_ci_runs_are_the_lower_bounds() -> None:
    extras = [requirement for extra in EXTRAS.keys() - {"bench", "dev"} - FRAMEWORKS for requirement in EXTRAS[extra]]
    bounds = lower_bounds([*PYPROJECT["build-system"]["requires"], *PROJECT["dependencies"], *extras])
    assert pins(ROOT / ".ci" / "lowest.txt") == bounds


@pytest.mark.parametrize("extra", sorted(FRAMEWORKS))
def test_a_framework_has_an_upper_bound_and_is_tested_with_the_lower_one(extra: str) -> None:
    pinned = pins(ROOT / ".ci" / "frameworks" / f"{'server' if extra == 'mcp' else extra}.txt")
    assert EXTRAS[extra]
    for requirement in map(Requirement, EXTRAS[extra]):
        bounds = {specifier.operator: specifier.version for specifier in requirement.specifier}
        assert bounds.keys() == {">=", "<"}
        assert pinned[canonicalize_name(requirement.name)] == bounds[">="]


def test_ci_tests_every_extra_that_has_a_file() -> None:
    run = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    tested = " ".join(re.findall(r"^apart .* with_extras (.+)$", run, re.MULTILINE)).split()
    assert sorted(tested) == sorted(path.stem for path in (ROOT / ".ci" / "frameworks").iterdir())


NEEDED_BY = {
    "agents": "openai-agents",
    "google": "google-adk",
    "langchain_core": "langgraph-checkpoint",
    "opentelemetry": "opentelemetry-sdk",
    "ormsgpack": "langgraph-checkpoint",
    "pydantic_ai": "pydantic-ai-slim",
    "pydantic_core": "pydantic",
    "yaml": "pyyaml",
}
"""Distributions by the first names of modules that they bring or need."""


# Where CI tests several extras in one environment, a room would not miss what only another one brings.
@pytest.mark.parametrize(
    ("place", "extras"),
    [
        ("agents", {"agents"}),
        ("server", {"server", "mcp"}),
        ("tui", {"tui"}),
        ("adapters/adk", {"adk"}),
        ("adapters/langgraph", {"langgraph"}),
        ("adapters/openai_agents", {"openai-agents"}),
        ("adapters/opentelemetry.py", {"opentelemetry"}),
        ("adapters/pydantic_ai", {"pydantic-ai"}),
        ("adapters/pydantic_ai_messages.py", {"pydantic-ai"}),
    ],
)
def test_a_room_imports_what_its_extra_brings(place: str, extras: set[str]) -> None:
    path = ROOT / "flue_py" / place
    modules = {
        name
        for file in ([path] if path.is_file() else path.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_bytes()))
        for name in imported_by(node)
        if name.partition(".")[0] not in {"flue_py", *sys.stdlib_module_names}
    }
    requirements = [*PROJECT["dependencies"], *(line for extra in extras for line in EXTRAS[extra])]
    # Whoever gives a harness the stores of `flue_py.agents` has it.
    beside = {"pydantic-ai-harness"} if place == "agents" else set()
    brought = {canonicalize_name(Requirement(line).name) for line in requirements} | beside
    assert modules
    assert sorted(name for name in modules if not is_brought_by(brought, name)) == []


def imported_by(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [existing(node.module)] if isinstance(node, ast.ImportFrom) else []


def is_brought_by(distributions: set[str], module: str) -> bool:
    """Return whether one of these distributions brings a module: by its name, or by what it is known to need."""
    first, _, rest = module.partition(".")
    names = {first, f"{first}-{rest.partition('.')[0]}", NEEDED_BY.get(first, first)}
    return not distributions.isdisjoint(map(canonicalize_name, names))


def test_the_extra_bench_pins_exactly_what_was_compared() -> None:
    assert [requirement for requirement in EXTRAS["bench"] if "==" not in requirement] == []


def test_the_bounds_of_the_extra_dev_are_the_tools_that_ci_runs() -> None:
    tools = pins(ROOT / ".ci" / "tools.txt")
    bounds = lower_bounds(EXTRAS["dev"])
    assert {name: tools.get(name) for name in bounds} == bounds


def test_the_tools_file_pins_every_direct_dependency() -> None:
    direct = lower_bounds([*PROJECT["dependencies"], *EXTRAS["postgres"], *EXTRAS["test"]])
    assert direct.keys() <= pins(ROOT / ".ci" / "tools.txt").keys()


@pytest.mark.parametrize("name", ["lowest.txt", "tools.txt"])
def test_a_pin_file_names_no_address(name: str) -> None:
    text = (ROOT / ".ci" / name).read_text(encoding="utf-8")
    assert "://" not in text
    assert "--index-url" not in text


def test_every_extra_named_in_the_documentation_exists() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    named = {
        extra.strip()
        for page in pages
        for group in re.findall(r"(?:flue[-_]py|['\"\s]\.)\[([\w,\s-]+)\]", page.read_text(encoding="utf-8"))
        for extra in group.split(",")
    }
    assert "test" in named
    assert named <= EXTRAS.keys()


def test_every_extra_is_named_in_the_readme() -> None:
    assert {extra for extra in EXTRAS if f"[{extra}]" not in README} == set()


def test_the_readme_begins_with_the_commands_that_install_and_test() -> None:
    install, test, *_ = script("readme_block").shell_blocks(README)
    assert [len(block.splitlines()) for block in (install, test)] == [1, 1]
    assert re.fullmatch(r"\S+ -m venv \.venv && \.venv/bin/pip install \. && \.venv/bin/flue-py demo\n", install)
    assert re.match(r"\S+ -m venv \.venv && \.venv/bin/pip install (-e )?\S*\[test\]\S* && ", test)
    assert re.search(r" && \.venv/bin/\S*python -m pytest -n (auto|2)\n$", test)
    assert "flue-py import auto --discover" in README.partition(install)[2].partition(test)[0]


def test_blocks_are_cut_out_of_markdown_verbatim() -> None:
    shell_blocks = script("readme_block").shell_blocks
    markdown = "a\n```sh\none 'x'\n\n  two\n```\n```python\nno = 1\n```\n```shell\nno\n```\n```sh\nthree\n```\n"
    assert shell_blocks(markdown) == ["one 'x'\n\n  two\n", "three\n"]


def test_a_missing_block_is_an_error_and_not_an_empty_script(capsys: pytest.CaptureFixture[str]) -> None:
    main = script("readme_block").main
    assert main(["99", str(ROOT / "README.md")]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert "no number 99" in output.err


def test_ci_runs_what_the_readme_says_and_nothing_after_it() -> None:
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").rstrip().splitlines()
    assert lines[-1] == "readme_block 2"
    assert "set -euo pipefail" in lines


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(flue_py.__file__).parent / "py.typed").is_file()


def test_the_command_names_a_function_that_exists() -> None:
    (command,) = (
        entry
        for entry in importlib.metadata.entry_points(group="console_scripts")
        if entry.dist is not None and canonicalize_name(entry.dist.name) == "flue-py"
    )
    assert command.name == "flue-py"
    assert callable(command.load())


@pytest.mark.slow
def test_a_wheel_holds_the_migrations_the_marker_and_the_ranks(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip"]
    if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("this environment has no pip")
    source = tmp_path / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*cache", ".git", ".venv", ".hypothesis"))
    built = subprocess.run(
        [*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path / "dist"), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = (tmp_path / "dist").iterdir()
    assert script("shipped").wheel_problems(wheel, source) == []
