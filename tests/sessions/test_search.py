"""Searching a store: the same hits by an index and by reading everything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flue_py
import flue_py.sync
from flue_py import search as queries
from flue_py.core.entries import Entry
from flue_py.core.json import JsonObject
from flue_py.core.sessions import SessionHead
from flue_py.db.backend import Backend
from flue_py.db.postgres.runner import PostgresTransaction
from flue_py.db.sqlite.file import SqliteTransaction
from flue_py.db.sqlite.words import SqliteWords
from flue_py.errors import InvalidArgument, SessionNotFound
from flue_py.search import PARTS, Part, SearchAnswer, SearchHit
from tests.checks import raises
from tests.effort import examples
from tests.tables import inputs


def user(text: str) -> JsonObject:
    return {"role": "user", "content": text}


def called(text: str, tool: str, **arguments: str) -> JsonObject:
    call: JsonObject = {"type": "toolCall", "id": f"call-{tool}", "name": tool, "arguments": {**arguments}}
    return {"role": "assistant", "content": [{"type": "text", "text": text}, call]}


def result(tool: str, text: str) -> JsonObject:
    content: JsonObject = {"type": "text", "text": text}
    return {"role": "toolResult", "toolCallId": f"call-{tool}", "toolName": tool, "content": [content]}


def thought(thinking: str, text: str) -> JsonObject:
    parts: list[JsonObject] = [{"type": "thinking", "thinking": thinking}, {"type": "text", "text": text}]
    return {"role": "assistant", "content": [*parts]}


def shown(hits: Iterable[SearchHit]) -> list[str]:
    return sorted(f"{hit.part}: {hit.snippet.text}" for hit in hits)


def marked(hit: SearchHit) -> list[str]:
    return [hit.snippet.text[low:high] for low, high in hit.snippet.matches]


async def found(store: flue_py.Store, words: str, **asked: object) -> list[str]:
    return shown((await store.search(words, **asked)).hits)  # type: ignore[arg-type]


@inputs(
    ("words", "matches"),
    [
        ("it's", ["it's"]), ("gateway/run.py", ["gateway/run.py"]), ("POL-358", ["POL-358"]), ("@nasa", ["nasa"]),
        ("why?", ["why"]), ("TODO:", ["TODO"]), ("userName", ["UserName"]), ("pool.py", ["pool.py"]), ("语", ["语"]),
        ("快速", ["快速"]), ("rust", ["Rust"]), ("???", ["???"]), ("nasa todo", ["nasa", "TODO"]),
    ],
)  # fmt: skip
async def test_plain_words_are_literal(store: flue_py.Store, words: str, matches: list[str]) -> None:
    session = await store.create_session(scope=words)
    text = "it's in gateway/run.py (POL-358), says @nasa; why??? TODO: getUserName in src/db/pool.py:42, Rust语言快速"
    await session.append_message(user("nothing of interest"))
    await session.append_message(user(text))
    answer = await store.search(words, scope=words)
    assert len(answer.hits) == 1
    assert marked(answer.hits[0]) == matches
    assert answer.hits[0].place == "active"
    assert not answer.has_more


async def test_each_part_is_found_and_thinking_is_left_out_unless_asked_for(store: flue_py.Store) -> None:
    session = await store.create_session(title="The needle")
    await session.append_message(user("find the needle"))
    await session.append_message(thought("where is the needle", "looking"))
    await session.append_message(called("I look", "grep", pattern="needle"))
    await session.append_message(result("grep", "needle: line 3"))
    messages, titles = ["messages: find the needle"], ["titles: The needle"]
    tools = ["tools: grep needle", "tools: needle: line 3"]
    answer = await store.search("needle")
    assert shown(answer.hits) == messages + titles + tools
    assert answer.searched.left_out == ("thinking",)
    assert [hit.part for hit in answer.hits][:2] == ["titles", "messages"]
    expected: dict[Part, list[str]] = {"messages": messages, "titles": titles, "tools": tools, "summaries": []}
    for part, texts in expected.items():
        assert await found(store, "needle", parts=[part]) == texts
    assert await found(store, "needle", parts=["thinking"]) == ["thinking: where is the needle"]
    assert len(await found(store, "needle", parts=PARTS)) == 5


async def test_what_a_search_is_narrowed_to(store: flue_py.Store) -> None:
    start = datetime.now(UTC)
    first = await store.create_session(scope="a", cwd="/srv/one")
    await first.append_message(user("needle of the user"))
    await first.append_message(called("needle", "read_file", path="x"))
    await first.append_message(result("read_file", "the needle"))
    await first.append_message(result("write_file", "a needle"))
    second = await store.create_session(scope="b", cwd="/srv/one/below")
    await second.append_message(user("needle elsewhere"))
    assert await found(store, "needle", role="user") == ["messages: needle elsewhere", "messages: needle of the user"]
    assert await found(store, "needle", tool="read_file") == ["tools: the needle"]
    assert await found(store, "needle", scope="b") == ["messages: needle elsewhere"]
    assert await found(store, "needle", scope="c") == []
    assert await found(store, "needle", project="/srv/one/below") == ["messages: needle elsewhere"]
    assert len(await found(store, "needle", project="/srv/one")) == 5
    assert await found(store, "needle", project="/srv/o") == []
    third = await store.create_session(cwd="/srv/one/../two")
    await third.append_message(user("pin"))
    assert await found(store, "pin", project="/srv/two") == ["messages: pin"]
    assert await found(store, "pin", project="/srv/one") == []
    assert await found(store, "needle", sessions=[second]) == ["messages: needle elsewhere"]
    assert await found(store, "needle", exclude=[first.id]) == ["messages: needle elsewhere"]
    assert len(await found(store, "needle", since=start)) == 5
    assert await found(store, "needle", since=datetime.now(UTC) + timedelta(days=1)) == []


async def test_where_on_the_tree_a_hit_lies(store: flue_py.Store) -> None:
    session = await store.create_session()
    await session.append_message(user("needle one"))
    kept = await session.append_message(user("needle two"))
    await session.append_message(user("needle gone"))
    await session.move_leaf(kept.entry_ids[0])
    await session.append_message(user("needle three"))
    await session.append_compaction(
        summary="a needle was there", first_kept_entry_id=kept.entry_ids[0], tokens_before=10
    )
    answer = await store.search("needle")
    assert {hit.snippet.text: hit.place for hit in answer.hits} == {
        "needle one": "compacted",
        "needle two": "active",
        "needle three": "active",
        "needle gone": "abandoned",
        "a needle was there": "active",
    }
    one = next(hit for hit in answer.hits if hit.snippet.text == "needle one")
    assert one.go == f"flue-py show {session.id} {one.entry_id}"


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What databases are asked from now on."""
    asked: list[object] = []

    def noting(plain: Callable[..., object]) -> Callable[..., object]:
        def noted(self: object, statement: object, /, *given: object, **named: object) -> object:
            asked.append(statement)
            return plain(self, statement, *given, **named)

        return noted

    for kind, name in (
        (SqliteTransaction, "rows"), (SqliteTransaction, "first"), (SqliteWords, "_run"),
        (PostgresTransaction, "rows"), (PostgresTransaction, "first"),
    ):  # fmt: skip
        monkeypatch.setattr(kind, name, noting(getattr(kind, name)))
    return asked


