"""Settings of compaction: budgets, sizes, triggers; texts that cannot pass for tags of ours, and lists of files."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from html import escape
from types import MappingProxyType
from typing import Annotated, Literal, TypeAlias, TypeGuard, get_type_hints

from msgspec import field
from msgspec.structs import force_setattr, replace

from flue_py.core.json import (
    Frozen,
    JsonObject,
    JsonValue,
    js_entries,
    js_json,
    utf16_length,
    utf16_prefix,
    utf16_sort_key,
)
from flue_py.core.kinds import ASSISTANT, TOOL_RESULT, USER, Message, parts_of, string_field
from flue_py.core.ledger import UsageRow
from flue_py.core.usage import MAX_AMOUNT, Usage, UsageTotals, UsageWindow
from flue_py.errors import InvalidArgument, shown

# ---------------------------------------------------------------------------------------------------------------------
# The checks of settings, which the types of their fields declare.


class _Rule(Frozen):
    """Whether a value of a field is right, and the words about one that is not."""

    is_right: Callable[[object], bool]
    words: str


@cache
def _rules_of(settings: type) -> Mapping[str, _Rule]:
    hints = get_type_hints(settings, include_extras=True).items()
    return {name: rule for name, hint in hints for rule in getattr(hint, "__metadata__", ())}


def _check(settings: Frozen) -> None:
    """Check all fields, so that one start of a program names all that are wrong. Raises `InvalidArgument`."""
    values = ((name, getattr(settings, name), rule) for name, rule in _rules_of(type(settings)).items())
    wrong = [f"{name}: {rule.words.format(shown(value))}" for name, value, rule in values if not rule.is_right(value)]
    if wrong:
        raise InvalidArgument("; ".join(wrong))


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_whole_or_none(value: object) -> bool:
    return value is None or _is_whole(value)


def _is_number(value: object) -> TypeGuard[int | float]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    # A whole number may be too large for a float, which `isfinite` makes of it.
    return abs(value) <= sys.float_info.max


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _one_of(words: tuple[str, ...]) -> _Rule:
    return _Rule(lambda value: value in words, f"{{}} is none of {', '.join(words)}")


_AMOUNT, _COUNT = "{} is negative or no whole number; give one >= 0", "{} is no whole number >= 0; 0 switches it off"
_TOKENS = "{} is not a whole number of tokens; 0 switches it off"
_Amount: TypeAlias = Annotated[int, _Rule(_is_whole, _AMOUNT)]
_Count: TypeAlias = Annotated[int, _Rule(_is_whole, _COUNT)]
_Tokens: TypeAlias = Annotated[int, _Rule(lambda value: _is_whole(value) and value <= MAX_AMOUNT, _TOKENS)]
_Share: TypeAlias = Annotated[
    float, _Rule(lambda value: _is_number(value) and 0 <= value <= 1, "{} is no share; give a number from 0 to 1")
]
_Timeout: TypeAlias = Annotated[
    float, _Rule(lambda value: _is_number(value) and value > 0, "{} is no time; give a number of seconds above 0")
]
_Wait: TypeAlias = Annotated[
    float, _Rule(lambda value: _is_number(value) and value >= 0, "{} is no time; give a number of seconds >= 0")
]
_Flag: TypeAlias = Annotated[bool, _Rule(_is_flag, "should be True or False, not {}")]


def stored_count(value: JsonValue) -> int:
    """Return a count as it was stored, 0 for a value that is none."""
    return value if _is_whole(value) else 0


# ---------------------------------------------------------------------------------------------------------------------
# When a session's input has grown so much that it is time to warn, or to compact.
#
# A cycle goes from one compaction to the next. The input tokens of all its calls are counted, cached ones included:
# ``session.aggregate_usage_since(compaction.id)`` returns that window, so each compaction starts a new count.

ContextSignal: TypeAlias = Literal["ok", "warn", "cutover"]


class ContextBudget(Frozen, kw_only=True):
    """The numbers of input tokens in a cycle at which to warn, and to compact; 0 switches it off.

    ``can_compact`` says whether the session has compaction at all. Raises `InvalidArgument` for an amount that is
    not a number of tokens, and for a ``cutover_at`` above 0 without ``can_compact``.
    """

    warn_at: _Tokens = 0
    cutover_at: _Tokens = 0
    can_compact: Annotated[bool, _Rule(_is_flag, "{} is neither True nor False")] = True

    def __post_init__(self) -> None:
        _check(self)
        if self.cutover_at > 0 and not self.can_compact:
            raise InvalidArgument(
                f"cutover_at: {self.cutover_at} asks for a compaction, but compaction is off; switch it on, or set "
                "cutover_at to 0"
            )

    def is_reached_by(self, sent: int) -> bool:
        """Return whether so many input tokens are as many as one of the numbers."""
        return any(0 < amount <= sent for amount in (self.warn_at, self.cutover_at))


def input_tokens(usage: Usage | UsageRow | UsageTotals) -> int:
    """Return the tokens that were sent to the model: new ones, those read from the cache, and those written to it."""
    return usage.input + usage.cache_read + usage.cache_write


def context_signal(budget: ContextBudget, cycle: UsageWindow, *, before: UsageWindow | None = None) -> ContextSignal:
    """Return the action after a call: go on, warn, or compact before the next one.

    ``cycle`` is the window since the latest compaction, ``before`` the one given the last time (None: there was none).
    ``warn`` is returned once in a cycle, after the call that reaches the limit; ``cutover`` after every call until
    there is a compaction. A ``before`` of another cycle is ignored.
    """
    now = input_tokens(cycle.usage)
    if 0 < budget.cutover_at <= now:
        return "cutover"
    then = input_tokens(before.usage) if before is not None and before.since == cycle.since else 0
    return "warn" if 0 < budget.warn_at <= now and then < budget.warn_at else "ok"


# ---------------------------------------------------------------------------------------------------------------------
# Sizes, and how the summary is made.

OnFailure: TypeAlias = Literal["raise", "fallback", "mark"]
ON_FAILURE: tuple[OnFailure, ...] = ("raise", "fallback", "mark")
SummaryForm: TypeAlias = Literal["notes", "turns"]
SUMMARY_FORMS: tuple[SummaryForm, ...] = ("notes", "turns")


class _Unset(int):
    """A number that nobody has set."""


TOKEN_BUDGET = 80_000
"""The tokens of a context that mode ``window`` leaves by default."""


class CompactionSettings(Frozen):
    """When to compact, how much to keep, in tokens, and how the summary is made.

    ``reserve_tokens`` is the room left for the next answer: compaction is due above the context window minus
    this, and it bounds the length of a summary. ``keep_recent_tokens`` is how much of the end of the context
    stays word for word, 20,000 if nobody sets it, or in mode ``window`` 80,000, counted as characters / 4;
    ``keep_recent_messages`` how many messages of it do at most, None for any number; one stays in any case, but with 0
    only the open part of the last turn. ``mode`` is the name of the mode that makes the text.

    ``summary_form`` says how a model writes a summary: as ``notes`` (the task, ground rules, state, decisions, next,
    facts), or by ``turns``: below a line that names the turns it covers, completed work, open questions, remaining
    work and key findings.

    ``user_words_share`` is the share of the window up to which a summary carries the user's words, word for word; 0
    leaves it out. ``on_failure`` says how a failed model is handled: ``raise``, ``fallback`` (the mode ``intent``
    makes the text), or ``mark`` (a text that names the missing turns). With ``prefer_deterministic`` no model is asked:
    ``intent`` takes the place of a mode that needs one, as is wise where the window has overflowed.
    ``max_message_chars`` cuts longer messages for a model; 0 cuts none. ``include_reasoning`` and
    ``include_symbols`` put excerpts of the model's thinking, and the definitions in source files, before a summary;
    ``include_files`` puts up to five files behind it, as they were read last.

    ``registered_item_tokens`` is how much of one registered text a compaction brings back (`Session.marks.register`),
    and ``registered_tokens`` of all of them. ``summary_timeout`` is the number of seconds after which a model that has
    not answered is given up, ``rate_limit_wait`` how many seconds one compaction waits in all where a provider says
    when to call again; 0 waits for none. Raises `InvalidArgument` naming each field that is wrong.
    """

    reserve_tokens: _Amount = 16_384
    keep_recent_tokens: _Amount = _Unset(20_000)
    keep_recent_messages: Annotated[int | None, _Rule(_is_whole_or_none, _AMOUNT)] = None
    enabled: _Flag = True
    mode: Annotated[str, _Rule(_is_name, "{} is not the name of a mode")] = "llm"
    summary_form: Annotated[SummaryForm, _one_of(SUMMARY_FORMS)] = "notes"
    user_words_share: _Share = 0.2
    on_failure: Annotated[OnFailure, _one_of(ON_FAILURE)] = "raise"
    prefer_deterministic: _Flag = False
    max_message_chars: _Amount = 8_000
    include_reasoning: _Flag = False
    include_symbols: _Flag = False
    include_files: _Flag = False
    registered_item_tokens: _Amount = 5_000
    registered_tokens: _Amount = 25_000
    summary_timeout: _Timeout = 300.0
    rate_limit_wait: _Wait = 60.0

    def __post_init__(self) -> None:
        _check(self)


DEFAULT_SETTINGS = CompactionSettings()
WHOLE = CompactionSettings(keep_recent_tokens=0, keep_recent_messages=0)
"""The default of a compaction by a model on demand: a summary of all that is over."""


def checked_settings(settings: CompactionSettings | None) -> CompactionSettings:
    """Return settings as they are, or the default ones for None. Raises `InvalidArgument` for anything else."""
    if settings is None:
        return DEFAULT_SETTINGS
    if not isinstance(settings, CompactionSettings):
        raise InvalidArgument(f"settings: should be CompactionSettings, not {shown(settings)}")
    return settings


def settings_keeping(tokens: int | None) -> CompactionSettings | None:
    """Return settings that keep so many tokens of the end; with 0, the open part of the last turn. None for None."""
    messages = None if tokens else 0
    return None if tokens is None else CompactionSettings(keep_recent_tokens=tokens, keep_recent_messages=messages)


def sized_for(settings: CompactionSettings, window: int | None, rest: int = 0) -> CompactionSettings:
    """Return settings whose sizes fit into a context window: reserve at most a quarter, keep half of the rest.

    ``rest`` are the other tokens of a request. A window of None, or not above 0, is unknown, and changes
    nothing.
    """
    if window is None or window <= 0:
        return settings
    reserve = min(settings.reserve_tokens, window // 4)
    keep = min(settings.keep_recent_tokens, max(window - rest - reserve, 0) // 2)
    return replace(settings, reserve_tokens=reserve, keep_recent_tokens=keep)


def token_budget(settings: CompactionSettings, default: int = TOKEN_BUDGET) -> int:
    """Return how many tokens mode ``window`` leaves: the setting, or the default."""
    tokens = settings.keep_recent_tokens
    return default if isinstance(tokens, _Unset) else tokens


def window_above(settings: CompactionSettings, most: int) -> int:
    """Return the window in which, by these settings, a compaction is due above a size of ``most`` tokens."""
    return most + min(settings.reserve_tokens, -(-most // 3))


def window_of_messages(window: int | None, rest: int) -> int | None:
    """Return the part of a window for messages, beside so many other tokens; None if it is unknown."""
    return None if window is None or window <= 0 else max(window - rest, 1)


def most_kept(settings: CompactionSettings, window: int | None) -> int | None:
    """Return how many tokens may stay of a context, so that a summary has room beside them; None for no such limit.

    Three quarters of the window without the reserve. A window of None, or not above 0, is unknown.
    """
    return None if window is None or window <= 0 else max(window - settings.reserve_tokens, 0) * 3 // 4


def within_budget(
    settings: CompactionSettings,
    counts: Sequence[int],
    budgeted: Sequence[int],
    sized: CompactionSettings,
    window: int | None,
    *,
    has_summary: bool,
) -> int | None:
    """Return how many tokens the end of a context takes that is within the budget of mode ``window``; None for all.

    ``counts`` are the sizes of its items, ``budgeted`` those that the budget counts; the first is a summary that stays
    where there is one. The window without the reserve is the most; one of None, or not above 0, is unknown.
    O(items).
    """
    budget, tokens = token_budget(settings), 0
    most = max(window - sized.reserve_tokens, 0) if window is not None and window > 0 else sys.maxsize
    if sum(budgeted) <= budget and sum(counts) <= most:
        return None
    if has_summary:
        # Its carried parts are written anew, in as much room.
        budget, most = budget - budgeted[0], most - max(counts[0], (window or 0) // 16)
    for size, counted in zip(reversed(counts), reversed(budgeted), strict=True):
        budget -= counted
        if budget < 0:
            break
        tokens += size
    return max(min(tokens, most), 0)


def room_for_text(settings: CompactionSettings, window: int | None, staying: int) -> int | None:
    """Return how many tokens the text of a compaction should take beside so many that stay; None for no limit.

    The rest of fifteen sixteenths of the window without the reserve: the next message should not be enough for
    another compaction. A sixteenth of the window in any case. A window of None, or not above 0, is unknown.
    """
    if window is None or window <= 0:
        return None
    return max((window - settings.reserve_tokens) * 15 // 16 - staying, window // 16)


def keeping_less(settings: CompactionSettings, tokens: int) -> CompactionSettings:
    """Return settings that keep so many tokens less of the end, for something else that will be in the context."""
    return replace(settings, keep_recent_tokens=max(settings.keep_recent_tokens - tokens, 0)) if tokens else settings


# ---------------------------------------------------------------------------------------------------------------------
# Text of others inside a text of ours: shortened, and in fences that it cannot close.

_ID_CHARS = 1_000
_SHORT = 300

OWN_WORDS = ("user-said", "registered", "model-asked")
"""The tags around words that count as those of the user, or of the program: nothing else may be between them."""

SUMMARY_TAGS = (*OWN_WORDS, "reasoning", "file", "read-files", "modified-files")
"""The tags in summaries: a quoted text must not pass for the user's words, or for another block."""


