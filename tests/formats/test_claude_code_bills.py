"""Claude Code transcripts: which session paid for what, and what the model was sent beside prompts and answers."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any, NoReturn

import pytest

import flue_py
from flue_py.sessions.store import Store
from flue_py.transfer import imports
from tests.formats.transcripts import DATA, as_lines, import_lines
from tests.values import existing

SOURCE, FORK = "5b1e0000-0000-4000-8000-00000000000a", "5b1e0000-0000-4000-8000-00000000000b"
MODEL = "claude-sonnet-4-6"
Rows = list[dict[str, Any]]


def row(kind: str, uuid: str, parent: str | None, second: int = 0, **fields: Any) -> dict[str, Any]:
    fixed = {"type": kind, "uuid": uuid, "parentUuid": parent, "isSidechain": False, "sessionId": SOURCE, "cwd": "/w"}
    return {**fixed, "timestamp": f"2026-09-01T10:00:{second:02d}.000Z", **fields}


def user(uuid: str, parent: str | None, content: Any, second: int = 0, **fields: Any) -> dict[str, Any]:
    return row("user", uuid, parent, second, message={"role": "user", "content": content}, **fields)


def answer(
    uuid: str, parent: str | None, words: Any, tokens: tuple[int, int], second: int = 0, name: str = "", **fields: Any
) -> dict[str, Any]:
    content = [{"type": "text", "text": words} if isinstance(words, str) else words]
    usage = {"input_tokens": tokens[0], "output_tokens": tokens[1]}
    message = {"id": name or f"msg_{uuid}", "role": "assistant", "model": MODEL, "content": content, "usage": usage}
    return row("assistant", uuid, parent, second, message=message, **fields)


def call(name: str, tool: str = "Bash") -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": tool, "input": {}}


def result(uuid: str, parent: str, name: str, second: int = 0) -> dict[str, Any]:
    return user(uuid, parent, [{"type": "tool_result", "tool_use_id": name, "content": "ok"}], second)


def state(calls: int, model: str = MODEL) -> dict[str, Any]:
    counts = {"inputTokens": 100 * calls, "outputTokens": 10 * calls, "cacheReadInputTokens": 0}
    return {"type": "cost-state", "sessionId": SOURCE, "totalCostUSD": 0.1, "modelUsage": {model: counts}}


def boundary(uuid: str, after: str) -> Rows:
    about = {"trigger": "manual", "preTokens": 100}
    fields = {"logicalParentUuid": after, "subtype": "compact_boundary", "compactMetadata": about}
    return [row("system", uuid, None, **fields), user(f"{uuid}s", uuid, "What was said.", isCompactSummary=True)]


async def imported(store: Store, folder: Path, rows: Rows, name: str = SOURCE) -> Any:
    return await import_lines(store, folder, as_lines(rows), f"{name}.jsonl", finish=True)


async def paid(store: Store, session_id: str) -> tuple[int, int, int]:
    session = existing(await store.get_session(session_id))
    total = (await store.usage(session)).total
    return total.calls, total.input, total.output


async def context(store: Store, session_id: str = SOURCE) -> list[tuple[str, Any]]:
    session = existing(await store.get_session(session_id))
    return [(message["role"], message["content"]) for message in await session.build_context()]


def dialog(*answers: Any, **fields: Any) -> Rows:
    """Return answers (words or a call, and tokens), each to a prompt or to the result of the call before."""
    rows: Rows = []
    before: Any = None
    for number, (words, tokens) in enumerate(answers):
        above = rows[-1]["uuid"] if rows else None
        if isinstance(before, dict):
            rows.append(result(f"r{number}", above, before["id"], 2 * number))
        else:
            rows.append(user(f"u{number}", above, f"prompt {number}", 2 * number))
        made = answer(f"a{number}", rows[-1]["uuid"], words, tokens, 2 * number + 1, **fields)
        rows.append({**made, **({"requestId": f"req_{number}"} if fields.get("requestId") else {})})
        before = words
    return rows


async def test_an_answer_is_counted_once_whatever_a_gateway_calls_it(tmp_path: Path) -> None:
    real = "msg_01ABCDEFGHIJKLMNOPQRSTUV"
    two = [user("u1", None, "go"), answer("a1", "u1", call("t1"), (100, 3), 1, real), result("r1", "a1", "t1", 2)]
    two.append(answer("a2", "a1", call("t2"), (100, 9), 3, real))
    resumed = [*two, answer("c1", "u1", call("t1"), (100, 9), 1, real), result("c2", "c1", "t1", 2)]
    relayed = [user("u1", None, "go"), *(answer(uuid, "u1", uuid, (100, 3), 1, "relay") for uuid in ("a1", "c1"))]
    relayed.insert(2, user("u2", "a1", "on", 2))
    cases: list[tuple[str, Rows, tuple[int, int, int], int]] = [
        ("other prompts", dialog(("one", (100, 1)), ("two", (200, 2)), name="relay"), (2, 300, 3), 4),
        ("the same tokens", dialog(("one", (100, 1)), ("two", (100, 1)), name="relay"), (2, 200, 2), 4),
        ("a tool", dialog((call("t"), (100, 1)), ("two", (200, 2)), name="relay"), (2, 300, 3), 4),
        ("requests", dialog((call("t"), (100, 1)), ("two", (100, 2)), name="x", requestId="y"), (2, 200, 3), 4),
        ("an id as of the provider", dialog((call("t"), (100, 1)), ("two", (200, 2)), name=real), (2, 300, 3), 4),
        ("one real answer", two, (1, 100, 9), 3),
        ("the rows of a resumed session once more", resumed, (1, 100, 9), 3),
        ("those of a relay", relayed, (1, 100, 3), 2),
        ("no times", [{**row, "timestamp": None} for row in dialog(("one", (100, 1)), ("two", (200, 2)), name="relay")],
         (2, 300, 3), 4),
        ("cut", [*two, answer("c2", "u1", call("t2"), (100, 9), 3, real)], (1, 100, 9), 2),
    ]  # fmt: skip
    wrong = []
    for what, rows, expected, messages in cases:
        async with flue_py.open(":memory:", prices=False) as store:
            await imported(store, tmp_path, rows)
            got, length = await paid(store, SOURCE), len(await context(store))
            wrong += [] if (got, length) == (expected, messages) else [f"{what}: {got}, {length} messages"]
    assert not wrong


async def test_two_sessions_behind_a_gateway_pay_for_their_own(tmp_path: Path) -> None:
    async with flue_py.open(":memory:", prices=False) as store:
        for session_id, tokens in ((SOURCE, 100), (FORK, 300)):
            rows = dialog(("one", (tokens, 1)), ("two", (tokens + 1, 1)), name="relay", sessionId=session_id)
            await imported(store, tmp_path, [{**each, "sessionId": session_id} for each in rows], session_id)
        assert (await paid(store, SOURCE), await paid(store, FORK)) == ((2, 201, 2), (2, 601, 2))


async def test_the_session_that_asked_pays_whatever_is_imported_first(tmp_path: Path) -> None:
    source = dialog(("one", (100, 1)), ("two", (200, 2)))
    repeated = [{**each, "sessionId": FORK, "requestSessionId": SOURCE} for each in source]
    own = [user("u9", "a1", "on", sessionId=FORK), answer("a9", "u9", "three", (300, 3), sessionId=FORK)]
    fork = [*repeated, *own]
    files = {SOURCE: source, FORK: fork}
    wrong = []
    for order in ((SOURCE, FORK), (FORK, SOURCE), (FORK,), (FORK, SOURCE, FORK, SOURCE)):
        async with flue_py.open(":memory:", prices=False) as store:
            for name in order:
                await imported(store, tmp_path, files[name], name)
            got = await paid(store, SOURCE), await paid(store, FORK), len(await context(store, FORK))
            entries = len(await context(store))
            wrong += [] if got == ((2, 300, 3), (1, 300, 3), 6) else [(order, got)]
            wrong += [] if entries == (4 if SOURCE in order else 0) else [(order, entries)]
            problems = (await store.verify()).problems
            wrong += [(order, problems)] if problems else []
    assert not wrong


@pytest.mark.parametrize(("own", "copied"), [(5, 50), (50, 5)])
async def test_a_copy_with_more_tokens_of_an_answer_is_its_bill_whatever_is_imported_first(
    tmp_path: Path, own: int, copied: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    main = dialog(("one", (100, own)), ("two", (200, 2)))
    agent = {"isSidechain": True, "agentId": "aside_question-1"}
    side = [{**each, **agent} for each in dialog(("one", (100, copied)))]
    side += [user("u8", "a0", "why", **agent), answer("a8", "u8", "so", (300, 3), **agent)]
    names, task = {SOURCE: main, "agent-aside_question-1": side}, f"{SOURCE}:aside_question-1"
    for order, bills in ((names, ((2, 300, 52), (1, 300, 3))), ([*names][::-1], ((1, 200, 2), (2, 400, 53)))):
        async with flue_py.open(":memory:", prices=False) as store:
            for name in order:
                with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
                    patch.setattr(imports, "book_calls", die)
                    await imported(store, tmp_path, names[name], name)
                assert (await imported(store, tmp_path, names[name], name)).call_conflicts == ()
            assert (await paid(store, SOURCE), await paid(store, task)) == bills
            assert not (await imported(store, tmp_path, side, "agent-aside_question-1")).changed
            assert (await store.verify()).problems == []


async def test_a_fork_has_the_bill_where_the_session_that_asked_cannot(tmp_path: Path) -> None:
    asked = dialog(("one", (100, 1)), ("two", (200, 2)))
    own = [user("u9", "a1", "on", sessionId=FORK), answer("a9", "u9", "three", (300, 3), sessionId=FORK)]
    fork = [*({**each, "sessionId": FORK, "requestSessionId": SOURCE} for each in asked), *own]
    files = {"part": (SOURCE, asked[:2]), "source": (SOURCE, asked), "fork": (FORK, fork)}
    # The steps, and in the end: what the source has (None: it is not there), what the fork has, and all calls.
    cases: list[tuple[str, tuple[int, int, int] | None, tuple[int, int, int] | None, int]] = [
        ("source u1, fork u2, fork u2", (2, 300, 3), (1, 300, 3), 3),
        ("part u1, fork u2, fork u2", (1, 100, 1), (2, 500, 5), 3),
        ("fork u2, source u1", (2, 300, 3), (1, 300, 3), 3),
        ("fork u2, part u1, fork u2, source u1, fork u2", (2, 300, 3), (1, 300, 3), 3),
        ("part u1, rm source, fork u1, fork u1", None, (2, 500, 5), 3),
        ("part u1, rm source, fork u1, source u1", None, (2, 500, 5), 3),
        ("part u1, rm source, fork u2", (2, 300, 3), (1, 300, 3), 4),
        ("source u1, rm source, source u2", (2, 300, 3), None, 4),
        ("source u1, rm source, source u2, rm source, source u1", None, None, 4),
        ("fork u1, rm source, fork u1", None, (1, 300, 3), 3),
        ("fork u1, rm source, source u1", (2, 300, 3), (1, 300, 3), 3),
        ("fork u1, rm source, source u1, rm source, source u1", None, (1, 300, 3), 3),
    ]
    wrong = []
    for (steps, source_paid, fork_paid, calls), narrowed in product(cases, (False, True)):
        async with flue_py.open(":memory:", prices=False) as store:
            for step in steps.split(", "):
                name, scope = step.split()
                if name == "rm":
                    await store.delete_session_tree(SOURCE)
                    continue
                file, rows = files[name]
                into, named = (store.in_scope(scope), None) if narrowed else (store, scope)
                await import_lines(into, tmp_path, as_lines(rows), f"{file}.jsonl", finish=True, scope=named)
            there = [await store.get_session(name) for name in (SOURCE, FORK)]
            got = [None if session is None else await paid(store, session.id) for session in there]
            counted = (await store.usage()).total.calls
            wrong += [] if (got, counted) == ([source_paid, fork_paid], calls) else [(steps, got, counted)]
            problems = (await store.verify()).problems
            wrong += [(steps, problems)] if problems else []
    assert not wrong


async def test_an_agent_that_stands_in_progress_rows_alone_is_paid_once(tmp_path: Path) -> None:
    shown = [
        {"type": "assistant", "uuid": "s1", "timestamp": "2026-09-01T10:00:05.000Z", "requestId": "req_1",
         "message": answer("s1", None, call("x"), (50, output), name="msg_s1")["message"]}
        for output in (1, 5)
    ]  # fmt: skip
    main = [user("u1", None, "go"), answer("a1", "u1", call("t1", "Task"), (100, 1))]
    main += [
        row("progress", f"p{number}", "a1", data={"type": "agent_progress", "agentId": "g1", "message": each})
        for number, each in enumerate(shown)
    ]
    main += [result("r1", "a1", "t1"), answer("a2", "r1", "done", (200, 2))]
    agent = [
        user("su", None, "go", isSidechain=True, agentId="g1"),
        {**answer("s2", "su", "fine", (50, 5), name="msg_s1"), "isSidechain": True, "agentId": "g1",
         "requestId": "req_1"},
    ]  # fmt: skip
    files = {SOURCE: main, "agent-g1": agent}
    wrong = []
    for order in ((SOURCE,), (SOURCE, "agent-g1"), ("agent-g1", SOURCE), (SOURCE, "agent-g1", SOURCE)):
        async with flue_py.open(":memory:", prices=False) as store:
            for name in order:
                await imported(store, tmp_path, files[name], name)
            got = await paid(store, SOURCE), await paid(store, f"{SOURCE}:g1")
            wrong += [] if got == ((2, 300, 3), (1, 50, 5)) else [(order, got)]
    assert not wrong


async def test_what_the_program_counted_beyond_its_answers_is_in_the_bill_or_named(tmp_path: Path) -> None:
    start = [user("u1", None, "one"), answer("a1", "u1", "first", (100, 10))]
    compacted = boundary("b", "a1")
    end = [user("u2", "bs", "two"), answer("a2", "u2", "second", (100, 10))]
    agent = [user("u1", None, "one"), answer("a1", "u1", call("t1", "Agent"), (100, 10))]
    tool = [result("r1", "a1", "t1")]
    repeated = [{**each, "requestSessionId": FORK} for each in start]
    cases: list[tuple[str, Rows, Sequence[int], Sequence[str]]] = [
        ("nothing else", [*start, state(1), user("u2", "a1", "x")], (1, 100, 10), ["turn"]),
        ("a compaction", [*start, state(1), *compacted, state(3), *end, state(4)], (3, 400, 40),
         ["compaction", "turn"]),
        ("counted later", [*start, *compacted, *end, state(4)], (3, 400, 40), ["compaction", "turn"]),
        ("a title", [*start, state(2)], (2, 200, 20), ["background", "turn"]),
        ("a variant", [*start, state(1, f"{MODEL}[1m]")], (1, 100, 10), ["turn"]),
        ("begun anew", [*start, state(1), *end, state(1)], (2, 200, 20), ["turn"]),
        ("an agent meanwhile", [*agent, *tool, *compacted, state(9)], (2, 100, 10), ["compaction", "turn"]),
        ("an agent alone", [*agent, *tool, state(9)], (1, 100, 10), ["turn"]),
        ("a fork", [*repeated, *compacted, *end, state(1)], (1, 100, 10), ["turn"]),
    ]  # fmt: skip
    wrong = []
    for what, rows, expected, purposes in cases:
        async with flue_py.open(":memory:", prices=False) as store:
            for _ in range(2):
                report = await imported(store, tmp_path, rows)
            session = existing(await store.get_session(SOURCE))
            ledger = await store.usage(session, group_by=("purpose",))
            got = await paid(store, SOURCE), sorted(str(each.group["purpose"]) for each in ledger.rows)
            wrong += [] if got == (tuple(expected), list(purposes)) else [f"{what}: {got}"]
            named = any("is booked as a call whose usage is unknown" in note.text for note in report.repaired)
            wrong += [] if named == (what == "an agent meanwhile") else [f"{what}: named {named}"]
            wrong += [f"{what}: {report.unknown_kinds}"] if report.unknown_kinds else []
    assert not wrong


async def test_what_was_sent_is_in_the_context_and_what_was_not_is_beside_it(tmp_path: Path) -> None:
    def typed(prompt: Any, **fields: Any) -> dict[str, Any]:
        return row("attachment", "q1", "r1", attachment={"type": "queued_command", "prompt": prompt, **fields})

    queue = {"type": "queue-operation", "operation": "enqueue", "content": "tabs", "sessionId": SOURCE}
    text = [{"type": "text", "text": "tabs"}]
    failed = {**answer("q1", "r1", "API Error: 529", (0, 0)), "isApiErrorMessage": True, "error": "overloaded"}
    failed["message"]["model"] = "<synthetic>"
    cases: list[tuple[str, dict[str, Any], list[tuple[str, Any]]]] = [
        ("typed", typed("tabs", commandMode="prompt"), [("user", "tabs")]),
        ("typed, in parts", typed(text), [("user", text)]),
        ("of a task", typed("<task-notification>", commandMode="task-notification"), [("user", "<task-notification>")]),
        ("typed, both", {**typed("tabs"), "rendered": "<r>tabs</r>"}, [("user", "tabs")]),
        ("rendered", row("attachment", "q1", "r1", attachment={"type": "date"}, rendered="today", renderedRole="user"),
         [("user", "today")]),
        ("rendered inside", row("attachment", "q1", "r1", attachment={"type": "date", "rendered": "today"}),
         [("user", "today")]),
        ("the system's", row("attachment", "q1", "r1", attachment={}, rendered="You are", renderedRole="system"),
         [("system", "You are")]),
        ("not sent", row("attachment", "q1", "r1", attachment={"type": "date"}), []),
        ("a failed call", failed, []),
    ]  # fmt: skip
    wrong = []
    for what, between, expected in cases:
        rows = [user("u1", None, "go"), answer("a1", "u1", call("t1"), (9, 1)), queue, result("r1", "a1", "t1")]
        rows += [between, answer("a2", "q1", "done", (19, 2))]
        async with flue_py.open(":memory:", prices=False) as store:
            await imported(store, tmp_path, rows)
            got = (await context(store))[3:-1]
            wrong += [] if got == expected else [f"{what}: {got}"]
            session = existing(await store.get_session(SOURCE))
            entry = await session.get_entry("q1")
            stored = None if entry is None else json.dumps(entry.data)
            wrong += [] if stored and (what != "a failed call" or "API Error: 529" in stored) else [f"{what}: {stored}"]
    assert not wrong


async def test_a_row_whose_parent_is_lost_stands_below_the_row_before(tmp_path: Path) -> None:
    lost = "11111111-0000-4000-8000-000000000000"
    before = [user("u1", None, "one"), answer("a1", "u1", "first", (9, 1))]
    late = [user("x", "a1", "late"), answer("y", "x", "last", (9, 1))]
    cases: list[tuple[str, Rows, int]] = [
        ("a prompt", [user("u2", lost, "two"), answer("a2", "u2", "second", (9, 1))], 4),
        ("an answer", [user("u2", "a1", "two"), answer("a2", lost, "second", (9, 1))], 4),
        ("a result", [user("u2", "a1", "two"), result("r2", lost, "t9"), answer("a2", "r2", "second", (9, 1))], 5),
        ("a row beside", [row("progress", "p1", lost), user("u2", "p1", "two"), answer("a2", "u2", "x", (9, 1))], 4),
        ("a row that comes later", [user("u2", "x", "two"), answer("a2", "u2", "second", (9, 1)), *late], 4),
        ("itself", [user("u2", "u2", "two"), answer("a2", "u2", "second", (9, 1))], 4),
    ]
    wrong = []
    for what, after, messages in cases:
        async with flue_py.open(":memory:", prices=False) as store:
            report = await imported(store, tmp_path, [*before, *after])
            notes = [note.text for note in report.repaired]
            session = existing(await store.get_session(SOURCE))
            got = len(await session.build_context(leaf="a2"))
            if got != messages or not any("put below the row before" in note for note in notes):
                wrong.append(f"{what}: {got} messages, {notes}")
    assert not wrong


async def test_the_project_is_that_of_the_first_row_that_names_one(tmp_path: Path) -> None:
    first = {"type": "queue-operation", "operation": "enqueue", "content": "go", "sessionId": SOURCE}
    async with flue_py.open(":memory:", prices=False) as store:
        await imported(store, tmp_path, [first, *dialog(("one", (9, 1))), user("u5", "a0", "x", cwd="/elsewhere")])
        session = existing(await store.get_session(SOURCE))
        assert session.info.cwd == "/w"


LIST: dict[str, Any] = {
    "claude-haiku-5-5": [0.1, 0.5, 0.01, 0.125, 0.2],
    "claude-opus-5": [5, 25, 0.5, 6.25, 10],
    "claude-opus-5 speed=fast": [10, 50, 1, 12.5, 20],
}
KINDS = ("input", "output", "cacheRead", "cacheWrite", "cacheWrite1h")


async def test_the_bill_of_real_sessions_is_what_the_program_says_whatever_is_imported_first(tmp_path: Path) -> None:
    files: dict[str, Rows] = json.loads(gzip.decompress((DATA / "claude_code/bills-2.1.332.json.gz").read_bytes()))
    source, agent, fork, other = files
    said = {
        name: [Decimal(str(row["totalCostUSD"])) for row in rows if row["type"] == "cost-state"]
        for name, rows in files.items()
    }
    # An agent, a compaction, and a fork, which goes on from what had been paid then; an advisor, searches, a fast call.
    forked = said[fork][-1] - said[source][-2]
    want = {source: said[source][-1], fork: forked, other: said[other][-1]}
    prices = {name: {**dict(zip(KINDS, each, strict=True)), "webSearch": 10_000} for name, each in LIST.items()}
    wrong = []
    for order in ([source, agent, fork, other], [other, fork, agent, source], [agent, source, fork, other]):
        async with flue_py.open(":memory:", prices=prices) as store:
            for name in order:
                path = tmp_path / Path(name).name
                path.write_bytes(b"".join(as_lines(files[name])))
                report = await flue_py.import_file(store, path, finish=True)
                wrong += [(order, str(note)) for note in report.repaired]
            got = {}
            for name in want:
                session = existing(await store.get_session(name.removesuffix(".jsonl")))
                cost = (await store.usage(session, tasks=True)).total.cost
                got[name] = None if cost is None else round(cost, 9)
                wrong += [] if session.info.cwd == "/home/dev/demo" else [(order, name, session.info.cwd)]
            total = (await store.usage()).total
            if got != {name: round(cost, 9) for name, cost in want.items()} or total.unpriced_calls:
                wrong.append((order, got, want))
            assert (await store.verify()).problems == []
    assert wrong == []


async def test_what_the_program_charged_for_a_compaction_alone_is_its_cost(tmp_path: Path) -> None:
    def charged(calls: int, dollars: float, *, unknown: bool = False) -> dict[str, Any]:
        made = state(calls)
        made["modelUsage"][MODEL]["costUSD"] = dollars
        return {**made, "hasUnknownModelCost": unknown}

    asked = dialog(("one", (100, 10)))
    more = [user("u9", "b1s", "on"), answer("a9", "u9", "two", (100, 10), 9)]
    wrong = []
    for what, rows, cost in (
        ("alone", [charged(1, 0.1), *boundary("b1", "a0"), charged(2, 0.30000000000000004)], "0.2"),
        ("beside an answer", [charged(1, 0.1), *boundary("b1", "a0"), *more, charged(3, 0.3)], None),
        (
            "a model whose price is unknown",
            [charged(1, 0.1), *boundary("b1", "a0"), charged(2, 0.3, unknown=True)],
            None,
        ),
        ("began anew", [charged(1, 0.1), *boundary("b1", "a0"), charged(2, 0.01)], None),
    ):
        async with flue_py.open(":memory:", prices=False) as store:
            await imported(store, tmp_path, [*asked, *rows])
            found = (await store.usage(group_by=["purpose"])).rows
            made = {row.group["purpose"]: (row.input, row.cost) for row in found}
            if made["compaction"] != (100, None if cost is None else Decimal(cost)):
                wrong.append((what, made))
    assert wrong == []


async def test_what_a_compaction_cost_is_known_as_soon_as_no_agent_works(tmp_path: Path) -> None:
    notification = "<task-notification>\n<task-id>x</task-id>\n<tool-use-id>t</tool-use-id>\n</task-notification>"
    launched = {"isAsync": True, "status": "async_launched", "agentId": "x"}
    asked = [user("u1", None, "one"), answer("a1", "u1", call("t", "Agent"), (100, 10), 1)]
    ends: list[tuple[str, Rows, bool]] = [
        ("its result", [{**result("r1", "a1", "t"), "toolUseResult": {"status": "completed", "agentId": "x"}}], True),
        ("works in the background", [{**result("r1", "a1", "t"), "toolUseResult": launched}], False),
        ("was told of", [
            {**result("r1", "a1", "t"), "toolUseResult": launched},
            user("n1", "r1", notification, 2, origin={"kind": "task-notification"}),
        ], True),
        ("is in the queue", [
            {**result("r1", "a1", "t"), "toolUseResult": launched},
            {"type": "queue-operation", "operation": "enqueue", "sessionId": SOURCE, "content": notification},
        ], True),
        ("a person says so", [
            {**result("r1", "a1", "t"), "toolUseResult": launched}, user("n1", "r1", notification, 2),
        ], False),
    ]  # fmt: skip
    wrong = []
    for what, rows, is_known in ends:
        # The agent's own calls are in the first state, and those of the compaction in the second.
        file = [*asked, *rows, state(3), *boundary("b1", "r1"), state(4)]
        async with flue_py.open(":memory:", prices=False) as store:
            await imported(store, tmp_path, file)
            total = (await store.usage(group_by=["purpose"])).rows
            made = {row.group["purpose"]: (row.unknown_calls, row.input) for row in total}
            wrong += [] if made["compaction"] == ((0, 100) if is_known else (1, 0)) else [(what, made)]
    assert wrong == []
