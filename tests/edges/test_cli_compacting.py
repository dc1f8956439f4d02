"""The commands that compact a session and take that back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flue_py.core.model import FunctionModel, ModelRequest
from tests.edges.cli_runs import REAL_ID, Flue, write_private
from tests.tables import inputs


@pytest.fixture(scope="module")
def uncompacted(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a database with the real session, of which no compaction is in effect."""
    flue = Flue(tmp_path_factory.mktemp("uncompacted"))
    session = flue.import_real()
    while flue.json("compact", session, "--undo")["compactionId"] is not None:
        pass
    return flue.database.read_bytes()


@pytest.fixture
def session(flue: Flue, uncompacted: bytes) -> str:
    """Return the real session in a database of its own, of which no compaction is in effect."""
    write_private(flue.database, uncompacted)
    return REAL_ID


def test_a_session_is_compacted_and_uncompacted(flue: Flue, session: str) -> None:
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

    back = flue.json("compact", session, "--undo")
    assert back["compactionId"] == done["entryId"]
    assert flue.json("context", session) == before


def test_what_was_lost_is_shown_and_found(flue: Flue, session: str) -> None:
    assert flue.lines("loss", session) == ["not compacted: nothing is lost"]
    assert flue.json("loss", session) == {"sessionId": session, "compactionId": None}
    assert flue.lines("recall", session, "theme.md") == ["not compacted: all of the conversation is in the context"]
    done = flue.json("compact", session, "--mode", "window")

    report = flue.json("loss", session, "--most", "2")
    assert (report["compactionId"], report["entries"]) == (done["entryId"], len(done["leaving"]))
    files = next(each for each in report["kinds"] if each["kind"] == "file")
    assert files["leftOut"] == files["total"] - files["covered"] - 2
    fact = files["lost"][0]
    lines = flue.lines("loss", session, done["entryId"][:12], "--most", "2")
    assert lines[0] == f"compaction {done['entryId']} stands for {report['entries']} entries"
    assert f"  - {fact['text']}  entry {fact['entryIds'][-1]}, {fact['count']} times" in lines

    found = flue.json("recall", session, fact["text"], "--most", "1")
    assert found["hits"][0]["entryId"] in fact["entryIds"]
    shown = flue.lines("recall", session, fact["text"], "--most", "1", "--compaction", done["entryId"])
    assert shown[0] == f"{found['hits'][0]['entryId']} {found['hits'][0]['role']}"
    assert any(fact["text"] in line for line in shown)
    assert flue.lines("recall", session, "no", "such-words-anywhere-zzz")[0] != "nothing found"
    assert flue.lines("recall", session, "zzz-nowhere-zzz") == ["nothing found"]
    result = flue.run("loss", session, done["leaving"][0], code=1)
    assert "is no compaction" in result.stderr


def test_there_is_nothing_to_take_back(flue: Flue) -> None:
    session = flue.import_every_type()
    while flue.json("compact", session, "--undo")["compactionId"] is not None:
        pass
    assert flue.lines("compact", session, "--undo") == ["not compacted: there is nothing to take back"]


def test_a_model_that_cannot_be_had_is_one_line_of_error(flue: Flue, session: str) -> None:
    result = flue.run("compact", session, "--mode", "llm", code=1)
    (error,) = result.stderr.splitlines()
    assert "mode 'llm' asks a model; give one" in error


def test_without_a_model_the_operations_are_listed(flue: Flue, session: str) -> None:
    done = flue.json("compact", session)
    assert (done["reason"], done["mode"], done["calls"]) == (None, "intent", [])
    assert "OPERATIONS" in done["summary"]
    assert done["firstKeptEntryId"] is not None
    flue.run("compact", session, "--undo")
    done = flue.json("compact", session, "--keep", "0")
    assert (done["reason"], done["firstKeptEntryId"], len(flue.json("context", session))) == (None, None, 1)


def test_a_branch_that_is_left_is_summarized(flue: Flue, session: str) -> None:
    path = [entry["id"] for entry in flue.json("show", session, "--path") if entry.get("role") == "assistant"]
    went = flue.json("move", session, path[0], "--summarize")
    assert went["summaryId"] is not None
    assert flue.json("show", session)["leafId"] == went["summaryId"]
    assert "summarize" in flue.run("move", session, path[1], "--mode", "window", code=2).stderr
    flue.json("undo", session)
    assert flue.json("show", session)["leafId"] == went["fromId"]