def fenced(
    tag: str, text: str, attributes: str = "", *, also: Sequence[str] = (), foreign: Sequence[str] = SUMMARY_TAGS
) -> str:
    """Return a text between an opening and a closing tag.

    A tag of this name in the text, of those in ``also`` or in ``foreign`` no longer is one, so that the text cannot
    end its own fence, nor begin another. O(text).
    """
    return f"<{tag}{attributes}>\n{_without(text, (tag, *also, *foreign))}\n</{tag}>"


def attribute(name: str, value: str) -> str:
    """Return an attribute for `fenced`, on one line: the value can end neither its quotes nor the tag."""
    line = escape(" ".join(value.splitlines()), quote=False).replace('"', "&quot;")
    return f' {name}="{line}"'


def without_tags(text: str) -> str:
    """Return a text in which nothing is a tag of `SUMMARY_TAGS`: their ``<`` is written ``&lt;``."""
    return _without(text, SUMMARY_TAGS)


def _without(text: str, tags: Sequence[str]) -> str:
    if "<" not in text:
        return text
    names = "|".join(map(re.escape, tags))
    return re.sub(rf"<(?=\s*/?\s*(?:{names})\b)", "&lt;", text, flags=re.IGNORECASE)


def quoted(text: str, most: int) -> str:
    """Return the beginning of a text for a line of ours: `on_one_line`, and nothing in it is a tag."""
    # Names of tools, agents and files are in hundreds of lines.
    return _quoted(text, most) if len(text) <= _SHORT else without_tags(on_one_line(text, most))


