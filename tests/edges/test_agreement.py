"""Every list, view and export says the same about a session: names, counts, tokens, costs, times."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import flue_py
from tests.edges.cli_runs import REAL_ID, Flue
from tests.edges.session_facts import facts_of_all, facts_of_store
from tests.formats.test_fuseraft import HISTORY, snapshot
from tests.formats.test_noumen import said
from tests.formats.transcripts import CLAUDE, CODEX_MADE, CODEX_REAL, as_lines, lines_of
from tests.formats.transcripts import facts_of as counted_in
from tests.values import existing

PI = "pi/large-session.jsonl.gz"
REAL = (PI, CLAUDE, CODEX_REAL, CODEX_MADE)
CLAUDE_ID, CODEX_ID = "d1423492-e4f5-4a86-a997-1f1c8d09a940", "019e9625-802f-7e91-840a-cfe88d14117a"
EXPORTED = ("anthropic", "flue")


@pytest.fixture(scope="module")
def flue(tmp_path_factory: pytest.TempPathFactory) -> Flue:
    """A database of real sessions of three agents, of lists made of one, and of what people then did with them."""
    flue = Flue(tmp_path_factory.mktemp("flue"))
    for name in REAL:
        flue.run("import", "auto", str(flue.write(lines_of(name), Path(name).stem)))
    for form in EXPORTED:
        file = flue.folder / f"{form}.json"
        flue.run("export", form, CODEX_ID, "--output", str(file))
        document = json.loads(file.read_bytes())
        flue.run("import", form, str(flue.write([json.dumps(document).encode()], f"other-{form}.json")))
    repl = flue.write([json.dumps(snapshot(*HISTORY)).encode()], "repl.json")
    flue.run("import", "fuseraft-repl", str(repl))
    flue.run("import", "noumen", str(flue.write(as_lines([said("u1", "read it"), said("a1", "done", "assistant")]))))
    with flue_py.sync.open(flue.database, prices=False) as store:
        go_on(store)
    return flue


def answer(text: str, tokens: int, dollars: str | None) -> dict[str, Any]:
    """Return an answer that says what it used."""
    usage: dict[str, Any] = {"input": tokens, "output": 1}
    if dollars is not None:
        usage["cost"] = {"total": dollars}
    return {"role": "assistant", "content": text, "provider": "p", "model": "m", "usage": usage}


def go_on(store: flue_py.sync.Store) -> None:
    """Fork a session, go back in it, take an answer back, compact it, give it a task, and more."""
    session = existing(store.get_session(CLAUDE_ID))
    asked = session.get_active_path()[-12].id
    session.fork(at=asked)
    fork = session.fork(at=asked)
    fork.append_messages([{"role": "user", "content": "and then?"}, answer("so", 10, "0.1"), answer("what", 20, None)])
    session.fork(title="A title").append_message({"role": "assistant", "content": "It does not say what it used."})
    session.rewind(to=asked)
    session.append_messages([{"role": "user", "content": "instead"}, answer("yes", 100, "0.25")])
    session.append_compaction("In short.", first_kept_entry_id=asked, tokens_before=9, usage={"input": 7, "output": 2})
    session.append_message(answer("taken back", 5, "0.5"))
    assert session.remove_leaf_message(str(session.leaf_id))
    task = session.tasks.create(task_id="look", key="task")
    task.append_messages([{"role": "user", "content": "look"}, answer("seen", 30, "0.75")])
    task.tasks.create(task_id="deeper").money.record_call({"input": 3}, model="m", purpose="title")
    store.create_session(key="unspoken")
    keyed = store.create_session(key="keyed", cwd="/home/dev/demo")
    keyed.append_messages([{"role": "user", "content": "hi"}, answer("free", 3, "0")])
    unknown = {"role": "assistant", "content": "?", "provider": "p", "model": "m", "usage": {"units": 9}}
    store.create_session(key="unknown").append_messages([{"role": "user", "content": "what?"}, unknown])


@pytest.mark.thorough
def test_each_session_is_told_alike_by_everything_that_tells_of_it(flue: Flue) -> None:
    found = facts_of_all(flue)
    assert len(found) == len(REAL) + len(EXPORTED) + 2 + 3 + 2 + 3
    assert {session_id: each for session_id, told in found.items() if (each := told.disagreements())} == {}


def test_the_whole_store_is_counted_alike(flue: Flue) -> None:
    assert facts_of_store(flue).disagreements() == []


def test_what_they_say_is_what_was_counted_without_them(flue: Flue) -> None:
    rows = {row["id"]: row for row in flue.json("sessions")}
    for name in (CODEX_REAL, CODEX_MADE):
        counted = counted_in(name)
        assert rows[counted["sessionIds"][0]]["spentTokens"] == counted["finalTotalTokenUsage"]["total_tokens"]
    said = [json.loads(line).get("message", {}) for line in lines_of(PI)]
    assert rows[REAL_ID]["messageCount"] == sum("role" in message for message in said)
    usages = [message["usage"] for message in said if "usage" in message]
    costs = [Decimal(repr(usage["cost"]["total"])).quantize(Decimal("1E-12")) for usage in usages]
    assert Decimal(rows[REAL_ID]["spent"]) == sum(costs)
