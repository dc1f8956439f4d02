"""The documentation: its programs run, its outputs are real, its links work, and the names on it exist."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote

import pytest

import flue_py
from flue_py import errors
from flue_py.db import tables as schema
from flue_py.db.ops import verify as verifying
from tests.conformance.test_fixtures import COUNTS, OWN_ANSWERS
from tests.docs import pages, reference

ALL = pages.all_pages()

_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


@cache
def text_of(page: str) -> str:
    """Return a page as it is written, or, if it follows from the code, as it is built now."""
    build = reference.PAGES.get(page)
    return (pages.ROOT / page).read_text(encoding="utf-8") if build is None else build()


def lines_of(page: str) -> list[str]:
    """Return the lines of a page, those of its blocks as empty ones."""
    lines = text_of(page).split("\n")
    for block in pages.blocks_of(page, "\n".join(lines)):
        lines[block.first : block.last] = [""] * len(block.lines)
    return lines


@cache
def prose_of(page: str) -> str:
    """Return a page without its blocks and its code in backticks."""
    return re.sub(r"`[^`\n]+`", "", "\n".join(lines_of(page)))


@cache
def anchors_of(page: str) -> set[str]:
    """Return the anchors that a page's headings get on GitHub."""
    return {pages.anchor_of(line) for line in lines_of(page) if line.startswith("#")}


# -- programs and outputs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", sorted({*ALL, *pages.RUNS_WITH}))
def test_a_page_shows_what_its_programs_print(place: str, tmp_path: Path) -> None:
    """A section that needs a module alone is a case of its own: where the module is missing, the page still passes."""
    page, module = place.partition("#")[0], pages.RUNS_WITH.get(place)
    if module is not None and not pages.is_installed(module):
        pytest.skip(f"programs of {place} did not run: they need {module}")
    assert pages.run_page(page, tmp_path.resolve()) == text_of(page)


def test_what_programs_and_the_reference_name_is_there_after_importing_the_package_alone() -> None:
    """Other tests run in processes that have imported much, which hides a module that nothing imports."""
    programs = [block for page in ALL for block in pages.blocks_of(page, text_of(page)) if block.language == "python"]
    used = {
        ast.unparse(node)
        for block in programs
        for node in ast.walk(ast.parse(block.text))
        if isinstance(node, ast.Attribute)
    }
    texts = [*used, *re.findall(r"`(flue_py\.[\w.]+)`", reference.api_page())]
    names = {found[0] for text in texts if (found := re.match(r"flue_py(?:\.\w+){2,}$", text))}
    assert {"flue_py.core.context", "flue_py.transfer.import_file", "flue_py.prices.PriceBook"} <= names
    done = subprocess.run([sys.executable, "-c", _LOOK_UP, *sorted(names)], capture_output=True, text=True, check=True)
    assert done.stdout == ""


_LOOK_UP = """
import os, sys
from itertools import groupby
import flue_py
for _, names in groupby(sys.argv[1:], key=lambda name: name.rpartition(".")[0]):
    if os.fork() == 0:
        for name in names:
            try:
                eval(name)
            except AttributeError as error:
                print(name, "-", error, flush=True)
            except ImportError as error:
                if not error.name or error.name.startswith("flue_py"):
                    print(name, "-", error, flush=True)
        os._exit(0)
    os.wait()
"""


def test_every_block_that_is_excused_from_running_is_there() -> None:
    blocks = [block for page in ALL for block in pages.blocks_of(page, text_of(page))]
    found = {(block.page, text) for block in blocks for text in (block.text, *block.lines[:1])}
    assert set(pages.NOT_RUN) <= found
    assert all(reason.strip() for reason in pages.NOT_RUN.values())
    assert set(pages.RUNS_WITH) <= {place for block in blocks for place in block.places}


def test_a_named_page_that_lacks_a_module_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pages, "RUNS_WITH", {"docs/formats/llm.md": "missing_module"})
    for options in ([], ["--write"]):
        assert pages.main([*options, "docs/formats/llm.md"]) == 1
        assert capsys.readouterr().out == "docs/formats/llm.md: programs did not run: they need missing_module\n"
        assert pages.main([*options, "docs/formats/aider.md"]) == 0


def test_whatever_is_made_shorter_is_there() -> None:
    for page, changes in pages.SHORTER.items():
        blocks = pages.blocks_of(page, text_of(page))
        run = "\n".join(block.text for block in blocks if block.language == "sh")
        assert [long for long in changes if long not in run] == []


