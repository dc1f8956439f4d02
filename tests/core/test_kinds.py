"""The table of entry kinds, and what is remembered of a message."""

from __future__ import annotations

import subprocess
import sys

from flue_py.context.tokens import EntryCounts, counter_for
from flue_py.core import context, kinds
from flue_py.core.entries import Entry, Pairing
from flue_py.core.json import JsonObject, encode_json
from flue_py.core.kinds import KINDS, Kind, spoken_text
from flue_py.core.usage import NO_USAGE
from flue_py.render.lines import entry_name, entry_text
from flue_py.render.transcript import transcript_body
from tests.tables import inputs
from tests.values import existing

COMPACTION_REFERENCES = (
    "firstKeptEntryId", "pinnedEntryIds", "baseCompactionId", "ranges", "restoresCompactionId", "takesBackCompactionId",
)  # fmt: skip
USAGE = '"usage":{"input":3,"output":4,"totalTokens":7}'
PAYLOADS = {
    "message": '{"role":"assistant","content":"words",' + USAGE + "}",
    "compaction": '{"summary":"words","firstKeptEntryId":"x","tokensBefore":1,' + USAGE + "}",
    "branch_summary": '{"summary":"words","fromId":"x",' + USAGE + "}",
    "custom_message": '{"content":"words",' + USAGE + "}",
    "exclusion": '{"entryId":"x","why":"words",' + USAGE + "}",
    "tool_artifact": '{"tool":"words",' + USAGE + "}",
    "file_checkpoint": '{"reason":"words",' + USAGE + "}",
    "file_backup": '{"sha256":"words",' + USAGE + "}",
    "model_change": '{"provider":"p","modelId":"words",' + USAGE + "}",
    "thinking_level_change": '{"thinkingLevel":"words",' + USAGE + "}",
    "session_info": '{"name":"words",' + USAGE + "}",
    "note.of-mine": '{"content":"words",' + USAGE + "}",
}
EVERY_KIND = inputs("kind", [*KINDS, Kind("note.of-mine")], ids=lambda kind: kind.name)


def entry(kind: Kind, entry_id: str = "e", depth: int = 0) -> Entry:
    role = "assistant" if kind.name == "message" else None
    return Entry(entry_id, None, "s", kind.name, role, None, depth, depth + 1, 0, 1_000_000, PAYLOADS[kind.name])


def test_the_table_is_as_the_documentation_of_the_format_says() -> None:
    table = {
        kind.name: (kind.says, kind.stands_in_place, kind.may_be_paid, kind.adds_usage, kind.references)
        for kind in KINDS
    }
    assert table == {
        "message": ("message", True, True, True, ()),
        "compaction": ("summary", False, True, True, COMPACTION_REFERENCES),
        "branch_summary": ("summary", True, True, False, ("fromId", "abandonedLeafId")),
        "custom_message": ("content", True, False, False, ()),
        "exclusion": (None, False, False, False, ("entryId",)),
        "tool_artifact": (None, False, False, False, ()),
        "file_checkpoint": (None, False, False, False, ()),
        "file_backup": (None, False, False, False, ()),
        "model_change": (None, False, False, False, ()),
        "thinking_level_change": (None, False, False, False, ()),
        "session_info": (None, False, False, False, ()),
    }
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    assert set(PAYLOADS) == {kind.name for kind in KINDS} | {"note.of-mine"}


@EVERY_KIND
def test_the_context_shows_what_the_table_says(kind: Kind) -> None:
    one = entry(kind)
    shown = [item.entry_id for item in context.project([one])]
    assert shown == (["e"] if kind.stands_in_place or kind.name == "compaction" else [])
    pinned = '{"summary":"","firstKeptEntryId":"none","tokensBefore":1,"pinnedEntryIds":["e"]}'
    later = Entry("c", "e", "s", "compaction", None, None, 1, 2, 0, 1_000_000, pinned)
    assert [item.entry_id for item in context.project([one, later])] == (["c", "e"] if kind.says else ["c"])


@EVERY_KIND
def test_the_model_reads_what_the_table_says(kind: Kind) -> None:
    if kind.says is None:
        assert kind.name not in kinds.SHOWN_KINDS
        return
    item = context.ContextEntry(entry(kind))
    text = item.data["content"]
    if kind.says == "message":
        assert (item.role, text) == ("assistant", "words")
        return
    assert (item.role, item.data["role"]) == ("user", "user")
    assert text == [{"type": "text", "text": f"{kind.prefix}\n\nwords" if kind.prefix else "words"}]
    assert context.synthetic_message(kind.name, item.entry.data, 1_000_000) == item.data
    # What an export gives back to us is not taken for a person's words.
    assert spoken_text(text[0]["text"]) == ("" if kind.prefix else "words")


@EVERY_KIND
def test_usage_counts_where_the_table_says(kind: Kind) -> None:
    one = entry(kind)
    assert (one.usage != NO_USAGE) == kind.adds_usage
    assert (context.told_by([one]) != context.EVERYTHING) == kind.adds_usage
    assert (context.entry_cost(one, {}) is not None) == kind.may_be_paid


@EVERY_KIND
def test_lists_and_transcripts_show_each_kind(kind: Kind) -> None:
    one = entry(kind)
    assert entry_name(one)[0].strip() == (kind.word or one.role or kind.name)[:24]
    assert "words" in entry_text(one)
    if kind.line_from or kind.says:
        assert entry_text(one) == "words"
    document = transcript_body("s", [one])
    assert ("words" in document) == (kind.says is not None)
    assert (f"[{kind.heading}]" in document) == bool(kind.heading)


