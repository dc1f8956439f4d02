"""The request of one agent: its messages, edits by the provider, differences from the last one, and attempts to fit."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain, compress, zip_longest
from types import TracebackType
from typing import ClassVar

from msgspec import field, to_builtins
from msgspec.structs import replace

from flue_py.context.overflows import overflow_of
from flue_py.context.pipeline import (
    ContextChange,
    ContextReport,
    EpochRules,
    Item,
    Piped,
    Step,
    StepReport,
    View,
    run_steps,
    tool_uses,
    with_text,
)
from flue_py.context.settings import (
    AgentContext,
    ClearToolUses,
    ContextSettings,
    Fitting,
    ProviderEditing,
    context_settings,
)
from flue_py.context.sources import NOTHING_GATHERED, GatheredContext
from flue_py.context.steps import STAGE_CHARS, adaptive_trim, steps_of
from flue_py.context.tokens import ENTRY_COUNTS, ModelCounter, counter_for, texts_of
from flue_py.core import kinds
from flue_py.core.context import ContextEntry
from flue_py.core.entries import Entry
from flue_py.core.json import Frozen, JsonObject, JsonValue, NamedTuple, Selective, encode_json, to_json, without
from flue_py.core.model import Model, ModelReply, ModelRequest
from flue_py.errors import ContextOverflow, InvalidArgument, shown
from flue_py.providers.anthropic import applied_edits
from flue_py.providers.base import Broken, Leftovers, Repair, is_part, listed
from flue_py.providers.lists import Said, said_of
from flue_py.providers.request import (
    CacheMarks,
    begins_with,
    bound_signatures,
    prefix_digest,
    wire_request,
    without_stale_reasoning,
)
from flue_py.system import Lock

# ---------------------------------------------------------------------------------------------------------------------
# The request that an answer with signed reasoning was given to, if no session knows it.
#
# A provider binds reasoning to the messages before it. A hook of a framework, which is given a list of messages before
# each request, finds in the next list the answer to the last request.

# It stands before all messages, so that it is plain whether the first of them was left out.
_BEFORE: JsonObject = {"role": "system", "content": ""}


class SentRequests:
    """The requests that were sent, by the messages they were made of, and the answers that were given to them.

    It may be used from any thread, and forgets the oldest beyond ``most`` of each. Reasoning that it does not know is
    sent.
    """

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._lock = Lock()
        self._requests: dict[str, str] = {}
        self._answers: dict[str, str] = {}

    def without_stale(self, messages_sent: Sequence[JsonObject], items: Sequence[Item]) -> list[Item]:
        """Return the items of a request, made of the messages that were given, without stale reasoning.

        That is reasoning of an answer that was given to a request with other messages. O(size).
        """
        read = [_json(message) for message in messages_sent]
        with self._lock:
            beginning = self._learned(messages_sent, read)
            bound = bound_signatures(
                Said({**messages_sent[item.place], kinds.PRODUCED_UNDER: digest})
                for item in items
                if item.place is not None and item.is_answer and (digest := self._answered(messages_sent[item.place]))
            )
        messages = [_BEFORE, *(item.message for item in items)]
        rest = without_stale_reasoning(None, messages, None, (), bound, Leftovers())
        left = [*items]
        if bound:
            left = [
                item if (cleaned := rest.messages[place]) is item.message else item.replaced(cleaned)
                for item, before, place in zip(items, rest.places, rest.places[1:], strict=False)
                if place > before
            ]
        # Some frameworks put the messages that were sent in the place of their own.
        chain = blake2b(digest_size=16)
        for item in left:
            _add(chain, read[item.place] if item.how is None and item.place is not None else _json(item.message))
        with self._lock:
            self._remember(self._requests, beginning, rest.digest)
            self._remember(self._requests, chain.hexdigest(), rest.digest)
        return left

    def _learned(self, messages_sent: Sequence[JsonObject], read: Sequence[bytes]) -> str:
        """Note which requests the answers were given to, and return the keys of these messages."""
        chain = blake2b(digest_size=16)
        begun: str | None = None
        was_answer = False
        for message, text in zip(messages_sent, read, strict=True):
            is_answer = message.get("role") == kinds.ASSISTANT
            if is_answer:
                begun = self._requests.get(chain.hexdigest(), begun if was_answer else None)
                if begun is not None and (name := _name(message)) is not None:
                    self._remember(self._answers, name, self._answers.get(name, begun))
            was_answer = is_answer
            _add(chain, text)
        return chain.hexdigest()

    def _answered(self, message: JsonObject) -> str | None:
        name = _name(message)
        return None if name is None else self._answers.get(name)

    def _remember(self, digests: dict[str, str], name: str, value: str) -> None:
        digests.pop(name, None)
        digests[name] = value
        while len(digests) > self._most:
            del digests[next(iter(digests))]


def _add(chain: blake2b, text: bytes) -> None:
    """Add a message to the digest of those before it."""
    chain.update(b"%d:" % len(text))
    chain.update(text)


def _name(message: JsonObject) -> str | None:
    """Return the key of an answer with signed reasoning."""
    signatures = "\n".join(kinds.signatures_in(message))
    return blake2b(signatures.encode(errors="replace"), digest_size=16).hexdigest() if signatures else None


def _json(message: JsonObject) -> bytes:
    """Return the visible part of a message, in which text is the same as a string and as a part."""
    visible = kinds.seen_by_model(message)
    content = visible.get("content")
    if isinstance(content, list) and all(map(_is_text, content)):
        visible["content"] = "\n".join(str(part["text"]) for part in content if isinstance(part, dict))
    return encode_json(visible, "message")[0].encode()


def _is_text(part: JsonValue) -> bool:
    return isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] == "text"


# ---------------------------------------------------------------------------------------------------------------------
# Edits that a provider is asked to make itself, and those that it is expected to make.
#
# The messages go to it whole: it clears on its own side, by rules of its own. The effect is estimated before the
# answer comes.

STEP = "provider"
"""The name of the step that a report has for the edits of the provider."""

CONTEXT_MANAGEMENT = "context-management-2025-06-27"
"""The beta of Anthropic's that a request with edits has to name."""

