"""What a session's compactions lost, and recalling it, on every database."""

from __future__ import annotations

import json
from typing import Any

from flue_py import EntryNotFound, InvalidArgument, Session, Store
from flue_py.compaction import CompactionSettings
from flue_py.core.json import JsonObject
from tests.checks import raises
from tests.sessions.talk import answer, user
from tests.values import existing

SETTINGS = CompactionSettings(keep_recent_tokens=40)


async def talk(session: Session, number: int) -> list[str]:
    asked = [
        user(f"Change part_{number} of src/part{number}.py. Never touch lib/other{number}.py! " + "so " * 60),
        answer(f"I decided to rewrite it because part_{number} is slow. " + "and " * 60),
    ]
    return list((await session.append_messages(asked)).entry_ids)


async def compacted(session: Session) -> str:
    done = await session.compact(mode="window", settings=SETTINGS)
    assert done.entry_id is not None
    return done.entry_id


async def test_without_a_compaction_there_is_nothing_to_report(session: Session) -> None:
    await talk(session, 0)
    assert await session.compactions.loss_report() is None
    assert (await session.compactions.recall(None, "part_0")).compaction_id is None
    assert (await session.compactions.recall(None, "part_0")).hits == ()


async def test_a_window_loses_what_it_drops_and_recall_finds_it(session: Session, store: Store) -> None:
    ids = [entry for number in range(4) for entry in await talk(session, number)]
    compaction = await compacted(session)
    report = existing(await session.compactions.loss_report())
    assert report.compaction_id == compaction
    kept = [item.entry_id for item in await session.build_context_entries()]
    assert [*report.entry_ids, *kept] == ids
    lost = {fact.text: fact for fact in report.lost}
    assert lost["src/part0.py"].entry_ids == (ids[0],)
    assert lost["part_0"].entry_ids == tuple(ids[:2])
    assert "Never touch lib/other0.py!" in lost
    assert "part_3" not in lost
    for fact in report.lost:
        found = await session.compactions.recall(compaction, fact.text)
        assert found.hits[0].entry_id in fact.entry_ids
    # What is written after a compaction changes nothing in what it lost.
    await talk(session, 0)
    assert await session.compactions.loss_report(compaction) == report
    assert await session.compactions.loss_report(limit=1) != report
    assert (await store.verify()).problems == []


async def test_each_layer_has_its_report_and_the_later_ones_have_the_earlier_ones_in_them(session: Session) -> None:
    first_ids = [entry for number in range(3) for entry in await talk(session, number)]
    first = await compacted(session)
    await talk(session, 5)
    await talk(session, 6)
    second = await compacted(session)
    one, two = await session.compactions.loss_report(first), await session.compactions.loss_report()
    assert one is not None
    assert two is not None
    assert two.compaction_id == second
    assert two.entry_ids[: len(one.entry_ids)] == one.entry_ids
    assert len(two.entry_ids) > len(one.entry_ids)
    back = existing(await session.compactions.uncompact())
    assert await session.compactions.loss_report() == one
    assert await session.compactions.loss_report(second) == two
    await raises(InvalidArgument, session.compactions.loss_report(back.appended.entry_ids[0]), match="takes one back")
    await raises(InvalidArgument, session.compactions.recall(first_ids[0], "x"), match="is a message")
    await raises(EntryNotFound, session.compactions.loss_report("nowhere"))


async def test_pins_are_kept_and_exclusions_are_no_loss(session: Session) -> None:
    ids = [entry for number in range(4) for entry in await talk(session, number)]
    await session.marks.pin(ids[0])
    await session.marks.exclude(ids[3])
    await compacted(session)
    report = existing(await session.compactions.loss_report())
    assert ids[0] not in report.entry_ids
    assert ids[3] not in report.entry_ids
    assert "src/part0.py" not in {fact.text for fact in report.lost}


