"""What is worth keeping that no other block carries: errors, decisions with their reasons, and names.

A list of operations says what was done. Why it was done stands in a sentence of the model's, what went wrong in a line
of some output, and by which names to look for it, anywhere. They are copied out word for word, by the rules of
`flue_py.compaction.facts`, and stored in the details of each compaction, from which the next takes them over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from flue_py.compaction.blocks.block import Block
from flue_py.compaction.content import ASSISTANT, TOOL_RESULT, Message
from flue_py.compaction.facts import ARGUMENT_CHARS, Facts, facts_of
from flue_py.compaction.material import Material
from flue_py.compaction.quoting import shown_id, without_tags
from flue_py.core.exchange import tool_calls
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.spoken import message_text

HEADING = "[WORTH KEEPING — copied from what is not shown any more]"
MOST_TOKENS = 1_200
"""What the block takes in a large window, a third of it for each of its lists."""
MOST_LINES = 24
MOST_NAMES = 250
READ_CHARS = 80_000
SEARCHED_CHARS = 250_000
"""So much text is read for names, and searched for errors and decisions, the newest first: a compaction takes no longer
for a longer session."""

_SHARE = 24
_TITLES_TOKENS = 60
"""What the heading and the titles of the lists take of the room that there is."""
_WORD_CHARS = 120
_SIGNS_OF_ERRORS = ("rror:", "rror[", "RROR", "xception:", "atal:", "ATAL:", "panic", "FAILED")
_SIGNS_OF_DECISIONS = (
    "cause",
    "nstead of",
    "ather than",
    "ecid",
    "ecision",
    "onclu",
    "urns out",
    "urned out",
    "he fix ",
    "he plan ",
    "he reason ",
    "he solution ",
    "he approach ",
)
"""What lines have that may say so, without first letters: finding them takes a hundredth of reading all text."""
_QUOTES = "\"'.,;:!?[]{}<>*#=-–—"

_Lists = dict[str, dict[str, str]]
"""The texts of each list, the newest first, with the id of the entry of each; "" for names."""


def key_facts(material: Material) -> Block:
    """Return errors, decisions and names of what leaves, and of what left before: the newest that fit.

    They take at most `MOST_TOKENS`, a 24th of the window, and an eighth of what leaves. No block without any.
    O(messages), and O(text) of the newest `SEARCHED_CHARS` characters.
    """
    carried = _carried(material.earlier)
    leaving = material.size_leaving
    most = material.at_most(min(MOST_TOKENS, leaving // 8, (material.window or leaving) // _SHARE))
    if material.room is not None:
        most = max(min(most, material.room - _TITLES_TOKENS), 0)
    room = most // len(_TITLES)
    both = {
        name: {**found, **{text: at for text, at in carried[name].items() if text not in found}}
        for name, found in _found(material).items()
    }
    return _block(_fitting(material, both, room))


def carried_facts(material: Material) -> Block:
    """Return the block as earlier compactions left it, for a mode that adds nothing to it: the newest that fit."""
    room = material.at_most(MOST_TOKENS, _SHARE) // len(_TITLES)
    return _block(_fitting(material, _carried(material.earlier), room))


# -- finding them ------------------------------------------------------------------------------------------------------


def _found(material: Material) -> _Lists:
    errors: dict[str, str] = {}
    decisions: dict[str, str] = {}
    words: dict[str, None] = {}
    read = 0
    roles = material.roles
    for at in range(len(roles) - 1, -1, -1):
        role = roles[at]
        if read > SEARCHED_CHARS:
            break
        if role not in (ASSISTANT, TOOL_RESULT):
            continue
        message = material.message(at)
        texts = _read(message)
        read += sum(map(len, texts))
        if len(errors) < MOST_LINES and (found := _errors(message, texts)):
            _add(errors, found, material.leaving[at].entry_id)
        if role == ASSISTANT:
            if len(decisions) < MOST_LINES and (found := _decisions(texts[0])):
                _add(decisions, found, material.leaving[at].entry_id)
            if read <= READ_CHARS:
                for text in texts:
                    words.update(dict.fromkeys(text.split()))
    shown: set[str] = set()
    for item in material.staying:
        for text in _read(item.data):
            shown.update(text.split())
    names = _names([word for word in words if word not in shown])
    return {"errors": errors, "decisions": decisions, "names": dict.fromkeys(names, "")}


def _read(message: Message) -> list[str]:
    """Return what a message says, and then the short arguments of its calls."""
    texts = [message_text(message)]
    for call in tool_calls(message):
        arguments = call.get("arguments")
        values = arguments.values() if isinstance(arguments, Mapping) else ()
        texts += [value for value in values if isinstance(value, str) and len(value) <= ARGUMENT_CHARS]
    return texts


def _add(lines: dict[str, str], found: Sequence[str], entry_id: str) -> None:
    for text in reversed(found):
        lines.setdefault(text, entry_id)


def _errors(message: Message, texts: Sequence[str]) -> list[str]:
    said = _lines_with(_SIGNS_OF_ERRORS, texts[0])
    if not said and message.get("isError") is True:
        said = texts[0][:ARGUMENT_CHARS]
    if not said:
        return []
    read: JsonObject = {"role": message.get("role"), "content": said, "isError": message.get("isError") is True}
    return [fact.text for fact in facts_of([read]).errors]


def _decisions(text: str) -> list[str]:
    said = _lines_with(_SIGNS_OF_DECISIONS, text)
    return [fact.text for fact in _facts_in(said).decisions] if said else []


def _lines_with(signs: Sequence[str], text: str) -> str:
    there = [sign for sign in signs if sign in text]
    if not there:
        return ""
    return "\n".join(line for line in text.splitlines() if any(sign in line for sign in there))


def _names(words: Sequence[str]) -> list[str]:
    """Return the identifiers among words, in their order."""
    telling = [word for word in words if len(word) <= _WORD_CHARS and _may_name(word.strip(_QUOTES))]
    return [fact.text for fact in _facts_in(" ".join(telling[: 2 * MOST_NAMES])).identifiers]


def _may_name(word: str) -> bool:
    """Return whether a word may have a name in it: most words are plain, and need not be looked at."""
    return "_" in word or "`" in word or "()" in word or word[1:].lower() != word[1:] or not word.isalpha()


def _facts_in(text: str) -> Facts:
    return facts_of([{"role": ASSISTANT, "content": text}])


# -- what fits ---------------------------------------------------------------------------------------------------------


def _fitting(material: Material, lists: _Lists, room: int) -> _Lists:
    """Return the newest of each list that take at most so many tokens."""
    return {
        name: _newest_names(material, found, room) if name == "names" else _newest_lines(material, found, room)
        for name, found in lists.items()
    }


def _newest_lines(material: Material, found: Mapping[str, str], room: int) -> dict[str, str]:
    kept: dict[str, str] = {}
    for text, entry_id in list(found.items())[:MOST_LINES]:
        room -= material.tokens_of(_line(text, entry_id))
        if room < 0:
            break
        kept[text] = entry_id
    return kept


def _newest_names(material: Material, found: Mapping[str, str], room: int) -> dict[str, str]:
    names = list(found)[:MOST_NAMES]
    tokens = material.tokens_of(", ".join(names)) if names else 0
    return dict.fromkeys(names[: len(names) * room // tokens] if tokens > room else names, "")


# -- the block ---------------------------------------------------------------------------------------------------------


def _line(text: str, entry_id: str) -> str:
    return f"- {without_tags(text)} [entry {shown_id(entry_id)}]"


def _lines(found: Mapping[str, str]) -> str:
    return "\n".join(_line(text, entry_id) for text, entry_id in reversed(list(found.items())))


_TITLES: Mapping[str, tuple[str, Callable[[Mapping[str, str]], str]]] = {
    "errors": ("Errors, oldest first:", _lines),
    "decisions": ("Decisions and reasons, oldest first:", _lines),
    "names": ("Names that occur, newest first:", lambda names: without_tags(", ".join(names))),
}


def _block(kept: _Lists) -> Block:
    parts = [f"{title}\n{shown(kept[name])}" for name, (title, shown) in _TITLES.items() if kept[name]]
    if not parts:
        return Block()
    stored: JsonObject = {name: [[text, at] for text, at in found.items()] for name, found in kept.items() if found}
    return Block("\n".join([HEADING, *parts]), {"keyFacts": stored})


def _carried(earlier: Mapping[str, JsonValue] | None) -> _Lists:
    stored = (earlier or {}).get("keyFacts")
    return {name: dict(_pairs(stored.get(name) if isinstance(stored, Mapping) else None)) for name in _TITLES}


def _pairs(stored: JsonValue) -> Iterator[tuple[str, str]]:
    for each in stored if isinstance(stored, (list, tuple)) else ():
        if isinstance(each, (list, tuple)) and len(each) == 2:
            text, at = each
            if isinstance(text, str) and isinstance(at, str):
                yield text, at