_FIELD = "context_management"
_CLEARED = "[cleared]"
"""Stands for the note that the provider puts in place of a result: its words are its own."""


class Editing(Frozen):
    """The edits that a request asks of its provider: the fields beside its messages, and the betas that it names."""

    extra: JsonObject
    betas: tuple[str, ...]


NO_EDITING = Editing({}, ())


def editing_of(target: kinds.Shape | None, editing: ProviderEditing | None) -> Editing:
    """Return the edits of the settings for a request of a target; nothing if the provider cannot make them."""
    if editing is None:
        return NO_EDITING
    if target == "anthropic":
        # The API refuses a list in which the reasoning does not come first.
        edits: list[JsonValue] = []
        if editing.keep_thinking_turns:
            turns: JsonObject = {"type": "thinking_turns", "value": editing.keep_thinking_turns}
            edits.append({"type": "clear_thinking_20251015", "keep": turns})
        if editing.clear_tool_uses is not None:
            edits.append(_clear_tool_uses(editing.clear_tool_uses))
        return Editing({_FIELD: {"edits": edits}}, (CONTEXT_MANAGEMENT,)) if edits else NO_EDITING
    if target == "openai-responses" and editing.compact_tokens:
        return Editing({_FIELD: [{"type": "compaction", "compact_threshold": editing.compact_tokens}]}, ())
    return NO_EDITING


def _clear_tool_uses(editing: ClearToolUses) -> JsonObject:
    edit: JsonObject = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": editing.trigger_tokens},
        "keep": {"type": "tool_uses", "value": editing.keep},
    }
    if editing.clear_at_least:
        edit["clear_at_least"] = {"type": "input_tokens", "value": editing.clear_at_least}
    if editing.exclude_tools:
        edit["exclude_tools"] = [*editing.exclude_tools]
    if editing.clear_tool_inputs:
        edit["clear_tool_inputs"] = True
    return edit


def expected_editing(
    target: kinds.Shape | None, editing: ProviderEditing | None, items: Sequence[Item], view: View, tokens_beside: int
) -> StepReport | None:
    """Return the expected edits of the provider, as a step of its own; None if it is not asked for any.

    ``tokens_beside`` are those of system and tools. The extent of OpenAI's compaction is not known before: that
    it will is told as an event of ``view``. O(size).
    """
    if editing is None or not editing_of(target, editing).extra:
        return None
    _tell_applied(items, view)
    tokens = tokens_beside + sum(map(view.tokens, items))
    changes: list[ContextChange] = []
    if target == "anthropic":
        edited = dict(_without_thinking(items, editing.keep_thinking_turns))
        tokens -= sum(view.tokens(items[at]) - view.tokens(item) for at, item in edited.items())
        edited |= _without_results([edited.get(at, item) for at, item in enumerate(items)], editing, view, tokens)
        sizes = [(items[at].entry_id, view.tokens(items[at]), view.tokens(item)) for at, item in sorted(edited.items())]
        changes = [ContextChange(STEP, entry_id, "replaced", was, now) for entry_id, was, now in sizes if now < was]
    elif tokens > editing.compact_tokens:
        words = f"about {tokens:,} tokens are more than {editing.compact_tokens:,}: the provider compacts them itself"
        view.tell("provider_compaction", words)
    return StepReport(STEP, "the provider is asked to clear it itself", tuple(changes))


