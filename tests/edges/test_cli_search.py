"""flue-py search."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import flue_py.sync
from flue_py.cli import command as command_module
from flue_py.cli.command import Tell
from flue_py.search import DEFAULT_PARTS
from tests.edges.cli_runs import Flue
from tests.tables import inputs


@pytest.fixture
def flue(tmp_path: Path) -> Flue:
    """A database in which two sessions talk of a pool."""
    made = Flue(tmp_path)
    with flue_py.sync.open(made.database) as store:
        first = store.create_session(id="s1", title="Pool runs dry", scope="a")
        text = "why does src/db/pool.py hang?"
        first.append_message({"role": "user", "content": text, "timestamp": 1_700_000_000_000})
        thinking = {"type": "thinking", "thinking": "deadlock?"}
        call = {"type": "toolCall", "id": "c1", "name": "read_file", "arguments": {"path": "src/db/pool.py"}}
        first.append_message({"role": "assistant", "content": [thinking, {"type": "text", "text": "I read it."}, call]})
        first.append_message(
            {"role": "toolResult", "toolCallId": "c1", "toolName": "read_file", "content": "class Pool"}
        )
        second = store.create_session(id="s2", scope="b")
        second.append_message({"role": "user", "content": "swimming pool"})
    return made


def entries(flue: Flue, *arguments: str) -> list[str]:
    return sorted(hit["snippet"] for hit in flue.json("search", *arguments)["hits"])


def test_hits_come_by_session_with_the_command_that_shows_them(flue: Flue) -> None:
    lines = flue.lines("search", "swimming")
    assert lines[0] == "swimming pool  s2, up to revision 1"
    assert lines[1].endswith(" user")
    assert lines[2] == "    swimming pool"
    assert lines[3].startswith("    flue-py show s2 ")
    assert lines[-1] == (
        "searched 4 entries of 2 sessions up to revision 1 of s2, which was active last, in messages, tools, titles, "
        "summaries; not in thinking"
    )
    shown = flue.lines("show", *lines[3].split()[2:])
    assert shown[-1] == "swimming pool"


def test_options_narrow_a_search(flue: Flue) -> None:
    everything = entries(flue, "pool")
    assert everything == [
        "Pool runs dry", "class Pool", "read_file src/db/pool.py", "swimming pool", "why does src/db/pool.py hang?",
    ]  # fmt: skip
    assert entries(flue, "pool", "--session", "s2") == ["swimming pool"]
    assert entries(flue, "pool", "--exclude-session", "s1") == ["swimming pool"]
    assert entries(flue, "pool", "--scope", "b") == ["swimming pool"]
    assert entries(flue, "pool", "--role", "tool") == ["class Pool"]
    assert entries(flue, "pool", "--tool", "read_file") == ["class Pool", "read_file src/db/pool.py"]
    assert entries(flue, "pool", "--in", "titles") == ["Pool runs dry"]
    assert entries(flue, "pool", "--since", "2999-01-01") == []
    assert entries(flue, "deadlock", "--in", "thinking") == ["deadlock?"]
    assert entries(flue, "dead*", "--query", "--in", "thinking,titles") == ["deadlock?"]
    assert entries(flue, "imm", "--substring") == ["swimming pool"]
    assert entries(flue, "s.im+ing", "--regex") == ["swimming pool"]
    assert len(entries(flue, "pool", "--limit", "2")) == 2


def test_every_answer_says_up_to_which_revision_was_searched(flue: Flue) -> None:
    searched = flue.json("search", "nowhere")["searched"]
    assert (searched["revisions"], searched["newest"]) == (4, {"sessionId": "s2", "revision": 1})
    searched = flue.json("search", "pool", "--session", "s1")["searched"]
    assert (searched["revisions"], searched["newest"]) == (3, {"sessionId": "s1", "revision": 3})
    searched = flue.json("search", "pool", "--scope", "c")["searched"]
    assert (searched["revisions"], searched["newest"]) == (0, None)
    assert flue.lines("search", "pool", "--scope", "c")[-1].startswith("searched 0 entries of 0 sessions in messages")


def test_what_was_found_by_its_id_says_so(flue: Flue) -> None:
    entry_id = flue.json("search", "swimming")["hits"][0]["entryId"]
    assert flue.lines("search", entry_id)[1].endswith(" user, by its id")
    assert [hit["byId"] for hit in flue.json("search", entry_id)["hits"]] == [True]
    assert [hit["byId"] for hit in flue.json("search", "swimming")["hits"]] == [False]


def test_no_hit_says_what_else_there_is(flue: Flue) -> None:
    assert flue.lines("search", "swiming", "--scope", "b") == [
        "nothing found",
        "did you mean: swimming",
        "not tried: leave out --scope; --in messages,tools,thinking,titles,summaries; --substring",
        "searched 1 entry of 1 session up to revision 1, in messages, tools, titles, summaries; not in thinking",
    ]
    written = "".join(flue.run("search", "--help").output.split())
    assert f"(default:{','.join(DEFAULT_PARTS)};thereisalsothinking)" in written


@inputs(
    ("arguments", "said", "code"),
    [
        (["x", "--in", "pictures"], "--in: 'pictures' is no part; give some of messages, tools", 1),
        (["x", "--since", "yesterday"], "--since: 'yesterday' is no date", 1),
        (["(x", "--query"], "cannot be read as a query: a parenthesis is not closed", 1),
        (["(x", "--regex"], "is not a regular expression", 1),
        (["x", "--session", "s9"], "s9", 4),
    ],
)
def test_what_cannot_be_asked_is_said(flue: Flue, arguments: list[str], said: str, code: int) -> None:
    assert said in flue.run("search", *arguments, code=code).stderr


def test_a_search_shows_how_much_of_the_index_is_missing(flue: Flue, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[int, int, str]] = []

    @contextmanager
    def bar(_what: str) -> Iterator[Tell]:
        yield lambda done, total, what="": steps.append((done, total, what))

    monkeypatch.setattr(command_module, "progress_bar", bar)
    flue.run("search", "pool")
    first = "indexing once, about half the size of the text: 0 of 4 entries"
    assert (steps[0], steps[-1]) == ((0, 4, first), (4, 4, "searching"))
    steps.clear()
    flue.run("search", "pool")
    assert steps == []
    with flue_py.sync.open(flue.database) as store:
        store.get_session("s1").append_message({"role": "user", "content": "more"})  # type: ignore[union-attr]
    flue.run("search", "pool")
    assert [step[:2] for step in steps] == [(0, 1), (1, 1)]
