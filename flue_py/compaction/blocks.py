"""Blocks: texts around a summary, with the details that the next compaction needs."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import translate
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias, cast

from msgspec import field
from msgspec.structs import replace

from flue_py.compaction.facts import ARGUMENT_CHARS, Facts, facts_of
from flue_py.compaction.material import Material, beginning, called_on, unanswered_calls
from flue_py.compaction.settings import (
    OWN_WORDS,
    CompactionSettings,
    FileLists,
    appended_file_lists,
    attribute,
    fenced,
    file_call,
    on_one_line,
    path_argument,
    quoted,
    shown_id,
    without_tags,
)
from flue_py.core.entries import REGISTERED, REGISTERED_KINDS, RegisteredText, tool_calls
from flue_py.core.json import Frozen, JsonObject, JsonValue, NamedTuple, js_json
from flue_py.core.kinds import ASSISTANT, TOOL_RESULT, Message, message_text, parts_of, string_field
from flue_py.errors import MissingExtra

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


# ---------------------------------------------------------------------------------------------------------------------
# Blocks: texts around a summary, with the details that the next compaction needs.


class Block(Frozen):
    """A text to put around a summary, "" for none; ``details`` are stored beside it, ``notes`` are for the caller."""

    text: str = ""
    details: JsonObject = field(default_factory=dict)
    notes: tuple[str, ...] = ()


# ---------------------------------------------------------------------------------------------------------------------
# Key facts that no other block carries: errors, decisions with their reasons, and names.
#
# A list of operations says which calls were made. Their reasons stand in a sentence of the model's, errors in a line
# of some output, and by which names to look for it, anywhere. They are copied out word for word, by the rules of
# `flue_py.compaction.facts`, and stored in the details of each compaction, from which the next takes them over.

HEADING = "[WORTH KEEPING — copied from what is not shown any more]"
MOST_TOKENS = 1_200
"""The tokens of the block in a large window, a third of it for each of its lists."""
MOST_LINES = 24
MOST_NAMES = 250
READ_CHARS = 80_000
SEARCHED_CHARS = 250_000
"""So much text is read for names, and searched for errors and decisions, the newest first: a compaction takes no longer
for a longer session."""

_SHARE = 24
_TITLES_TOKENS = 60
"""The tokens of the heading and the titles of the lists."""
_WORD_CHARS = 120
_SIGNS_OF_ERRORS = ("rror:", "rror[", "RROR", "xception:", "atal:", "ATAL:", "panic", "FAILED")
_SIGNS_OF_DECISIONS = (
    "cause", "nstead of", "ather than", "ecid", "ecision", "onclu", "urns out", "urned out",
    "he fix ", "he plan ", "he reason ", "he solution ", "he approach ",
)  # fmt: skip
"""Signs of lines that may say so, without first letters: finding them takes a hundredth of reading all text."""
_QUOTES = "\"'.,;:!?[]{}<>*#=-–—"

_Lists = dict[str, dict[str, str]]
"""The texts of each list, the newest first, with the id of the entry of each; "" for names."""


def key_facts(material: Material) -> Block:
    """Return errors, decisions and names of the messages that leave, and of those that left before: the newest that
    fit.

    They take at most `MOST_TOKENS`, a 24th of the window, and an eighth of the messages that leave. No block without
    any. O(messages), and O(text) of the newest `SEARCHED_CHARS` characters.
    """
    carried = _carried(material.earlier)
    leaving = material.size_leaving
    most = material.at_most(min(MOST_TOKENS, leaving // 8, (material.window or leaving) // _SHARE))
    if material.room is not None:
        most = max(min(most, material.room - _TITLES_TOKENS), 0)
    room = most // len(_TITLES)
    both = {
        name: {**facts, **{text: at for text, at in carried[name].items() if text not in facts}}
        for name, facts in _found(material).items()
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
    roles = material.content.roles
    for at in range(len(roles) - 1, -1, -1):
        role = roles[at]
        if read > SEARCHED_CHARS:
            break
        if role not in (ASSISTANT, TOOL_RESULT):
            continue
        message = material.content.message(at)
        texts = _read(message)
        read += sum(map(len, texts))
        if len(errors) < MOST_LINES and (lines := _errors(message, texts)):
            _add(errors, lines, material.leaving[at].entry_id)
        if role == ASSISTANT:
            if len(decisions) < MOST_LINES and (lines := _decisions(texts[0])):
                _add(decisions, lines, material.leaving[at].entry_id)
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
    """Return the texts of a message, and then the short arguments of its calls."""
    texts = [message_text(message)]
    for call in tool_calls(message):
        arguments = call.get("arguments")
        values = arguments.values() if isinstance(arguments, Mapping) else ()
        texts += [value for value in values if isinstance(value, str) and len(value) <= ARGUMENT_CHARS]
    return texts


def _add(lines: dict[str, str], texts: Sequence[str], entry_id: str) -> None:
    for text in reversed(texts):
        lines.setdefault(text, entry_id)


def _errors(message: Message, texts: Sequence[str]) -> list[str]:
    lines = _lines_with(_SIGNS_OF_ERRORS, texts[0])
    if not lines and message.get("isError") is True:
        lines = texts[0][:ARGUMENT_CHARS]
    if not lines:
        return []
    read: JsonObject = {"role": message.get("role"), "content": lines, "isError": message.get("isError") is True}
    return [fact.text for fact in facts_of([read]).errors]


def _decisions(text: str) -> list[str]:
    lines = _lines_with(_SIGNS_OF_DECISIONS, text)
    return [fact.text for fact in _facts_in(lines).decisions] if lines else []


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


# -- the newest that fit ----------------------------------------------------------------------------------------------


def _fitting(material: Material, lists: _Lists, room: int) -> _Lists:
    """Return the newest of each list that take at most so many tokens."""
    fitting: _Lists = {name: {} for name in lists}
    for name in ("errors", "decisions"):
        facts = list(lists[name].items())[:MOST_LINES]
        fitting[name] = dict(facts[: len(material.fitting((_line(*fact) for fact in facts), room))])
    names = list(lists["names"])[:MOST_NAMES]
    tokens = material.tokens_of(", ".join(names)) if names else 0
    fitting["names"] = dict.fromkeys(names[: len(names) * room // tokens] if tokens > room else names, "")
    return fitting


# -- the block ---------------------------------------------------------------------------------------------------------


def _line(text: str, entry_id: str) -> str:
    return f"- {without_tags(text)} [entry {shown_id(entry_id)}]"


def _lines(facts: Mapping[str, str]) -> str:
    return "\n".join(_line(text, entry_id) for text, entry_id in reversed(list(facts.items())))


_TITLES: Mapping[str, tuple[str, Callable[[Mapping[str, str]], str]]] = {
    "errors": ("Errors, oldest first:", _lines),
    "decisions": ("Decisions and reasons, oldest first:", _lines),
    "names": ("Names that occur, newest first:", lambda names: without_tags(", ".join(names))),
}


def _block(lists: _Lists) -> Block:
    parts = [f"{title}\n{shown(lists[name])}" for name, (title, shown) in _TITLES.items() if lists[name]]
    if not parts:
        return Block()
    stored: JsonObject = {name: [[text, at] for text, at in facts.items()] for name, facts in lists.items() if facts}
    return Block("\n".join([HEADING, *parts]), {"keyFacts": stored})


def _carried(earlier: Mapping[str, JsonValue] | None) -> _Lists:
    stored = (earlier or {}).get("keyFacts")
    return {name: dict(_pairs(stored.get(name) if isinstance(stored, Mapping) else None)) for name in _TITLES}


def _pairs(stored: JsonValue) -> Iterator[tuple[str, str]]:
    for pair in stored if isinstance(stored, (list, tuple)) else ():
        if isinstance(pair, (list, tuple)) and len(pair) == 2:
            text, at = pair
            if isinstance(text, str) and isinstance(at, str):
                yield text, at


# ---------------------------------------------------------------------------------------------------------------------
# Files that were in use: as they are now, read by a function of the caller's, or as they were read last.

ReadFile: TypeAlias = Callable[[str], str | None]
"""Returns the text of a file, None if it is gone. An error leaves the file out, and is noted."""

MOST_FILES = 5
MOST_CHARS = 50_000
_WINDOW_PART = 8


def reread_files(material: Material, read: ReadFile | None) -> Block:
    """Return the files that the messages which leave used last, at most `MOST_FILES`, the newest first.

    Without ``read``, those that were read last and not changed since, as the stored results have them. They take
    `MOST_CHARS` characters together, and no more than an eighth of the window has room for; the last one is cut to
    that. No block without any. O(messages).
    """
    if read is None:
        stored = _read_last(material)
        paths, read, when = list(stored), stored.get, "as they were read last"
    else:
        paths, when = _recent(material), "as they are now"
    shown: list[str] = []
    notes: list[str] = []
    left, tokens = MOST_CHARS, material.at_most(MOST_CHARS, _WINDOW_PART)
    for path in paths:
        if left <= 0 or tokens <= 0:
            break
        try:
            text = read(path)
        except Exception as error:  # noqa: BLE001 - a reader of the caller's, and a file is no reason to fail
            notes.append(f"the file {path} could not be read again: {error}")
            continue
        if isinstance(text, str) and text:
            empty = material.tokens_of(fenced("file", f"\n[… {len(text)} more characters]", attribute("path", path)))
            begun = material.begun(text[:left], tokens - empty)
            if not begun:
                break
            cut_note = f"\n[… {len(text) - len(begun)} more characters]" if len(begun) < len(text) else ""
            shown.append(fenced("file", begun + cut_note, attribute("path", path)))
            left -= len(text)
            tokens -= material.tokens_of(shown[-1])
    text = "\n".join([f"[FILES IN USE — {when}]", *shown]) if shown else ""
    return Block(text, notes=tuple(notes))


def _read_last(material: Material) -> dict[str, str]:
    """Return files by path as the last results of reading them have them, but for files that staying messages use.

    So are those that were written or edited after that, or that may have been.
    """
    pairing = material.content.pairing
    stays = [file_call(call) for item in material.staying for call in tool_calls(item.data)]
    seen = {used.path for used in stays if used is not None}
    contents: dict[str, str] = {}
    for call, results in reversed(pairing.results.items()):
        used = file_call(pairing.parts[call])
        if used is None or used.path in seen or (results and results[0] in material.content.failed):
            continue
        if used.use == "read" and not results:
            continue
        seen.add(used.path)
        if used.use == "read" and "\n" not in used.path:
            contents[used.path] = message_text(material.content.message(results[0]))
            if len(contents) == MOST_FILES:
                break
    return contents


def _recent(material: Material) -> list[str]:
    """Return the paths that were last used, the newest first, each once."""
    paths: dict[str, None] = {}
    for call in _newest_calls(material):
        used = file_call(call)
        if used is not None and "\n" not in used.path:
            paths[used.path] = None
        if len(paths) == MOST_FILES:
            break
    return list(paths)


def _newest_calls(material: Material) -> Iterator[JsonObject]:
    """Yield the calls of the messages that leave, the newest first."""
    for message in reversed(material.messages):
        yield from reversed(tool_calls(message))


# ---------------------------------------------------------------------------------------------------------------------
# The last handoff: which agent the work was passed to, which a router reads from the conversation.

HANDOFFS = ("handoff*", "transfer_to_*", "route_to_*", "delegate_to_*")
"""How the tools are named that pass the work on, as shell patterns."""
_MOST_CHARS = 2_000
_MOST_TOKENS = 1_000
"""The tokens of it that are shown in a large window; in a small one no more than a sixteenth of it."""
_HANDOFF_WINDOW_PART = 16
_LEAST_CHARS = 120
"""The characters of it that are shown in a window however small: to whom the work was passed."""


def last_handoff(material: Material, names: Sequence[str] = HANDOFFS) -> Block:
    """Return the last call that leaves of a tool with a matching name, or else the one that was carried on.

    No block where a later handoff stays in the context, or none was made. O(messages).
    """
    # A conversation of ten thousand calls has a few tools.
    matches = cache(re.compile("|".join(map(translate, names)) or r"(?!)").match)
    if any(matches(string_field(call, "name")) for item in material.staying for call in tool_calls(item.data)):
        return Block()
    carried = (material.earlier or {}).get("lastHandoff")
    line = without_tags(carried) if isinstance(carried, str) else None
    for call, part in reversed(material.content.pairing.parts.items()):
        if matches(string_field(part, "name")):
            name, arguments = string_field(part, "name"), js_json(part.get("arguments"))
            entry_id = shown_id(material.leaving[call.at].entry_id)
            line = f"{quoted(name, 80)}({quoted(arguments, _MOST_CHARS)}) (entry {entry_id})"
            break
    if line is None:
        return Block()
    begun = material.begun(line, material.at_most(_MOST_TOKENS, _HANDOFF_WINDOW_PART))
    shown = line if begun == line else f"{begun or line[:_LEAST_CHARS]}…"
    return Block(f"[LAST HANDOFF]\n{shown}", {"lastHandoff": line})


# ---------------------------------------------------------------------------------------------------------------------
# Open work by id: calls that nothing answers, tasks that run, approvals that are waited for.

MOST = 50
"""How many calls, tasks and approvals are listed, of each."""
OPEN_WORK_MOST_TOKENS = 4_000
"""The tokens of the block in a large window; in a small one no more than a sixteenth of it."""
ID_CHARS = 80
"""The shown characters of the id of a call, which may be of any length."""
_SIZES = ((MOST, 200), (25, 200), (12, 200), (6, 200), (6, 60), (3, 60), (1, 60))
"""How many of each are listed, and how many characters of a line, the first of these that fit; the last in any case."""


def open_work(
    material: Material, tasks: Sequence[str] = (), approvals: Sequence[str] = (), *, calls: bool = True
) -> Block:
    """Return the open work, each a line with its id; no block without any.

    These are the task sessions that run and ``tasks``, ``approvals``, and the calls that leave without a result,
    newest last. A call that is still running never leaves: those that are listed were left without an
    answer, since the conversation went on. It takes at most `OPEN_WORK_MOST_TOKENS` if one of each does. O(messages).
    """
    unanswered = unanswered_calls(material) if calls else []
    running = [*material.tasks, *tasks]
    if not unanswered and not running and not approvals:
        return Block()
    text, most = "", material.at_most(OPEN_WORK_MOST_TOKENS, _HANDOFF_WINDOW_PART)
    for listed, chars in _SIZES:
        lines = _listed("task", "tasks", running, listed, chars)
        lines += _listed("approval", "approvals", approvals, listed, chars)
        text = "\n".join(["[OPEN WORK]", *lines, *_without_result(unanswered, listed, chars)])
        if material.tokens_of(text) <= most:
            break
    return Block(text)


def _listed(word: str, words: str, items: Sequence[str], most: int, chars: int) -> list[str]:
    lines = [f"- {word} {quoted(item, chars)}" for item in items[:most]]
    return [*lines, f"- {len(items) - most} more {words}"] if len(items) > most else lines


def _without_result(unanswered: Sequence[tuple[str, JsonObject, str]], most: int, chars: int) -> list[str]:
    lines = [
        f"- call {quoted(call_id, ID_CHARS)}: {quoted(called_on(part), chars)}, "
        f"without a result (entry {shown_id(entry_id)})"
        for call_id, part, entry_id in unanswered[-most:]
    ]
    return [f"- {len(unanswered) - most} earlier calls without a result", *lines] if len(unanswered) > most else lines


# ---------------------------------------------------------------------------------------------------------------------
# Excerpts of the model's thinking: why something was done is often said nowhere else.

TOKENS_A_TURN = 500
TOKENS_IN_ALL = 4_000
_TAG_TOKENS = 40
"""The tokens of the tags around an excerpt, and of the heading."""


def reasoning_excerpts(material: Material) -> Block:
    """Return the newest thinking that leaves, oldest first, each under the id of its entry.

    At most `TOKENS_A_TURN` tokens of a message and `TOKENS_IN_ALL` together, and a sixteenth of the window. No block
    without any. O(messages).
    """
    excerpts: list[str] = []
    left = material.at_most(TOKENS_IN_ALL, _HANDOFF_WINDOW_PART)
    for at in range(len(material.leaving) - 1, -1, -1):
        most = min(TOKENS_A_TURN, left - _TAG_TOKENS)
        if most <= 0:
            break
        item, message = material.leaving[at], material.content.message(at)
        thinking = _thinking(message)
        begun = material.begun(thinking, most)
        if text := thinking if begun == thinking else f"{begun[:-1].rstrip()}…":
            shown = fenced("reasoning", text, attribute("entry", item.entry_id))
            excerpts.append(shown)
            left -= material.tokens_of(shown)
    return Block("\n".join(["[REASONING EXCERPTS]", *reversed(excerpts)])) if excerpts else Block()


def _thinking(message: Message) -> str:
    parts = parts_of(message) if message.get("role") == ASSISTANT else []
    return "\n".join(string_field(part, "thinking") for part in parts if part.get("type") == "thinking").strip()


# ---------------------------------------------------------------------------------------------------------------------
# Definitions and imports of source files in other languages than Python, by tree-sitter's grammars (an extra).

EXTRA = "symbols"


class Grammar(NamedTuple):
    """A language: where its grammar is, and which nodes define something, import something, or hold either."""

    module: str
    function: str
    defines: Mapping[str, str]
    """The word for what a node of this type defines; its name is in a field of the node."""
    imports: Mapping[str, str]
    """The field of a node of this type that names what is imported; "" for the whole node but its first word."""
    holds: frozenset[str]


_JS_DEFINES = {
    "function_declaration": "function",
    "generator_function_declaration": "function",
    "class_declaration": "class",
    "variable_declarator": "const",
}
_JS_IMPORTS = {"import_statement": "source", "export_statement": "source"}
_JS_HOLDS = frozenset({"export_statement", "lexical_declaration", "variable_declaration"})
_TS_DEFINES = {
    **_JS_DEFINES,
    "abstract_class_declaration": "class",
    "interface_declaration": "interface",
    "type_alias_declaration": "type",
    "enum_declaration": "enum",
    "internal_module": "namespace",
}
_TS_HOLDS = _JS_HOLDS | {"expression_statement", "ambient_declaration"}
_JAVASCRIPT = Grammar("tree_sitter_javascript", "language", _JS_DEFINES, _JS_IMPORTS, _JS_HOLDS)
_TYPESCRIPT = Grammar("tree_sitter_typescript", "language_typescript", _TS_DEFINES, _JS_IMPORTS, _TS_HOLDS)
_TSX = _TYPESCRIPT._replace(function="language_tsx")
_GO = Grammar(
    "tree_sitter_go",
    "language",
    {"function_declaration": "func", "method_declaration": "func", "type_spec": "type"},
    {"import_spec": "path"},
    frozenset({"type_declaration", "import_declaration", "import_spec_list"}),
)
_RUST = Grammar(
    "tree_sitter_rust",
    "language",
    {
        "function_item": "fn",
        "struct_item": "struct",
        "enum_item": "enum",
        "trait_item": "trait",
        "impl_item": "impl",
        "mod_item": "mod",
        "type_item": "type",
        "macro_definition": "macro",
    },
    {"use_declaration": "argument"},
    frozenset(),
)
_JAVA = Grammar(
    "tree_sitter_java",
    "language",
    {
        "class_declaration": "class",
        "interface_declaration": "interface",
        "enum_declaration": "enum",
        "record_declaration": "record",
        "annotation_type_declaration": "@interface",
    },
    {"import_declaration": ""},
    frozenset(),
)
_C = Grammar(
    "tree_sitter_c",
    "language",
    {
        "function_definition": "function",
        "struct_specifier": "struct",
        "enum_specifier": "enum",
        "union_specifier": "union",
        "type_definition": "typedef",
    },
    {"preproc_include": "path"},
    frozenset({"preproc_ifdef", "preproc_if", "preproc_else", "declaration", "linkage_specification"}),
)

GRAMMARS: Mapping[str, Grammar] = {
    **dict.fromkeys((".js", ".jsx", ".mjs", ".cjs"), _JAVASCRIPT),
    **dict.fromkeys((".ts", ".mts", ".cts"), _TYPESCRIPT),
    ".tsx": _TSX,
    ".go": _GO,
    ".rs": _RUST,
    ".java": _JAVA,
    **dict.fromkeys((".c", ".h"), _C),
}
"""The languages by the ending of a file."""


def parsed_symbols(grammar: Grammar, content: str) -> tuple[list[str], list[str]]:
    """Return the definitions of a file, each with its word, and its imports, in order.

    Code that does not parse is passed over. Raises `MissingExtra`. O(size).
    """
    defined: list[str] = []
    imported: list[str] = []
    source = content.encode("utf-8", "replace")
    for node in _outer(_parser(grammar.module, grammar.function).parse(source).root_node, grammar):
        if (field := grammar.imports.get(node.type)) is not None:
            imported.extend(_imported(node, field))
        if (word := grammar.defines.get(node.type)) is not None:
            module = _required(node)
            imported.extend(module)
            name = "" if module else _name(node)
            defined.extend([f"{word} {name}"] if name else [])
    return defined, imported


@cache
def _parser(module: str, function: str) -> Parser:
    try:
        sitter, grammar = import_module("tree_sitter"), import_module(module)
    except ImportError as error:
        raise MissingExtra(EXTRA, "what is defined in files of other languages than Python") from error
    parser: Parser = sitter.Parser(sitter.Language(getattr(grammar, function)()))
    return parser


def _outer(root: Node, grammar: Grammar) -> Iterator[Node]:
    """Yield the nodes outside of any definition, in order; inside of nodes that only hold others, too."""
    waiting = list(reversed(root.children))
    while waiting:
        node = waiting.pop()
        yield node
        if node.type in grammar.holds:
            waiting.extend(reversed(node.children))


def _imported(node: Node, field: str) -> list[str]:
    named = node.child_by_field_name(field) if field else None
    if field and named is None:
        return []
    text = _text(named) if named is not None else _text(node).partition(" ")[2].removesuffix(";")
    return [text.strip("\"'<>` ")]


def _required(node: Node) -> list[str]:
    """Return the module that ``const a = require("b")`` imports."""
    value = node.child_by_field_name("value")
    if value is None or value.type != "call_expression":
        return []
    called, arguments = value.child_by_field_name("function"), value.child_by_field_name("arguments")
    if called is None or arguments is None or _text(called) != "require":
        return []
    return [_text(arguments).strip("()\"'` ")]


def _name(node: Node) -> str:
    """Return the name that a node gives; that of a C function is inside of its declarators."""
    if (named := node.child_by_field_name("name")) is not None:
        return _text(named)
    if node.type == "impl_item":
        trait, implemented = (_text(node.child_by_field_name(field)) for field in ("trait", "type"))
        return f"{trait} for {implemented}" if trait else implemented
    inner = node.child_by_field_name("declarator")
    while inner is not None and (deeper := inner.child_by_field_name("declarator")) is not None:
        inner = deeper
    return _text(inner)


def _text(node: Node | None) -> str:
    return "" if node is None else (node.text or b"").decode("utf-8", "replace")


# ---------------------------------------------------------------------------------------------------------------------
# Definitions and imports of the source files that were written whole.

SYMBOLS_MOST_FILES = 20
SYMBOLS_MOST_CHARS = 200_000
"""Longer files are not read."""
SYMBOLS_MOST_TOKENS = 3_000
"""The tokens of the graph in a large window; in a small one no more than a sixteenth of it."""
_LINE = 300


def symbol_graph(material: Material) -> Block:
    """Return the definitions and imports of the source files that were written last, the newest first.

    Python files, and with the extra ``symbols`` those of the languages of `GRAMMARS`; without it a note says which
    files are missing. Only the contents in calls that write a file are read; code that does not parse is passed over.
    No block without any. O(text of the files).
    """
    lines: dict[str, str] = {}
    missing: dict[str, str] = {}
    for path, content in _written(material):
        if len(lines) >= SYMBOLS_MOST_FILES:
            break
        if path not in lines and path not in missing:
            try:
                lines[path] = file_symbols(path, content)
            except MissingExtra as error:
                missing[path] = str(error)
    shown = [f"{quoted(path, 120)}: {quoted(symbols, _LINE)}" for path, symbols in lines.items() if symbols]
    text = _graph(shown)
    while text and (tokens := material.tokens_of(text)) > (
        most := material.at_most(SYMBOLS_MOST_TOKENS, _HANDOFF_WINDOW_PART)
    ):
        text = _graph(shown := shown[: len(shown) * most // tokens])
    named = ", ".join(on_one_line(path, 120) for path in missing)
    notes = [f"the symbols of {named} are left out: {why}" for why in list(missing.values())[:1]]
    return Block(text, notes=tuple(notes))


def _graph(shown: Sequence[str]) -> str:
    return "\n".join(["[SYMBOL DEPENDENCY GRAPH]", *shown]) if shown else ""


def file_symbols(path: str, content: str) -> str:
    """Return the definitions and imports of a source file as one line; "" if they are unknown, or it does not parse.

    The ending of the path says the language. Raises `MissingExtra` for others than Python. O(size).
    """
    if path.endswith(".py"):
        return _symbols_line(*_of_python(content))
    grammar = GRAMMARS.get(_ending(path))
    return "" if grammar is None else _symbols_line(*parsed_symbols(grammar, content))


def _written(material: Material) -> Iterator[tuple[str, str]]:
    """Yield path and content of the source files that were written whole, the newest first."""
    for call in _newest_calls(material):
        arguments, written = call.get("arguments"), file_call(call)
        if written is None or written.use != "write" or not isinstance(arguments, dict):
            continue
        content = string_field(arguments, "content")
        if content and len(content) <= SYMBOLS_MOST_CHARS and _ending(written.path) in (".py", *GRAMMARS):
            yield written.path, content


def _ending(path: str) -> str:
    return f".{path.rpartition('.')[2]}"


def _symbols_line(defined: Sequence[str], imported: Sequence[str]) -> str:
    parts = [", ".join(defined)]
    if imported:
        parts.append("imports " + ", ".join(dict.fromkeys(imported)))
    return on_one_line("; ".join(filter(None, parts)), _LINE)


def _of_python(content: str) -> tuple[list[str], list[str]]:
    defined: list[str] = []
    imported: list[str] = []
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return defined, imported
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            defined.append(f"def {node.name}")
        elif isinstance(node, ast.ClassDef):
            bases = ", ".join(base.id for base in node.bases if isinstance(base, ast.Name))
            defined.append(f"class {node.name}({bases})" if bases else f"class {node.name}")
        elif isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported.append("." * node.level + (node.module or ""))
    return defined, imported


# ---------------------------------------------------------------------------------------------------------------------
# Messages of the user as a summary shows them: in tags that they cannot close, short ones in one tag for several.

SAID_MOST_LINES = 20
"""So many short messages share a tag, which names the entries of the first and the last."""
_LINE_CHARS = 300
_TAG = "user-said"
_ASKED = "model-asked"


class Said(NamedTuple):
    """``asked`` is the question of the model that it answers: "the second one" says nothing without."""

    entry_id: str
    text: str
    asked: str = ""

    @property
    def is_line(self) -> bool:
        """Whether it can be a line among others: none of them can pose as another one."""
        return not self.asked and len(self.text) <= _LINE_CHARS and len(self.text.splitlines()) == 1

    @property
    def json(self) -> JsonObject:
        """It as a compaction stores it."""
        return {"entryId": self.entry_id, "text": self.text, **({"asked": self.asked} if self.asked else {})}


def shown_said(messages: Sequence[Said]) -> list[str]:
    """Return messages in their order, each in a tag with the id of its entry; short ones that follow each other share.

    The tag of several has the ids of the first and the last: those between are stored beside the summary. O(text).
    """
    return [_shown_run(run) for run in _runs(messages)]


def _runs(messages: Sequence[Said]) -> Iterator[Sequence[Said]]:
    run: list[Said] = []
    for message in messages:
        if run and not (message.is_line and run[-1].is_line and len(run) < SAID_MOST_LINES):
            yield run
            run = []
        run.append(message)
    if run:
        yield run


def _shown_run(run: Sequence[Said]) -> str:
    message = run[0]
    if len(run) > 1:
        ends = attribute("from", message.entry_id) + attribute("to", run[-1].entry_id)
        return fenced(_TAG, "\n".join(f"- {line.text}" for line in run), ends, foreign=OWN_WORDS)
    shown = fenced(_TAG, message.text, attribute("entry", message.entry_id), foreign=OWN_WORDS)
    return f"{fenced(_ASKED, message.asked, also=[_TAG])}\n{shown}" if message.asked else shown


# ---------------------------------------------------------------------------------------------------------------------
# The user's words, verbatim: a summary may forget a constraint, and nobody can ask it again.
#
# It is carried on in the details of each compaction, so that the hundredth still has those of the first.

WORDS_HEADING = "[WHAT THE USER SAID — verbatim, oldest first; these requests may have been dealt with since]"
LEAST_TOKENS = 50
"""The tokens to which the first and the newest message are cut at most, in a window however small."""
_ASKED_CHARS = 200
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_HEADING_TOKENS = 60
"""The tokens of the heading, and of the line that counts the messages that did not fit."""
_FIRST = 5 / 8
"""The share of a scarce room that is the user's before anybody else gets any."""
_REST_PART = 8
_WITH_TAGS = 3 / 2
"""How much more than its share the words may take with the tags around them: those of short messages are longer."""
_MISSES = 50
"""After so many messages that did not fit, no older one is tried: counting each would take as long as they are."""