ADDED_KIND = """
import asyncio, importlib.util, sys
from pathlib import Path

spec = importlib.util.find_spec("flue_py.core.kinds")
row = 'Kind("decision", says="content", stands_in_place=True, references=("about",), heading="Decision"),'
source = Path(spec.origin).read_text().replace("KINDS: tuple[Kind, ...] = (", "KINDS: tuple[Kind, ...] = (" + row)
module = importlib.util.module_from_spec(spec)
sys.modules["flue_py.core.kinds"] = module
exec(compile(source, spec.origin, "exec"), module.__dict__)

import flue_py
from flue_py.render.lines import entry_text
from flue_py.render.transcript import transcript_body
from flue_py.sessions.request import entry_sizes


async def main():
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        asked = (await session.append_message({"role": "user", "content": "which one?"})).leaf_id
        await session.append_custom("decision", {"content": "the second", "about": asked})
        decided = session.leaf_id
        said = [(each["role"], each["content"]) for each in await session.build_context()]
        assert said == [("user", "which one?"), ("user", [{"type": "text", "text": "the second"}])], said
        items = await session.build_context_entries()
        assert [item.kind for item in items] == ["message", "decision"]
        assert set(entry_sizes(item.entry for item in items)) == {asked, decided}
        assert entry_text(items[1].entry) == "the second"
        assert "[Decision]" in transcript_body("s", [items[1].entry])
        await session.marks.pin(decided)
        kept = (await session.append_message({"role": "user", "content": "go on"})).leaf_id
        await session.append_compaction("so far", first_kept_entry_id=kept, tokens_before=9)
        assert [item.kind for item in await session.build_context_entries()] == ["compaction", "decision", "message"]
        await session.marks.exclude(decided)
        assert [item.kind for item in await session.build_context_entries()] == ["compaction", "message"]
        assert not (await store.verify()).problems


asyncio.run(main())
"""


def test_one_row_adds_a_kind_that_the_context_shows() -> None:
    done = subprocess.run([sys.executable, "-c", ADDED_KIND], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# -- What is remembered of a message is what anybody would find who decoded it ------------------------------------


CALL: JsonObject = {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "x"}}
MESSAGES: list[JsonObject] = [
    {"role": "user", "content": "Look."},
    {"role": "user", "content": [{"type": "text", "text": "<system-reminder>Be brief.</system-reminder>"}]},
    {"role": "user", "content": "Look.", "isMeta": True},
    {"role": "assistant", "content": [{"type": "text", "text": 'a "toolCall" is none'}]},
    {"role": "assistant", "content": "plain"},
    {"role": "assistant", "content": [{"type": "text", "text": "a"}, CALL, "no object", {**CALL, "id": "c2"}]},
    {"role": "assistant", "content": [{"type": "toolCall", "id": 3}]},
    {"role": "toolResult", "toolCallId": "c1", "content": "out", "isError": False},
    {"role": "toolResult", "toolCallId": "c2", "content": "Error", "isError": True},
    {"role": "toolResult", "toolCallId": "c9", "content": "no call", "details": {"toolCallId": "c1", "isError": True}},
    {"role": "custom", "content": "Look."},
]


def stored(message: JsonObject, name: str = "e") -> Entry:
    payload = encode_json(message, "message")[0]
    return Entry(name, None, None, "message", str(message["role"]), None, 0, 0, 0, 0, payload)


@inputs("message", MESSAGES, ids=str)
def test_the_traits_of_an_entry_are_those_of_its_message(message: JsonObject) -> None:
    found, wanted = context.KnownTraits().of(stored(message)), context.traits_in(message)

    assert found.calls == wanted.calls
    assert found.is_spoken in (wanted.is_spoken, None)
    assert found.has_failed in (wanted.has_failed, None)


def test_exchanges_are_paired_as_those_of_whole_messages() -> None:
    known = context.KnownTraits()
    found = Pairing([known.of(stored(message)).exchange for message in MESSAGES])
    wanted = Pairing(MESSAGES)

    assert (found.results, found.parts, found.unpaired) == (wanted.results, wanted.parts, wanted.unpaired)


def test_another_payload_under_the_same_id_is_read_anew() -> None:
    known = context.KnownTraits()
    assert known.of(stored(MESSAGES[0])).is_spoken
    assert known.of(stored(MESSAGES[5])).calls
    assert not known.of(stored(MESSAGES[5])).is_spoken


def test_the_newest_are_remembered_and_no_long_calls() -> None:
    known = context.KnownTraits(limit=4, max_chars=200)
    for number in range(9):
        known.of(stored(MESSAGES[0], f"e{number}"))
    long: JsonObject = {"role": "assistant", "content": [{**CALL, "arguments": {"content": "x" * 200}}]}

    assert known.of(stored(long, "long")).calls
    assert known.known("long") is None
    assert known.known("e8") is not None
    assert sum(known.known(f"e{number}") is not None for number in range(9)) <= 4
    known.clear()
    assert known.known("e8") is None


def test_what_is_counted_is_remembered() -> None:
    entry = stored(MESSAGES[5], "an entry that nobody has seen before")
    EntryCounts().count(context.ContextEntry(entry), counter_for(None))

    traits = existing(context.TRAITS.known(entry.id))
    assert traits.calls