@lru_cache(maxsize=1_024)
def _quoted(text: str, most: int) -> str:
    return without_tags(on_one_line(text, most))


def shown_id(entry_id: str) -> str:
    """Return the id of an entry for a line of ours: who wrote a file that was imported has chosen it."""
    return quoted(entry_id, _ID_CHARS)


def on_one_line(text: str, most: int) -> str:
    """Return the beginning of a text as one line of at most ``most`` characters, which says if it was cut."""
    if len(text) <= most and "  " not in text and text.isprintable():
        return text.strip()
    # Far more than is shown may be white space, but a megabyte of output need not be split for one line.
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most and len(text) <= 4 * most else line[: most - 1].rstrip() + "…"


# ---------------------------------------------------------------------------------------------------------------------
# Which calls of tools read, write or edit a file, and which: every agent has its own names for that.

FileUse: TypeAlias = Literal["read", "write", "edit"]

PATH_ARGUMENTS = ("path", "file_path", "filePath", "file", "filename", "notebook_path")
"""The names of the argument with the path of a file. The first that has one counts."""


_TOOLS: Mapping[FileUse, tuple[str, ...]] = {
    "read": ("read", "read_file", "read_text_file", "notebook_read", "view_file"),
    "write": ("write", "write_file", "create_file"),
    "edit": ("edit", "edit_file", "multi_edit", "notebook_edit", "patch_file", "append_file"),
}


