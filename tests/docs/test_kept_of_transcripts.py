"""How much of a real session each mode keeps, by `benchmarks.compaction`: more than a plain window of equal size."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.compaction import __main__ as program
from benchmarks.compaction.contexts import compacted, masked, message_as_text, plain_window, untouched
from benchmarks.compaction.measures import COLUMNS, Asked, rows_of
from benchmarks.compaction.questions import Answering, Question, questions_of
from benchmarks.compaction.stand_in import extract
from benchmarks.compaction.transcripts import Transcript, transcripts
from flue_py.context.tokens import counter_for
from flue_py.core.json import JsonObject

WITHOUT_A_MODEL = ("intent", "lossless")


@pytest.fixture(scope="module")
def asked() -> list[Asked]:
    return [Asked.of(each) for each in transcripts()]


@pytest.fixture(scope="module")
def demo(asked: list[Asked]) -> Asked:
    return next(each for each in asked if each.transcript.name.startswith("demo"))


def test_modes_without_a_model_keep_more_than_a_plain_window_of_equal_size(demo: Asked) -> None:
    rows = list(rows_of(demo, 16_000, modes=(*WITHOUT_A_MODEL, "hybrid")))
    assert [(row.way, row.times) for row in rows[2:]] == [
        (way, times) for way in (*WITHOUT_A_MODEL, "hybrid") for times in (1, 10)
    ]
    for row in rows[2:]:
        assert row.not_better == [], (row.way, row.times)
        assert row.after < row.before / 3
        assert row.compactions == row.times or row.compactions == row.times - 1
        assert min(row.of[column] for column in COLUMNS) > 0
    nothing, masking = rows[:2]
    assert nothing.kept == nothing.of
    assert nothing.after == nothing.before > masking.after > max(row.after for row in rows[2:])
    assert all(not row.making for row in rows if row.way != "hybrid")


@pytest.mark.slow
@pytest.mark.parametrize("window", program.WINDOWS)
def test_they_do_so_on_every_transcript(asked: list[Asked], window: int) -> None:
    for each in asked:
        for row in rows_of(each, window, modes=(*WITHOUT_A_MODEL, "hybrid")):
            assert row.way in ("nothing", "masking") or row.not_better == [], (each.transcript.name, row.way, row.times)


@pytest.mark.slow
def test_the_page_has_the_tables_that_the_program_prints(asked: list[Asked]) -> None:
    page = program.PAGE.read_text(encoding="utf-8")
    assert program.written(page, list(program.tables(asked, program.ON_PAGE))) == page


def test_a_whole_transcript_has_all_its_facts_and_answers_all_its_questions(asked: list[Asked]) -> None:
    assert len(asked) == 3
    for each in asked:
        assert each.kept(untouched(each.transcript).text) == each.total


# -- what is measured, on a transcript of a few messages ---------------------------------------------------------------


def said(role: str, text: str, **more: Any) -> JsonObject:
    return {"role": role, "content": text, **more}


def called(tool: str, call_id: str, **arguments: str) -> JsonObject:
    return {"role": "assistant", "content": [{"type": "toolCall", "id": call_id, "name": tool, "arguments": arguments}]}


TALK: tuple[JsonObject, ...] = (
    said("user", "Mend the build, please, and say in one line what was wrong with it; leave the tests as they are."),
    called("bash", "c1", command="make all"),
    said("toolResult", "cc: no such file: a.c\nmake stopped", toolCallId="c1", isError=True),
    called("bash", "c2", command="grep -c x b.c"), said("toolResult", "7\n", toolCallId="c2"),
    called("read", "c3", path="b.c"), said("toolResult", "int x;\n" * 40, toolCallId="c3"),
    called("edit", "c4", path="b.c", newText="int y;"), said("toolResult", "done", toolCallId="c4"),
    said("assistant", "I renamed it because x was taken. Should I commit?"), said("user", "No, not yet."),
)  # fmt: skip


def small() -> Transcript:
    counter = counter_for(None)
    return Transcript("small", TALK, None, tuple(map(counter.count, TALK)))


def test_questions_are_made_by_the_rules_that_are_written_down() -> None:
    assert questions_of(TALK) == [
        Question("recall", "make all", ("cc: no such file: a.c",)),
        Question("recall", "grep -c x b.c", ("7",)),
        Question("artifact", "b.c", ("edit",)),
        Question("recall", "mend the build, please, and say in one l", ("ng with it; leave the tests as they are.",)),
        Question("continuation", "", (" ".join(str(TALK[0]["content"])[:80].lower().split()),)),
        Question("continuation", "", ("no, not yet.",)),
        Question("continuation", "", ("b.c",)),
        Question("continuation", "", ("cc: no such file: a.c",)),
        Question("decision", "", ("i renamed it because x was taken.",)),
        Question("decision", "should i commit?", ("no, not yet.",)),
    ]


def test_a_passage_answers_only_if_it_has_both_the_cue_and_the_answer() -> None:
    question = Question("recall", "make all", ("cc: no such file",))
    assert Answering("✗ bash → make  ALL — cc: No such file").has(question)
    assert not Answering("make all" + " x" * 400 + " cc: no such file").has(question)
    assert not Answering("cc: no such file").has(question)
    changed = Question("artifact", "b.c", ("edit",))
    assert Answering("<modified-files>\na.c\nb.c\n</modified-files>").has(changed)
    assert not Answering("<read-files>\nb.c\n</read-files>").has(changed)


def test_a_plain_window_has_as_many_tokens_as_it_is_compared_with() -> None:
    transcript = small()
    whole = plain_window(transcript, transcript.tokens)
    assert whole.messages == TALK
    for tokens in range(20, transcript.tokens):
        cut = plain_window(transcript, tokens)
        counted = sum(map(transcript.counter.count, cut.messages))
        assert cut.tokens == tokens
        assert tokens - 12 <= counted <= tokens
        assert untouched(transcript).text.endswith(cut.messages[-1]["content"])


def test_masking_replaces_results_before_what_is_kept_by_a_line() -> None:
    transcript = small()
    shown = masked(transcript, 100)
    assert "[a result of read is not shown" in shown.text
    assert "int x;" not in shown.text
    assert shown.tokens < transcript.tokens
    assert [message["role"] for message in shown.messages] == [message["role"] for message in TALK]


def test_parts_are_whole_exchanges_and_all_of_the_transcript() -> None:
    for number in range(1, 12):
        parts = list(small().parts(number))
        assert tuple(message for part in parts for message in part) == TALK
        assert not any(part[0]["role"] == "toolResult" for part in parts)


def test_what_is_done_twice_comes_out_the_same(demo: Asked) -> None:
    def once(mode: str) -> tuple[object, ...]:
        context = compacted(demo.transcript, mode, 16_000, 2)
        return context.tokens, context.compactions, len(context.calls), demo.kept(context.text)

    for mode in ("intent", "hybrid"):
        assert once(mode) == once(mode)


def test_the_stand_in_copies_first_sentences_and_half_of_what_was_there() -> None:
    prompt = (
        "<conversation>\n[Human — Turn 1, entry e1]\n[User]: Mend it. Soon.\n\n[Agent — Turn 2, entry e2]\n"
        "[Assistant]: Done\n</conversation>\n<previous-summary>\n- old\n- older\n</previous-summary>"
    )
    assert extract(prompt, 200) == "- old\n- older\n- Human: Mend it. [entry e1]\n- Agent: Done [entry e2]"
    assert extract(prompt, 60) == "- old\n- older\n- Agent: Done [entry e2]"
    assert extract("", 60) == "Nothing was said."


def test_a_message_is_read_with_its_calls_and_whether_it_failed() -> None:
    assert message_as_text(TALK[7]) == "[assistant]\nedit: b.c; int y;"
    assert message_as_text(TALK[2]).startswith("[toolResult failed]\ncc: ")