def _tell_applied(items: Sequence[Item], view: View) -> None:
    """Tell which parts the provider has cleared for its last answer."""
    last = next((item for item in reversed(items) if item.is_answer), None)
    if last is not None:
        for edit in applied_edits(last.message) or ():
            view.tell("provider_cleared", f"for the answer {last.entry_id} {edit}")


def _without_thinking(items: Sequence[Item], keep: int) -> Iterator[tuple[int, Item]]:
    """Yield the answers that lose their reasoning: all that have any, but for the so many newest; none for 0."""
    answers = [at for at, item in enumerate(items) if item.is_answer and _kept_parts(item) is not None]
    for at in answers[:-keep] if keep else ():
        parts = _kept_parts(items[at])
        yield at, items[at].replaced({**items[at].message, "content": parts or []})


def _kept_parts(item: Item) -> list[JsonValue] | None:
    """Return the parts of an answer beside its reasoning; None if it has no reasoning."""
    parts = listed(item.message.get("content"))
    rest = [part for part in parts if not is_part(part, "thinking")]
    return rest if len(rest) < len(parts) else None


def _without_results(items: Sequence[Item], editing: ProviderEditing, view: View, tokens: int) -> dict[int, Item]:
    """Return the rest of results, and calls, that are cleared, by place."""
    rule = editing.clear_tool_uses
    if rule is None or tokens <= rule.trigger_tokens:
        return {}
    uses = [use for use in tool_uses(items) if use.name not in rule.exclude_tools]
    edited: dict[int, Item] = {}
    for use in uses[: max(len(uses) - rule.keep, 0)]:
        for at in use.results:
            edited[at] = items[at].replaced(with_text(items[at].message, _CLEARED))
        if rule.clear_tool_inputs:
            caller = edited.get(use.call.at, items[use.call.at])
            edited[use.call.at] = caller.replaced(_without_input(caller.message, use.call.part))
    freed = sum(view.tokens(items[at]) - view.tokens(item) for at, item in edited.items())
    return edited if freed >= rule.clear_at_least else {}


def _without_input(message: JsonObject, part: int) -> JsonObject:
    parts = [*listed(message.get("content"))]
    called = parts[part]
    parts[part] = {**called, "arguments": {}} if isinstance(called, dict) else called
    return {**message, "content": parts}


# ---------------------------------------------------------------------------------------------------------------------
# The first difference between a request and the one before it, and its cause: a provider's cache is lost by it.


class PrefixBreak(Frozen, rename="camel"):
    """The first thing in a request that is not as it was in an earlier one.

    ``by`` is the cause: ``target``, ``tools``, ``system``, the name of a step, ``compaction``, ``context``
    (the session has it no longer, or in another place) or ``repair``. ``entry_id`` is the entry behind it, None where
    there is none. ``why`` says it in words.
    """

    by: str
    entry_id: str | None
    why: str

    def __str__(self) -> str:
        return f"{self.entry_id or 'the request'}: {self.by}, {self.why}"


def prefix_break(before: ContextRequest, after: ContextRequest) -> PrefixBreak | None:
    """Return where a request stops beginning with the bytes of an earlier one; None if it has all of them. O(size)."""
    if before.target != after.target:
        return PrefixBreak("target", None, f"the request is for {after.target}, and was for {before.target}")
    if begins_with(after.target, after.messages, after.system, after.tools, before.prefix_digest):
        return None
    if to_json(before.tools) != to_json(after.tools):
        return PrefixBreak("tools", None, "the tools are others")
    is_system = (before.system, _leading(before)) != (after.system, _leading(after))
    return _of_items(before, after, only_system=is_system) or (
        PrefixBreak("system", None, "what the system says is other text") if is_system else _of_repairs(before, after)
    )


def _leading(request: ContextRequest) -> Sequence[JsonValue]:
    """Return the messages of the system that stand first."""
    messages: Sequence[JsonObject] = request.messages
    end = next((at for at, message in enumerate(messages) if message.get("role") not in kinds.SYSTEM), len(messages))
    return messages[:end]