def test_the_readme_begins_with_what_ci_runs() -> None:
    blocks = [block.text for block in pages.blocks_of("README.md", text_of("README.md")) if block.language == "sh"]
    assert [("README.md", block) in pages.NOT_RUN for block in blocks[:2]] == [True, True]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```\nls\n```\n", "no language"),
        ("```yaml\na: 1\n```\n", "yaml"),
        ("a drawing:\n\n```text\no--o\n```\n", "text"),
        ("```python\nprint(1)\n```\n", "does not show what"),
        ("```python\nprint(1)\n```\n\nand so\n\n```text\n1\n```\n", "does not show what"),
        ("```python\nraise ValueError('no')\n```\n", "ValueError: no"),
        ("```console\n$ rm -r docs\n```\n", "'rm' is not a command"),
        ("```console\nflue-py sessions\n```\n", "begins with a command"),
        ("```sh\nflue-py --db missing.db sessions\n```\n", "ended with 1"),
        ("```sql\nSELECT 1\n```\n", "unable to open"),
        ("```python\nprint(1)\n", "not closed"),
    ],
)
def test_a_block_that_breaks_the_rules_is_refused(
    text: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "page.md").write_text(text)
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    with pytest.raises(pages.PageError, match=re.escape(problem)):
        pages.run_page("page.md", tmp_path.resolve())


