"""Token counts: the shipped vocabularies, the slices, the estimate, and the shape of messages."""

from __future__ import annotations

import importlib
import lzma
import os
import random
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from threading import Barrier

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import ranks
from benchmarks.token_counts import stretches, table
from flue_py.context import tokens
from flue_py.context.tokens import (
    FILE_TOKENS,
    IMAGE_TOKENS,
    MESSAGE_OVERHEAD_TOKENS,
    SLICE_CHARS,
    VOCABULARIES,
    TokenCount,
    Vocabulary,
    count_message_tokens,
    count_text_tokens,
    count_tokens,
    encoding_name_for,
    estimate_message_tokens,
    load_encoding,
    read_ranks,
    slices,
)
from flue_py.core.json import JsonObject
from flue_py.errors import FixTheSetup, InvalidArgument, UnreadableFile
from tests.context.pipeline.piped import context, user
from tests.effort import examples
from tests.tables import inputs

BOTH = inputs("name", list(VOCABULARIES))
MODEL_OF = {"o200k_base": "gpt-4o", "cl100k_base": "gpt-4"}

# Pieces that the patterns treat differently, so that a slice boundary meets every rule.
BLANKS = [" ", "        ", "\n", "\r\n", "\t", "\x1c", "\x85", "\u2028", "\xa0"]
WORDS = ["a", "B", "word", "é", "e\u0301", "漢字", "🙂", "1", "234", "'s", "'RE"]
SIGNS = ["!", "...", "/", "//", "<|endoftext|>"]
PIECES = st.sampled_from([*BLANKS, *WORDS, *SIGNS])
TEXTS = st.lists(PIECES, max_size=80).map("".join) | st.text(max_size=80)


@pytest.fixture
def no_encoding_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_encodings", {})


# --- the vocabularies -----------------------------------------------------------------------------------------


@BOTH
def test_the_published_file_can_be_restored_from_the_shipped_one(name: str) -> None:
    vocabulary = VOCABULARIES[name]
    packed = ranks.pack_ranks(read_ranks(vocabulary))
    source = ranks.restore_source(packed, vocabulary)
    assert sha256(source).hexdigest() == vocabulary.source_sha256
    assert ranks.pack_source(source, vocabulary) == packed


@BOTH
def test_a_vocabulary_numbers_its_tokens_from_nought_and_holds_every_byte(name: str) -> None:
    found = read_ranks(VOCABULARIES[name])
    assert list(found.values()) == list(range(VOCABULARIES[name].tokens))
    assert all(bytes([byte]) in found for byte in range(256))


@BOTH
def test_the_notice_states_the_hashes_of_what_is_shipped(name: str) -> None:
    vocabulary = VOCABULARIES[name]
    notice = (ranks.RANKS / "NOTICE").read_text(encoding="utf-8")
    shipped = (ranks.RANKS / vocabulary.filename).read_bytes()
    for digest in (sha256(shipped).hexdigest(), vocabulary.source_sha256, vocabulary.packed_sha256):
        assert digest in notice
    assert "gpt-tokenizer, version 4.0.0" in notice
    assert "Permission is hereby granted" in notice


def test_rebuilding_refuses_a_source_that_is_not_the_published_one() -> None:
    with pytest.raises(UnreadableFile, match="cl100k_base"):
        ranks.pack_source(b"IQ== 0\n", VOCABULARIES["cl100k_base"])


@pytest.mark.thorough
def test_rebuilding_writes_files_that_read_back_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    for name, vocabulary in VOCABULARIES.items():
        packed = ranks.pack_ranks(read_ranks(vocabulary))
        (source / f"{name}.tiktoken").write_bytes(ranks.restore_source(packed, vocabulary))
    assert ranks.main([str(source), str(target)]) == 0
    printed = capsys.readouterr().out
    for vocabulary in VOCABULARIES.values():
        packed = lzma.decompress((target / vocabulary.filename).read_bytes())
        assert sha256(packed).hexdigest() == vocabulary.packed_sha256
        assert vocabulary.packed_sha256 in printed
    assert ranks.main([]) == 2


def _flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def _swap_two_bytes_inside(path: Path) -> None:
    content = lzma.decompress(path.read_bytes())
    path.write_bytes(lzma.compress(content[:-2] + content[:-3:-1], preset=0))


def _replace_by_text(path: Path) -> None:
    path.write_text("version https://git-lfs.github.com/spec/v1\n", encoding="utf-8")