def _of_items(before: ContextRequest, after: ContextRequest, *, only_system: bool) -> PrefixBreak | None:
    items = [item for item in before.items if not only_system or item.is_system]
    others = [item for item in after.items if not only_system or item.is_system]
    # A later message may be of the system: it goes to the front of some requests.
    for old, new in zip_longest(items, others) if only_system else zip_longest(items, others[: len(items)]):
        if old is None or new is None or old.entry_id != new.entry_id or old.message != new.message:
            if only_system and old is None and new is not None:
                return PrefixBreak("system", new.entry_id, "what the system has said since stands before all else")
            return _between(old, new, before, after)
    return None


def _between(old: Item | None, new: Item | None, before: ContextRequest, after: ContextRequest) -> PrefixBreak:
    entry_id = next((item.entry_id for item in (old, new) if item is not None and item.entry_id), None)
    change = _last(after.report, old) or _last(after.report, new)
    if change is not None:
        return PrefixBreak(change.step, entry_id, f"{change.how} it ({_reason(after.report, change.step)})")
    was = _last(before.report, old) or _last(before.report, new)
    if was is not None:
        return PrefixBreak(was.step, entry_id, f"{was.how} it before, and no longer does")
    if new is not None and new.is_summary:
        return PrefixBreak("compaction", new.entry_id, "a summary stands for what was there")
    if (old is not None and _is_repaired(old, after)) or (new is not None and _is_repaired(new, before)):
        return _of_repairs(before, after)
    return PrefixBreak("context", entry_id, "the context is another one from there on")


def _last(report: ContextReport, item: Item | None) -> ContextChange | None:
    """Return the last change of a message, by its entry; one that a step added is found by that."""
    if item is None:
        return None
    matching = [
        change
        for change in report.changes
        if change.step != STEP
        and change.entry_id == item.entry_id
        and (change.how == "added") == (item.entry_id is None)
    ]
    return matching[-1] if matching else None


def _reason(report: ContextReport, step: str) -> str:
    return next(step_report.reason for step_report in report.steps if step_report.name == step)


def _is_repaired(item: Item, request: ContextRequest) -> bool:
    return any(repair.entry_id == item.entry_id for repair in request.repairs)


def _of_repairs(before: ContextRequest, after: ContextRequest) -> PrefixBreak:
    ids = {item.entry_id for item in before.items}
    for repair in after.repairs:
        if repair not in before.repairs and repair.entry_id in ids:
            return PrefixBreak("repair", repair.entry_id, repair.what)
    for repair in before.repairs:
        if repair not in after.repairs:
            return PrefixBreak("repair", repair.entry_id, f"no longer: {repair.what}")
    return PrefixBreak("repair", None, "what came since is joined with what was there")


# ---------------------------------------------------------------------------------------------------------------------
# The request of one agent: the context, through the steps of its settings, as a provider takes it.


_FIELDS = {"openai-responses": ("instructions", "input"), "gemini": ("systemInstruction", "contents")}
"""The names of the system prompt and the messages of a provider, if not ``system`` and ``messages``."""