def _spelled(name: str) -> Iterator[str]:
    """Yield the ways to write a name: ``read_file``, ``readfile``, ``readFile``, ``ReadFile``."""
    capitals = name.title().replace("_", "")
    yield from (name, name.replace("_", ""), name[0] + capitals[1:], capitals)


_USES: Mapping[str, FileUse] = {
    spelled: use for use, names in _TOOLS.items() for name in names for spelled in _spelled(name)
}


class FileCall(Frozen):
    """The use and the path of a file in a call."""

    use: FileUse
    path: str


def file_call(part: Mapping[str, JsonValue]) -> FileCall | None:
    """Return how a call of a tool uses which file; None for a call of another tool, or without a path."""
    name = part.get("name")
    use = _USES.get(name) if isinstance(name, str) else None
    path = "" if use is None else path_argument(part.get("arguments"))
    return FileCall(use, path) if use and path else None


def path_argument(arguments: JsonValue) -> str:
    """Return the path among the arguments of a call, "" for none."""
    # A dict is told much faster than any other mapping, and there may be ten thousand.
    if isinstance(arguments, (dict, Mapping)):
        for name in PATH_ARGUMENTS:
            path = arguments.get(name)
            if path and isinstance(path, str):
                return path
    return ""


# ---------------------------------------------------------------------------------------------------------------------
# The text a summarizer reads, and the lists of files a summary ends with.