@pytest.mark.usefixtures("no_encoding_loaded")
def test_a_damaged_vocabulary_is_refused_and_a_repaired_one_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary = VOCABULARIES["cl100k_base"]
    healthy = (ranks.RANKS / vocabulary.filename).read_bytes()
    copy = tmp_path / "ranks" / vocabulary.filename
    copy.parent.mkdir()
    monkeypatch.setattr(tokens.resources, "files", lambda _package: tmp_path)
    for damage in (_flip_a_byte, _truncate, _swap_two_bytes_inside, _replace_by_text, Path.unlink):
        copy.write_bytes(healthy)
        damage(copy)
        with pytest.raises(FixTheSetup, match=r"cl100k_base.*reinstall"):
            count_text_tokens("hello world", "gpt-4")
    copy.write_bytes(healthy)
    assert count_text_tokens("hello world", "gpt-4").tokens == 2


# --- loading --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_encoding_loaded")
def test_threads_that_race_to_load_get_one_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    start = Barrier(8)

    def counted(vocabulary: Vocabulary) -> dict[bytes, int]:
        reads.append(vocabulary.name)
        return read_ranks(vocabulary)

    def load(_number: int) -> tiktoken.Encoding:
        start.wait()
        return load_encoding("cl100k_base")

    monkeypatch.setattr(tokens, "read_ranks", counted)
    with ThreadPoolExecutor(8) as pool:
        loaded = list(pool.map(load, range(8)))
    assert reads == ["cl100k_base"]
    assert len({id(encoding) for encoding in loaded}) == 1


def test_an_encoding_that_is_not_shipped_is_an_invalid_argument() -> None:
    with pytest.raises(InvalidArgument, match=r"p50k_base.*cl100k_base, o200k_base"):
        load_encoding("p50k_base")


WATCHED = """
import os, sys
import flue_py.context.tokens as tokens
assert "tiktoken" not in sys.modules, "importing the module must not import tiktoken"
seen = []
def watch(event, args):
    if event.split(".")[0] == "socket":
        seen.append((event, args))
    elif event == "open" and (args[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        seen.append((event, args))
    elif event in ("os.mkdir", "os.rename", "os.remove"):
        seen.append((event, args))
sys.addaudithook(watch)
for model in (None, "gpt-4", "claude-opus-4-5"):
    print(tokens.count_text_tokens("hello world", model).tokens)
assert not seen, seen
"""


