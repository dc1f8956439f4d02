"""What can be lost when messages are summarized, by rules of text: files, errors, what the user asked for, and more.

No model is asked, so the same messages always have the same facts. The rules, which are all there are:

- ``file``: a path with a slash and an ending, one that begins at a root with two names, a bare name with an ending of
  `ENDINGS`, and what the ``path``, ``file_path``, ``filename`` or ``file`` of a call is. In the texts of user and
  model, in short arguments of calls, and in error lines. A leading ``./`` and a line number are left out; a URL is no
  file.
- ``identifier``: a word with a ``_`` between two letters or digits, or a capital behind a small letter; a word before
  ``()``; one word in backticks; a hexadecimal id of 7 to 40 signs with a digit and a letter; a UUID. In the texts of
  user and model and in short arguments.
- ``error``: a line with ``Error:``, ``error:``, ``Exception:``, ``fatal:`` or ``panic:`` and more behind it, or that
  begins with ``FAILED``, unless it looks like code; of a failed result without one, its first line. In results and
  texts of the model, at most 20 of each message.
- ``instruction``: of what the user said, the first sentence of a message, and each with a word of `CONSTRAINTS`.
- ``question``: a sentence of the user or the model that ends in a question mark; of the model, only of a message that
  calls no tool. Whether it has been answered since, no rule can tell.
- ``decision``: a sentence of the model with a word of `REASONS`.
- ``result``: the first and the last line with a word in it of a tool's result, unless it is an error.

What programs wrote in the user's name is not the user's own (`flue_py.core.spoken`), and thinking is left out. A short
argument has up to 300 characters. Code between fences has no sentences, and a sentence has at least 8 characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

from flue_py.compaction.content import ASSISTANT, TOOL_RESULT, USER, Message, string_field
from flue_py.compaction.file_calls import PATH_ARGUMENTS
from flue_py.compaction.plan import ContextItem
from flue_py.compaction.quoting import on_one_line
from flue_py.core.exchange import tool_calls
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonValue
from flue_py.core.kinds import MESSAGE
from flue_py.core.spoken import message_text, own_words

FactKind: TypeAlias = Literal["instruction", "question", "decision", "error", "file", "identifier", "result"]
FACT_KINDS: tuple[FactKind, ...] = ("instruction", "question", "decision", "error", "file", "identifier", "result")
"""The kinds in the order in which they are listed: what nobody can look up again comes first."""
SENTENCE_CHARS = 300
LINE_CHARS = 200
ARGUMENT_CHARS = 300
"""A longer argument is the content of a file or a program, and what that names is not what was talked about."""
ERRORS_A_MESSAGE = 20
_LEAST_SENTENCE = 8
_ENDS_OF_RESULT = 4_000
_FEW_LINES = 400

_ENDINGS = (
    "bash c cc cfg clj conf cpp cs css csv dart db diff env erl ex exs go gradle graphql h hpp htm html ini ipynb "
    "java js json jsonl jsx kt lock log lua md mjs mk ml patch pdf php pl png proto ps1 py pyi rb rs rst scala "
    "scss sh sql sqlite svelte svg swift tex tf toml ts tsv tsx txt vue xml yaml yml zig zsh"
)
ENDINGS = frozenset(_ENDINGS.split())
"""The endings by which a name without a folder is taken for a file."""
CONSTRAINTS = re.compile(
    r"\b(?:must(?:n't)?|never|always|only|don't|do not|does not|cannot|can't|shall|should(?:n't)?|make sure|ensure"
    r"|avoid|without|keep|require[sd]?|(?:have|has|needs?) to|at (?:most|least)|no (?:more|less|fewer) than|prefer"
    r"|instead|not allowed|forbidden|important|remember|please)\b",
    re.IGNORECASE,
)
"""The words by which a sentence of the user is taken for an instruction."""
REASONS = re.compile(
    r"\b(?:decid(?:e|ed|ing)|decision|ch(?:oose|ose|osen)|opt(?:ed)? for|instead of|rather than|because|root cause"
    r"|turn(?:s|ed) out|go(?:ing)? with|settled? on|trade-?offs?|agreed|conclu(?:de|ded|sion)"
    r"|the (?:fix|plan|approach|reason|solution|cause) (?:is|was))\b",
    re.IGNORECASE,
)
"""The words by which a sentence of the model is taken for a decision."""
_IN_ONE_CASE = {words.pattern: re.compile(words.pattern) for words in (CONSTRAINTS, REASONS)}

_PATHS = re.compile(r"(?<![\w./\\~@+-])(?:[A-Za-z]:(?=[/\\]))?[\w@+-]*+[./\\~][\w.@+~/\\-]*+")
_ENDING = re.compile(r"\w[\w@+-]*(?:\.[\w@+-]+)*\.([A-Za-z][A-Za-z0-9]{0,7})|\.[\w.-]+")
_IDENTIFIERS = re.compile(
    r"`(?P<quoted>[^`\s]{2,80})`"
    r"|\b(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|(?=[A-Za-z_])(?=\w*?(?:[A-Za-z0-9]_[A-Za-z0-9]|[a-z][A-Z]))\w{3,80}"
    r"|[A-Za-z_]\w{1,79}(?=\(\))"
    r"|(?=[0-9a-f]*?[0-9])(?=[0-9a-f]*?[a-f])[0-9a-f]{7,40})(?!\w)"
)
_ERRORS = re.compile(
    r"(?<!\w)(?:(?:[A-Z]\w{0,60}?)?(?:Error|Exception)|error|ERROR|[Ff]atal|FATAL|panic)(?:\[\w{1,40}\])?:[ \t]*[^\s]"
    r"|^[ \t]*FAILED\b",
    re.MULTILINE,
)
_SIGNS_OF_ERRORS = ("rror", "RROR", "xception", "atal", "ATAL", "panic")
"""What a line has, with a colon or a bracket behind it, that `_ERRORS` finds something in without ``FAILED``."""
_WORDS = re.compile(r"\w+")
_WORD = re.compile(r"[^\W_]{2}")
_LETTER = re.compile(r"[^\W\d_]")
_CODE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1|\Z)", re.MULTILINE | re.DOTALL)
# What begins with a sign, rather than with a look behind it, is found in a fraction of the time.
_WRAPPED = re.compile(r"\n(?<=[^\s.!?:;]\n)(?=[a-z])")
_MARKS = re.compile(r"\A(?:[-*+•>#]+|\d{1,3}[.)])\s+")
_ENDS = re.compile(r"\s(?:(?<=[.!?]\s)(?<!e\.g\.\s)(?<!i\.e\.\s)|(?<=\n))")
_WIDE_ENDS = "。！？"
# A file may be named from a folder further up; nothing may make an identifier part of a longer one.
_BEFORE_FILE = re.compile(r"[\w.@+~-]")
_AFTER_FILE = re.compile(r"[\w/\\]|[.@+~-]\w")
_BEFORE_NAME = _AFTER_NAME = re.compile(r"\w")
_ALIKE = {"’": "'", "‘": "'", "“": '"', "”": '"', "\u00a0": " "}


@frozen
class Fact:
    """Something that messages say: what it is, its text, the ids of the entries it stands in, and how often in all.

    ``entry_ids`` are in order, each once; none for plain messages. ``text`` is one line; "…" at its end says it is cut.
    """

    kind: FactKind
    text: str
    entry_ids: tuple[str, ...] = ()
    count: int = 1


@frozen
class Facts:
    """The facts of messages by kind, each kind in the order in which they were first said, each fact once."""

    files: tuple[Fact, ...] = ()
    identifiers: tuple[Fact, ...] = ()
    errors: tuple[Fact, ...] = ()
    instructions: tuple[Fact, ...] = ()
    questions: tuple[Fact, ...] = ()
    decisions: tuple[Fact, ...] = ()
    results: tuple[Fact, ...] = ()

    def of(self, kind: FactKind) -> tuple[Fact, ...]:
        """Return the facts of one kind."""
        found: tuple[Fact, ...] = getattr(self, f"{kind}s")
        return found

    def __iter__(self) -> Iterator[Fact]:
        """Every fact, kind by kind in the order of `FACT_KINDS`."""
        for kind in FACT_KINDS:
            yield from self.of(kind)

    def __len__(self) -> int:
        return sum(len(self.of(kind)) for kind in FACT_KINDS)


Said: TypeAlias = Sequence[tuple[FactKind, str, str]]
"""What one message says: kind, text, and the text by which it is the same as another."""


def facts_of(messages: Iterable[Message | ContextItem], known: dict[str, Said] | None = None) -> Facts:
    """Return the facts of messages, or of the items of a context, by the rules above; never raises. O(text).

    ``known`` remembers what items say by the ids of their entries, for a caller that asks about many stretches of the
    same history; an item must be the same in all of them.
    """
    found: dict[tuple[FactKind, str], _Mentions] = {}
    for each in messages:
        entry_id = None
        if isinstance(each, Mapping):
            said = said_by(each)
        else:
            entry_id = each.entry_id
            remembered = None if known is None else known.get(entry_id)
            said = said_by(each.data, is_own=each.kind == MESSAGE) if remembered is None else remembered
            if known is not None:
                known[entry_id] = said
        for kind, text, same in said:
            mentions = found.get((kind, same))
            if mentions is None:
                mentions = found[kind, same] = _Mentions(kind, text)
            mentions.add(entry_id)
    by_kind: dict[str, list[Fact]] = {f"{kind}s": [] for kind in FACT_KINDS}
    for mentions in found.values():
        by_kind[f"{mentions.kind}s"].append(mentions.fact)
    return Facts(**{name: tuple(facts) for name, facts in by_kind.items()})


def covered(fact: Fact, text: str) -> bool:
    """Return whether a text says a fact word for word.

    White space, emphasis and the form of quotes do not matter, nor, but for files and identifiers, does case. A file
    may stand behind more folders, an identifier only by itself; what is cut counts as far as it goes. A paraphrase
    does not count. O(text) for the first of many questions about the same text, then one search.
    """
    is_name = fact.kind in ("file", "identifier")
    within = _searched(text, is_name=is_name)
    sought = _plain(fact.text) if is_name else alike(fact.text).removesuffix("…").rstrip()
    words = (match[0] for match in _WORDS.finditer(sought))
    # The first and the last word of what is cut may be parts of words.
    if not all(word in within.words for word in (words if is_name else _inner(words))):
        return False
    return _stands_alone(fact.kind, sought, within.text) if is_name else sought in within.text


def alike(text: str) -> str:
    """Return a text as texts are compared: in one case, with single spaces, without emphasis and escapes."""
    return " ".join(_plain(text).replace("*", " ").replace("`", " ").split()).casefold()


def _inner(words: Iterator[str]) -> Iterator[str]:
    """Yield all words but the first and the last."""
    next(words, None)
    return (word for word, _ in pairwise(words))


class _Mentions:
    """A fact that is being counted."""

    __slots__ = ("_count", "_entry_ids", "_text", "kind")

    def __init__(self, kind: FactKind, text: str) -> None:
        self.kind = kind
        self._text = text
        self._entry_ids: dict[str, None] = {}
        self._count = 0

    def add(self, entry_id: str | None) -> None:
        self._count += 1
        if entry_id is not None:
            self._entry_ids[entry_id] = None

    @property
    def fact(self) -> Fact:
        return Fact(self.kind, self._text, tuple(self._entry_ids), self._count)


def said_by(message: Message, *, is_own: bool = True) -> Said:
    """Return what one message says; ``is_own`` that it is the message of an entry, not what stands for another one."""
    return [
        (kind, text, text if kind in ("file", "identifier") else alike(text))
        for kind, text in _said(message, is_own=is_own)
    ]


def _said(message: Message, *, is_own: bool) -> Iterator[tuple[FactKind, str]]:
    role = message.get("role")
    text = message_text(message)
    if role == TOOL_RESULT:
        yield from _of_result(text, is_failed=message.get("isError") is True)
        return
    if role not in (USER, ASSISTANT):
        return
    yield from _named(text)
    if role == USER and is_own and message.get("isMeta") is not True:
        yield from _of_user(own_words(text))
    elif role == ASSISTANT:
        calls = tool_calls(message)
        yield from _of_model(text, is_last=not calls)
        for call in calls:
            yield from _of_arguments(call.get("arguments"))


def _of_user(text: str) -> Iterator[tuple[FactKind, str]]:
    for at, sentence in enumerate(_sentences(text)):
        if _asks(sentence):
            yield "question", sentence
        elif at == 0 or _says(CONSTRAINTS, _straight(sentence)):
            yield "instruction", sentence


def _of_model(text: str, *, is_last: bool) -> Iterator[tuple[FactKind, str]]:
    for line in _error_lines(text):
        yield "error", line
    for sentence in _sentences(text):
        if _asks(sentence):
            if is_last:
                yield "question", sentence
        elif _says(REASONS, sentence):
            yield "decision", sentence


def _says(words: re.Pattern[str], sentence: str) -> bool:
    """Return whether a sentence has one of some words, which takes a third of the time where all is in one case."""
    if sentence.isascii():
        return _IN_ONE_CASE[words.pattern].search(sentence.lower()) is not None
    return words.search(sentence) is not None


def _of_arguments(arguments: JsonValue) -> Iterator[tuple[FactKind, str]]:
    if not isinstance(arguments, Mapping):
        return
    for name, value in arguments.items():
        if not isinstance(value, str) or not _LETTER.search(value) or len(value) > ARGUMENT_CHARS:
            continue
        if name in PATH_ARGUMENTS and "\n" not in value:
            yield "file", value.strip().removeprefix("./") or value.strip()
        else:
            yield from _named(value)


def _of_result(text: str, *, is_failed: bool) -> Iterator[tuple[FactKind, str]]:
    lines = [_line(line) for line in (_first_worded(text), _last_worded(text)) if line is not None]
    errors = _error_lines(text) or (lines[:1] if is_failed else [])
    for line in errors:
        yield "error", line
        yield from (("file", path) for path in _names_in(line)[0])
    for line in dict.fromkeys(lines):
        if line not in errors:
            yield "result", line


def _first_worded(text: str) -> str | None:
    """Return the first line with a word in it of the beginning of a text. Mostly that is among the first few."""
    # The last of these may go on.
    found = next(filter(_WORD.search, text[:_FEW_LINES].splitlines()[:-1]), None)
    return found or next(filter(_WORD.search, text[:_ENDS_OF_RESULT].splitlines()), None)


def _last_worded(text: str) -> str | None:
    found = next(filter(_WORD.search, text[-_FEW_LINES:].splitlines()[:0:-1]), None)
    return found or next(filter(_WORD.search, reversed(text[-_ENDS_OF_RESULT:].splitlines())), None)


def _named(text: str) -> Iterator[tuple[FactKind, str]]:
    paths, names = _names_in(text)
    for path in paths:
        yield "file", path
    for name in names:
        yield "identifier", name


def _names_in(text: str) -> tuple[list[str], list[str]]:
    """Return the paths and the identifiers in a text. None has white space in it, and most words occur again."""
    words = text.split()
    read = _read_word if max(map(len, words), default=0) <= LINE_CHARS else _read_word.__wrapped__
    found = list(filter(None, map(read, words)))
    return [path for paths, _ in found for path in paths], [name for _, names in found for name in names]


@lru_cache(maxsize=8_192)
def _read_word(word: str) -> tuple[list[str], list[str]] | None:
    """Return the paths and the identifiers in a word, None where there are none."""
    plain = word.rstrip(".,;:!?\"'")
    if plain.isalpha() and plain[1:].islower():
        return None
    paths, rest = _paths(word)
    written = ((match["quoted"] or match[0]).removesuffix("()") for match in _IDENTIFIERS.finditer(rest))
    names = [name for name in written if _LETTER.search(name)]
    return (paths, names) if paths or names else None


def _paths(text: str) -> tuple[list[str], str]:
    """Return the paths in a text, and the text without them."""
    found: list[str] = []

    def taken(match: re.Match[str]) -> str:
        path = _path(match[0])
        if path is None:
            return match[0]
        found.append(path)
        return " "

    return found, _PATHS.sub(taken, text)


def _path(written: str) -> str | None:
    """Return the path that a run of signs is, without what only comes before and after it; None if it is none."""
    path = written.rstrip(".-~+@").removeprefix("./")
    if path.startswith("//") or len(path) > LINE_CHARS:
        return None
    folders = path.replace("\\", "/").split("/")
    ending = _ENDING.fullmatch(folders[-1])
    if len(folders) == 1:
        return path if ending is not None and ending[1] is not None and ending[1].lower() in ENDINGS else None
    begins_at_root = folders[0] in ("", "~") or folders[0].endswith(":")
    names = [name for name in folders[1:] if _WORD.search(name)]
    return path if ending is not None or (begins_at_root and len(names) > 1) else None


def _error_lines(text: str) -> list[str]:
    """Return the lines of a text that say an error, in order, each once."""
    found: dict[str, None] = {}
    signs = [sign + end for sign in _SIGNS_OF_ERRORS if sign in text for end in ":["]
    for begin, end in _lines_with(["FAILED", *signs], text):
        if len(found) >= ERRORS_A_MESSAGE:
            break
        match = _ERRORS.search(text, begin, end)
        if match is None:
            continue
        line = _line(text[max(begin, match.start() - LINE_CHARS // 2) : end])
        # Code that handles an error is not one.
        if not line.startswith(("except ", "raise ", "catch ")) and not line.endswith((",", ";", "{", "(")):
            found[line] = None
    return list(found)


def _lines_with(signs: Iterable[str], text: str) -> Iterator[tuple[int, int]]:
    """Yield where those lines of a text begin and end that have one of some signs, in order."""
    following = {sign: text.find(sign) for sign in signs}
    while (first := min((at for at in following.values() if at >= 0), default=-1)) >= 0:
        begin, end = text.rfind("\n", 0, first) + 1, text.find("\n", first)
        end = len(text) if end < 0 else end
        yield begin, end
        for sign, at in following.items():
            if 0 <= at < end:
                following[sign] = text.find(sign, end)


def _sentences(text: str) -> Iterator[str]:
    """Return the sentences of a text, each on one line, without signs of lists and headings before them."""
    prose = _WRAPPED.sub(" ", _CODE.sub("\n", text) if "```" in text or "~~~" in text else text)
    for mark in _WIDE_ENDS:
        prose = prose.replace(mark, f"{mark}\n")
    for piece in _ENDS.split(prose):
        if len(piece) < _LEAST_SENTENCE:
            continue
        begun = piece.strip()
        sentence = on_one_line(begun if begun[:1].isalpha() else _MARKS.sub("", begun), SENTENCE_CHARS)
        if len(sentence) >= _LEAST_SENTENCE and _WORD.search(sentence):
            yield sentence


def _asks(sentence: str) -> bool:
    return sentence.rstrip("*_)\"'”").endswith(("?", "？"))


def _line(text: str) -> str:
    return on_one_line(text, LINE_CHARS)


def _stands_alone(kind: FactKind, name: str, text: str) -> bool:
    """Return whether a file or an identifier is in a text, and no part of a longer one."""
    before, after = (_BEFORE_FILE, _AFTER_FILE) if kind == "file" else (_BEFORE_NAME, _AFTER_NAME)
    at = text.find(name)
    while at >= 0:
        end = at + len(name)
        if not before.match(text, max(at - 1, 0), at) and not after.match(text, end):
            return True
        at = text.find(name, at + 1)
    return False


def _plain(text: str) -> str:
    return _straight(text.replace("&lt;", "<"))


def _straight(text: str) -> str:
    """Return a text with quotes and blanks of one form, which `str.translate` does in a hundred times the time."""
    if not text.isascii():
        for sign, plain in _ALIKE.items():
            text = text.replace(sign, plain)
    return text


class _Searched(NamedTuple):
    """A text in which facts are looked for, and the words in it: most facts that are not there lack one of them."""

    text: str
    words: frozenset[str]


@lru_cache(maxsize=4)
def _searched(text: str, *, is_name: bool) -> _Searched:
    """Return a text to be searched, remembered: thousands of facts are looked for in the same summary."""
    plain = _plain(text) if is_name else alike(text)
    return _Searched(plain, frozenset(_WORDS.findall(plain)))


def text_of(messages: Sequence[Message]) -> str:
    """Return everything that messages say, arguments of calls included: where `covered` looks for what they have."""
    found: list[str] = []
    for message in messages:
        found.append(message_text(message))
        for call in tool_calls(message):
            found.append(string_field(call, "name"))
            found.extend(_strings(call.get("arguments")))
    return "\n".join(filter(None, found))


def _strings(value: JsonValue) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _strings(each)