class ContextRequest(Selective):
    """The request of one agent of a session.

    ``messages`` are as the target takes them, or ours if that is None; ``system`` is the prompt beside them, None if
    there is none or it stands among the messages. ``report`` has the changes by the steps of the settings; ``repairs``
    say which parts were left out or changed after that, so that the provider takes it, with the entry of each.
    ``broken`` are the rules that the request breaks all the same, () if it breaks none that is known. ``tools`` are
    those that were given, marked where the settings ask for it, and ``tokens_beside`` is how many tokens they take
    together with the ``system`` that was given, and ``tokens_repaired`` how many the repairs leave out of the request,
    without those that they put into it. ``items`` are the messages of ours that all of it was made of; without a
    target, those of ``messages``, one for each. ``extra`` are further fields of the request by which the provider is
    asked to leave something out itself, and ``betas`` are those that it has to name for that.
    """

    _not_compared: ClassVar[tuple[str, ...]] = ("items",)
    _not_shown: ClassVar[tuple[str, ...]] = ("items",)

    target: kinds.Shape | None
    messages: list[JsonObject]
    system: JsonValue
    report: ContextReport
    repairs: tuple[Repair, ...]
    broken: tuple[Broken, ...]
    tools: tuple[JsonObject, ...] = ()
    tokens_beside: int = 0
    items: tuple[Item, ...] = ()
    extra: JsonObject = field(default_factory=dict)
    betas: tuple[str, ...] = ()
    tokens_repaired: int = 0

    @property
    def body(self) -> JsonObject:
        """The request as the provider takes it, by its own names, but for the model."""
        prompt_field, messages_field = _FIELDS.get(self.target or "", ("system", "messages"))
        system: JsonObject = {} if self.system is None else {prompt_field: self.system}
        tools: JsonObject = {"tools": [*self.tools]} if self.tools else {}
        return {**system, **tools, messages_field: [*self.messages], **self.extra}

    def break_since(self, before: ContextRequest) -> PrefixBreak | None:
        """Return the first difference from an earlier request of the session, and its cause.

        None if this one begins with all bytes of that one, so that a provider can read them from its cache. Raises
        `InvalidArgument` for a value that is no request. O(size).
        """
        if not isinstance(before, ContextRequest):
            raise InvalidArgument(f"before: {shown(before)} is not what session.request returns")
        return prefix_break(before, self)

    @property
    def tokens(self) -> int:
        """How many tokens the request takes, by the counter that the report names: its messages, and the rest.

        Those are of our messages, after the steps and the repairs. How a provider wraps and joins them
        is not known, so that it is an estimate where there are repairs (`is_estimate`).
        """
        return self.tokens_sent + self.tokens_beside

    @property
    def tokens_sent(self) -> int:
        """How many of the `tokens` the messages take."""
        return self.report.tokens_after - self.tokens_repaired

    @property
    def is_estimate(self) -> bool:
        """Whether `tokens` is an estimate: that of the report is, or something was repaired."""
        return self.report.is_estimate or bool(self.repairs)

    @property
    def prefix_digest(self) -> str:
        """The prefix under which the answer is produced: a digest of target, system, tools and messages, as they are
        now.

        It goes with the answer, as ``produced_under`` of `Session.append_message`. O(size).
        """
        return prefix_digest(self.target, self.messages, self.system, self.tools)


def context_request(
    context: Sequence[ContextEntry],
    target: str | None,
    settings: AgentContext,
    counter: ModelCounter,
    *,
    agent: str | None = None,
    steps: Sequence[Step] = (),
    model: str | None = None,
    account: str | None = None,
    system: str | None = None,
    tools: Sequence[JsonObject] = (),
    gathered: GatheredContext = NOTHING_GATHERED,
    rules: EpochRules | None = None,
) -> ContextRequest:
    """Return the request of a target for a context, through the steps of the settings, and ``steps`` after them.

    Without a target the messages are ours, and nothing of them is repaired, but stale reasoning is left out. ``system``
    and ``tools`` are sent beside the messages, ``gathered`` has the texts of the sources of the settings. ``rules`` say
    when an epoch begins, by default the settings alone. ``model`` and ``account`` are as in `wire_request`. Raises
    `InvalidArgument`, and `InvalidEntry` for tools that are not JSON. O(size).
    """
    view = View(agent, counter, addresses=settings.addresses)
    all_steps = [*steps_of(settings, gathered), *steps]
    piped = run_steps(context, all_steps, view, rules=rules or EpochRules(settings.epoch_tokens))
    tokens_beside = ENTRY_COUNTS.tally_texts([*([system] if system else ()), *texts_of(tools)], counter).tokens
    if target is None:
        request = _ours(piped, system, tools, keeps_stale=settings.keep_stale_reasoning)
        freed = _tokens_repaired(request.repairs, counter)
        return replace(request, tokens_beside=tokens_beside, tokens_repaired=freed)
    system_message = [Said({"role": "system", "content": system})] if system else []
    marks = settings.cache_breakpoints
    sent = wire_request(
        target,
        [*system_message, *_said(piped.items)],
        model=model,
        account=account,
        tools=tools,
        keeps_stale_reasoning=settings.keep_stale_reasoning,
        cache_marks=None if marks is None else CacheMarks(marks.count, marks.ttl, piped.report.epoch_end),
    )
    requested_edits = settings.provider_editing
    editing = editing_of(sent.target, requested_edits)
    cleared = expected_editing(sent.target, requested_edits, piped.items, view, tokens_beside)
    return ContextRequest(
        sent.target,
        sent.messages,
        sent.system,
        piped.report if cleared is None else piped.report.with_step(cleared, view.events),
        sent.repairs,
        sent.broken,
        sent.tools,
        tokens_beside,
        tuple(piped.items),
        editing.extra,
        editing.betas,
        _tokens_repaired(sent.repairs, counter),
    )


def _tokens_repaired(repairs: Sequence[Repair], counter: ModelCounter) -> int:
    """Return how many tokens repairs leave out, without those that they put in. O(size of that)."""
    return sum(
        sum(_tokens_of(lost, counter) for lost in repair.lost) - sum(_tokens_of(put, counter) for put in repair.put)
        for repair in repairs
    )


