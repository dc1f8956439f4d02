"""The list of docs/comparison.md and the table of the README, made of the programs that show them.

python -m benchmarks.peers.claims.page
"""

from __future__ import annotations

import ast
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "comparison.md"
README = ROOT / "README.md"
CHECKED = "2026-11-23"

TOPICS = {
    "fork": "a session forked in the middle",
    "rewind": "going back, and keeping what came after",
    "undo": "taking that back",
    "bills": "every paid call counted once",
    "conflicts": "a second writer is told",
    "deletion": "one session, exactly",
    "migration": "older files",
    "growth": "in proportion to what was said",
}
"""What is asked of each store; there is a program of each name for each."""


@dataclass(frozen=True)
class Claimed:
    """A store that is compared: its module here, what it is called, and its package (None: nobody's)."""

    module: str
    title: str
    package: str | None

    @property
    def version(self) -> str:
        """The version of the package that the programs run on, as the extra ``bench`` pins it."""
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        pinned = dict(each.split("==") for each in project["optional-dependencies"]["bench"])
        return pinned.get(self.package or "", "")

    @property
    def claims(self) -> dict[str, tuple[str, str]]:
        """The verdict and the claim of each topic, from the docstrings of the programs; nothing is imported."""
        tree = ast.parse((Path(__file__).parent / f"{self.module}.py").read_text(encoding="utf-8"))
        told = {
            node.name: ast.get_docstring(node) or "" for node in tree.body if isinstance(node, ast.AsyncFunctionDef)
        }
        split = {topic: told[topic].partition(". ") for topic in TOPICS}
        return {topic: (verdict, claim) for topic, (verdict, _, claim) in split.items()}


STORES = (
    Claimed("flue_store", "flue_py", None),
    Claimed("openai_sqlite", "`SQLiteSession`", "openai-agents"),
    Claimed("openai_advanced", "`AdvancedSQLiteSession`", "openai-agents"),
    Claimed("openai_sqlalchemy", "`SQLAlchemySession`", "openai-agents"),
    Claimed("langgraph", "`AsyncSqliteSaver`", "langgraph-checkpoint-sqlite"),
    Claimed("adk", "`DatabaseSessionService`", "google-adk"),
    Claimed("jsonl", "JSONL, fsync", None),
)


def table() -> str:
    """Return the verdicts, a row for each topic and a column for each store."""
    heads = [f"{store.title} {store.version}".strip() for store in STORES]
    lines = [f"| {CHECKED} | {' | '.join(heads)} |", f"| --- |{' --- |' * len(STORES)}"]
    for topic, asked in TOPICS.items():
        verdicts = [store.claims[topic][0].lower() for store in STORES]
        lines.append(f"| {topic}: {asked} | {' | '.join(verdicts)} |")
    return "\n".join(lines)


def limits() -> str:
    """Return the claims of all stores that are neither a plain yes nor a plain no, by topic."""
    return "\n".join(
        f"- **{topic}, {store.title}: {verdict.lower()}.** {claim}"
        for topic in TOPICS
        for store in STORES
        for verdict, claim in [store.claims[topic]]
        if verdict not in ("Yes", "No")
    )


def written(text: str, name: str, made: str) -> str:
    """Return a page with what was made between its marks. Raises `ValueError` where it has none."""
    begin, end = f"<!-- {name} begin -->", f"<!-- {name} end -->"
    if begin not in text or end not in text:
        raise ValueError(f"the page has no {begin} and {end}")
    before, after = text.partition(begin)[0], text.partition(end)[2]
    return f"{before}{begin}\n\n{made}\n\n{end}{after}"


def pages() -> dict[Path, str]:
    """Return the pages as they should be."""
    return {
        PAGE: written(PAGE.read_text(encoding="utf-8"), "claims", limits()),
        README: written(README.read_text(encoding="utf-8"), "verdicts", table()),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
