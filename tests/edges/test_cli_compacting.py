"""The commands that compact a session and take that back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.edges.cli_runs import Flue


@pytest.fixture
def flue(tmp_path: Path) -> Flue:
    return Flue(tmp_path)


def long_session(flue: Flue) -> str:
    """Return the real session, of which no compaction is in effect."""
    session = flue.import_real()
    while flue.json("uncompact", session)["compactionId"] is not None:
        pass
    return session


def test_a_session_is_compacted_and_uncompacted(flue: Flue) -> None:
    session = long_session(flue)
    before = flue.json("context", session)
    planned = flue.json("compact", session, "--mode", "window", "--dry-run")
    assert (planned["reason"], planned["entryId"]) == ("dry_run", None)
    assert planned["leaving"]
    assert flue.json("context", session) == before

    (said,) = flue.lines("compact", session, "--mode", "window", "--dry-run")
    assert said.startswith(f"{len(planned['leaving'])} messages would be summarized by mode window; ")

    done = flue.json("compact", session, "--mode", "window")
    assert (done["reason"], done["mode"], done["leaving"]) == (None, "window", planned["leaving"])
    assert done["tokensAfter"] < done["tokensBefore"]
    assert flue.json("show", session)["leafId"] == done["entryId"]
    assert len(flue.json("context", session)) < len(before)
    assert flue.lines("compact", session, "--mode", "window") == [
        "not compacted: there is nothing to compact beside what is kept"
    ]

    back = flue.json("uncompact", session)
    assert back["compactionId"] == done["entryId"]
    assert flue.json("context", session) == before


def test_there_is_nothing_to_take_back(flue: Flue) -> None:
    session = flue.import_every_type()
    while flue.json("uncompact", session)["compactionId"] is not None:
        pass
    assert flue.lines("uncompact", session) == ["not compacted: there is nothing to take back"]


def test_a_model_that_cannot_be_had_is_one_line_of_error(flue: Flue) -> None:
    session = long_session(flue)
    result = flue.run("compact", session, "--mode", "llm", code=1)
    (error,) = result.stderr.splitlines()
    assert "mode 'llm' asks a model; give one" in error


def test_without_a_model_the_operations_are_listed(flue: Flue) -> None:
    session = long_session(flue)
    done = flue.json("compact", session)
    assert (done["reason"], done["mode"], done["calls"]) == (None, "intent", [])
    assert "OPERATIONS" in done["summary"]


def test_a_range_is_compacted(flue: Flue) -> None:
    session = long_session(flue)
    before = flue.json("context", session)
    ids = [item["entryId"] for item in before]
    done = flue.json("compact", session, "--from", ids[1], "--to", ids[-3])
    assert (done["reason"], done["mode"]) == (None, "intent")
    after = [item["entryId"] for item in flue.json("context", session)]
    assert after[0] == ids[0]
    assert after[-1] == ids[-1]
    assert done["entryId"] in after[1:-1]
    flue.json("uncompact", session)
    assert flue.json("context", session) == before
    refused = flue.run("compact", session, "--from", ids[1], "--keep", "9", code=2)
    assert "--keep" in refused.stderr