def _tokens_of(texts: JsonObject, counter: ModelCounter) -> int:
    """Return how many tokens a message takes, or a part of one."""
    if "role" in texts:
        return counter.count(texts)
    if texts.get("type") not in ("text", "thinking"):
        return counter.count({"content": [texts]}) - counter.count({"content": []})
    return ENTRY_COUNTS.count_message({"content": [texts]}, counter) - counter.count({"content": []})


def _ours(piped: Piped, system: str | None, tools: Sequence[JsonObject], *, keeps_stale: bool) -> ContextRequest:
    items = piped.items
    messages = [item.message for item in items]
    left = Leftovers()
    if not keeps_stale:
        answers = (item for item in items if item.is_answer)
        bound = bound_signatures(Said(_still_bound(item), entry_id=item.entry_id) for item in answers)
        if bound:
            rest = without_stale_reasoning(None, messages, system, tools, bound, left)
            messages, items = rest.messages, [*compress(items, rest.are_sent)]
    repairs, all_tools = tuple(left.repairs), tuple(tools)
    return ContextRequest(None, messages, system or None, piped.report, repairs, (), all_tools, items=tuple(items))


def _said(items: Sequence[Item]) -> Iterator[Said]:
    for item in items:
        if item.how is None and item.source is not None:
            yield said_of(item.source, item.message)
        else:
            yield Said(_still_bound(item), entry_id=item.entry_id)


def _still_bound(item: Item) -> JsonObject:
    """Return the message that a step made, with the digest under which the answer behind it was produced."""
    is_whole = item.how is None or kinds.PRODUCED_UNDER in item.message
    if is_whole or item.source is None or not item.is_answer:
        return item.message
    digest_stored = item.source.data.get(kinds.PRODUCED_UNDER)
    return item.message if digest_stored is None else {**item.message, kinds.PRODUCED_UNDER: digest_stored}


# ---------------------------------------------------------------------------------------------------------------------
# A request that did not fit the model is shrunk, stage by stage, and tried again; the session keeps all of it.
#
#     async for attempt in await session.attempts("anthropic"):
#         with attempt:
#             reply = await client.messages.create(messages=attempt.request.messages, ...)
#
# An attempt takes a `ContextOverflow` that is raised inside it, and the next one follows: results of tools cut after
# 4,000 characters, then after 500, then no tools at all, each made from the whole. The last one lets the error pass.

_CHARS_PER_TOKEN = 4
_MESSAGE_BYTES, _TOOL_BYTES, _ENVELOPE_BYTES = 1.2, 1.1, 2_048


class Attempt:
    """One try at a request: a context manager, which takes an overflow if another attempt can follow.

    That is a `ContextOverflow`, or an error of a client that tells of one in a provider's words.

    ``number`` is 0 for the request as the settings make it, and then that of the stage.
    """

    __slots__ = ("has_overflowed", "is_last", "number", "request")

    def __init__(self, number: int, request: ContextRequest, *, is_last: bool) -> None:
        self.number = number
        self.request = request
        self.is_last = is_last
        self.has_overflowed = False
        """Whether the provider said that it does not fit."""

    def __repr__(self) -> str:
        return f"<attempt {self.number}: {self.request.tokens} tokens>"

    def __enter__(self) -> Attempt:
        return self

    def overflowed(self) -> None:
        """Say that the provider refused it as too large, if its error is no `ContextOverflow`: the next one follows."""
        self.has_overflowed = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception) or overflow_of(error) is None:
            return False
        self.has_overflowed = True
        return not self.is_last


class Attempts:
    """The attempts of one request, for `async for` and for `for`: the next one follows if the last has overflowed.

    One that the checks of `Fitting` say is too large is passed over. Raises `ContextOverflow` if they say so of the
    last one.
    """

    def __init__(
        self,
        make: Callable[[Sequence[Step]], ContextRequest],
        fitting: Fitting,
        tools: Sequence[JsonObject],
        elsewhere: Callable[[Callable[[], Attempt | None]], Awaitable[Attempt | None]],
    ) -> None:
        self._make = make
        self._fitting = fitting
        self._tools = tools
        self._elsewhere = elsewhere
        self._number = 0
        self._latest: Attempt | None = None

    def __iter__(self) -> Iterator[Attempt]:
        return self

    def __next__(self) -> Attempt:
        attempt = self._next()
        if attempt is None:
            raise StopIteration
        return attempt

    def __aiter__(self) -> AsyncIterator[Attempt]:
        return self

    async def __anext__(self) -> Attempt:
        attempt = await self._elsewhere(self._next)
        if attempt is None:
            raise StopAsyncIteration
        return attempt

    def _next(self) -> Attempt | None:
        if self._latest is not None and not self._latest.has_overflowed:
            return None
        while self._number <= len(STAGE_CHARS):
            number = self._number
            self._number += 1
            stage = [adaptive_trim(STAGE_CHARS[number - 1], self._fitting)] if number else []
            request = self._make(stage)
            problem = what_is_too_large(request, self._tools, self._fitting)
            is_last = number == len(STAGE_CHARS)
            if not problem:
                self._latest = Attempt(number, request, is_last=is_last)
                return self._latest
            if is_last:
                raise ContextOverflow(
                    f"the request does not fit, without any tools either: {problem}",
                    window=self._fitting.max_context_tokens or None,
                )
        return None


