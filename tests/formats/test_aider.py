"""The chat history of aider: a file of the program itself, cut at every line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import flue_py
from flue_py.errors import UnreadableFile
from flue_py.formats.aider import gather_aider, looks_like_aider, read_aider
from flue_py.formats.kit import read_lines
from tests.formats.transcripts import Seen, all_seen, check_growth, import_file, import_lines
from tests.programs.made import unpack
from tests.tables import inputs

HISTORY = ".aider.chat.history.md"
HEADING = "\n# aider chat started at 2026-11-27 10:00:00\n\n> Model: gpt-4o with diff edit format  \n"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("aider-0.86.2", tmp_path_factory.mktemp("aider"))


async def of_text(folder: Path, text: str, **options: Any) -> list[Seen]:
    """Return the sessions of a history."""
    async with flue_py.open(":memory:") as store:
        await import_lines(store, folder, [text.encode()], HISTORY, **options)
        return [*(await all_seen(store)).values()]


def words(seen: Seen) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in seen.context]


async def test_questions_and_answers_are_those_that_were_sent(made: Path, store: flue_py.Store) -> None:
    report = await import_file(store, made / "work" / HISTORY)
    seen = await all_seen(store)
    infos = {info.id: info for info in (await store.list_sessions()).sessions}
    assert (report.skipped, report.repaired, report.held_back) == ((), (), 1)
    first, second = (seen[name] for name in sorted(seen, key=lambda name: infos[name].created_us))
    assert [role for role, _ in words(first)] == ["user", "assistant"] * 4
    assert "> a quotation\n\n# aider chat\n\n#### A heading\n" in first.context[3]["content"]
    assert words(first)[4] == ("user", "A question\nof two lines.")
    sent = json.loads((made / "sent.json").read_text())
    assert words(second) == [("user", "After it."), ("assistant", "The answer.\n\nIn two paragraphs.")]
    last = next(messages for messages in sent[::-1] if messages[-1]["content"].strip() == "Why?")
    said = [(message["role"], message["content"].strip()) for message in last]
    texts = {text.strip() for _, text in words(first)}
    # Beside them stand the files of the chat, and short remarks of aider about them.
    assert [message for message in said if message[1] in texts] == [
        (role, text.strip()) for role, text in words(first)[:7]
    ]
    assert first.context[1]["model"] == "gpt-4o"
    numbers = {name: first.context[1]["usage"][name] for name in ("input", "output", "cost")}
    assert numbers == {"input": 1600, "output": 4, "cost": {"total": 0.004}}
    assert "cost" not in second.context[1]["usage"]
    assert infos[report.sessions[0].session_id].cwd == str(made / "work")


async def test_a_file_that_grows_line_by_line_ends_like_the_whole_one(made: Path, tmp_path: Path) -> None:
    lines = (made / "work" / HISTORY).read_bytes().splitlines(keepends=True)
    await check_growth(tmp_path, lines, HISTORY, first=5)


@inputs(
    ("report", "usage"),
    [
        ("Tokens: 581 sent, 4 received.", {"input": 581, "output": 4}),
        ("Tokens: 12k sent, 1.2k cache hit, 60 received.", {"input": 10_800, "output": 60, "cacheRead": 1200}),
        (
            "Tokens: 2.1k sent, 100 cache write, 1.0k cache hit, 60 received.\nCost: $0.02 message, $1.10 session.",
            {"input": 1000, "output": 60, "cacheRead": 1000, "cacheWrite": 100, "cost": {"total": 0.02}},
        ),
        ("Tokens: many sent, few received.", None),
    ],
)
async def test_a_note_reports_the_tokens_of_the_answer_before_it(tmp_path: Path, report: str, usage: Any) -> None:
    (seen,) = await of_text(tmp_path, f"{HEADING}\n#### hi  \n\nYes.\n\n> {report}  \n")
    found = seen.context[1].get("usage")
    assert found is None if usage is None else {name: found.get(name) for name in usage} == usage


async def test_a_call_without_an_answer_is_paid(tmp_path: Path) -> None:
    (seen,) = await of_text(tmp_path, f"{HEADING}\n#### hi  \n> Tokens: 100 sent, 5 received.  \n")
    assert (words(seen), seen.spent_tokens) == ([("user", "hi")], 105)


@inputs(
    ("note", "model"),
    [
        ("Model: gpt-4", ("", "gpt-4")),
        ("Models: m-3 with \u267e\ufe0f diff edit format, weak model m-2", ("", "m-3")),
        ("Main model: acme/m-4 with diff edit format, prompt cache, infinite output", ("acme", "m-4")),
        ("Weak model: acme/m-1", ("", "gpt-4o")),
        ("a command\n#### of lines\n\n> Model: b", ("", "b")),
        ("Model: model/", ("", "gpt-4o")),
        ("Model: /x with diff edit format", ("", "gpt-4o")),
    ],
)
async def test_the_last_note_that_names_a_model_is_believed(tmp_path: Path, note: str, model: Any) -> None:
    (seen,) = await of_text(tmp_path, f"{HEADING}> {note}  \n\n#### hi  \n\nYes.\n\n> end  \n")
    assert (seen.context[1].get("provider", ""), seen.context[1]["model"]) == model


HI, ASKED = ("user", "hi"), "\n#### hi  \n\nYes.\n\n> Tokens: 9 sent, 1 received.  \n"


@inputs(
    ("text", "said"),
    [
        # An editor took the spaces at the ends of lines away, or put lines between those of a question.
        (
            "#### hi\n####\n#### you\n\nYes.\n\n> Added a\n\n#### /drop\n",
            [("user", "hi\n\nyou"), ("assistant", "Yes.")],
        ),
        ("#### /add a\n\n#### hi\n\n#### you\n\n>\n", [("user", "hi\nyou")]),
        ("#### hi\n#### /etc\n> a\nb\n\nYes.\n\n> x\n", [("user", "hi\n/etc"), ("assistant", "Yes.")]),
        # A note of several lines stands before the first question; only its last line ends with two spaces.
        ("> aider --message a\n\nb     \n\nc  \n\n#### hi  \n\nYes.\n\n> x  \n", [HI, ("assistant", "Yes.")]),
        ("> ls  \ncd a     \nls -l  \n> # 1 failed\n  \nx = 1    \n\nreply.  \n\n#### hi  \n> x  \n", [HI]),
        (f"{ASKED}\n#### /clear  \n\n#### hi  \n> x  \n", [HI]),
        (f"{ASKED}\n#### /reset  \n> All files dropped and chat history cleared.  \n\n#### hi  \n> x  \n", [HI]),
        ("#### hi  \n\n#### <blank>  \n> x  \n", [HI]),
        ("#### hi  \n\n#### <blank> x  \n> /clear  \n> x  \n", [HI, ("user", "<blank> x")]),
        ("#### hi  \n> y  \n\n#### /clear-all  \n> x  \n", [HI]),
        ("#### hi  \n\n<think>\n\nYes.\n\n> x  \n", [HI, ("assistant", "<think>\n\nYes.")]),
    ],
)
async def test_the_words_of_a_person_are_known_in_files_of_all_kinds(tmp_path: Path, text: str, said: Any) -> None:
    (seen,) = await of_text(tmp_path, f"{HEADING}\n{text}")
    assert words(seen) == said
    await check_growth(tmp_path, [bytes([byte]) for byte in f"{HEADING}\n{text}".encode()], HISTORY, len(HEADING))


async def test_the_plan_of_an_architect_is_no_question_of_a_person(tmp_path: Path) -> None:
    tag = "thinking-content-7bbeb8e1441453ad999a0bbba8a46d4b"
    models = "> Model: a/m with architect edit format  \n> Editor model: b/e with editor-diff edit format  \n"
    plan = f"<{tag}>\n\nHm.\n\n</{tag}>\n\nAdd it.\n\nTest.\n\n> Tokens: 9 sent, 1 received.  \n"
    edit = "#### Add it.  \n####   \n#### Test.  \n\nDone.\n\n> Tokens: 5 sent, 2 received.  \n"
    reply = "\n#### tabs?  \n\nNo, spaces\n\n> x  \n\n#### spaces  \n> x  \n"
    ask = "> Model: a/n with ask edit format  \n\n#### Say it.  \n\nIt.\n\n> x  \n\n#### It.  \n> x  \n"
    (seen,) = await of_text(tmp_path, f"{HEADING}{models}\n#### hi  \n\n{plan}\n{edit}{reply}{ask}")
    assert [message.get("model") for message in seen.context] == [None, "m", "e", None, "m", None, None, "n", None]
    assert [part[part["type"]] for part in seen.context[1]["content"]] == ["Hm.", "Add it.\n\nTest."]
    assert ([kind for _, kind, *_ in seen.entries.values()].count("aider.editor"), seen.spent_tokens) == (1, 17)


async def test_a_question_of_which_half_was_read_becomes_whole(tmp_path: Path) -> None:
    text = f"{HEADING}\n#### one  \n#### two  \n#### three  \n> x  \n".encode()
    whole = await of_text(tmp_path / "whole", text.decode())
    for cut in range(text.index(b"one"), len(text)):
        async with flue_py.open(":memory:") as store:
            await import_lines(store, tmp_path, [text[:cut]], HISTORY)
            await import_lines(store, tmp_path, [text], HISTORY)
            assert [*(await all_seen(store)).values()] == whole


async def test_sessions_of_one_second_are_two_and_the_last_part_waits(tmp_path: Path) -> None:
    text = f"{HEADING}\n#### hi  \n\nYes.\n\n"
    seen = await of_text(tmp_path, text + text)
    assert sorted(words(session) for session in seen) == [[("user", "hi")], [("user", "hi"), ("assistant", "Yes.")]]
    seen = await of_text(tmp_path, text, finish=True)
    assert [words(session) for session in seen] == [[("user", "hi"), ("assistant", "Yes.")]]


def test_no_text_is_fatal(tmp_path: Path) -> None:
    pieces = [
        "#### ",
        "#### /x  ",
        "> ",
        "> Tokens: 9e9k sent, 1 received.  ",
        "> Cost: $1.1.1 message",
        "\0\x0c\u2028",
        "  ",
        "# ",
    ]
    file = tmp_path / HISTORY
    for number in range(len(pieces) ** 3):
        several = [pieces[number // len(pieces) ** power % len(pieces)] for power in range(3)]
        file.write_text(HEADING + "\n".join(several))
        read_lines(read_aider(HISTORY), [*gather_aider(file)])


def test_a_history_is_known_by_its_first_heading(tmp_path: Path) -> None:
    (tmp_path / HISTORY).write_bytes(made_by_a_shell := b"\xff\xfe\r\0\n\0" + HEADING.encode())
    assert (len([*gather_aider(tmp_path / HISTORY)]), looks_like_aider(made_by_a_shell)) == (2, True)
    assert looks_like_aider(HEADING.encode())
    assert not looks_like_aider(b"# aider chat\n")
    (tmp_path / HISTORY).write_text("\n")
    with pytest.raises(UnreadableFile, match="holds no session"):
        read_lines(read_aider(HISTORY), [*gather_aider(tmp_path / HISTORY)])