def words_set_aside(material: Material, *, only_carried: bool = False) -> Material:
    """Return it with room set aside for the user's words, which matter more than other blocks.

    If the room is scarce, they get five eighths of it at most, and an eighth of the window is left for the rest; with
    ``only_carried``, only the words that earlier compactions carried. Once is enough. O(messages).
    """
    if material.room is None or material.set_aside:
        return material
    most = min(int(material.room * _FIRST), material.room - (material.window or 0) // _REST_PART)
    words = (carried_words if only_carried else user_words)(material.within(most))
    tokens = max(min(material.tokens_of(words.text), material.room), 0) if words.text else 0
    return replace(material, room=material.room - tokens, set_aside=tokens)


def user_words(material: Material) -> Block:
    """Return the user's words that leave, and those that left before, in tags with the ids of entries.

    The words take up to ``settings.user_words_share`` of the window, or of the messages that leave if the window is
    unknown, and with the tags around them half as much again; and it all grows by at most three quarters of the
    messages that leave, so that compacting always makes room. The first message and the newest are always among it, cut
    in the middle where they are too long; of the others, the newest that fit. The room set aside for it counts as well.
    O(messages).
    """
    material = _besides_heading(material)
    share = material.settings.user_words_share
    if not share:
        return Block()
    carried, left_out = _words_carried(material.earlier)
    carried_ids = {message.entry_id for message in carried}
    new = [at for at in material.content.spoken if material.leaving[at].entry_id not in carried_ids]
    count = len(carried) + len(new)
    if not count:
        return Block()

    def message_at(number: int) -> _Counted:
        # Read when it is about to be chosen: of ten thousand messages most do not fit.
        if number < len(carried):
            return _Counted(carried[number], material.tokens_of(carried[number].text))
        return _said(material, new[number - len(carried)])

    before = material.tokens_of(_words_text(carried)) if carried else 0
    leaving = material.size_leaving
    most = _Room.of_share(int(share * (material.window or before + leaving)))
    fitting = _chosen(material, message_at, count, most.within(material.at_most(before + leaving * 3 // 4)))
    return _words_block(fitting, left_out + count - len(fitting))


def carried_words(material: Material) -> Block:
    """Return the block as earlier compactions left it, for a mode that adds nothing to it; no more than its share."""
    material = _besides_heading(material)
    carried, left_out = _words_carried(material.earlier)
    if not carried:
        return Block()
    tokens = material.tokens_of(_words_text(carried))
    share = material.settings.user_words_share
    # The room was that of the time when it was made, in a window that may have been larger.
    most = _Room.of_share(int(share * material.window)) if share and material.window else _Room(tokens, tokens)
    most = most.within(material.at_most(tokens))
    fitting = carried
    if tokens > min(most.words, most.all):
        counted = [_Counted(message, material.tokens_of(message.text)) for message in carried]
        fitting = _chosen(material, counted.__getitem__, len(carried), most)
    return _words_block(fitting, left_out + len(carried) - len(fitting))


def _besides_heading(material: Material) -> Material:
    material = material.with_all_room()
    return material if material.room is None else material.within(material.room - _HEADING_TOKENS)


def first_words(material: Material) -> str:
    """Return the user's first words, "" if they are not known."""
    carried, _ = _words_carried(material.earlier)
    if carried:
        return carried[0].text
    return next(map(material.content.words, material.content.spoken), "")


class _Room(NamedTuple):
    """How many tokens the words may take, and how many with the tags around them."""

    words: int
    all: int

    @classmethod
    def of_share(cls, tokens: int) -> _Room:
        return cls(tokens, int(tokens * _WITH_TAGS))

    def within(self, tokens: int) -> _Room:
        return _Room(min(self.words, tokens), min(self.all, tokens))


class _Counted(NamedTuple):
    message: Said
    tokens: int
    """The size of its words, as a message of their own."""


def _words_text(messages: Sequence[Said]) -> str:
    return "\n\n".join(shown_said(messages))


def _words_block(messages: Sequence[Said], left_out: int) -> Block:
    parts = [WORDS_HEADING, *shown_said(messages)]
    if left_out:
        parts.append(f"[{left_out} more of the user's messages did not fit; they are stored]")
    rows: list[JsonValue] = [message.json for message in messages]
    details: JsonObject = {"userWords": {"said": rows, "leftOut": left_out}}
    return Block("\n\n".join(parts), details)


def _said(material: Material, at: int) -> _Counted:
    """Return the words of a message, with the question that the message of the model before it ends on."""
    words, counted = material.content.words(at), material.content.tokens(at)
    # The size of a message that says nothing else is known, and counting takes far longer than reading it.
    tokens = (
        counted
        if counted is not None and _only_says(material.content.message(at), words)
        else material.tokens_of(words)
    )
    return _Counted(Said(material.leaving[at].entry_id, words, _question(material, at - 1)), tokens)


def _only_says(message: Message, words: str) -> bool:
    content = message.get("content")
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        content = content[0].get("text") if content[0].get("type") == "text" else None
    return isinstance(content, str) and content.strip() == words


def _question(material: Material, at: int) -> str:
    if at < 0 or material.content.roles[at] != ASSISTANT or not material.content.may_have(at, "?"):
        return ""
    text = message_text(material.content.message(at)).rstrip()
    if not text.endswith("?"):
        return ""
    line = text[-_ASKED_CHARS:].splitlines()[-1]
    return _SENTENCE_END.split(line)[-1].strip()


def _words_carried(earlier: Mapping[str, JsonValue] | None) -> tuple[list[Said], int]:
    """Return the words that an earlier compaction carried, and how many messages it had to leave out."""
    stored = (earlier or {}).get("userWords")
    if not isinstance(stored, Mapping):
        return [], 0
    listed, left_out = stored.get("said"), stored.get("leftOut")
    rows = [row for row in listed if isinstance(row, Mapping)] if isinstance(listed, (list, tuple)) else []
    messages = [
        Said(cast("str", row["entryId"]), cast("str", row["text"]), string_field(row, "asked"))
        for row in rows
        if isinstance(row.get("entryId"), str) and isinstance(row.get("text"), str)
    ]
    return messages, left_out if isinstance(left_out, int) and left_out > 0 else 0


def _chosen(material: Material, message_at: Callable[[int], _Counted], count: int, most: _Room) -> list[Said]:
    """Return those that fit, in order: the first and the newest, and then from the newest to the oldest."""
    ends = sorted({0, count - 1})
    each_end = max(min(most) // len(ends), LEAST_TOKENS)
    fitting = {at: _words_cut(material, message_at(at).message, each_end) for at in ends}
    shown = material.tokens_of(_words_text(list(fitting.values())))
    words, both = most.words - shown, most.all - shown
    tags: dict[int, int] = {}
    newer, misses = fitting[count - 1], 0
    for at in range(count - 2, 0, -1):
        if words <= 0 or both <= 0 or misses > _MISSES:
            break
        message, tokens = message_at(at)
        with_tags = tokens + _tag_tokens(material, message, newer, tags)
        if tokens <= words and with_tags <= both:
            fitting[at] = newer = message
            words, both = words - tokens, both - with_tags
        else:
            misses += 1
    return [fitting[at] for at in sorted(fitting)]


def _tag_tokens(material: Material, message: Said, newer: Said, tags: dict[int, int]) -> int:
    """Return the tokens of a message beside its words: a part of a tag if it is shown with the one after it.

    ``tags`` remembers the tokens of a tag by the length of the id in it.
    """
    if message.asked or "<" in message.text:
        return material.tokens_of(_words_text([message])) - material.tokens_of(message.text)
    size = len(message.entry_id)
    if size not in tags:
        tags[size] = material.tokens_of(_words_text([message._replace(text="")]))
    # A line has a part of the tag, and the tag of several names two entries.
    return -(-2 * tags[size] // SAID_MOST_LINES) if message.is_line and newer.is_line else tags[size]


def _words_cut(material: Material, message: Said, most: int) -> Said:
    """Return a text, without its middle if it takes more than ``most`` tokens."""
    text = message.text
    # No counter has less than a token for 40 characters, and a pasted megabyte need not be counted whole.
    tokens = material.tokens_of(text) if len(text) <= 40 * most else max(len(text) // 4, 1)
    if tokens <= most:
        return message
    length = max(len(text) * most // tokens - 60, 120)
    head, tail = text[: length * 2 // 3], text[-(length // 3) :]
    cut = f"{head}\n[… {len(text) - len(head) - len(tail)} characters left out …]\n{tail}"
    return message._replace(text=cut) if len(cut) < len(text) else message


# ---------------------------------------------------------------------------------------------------------------------
# The blocks around the text of a mode.

Tasks: TypeAlias = Sequence[str] | Callable[[], Sequence[str]]
"""Running tasks, each as its id and a few words; or a function that returns them."""

Approvals: TypeAlias = Sequence[str] | Callable[[], Sequence[str]]
"""Approvals that are waited for, each as its id and a few words; or a function that returns them."""


def _around_fitting(material: Material, block: Block, name: str) -> Block:
    """Return a block where there is room for it, else its details, which the next compaction may have room for."""
    if material.fits(block.text):
        return block
    return Block("", block.details, (*block.notes, f"the {name} are left out: the window has no room for them"))


class Around(Frozen):
    """The blocks around the text of a mode.

    ``tasks`` run, as the caller says, beside task sessions, which a session finds by itself, and
    ``approvals`` wait for somebody. One that begins with the id of a call without a result keeps that in
    the context. ``handoffs`` are the names of the tools that pass work on, as shell
    patterns, and ``read_file`` reads files that were in use once more; with ``include_files`` in the settings, those
    that were read are shown without it, as they were read last.
    """

    tasks: Tasks = ()
    handoffs: tuple[str, ...] = HANDOFFS
    read_file: ReadFile | None = None
    approvals: Approvals = ()

    @property
    def named_tasks(self) -> Sequence[str]:
        """The tasks, asked for now."""
        return self.tasks() if callable(self.tasks) else self.tasks

    @property
    def named_approvals(self) -> Sequence[str]:
        """The approvals, asked for now."""
        return self.approvals() if callable(self.approvals) else self.approvals

    def blocks(self, material: Material, own: str, *, calls: bool = True) -> tuple[list[Block], list[Block]]:
        """Return the blocks before a mode's own text and those after it, in order; ``calls`` lists those unanswered.

        If there is little room beside that text, the user's words have the room set aside for them, and the rest of
        the short ones; then come the rest. One for which there is no room is left out, and noted.
        """
        settings, left = material.settings, material.beside(own)
        work = open_work(left, self.named_tasks, self.named_approvals, calls=calls)
        left = left.beside(work.text)
        handoff = last_handoff(left, self.handoffs)
        left = left.beside(handoff.text)
        facts = _around_fitting(left, key_facts(left), "key facts")
        left = left.beside(facts.text)
        words = user_words(left)
        left = left.with_all_room().beside(words.text)
        has_files = self.read_file is not None or settings.include_files
        files = _around_fitting(left, reread_files(left, self.read_file), "files in use") if has_files else Block()
        left = left.beside(files.text)
        symbols = _around_fitting(left, symbol_graph(left), "symbols") if settings.include_symbols else Block()
        left = left.beside(symbols.text)
        reasoning = (
            _around_fitting(left, reasoning_excerpts(left), "reasoning") if settings.include_reasoning else Block()
        )
        return [symbols, reasoning], [words, facts, work, handoff, files]


# ---------------------------------------------------------------------------------------------------------------------
# Registered texts, word for word, behind every compaction, whichever mode made it.

REGISTERED_HEADING = "[REGISTERED — word for word, as last registered]"
_LEAST_TOKENS = 40
"""With less room than this, a text is named, not begun."""
_JOIN_TOKENS = 3
"""The tokens that two texts may take more together than each by itself."""
_REST_TOKENS = 60
"""The tokens set aside for the line that counts the texts for which there is no room."""
_MOST_NAMED = 20
_NAMES_CHARS = 100


def registered_block(
    texts: Sequence[RegisteredText], settings: CompactionSettings, window: int | None, tokens_of: Callable[[str], int]
) -> Block:
    """Return the texts: instructions first, then plans, to-do lists and skills, each under its kind and name.

    Each takes up to ``settings.registered_item_tokens``, all of them ``registered_tokens``, and no more than an eighth
    of the window, the tags around them included. A longer text is cut at its end, one that no longer fits is named, and
    names that do not fit are counted; the notes say which texts are missing.
    Its details name the entries. O(text).
    """
    ordered = sorted(texts, key=lambda text: REGISTERED_KINDS.index(text.kind))
    most = settings.registered_tokens if window is None else min(settings.registered_tokens, window // _WINDOW_PART)
    left, cap = most - tokens_of(REGISTERED_HEADING), settings.registered_item_tokens
    texts_shown = _kept(ordered, left, cap, tokens_of)
    if len(texts_shown) < len(ordered):
        texts_shown = _kept(ordered, left - _REST_TOKENS, cap, tokens_of)
    notes = [
        _note(text, texts_shown[text.entry_id])
        for text in ordered
        if texts_shown.get(text.entry_id, text.text) != text.text
    ]
    shown = [_shown(text, texts_shown[text.entry_id]) for text in ordered if text.entry_id in texts_shown]
    rest = [text for text in ordered if text.entry_id not in texts_shown]
    if rest:
        shown.append(_rest(rest))
        notes.append(f"{len(rest)} registered texts are left out, since all of them take at most {most} tokens")
    named: list[JsonValue] = [text.entry_id for text in texts]
    return Block("\n\n".join([REGISTERED_HEADING, *shown]) if shown else "", {REGISTERED: named}, tuple(notes))


def _kept(texts: Sequence[RegisteredText], left: int, cap: int, tokens_of: Callable[[str], int]) -> dict[str, str]:
    """Return the texts, or beginnings of texts, for which there is room, by the id of their entry."""
    shown: dict[str, str] = {}
    for text in texts:
        most = min(cap, left - tokens_of(_shown(text, "")) - _JOIN_TOKENS)
        begun = beginning(text.text, most, tokens_of)
        if begun != text.text and most < _LEAST_TOKENS:
            begun = ""
        tokens = tokens_of(_shown(text, begun)) + _JOIN_TOKENS
        if tokens <= left:
            left -= tokens
            shown[text.entry_id] = begun
    return shown


def _note(text: RegisteredText, beginning: str) -> str:
    missing = len(text.text) - len(beginning)
    return (
        f"the registered {text.kind} {text.name!r} (entry {text.entry_id}) is longer than its cap: "
        f"{missing} of {len(text.text)} characters are left out"
    )


def _rest(texts: Sequence[RegisteredText]) -> str:
    """Return one line for those for which there is no room."""
    names = quoted(", ".join(f"{text.kind} {text.name}" for text in texts[:_MOST_NAMED]), _NAMES_CHARS)
    subject = "1 more registered text does" if len(texts) == 1 else f"{len(texts)} more registered texts do"
    return f"[… {subject} not fit, and {'is' if len(texts) == 1 else 'are'} stored: {names} …]"


def _shown(text: RegisteredText, beginning: str) -> str:
    attributes = attribute("kind", text.kind) + attribute("name", text.name)
    if beginning == text.text:
        return fenced(REGISTERED, beginning, attributes, foreign=OWN_WORDS)
    missing = f"[… {len(text.text) - len(beginning)} more characters, stored in entry {shown_id(text.entry_id)} …]"
    return fenced(REGISTERED, f"{beginning}\n{missing}" if beginning else missing, attributes, foreign=OWN_WORDS)


# ---------------------------------------------------------------------------------------------------------------------
# The lists of files at the end of a summary, which grow with each compaction: as much of them as there is room for.

_ROOM_PART = 4
"""They take no more of a scarce room than one so many-th."""
_AROUND_CHARS = 200
"""The characters of the tags, and of the lines that count the paths that are left out."""
_COUNTED = "[{} files that were read and {} that were modified: stored with this summary]"
"""The text in place of both lists if no path has room: their tags would take more than a path does."""


def shown_file_lists(material: Material) -> tuple[str, bool]:
    """Return the text of the lists of a compaction, and whether it leaves any out, which it then counts.

    Of each list those stay that were used last; files that were modified get three quarters of the room.
    O(paths), and O(messages) where not all are shown.
    """
    files = material.planned.plan.files
    text = appended_file_lists(files)
    most = material.at_most(OPEN_WORK_MOST_TOKENS, _HANDOFF_WINDOW_PART)
    if material.room is not None:
        most = min(most, material.room // _ROOM_PART)
    tokens = material.tokens_of(text) if text else 0
    if tokens <= max(most, 0):
        return text, False
    used = [path for call in _newest_calls(material) if (path := path_argument(call.get("arguments")))]
    room = max(len(text) * most // tokens - _AROUND_CHARS, 0)
    modified = _paths_chosen(files.modified_files, used, max(room * 3 // 4, room - _size(files.read_files)))
    read = _paths_chosen(files.read_files, used, room - _size(modified))
    if not read and not modified:
        return f"\n\n{_COUNTED.format(len(files.read_files), len(files.modified_files))}", True
    shown = FileLists(read, modified)
    return appended_file_lists(shown, of=files), True


def _size(paths: Sequence[str]) -> int:
    return sum(len(path) + 1 for path in paths)


def _paths_chosen(paths: Sequence[str], used: Sequence[str], room: int) -> tuple[str, ...]:
    """Return those of some paths that fit into so many characters, a line each, in their order."""
    names = set(paths)
    selected: set[str] = set()
    for path in dict.fromkeys([*(path_used for path_used in used if path_used in names), *paths]):
        room -= len(path) + 1
        if room < 0:
            break
        selected.add(path)
    return tuple(path for path in paths if path in selected)