def test_counting_opens_no_socket_and_writes_no_file(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    settings_of_tiktoken = {"TIKTOKEN_CACHE_DIR": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", WATCHED],
        env=os.environ | settings_of_tiktoken,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["2", "2", "4"]
    assert not cache.exists()


# --- counts of text -------------------------------------------------------------------------------------------


@inputs(
    ("text", "o200k", "cl100k"),
    [
        ("", 0, 0), ("hello world", 2, 2), ("tiktoken is great!", 6, 6), ("antidisestablishmentarianism", 6, 6),
        ("2 + 2 = 4", 7, 7), ("お誕生日おめでとう", 8, 9), ("<|endoftext|>", 7, 7),
        ("def f(x):\n    return x * 2\n", 11, 11), ("🙂" * 3, 3, 6),
    ],
)  # fmt: skip
def test_known_texts_have_known_counts(text: str, o200k: int, cl100k: int) -> None:
    assert count_text_tokens(text) == TokenCount(o200k, False, "o200k_base")
    assert count_text_tokens(text, "gpt-4o") == TokenCount(o200k, False, "o200k_base")
    assert count_text_tokens(text, "gpt-4") == TokenCount(cl100k, False, "cl100k_base")


@inputs("special", ["<|endoftext|>", "<|endofprompt|>", "<|fim_prefix|>", "<|start|>"])
@BOTH
def test_the_text_of_a_special_token_counts_as_ordinary_text(special: str, name: str) -> None:
    count = count_text_tokens(special, MODEL_OF[name])
    assert count.tokens > 3
    assert load_encoding(name).decode(load_encoding(name).encode_ordinary(special)) == special


@pytest.fixture(scope="module")
def published() -> Iterator[dict[str, tiktoken.Encoding]]:
    """tiktoken's own definitions of the encodings, over the shipped ranks."""
    openai_public = importlib.import_module("tiktoken_ext.openai_public")
    with pytest.MonkeyPatch.context() as patch:
        encodings = {}
        for name in VOCABULARIES:
            found = read_ranks(VOCABULARIES[name])
            patch.setattr(openai_public, "load_tiktoken_bpe", lambda *_args, found=found, **_options: found)
            encodings[name] = tiktoken.Encoding(**getattr(openai_public, name)())
        yield encodings


@BOTH
@given(text=TEXTS)
@examples(100)
def test_the_shipped_encodings_agree_with_the_definitions_in_tiktoken(
    published: dict[str, tiktoken.Encoding], name: str, text: str
) -> None:
    assert load_encoding(name).encode_ordinary(text) == published[name].encode_ordinary(text)


def test_a_lone_surrogate_is_counted_and_not_refused() -> None:
    assert count_text_tokens("a\ud800b").tokens == count_text_tokens("a\ufffdb").tokens
    assert count_text_tokens("a\ud800b", "some-model").tokens == 2


# --- slices ---------------------------------------------------------------------------------------------------


def _is_free_cut(before: str, after: str) -> bool:
    after_word = not before[-1].isspace() and after[0] == " "
    after_line = before[-1] == "\n" and not after[0].isspace() and after[0] != "/"
    return after_word or after_line


@given(text=TEXTS, limit=st.integers(1, 40))
@examples(300)
def test_slices_join_to_the_text_and_keep_the_count(text: str, limit: int) -> None:
    pieces = slices(text, limit)
    assert "".join(pieces) == text
    assert all(len(piece) <= limit for piece in pieces) or not text
    forced = sum(not _is_free_cut(before, after) for before, after in pairwise(pieces))
    for name in VOCABULARIES:
        encode = load_encoding(name).encode_ordinary
        difference = sum(len(encode(piece)) for piece in pieces) - len(encode(text))
        assert abs(difference) <= 8 * forced


def test_a_text_with_blanks_is_counted_exactly_across_many_slices() -> None:
    text = "".join(f"{number} bottles, {{'left': {number % 7}}}\n    and  one/more\n" for number in range(3_000))
    assert len(slices(text)) > 20
    for name in VOCABULARIES:
        assert count_text_tokens(text, MODEL_OF[name]).tokens == len(load_encoding(name).encode_ordinary(text))


# Longest token of a run of the character, in either vocabulary: what the count must come to.
@pytest.mark.thorough(but=["200000"])
@pytest.mark.parametrize("length", [200_000, 3_000_000])
@inputs(("char", "longest"), [(" ", 128), ("\t", 16), ("a", 8)])
def test_a_long_run_of_one_character_is_counted(char: str, longest: int, length: int) -> None:
    for model in MODEL_OF.values():
        assert count_text_tokens(char * length, model).tokens == -(-length // longest)


def test_a_run_of_blanks_before_a_letter_is_counted() -> None:
    # The form that makes cl100k_base panic when it is given whole.
    assert count_text_tokens(" " * 1_000_000 + "x", "gpt-4").tokens == 7_814


def test_slices_are_short_enough_for_the_tokenizer() -> None:
    assert max(map(len, slices("x" * (3 * SLICE_CHARS + 5)))) == SLICE_CHARS


# --- models ---------------------------------------------------------------------------------------------------


@inputs(
    ("model", "encoding"),
    [
        (None, "o200k_base"), ("gpt-4o", "o200k_base"), ("gpt-4o-mini-2024-07-18", "o200k_base"),
        ("gpt-5", "o200k_base"), ("gpt-5.1-codex", "o200k_base"), ("gpt-4.1-mini", "o200k_base"), ("o3", "o200k_base"),
        ("o4-mini-2025-04-16", "o200k_base"), ("gpt-oss-120b", "o200k_base"), ("gpt-4", "cl100k_base"),
        ("gpt-4-turbo", "cl100k_base"), ("gpt-3.5-turbo", "cl100k_base"), ("text-embedding-3-small", "cl100k_base"),
        ("claude-opus-4-5", None), ("gemini-2.5-pro", None), ("davinci", None), ("o10", None), ("", None),
    ],
)  # fmt: skip
def test_a_model_has_the_encoding_that_is_known_for_it(model: str | None, encoding: str | None) -> None:
    assert encoding_name_for(model) == encoding
    count = count_text_tokens("hello world", model)
    assert count.encoding == encoding
    assert count.is_estimate == (encoding is None)


@inputs("model", ["claude-opus-4-5", "gemini-2.5-pro", "made-up"])
@pytest.mark.usefixtures("no_encoding_loaded")
def test_an_unknown_model_gets_an_estimate_without_loading_a_vocabulary(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_vocabulary: Vocabulary) -> dict[bytes, int]:
        raise AssertionError("a vocabulary was loaded")

    monkeypatch.setattr(tokens, "read_ranks", refuse)
    assert count_text_tokens("", model) == TokenCount(0, True, None)
    assert count_text_tokens("abcd", model) == TokenCount(2, True, None)
    assert count_text_tokens("漢字", model) == TokenCount(2, True, None)
    message: JsonObject = {"role": "user", "content": "abcdef"}
    assert count_message_tokens(message, model) == TokenCount(MESSAGE_OVERHEAD_TOKENS + 2, True, None)
    assert estimate_message_tokens(message) == count_message_tokens(message, model)


# --- messages -------------------------------------------------------------------------------------------------


def _tokens(*texts: str) -> int:
    return sum(count_text_tokens(text).tokens for text in texts)


def _content(*parts: object) -> JsonObject:
    return {"role": "assistant", "content": list(parts)}  # type: ignore[arg-type]


def test_a_message_counts_its_text_and_the_overhead() -> None:
    expected = TokenCount(_tokens("Why is the build red?") + MESSAGE_OVERHEAD_TOKENS, False, "o200k_base")
    assert count_message_tokens({"role": "user", "content": "Why is the build red?"}) == expected
    assert count_message_tokens(_content({"type": "text", "text": "Why is the build red?"})) == expected
    assert count_message_tokens(_content("Why is the build red?")) == expected


def test_an_assistant_message_counts_thinking_text_and_tool_calls_and_nothing_else() -> None:
    message = _content(
        {"type": "thinking", "thinking": "Read first.", "thinkingSignature": "c2lnbmF0dXJl" * 50},
        {"type": "text", "text": "Reading."},
        {"type": "toolCall", "id": "call_1", "name": "read", "arguments": {"path": "src/ünï.py", "lines": [1, 2]}},
    )
    message |= {"usage": {"input": 12, "output": 30}, "timestamp": 1767607205000, "model": "m", "stopReason": "toolUse"}
    arguments = '{"path":"src/ünï.py","lines":[1,2]}'
    expected = _tokens("Read first.", "Reading.", "read", arguments) + MESSAGE_OVERHEAD_TOKENS
    assert count_message_tokens(message) == TokenCount(expected, False, "o200k_base")


def test_tool_arguments_given_as_text_count_as_that_text() -> None:
    call = _content({"type": "toolCall", "id": "c", "name": "read", "arguments": '{"path": "a"}'})
    assert count_message_tokens(call).tokens == _tokens("read", '{"path": "a"}') + MESSAGE_OVERHEAD_TOKENS


def test_a_tool_result_counts_its_content() -> None:
    message: JsonObject = {
        "role": "toolResult",
        "toolCallId": "call_1",
        "toolName": "read",
        "content": [
            {"type": "text", "text": "(empty)"},
            {"type": "image", "data": "AAAA" * 999, "mimeType": "image/png"},
        ],
        "details": {"long": "x" * 500},
        "isError": False,
    }
    expected = _tokens("(empty)") + IMAGE_TOKENS + MESSAGE_OVERHEAD_TOKENS
    assert count_message_tokens(message) == TokenCount(expected, True, "o200k_base")


@inputs(
    ("kind", "cost"),
    [("image", IMAGE_TOKENS), ("image_url", IMAGE_TOKENS), ("file", FILE_TOKENS), ("document", FILE_TOKENS)],
)
def test_an_image_or_a_file_has_a_fixed_cost_and_makes_an_estimate(kind: str, cost: int) -> None:
    for data in ("", "QUJD" * 10_000):
        count = count_message_tokens(_content({"type": kind, "data": data}))
        assert count == TokenCount(cost + MESSAGE_OVERHEAD_TOKENS, True, "o200k_base")


@inputs(
    ("part", "text"),
    [
        ({"type": "audio", "data": "AAAA"}, '{"type":"audio","data":"AAAA"}'),
        ({"type": ["odd"], "x": None}, '{"type":["odd"],"x":null}'),
        ({"type": "text", "text": 5}, '{"type":"text","text":5}'),
        ({"type": "toolCall", "id": "c"}, '{"type":"toolCall","id":"c"}'),
        ({}, "{}"),
        (7, "7"),
        (None, "null"),
        (["a"], '["a"]'),
    ],
)
def test_an_unknown_part_counts_its_json_and_makes_an_estimate(part: object, text: str) -> None:
    count = count_message_tokens(_content(part))
    assert count == TokenCount(_tokens(text) + MESSAGE_OVERHEAD_TOKENS, True, "o200k_base")


def test_a_message_without_content_counts_its_json_and_makes_an_estimate() -> None:
    message: JsonObject = {"role": "bashExecution", "command": "ls", "output": "a\nb\n", "exitCode": 0}
    text = '{"role":"bashExecution","command":"ls","output":"a\\nb\\n","exitCode":0}'
    assert count_message_tokens(message) == TokenCount(_tokens(text) + MESSAGE_OVERHEAD_TOKENS, True, "o200k_base")


@given(st.lists(TEXTS, max_size=6), st.sampled_from([None, "gpt-4", "claude-opus-4-5"]))
@examples(60)
def test_messages_together_count_the_sum_of_each(texts: list[str], model: str | None) -> None:
    messages: list[JsonObject] = [{"role": "user", "content": text} for text in texts]
    together = count_tokens(iter(messages), model)
    assert together.tokens == sum(count_message_tokens(message, model).tokens for message in messages)
    assert together.is_estimate == (model == "claude-opus-4-5")


def test_one_image_among_texts_makes_the_whole_count_an_estimate() -> None:
    texts: list[JsonObject] = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    assert not count_tokens(texts).is_estimate
    assert count_tokens([texts[0], _content({"type": "image", "data": ""}), texts[1]]).is_estimate
    assert count_tokens([]) == TokenCount(0, False, "o200k_base")


def test_media_count_as_media_in_every_part() -> None:
    data = b64encode(random.Random(1).randbytes(90_000)).decode()
    picture = "iVBORw0KGgoA" + data
    wrong = []
    for part, least in (
        ({"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": data}, IMAGE_TOKENS),
        ({"type": "image_generation_call", "result": picture, "partials": [picture, picture]}, 3 * IMAGE_TOKENS),
        ({"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}, FILE_TOKENS),
        ({"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{data}"}}, FILE_TOKENS),
        ({"type": "web_fetch_tool_result", "content": {"source": {"type": "base64", "data": data}}}, FILE_TOKENS),
        ({"type": "computer_call_output", "output": {"image_url": f"data:image/png;base64,{data}"}}, IMAGE_TOKENS),
        ({"type": "gemini:mystery", "inline": [picture]}, IMAGE_TOKENS),
        ({"type": "note", "text": ["words " * 500]}, 1),
        ({"type": "web_search_tool_result", "content": [{"encrypted_content": data}]}, 30_000),
    ):
        for model in ("gpt-5", "large-1"):
            tokens = count_message_tokens({"role": "assistant", "content": [part]}, model).tokens
            most = 100_000 if least == 30_000 else least + 1_100
            if not least <= tokens <= most:
                wrong.append((model, part["type"], tokens))
    assert wrong == []


# -- How far each counter is from what providers counted: the page has what the program prints ------------------------


PAGE = Path(__file__).resolve().parents[2] / "docs" / "concepts" / "context.md"


@pytest.mark.thorough
def test_the_page_has_rows_that_are_measured_for_every_model() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| claude-")]
    measured = table()
    assert [row for row in rows if row not in measured] == []
    assert {row.split(" (")[0] for row in rows} == {row.split(" (")[0] for row in measured[2:]}


def call(model: str, prompt: int) -> JsonObject:
    return {"role": "assistant", "content": [], "model": model, "usage": {"input": prompt - 7, "cacheRead": 7}}


def test_a_stretch_is_from_one_call_of_a_model_to_the_next_or_from_the_first_to_each() -> None:
    items = context(
        user("q"), call("a", 100), call("b", 500), user("q"), call("a", 130),
        {**call("a", 140), "stopReason": "error"}, call("a", 150), call("a", 120),
    )  # fmt: skip
    steps = [(each.model, [one.entry_id for one in each.items], each.tokens) for each in stretches(items, whole=False)]
    assert steps == [("a", ["e1", "e2", "e3"], 30), ("a", ["e4", "e5"], 20)]
    assert [each.tokens for each in stretches(items, whole=True)] == [30, 50, 20]