async def test_a_call_of_the_tool_is_answered_by_a_result(session: Session) -> None:
    ids = [entry for number in range(4) for entry in await talk(session, number)]
    call: JsonObject = {"type": "toolCall", "id": "c1", "name": "recall", "arguments": {"words": "src/part1.py"}}
    nothing = await session.compactions.answer_recall(call)
    assert "Nothing was compacted" in str(nothing["content"])
    await compacted(session)
    await session.append_message({"role": "assistant", "content": [call], "stopReason": "toolUse"})
    answer = await session.compactions.answer_recall(call)
    assert answer["isError"] is False
    assert f'<entry id="{ids[2]}" role="user">' in str(answer["content"])
    await session.append_message(answer)
    wrong = await session.compactions.answer_recall({**call, "arguments": {"limit": 3}})
    assert wrong["isError"] is True
    assert (await session.build_context())[-1] == answer


async def test_another_branchs_compaction_is_reported_too(session: Session) -> None:
    for number in range(4):
        await talk(session, number)
    compaction = await compacted(session)
    report = await session.compactions.loss_report()
    await session.undo()
    assert await session.compactions.loss_report() is None
    assert await session.compactions.loss_report(compaction) == report


def told_of(page: str) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the ids of the entries that a report embeds, and what it says of each compaction."""
    _, _, rest = page.partition('id="report-data">')
    entries = json.loads(rest.partition("</script")[0])["sessions"][0]["entries"]
    return [entry["id"] for entry in entries], [entry["compaction"] for entry in entries if "compaction" in entry]


async def test_a_report_has_each_layer_and_what_took_it_back(session: Session) -> None:
    for number in range(4):
        await talk(session, number)
    first = await compacted(session)
    await talk(session, 5)
    await talk(session, 6)
    second = await compacted(session)
    back = existing(await session.compactions.uncompact())
    ids, (one, two, taking) = told_of(await session.reports.html(sizes=False))
    taker = ids.index(back.appended.entry_ids[0])
    assert taking == {"takesBack": ids.index(second), "restores": ids.index(first)}
    assert one["isInEffect"]
    assert "isInEffect" not in two
    assert two["takenBackBy"] == [taker]
    report = existing(await session.compactions.loss_report(second))
    assert [ids[at] for start, end in two["in"] for at in range(start, end + 1)] == list(report.entry_ids)
    assert two["entries"] == len(report.entry_ids)
    found = {kind: (total, covered) for kind, total, covered, _, _ in two["kinds"]}
    assert found == {each.kind: (each.total, each.covered) for each in report.kinds if each.total}
    (text, at, count) = next(lost for kind, _, _, lost, _ in two["kinds"] if kind == "file")[0]
    fact = next(fact for fact in report.lost if fact.kind == "file")
    assert (text, ids[at], count) == (fact.text, fact.entry_ids[-1], fact.count)


async def test_ranges_have_reports_of_their_own(session: Session) -> None:
    ids = [entry for number in range(6) for entry in await talk(session, number)]
    first = await session.compactions.compact_range(ids[2], ids[3], mode="window")
    second = await session.compactions.compact_range(ids[6], ids[9], mode="window")
    one, two = (
        await session.compactions.loss_report(first.entry_id),
        await session.compactions.loss_report(second.entry_id),
    )
    assert one is not None
    assert two is not None
    assert (one.entry_ids, two.entry_ids) == (tuple(ids[2:4]), tuple(ids[6:10]))
    assert "src/part1.py" in {fact.text for fact in one.lost}
    assert {"src/part3.py", "src/part4.py"} <= {fact.text for fact in two.lost}
    assert f"entries {ids[6]} to {ids[9]}" in str(second.summary)
    for report in (one, two):
        for fact in report.lost:
            found = await session.compactions.recall(report.compaction_id, fact.text)
            assert found.hits[0].entry_id in fact.entry_ids
    # An agent need not know of which compaction it asks.
    for words, where in (("src/part1.py", ids[2]), ("src/part3.py", ids[6])):
        assert [hit.entry_id for hit in (await session.compactions.recall(None, words)).hits] == [where]
    _, told = told_of(await session.reports.html(sizes=False))
    assert [each["isInEffect"] for each in told] == [True, True]