TOOL_RESULT_UNITS = 2_000
"""How much of a tool result a summarizer is shown, in UTF-16 code units."""


def serialize_conversation(messages: Sequence[Message]) -> str:
    """Return messages as labelled paragraphs, so that a model summarizes them rather than continuing the conversation.

    An assistant message gives up to three: its thinking, its text, its tool calls. Messages without text,
    images and unknown roles give none. A tool result over 2,000 UTF-16 code units is cut there and says how
    many units are missing; it is cut before a surrogate pair rather than within it. Cost: O(text); of a long tool
    result, only the length is taken beyond the cut.
    """
    paragraphs: list[str] = []
    for message in messages:
        role = message.get("role")
        parts = parts_of(message)
        texts = [string_field(part, "text") for part in parts if part.get("type") == "text"]
        if role == ASSISTANT:
            thinking = [string_field(part, "thinking") for part in parts if part.get("type") == "thinking"]
            calls = [_printed_call(part) for part in parts if part.get("type") == "toolCall"]
            # One empty part still makes a paragraph, unlike in user messages: the reference counts parts here.
            paragraphs += ["[Assistant thinking]: " + "\n".join(thinking)] if thinking else []
            paragraphs += ["[Assistant]: " + "\n".join(texts)] if texts else []
            paragraphs += ["[Assistant tool calls]: " + "; ".join(calls)] if calls else []
        elif role in (USER, TOOL_RESULT) and (text := "".join(texts)):
            paragraphs.append(f"[User]: {text}" if role == USER else f"[Tool result]: {_shortened(text)}")
    return "\n\n".join(paragraphs)