def test_an_output_that_is_not_what_was_printed_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "```python\nprint(1)\n```\n\n```text\n2\n```\n"
    (tmp_path / "page.md").write_text(text)
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    assert pages.run_page("page.md", tmp_path.resolve()) == text.replace("2", "1")


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="there is no sqlite3 shell here")
@pytest.mark.parametrize("page", sorted(pages.RUNS_AFTER))
def test_the_shell_prints_what_the_page_shows(page: str, tmp_path: Path) -> None:
    pages.run_page(pages.RUNS_AFTER[page], tmp_path.resolve())
    lines = text_of(page).split("\n")
    blocks = pages.blocks_of(page, text_of(page))
    queries = [block for block in blocks if block.language == "sql"]
    outputs = [pages.output_of(block, blocks, lines) for block in queries]
    done = subprocess.run(
        ["sqlite3", "-readonly", "-header", "-column", str(tmp_path / pages.DATABASE)],
        input=";\n".join(block.text for block in queries) + ";\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    shown = [line for output in outputs if output is not None for line in output.lines]
    assert [line.rstrip() for line in done.stdout.split("\n") if line.strip()] == shown


def test_the_conformance_page_shows_the_sums_that_its_tests_hold() -> None:
    skipped = sum(len(answers) for answers in OWN_ANSWERS.values())
    passed = sum(COUNTS.values()) - skipped
    assert f"\n{passed} passed, 0 failed, {skipped} skipped\n" in text_of("docs/conformance.md")


INSTEAD_OF = {
    "copy a store": "moving house|move house",
    "the current session": "in hand|at hand",
    "resume, open": "take up|taken up",
    "pass, give, return": "hand over|handed over|hand in|handed in|hand out|handed out",
    "many": "by the lot",
    "if it is not a ...": "what is no|for what is not",
    "unknown": "nobody knows",
    "returns, reports, is called with": "told of",
}
"""Plain words, and the phrases that they stand for."""


def test_pages_say_it_plainly() -> None:
    unplain = re.compile(rf"\b(?:{'|'.join(INSTEAD_OF.values())})\b", re.IGNORECASE)
    found = {page: unplain.findall(" ".join(prose_of(page).split())) for page in ALL}
    assert {page: phrases for page, phrases in found.items() if phrases} == {}


# -- links ------------------------------------------------------------------------------------------------------------


def test_links_lead_to_a_page_and_a_heading() -> None:
    links = [(page, link) for page in (*ALL, *reference.PAGES) for link in _LINK.findall(prose_of(page))]
    assert len(links) > 500
    assert [f"{page}: {link}" for page, link in links if not leads_somewhere(page, link)] == []


def leads_somewhere(page: str, link: str) -> bool:
    """Return whether a link of a page leads elsewhere, or to a file and a heading of it."""
    if link.startswith(("https://", "http://", "mailto:")):
        return True
    name, anchor = target_of(page, link)
    # Only built pages may link to built pages: the others are read where nothing was built.
    is_there = page in reference.PAGES if name in reference.PAGES else (pages.ROOT / name).is_file()
    return is_there and (not anchor or anchor in anchors_of(name))


def target_of(page: str, link: str) -> tuple[str, str]:
    """Return the file that a link of a page leads to, from the root of the repository, and the anchor in it."""
    path, _, anchor = unquote(link).partition("#")
    target = (pages.ROOT / page).parent.joinpath(path).resolve() if path else pages.ROOT / page
    return target.relative_to(pages.ROOT).as_posix(), anchor


def test_a_link_that_leads_nowhere_is_seen() -> None:
    links = ["missing.md", "tutorial.md#missing", "#missing", "built/api.md"]
    assert [link for link in links if leads_somewhere("docs/index.md", link)] == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, waiting = {"README.md"}, ["README.md"]
    while waiting:
        page = waiting.pop()
        for link in _LINK.findall(prose_of(page)):
            name, _ = target_of(page, link)
            if name in ALL and name not in reached:
                reached.add(name)
                waiting.append(name)
    assert set(ALL) - reached == set()


# -- the reference ----------------------------------------------------------------------------------------------------


def test_the_reference_has_every_public_name() -> None:
    grouped = {name for names in reference.GROUPS.values() for name in names}
    in_the_tree = {error.__name__ for branch in reference.branches() for error in reference.errors_of(branch)}
    in_the_tree |= {branch.__name__ for branch in reference.branches()} | {"FlueError", "ModelError"}
    assert grouped == set(flue_py.__all__) - in_the_tree
    assert in_the_tree == {name for name in errors.__all__ if issubclass(getattr(errors, name), errors.FlueError)}
    for room, names in reference.ROOMS.items():
        elsewhere = {"ExportNote"} if room == "flue_py.providers" else set()
        assert set(names) == set(getattr(import_module(room), "__all__", names)) - elsewhere


def test_the_blocking_twin_has_what_the_original_has() -> None:
    for twin, original in ((flue_py.sync.Store, flue_py.Store), (flue_py.sync.Session, flue_py.Session)):
        assert set(reference.methods_of(original)) - set(dir(twin)) == set()


# -- the format -------------------------------------------------------------------------------------------------------


def format_sections() -> dict[str, str]:
    parts = re.split(r"^### `(\w+)`$", text_of("docs/format.md"), flags=re.MULTILINE)
    return {name: text.split("\n## ")[0] for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def test_the_format_describes_every_table() -> None:
    assert set(format_sections()) == set(schema.metadata.tables)


def test_the_format_describes_every_column() -> None:
    rows = [
        (table, line) for table, text in format_sections().items() for line in text.split("\n") if line[:3] == "| `"
    ]
    described = [f"{table}.{name}" for table, row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    columns = [f"{table}.{column.name}" for table, each in schema.metadata.tables.items() for column in each.columns]
    assert sorted(described) == sorted(columns), "docs/format.md has a table of the columns of each"


def test_the_format_has_a_rule_for_whatever_verify_reports() -> None:
    rules = text_of("docs/format.md").split("\n## Rules\n")[1].split("\n## ")[0]
    named = {re.sub(r"\s+", " ", name) for name in re.findall(r"\*([a-z\s]+)\*", rules)}
    source = Path(verifying.__file__).read_text(encoding="utf-8")
    reported = set(re.findall(r'report\(\s*f?"([^"{]+)"', source))
    assert reported <= named
    elsewhere = {"damaged database", "dangling reference", "missing leaf", "missing fork point", "unreadable rows"}
    assert named - reported == elsewhere


# -- decisions --------------------------------------------------------------------------------------------------------


def test_a_decision_has_the_fixed_shape() -> None:
    decisions = text_of("docs/decisions.md").split("\n## ")[1:]
    assert len(decisions) > 5
    assert [decision[:4] for decision in decisions] == [f"{number:04}" for number in range(1, len(decisions) + 1)]
    assert [decision[:40] for decision in decisions if re.findall("\n### (.*)", decision) != ["Why", "Rejected"]] == []


# -- the page on reliability ------------------------------------------------------------------------------------------


TEXT = (pages.ROOT / "docs/reliability.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
UNTESTED = "What is not tested here"
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)))


@cache
def names_in(file: str) -> frozenset[str]:
    """Return the names of the tests of a file."""
    text = (pages.ROOT / file).read_text(encoding="utf-8")
    return frozenset(re.findall(r"^ *(?:async )?def (test_\w+)", text, re.MULTILINE))


def test_every_section_ends_with_its_tests() -> None:
    named = {
        section: text.rpartition("\nTests:\n\n")[2].strip().splitlines()
        for section, text in SECTIONS.items()
        if section != UNTESTED
    }
    assert [section for section, lines in named.items() if not lines] == []
    lines = [line for lines in named.values() for line in lines]
    assert [line for line in lines if not re.fullmatch(r"- `tests/[\w/]+\.py::test_\w+`", line)] == []


def test_every_test_that_is_named_is_there() -> None:
    assert [f"{file}::{name}" for file, name in NAMED if name not in names_in(file)] == []


def test_every_section_begins_with_its_promise() -> None:
    begins = {section: text.lstrip().startswith("**") for section, text in SECTIONS.items() if section != UNTESTED}
    assert len(begins) > 10
    assert [section for section, has_one in begins.items() if not has_one] == []
