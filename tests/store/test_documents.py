"""Random calls on documents: a store answers as a dict does, in which they are looked up one by one."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from flue_py.core import sessions
from flue_py.db.backend import Backend
from flue_py.db.sqlite.runner import open_memory, open_sqlite
from flue_py.errors import CorruptStore
from tests.checks import raises
from tests.effort import examples
from tests.sources import counted_sources

names = st.sampled_from(["a", "A", "b", "ä", "a b", "a%", "z_", "🚨"])
spaces = st.sampled_from(["", "repl", "agents/a"])
projects = st.sampled_from(["", "/p", "/p/q"])
scopes = st.sampled_from(["", "s"])
words = st.sampled_from(["a", "B", "%", "_", "ä", "Ä b", "nothing", "🚨"])
ids = st.builds(sessions.DocumentName, scopes, st.sampled_from(sessions.KINDS), spaces, projects, names)
filters = st.builds(
    sessions.DocumentFilter, st.sampled_from(sessions.KINDS), scopes, st.none() | spaces, st.none() | projects
)
bodies = st.sampled_from(["", "a", "B b", "Ä\n%", "x_z", "🚨" * 3])
types = st.sampled_from(["user", "project"])
calls = st.one_of(
    st.tuples(st.just("put"), ids, bodies, types),
    st.tuples(st.just("remove"), ids),
    st.tuples(st.just("list"), filters, st.none() | ids, st.integers(1, 4)),
    st.tuples(st.just("search"), filters, words, st.none() | ids, st.integers(1, 4)),
)


class Model:
    """Documents in a dict."""

    def __init__(self) -> None:
        self.documents: dict[sessions.DocumentName, tuple[str, str]] = {}

    def page(self, where: sessions.DocumentFilter, after: sessions.DocumentName | None) -> list[sessions.DocumentName]:
        """Return the names that are asked for, in order, by code points."""
        return sorted(
            name
            for name in self.documents
            if name[:2] == (where.scope, where.kind)
            and where.space in (None, name.space)
            and where.project in (None, name.project)
            and (after is None or name[2:] > after[2:])
        )


def shown(documents: Sequence[sessions.Document | sessions.DocumentInfo]) -> list[sessions.DocumentName]:
    return [(each.info if isinstance(each, sessions.Document) else each).id for each in documents]


async def check(backend: Backend, made: Sequence[tuple[object, ...]]) -> None:
    """Make the calls on both, and compare each answer."""
    model = Model()
    for call in made:
        match call:
            case "put", sessions.DocumentName() as name, str(body), str(kind):
                before = await backend.get_document(name)
                new = sessions.NewDocument(name.kind, name.name, body, kind, name.scope, name.space, name.project)
                info = await backend.put_document(new)
                assert (info.id, info.type, info.chars) == (name, kind, len(body))
                is_new = model.documents.get(name) != (body, kind)
                assert before is None or (info.changed_us > before.info.changed_us) == is_new
                assert before is None or info.created_us == before.info.created_us
                model.documents[name] = (body, kind)
                assert await backend.get_document(name) == sessions.Document(info, body)
            case "remove", sessions.DocumentName() as name:
                was_there = model.documents.pop(name, None) is not None
                assert await backend.remove_document(name) == was_there
                assert await backend.get_document(name) is None
            case "list", sessions.DocumentFilter() as where, after, int(limit):
                assert after is None or isinstance(after, sessions.DocumentName)
                expected = model.page(where, after)[:limit]
                listed = await backend.list_documents(where, after=after, limit=limit)
                read = await backend.read_documents(where, after=after, limit=limit)
                assert (shown(listed), shown(read)) == (expected, expected)
                assert [(each.body, each.type) for each in read] == [model.documents[name] for name in expected]
            case "search", sessions.DocumentFilter() as where, str(text), after, int(limit):
                assert after is None or isinstance(after, sessions.DocumentName)
                asked = sessions.searched_words(text)
                whole = await backend.read_documents(replace(where), after=after, limit=1_000)
                hits = [each for each in whole if sessions.has_words(each, asked)]
                found = await backend.search_documents(where, asked, after=after, limit=limit)
                assert list(found.documents) == hits[:limit]
                assert (found.after is None) == (len(hits) < limit)
            case _:
                raise AssertionError(call)
    assert (await backend.info()).documents == len(model.documents)
    assert (await backend.verify()).problems == []


@examples(60)
@given(st.lists(calls, max_size=30))
def test_any_calls_on_documents_are_answered_as_a_dict_answers_them(made: list[tuple[object, ...]]) -> None:
    async def run() -> None:
        backend = open_memory(counted_sources())
        await check(backend, made)
        await backend.close()

    asyncio.run(run())


@examples(15)
@given(st.lists(calls, max_size=30))
def test_a_file_whose_clock_goes_back_answers_them_likewise(made: list[tuple[object, ...]]) -> None:
    async def run(folder: Path) -> None:
        backend = await open_sqlite(folder / "s.db", sources=counted_sources(-1_000), durability="normal")
        await check(backend, made)
        await backend.close()

    with TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))


def test_a_document_that_is_gone_is_missed_until_it_comes_back(tmp_path: Path) -> None:
    """Reads that would have it refuse; others go on, and nothing that is written makes it forgotten."""
    facts = [sessions.NewDocument("memory", name, f"the {name}", "user", space="repl") for name in "abcd"]
    path = tmp_path / "s.db"

    async def run(gone: sessions.NewDocument) -> None:
        backend = await open_sqlite(path, sources=counted_sources(), durability="normal")
        try:
            for fact in facts:
                await backend.put_document(fact)
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute("DELETE FROM documents WHERE name = ?", [gone.name])
            others = [fact for fact in facts if fact is not gone]
            neighbours = {facts[at].name for at in range(4) if abs(at - facts.index(gone)) == 1}
            await raises(CorruptStore, backend.get_document(gone.id), match="is gone")
            await raises(
                CorruptStore, backend.list_documents(sessions.DocumentFilter("memory"), None, 9), match="is gone"
            )
            await raises(
                CorruptStore, backend.list_documents(sessions.DocumentFilter("memory"), None, 3), match="is gone"
            )
            await raises(CorruptStore, backend.list_whole_documents(None, 9), match="is gone")
            await raises(CorruptStore, backend.put_document(replace(gone, name=f"{gone.name}a")), match="is gone")
            for other in others:
                await backend.put_document(replace(other, body="another"))
                assert (await backend.get_document(other.id)) is not None
                if other.name in neighbours:
                    await raises(CorruptStore, backend.remove_document(other.id), match="is gone")
            (problem,) = (await backend.verify()).problems
            assert (problem.kind, problem.detail[-7:]) == ("missing document", "is gone")
            await backend.put_document(gone)
            assert len(await backend.list_documents(sessions.DocumentFilter("memory"), None, 9)) == 4
            for fact in facts:
                assert await backend.remove_document(fact.id)
            assert (await backend.verify()).problems == []
        finally:
            await backend.close()

    for fact in facts:
        asyncio.run(run(fact))