async def ask_fitting(attempts: Attempts, model: Model, request: ModelRequest) -> ModelReply:
    """Return the answer of a model to the first attempt that fits, with ``request`` but for its messages.

    The attempts are those of messages of ours (`Session.context.attempts` without a target). Signed answers come back
    with the digest of their prefix. Raises the errors of the model, and `ContextOverflow` if no attempt fits.
    """
    async for attempt in attempts:
        with attempt:
            reply = await model.complete(replace(request, messages=tuple(attempt.request.messages)))
            digest = attempt.request.prefix_digest
            return replace(
                reply, messages=tuple(kinds.with_produced_under(message, digest) for message in reply.messages)
            )
    raise ContextOverflow("no attempt was left")  # the last one lets its error pass


def what_is_too_large(request: ContextRequest, tools: Sequence[JsonObject], fitting: Fitting) -> str:
    """Return in words why a request is above the limits; "" if it is not. O(size).

    The system counts as content, wherever the target has it.
    """
    if not fitting.max_context_tokens and not fitting.max_payload_bytes:
        return ""
    chars = _length(request.system)
    for message in request.messages:
        chars += _length(message.get("content", message.get("parts")))
        chars += sum(_length(message.get(name)) for name in ("tool_calls", "arguments", "output"))
    offered = sum(len(encode_json(tool, "tools")[0]) for tool in tools)
    tokens = (chars + offered) // _CHARS_PER_TOKEN
    size = int(chars * _MESSAGE_BYTES + offered * _TOOL_BYTES) + _ENVELOPE_BYTES
    if fitting.max_context_tokens and tokens > fitting.max_context_tokens:
        return f"about {tokens:,} tokens are more than max_context_tokens ({fitting.max_context_tokens:,})"
    if fitting.max_payload_bytes and size > fitting.max_payload_bytes:
        return f"about {size:,} bytes are more than max_payload_bytes ({fitting.max_payload_bytes:,})"
    return ""


def _length(content: JsonValue) -> int:
    """Return how many characters a content has: its texts, and the JSON of its other parts."""
    if content is None:
        return 0
    if isinstance(content, str):
        return len(content)
    if isinstance(content, list):
        return sum(map(_length, content))
    if isinstance(content, dict) and isinstance(text := content.get("text"), str):
        return len(text)
    if isinstance(content, dict) and isinstance(parts := content.get("parts"), list):
        return _length(parts)
    return len(encode_json(content, "content")[0])


# ---------------------------------------------------------------------------------------------------------------------
# The changes of each entry on its way into a request, as JSON: for a command line and for a report.


def how_sent(changes: Sequence[ContextChange], *, is_repaired: bool) -> str:
    """Return how an entry is sent: ``whole``, ``repaired``, ``cut``, ``replaced``, ``merged`` or ``out``."""
    if not changes:
        return "repaired" if is_repaired else "whole"
    return "out" if changes[-1].how == "dropped" else changes[-1].how


def state_of(changes: Sequence[ContextChange], *, is_repaired: bool) -> str:
    """Return `how_sent`, and with it the tokens before and after, or the entry whose message has the content now."""
    how = how_sent(changes, is_repaired=is_repaired)
    if not changes or how == "out":
        return how
    if (into := changes[-1].into) is not None:
        return f"{how} {'into' if how == 'merged' else 'in'} {into}"
    return f"{how}, {changes[0].tokens_before:,} -> {changes[-1].tokens_after:,}"