async def test_hits_in_many_sessions_take_as_many_statements_as_one(
    store: flue_py.Store, statements: list[object]
) -> None:
    for number in range(20):
        session = await store.create_session(title=f"needle {number}" if number % 2 else None)
        await session.append_message(user(f"needle n{number} before"))
        kept = await session.append_message(user("kept"))
        await session.append_compaction(summary="short", first_kept_entry_id=kept.entry_ids[0], tokens_before=10)
        fork = await session.fork()
        await fork.append_message(user("needle of the fork"))
    taken = []
    for words in ("n7", "needle"):
        await store.search(words)
        statements.clear()
        answer = await store.search(words, limit=100)
        taken.append((len(answer.sessions), len(answer.hits), len(statements)))
    (sessions, hits, few), (all_sessions, all_hits, many) = taken
    assert (sessions, hits) == (1, 1)
    assert (all_sessions, all_hits) == (40, 50)
    assert many == few, taken


async def test_of_a_phrase_of_common_words_few_texts_are_read(
    store: flue_py.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await store.create_session()
    for number in range(200):
        await session.append_message(user(f"user {number} has w{number} as name v{number}"))
    await session.append_message(user("the userName, or the name of the user"))
    asked = []
    plain = Backend.read_named

    async def noting(backend: Backend, named: Sequence[tuple[str, str]]) -> list[Entry | None]:
        asked.append(len(named))
        return await plain(backend, named)

    monkeypatch.setattr(Backend, "read_named", noting)
    answer = await store.search("user/name")
    assert [marked(hit) for hit in answer.hits] == [["userName"]]
    assert sum(asked) < 100
    assert len((await store.search("name of", limit=300)).hits) == 1


async def test_tasks_are_searched_with_their_session_and_forks_with_what_they_see(store: flue_py.Store) -> None:
    session = await store.create_session()
    first = await session.append_message(user("needle of the source"))
    fork = await session.fork()
    await session.append_message(user("needle behind the fork"))
    await fork.append_message(user("needle of the fork"))
    task = await fork.tasks.create(task_id="t1")
    await task.append_message(user("needle of the task"))
    assert await found(store, "needle", sessions=[fork]) == [
        "messages: needle of the fork",
        "messages: needle of the source",
        "messages: needle of the task",
    ]
    answer = await store.search("source", sessions=[fork])
    assert [(hit.session_id, hit.entry_id) for hit in answer.hits] == [(fork.id, first.entry_ids[0])]
    assert len((await store.search("needle")).hits) == 4


async def test_each_fork_is_searched_to_where_it_left_its_source(store: flue_py.Store) -> None:
    session = await store.create_session(id="source")
    await session.append_message(user("needle one"))
    first = await session.fork(id="first-fork")
    await session.append_message(user("needle two"))
    second = await session.fork(id="second-fork")
    third = await session.append_message(user("needle three"))
    assert await found(store, "needle", sessions=[first, second]) == ["messages: needle one", "messages: needle two"]
    assert await found(store, "needle", sessions=[second]) == ["messages: needle one", "messages: needle two"]
    assert await found(store, third.entry_ids[0], sessions=[first]) == []
    assert await found(store, session.leaf_id, sessions=[session]) == ["messages: needle three"]
    assert await found(store, second.leaf_id, sessions=[first, second]) == ["messages: needle two"]


async def test_a_fork_is_searched_behind_what_was_deleted_between(store: flue_py.Store) -> None:
    session = await store.create_session()
    await session.append_message(user("needle one"))
    middle = await session.fork()
    await middle.append_message(user("needle two"))
    last = await middle.fork()
    await last.append_message(user("needle three"))
    expected = ["messages: needle one", "messages: needle three", "messages: needle two"]
    assert await found(store, "needle", sessions=[last]) == expected
    await store.delete_session_tree(middle)
    assert await found(store, "needle", sessions=[last]) == expected


async def test_a_task_that_was_deleted_or_never_there_is_passed_over(store: flue_py.Store) -> None:
    session = await store.create_session()
    await session.append_message(user("a needle"))
    task = await session.tasks.create(task_id="t1")
    await task.append_message(user("a needle of the task"))
    await store.link_task(session, "missing", task_id="t2")
    assert len(await found(store, "needle", sessions=[session])) == 2
    await store.delete_session_tree(task)
    assert await found(store, "needle", sessions=[session]) == ["messages: a needle"]
    await raises(SessionNotFound, store.search("needle", sessions=["missing"]), match="missing")


async def test_what_a_deleted_session_has_left_to_its_forks_is_found_once(store: flue_py.Store) -> None:
    session = await store.create_session()
    await session.append_message(user("the needle stays"))
    forks = [await session.fork(), await session.fork()]
    await session.append_message(user("the needle goes"))
    assert len(await found(store, "needle")) == 2
    await store.delete_session_tree(session)
    assert await found(store, "needle") == ["messages: the needle stays"]
    for fork in forks:
        assert await found(store, "needle", sessions=[fork]) == ["messages: the needle stays"]
    assert (await store.verify()).problems == []


async def test_an_id_that_is_used_again_hides_nothing_that_its_first_session_has_left(store: flue_py.Store) -> None:
    session = await store.create_session(id="s1")
    await session.append_message(user("the needle stays"))
    fork = await session.fork(id="s2")
    await fork.append_message(user("a needle of the fork"))
    assert len(await found(store, "needle")) == 2
    await store.delete_session_tree(session)
    await (await store.create_session(id="s1")).append_message(user("a new needle"))
    expected = ["messages: a needle of the fork", "messages: a new needle", "messages: the needle stays"]
    assert await found(store, "needle") == expected
    assert len(await found(store, "needle", sessions=[fork])) == 2


async def test_what_was_retracted_is_not_found(store: flue_py.Store) -> None:
    session = await store.create_session()
    await session.append_message(user("keep"))
    await session.append_message(user("a needle too much"))
    assert len(await found(store, "needle")) == 1
    await store.backend.retract(session.id, session.leaf_id)
    assert await found(store, "needle") == []


async def test_a_new_title_is_found_in_place_of_the_old_one(store: flue_py.Store) -> None:
    session = await store.create_session(title="The haystack")
    assert await found(store, "haystack") == ["titles: The haystack"]
    await session.set_title("The needle")
    assert await found(store, "haystack") == []
    assert await found(store, "needle") == ["titles: The needle"]
    await session.set_title("The haystack")
    assert await found(store, "haystack") == ["titles: The haystack"]


async def test_an_id_is_looked_up(store: flue_py.Store) -> None:
    session = await store.create_session(scope="a", title="Mine")
    done = await session.append_message(user("hello"))
    answer = await store.search(f" {done.entry_ids[0]} ")
    assert [(hit.entry_id, hit.snippet.text) for hit in answer.hits] == [(done.entry_ids[0], "hello")]
    answer = await store.search(session.id)
    assert [(hit.session_id, hit.entry_id, hit.snippet.text) for hit in answer.hits] == [(session.id, None, "Mine")]
    assert (await store.search(done.entry_ids[0], scope="b")).hits == ()
    assert (await store.search(session.id, scope="b")).hits == ()


async def test_an_id_of_what_was_retracted_is_not_found(store: flue_py.Store) -> None:
    session = await store.create_session()
    await session.append_message(user("kept"))
    (entry_id,) = (await session.append_message(user("needle"))).entry_ids
    fork = await session.fork()
    await store.backend.retract(session.id, entry_id)
    assert (await store.search(entry_id)).hits == ()
    assert [hit.session_id for hit in (await store.search(entry_id, sessions=[fork])).hits] == [fork.id]


async def test_texts_that_have_an_id_are_found_beside_what_it_is_the_id_of(store: flue_py.Store) -> None:
    named = await store.create_session(id="deploy-checklist", title="Mine")
    done = await named.append_message(user("hello"))
    other = await store.create_session(title="Talk of deploy-checklist")
    await other.append_message(user(f"see deploy-checklist, and {done.entry_ids[0]}"))
    answer = await store.search("deploy-checklist")
    assert [(hit.session_id, hit.by_id, hit.snippet.text) for hit in answer.hits] == [
        (named.id, True, "Mine"),
        (other.id, False, "Talk of deploy-checklist"),
        (other.id, False, f"see deploy-checklist, and {done.entry_ids[0]}"),
    ]
    answer = await store.search("deploy-checklist", limit=1)
    assert ([hit.by_id for hit in answer.hits], answer.has_more) == ([True], True)
    answer = await store.search(done.entry_ids[0])
    assert [(hit.entry_id, hit.by_id) for hit in answer.hits] == [(done.entry_ids[0], True), (other.leaf_id, False)]
    await named.set_title("The deploy-checklist")
    answer = await store.search("deploy-checklist", sessions=[named])
    assert [(hit.by_id, marked(hit)) for hit in answer.hits] == [(True, ["deploy-checklist"])]
    answer = await store.search("deploy-checklist", scope="other")
    assert answer.hits == ()


async def test_nothing_found_says_what_was_not_tried(store: flue_py.Store) -> None:
    session = await store.create_session(scope="a")
    await session.append_message(user("hello"))
    answer = await store.search("needle", role="user", scope="a", sessions=[session])
    assert answer.hits == ()
    assert answer.widen == ("sessions", "scope", "role", "parts", "substring")
    assert (answer.searched.sessions, answer.searched.entries) == (1, 1)
    assert (await store.search("needle", how="substring", parts=PARTS)).widen == ()
    assert (await store.search("hello")).widen == ()


async def test_more_hits_than_asked_for_are_told(store: flue_py.Store) -> None:
    session = await store.create_session()
    for number in range(30):
        await session.append_message(user(f"needle {number}"))
    answer = await store.search("needle", limit=30)
    assert (len(answer.hits), answer.has_more) == (30, False)
    answer = await store.search("needle", limit=29)
    assert (len(answer.hits), answer.has_more) == (29, True)
    assert answer.sessions[0].revision == session.revision


async def test_what_is_written_during_a_search_is_not_said_to_have_been_searched(
    store: flue_py.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await store.create_session()
    await session.append_message(user("a needle"))
    heads = Backend.session_heads

    async def then_append(backend: Backend) -> Sequence[SessionHead]:
        found = await heads(backend)
        await session.append_message(user("nothing of interest"))
        return found

    monkeypatch.setattr(Backend, "session_heads", then_append)
    for words in ("needle", session.id):
        answer = await store.search(words)
        (group,) = answer.sessions
        assert answer.searched.newest == (session.id, group.revision)
        assert answer.searched.revisions == group.revision < session.revision


async def test_the_best_come_first(store: flue_py.Store) -> None:
    session = await store.create_session()
    await session.append_message(result("read", "needle " + "straw " * 500))
    await session.append_message({"role": "assistant", "content": "the needle is in the hay"})
    await session.append_message(user("the needle is in the hay"))
    assert [hit.role for hit in (await store.search("needle")).hits] == ["user", "assistant", "toolResult"]


@pytest.mark.thorough
async def test_a_message_of_five_million_characters_is_searched_whole(store: flue_py.Store) -> None:
    session = await store.create_session()
    await session.append_message(user(" ".join(f"word{number:012}" for number in range(300_000))))
    answer = await store.search("word000000299999 word000000000000")
    assert [hit.is_cut for hit in answer.hits] == [False]
    assert marked(answer.hits[0]) in (["word000000000000"], ["word000000299999"])


@pytest.mark.thorough
async def test_a_megabyte_that_was_pasted_is_found(store: flue_py.Store) -> None:
    session = await store.create_session()
    paste = " ".join(f"src/{number}{'long' * 14}.py" for number in range(15_000))
    assert len(paste) > 1_000_000
    await session.append_message(user(paste))
    await session.append_message(user(paste[:-3]))
    answer = await store.search(paste)
    assert len(answer.hits) == 1
    answer = await store.search(f"{paste} nowhere")
    assert (answer.hits, answer.suggestions) == ((), ())


async def test_a_long_result_is_searched_to_its_bound_and_says_so(store: flue_py.Store) -> None:
    session = await store.create_session()
    await session.append_message(result("read", "needle " + "straw " * 50_000 + "ending"))
    answer = await store.search("needle")
    assert [hit.is_cut for hit in answer.hits] == [True]
    assert await found(store, "ending") == []


@inputs(
    "asked",
    [
        {"words": ""}, {"words": 3}, {"words": "a", "how": "exact"}, {"words": "a", "parts": []},
        {"words": "a", "parts": ["pictures"]}, {"words": "a", "parts": "messages"}, {"words": "a", "sessions": "s1"},
        {"words": "a", "exclude": [3]}, {"words": "a", "limit": 0}, {"words": "a", "role": 3},
        {"words": "a", "since": "today"}, {"words": "(a", "how": "regex"}, {"words": "(a", "how": "query"},
    ],
)  # fmt: skip
async def test_what_cannot_be_asked_is_refused(store: flue_py.Store, asked: dict[str, object]) -> None:
    await raises(InvalidArgument, store.search(**asked))  # type: ignore[arg-type]


async def test_substrings_and_patterns_read_everything_and_say_so(store: flue_py.Store) -> None:
    session = await store.create_session()
    await session.append_message(user("getusername"))
    assert await found(store, "username") == []
    answer = await store.search("erna", how="substring")
    assert [marked(hit) for hit in answer.hits] == [["erna"]]
    assert not answer.searched.by_index
    assert answer.searched.why_not is not None
    assert [marked(hit) for hit in (await store.search("u.*me", how="regex")).hits] == [["username"]]


@pytest.mark.parametrize("title", [True, False])
async def test_an_expression_that_goes_back_and_forth_for_ever_is_refused(
    store: flue_py.Store, monkeypatch: pytest.MonkeyPatch, title: bool
) -> None:
    monkeypatch.setattr(queries, "SECONDS", 0.05)
    text = "a" * 60 + "b"
    session = await store.create_session(title=text if title else None)
    entry_id = (await session.append_message(user("b" if title else text))).entry_ids[0]
    raised = await raises(InvalidArgument, store.search("(a|a)*$", how="regex"), match="make it simpler")
    assert session.id in str(raised.value)
    assert (entry_id in str(raised.value)) == (not title)
    assert len((await store.search("^a*b$", how="regex")).hits) == 1 + title


_WORDS = ["run", "fast", "Pool", "pool.py", "userName", "username", "ﷺ", "ไทย", "数据", "a-b", "it's", "src/db"]
_TEXTS = st.lists(st.lists(st.sampled_from(_WORDS), max_size=6).map(" ".join), max_size=8)
_ASKED = st.one_of(
    st.tuples(
        st.just("words"),
        st.lists(st.sampled_from([*_WORDS, "db", "name", "pool py"]), min_size=1, max_size=3).map(" ".join),
    ),
    st.tuples(st.just("query"), st.sampled_from(["run OR pool", "run NOT fast", "po*", '"pool py"', "user* -fast"])),
)


@examples(60)
@given(_TEXTS, st.lists(_ASKED, min_size=1, max_size=4))
def test_an_index_finds_what_reading_everything_finds(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], searches: list[tuple[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("search")
    with flue_py.sync.open(":memory:") as scanned, flue_py.sync.open(folder / "s.db", durability="normal") as indexed:
        for text in texts:
            for store in (scanned, indexed):
                store.open_session("one", mode="get_or_create").append_message(user(text or "-"))
            for how, words in searches:
                answers: list[SearchAnswer] = [store.search(words, how=how) for store in (scanned, indexed)]  # type: ignore[arg-type]
                assert [answer.searched.by_index for answer in answers] == [False, True]
                first, second = (shown(answer.hits) for answer in answers)
                assert first == second
        assert indexed.verify().problems == []


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[flue_py.Store]:
    async with flue_py.open(tmp_path / "other.db") as store:
        yield store


async def test_scopes_do_not_leak_into_suggestions(other: flue_py.Store) -> None:
    await (await other.create_session(scope="a")).append_message(user("confidential"))
    await (await other.create_session(scope="b")).append_message(user("conference"))
    answer = await other.search("confidental", scope="a")
    assert (answer.hits, answer.suggestions) == ((), ("confidential",))
    assert (await other.search("confidental", scope="b")).suggestions == ()
