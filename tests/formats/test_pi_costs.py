"""Costs exported to a pi file and imported again: known stays known, unknown stays unknown, free stays free."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import flue_py

TOKENS = {"input": 1000, "output": 1000}
PRICES = {"dear": [4105, 4105], "gratis": [0.0, 0.0]}
ANSWERS: dict[str, dict[str, Any]] = {
    "reported": {"model": "own", "usage": {**TOKENS, "cost": {"input": 1.0, "output": 0.5, "total": 1.5}}},
    "priced": {"model": "dear", "usage": TOKENS},
    "unknown": {"model": "nameless", "usage": TOKENS},
    "free": {"model": "own", "usage": {**TOKENS, "cost": {"total": 0}}},
    "priced at nothing": {"model": "gratis", "usage": TOKENS},
    "without usage": {"model": "nameless"},
    "total only": {"model": "own", "usage": {"output": 5, "cost": {"total": 0.25}}},
}


async def opened(store: flue_py.Store, session_id: str) -> flue_py.Session:
    """Return a session that was imported."""
    session = await store.get_session(session_id)
    assert session is not None
    return session


async def went_through_pi(folder: Path, messages: dict[str, dict[str, Any]]) -> tuple[Any, Any, Any, Any]:
    """Return the costs and messages by name, before and after, and what was in the file and in the notes."""
    async with flue_py.open(":memory:", prices=PRICES) as store:
        session = await store.create_session()
        ids = {}
        for name, fields in messages.items():
            answer = {"role": "assistant", "content": name, "provider": "p", **fields}
            ids[name] = (await session.append_message(answer)).entry_id
        before = await session.money.entry_costs()
        exported = await flue_py.export_session(session, "pi")
        said = {name: (await session.get_entry(ids[name])).fields for name in messages}  # type: ignore[union-attr]
    file = folder / "out.jsonl"
    file.write_text(exported.text)
    async with flue_py.open(":memory:", prices=False) as store:
        await flue_py.import_file(store, file)
        session = await opened(store, session.id)
        costs = await session.money.entry_costs()
        back = {name: (await session.get_entry(ids[name])).fields for name in messages}  # type: ignore[union-attr]
        twice = (await flue_py.export_session(session, "pi")).text
    rows = {row["message"]["content"][0]["text"]: row for row in map(json.loads, file.read_text().splitlines()[1:])}
    assert [json.loads(line) for line in twice.splitlines()] == [
        json.loads(line) for line in exported.text.splitlines()
    ]
    known = {
        name: (
            before[ids[name]].usd if ids[name] in before else None,
            costs[ids[name]].usd if ids[name] in costs else None,
        )
        for name in messages
    }
    return known, (said, back), rows, [str(note) for note in exported.notes]


async def test_every_cost_comes_back_as_it_was_known(tmp_path: Path) -> None:
    known, _, rows, notes = await went_through_pi(tmp_path, ANSWERS)
    assert known == {
        "reported": (Decimal("1.5"), Decimal("1.5")),
        "priced": (Decimal("8.21"), Decimal("8.21")),
        "unknown": (None, None),
        "free": (Decimal(0), Decimal(0)),
        "priced at nothing": (Decimal(0), Decimal(0)),
        "without usage": (None, None),
        "total only": (Decimal("0.25"), Decimal("0.25")),
    }
    assert rows["priced"]["message"]["usage"]["cost"]["total"] == 8.21
    assert notes == [
        "a cost that the ledger has by a price stands as one that was reported (2 times)",
        "usage or a cost that was not reported stands as zeros, which pi asks for (2 times)",
    ]


async def test_pi_finds_every_number_it_asks_for(tmp_path: Path) -> None:
    _, _, rows, _ = await went_through_pi(tmp_path, ANSWERS)
    for row in rows.values():
        usage = row["message"]["usage"]
        numbers = [usage[name] for name in ("input", "output", "cacheRead", "cacheWrite", "totalTokens")]
        numbers.append(usage["cost"]["total"])
        assert all(isinstance(number, (int, float)) for number in numbers)


async def test_parts_of_a_cost_add_up_to_it_and_are_left_out_where_they_are_unknown(tmp_path: Path) -> None:
    _, _, rows, _ = await went_through_pi(tmp_path, ANSWERS)
    none = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}
    assert {name: row["message"]["usage"]["cost"] for name, row in rows.items()} == {
        "reported": {**none, "input": 1.0, "output": 0.5, "total": 1.5},
        "priced": {**none, "input": 4.105, "output": 4.105, "total": 8.21},
        "unknown": none,
        "free": none,
        "priced at nothing": none,
        "without usage": none,
        "total only": {"total": 0.25},
    }


async def test_parts_of_a_cost_are_those_of_the_price_that_it_was_worked_out_by(tmp_path: Path) -> None:
    dear = {"dear": {"input": 3, "output": 15, "cacheRead": 0.3, "cacheWrite": 3.75, "cacheWrite1h": 6, "webSearch": 9}}
    usage = {"input": 7, "output": 11, "cacheRead": 13, "cacheWrite": 17, "cacheWrite1h": 5, "webSearchRequests": 2}
    async with flue_py.open(tmp_path / "db", prices=dear) as store:
        session = await store.create_session()
        await session.append_message({"role": "assistant", "content": "", "model": "dear", "usage": usage})
    costs = []
    for prices in (dear, PRICES, False):
        async with flue_py.open(tmp_path / "db", prices=prices) as store:
            text = (await flue_py.export_session(await opened(store, session.id), "pi")).text
        costs.append(json.loads(text.splitlines()[1])["message"]["usage"]["cost"])
    by_price, *others = ({name: Decimal(str(part)) for name, part in cost.items()} for cost in costs)
    total = by_price.pop("total")
    assert by_price["output"] == Decimal("0.000165")
    assert by_price["cacheRead"] == Decimal("0.0000039")
    assert by_price["cacheWrite"] == Decimal("0.000075")
    assert sum(by_price.values()) == total
    assert others == [{"total": total}, {"total": total}]


async def test_what_was_put_in_for_pi_is_not_there_when_the_file_comes_back(tmp_path: Path) -> None:
    _, (said, back), _, _ = await went_through_pi(tmp_path, ANSWERS)
    for name in ("reported", "unknown", "free", "without usage", "total only"):
        assert back[name] == {**said[name], "content": [{"type": "text", "text": name}]}


async def test_equal_answers_are_paid_for_once_each(tmp_path: Path) -> None:
    async with flue_py.open(":memory:", prices=False) as store:
        session = await store.create_session()
        for _ in range(3):
            await session.append_message({"role": "assistant", "content": "ok", "usage": {"input": 5}})
        text = (await flue_py.export_session(session, "pi")).text
    file = tmp_path / "out.jsonl"
    file.write_text(text)
    async with flue_py.open(":memory:", prices=False) as store:
        await flue_py.import_file(store, file)
        assert (await store.usage()).total.calls == 3


async def test_a_compaction_that_was_priced_goes_out_with_its_price(tmp_path: Path) -> None:
    async with flue_py.open(":memory:", prices=PRICES) as store:
        session = await store.create_session()
        kept = await session.append_message({"role": "user", "content": "hi"})
        usage = {**TOKENS, "model": "dear", "provider": "p"}
        done = await session.append_compaction(
            "So far.", first_kept_entry_id=kept.entry_id, tokens_before=9, usage=usage
        )
        exported = await flue_py.export_session(session, "pi")
    file = tmp_path / "out.jsonl"
    file.write_text(exported.text)
    async with flue_py.open(":memory:", prices=False) as store:
        await flue_py.import_file(store, file)
        costs = await (await opened(store, session.id)).money.entry_costs()
    assert costs[done.entry_id].usd == Decimal("8.21")
    assert [str(note) for note in exported.notes] == [
        "a cost that the ledger has by a price stands as one that was reported"
    ]


async def test_marks_of_strangers_in_a_row_take_nothing_out_of_a_message(tmp_path: Path) -> None:
    header = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-05T10:00:00.000Z", "cwd": "/"}
    row = {"type": "message", "id": "a", "parentId": None, "timestamp": "2026-01-05T10:00:01.000Z"}
    message = {"role": "assistant", "content": [{"type": "text", "text": "hi"}], "timestamp": 1}
    for mark in ({"unset": ["role", "content", 1], "set": {"role": "user"}}, {"unset": 1, "set": []}, [], 1, None):
        file = tmp_path / "in.jsonl"
        file.write_text("\n".join(map(json.dumps, [header, {**row, "message": message, "flue_py": mark}])))
        async with flue_py.open(":memory:") as store:
            report = await flue_py.import_file(store, file)
            entry = await (await opened(store, "s")).get_entry("a")
        assert entry is not None
        assert (entry.fields, report.skipped) == (message, ())