def explained_row(
    items: Sequence[ContextEntry] | None, sent: ContextRequest, before: ContextRequest | None = None
) -> JsonObject:
    """Return the changes on the way from a context to a request: the steps, the events, and each entry. O(items).

    Without ``items``, of the entries those that are changed or repaired. With ``before``, an earlier request, also
    where the one begins otherwise than the other.
    """
    report = sent.report
    changes = report.by_entry()
    repaired = dict.fromkeys(repair.entry_id for repair in sent.repairs if repair.entry_id is not None)
    roles = dict.fromkeys([*changes, *repaired]) if items is None else {item.entry_id: item.role for item in items}
    return {
        "agent": report.agent,
        "target": sent.target,
        "counter": report.counter,
        "isEstimate": sent.is_estimate,
        "tokensBefore": report.tokens_before,
        "tokensAfter": report.tokens_after,
        "tokensSent": sent.tokens_sent,
        "epochEnd": report.epoch_end,
        "steps": [
            {"name": step.name, "reason": step.reason, "tokensFreed": step.tokens_freed, "changes": len(step.changes)}
            for step in report.steps
        ],
        "events": [to_builtins(event) for event in report.events],
        "entries": [
            {
                "entryId": entry_id,
                "role": role,
                "sent": how_sent(changes.get(entry_id, ()), is_repaired=entry_id in repaired),
                "changes": [without(to_builtins(change), "entryId") for change in changes.get(entry_id, ())],
            }
            for entry_id, role in roles.items()
        ],
        "repairs": [{"entryId": repair.entry_id, "what": repair.what} for repair in sent.repairs],
        "broken": [str(broken) for broken in sent.broken],
        "breakSinceLastAnswer": None
        if before is None or (broken := sent.break_since(before)) is None
        else to_builtins(broken),
    }


# ---------------------------------------------------------------------------------------------------------------------
# The steps of settings over messages that are in no session: those that a framework is about to send.


class Reshaped(NamedTuple):
    """The rest of one group of messages: which group (None for a message that a step added), and its messages now.

    ``messages`` is None if it goes on as it was.
    """

    group: int | None
    messages: list[JsonObject] | None


class Reshaping:
    """Settings for an agent, to be run over messages of ours that are in no session.

    Notes have no address, since no store has the messages. Raises `InvalidArgument` naming each field that is wrong by
    its path, and for a ``spec``, which is read from a session.
    """

    def __init__(
        self, settings: ContextSettings | Mapping[str, object], agent: str | None = None, model: str | None = None
    ) -> None:
        own = context_settings(settings).of(agent)
        if own.spec is not None:
            raise InvalidArgument("spec: is read from a session, by Session.request; messages alone have no sources")
        self._epoch_tokens = own.epoch_tokens
        self.steps = steps_of(own)
        self._agent = agent
        self._counter = counter_for(model)
        self._sent = None if own.keep_stale_reasoning else SentRequests()

    def run(self, groups: Sequence[Sequence[JsonObject]]) -> list[Reshaped]:
        """Return the rest of groups of messages, in order: a group for each message of a framework.

        A group of no messages goes on as it is. Signed reasoning is left out if the request that it was the answer to
        went out from here with other messages before it, unless ``keep_stale_reasoning`` is set. O(size).
        """
        owner = [number for number, group in enumerate(groups) for _ in group]
        messages = [*chain.from_iterable(groups)]
        view = View(self._agent, self._counter, addresses=False)
        context = [_entry(at, message) for at, message in enumerate(messages)]
        items = run_steps(context, self.steps, view, rules=EpochRules(self._epoch_tokens)).items
        left = deque(items if self._sent is None else self._sent.without_stale(messages, items))
        reshaped: list[Reshaped] = []
        for number, group in enumerate(groups):
            own: list[Item] = []
            added: list[Item] = []
            while left and (left[0].place is None or owner[left[0].place] == number):
                item = left.popleft()
                if item.place is not None:
                    own.append(item)
                elif own:
                    added.append(item)
                else:
                    reshaped.append(Reshaped(None, [item.message]))
            if len(own) == len(group) and all(item.how is None for item in own):
                reshaped.append(Reshaped(number, None))
            elif own:
                reshaped.append(Reshaped(number, [item.message for item in own]))
            reshaped += [Reshaped(None, [item.message]) for item in added]
        return [*reshaped, *(Reshaped(None, [item.message]) for item in left)]


def _entry(at: int, message: JsonObject) -> ContextEntry:
    payload = encode_json(message, f"messages[{at}]")[0]
    # A count is found again by the id, wherever the message stands then.
    name = blake2b(payload.encode(), digest_size=8).hexdigest()
    role = message.get("role")
    return ContextEntry(
        Entry(name, None, None, kinds.MESSAGE, role if isinstance(role, str) else None, None, at, at, 0, at, payload)
    )