def _printed_call(part: Mapping[str, JsonValue]) -> str:
    arguments = part.get("arguments")
    if isinstance(arguments, Mapping):
        printed = ", ".join(f"{key}={js_json(value)}" for key, value in js_entries(arguments))
    else:
        printed = "" if arguments is None else js_json(arguments)
    return f"{string_field(part, 'name')}({printed})"


def _shortened(text: str) -> str:
    length = utf16_length(text)
    if length <= TOOL_RESULT_UNITS:
        return text
    head = utf16_prefix(text, TOOL_RESULT_UNITS)
    return f"{head}\n\n[... {length - utf16_length(head)} more characters truncated]"


class FileLists(Frozen):
    """Files that were only read, and files that were written or edited; each path once, in UTF-16 order."""

    read_files: tuple[str, ...] = ()
    modified_files: tuple[str, ...] = ()

    @property
    def details(self) -> JsonObject:
        """The lists as a compaction stores them, ``{"readFiles": [...], "modifiedFiles": [...]}``."""
        return {"readFiles": list(self.read_files), "modifiedFiles": list(self.modified_files)}


def file_lists(read: Iterable[str], written: Iterable[str], edited: Iterable[str]) -> FileLists:
    """Return the lists for paths read, written and edited; a modified file is not listed as read."""
    modified = {*written, *edited}
    return FileLists(
        tuple(sorted(set(read) - modified, key=utf16_sort_key)), tuple(sorted(modified, key=utf16_sort_key))
    )


def appended_file_lists(lists: FileLists, *, of: FileLists | None = None) -> str:
    """Return the lists as the end of a summary: nothing, or tagged blocks after a blank line.

    ``of`` are the whole lists, if these are a part of them: missing paths are counted at the end of each.
    """
    whole = lists if of is None else of
    return "".join(
        f"\n\n<{tag}>\n" + "\n".join([*map(_shown_path, paths), *_missing(len(all_paths) - len(paths))]) + f"\n</{tag}>"
        for tag, paths, all_paths in (
            ("read-files", lists.read_files, whole.read_files),
            ("modified-files", lists.modified_files, whole.modified_files),
        )
        if all_paths
    )


def _missing(count: int) -> list[str]:
    return [f"[… {count} more, which are stored with this summary]"] if count else []


def _shown_path(path: str) -> str:
    """Return a path as a line of a list: one that was made up by a model cannot end the list or begin another block."""
    return without_tags(path if path.isprintable() else " ".join(path.split()))


def listed_files(details: Mapping[str, JsonValue] | None) -> FileLists:
    """Return the lists that a compaction stored, in their stored order; anything that is not a string is skipped."""
    fields = details if isinstance(details, Mapping) else {}
    return FileLists(_strings(fields.get("readFiles")), _strings(fields.get("modifiedFiles")))


def _strings(value: JsonValue) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        return ()
    return tuple(item for item in value if isinstance(item, str))


def collect_file_lists(messages: Iterable[Message], earlier: FileLists | None = None) -> FileLists:
    """Return the lists for the tool calls of ``messages``, on top of an earlier compaction's.

    A call counts if its tool has the name of a tool for files (``read``, ``write_file``, ``MultiEdit``), and it has a
    path (``path``, ``file_path`` and the like).
    """
    earlier = earlier or FileLists()
    paths: dict[FileUse, set[str]] = {
        "read": set(earlier.read_files),
        "write": set(),
        "edit": set(earlier.modified_files),
    }
    for message in messages:
        content = message.get("content")
        if message.get("role") != ASSISTANT or not isinstance(content, (list, tuple)):
            continue
        for part in content:
            # A dict is told much faster than any other mapping, and None at once: there may be ten thousand.
            if part and isinstance(part, (dict, Mapping)) and part.get("type") == "toolCall":
                use = file_call(part)
                if use is not None:
                    paths[use.use].add(use.path)
    return file_lists(paths["read"], paths["write"], paths["edit"])


