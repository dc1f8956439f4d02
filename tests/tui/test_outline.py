"""The tree as rows: their order, what a view shows, what is folded, and growing at the end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from flue_py.core.entries import Entry
from flue_py.core.json import to_json
from flue_py.core.sessions import SessionInfo, TaskLink
from flue_py.render.lines import plan_tree, walk_tree
from flue_py.tui.model import VIEWS, Begun, Outline, begun_at, body, rows_of, shows, stubs, whole


def entry(name: str, parent: str | None, kind: str = "custom", role: str | None = None, payload: str = "{}") -> Entry:
    return Entry(name, parent, "s", kind, role, None, 0, 0, 0, 0, payload)


def said(name: str, parent: str | None, role: str, *parts: object) -> Entry:
    return entry(name, parent, "message", role, to_json({"role": role, "content": list(parts)}).decode())  # type: ignore[dict-item]


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[Entry], str | None]:
    entries: list[Entry] = []
    for number in range(draw(st.integers(0, 30))):
        ids = [None, *(each.id for each in entries)]
        goes_on = entries and draw(st.booleans())
        entries.append(entry(f"e{number}", entries[-1].id if goes_on else draw(st.sampled_from(ids))))
    return entries, draw(st.sampled_from([None, *(each.id for each in entries)]))


@given(trees())
def test_the_order_is_that_of_the_drawn_tree(tree: tuple[list[Entry], str | None]) -> None:
    plan, walk = plan_tree(*tree, fold=False), walk_tree(*tree)
    assert [run.entries[0].id for run in plan.runs] == [each.id for each in walk.entries]
    assert [run.branch.nesting for run in plan.runs] == walk.nesting
    assert [run.opens for run in plan.runs] == walk.opens
    assert (plan.active, len(plan.branches)) == (walk.active, walk.branches)


def test_a_stub_is_placed_as_its_entry_and_has_no_payload_of_its_own() -> None:
    entries = [said(f"e{n}", f"e{n - 1}" if n else None, "user", "Ünï" * n) for n in range(250)]
    entries[7] = replace(entries[7], extra='{"x":1}')
    taken = [*stubs(entries)]
    assert [whole(stub) for stub in taken] == entries
    assert {whole(entry) is entry for entry in entries} == {True}
    assert {stub.payload for stub in taken} == {""}
    assert taken[1].parent_id is taken[0].id, "a text is there once"
    outlines = [Outline.of(list(tree), "e9") for tree in (taken, entries)]
    assert [(o.depths, o.opens, o.active, o.place) for o in outlines[:1]] == [
        (o.depths, o.opens, o.active, o.place) for o in outlines[1:]
    ]


@given(trees())
def test_what_is_folded_is_what_descends_from_the_entry(tree: tuple[list[Entry], str | None]) -> None:
    entries, leaf = tree
    outline = Outline.of(entries, leaf)
    parents = {each.id: each.parent_id for each in entries}

    def descends(name: str, of: str) -> bool:
        at = parents[name]
        while at is not None and at != of:
            at = parents[at]
        return at is not None

    for each in entries:
        rows = rows_of(outline, lambda at: True, {each.id})
        shown = {outline.entries[row].id for row in rows if isinstance(row, int)}
        assert shown == {name for name in parents if not descends(name, each.id)}
        assert outline.has_below(outline.place[each.id]) == (each.id in parents.values())


@given(trees(), st.integers(1, 4))
def test_growing_at_the_leaf_gives_what_is_made_anew(tree: tuple[list[Entry], str | None], count: int) -> None:
    entries, leaf = tree
    new, last = [], leaf
    for number in range(count):
        new.append(entry(f"n{number}", last))
        last = f"n{number}"
    anew = Outline.of([*entries, *new], last)
    grown = Outline.of(entries, leaf).grown(new, last)
    if grown is not None:
        assert grown == anew


def test_it_grows_where_the_path_goes_on_at_the_end_and_nowhere_else() -> None:
    entries = [entry("a", None), entry("b", "a"), entry("c", "a")]
    assert Outline.of(entries[:2], "b").grown([entry("d", "b")], "d") is not None
    assert Outline.of(entries[:2], "a").grown([entry("d", "a")], "d") is None
    assert Outline.of(entries[:2], "b").grown([entry("d", "a")], "d") is None
    assert Outline.of(entries[:2], "b").grown([entry("d", "b")], "b") is None
    assert Outline.of([], None).grown([entry("d", None)], "d") is None


def test_the_five_views() -> None:
    call = {"type": "toolCall", "id": "c", "name": "t", "arguments": {}}
    entries = [
        said("ask", None, "user", {"type": "text", "text": "Hello"}),
        said("call", "ask", "assistant", call),
        said("result", "call", "toolResult", {"type": "text", "text": "done"}),
        said("answer", "result", "assistant", {"type": "text", "text": "Well"}, call),
        entry("model", "answer", "model_change"),
        entry("short", "model", "compaction", None, '{"summary":"s"}'),
        said("system", "short", "user", {"type": "text", "text": "<system-reminder>x</system-reminder>"}),
    ]
    outline = Outline.of(entries, "system")

    def seen(view: str, labels: tuple[str, ...] = ()) -> list[str]:
        test = shows(view, labels)  # type: ignore[arg-type]
        rows = rows_of(outline, lambda at: test(outline.entries[at]))
        return [outline.entries[row].id for row in rows if isinstance(row, int)]

    assert seen("default") == ["ask", "call", "result", "answer", "short", "system"]
    assert seen("no tools") == ["ask", "answer", "short", "system"]
    assert seen("prompts") == ["ask"]
    assert seen("labelled") == []
    assert seen("all") == [each.id for each in entries]
    assert [seen(view, ("model",)) for view in VIEWS] == [
        ["ask", "call", "result", "answer", "model", "short", "system"],
        ["ask", "answer", "model", "short", "system"],
        ["ask"],
        ["model"],
        [each.id for each in entries],
    ]


def test_tasks_and_forks_stand_below_the_entry_where_they_began() -> None:
    entries = [entry("a", None), entry("b", "a"), entry("c", "b")]
    fork = SessionInfo("fork", kind="fork", forked_from_session="s", forked_from_entry="b")
    links = [TaskLink("s", 0, "t", "task", "b"), TaskLink("s", 1, "u", "gone", "a"), TaskLink("s", 2, "v", "old", None)]
    task = SessionInfo("task", kind="task")
    begun = begun_at([fork], links, {"task": task})
    outline = Outline.of(entries, "c")
    rows = rows_of(outline, lambda at: True, (), begun)
    assert rows == [
        0, Begun("a", "gone", None, links[1]), 1, Begun("b", "task", task, links[0]), Begun("b", "fork", fork), 2,
    ]  # fmt: skip
    assert rows_of(outline, lambda at: True, {"a"}, begun) == [0]


def test_an_entry_is_read_part_by_part_and_texts_of_programs_are_folded() -> None:
    edit = {"type": "toolCall", "name": "Edit", "arguments": {"file_path": "a", "old_string": "x", "new_string": "y"}}
    calls = said("a", None, "assistant", {"type": "thinking", "thinking": "hm"}, edit)
    texts = [getattr(part, "plain", "") for part in body(calls, str)]
    assert texts == ["[thinking]", "hm", "[Edit a]", "-x\n+y"]
    asked = said("q", None, "user", {"type": "text", "text": "<system-reminder>x</system-reminder>\nFix it"})
    folded = next(iter(body(asked, str)))
    assert getattr(folded, "plain", "") == "[system reminder, 36 characters; w shows it]"
    whole = ["[system reminder]", "<system-reminder>x</system-reminder>", "Fix it"]
    assert [getattr(part, "plain", "") for part in body(asked, str, markdown=False)] == whole
