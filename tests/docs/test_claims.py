"""What docs/comparison.md claims is what its programs say, and where their stores are installed, what they show."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

from benchmarks.peers.claims.page import README, STORES, TOPICS, Claimed, pages
from benchmarks.peers.stores import BY_NAME

ROOT = Path(__file__).resolve().parents[2]
OTHERS = [store for store in STORES if store.package is not None]


def test_the_pages_have_what_the_programs_say() -> None:
    assert {path: path.read_text(encoding="utf-8") for path in pages()} == pages()


def test_every_store_of_the_peers_table_is_compared_in_every_topic() -> None:
    assert {store.title.strip("`") for store in STORES} == {
        store.title for store in BY_NAME.values() if store.name not in ("flue_sync", "langgraph_dicts")
    }
    for store in STORES:
        assert {verdict for verdict, _ in store.claims.values()} <= {"Yes", "No", "In part", "By hand"}
        assert all(claim.endswith(".") for _, claim in store.claims.values())


def test_the_short_form_is_below_what_a_reader_runs_first() -> None:
    text = README.read_text(encoding="utf-8")
    places = [at for at in range(len(text)) if text.startswith("```sh\n", at)]
    assert text.index("<!-- verdicts begin -->") > places[1]


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("module", ["flue_store", "jsonl"])
def test_a_claim_is_shown(module: str, topic: str, tmp_path: Path) -> None:
    asyncio.run(getattr(import_module(f"benchmarks.peers.claims.{module}"), topic)(tmp_path))


@pytest.mark.parametrize("store", OTHERS, ids=lambda store: store.module)
def test_the_claims_of_another_store_are_shown(store: Claimed) -> None:
    name = BY_NAME[store.module].missing
    if name is not None:
        pytest.skip(f"needs the extra bench: {name} is not installed")
    assert version(str(store.package)) == store.version
    # In a process of its own: the libraries warn, and import for long.
    command = [sys.executable, "-m", "benchmarks.peers.claims.run", store.module]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert printed.splitlines() == [f"{store.module} {topic}: shown" for topic in TOPICS]