# ---------------------------------------------------------------------------------------------------------------------
# When a session is compacted.


class TriggerSettings(Frozen):
    """When to compact. 0 switches a number off.

    ``auto=False`` leaves only compactions on demand, and warnings: overflows are not recovered from either.
    ``threshold`` is the size in tokens above which a compaction is due; by default it is the window minus the reserve
    of `CompactionSettings`, and 100,000 where the window is unknown. ``single_call_limit`` is one, too, and comes
    first. ``trigger_turns`` is the number of turns that have ended in the context: one agent's answers and results
    until an answer without calls, another agent or a user. ``keep_recent_turns`` of them stay, with any
    ``keep_recent_tokens``, as far as half of the window has room for them. ``budget`` says how much input an agent may
    send to the model between two compactions, ``agent_budgets`` has those of agents that have one of their own, by
    name. ``on_resume`` asks before the first call of a process, too.

    ``grace_turns`` is for how many turns after a compaction neither turns nor budgets lead to another.
    ``thrash_window`` compactions in a row that freed less than ``thrash_share`` of the context each hold the next ones
    back until the context has grown by that share; one that frees less than ``least_share`` does so by itself. 0 for
    either of the first two switches all of that off, ``least_share`` too.
    ``max_failures`` in a row hold back all that nobody asked for. Raises `InvalidArgument` naming the field.
    """

    auto: _Flag = True
    threshold: Annotated[int | None, _Rule(_is_whole_or_none, _COUNT)] = None
    single_call_limit: _Count = 0
    trigger_turns: _Count = 0
    keep_recent_turns: _Count = 10
    budget: ContextBudget = field(default_factory=ContextBudget)
    agent_budgets: Mapping[str, ContextBudget] = field(default_factory=dict)
    on_resume: _Flag = True
    grace_turns: _Count = 1
    thrash_window: _Count = 10
    thrash_share: _Share = 0.1
    least_share: _Share = 0.05
    max_failures: _Count = 3

    @property
    def least_freed(self) -> float:
        """The share that a compaction has to free; 0 where nothing holds fruitless ones back."""
        return self.least_share if self.thrash_window and self.thrash_share else 0.0

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes in tokens above which a compaction is due, those that were set."""
        return tuple(most for most in (self.threshold, self.single_call_limit) if most)

    def __post_init__(self) -> None:
        _check(self)
        if self.trigger_turns and self.keep_recent_turns < 1:
            raise InvalidArgument("keep_recent_turns: should be 1 or more where trigger_turns is set")
        if self.trigger_turns and self.keep_recent_turns >= self.trigger_turns:
            raise InvalidArgument(
                f"keep_recent_turns ({self.keep_recent_turns}) must be less than trigger_turns ({self.trigger_turns})"
            )
        if not isinstance(self.budget, ContextBudget):
            raise InvalidArgument(f"budget: should be a ContextBudget, not {shown(self.budget)}")
        if not isinstance(self.agent_budgets, Mapping):
            raise InvalidArgument(f"agent_budgets: should be budgets by agent, not {shown(self.agent_budgets)}")
        for agent, budget in self.agent_budgets.items():
            if not isinstance(agent, str) or not isinstance(budget, ContextBudget):
                raise InvalidArgument(f"agent_budgets[{shown(agent)}]: should be a ContextBudget, not {shown(budget)}")
        force_setattr(self, "agent_budgets", MappingProxyType(dict(self.agent_budgets)))

    @property
    def has_budget(self) -> bool:
        """Whether any agent has a budget."""
        return any(budget.warn_at or budget.cutover_at for budget in (self.budget, *self.agent_budgets.values()))

    def budget_of(self, agent: str) -> ContextBudget:
        """Return the budget of an agent."""
        return self.agent_budgets.get(agent, self.budget)
