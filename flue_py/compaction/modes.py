"""The modes of compaction, which make the text that stands for the messages that leave the context.

A mode does no I/O. It is given its `Material`, and asks a model through an `Asker`, which books the cost of each call
before the mode sees the answer.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from importlib.metadata import entry_points
from inspect import isawaitable
from itertools import accumulate
from typing import ClassVar, Protocol, TypeAlias, cast

from msgspec import field
from msgspec.structs import replace

from flue_py.compaction import blocks
from flue_py.compaction.material import (
    ALIGNED,
    ALIGNED_EARLIER,
    DATA_PROMPT,
    ERROR_CHARS,
    FENCES,
    LAYOUTS,
    LENGTH,
    MARGIN,
    MAX_SUMMARY_TOKENS,
    SYSTEM_PROMPT,
    TURN_PREFIX_HEADING,
    Folding,
    Material,
    Operation,
    Operations,
    SummaryKind,
    allowed_tokens,
    called_on,
    checked_answer,
    gathered,
    has_operations,
    in_our_tokens,
    instruction,
    status_of,
    turn_numbers,
    turns_before,
)
from flue_py.compaction.plan import (
    NO_PRIOR_HISTORY,
    CompactionPlan,
    ContextItem,
    Messages,
    PlannedContent,
    RangePlan,
    SessionCompactionPlan,
    Told,
    joined,
    text_in,
)
from flue_py.compaction.settings import (
    CompactionSettings,
    appended_file_lists,
    checked_settings,
    fenced,
    listed_files,
    on_one_line,
    quoted,
    serialize_conversation,
    shown_id,
    without_tags,
)
from flue_py.core import kinds
from flue_py.core.context import ContextEntry, keeping, pinned_ids, project_kept, summary_text
from flue_py.core.entries import Entry, NewEntry, Pairing, exchange_of, is_silent
from flue_py.core.json import Frozen, JsonObject, JsonValue, decode_object, encode_json
from flue_py.core.model import ModelReply, ModelRequest
from flue_py.core.sessions import TaskLink
from flue_py.core.usage import agent_of
from flue_py.errors import BudgetExceeded, ContextOverflow, InvalidArgument, ModelAborted, ModelError, SummaryFailed
from flue_py.errors import shown as shown_value
from flue_py.providers.base import Leftovers
from flue_py.providers.lists import Said, answered
from flue_py.providers.request import without_empty

# ---------------------------------------------------------------------------------------------------------------------
# Modes, and their results.


class Made(Frozen):
    """The text that a mode made.

    ``text`` stands for the messages that left the context, ``details`` is stored beside it, for the next compaction and
    for programs. ``mode`` is the mode that made it: after a fallback, not the one that was asked for. ``notes`` are
    whole sentences about departures from the request.
    """

    text: str
    mode: str
    details: JsonObject = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Asker(Protocol):
    """Asks the model. The cost of each call is in the ledger before its answer is returned."""

    async def ask(self, request: ModelRequest) -> ModelReply:
        """Return the answer. Raises `ModelError`."""

    async def ask_all(self, requests: Sequence[ModelRequest]) -> list[ModelReply | Exception]:
        """Return the answers, or the errors, in the order of the requests, which are made at the same time."""


class Mode(Protocol):
    """A way to make the text of a compaction."""

    @property
    def name(self) -> str:
        """The name by which it is chosen."""

    @property
    def needs_model(self) -> bool:
        """Whether it cannot do without a model."""

    async def make(self, material: Material, asker: Asker | None) -> Made:
        """Return the text for the messages that leave the context. ``asker`` is None if the caller has no model.

        Raises `SummaryFailed` where it cannot; nothing is appended then. It may do nothing but compute and ask.
        """


# ---------------------------------------------------------------------------------------------------------------------
# The text of a compaction: the words of a mode, the blocks around them, the lists of files; and finding them later.
#
# A compaction notes in its details where in the text the mode's own part is (``own``), and where in that stands the
# text of an earlier compaction of another mode (``inherited``). So the next one takes over words, not blocks made anew.

CARRIED = ("userWords", "keyFacts", "lastHandoff")
"""The details that each compaction hands on to the next, from which a block of it is made again."""
SPANS = ("own", "inherited")
"""The details that name a part of the text."""
RULE = "---"
"""The line between the blocks before a summary and its head, and between parts of it."""
HOOK = "hook"
"""The name of the mode if a hook gave the text."""


_MOST_INHERITED = 16_000
_INHERITED_PART = 4
_LEFT_OUT = "\n[… {} characters of earlier summaries are left out; they are stored …]\n"


def dressed(
    material: Material,
    mode: str,
    own: str,
    *,
    around: blocks.Around | None = None,
    calls: bool = True,
    head: str = "",
    after: Sequence[blocks.Block] = (),
    inherited: str = "",
    details: JsonObject | None = None,
    notes: Sequence[str] = (),
) -> Made:
    """Return the text of a mode between its blocks, with the lists of files behind it. ``own`` begins with inherited.

    The blocks are those of ``around``, with calls that nothing answers among them where ``calls`` says so, and then
    ``after``. ``head`` stands right before ``own``. O(size of the text).
    """
    files, is_part = blocks.shown_file_lists(material)
    left = material.beside("\n\n".join([files, head, *(block.text for block in after)]).strip())
    before, behind_own = ([], []) if around is None else around.blocks(left, own, calls=calls)
    after = [*behind_own, *after]
    ahead = "".join(f"{block.text}\n\n" for block in before if block.text)
    ahead += (f"{RULE}\n\n" if ahead and head else "") + head
    behind = "".join(f"\n\n{block.text}" for block in after if block.text)
    stored: JsonObject = {**material.planned.plan.files.details, **_written(material, mode)}
    if ahead or behind or inherited or is_part:
        stored["own"] = [len(ahead), len(ahead) + len(own)]
    if inherited:
        stored["inherited"] = [len(ahead), len(ahead) + len(inherited)]
    all_notes = list(notes)
    for block in (*before, *after):
        stored.update(block.details)
        all_notes.extend(block.notes)
    text = ahead + own + behind + files
    return Made(text, mode, {**stored, **(details or {})}, tuple(all_notes))


def supplied(material: Material, text: str, details: Mapping[str, JsonValue]) -> Made:
    """Return a text that a hook gives, with its own details and those of every compaction."""
    return Made(text, HOOK, {**details, **_written(material, HOOK)})


def _written(material: Material, mode: str) -> JsonObject:
    """Return the details of every text: who made it, how many turns leave whole, where they are stored."""
    ended = turns_before(material.earlier) + material.content.turns_ended
    noted: JsonObject = {"mode": mode, "turns": ended}
    ends = _originals(material)
    return {**noted, "originals": [*ends]} if ends else noted


def with_block(result: Made, block: blocks.Block) -> Made:
    """Return a text with one more block behind it, which the next compaction does not take for the mode's words."""
    details = {**result.details, **block.details}
    if block.text and "own" not in details:
        details["own"] = [0, _own_length(result)]
    text = "\n\n".join(filter(None, [result.text, block.text]))
    return Made(text, result.mode, details, (*result.notes, *block.notes))


def _own_length(result: Made) -> int:
    """Return how long a text is without the lists of files at its end."""
    return len(result.text.removesuffix(appended_file_lists(listed_files(result.details))))


def turns_covered(material: Material) -> int:
    """Return how many turns this compaction and those before it stand for, the last one perhaps in part."""
    turns = material.content.turns
    return turns_before(material.earlier) + (turns[-1] if turns else 0)


def earlier_text(material: Material, mode: str | None = None) -> str:
    """Return the text of earlier compactions, without blocks and lists of files; "" for the first compaction.

    With ``mode``, if the latest was made by it, only the part taken over from another mode: it writes the rest
    anew, from the details.
    """
    text, details = material.previous_summary or "", material.earlier or {}
    if mode is not None and details.get("mode") == mode:
        return text_in(text, details.get("inherited")) or ""
    return Told(text, details).own_text