def test_a_range_is_compacted(flue: Flue, session: str) -> None:
    before = flue.json("context", session)
    ids = [entry["id"] for entry in flue.json("show", session, "--path") if entry.get("role") is not None]
    done = flue.json("compact", session, "--from", ids[1], "--to", ids[-3])
    assert (done["reason"], done["mode"]) == (None, "intent")
    after = flue.json("context", session)
    assert (after[0], after[-1]) == (before[0], before[-1])
    assert len(after) < len(before)
    flue.json("compact", session, "--undo")
    assert flue.json("context", session) == before
    refused = flue.run("compact", session, "--from", ids[1], "--keep", "9", code=2)
    assert "--keep" in refused.stderr


def test_an_edit_is_priced_and_not_made(flue: Flue, session: str) -> None:
    before = flue.json("show", session)
    sizes = flue.json("context", session, "--json")
    ids = [entry["id"] for entry in flue.json("show", session, "--path") if entry.get("role") == "user"]

    cold = flue.json("plan", session, "resume")
    assert (cold["edit"], cold["isWarm"], cold["kept"], cold["never"]) == ("resume", False, 0, "no_edit")
    rewound = flue.json("plan", session, "rewind", ids[3], "--cached")
    assert rewound["isWarm"]
    assert 0 < rewound["commonItems"] < len(sizes)
    assert rewound["tokensAfter"] == rewound["kept"] + rewound["rewritten"] < rewound["tokensBefore"]
    excluded = flue.json("plan", session, "exclude", ids[3], ids[4], "--cached")
    assert excluded["commonItems"] == rewound["commonItems"] - 1
    compacted = flue.json("plan", session, "compact", "--mode", "window")
    assert (compacted["commonItems"], compacted["summaryCall"]) == (0, None)
    ranged = flue.json("plan", session, "compact", "--mode", "intent", "--from", ids[2], "--to", ids[5], "--cached")
    assert ranged["edit"] == "compact"
    assert 0 < ranged["commonItems"] < rewound["commonItems"]
    assert ranged["tokensAfter"] < ranged["tokensBefore"]
    unpriced = flue.json("plan", session, "compact", "--model", "nobody-knows")
    assert (unpriced["picodollars"], unpriced["turnsToPay"], unpriced["never"]) == (None, None, "price_unknown")
    assert flue.json("show", session) == before

    lines = flue.lines("plan", session, "compact", "--model", "claude-sonnet-4-5", "--cached")
    assert lines[0].startswith("next request: about ")
    assert any(line.startswith("the summary ") for line in lines)
    assert "pay" in lines[-1] or "paid" in lines[-1] or "cheaper" in lines[-1]


@inputs(
    ("arguments", "error"),
    [
        (("rewind",), "plan rewind needs an ENTRY"),
        (("exclude",), "plan exclude needs an ENTRY"),
        (("resume", "zz"), "plan resume takes no ENTRY"),
        (("fork", "zz", "yy"), "plan fork takes one ENTRY"),
        (("resume", "--mode", "window"), "--mode, --keep, --from and --to are for plan compact"),
        (("rewind", "zz", "--from", "yy"), "--mode, --keep, --from and --to are for plan compact"),
        (("compact", "--to", "zz", "--keep", "9"), "--keep says where a compaction ends"),
    ],
)
def test_arguments_of_another_edit_are_refused(flue: Flue, arguments: tuple[str, ...], error: str) -> None:
    session = flue.import_every_type()
    assert error in flue.run("plan", session, *arguments, code=2).stderr


def test_a_model_is_told_what_a_change_log_says(
    flue: Flue, session: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answer(request: ModelRequest) -> str:
        asked.append(str(request.messages))
        return "told"

    model = FunctionModel(answer, "small", provider="house", context_window=200_000)
    monkeypatch.setattr("flue_py.models.open_model", lambda name: model)
    log = tmp_path / "changes.json"
    log.write_text(json.dumps({"entries": [{"agent": "Dev", "files_written": ["from-the-log.py"]}]}))
    for mode in ("llm", "hybrid"):
        done = flue.json("compact", session, "--model", "house:small", "--mode", mode, "--change-log", str(log))
        assert (done["reason"], "from-the-log.py" in asked[-1]) == (None, True)
        flue.json("undo", session)
    log.write_text("no JSON")
    for given, says in (
        (("--change-log", str(log)), "--mode llm or hybrid"),
        (("--model", "m", "--change-log", str(log)), f"{log}: it is not JSON"),
        (("--model", "m", "--change-log", f"{log}x"), f"{log}x: No such file"),
    ):
        assert says in " ".join(flue.run("compact", session, *given, code=2).stderr.split())
    assert len(asked) == 2