def shortened(material: Material, text: str) -> str:
    """Return the text of earlier compactions for a mode that asks no model, which could shorten it.

    Its middle is left out where it takes more than a quarter of the window, or half of the room: it gets longer with
    each range that is taken over. O(size).
    """
    most = material.at_most(_MOST_INHERITED, _INHERITED_PART)
    if material.room is not None:
        most = min(most, material.room // 2)
    tokens = material.tokens_of(text) if text else 0
    if tokens <= most:
        return text
    if material.tokens_of(_LEFT_OUT) > most:
        # The line about the characters that are left out would be all of it. Each text says where the originals are.
        return ""
    half = max(len(text) * most // tokens - len(_LEFT_OUT), 0) // 2
    return text[:half] + _LEFT_OUT.format(len(text) - 2 * half) + text[len(text) - half :]


def covers(material: Material, first: int, title: str) -> str:
    """Return the heading of a text: its title, and which turns it stands for, from 1."""
    return f"[{title} — covers turns {first}–{max(turns_covered(material), first)}]"


def summary_head(material: Material) -> str:
    """Return the heading of a model's summary in the form ``turns``; "" in any other."""
    if material.settings.summary_form != "turns":
        return ""
    first = 1 if earlier_text(material) else turns_before(material.earlier) + 1
    return covers(material, first, "CONVERSATION SUMMARY") + "\n\n"


def entries_named(material: Material) -> str:
    """Return the ids between which the originals are stored, also those that earlier compactions stood for."""
    ends = _originals(material)
    return f"entries {shown_id(ends[0])} to {shown_id(ends[1])}" if ends else "the entries before"


def stored_block(material: Material) -> blocks.Block:
    """Return a line that says where the originals are, for a mode whose text may not."""
    return blocks.Block(f"[The originals are stored: {entries_named(material)}]")


def _originals(material: Material) -> list[str]:
    """Return the ids of the first entry that this compaction and those before it stand for, and of the last."""
    leaving = material.leaving
    if not leaving:
        return []
    stored = (material.earlier or {}).get("originals")
    first = stored[0] if isinstance(stored, (list, tuple)) and stored else None
    return [first if isinstance(first, str) else leaving[0].entry_id, leaving[-1].entry_id]


def noted(earlier: Mapping[str, JsonValue] | None, names: Sequence[str]) -> JsonObject:
    """Return those of an earlier compaction's details that a mode hands on as they are."""
    return {name: earlier[name] for name in names if name in earlier} if earlier else {}


# ---------------------------------------------------------------------------------------------------------------------
# Summaries of a branch that is left, by the modes of compaction.

PREAMBLE = "The user explored a different conversation branch before returning here.\nSummary of that exploration:\n\n"
MERGED_PREAMBLE = "This was done on another branch, or in a session of its own.\nSummary of that work:\n\n"
MOST_TOKENS = 2_048
"""The tokens of the text at most, with the words before it; half of it is for the answer of a model."""
_MOST_RESERVED = 2_560
"""A summary takes four fifths of the reserve at most, so these are as many."""
_WORDS_PART = 4
"""One so many-th is the user's, whose words come beside the work."""
_SAYS_MORE = "\n[… {} more characters]"


def plan_branch(items: Sequence[ContextEntry], settings: CompactionSettings) -> SessionCompactionPlan | None:
    """Return the plan for the items of a context that only the branch has, all of which leave; None for none.

    Summaries among them, of compactions and of ranges on the branch, are taken over. O(items).
    """
    summaries = [at for at, item in enumerate(items) if item.kind == kinds.COMPACTION]
    leaving = [at for at, item in enumerate(items) if item.kind != kinds.COMPACTION]
    if not items:
        return None
    previous = joined([Told.of(items[at].entry) for at in summaries], is_first=summaries[:1] == [0])
    plan = CompactionPlan(
        first_kept_index=len(items),
        is_split_turn=False,
        content=PlannedContent(
            Messages(items), leaving, (), listed_files(None if previous is None else previous.details)
        ),
        previous_summary=None if previous is None else previous.summary,
        settings=replace(settings, reserve_tokens=min(settings.reserve_tokens, _MOST_RESERVED)),
    )
    return SessionCompactionPlan(plan, "", tuple(items[at] for at in leaving), (), previous, tuple(summaries))


def told_by_summaries(planned: SessionCompactionPlan) -> Made:
    """Return the summaries of a branch that has nothing else."""
    previous = planned.previous or Told("", None)
    details = dict(previous.details or {})
    return Made(previous.summary, str(details.get("mode", "")), details)


def within_budget(material: Material, preamble: str) -> Material:
    """Return it with the room that the text of a branch has behind a preamble, in a window however large."""
    room = MOST_TOKENS - material.tokens_of(preamble)
    aside = room // _WORDS_PART
    return replace(material, room=room - aside, set_aside=aside, answer_room=MOST_TOKENS // 2)


def held_to_budget(result: Made, material: Material, preamble: str) -> Made:
    """Return a text, without its end if it takes too much behind a preamble all the same.

    So it is with a mode that keeps to no room, a model that keeps to no limit, and a branch that is nothing but a long
    summary. The details do not say then where in the text the mode's own part is.
    """
    room = MOST_TOKENS - material.tokens_of(preamble)
    if material.tokens_of(result.text) <= room:
        return result
    begun = material.begun(result.text, room - material.tokens_of(_SAYS_MORE.format(len(result.text))))
    details = {name: value for name, value in result.details.items() if name not in SPANS}
    note = f"the summary was longer than {MOST_TOKENS:,} tokens, and its end is left out"
    return Made(begun + _SAYS_MORE.format(len(result.text) - len(begun)), result.mode, details, (*result.notes, note))


# ---------------------------------------------------------------------------------------------------------------------
# The stored calls of tools as a list, with warnings above and below it.

INTENT = "intent"
NO_CALLS = "nothing in it calls a tool"
NOT_ASKED = ", and no model was asked"
MARKS = {"done": "✓", "failed": "✗", "pending": "⧖"}
HEADING = "INTENT-DERIVED RECONSTRUCTION"
MOST_OPERATIONS = 500
MOST_WARNINGS = 20
_WARNING_TOKENS = 4_000
_WINDOW_PART = 8
LABEL_CHARS = 300
"""More than the name of a tool and its target take."""
_ERROR_CHARS = 160
LIST_TOKENS = 4_000
"""The tokens of the list of operations at most, in a window however large."""


def listed(material: Material, around: blocks.Around, max_tokens: int = LIST_TOKENS) -> Made:
    """Return the text of mode ``intent``: the list, behind the text of earlier compactions of other modes."""
    material = blocks.words_set_aside(material)
    inherited = shortened(material, earlier_text(material, INTENT))
    left = material.beside(inherited).beside(covers(material, 1, HEADING)).beside(_resumption(material))
    operations, lines = _fitting(left, left.half().at_most(max_tokens, _WINDOW_PART))
    parts = [covers(material, operations.first_turn, HEADING), _operations(operations, lines)]
    parts += ["\n".join(warnings(left.beside(parts[-1]), operations))]
    parts.append(_resumption(material))
    own = "\n\n".join(filter(None, [inherited, *parts]))
    return dressed(material, INTENT, own, around=around, calls=False, inherited=inherited, details=operations.details)


def listed_none(material: Material, around: blocks.Around, why: str) -> Made:
    """Return the text of mode ``intent`` without any operation, below a line that says why."""
    note = f"{why}; the list of operations is empty"
    line = f"[COMPACTION WARNING: {note}]\n\n"
    return below(listed(material.beside(line), around), line, note)


async def in_place_of(
    wanted: str, reason: str, material: Material, make: Callable[[Material], Awaitable[Made]]
) -> Made:
    """Return the text of another mode, with a first line and a note about the mode that was asked for, and why not.

    ``make`` returns that text, of the material with the room that is left below the line.
    """
    line = "[COMPACTION WARNING: {!r} mode was requested but {}; {!r} was used]\n\n".format
    result = await make(material.beside(line(wanted, reason, "a mode by another name")))
    note = f"mode {wanted!r} was requested but {reason}; {result.mode!r} was used"
    return below(result, line(wanted, reason, result.mode), note)


def below(result: Made, line: str, note: str) -> Made:
    """Return a text below a line, with a note."""
    details = dict(result.details)
    for name in SPANS:
        if isinstance(span := details.get(name), list):
            details[name] = [at + len(line) for at in span if isinstance(at, int)]
    if "own" not in details:
        details["own"] = [len(line), len(line) + _own_length(result)]
    return Made(line + result.text, result.mode, details, (note, *result.notes))


def _fitting(material: Material, most: int) -> tuple[Operations, list[str]]:
    """Return the operations whose lines take at most so many tokens, the newest of them, and their lines."""
    lines: list[str] = []
    left = most

    def fits(operation: Operation) -> bool:
        nonlocal left
        line = operation_line(operation)
        left -= material.tokens_of(line)
        if left >= 0:
            lines.append(line)
        return left >= 0

    return gathered(material, MOST_OPERATIONS, fits), lines[::-1]


def operation_line(operation: Operation) -> str:
    """Return an operation as a line; the entry is named where somebody may want to look at it."""
    # Those that were carried on are as they were stored, perhaps by another program.
    error = f" — {quoted(operation.error, _ERROR_CHARS)}" if operation.error.strip() else ""
    where = "" if operation.status == "done" else f" [{_where(operation)}]"
    mark, label = MARKS[operation.status], quoted(operation.label, LABEL_CHARS)
    return f"  {mark} {label}{error} (turn {operation.turn}, {quoted(operation.agent, LABEL_CHARS)}){where}"


def _where(operation: Operation) -> str:
    """Return the entry of an operation, and the id of its call where that is still to be answered."""
    entry = f"entry {shown_id(operation.entry_id)}"
    is_named = operation.status == "pending" and operation.call_id
    return f"{entry}, call {quoted(operation.call_id, blocks.ID_CHARS)}" if is_named else entry


def _operations(operations: Operations, lines: list[str]) -> str:
    heading = ["OPERATIONS (chronological):"]
    if any(operations.folded):
        counts = ", ".join(f"{n} {mark}" for n, mark in zip(operations.folded, MARKS.values(), strict=True) if n)
        heading.append(f"  ({sum(operations.folded)} earlier operations are not listed: {counts})")
    if not lines and not any(operations.folded):
        heading.append("  (no tracked tool calls recorded in this range)")
    return "\n".join([*heading, *lines])


def warnings(material: Material, operations: Operations) -> list[str]:
    """Return a line for each listed operation without a result, the newest `MOST_WARNINGS` of them that fit."""
    pending = [operation for operation in operations.listed if operation.status == "pending"][-MOST_WARNINGS:]
    lines = [
        f"WARNING: {quoted(operation.label, LABEL_CHARS)} (turn {operation.turn}, {_where(operation)}) "
        "has no recorded result; "
        "it may or may not have taken effect. Check before repeating it."
        for operation in pending
    ]
    return material.fitting(reversed(lines), material.at_most(_WARNING_TOKENS, _WINDOW_PART))[::-1]


def _resumption(material: Material) -> str:
    return (
        "RESUMPTION NOTE: this was made from the stored record of tool calls, not by a model. What is marked ✓ is done "
        "and need not be repeated; what is marked ✗ failed and should be retried. "
        f"The originals are stored: {entries_named(material)}."
    )


# ---------------------------------------------------------------------------------------------------------------------
# Asking for summaries in parts, one after the other.


async def fold(folds: Sequence[Folding], asker: Asker) -> None:
    """Make the requests of summaries until all are done, one after the other: behind one that failed, none is paid.

    Raises `SummaryFailed`, of the first that failed.
    """
    for folding in folds:
        while not folding.is_done:
            [answer] = await asker.ask_all([folding.request()])
            folding.take(answer)


# ---------------------------------------------------------------------------------------------------------------------
# Asking for a summary by the request that the model was sent last: most of it is read from the provider's cache.

LEAST_CACHED = 0.85
"""The share of such a request that has to be in the cache: with less, a transcript is the shorter thing to send."""
_SHOWN_CHARS = 200


def aligned_request(material: Material, facts: str, limit: int) -> ModelRequest | str:
    """Return the last request with one user message more, or in a few words why a summary is not asked for so.

    ``facts`` go with the instruction, and the answer may have ``limit`` tokens. Its tools are
    declared, so that the beginning is the same bytes; calls in the answer are not made. There is no message in it
    that says nothing, no call without a result and no result without its call, as in requests to providers. O(size).
    """
    last = material.last_request
    if last is None:
        return material.unaligned or "there is no last request"
    pairing = Pairing(last.messages)
    groups = (pairing.group_of(place) for place in range(len(last.messages)))
    if any(group is not None and group.is_open for group in groups):
        return "a call of a tool is without its result"
    prompt = _prompt(material, facts)
    tokens = last.tokens + material.tokens_of(prompt)
    if last.cached_tokens < LEAST_CACHED * tokens:
        return f"only {last.cached_tokens:,} of its {tokens:,} tokens would be in the cache"
    window = material.summarizer_window
    if window is not None and tokens + limit > window * MARGIN:
        return f"its {tokens:,} tokens and the answer do not fit into a window of {window:,}"
    try:
        return ModelRequest(
            (*_whole(last.messages), {"role": "user", "content": prompt}),
            last.system or None,
            last.tools,
            max_tokens=limit,
            purpose=PURPOSE,
        )
    except InvalidArgument as error:
        return str(error)


def _whole(messages: Sequence[JsonObject]) -> Iterator[JsonObject]:
    """Yield messages as a provider is sent them, whose list is the same of these as of those that were given."""
    sent = answered(without_empty(list(map(Said, messages)), Leftovers()), Leftovers(), in_place=True)
    return (message.message for message in sent)


def _prompt(material: Material, facts: str) -> str:
    """Return the message that asks for the summary: which part it stands for, and how to write it."""
    staying, first_id = material.staying, material.planned.first_kept_entry_id
    at = next((at for at, item in enumerate(staying) if item.entry_id == first_id), None)
    first: kinds.Message = {"role": ""} if at is None else staying[at].data
    shown, role = on_one_line(kinds.message_text(first), _SHOWN_CHARS), str(first.get("role"))
    after = len(staying) - (at or 0)
    cut = f"The last {after} messages stay in sight; the first of them is of role {role}"
    cut += f" and begins: {shown!r}." if shown else "."
    if not first_id:
        cut = "This message is the first that stays in sight."
    earlier = ALIGNED_EARLIER if material.previous_summary else ""
    layout = LAYOUTS[material.settings.summary_form]
    return "\n\n".join(filter(None, [ALIGNED.format(cut=cut, earlier=earlier, layout=layout), facts]))


# ---------------------------------------------------------------------------------------------------------------------
# Messages for a summarizer: each under a line that names its turn and entry, and no longer than allowed.

_LOOKS_LIKE_A_HEADING = re.compile(r"^(?=\[[^\]\n]{1,80} — Turn \d)", re.MULTILINE)
_AGENT_CHARS = 80
_MOST_CALLS = 20
_CALL_CHARS = 120


class Line(Frozen):
    """A message with the line that stands over it, and its calls with their outcomes."""

    heading: str
    message: kinds.Message
    calls: tuple[str, ...]


def lines_of(material: Material) -> list[Line]:
    """Return the messages that leave, one `Line` each, in order. O(messages)."""
    messages, turns = material.messages, turn_numbers(material)
    return [
        Line(_heading(message, turn, item.entry_id), message, tuple(_calls(material.content, at)))
        for at, (item, message, turn) in enumerate(zip(material.leaving, messages, turns, strict=True))
    ]


def _heading(message: kinds.Message, turn: int, entry_id: str) -> str:
    role = message.get("role")
    agent = quoted((agent_of(message) or "").replace("[", "(").replace("]", ")"), _AGENT_CHARS) or "Agent"
    speaker = "Human" if role == kinds.USER else agent if role == kinds.ASSISTANT else "Result"
    return f"[{speaker} — Turn {turn}, entry {shown_id(entry_id)}]"


def _calls(content: PlannedContent, at: int) -> Iterator[str]:
    """Yield the calls of one of the messages that leave, each behind the mark of its outcome."""
    for call, results in content.pairing.results_of(at).items():
        yield f"{MARKS[status_of(content, results)]} {on_one_line(called_on(content.pairing.parts[call]), _CALL_CHARS)}"


def shown(line: Line, most: int) -> str:
    """Return a message as a summarizer is shown it: cut after ``most`` characters, 0 for none; "" if it says nothing.

    A text that is cut says how long it was, and which tools it called.
    """
    body = serialize_conversation([line.message])
    if not body:
        return ""
    if 0 < most < len(body):
        body = f"{body[:most]} [TRUNCATED — {len(body)} chars total]"
        if line.calls:
            ellipsis = ", …" if len(line.calls) > _MOST_CALLS else ""
            body += f"\n  [Tool calls: {', '.join(line.calls[:_MOST_CALLS])}{ellipsis}]"
    escaped = _LOOKS_LIKE_A_HEADING.sub(r"\\", body)
    return f"{line.heading}\n{escaped}"


# ---------------------------------------------------------------------------------------------------------------------
# Mode ``llm``: a model writes the summary.

PURPOSE = "compaction"
VARIABLES = ("task", "turn_count", "change_log", "history")
_VARIABLE = re.compile(r"\{\{\$(\w+)\}\}")
_CHANGE_LOG_CHARS = 20_000
_CHARS_A_TOKEN = 3

ChangeLog: TypeAlias = Callable[[], str | None]
"""Returns the changes that are known for sure; None for none. An error is noted."""


class Llm(Frozen):
    """Asks the model for a summary, which a later compaction asks it to bring up to date.

    It writes in the form that ``summary_form`` of the settings names. The caller's instructions take the place of ours,
    which the system prompt has then. So does ``template``: ``{{$task}}`` (the user's first question),
    ``{{$turn_count}}``, ``{{$change_log}}`` and ``{{$history}}`` (the conversation, which comes before it otherwise)
    are filled in. ``change_log`` returns the changes, which the model is told to believe before the conversation; by
    default those in the stored calls of tools (`Material.changes`). Raises `InvalidArgument`
    for a template that names anything else.
    """

    template: str | None = None
    change_log: ChangeLog | None = None
    around: blocks.Around = blocks.Around()

    def __post_init__(self) -> None:
        if self.template is None:
            return
        if not isinstance(self.template, str) or not self.template.strip():
            raise InvalidArgument(f"template: should be a text or None, not {shown_value(self.template)}")
        for name in _VARIABLE.findall(self.template):
            if name not in VARIABLES:
                names = ", ".join(f"{{{{${variable}}}}}" for variable in VARIABLES)
                raise InvalidArgument(f"template: there is no {{{{${name}}}}}; use {names}")

    name: ClassVar[str] = "llm"
    needs_model: ClassVar[bool] = True

    async def make(self, material: Material, asker: Asker | None) -> Made:
        """Return the model's summary between the blocks, with the lists of files behind it.

        One call, or two for a split turn, one after the other; more where the summarizer's window is too small for
        one. Raises `SummaryFailed` for a call that fails, an answer that can be no summary, and one that was cut off.
        """
        if asker is None:
            raise InvalidArgument(f"mode {self.name!r} needs a model; give one, or choose a mode that needs none")
        material = blocks.words_set_aside(material)
        head, after = summary_head(material), [stored_block(material)]
        text, notes = await self.told(material.beside(head), asker, earlier_text(material))
        # A model may leave out the sources of its summary, but not this line.
        return dressed(material, self.name, text, around=self.around, head=head, after=after, notes=notes)

    async def told(self, material: Material, asker: Asker, earlier: str) -> tuple[str, tuple[str, ...]]:
        """Return the model's summary alone, which continues ``earlier``, and notes about departures."""
        plan = material.planned.plan
        material = material.beside(blocks.shown_file_lists(material)[0]).beside(stored_block(material).text)
        log = material.changes
        notes: tuple[str, ...] = ()
        if self.change_log is not None:
            try:
                log = self.change_log() or ""
            except Exception as error:  # noqa: BLE001 - the caller's, and the conversation is there without it
                log, notes = "", (f"the change log could not be read: {error}",)
        text, why = await self._told_by_last_request(material, asker, log)
        if text is not None:
            return without_tags(text), notes
        if why is not None:
            notes = (*notes, f"the summary was made from a transcript: {why}")
        history = len(plan.messages_to_summarize)
        lines = lines_of(material)
        request_for = partial(self._asked, material, log)

        def folding(kind: SummaryKind, first: int, last: int, before: str | None) -> Folding:
            return Folding(
                kind,
                last - first,
                shown=lambda at, cap: shown(lines[first + at], cap),
                asked=request_for,
                tokens=material.tokens_of,
                cap=material.settings.max_message_chars,
                window=material.summarizer_window,
                earlier=before,
            )

        folds = [folding("initial", 0, history, earlier or None)] if history else []
        if history < len(lines):
            folds.append(folding("turn_prefix", history, len(lines), None))
        await fold(folds, asker)
        # The record may have made it write a tag of ours, such as that of the user's words.
        texts = [without_tags(making.text or "") for making in folds]
        if not history:
            texts.insert(0, earlier or NO_PRIOR_HISTORY)
        return TURN_PREFIX_HEADING.join(texts), notes

    async def _told_by_last_request(self, material: Material, asker: Asker, log: str) -> tuple[str | None, str | None]:
        """Return the summary that the model writes below its last request; None, and why, where it cannot be asked so.

        The reason is None if the caller did not name the rest of the requests. Raises `SummaryFailed`.
        """
        if material.last_request is None:
            return None, material.unaligned
        if self.template is not None:
            return None, "a template takes the place of the instruction"
        window = material.summarizer_window
        limit = _limit(material, "initial", window)
        parts = [*_change_log(_log_within(log, window), "the above"), *_bounds(material, limit)]
        request = aligned_request(material, "\n\n".join(parts), limit)
        if isinstance(request, str):
            return None, request
        [answer] = await asker.ask_all([request])
        if isinstance(answer, ContextOverflow):
            return None, "the last request and a message more were too long for the model"
        text = checked_answer("initial", answer, request.max_tokens, may_be_blank=True).text
        if not text.strip():
            return None, "below the last request, the model wrote nothing, or called tools instead"
        return text, None

    def _asked(
        self, material: Material, log: str, kind: SummaryKind, text: str, before: str | None, window: int | None
    ) -> ModelRequest:
        """Return the request of a kind for a part of the conversation, with the summary of the part before it."""
        parts: list[str] = []
        log = _log_within(log, window)
        template = None if kind == "turn_prefix" else self.template
        conversation = _fence("conversation", text)
        if template is None or "{{$history}}" not in template:
            parts.append(conversation)
        if before:
            parts.append(_fence("previous-summary", before))
        if template is None or "{{$change_log}}" not in template:
            parts += _change_log(log, "the conversation")
        kind = "update" if before else kind
        limit = _limit(material, kind, window)
        system, ours = f"{SYSTEM_PROMPT} {DATA_PROMPT}", instruction(kind, material.settings.summary_form)
        if template is not None:
            parts.append(self._filled(template, material, log, text))
        elif material.instructions:
            system = f"{system}\n\n{ours}"
        else:
            parts.append(ours)
        prompt = "\n\n".join([*parts, *_bounds(material, limit)])
        return ModelRequest(({"role": "user", "content": prompt},), system, max_tokens=limit, purpose=PURPOSE)

    def _filled(self, template: str, material: Material, log: str, text: str) -> str:
        values: Mapping[str, str] = {
            "task": _fence("task", blocks.first_words(material)),
            "turn_count": str(turns_covered(material)),
            "change_log": _fence("change-log", log),
            "history": _fence("conversation", text),
        }
        # In one go: a value may itself look like a variable.
        return _VARIABLE.sub(lambda variable: values[variable[1]], template)


def _limit(material: Material, kind: SummaryKind, window: int | None) -> int:
    """Return how many tokens the answer to a request of a kind may have.

    If the text has little room, that is a third of it, or the room meant for it, half as much for the beginning of a
    turn, and an eighth of the usual limit in any case: an answer that is cut off is none.
    """
    limit = allowed_tokens(kind, material.settings) or MAX_SUMMARY_TOKENS
    if material.room is not None:
        most = material.room // 3 if material.answer_room is None else min(material.answer_room, material.room)
        limit = min(limit, max(most // 2 if kind == "turn_prefix" else most, limit // 8))
    if window is not None:
        limit = min(limit, max(window // 4, 1))
    return limit if material.summarizer_output is None else min(limit, material.summarizer_output)


def _log_within(log: str, window: int | None) -> str:
    """Return as much of the end of a change log as may be shown: an eighth of the window."""
    most = _CHANGE_LOG_CHARS if window is None else min(_CHANGE_LOG_CHARS, window // 8 * _CHARS_A_TOKEN)
    return log if len(log) <= most else f"[… {len(log) - most} earlier characters]\n{log[-most:]}"


def _change_log(log: str, shown_above: str) -> list[str]:
    """Return a change log, if it says anything, under a line that says that it is right."""
    line = f"What has been changed, from a log that is right where {shown_above} differs:"
    return [line, _fence("change-log", log)] if log else []


def _bounds(material: Material, limit: int) -> list[str]:
    """Return the end of a request: how long the answer may be, and the instructions of the caller."""
    return [LENGTH.format(words=limit * 2 // 3), *([material.instructions] if material.instructions else [])]


def _fence(tag: str, text: str) -> str:
    return fenced(tag, text, also=FENCES)


# ---------------------------------------------------------------------------------------------------------------------
# Mode ``lossless``: where things stand, by evidence: the state, contracts evaluated now, the latest results.

LOSSLESS_HEADING = "[CONTEXT RECONSTRUCTION — derived from durable evidence, not summarised by LLM]"
MOST_EVIDENCE = 20
LOSSLESS_MOST_TOKENS = 4_000
"""The tokens of the evidence in a large window; in a small one no more than an eighth of it."""
_REASON_CHARS = 400

State: TypeAlias = str | Callable[[], str | None] | None
"""Where a state machine stands, or a function that returns it; None where there is none."""

Verdict: TypeAlias = bool | str | None
"""The verdict of a contract: True or None if it holds; False, or the reason as a text, if it does not."""

Contract: TypeAlias = Callable[[], Verdict | Awaitable[Verdict]]


class Lossless(Frozen):
    """Writes the evidence: ``state``, ``contracts`` by name, which are called now, and the latest results.

    A contract that raises has failed, for the reason that it raised. Where there is none of the three, ``instead``
    makes the text if it can, and otherwise the mode ``intent``.
    """

    state: State = None
    contracts: Mapping[str, Contract] = field(default_factory=dict)
    around: blocks.Around = blocks.Around()
    instead: Mode = Llm()

    name: ClassVar[str] = "lossless"
    needs_model: ClassVar[bool] = False

    async def make(self, material: Material, asker: Asker | None) -> Made:
        """Return the evidence, behind the text of earlier compactions of other modes. O(messages)."""
        operations = gathered(material, MOST_OPERATIONS)
        state = self.state() if callable(self.state) else self.state
        if not operations.listed and not state and not self.contracts:
            why = "there is no state, no contract and no evidence"
            return await in_place_of(self.name, why, material, partial(self._without_evidence, asker=asker))
        material = blocks.words_set_aside(material)
        inherited = shortened(material, earlier_text(material, self.name))
        evidence = await self.evidence(material.beside(inherited), operations, state)
        own = "\n\n".join(filter(None, [inherited, evidence]))
        return dressed(
            material, self.name, own, around=self.around, calls=False, inherited=inherited, details=operations.details
        )

    async def _without_evidence(self, material: Material, asker: Asker | None) -> Made:
        if asker is None and self.instead.needs_model:
            return listed_none(material, self.around, NO_CALLS + NOT_ASKED)
        return await self.instead.make(material, asker)

    async def evidence(self, material: Material, operations: Operations, state: str | None) -> str:
        """Return the text itself, without earlier ones and without blocks."""
        parts = [LOSSLESS_HEADING]
        if state:
            parts.append(f"STATE MACHINE POSITION:\n  {quoted(state, _REASON_CHARS)}")
        if self.contracts:
            parts.append("\n".join(["CONTRACT STATUS:", *await self._verdicts()]))
        where = f" The state is {quoted(state, _REASON_CHARS)}." if state else ""
        where += " Satisfy all ✗ contracts before going on." if "\n  ✗ " in parts[-1] else ""
        resumption = (
            f"RESUMPTION NOTE: go on from the evidence above.{where} The originals are stored: "
            f"{entries_named(material)}."
        )
        left = material.beside("\n\n".join([*parts, resumption]))
        if operations.listed:
            parts.append("\n".join(["RECENT EVIDENCE (newest first):", *_newest(left, operations)]))
            parts.append("\n".join(warnings(left.beside(parts[-1]), operations)))
        return "\n\n".join(filter(None, [*parts, resumption]))

    async def _verdicts(self) -> list[str]:
        """Return a line for each contract: those that hold, then those that do not with their reason."""
        passed, failed = [], []
        for name, contract in self.contracts.items():
            reason = await why_broken(contract)
            if reason is None:
                passed.append(f"  ✓ {name}")
            else:
                failed.append(f"  ✗ {name}\n    Reason: {quoted(reason, _REASON_CHARS)}")
        return [*passed, *failed]


async def why_broken(contract: Contract) -> str | None:
    """Return why a contract does not hold, also the error that it raised; None if it holds."""
    try:
        verdict = contract()
        answer = await verdict if isawaitable(verdict) else verdict
    except Exception as error:  # noqa: BLE001 - a contract of the caller's; that it raises is the finding
        return str(error) or type(error).__name__
    if answer is None or answer is True:
        return None
    return answer if isinstance(answer, str) and answer else "it does not hold"


def _newest(material: Material, operations: Operations) -> list[str]:
    lines = [*map(_evidence, reversed(operations.listed[-MOST_EVIDENCE:]))]
    fitting = material.fitting(lines, material.half().at_most(LOSSLESS_MOST_TOKENS, _WINDOW_PART))
    # The last thing that was done is told in any case, in a window however small.
    return fitting or [lines[0].partition("\n")[0]]


def _evidence(operation: Operation) -> str:
    label, entry_id = quoted(operation.label, LABEL_CHARS), shown_id(operation.entry_id)
    agent = quoted(operation.agent, LABEL_CHARS)
    line = f"  {MARKS[operation.status]} {label} (turn {operation.turn}, {agent}, entry {entry_id})"
    output = without_tags(operation.error).strip()[:ERROR_CHARS]
    return line + "".join(f"\n      {row}" for row in output.splitlines()) if output else line


# ---------------------------------------------------------------------------------------------------------------------
# Mode ``hybrid``: the evidence, and a model's summary after it.

BETWEEN = f"\n\n{RULE}\n\n"


class Hybrid(Frozen):
    """Puts the text of ``lossless`` before that of ``llm``; where the model fails, it is the former alone."""

    lossless: Lossless = Lossless()
    llm: Llm = Llm()
    around: blocks.Around = blocks.Around()

    name: ClassVar[str] = "hybrid"
    needs_model: ClassVar[bool] = True

    async def make(self, material: Material, asker: Asker | None) -> Made:
        """Return both texts, or that of the evidence and a note if the model failed. Calls as for ``llm``."""
        if asker is None:
            raise InvalidArgument(f"mode {self.name!r} needs a model; give one, or choose 'lossless'")
        material = blocks.words_set_aside(material)
        operations = gathered(material, MOST_OPERATIONS)
        state = self.lossless.state() if callable(self.lossless.state) else self.lossless.state
        # Of a scarce room, most is for the model's summary.
        for_evidence = material if material.room is None else material.within(material.room // 3)
        evidence = await self.lossless.evidence(for_evidence, operations, state)
        earlier = earlier_text(material, self.name)
        head = summary_head(material)
        notes: tuple[str, ...] = ()
        try:
            summary, notes = await self.llm.told(material.beside(evidence + head), asker, earlier)
        except SummaryFailed as error:
            if isinstance(error.__cause__, ModelAborted):
                raise
            # Earlier summaries of the model are not lost with its failure.
            head, summary = "", shortened(material.beside(evidence), earlier)
            notes = (f"the model's summary is missing: {error.reason}",)
        # The evidence is made anew each time, the model's part is taken over by the next compaction: it is noted as
        # inherited, and stands last in the text.
        own = BETWEEN.join(filter(None, [evidence, head + summary]))
        details = operations.details
        text = dressed(
            material, self.name, own, around=self.around, calls=False, inherited=summary, details=details, notes=notes
        )
        span = text.details.get("own")
        if not isinstance(span, list) or not isinstance(span[1], int):
            return text
        return replace(text, details={**text.details, "inherited": [span[1] - len(summary), span[1]]})


# ---------------------------------------------------------------------------------------------------------------------
# Mode ``intent``: the operations of the agent, by the stored calls of tools. No model is asked, unless there are none.

_INTENT_REASON_CHARS = 200


class Intent(Frozen):
    """Lists the calls, their targets and outcomes, and carries the list on from compaction to compaction.

    The list takes ``max_tokens`` at most, and no more than an eighth of the window; older operations are counted.
    Where nothing has called a tool at all, ``instead`` makes the text if it can, below a line that says so: mode
    ``lossless`` if it has a state or contracts, else its own replacement, a model's summary. If none can, or
    it failed, or is None, a line and a note say that the list is empty, and why.
    """

    around: blocks.Around = blocks.Around()
    instead: Mode | None = Lossless()
    max_tokens: int = LIST_TOKENS

    name: ClassVar[str] = INTENT
    needs_model: ClassVar[bool] = False

    async def make(self, material: Material, asker: Asker | None) -> Made:
        """Return the list, behind the text of earlier compactions of other modes. O(messages that leave)."""
        if has_operations(material):
            return listed(material, self.around, self.max_tokens)
        instead, why = self.instead, NO_CALLS
        if isinstance(instead, Lossless) and not (instead.state or instead.contracts):
            instead = instead.instead
        if instead is not None and (asker is not None or not instead.needs_model):
            try:
                return await in_place_of(self.name, why, material, partial(instead.make, asker=asker))
            except (SummaryFailed, ModelError, BudgetExceeded) as error:
                if isinstance(error, ModelAborted) or isinstance(error.__cause__, ModelAborted):
                    raise
                why += f", and {instead.name!r} failed: {quoted(str(error), _INTENT_REASON_CHARS)}"
        else:
            why += NOT_ASKED
        return listed_none(material, self.around, why)


# ---------------------------------------------------------------------------------------------------------------------
# Having a mode make its text, by the settings about models that must not be asked, and that fail.


async def make_text(mode: Mode, material: Material, asker: Asker | None) -> Made:
    """Return the text of a mode.

    Where ``settings.prefer_deterministic`` says that no model is to be asked, or a model has failed and
    ``settings.on_failure`` is ``fallback``, ``intent`` makes the text in its place, and a line and a note say so.
    With ``mark``, the text of a failure names the turns that are missing. Raises `SummaryFailed`, always if the call
    was ended. Details that earlier compactions carry on stay, even if the mode does not know them.
    """
    text = await _text(mode, material, asker)
    carried = noted(material.earlier, [name for name in CARRIED if name not in text.details])
    return replace(text, details={**text.details, **carried}) if carried else text


async def _text(mode: Mode, material: Material, asker: Asker | None) -> Made:
    around = getattr(mode, "around", None)
    evidence = getattr(mode, "lossless", None)
    instead = Intent(
        around if isinstance(around, blocks.Around) else blocks.Around(),
        evidence if isinstance(evidence, Lossless) else Lossless(),
    )
    by_intent = partial(instead.make, asker=None)
    if material.settings.prefer_deterministic:
        if mode.needs_model:
            return await in_place_of(mode.name, "no model was to be asked", material, by_intent)
        # A mode that can do without a model may ask one all the same, in place of having nothing to say.
        asker = None
    try:
        return await _made(mode, material, asker)
    except SummaryFailed as error:
        # Whoever ended the call wants no compaction: another text in its place would be one.
        if material.settings.on_failure == "raise" or isinstance(error.__cause__, ModelAborted):
            raise
        if material.settings.on_failure == "fallback":
            chars = _REASON_CHARS if material.room is None else max(min(_REASON_CHARS, material.room // 2), 100)
            why = f"it failed: {quoted(error.reason, chars)}"
            return await in_place_of(mode.name, why, material, by_intent)
        return _marked(mode, material, error.reason, instead.around)


async def _made(mode: Mode, material: Material, asker: Asker | None) -> Made:
    """Return the text of a mode. One of somebody else's may let the model's error through: it failed all the same."""
    try:
        return await mode.make(material, asker)
    except (ModelError, BudgetExceeded) as error:
        raise SummaryFailed(mode.name, str(error) or type(error).__name__) from error


def _marked(mode: Mode, material: Material, reason: str, around: blocks.Around) -> Made:
    """Return a text that names the missing turns, behind the text of earlier compactions."""
    material = blocks.words_set_aside(material)
    earlier = shortened(material, earlier_text(material))
    first = turns_before(material.earlier) + 1
    marker = "\n".join(
        [
            covers(material, first, "COMPACTION FAILED"),
            "",
            f"Error: {quoted(reason, _REASON_CHARS)}",
            "",
            "- These turns are not summarised here, and are no longer in the context.",
            f"- They are stored: {entries_named(material)}.",
            "- What came after them follows word for word; read the state from disk before relying on what they said.",
        ]
    )
    own = "\n\n".join(filter(None, [earlier, marker]))
    note = f"mode {mode.name!r} failed: {reason}; a marker stands for what it did not summarise"
    return dressed(material, mode.name, own, around=around, details={"failed": reason}, notes=(note,))


# ---------------------------------------------------------------------------------------------------------------------
# Requests to a provider that compacts: all that leaves, or as much as its window takes behind its last compaction.

_ANSWERS_SHARE = 4
"""An answer may have a quarter of the window: a small one would have no room for the conversation otherwise."""
_UNREADABLE = "(what happened before)"


class Parts:
    """A provider's compaction in the making: the request to make next, until everything has been sent.

    No request separates a call from its results. After one that is more than the window, the next is smaller.
    """

    def __init__(self, material: Material, max_tokens: int) -> None:
        self.made: kinds.Native | None = None
        self.taken = 0
        self._material = material
        self._window = material.summarizer_window
        self._most = min(max_tokens, material.summarizer_output or max_tokens)
        self._messages = cast("tuple[JsonObject, ...]", material.messages)
        self._ends = material.content.pairing.whole_cuts(range(1, len(self._messages) + 1))
        self._tokens = [0, *accumulate(map(material.count, self._messages))]
        self._before = _earlier(material)
        self._at = self._end = 0

    @property
    def is_done(self) -> bool:
        """Whether everything was sent, or an answer had no compaction."""
        return not self._ends or (self.taken > 0 and self.made is None)

    def request(self) -> ModelRequest:
        """Return the request to make next: as many messages as fit, at least one whole exchange."""
        limit = self._most if self._window is None else min(self._most, max(self._window // _ANSWERS_SHARE, 1))
        room = None if self._window is None else self._window - limit - self._around()
        fitting = [end for end in self._ends if room is None or self._tokens[end] - self._tokens[self._at] <= room]
        self._end = (fitting or self._ends[:1])[-1]
        return ModelRequest(
            (*self._before, *self._messages[self._at : self._end]),
            self._material.system or None,
            self._material.tools,
            max_tokens=limit,
            purpose="compaction",
            compacts=True,
        )

    def take(self, reply: ModelReply) -> None:
        """Take the answer to the last request in."""
        self.made = native_of(reply)
        self.taken += 1
        self._at = self._end
        self._ends = [end for end in self._ends if end > self._at]
        if self.made is not None:
            texts = [text for part in self.made.content if isinstance(text := part.get("content"), str)]
            self._before = [_standing_for("\n\n".join(texts).strip() or _UNREADABLE, self.made)]

    def make_smaller(self, error: ModelError) -> bool:
        """Return whether the next request is smaller than the last one, which failed; it is after an overflow.

        A single exchange cannot be made smaller.
        """
        if not isinstance(error, ContextOverflow) or self._end <= self._ends[0]:
            return False
        sent = self._around() + self._tokens[self._end] - self._tokens[self._at]
        window = in_our_tokens(error, sent)
        self._window = window if window is not None and (self._window is None or window < self._window) else sent // 2
        return True

    def _around(self) -> int:
        """Return the tokens that go with the messages: those of the system, the tools and the earlier compaction."""
        material = self._material
        texts = [material.system or "", *(encode_json(tool, "tools")[0] for tool in material.tools)]
        return sum(map(material.count, self._before)) + sum(material.tokens_of(text) for text in texts if text)


def native_of(reply: ModelReply) -> kinds.Native | None:
    """Return the compaction that a reply has, with whose it is; None for a reply of anything else."""
    message = reply.messages[-1]
    content, provider = message.get("content"), message.get("provider")
    listed = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    if not isinstance(provider, str) or not (parts := kinds.compaction_in(provider, listed)):
        return None
    return kinds.native_in({**message, "content": [*parts]})


def _earlier(material: Material) -> list[JsonObject]:
    """Return the message that stands for earlier compactions, in both forms if there are two."""
    if material.previous_summary is None:
        return []
    native = kinds.native_in((material.earlier or {}).get(kinds.NATIVE))
    return [_standing_for(summary_text(kinds.COMPACTION, material.previous_summary), native)]


def _standing_for(text: str, native: kinds.Native | None) -> JsonObject:
    content: list[JsonValue] = [{"type": "text", "text": text}]
    own: JsonObject = {} if native is None else {kinds.NATIVE: native.json}
    return {"role": "user", "content": content, **own}


# ---------------------------------------------------------------------------------------------------------------------
# Mode ``native``: the provider compacts the conversation itself, and takes its compaction back.
#
# Its compaction is stored as it came, with whose it is, beside a text for every other provider and account.


class NativeMode(Frozen):
    """Asks the provider of the session's model to compact the messages that leave.

    The text beside it is the provider's own if it can be read (Anthropic's), else that of ``fallback``, which should
    ask no model. The provider is asked for nothing in particular: its own prompt counts, and instructions of the
    caller's are noted as left out. The system prompt and the tools of the session's requests go with it, if they are
    known. Messages above its window are sent in parts, cut at whole exchanges, each behind the compaction of those
    before.
    """

    fallback: Mode = Intent()
    around: blocks.Around = blocks.Around()
    max_tokens: int = 16_000

    name: ClassVar[str] = kinds.NATIVE
    needs_model: ClassVar[bool] = True

    async def make(self, material: Material, asker: Asker | None) -> Made:
        """Return the text, with the provider's compaction in its details. One call, or one for each part.

        Raises `SummaryFailed` where a call fails, the provider cannot do it, or its answer has no compaction.
        """
        if asker is None:
            raise InvalidArgument(f"mode {self.name!r} needs a model; give one, or choose a mode that needs none")
        parts = Parts(material, self.max_tokens)
        while not parts.is_done:
            try:
                parts.take(await asker.ask(parts.request()))
            except ModelError as error:
                if not parts.make_smaller(error):
                    raise SummaryFailed(self.name, str(error) or type(error).__name__) from error
        native = parts.made
        if native is None:
            raise SummaryFailed(self.name, "the model's answer has no compaction; choose another mode for it")
        text = await self._text(material, native)
        notes = text.notes
        if parts.taken > 1:
            notes = (*notes, f"what left is more than a window, and was compacted in {parts.taken} parts")
        if material.instructions:
            notes = (*notes, f"mode {self.name!r} gives the provider no instructions; what was asked for is left out")
        own: JsonObject = {**native.json, kinds.COVERS: len(text.text)}
        return Made(text.text, self.name, {**text.details, kinds.NATIVE: own}, notes)

    async def _text(self, material: Material, native: kinds.Native) -> Made:
        contents = [part.get("content") for part in native.content if part.get("type") == kinds.COMPACTION_PART]
        text = without_tags(
            "\n\n".join(content for content in contents if isinstance(content, str) and content.strip())
        )
        if not text:
            return await self.fallback.make(material, None)
        return dressed(material, self.name, text, around=self.around)


# ---------------------------------------------------------------------------------------------------------------------
# Mode ``window``: the messages that leave the context are not summarized, and nothing stands in their place.

DROPPED = "dropped"
"""The detail that says how many messages have left, and which were the first and the last."""
_LINES = re.compile(r"\n*\[[0-9]+ earlier messages? (?:is|are) not shown here: entries [^\n]*\]")


class Window(Frozen):
    """Drops the beginning of the context: the end stays that takes ``keep_recent_tokens``, characters / 4 each.

    Earlier summaries stay. In the place of a range, or of a branch, a line says which messages it had.
    Of ``around``, calls that an approval waits for stay in the context; nothing else is used.
    """

    around: blocks.Around = blocks.Around()

    name: ClassVar[str] = "window"
    needs_model: ClassVar[bool] = False

    async def make(self, material: Material, asker: Asker | None) -> Made:
        """Return the earlier summary, "" if there is none. Its details name the messages that left. O(messages)."""
        material = blocks.words_set_aside(material, only_carried=True)
        before = (material.earlier or {}).get(DROPPED)
        count, first = (before.get("messages"), before.get("firstEntryId")) if isinstance(before, Mapping) else (0, "")
        dropped: JsonObject = {
            "messages": len(material.leaving) + (count if isinstance(count, int) else 0),
            "firstEntryId": first if isinstance(first, str) and first else material.leaving[0].entry_id,
            "lastEntryId": material.leaving[-1].entry_id,
        }
        own = earlier_text(material)
        if isinstance(before, Mapping):
            own = own.removesuffix(_line(before)).rstrip("\n")
        is_beginning = bool(material.planned.first_kept_entry_id) and not isinstance(material.planned, RangePlan)
        if is_beginning:
            # A line that stood in the place of a range that leaves now.
            own = _LINES.sub("", own).lstrip("\n")
        own = shortened(material, own)
        is_silent = is_beginning and not own
        own = own if is_beginning else "\n\n".join(filter(None, [own, _line(dropped)]))
        left = material.beside(own).beside(blocks.shown_file_lists(material)[0])
        words = blocks.carried_words(left)
        text = dressed(
            material,
            self.name,
            own,
            after=[words, blocks.carried_facts(left.beside(words.text))],
            details={**noted(material.earlier, ["lastHandoff"]), DROPPED: dropped},
        )
        return replace(text, text="") if is_silent else text


def _line(dropped: Mapping[str, object]) -> str:
    first, last = (shown_id(str(dropped.get(name))) for name in ("firstEntryId", "lastEntryId"))
    subject = (
        "1 earlier message is" if dropped.get("messages") == 1 else f"{dropped.get('messages')} earlier messages are"
    )
    return f"[{subject} not shown here: entries {first} to {last}]"


# ---------------------------------------------------------------------------------------------------------------------
# The modes by name: ours, and those that other packages bring through an entry point.

GROUP = "flue_py.compaction_modes"
"""The group of entry points: each is a function without parameters that returns a `Mode`."""

_OURS: Mapping[str, Callable[[], Mode]] = {
    "llm": Llm,
    "intent": Intent,
    "lossless": Lossless,
    "hybrid": Hybrid,
    "window": Window,
    "native": NativeMode,
}


def mode_names() -> list[str]:
    """Return the names of all modes that can be chosen here: ours, then those of installed packages, sorted."""
    return [*_OURS, *sorted({point.name for point in entry_points(group=GROUP)} - _OURS.keys())]


def find_mode(mode: str | Mode, field: str = "mode") -> Mode:
    """Return a mode by name; a mode itself is returned as it is. Raises `InvalidArgument` for a name of none.

    Installed packages are asked only for a name that is not ours. An error calls the value by ``field``.
    """
    if not isinstance(mode, str):
        if not callable(getattr(mode, "make", None)) or not isinstance(getattr(mode, "name", None), str):
            raise InvalidArgument(f"{field}: {shown_value(mode)} is neither the name of a mode nor a mode")
        return mode
    if mode in _OURS:
        return _OURS[mode]()
    installed = next((point for point in entry_points(group=GROUP) if point.name == mode), None)
    if installed is None:
        raise InvalidArgument(f"{field}: there is no {shown_value(mode)}; choose one of {', '.join(mode_names())}")
    loaded: Mode = installed.load()()
    return loaded


# ---------------------------------------------------------------------------------------------------------------------
# Checks of a compaction before anything is done, at the start of a program.


def checked_mode(
    mode: str | Mode | None, settings: CompactionSettings | None, *, has_model: bool | None = None
) -> Mode:
    """Return the mode that settings, or ``mode`` in place of theirs, lead to.

    With ``has_model``, also whether that can be without a model. Raises `InvalidArgument` whose message begins with the
    path of the field: ``settings.mode``, ``mode``, ``model``.
    """
    settings = checked_settings(settings)
    checked = find_mode(settings.mode, "settings.mode") if mode is None else find_mode(mode)
    if has_model is False and checked.needs_model and not settings.prefer_deterministic:
        raise InvalidArgument(
            f"model: mode {checked.name!r} asks a model; give one, or choose a mode that needs none, "
            "or settings.prefer_deterministic"
        )
    return checked


# ---------------------------------------------------------------------------------------------------------------------
# Pinned entries that come back with a compaction, since they were summarized before they were pinned.


class Hidden:
    """The pinned entries of a path that its context does not show, each with its exchange.

    ``path`` goes from the root to the leaf, ``latest`` is the compaction in effect there, ``context`` has its items.
    """

    def __init__(
        self, path: Sequence[Entry], latest: Entry | None, pins: Collection[str], context: Iterable[ContextEntry]
    ) -> None:
        self._path = path
        self._places = {entry.id: at for at, entry in enumerate(path)}
        self._latest = latest
        self._pins = pins
        self._shown = {item.entry_id for item in context}

    @cached_property
    def items(self) -> tuple[ContextEntry, ...]:
        """These as items of a context, in the order of the path. O(path)."""
        named = [entry for entry in self.named(self._pins).values() if entry.kind in kinds.SHOWN_KINDS]
        return self._items({member for entry in named for member in self.group_of(entry.id)})

    def coming_back(self, new: NewEntry) -> tuple[ContextEntry, ...]:
        """Return those that a compaction appended to the path brings back beside its summary. O(path)."""
        latest = None if self._latest is None else (self._latest.id, self._latest.fields)
        let_go = pinned_ids(latest[1]).difference(self._pins) if latest is not None else ()
        marks = {**dict.fromkeys(self._pins, "on"), **dict.fromkeys(let_go, "off")}
        layout = keeping(new, marks, latest, self, len(self._path))
        return self._items(pinned_ids(decode_object(layout.payload)))

    def _items(self, ids: Collection[str]) -> tuple[ContextEntry, ...]:
        hidden = [self._left.get(entry.id) for entry in self._path if entry.id in ids and entry.id not in self._shown]
        return tuple(item for item in hidden if item is not None)

    @cached_property
    def _left(self) -> dict[str, ContextEntry]:
        """The rest of the path after exclusions, by entry; no exclusion names a summary."""
        summaries = (
            ContextEntry(entry) for entry in self._path if entry.kind == kinds.COMPACTION and not is_silent(entry)
        )
        return {item.entry_id: item for item in (*project_kept(self._path), *summaries)}

    @cached_property
    def _pairing(self) -> Pairing:
        return Pairing(map(exchange_of, self._path))

    def named(self, ids: Iterable[str], /) -> dict[str, Entry]:
        """Return those of some entries that are on the path, by id, root first."""
        places = sorted(self._places[entry_id] for entry_id in set(ids) if entry_id in self._places)
        return {self._path[at].id: self._path[at] for at in places}

    def group_of(self, entry_id: str, /) -> list[str]:
        """Return the entries that are pinned together with an entry."""
        at = self._places[entry_id]
        group = self._pairing.group_of(at)
        return [self._path[place].id for place in ((at,) if group is None else group.members)]


# ---------------------------------------------------------------------------------------------------------------------
# Task sessions that run and approvals that are waited for: which calls of tools wait for them, and for whom.


def running_tasks(links: Sequence[TaskLink]) -> tuple[str, ...]:
    """Return each task session that runs as its id and a few words, in the order they were started."""
    return tuple(f"{link.task_id}: session {link.child_id}, running" for link in links if link.status == "running")


def waited_for(mode: Mode) -> tuple[str, ...]:
    """Return the tasks and approvals that the caller named for a mode, each as its id and a few words."""
    around = getattr(mode, "around", None)
    if not isinstance(around, blocks.Around):
        return ()
    return (*around.named_tasks, *around.named_approvals)


def live_callers(
    items: Sequence[ContextItem], links: Sequence[TaskLink], waiting: Sequence[str] = ()
) -> frozenset[str]:
    """Return the entries whose calls of tools a running task session is to answer, or whose id something waits for.

    These are messages with a call that has no result, below which the task began, or one of whose calls has the task's
    id, or that of one of ``waiting``, which begin with it. Once the task has ended (`Session.tasks.end`), or nobody
    names the call any more, it is no longer among them: a call without a result does not hold a compaction up for ever.
    O(messages) where anything is waited for, else O(links).
    """
    running = [link for link in links if link.status == "running"]
    if not running and not waiting:
        return frozenset()
    started, ids = {link.entry_id for link in running}, {link.task_id for link in running}
    pairing = Messages(items).pairing(range(len(items)))
    callers = set()
    for call, results in pairing.results.items():
        if results:
            continue
        caller = items[call.at].entry_id
        named = {entry.id for entry in pairing.results_of(call.at)}
        if caller in started or ids & named or any(_names(text, entry) for text in waiting for entry in named):
            callers.add(caller)
    return frozenset(callers)


def _names(text: str, call_id: str) -> bool:
    """Return whether a task or an approval is that of a call: its id, and perhaps a few words."""
    return text == call_id or text.startswith((f"{call_id}:", f"{call_id} "))
