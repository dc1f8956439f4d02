"""From the context to the request of one agent: steps, one after the other, and a report of their changes.

    piped = run_steps(items, steps_of(settings), View(agent, counter), rules=EpochRules(settings.epoch_tokens))

Steps take and return items; changes are found by comparing the two. Some are given only the messages before the turn
that is in progress, some only that turn. Steps that rewrite messages which were sent before are given the context as it
was at the beginning of the epoch, so that they give the same until the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Literal, Protocol, TypeAlias

from msgspec.structs import replace

from flue_py.context.tokens import ENTRY_COUNTS, ModelCounter, Remembered, counter_for
from flue_py.core.context import ContextEntry, is_note
from flue_py.core.entries import Call, Pairing, answered_id, called_ids, referred_artifact, tool_calls
from flue_py.core.json import Frozen, JsonObject, JsonValue
from flue_py.core.kinds import ASSISTANT, COMPACTION, MESSAGE, SYSTEM, TOOL_RESULT, USER, string_field
from flue_py.core.usage import agent_of
from flue_py.errors import InvalidArgument, shown
from flue_py.providers.base import is_part, listed
from flue_py.providers.openai_chat import parts_of

# ---------------------------------------------------------------------------------------------------------------------
# A message on its way from the context into a request, with the entry behind it.

How: TypeAlias = Literal["dropped", "cut", "replaced", "merged", "added"]
"""The change of a message by a step: left it out, shortened it, put other content in its place, put its content behind
that of another one, or put it there."""

# Commands of the user and messages of extensions are shown as messages of the user.
_AS_USER = (USER, "bashExecution", "custom")


class Item:
    """A message, and the entry behind it. No step changes one: `cut` and `replaced` return another.

    ``place`` is where it stands in the context that the pipeline began with, None for one that a step added.
    """

    __slots__ = ("_message", "_role", "how", "made_of", "place", "source")

    def __init__(
        self,
        source: ContextEntry | None,
        place: int | None,
        message: JsonObject | None = None,
        how: How | None = None,
        made_of: tuple[Item, ...] = (),
    ) -> None:
        self.source = source
        self.place = place
        self.made_of = made_of
        """The messages that became this one, in order and as they were, its own first; () if it is no other's."""
        self.how = how
        """What was done with it last, None if it is as the context has it."""
        self._message = message
        self._role: JsonValue = source.role if source is not None else (message or {}).get("role")

    def __repr__(self) -> str:
        return f"<item {self.place} {self._role} of {self.entry_id}>"

    @property
    def entry_id(self) -> str | None:
        """The entry behind it, None for one that a step added."""
        return None if self.source is None else self.source.entry_id

    @property
    def message(self) -> JsonObject:
        """The message, which nobody may change. It is decoded at the first call."""
        if self._message is None:
            assert self.source is not None  # an item without a source has a message
            self._message = self.source.data
        return self._message

    @property
    def role(self) -> JsonValue:
        """Whose message it is, as the session stores it. Nothing is decoded for it."""
        return self._role

    @property
    def is_user(self) -> bool:
        """Whether the model sees it as a message of the user."""
        return self._role in _AS_USER

    @property
    def is_answer(self) -> bool:
        """Whether it is a message of the model."""
        return self._role == ASSISTANT

    @property
    def is_result(self) -> bool:
        """Whether it is the result of a tool call."""
        return self._role == TOOL_RESULT

    @property
    def is_system(self) -> bool:
        """Whether it is a message of the system."""
        return self._role in SYSTEM

    @property
    def is_summary(self) -> bool:
        """Whether it is the summary of a compaction."""
        return self.source is not None and self.source.kind == COMPACTION

    @property
    def is_pinned(self) -> bool:
        """Whether a compaction keeps it because it is pinned: word for word, so that no step may save on it."""
        return self.source is not None and self.source.is_pinned

    @property
    def is_message(self) -> bool:
        """Whether it is stored as a message, and is not made from an entry of another kind."""
        return self.source is None or self.source.kind == MESSAGE

    @property
    def agent(self) -> str | None:
        """The agent whose message it is, None if it names none."""
        return agent_of(self.message)

    @property
    def calls(self) -> list[JsonObject]:
        """The tool calls that it makes, in order."""
        return tool_calls(self.message) if self.is_answer else []

    def cut(self, message: Mapping[str, JsonValue]) -> Item:
        """Return it with a shorter message, which begins as its own does."""
        return Item(self.source, self.place, dict(message), "cut", self.made_of)

    def replaced(self, message: Mapping[str, JsonValue]) -> Item:
        """Return it with another message in its place."""
        return Item(self.source, self.place, dict(message), "replaced", self.made_of)

    def merged(self, following: Item, message: Mapping[str, JsonValue]) -> Item:
        """Return it with a message that has the content of another one behind its own."""
        made_of = (*(self.made_of or (self,)), *(following.made_of or (following,)))
        return Item(self.source, self.place, dict(message), "replaced", made_of)


def plain_agent(name: str) -> str:
    """Return the name of an agent as names are compared: as `Item.agent` would have it of a message, without case."""
    return (agent_of({"agent": name}) or "").casefold()


def added(message: Mapping[str, JsonValue]) -> Item:
    """Return a message that no entry stands behind, for a step that adds one."""
    return Item(None, None, dict(message), "added")


# ---------------------------------------------------------------------------------------------------------------------
# The changes by the steps of a pipeline: by step and by entry, with the tokens that they freed.


class ContextChange(Frozen, rename="camel"):
    """The change of one message by one step, which left it out, shortened, replaced, merged or added it.

    ``entry_id`` is the entry behind it, None for a message that a step added. The sizes are in tokens. ``into`` is the
    entry whose message has the content of this one since it was merged, None for any other; its sizes count there.
    """

    step: str
    entry_id: str | None
    how: How
    tokens_before: int
    tokens_after: int
    into: str | None = None

    @property
    def tokens_freed(self) -> int:
        """How many tokens it takes less; below 0 for one that was added."""
        return self.tokens_before - self.tokens_after

    def __str__(self) -> str:
        into = "" if self.into is None else f" {'into' if self.how == 'merged' else 'in'} {self.into}"
        whose = self.entry_id or "a message of its own"
        return f"{whose}: {self.how}{into} by {self.step}, {self.tokens_freed:,} tokens"


class StepReport(Frozen):
    """The changes by one step, in the order of the context, and their ``reason``."""

    name: str
    reason: str
    changes: tuple[ContextChange, ...] = ()

    @property
    def tokens_freed(self) -> int:
        """How many tokens all of it freed."""
        return sum(change.tokens_freed for change in self.changes)


class ContextEvent(Frozen):
    """Something that a program may want to tell: its name, and a sentence with the numbers."""

    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


class ContextReport(Frozen):
    """The changes between the context and the request, in the order of the steps, those without effect too.

    ``tokens_before`` is the size of the context, ``tokens_after`` of the rest of it, by ``counter``; ``is_estimate``
    says that these are estimates. ``epoch_end`` is the last entry that steps which wait for an epoch may rewrite, None
    where there is none. A last step ``provider`` has the parts that the provider is expected to clear itself, of
    messages that go to it whole; it makes ``tokens_after`` an estimate.
    """

    steps: tuple[StepReport, ...]
    events: tuple[ContextEvent, ...]
    tokens_before: int
    tokens_after: int
    counter: str
    is_estimate: bool
    agent: str | None = None
    epoch_end: str | None = None

    def with_step(self, step: StepReport, events: Iterable[ContextEvent]) -> ContextReport:
        """Return the report with a further step, whose numbers are estimates, and with other events."""
        is_estimate = self.is_estimate or bool(step.changes)
        left = self.tokens_after - step.tokens_freed
        return replace(
            self, steps=(*self.steps, step), events=tuple(events), tokens_after=left, is_estimate=is_estimate
        )

    @property
    def changes(self) -> tuple[ContextChange, ...]:
        """Everything that was done, step by step."""
        return tuple(change for step in self.steps for change in step.changes)

    @property
    def tokens_freed(self) -> int:
        """How many tokens the request takes less than the context."""
        return self.tokens_before - self.tokens_after

    def by_entry(self) -> Mapping[str, tuple[ContextChange, ...]]:
        """Return the changes of each entry that is not sent as the context has it. O(changes)."""
        changes_of: dict[str, list[ContextChange]] = {}
        for change in self.changes:
            if change.entry_id is not None:
                changes_of.setdefault(change.entry_id, []).append(change)
        return {entry_id: tuple(changes) for entry_id, changes in changes_of.items()}


# ---------------------------------------------------------------------------------------------------------------------
# The text of messages as the steps read and shorten it.

PATH = "path"
"""The argument that names the file that a tool reads or writes, in whatever case."""


def text_parts(message: Mapping[str, JsonValue]) -> list[str]:
    """Return the texts of a message, in order: its content, or that of each part that is text."""
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else ()
    return [text for part in parts if isinstance(text := part_text(part), str)]


def part_text(part: JsonValue) -> JsonValue:
    """Return the text of a part, None if it is no text."""
    return part.get("text") if is_part(part, "text") else None


def text_length(message: Mapping[str, JsonValue]) -> int:
    """Return how many characters the texts of a message have together."""
    return sum(map(len, text_parts(message)))


def with_text(message: Mapping[str, JsonValue], text: str) -> JsonObject:
    """Return a message whose content is one text, in the form in which its content was."""
    is_plain = isinstance(message.get("content"), str)
    return {**message, "content": text if is_plain else [{"type": "text", "text": text}]}


def texts_only(message: Mapping[str, JsonValue]) -> JsonObject | None:
    """Return a message with nothing but its texts, None if it has none with words in it."""
    content = message.get("content")
    if isinstance(content, str):
        return dict(message) if content.strip() else None
    texts: list[JsonValue] = [
        part for part in listed(message.get("content")) if isinstance(text := part_text(part), str) and text.strip()
    ]
    return {**message, "content": texts} if texts else None


def cut_to(message: Mapping[str, JsonValue], limit: int, tail: Callable[[int], str]) -> JsonObject | None:
    """Return a message whose texts are cut after so many characters, all together; None if they are not longer.

    ``tail`` makes the note behind the last of them from how many characters are missing. Parts that are no text stay.
    """
    missing = text_length(message) - limit
    if missing <= 0:
        return None
    if isinstance(content := message.get("content"), str):
        return {**message, "content": content[:limit] + tail(missing)}
    parts: list[JsonValue] = []
    left = limit
    for part in listed(message.get("content")):
        text = part_text(part)
        if not isinstance(part, dict) or not isinstance(text, str):
            parts.append(part)
        elif left >= 0:
            is_whole = len(text) <= left
            parts.append(part if is_whole else {**unsigned(part), "text": text[:left] + tail(missing)})
            left = left - len(text) if is_whole else -1
    return {**message, "content": parts}


def is_signed(part: Mapping[str, JsonValue]) -> bool:
    """Return whether a provider has signed a part of a content: it takes it back as it was alone."""
    return any(name.lower().endswith("signature") and value for name, value in part.items())


def unsigned(part: Mapping[str, JsonValue]) -> JsonObject:
    """Return a part without its signature, for one with another text than the signed one."""
    return {name: value for name, value in part.items() if not name.lower().endswith("signature")}


def with_arguments(
    message: Mapping[str, JsonValue], place: int, instead: Callable[[str], str], *, longer_than: int
) -> JsonObject | None:
    """Return an answer with other texts in place of the long ones among the arguments of a call; None if none is long.

    ``place`` is that of the call in the content. A path stays: it says which file it was.
    """
    parts = [*listed(message.get("content"))]
    call = parts[place]
    arguments = call.get("arguments") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(arguments, dict):
        return None
    shorter = {
        name: instead(value)
        if isinstance(value, str) and len(value) > longer_than and name.casefold() != PATH
        else value
        for name, value in arguments.items()
    }
    if shorter == arguments:
        return None
    parts[place] = {**unsigned(call), "arguments": shorter}
    return {**message, "content": parts}


def calls_kept(item: Item, answered: Container[int]) -> Item | None:
    """Return an answer without the calls whose place in the content is not ``answered``; None if nothing is left.

    Without any call left, it is reduced to its text: reasoning before a call leads nowhere without it.
    """
    content = listed(item.message.get("content"))
    rest = [part for place, part in enumerate(content) if not is_part(part, "toolCall") or place in answered]
    if len(rest) == len(content):
        return item
    if any(is_part(part, "toolCall") for part in rest):
        return item.cut({**item.message, "content": rest})
    return reduced(item)


def reduced(item: Item) -> Item | None:
    """Return an item with its texts alone, None if it has none."""
    texts = texts_only(item.message)
    if texts is None:
        return None
    return item if texts == item.message else item.cut(texts)


# ---------------------------------------------------------------------------------------------------------------------
# A step of the pipeline, and its view.

Over: TypeAlias = Literal["all", "history", "turn"]
"""The messages for a step: the whole context, those before the turn that is in progress, or that turn."""


class View:
    """The agent that is asked, the sizes of messages, and the events that steps leave for a program.

    With ``addresses`` a note about missing content names the entry, or the artifact, that has the whole.
    """

    __slots__ = ("_sizes", "addresses", "agent", "counter", "events")

    def __init__(self, agent: str | None, counter: ModelCounter, *, addresses: bool = True) -> None:
        self.agent = agent
        self.counter = counter
        self.addresses = addresses
        self.events: list[ContextEvent] = []
        self._sizes: dict[Item, int] = {}

    def tokens(self, item: Item) -> int:
        """Return how many tokens a message takes. O(1) if it was counted before, else O(size)."""
        tokens = self._sizes.get(item)
        if tokens is None:
            if item.how is None and item.source is not None:
                tokens = ENTRY_COUNTS.count(item.source, self.counter)
            else:
                tokens = ENTRY_COUNTS.count_message(item.message, self.counter)
            self._sizes[item] = tokens
        return tokens

    def smaller(self, shorter: Item, item: Item) -> Item:
        """Return the shorter version of an item if it takes fewer tokens, else the item.

        A pinned item stays as it is. The cost of `tokens`.
        """
        return shorter if not item.is_pinned and self.tokens(shorter) < self.tokens(item) else item

    def note_sizes(self, items: Sequence[Item], sizes: Sequence[int]) -> None:
        """Note how many tokens each of some messages takes."""
        self._sizes.update(zip(items, sizes, strict=True))

    def tell_over(self, items: Sequence[Item], most: int, name: str) -> None:
        """Note, as ``over_budget``, that a step has left more than its budget, if it has. The cost of `tokens`."""
        total = sum(map(self.tokens, items))
        if total > most:
            self.tell("over_budget", f"{name} leaves {total:,} tokens, more than {most:,}")

    def aside(self) -> View:
        """Return a view that shares the counts with this one, and has events of its own."""
        view = View(self.agent, self.counter, addresses=self.addresses)
        view._sizes = self._sizes
        return view

    def budgeted(self) -> View:
        """Return a view that counts characters / 4, as budgets do with any model, and shares the events of this one."""
        counter = counter_for(None, faithful=True)
        if self.counter is counter:
            return self
        view = View(self.agent, counter, addresses=self.addresses)
        view.events = self.events
        return view

    def tell(self, name: str, text: str) -> None:
        """Note an event."""
        self.events.append(ContextEvent(name, text))


class Step(Protocol):
    """One step: it takes messages and returns those that go on, in order.

    It changes no message, reads nothing but these, and gives the same for the same. Its changes are found by comparing
    the items before and after it, so that a step cannot leave anything out silently.
    """

    @property
    def name(self) -> str:
        """The name in reports."""

    @property
    def reason(self) -> str:
        """The reason of its changes, in a few words."""

    @property
    def over(self) -> Over:
        """The part of the context that it is given."""

    @property
    def at_epochs(self) -> bool:
        """Whether it rewrites at the beginning of an epoch alone: later messages are not given to it."""

    def apply(self, items: Sequence[Item], view: View, /) -> Sequence[Item]:
        """Return the items that go on. It should be O(size)."""


# ---------------------------------------------------------------------------------------------------------------------
# Notes in place of content, or behind a text that was cut: each says where the whole is, an entry or an artifact.


def stubbed(item: Item, note: str, view: View) -> Item:
    """Return an item with a note in place of its content; itself if that takes no fewer tokens, or it is pinned."""
    text = note + address(item, view)
    return view.smaller(item.replaced(with_text(item.message, text)), item)


def cut_after(item: Item, limit: int, note: Callable[[int], str], view: View) -> Item:
    """Return an item whose texts are cut after so many characters, with a note behind; as it is if they are not longer.

    ``note`` makes the note from how many characters are missing.
    """
    shorter = cut_to(item.message, limit, partial(with_address, note, item, view))
    return item if shorter is None else item.cut(shorter)


def address(item: Item, view: View, after: int = -1) -> str:
    """Return the line of a note that names the whole content; "" if the view wants none, or no entry has it.

    Of an item that was made of several there is one for each, or for each with text ``after`` so many characters.
    """
    if not view.addresses:
        return ""
    artifact_id = referred_artifact(item.message)
    if artifact_id is not None:
        return f"\n[whole content: artifact {artifact_id}]"
    return "".join(f"\n[whole content: entry {entry_id}]" for entry_id in _entries_after(item, after))


def _entries_after(item: Item, after: int) -> Iterator[str]:
    end = 0
    for part in item.made_of:
        end += text_length(part.message)
        if part.entry_id and end > after:
            yield part.entry_id
    if not item.made_of and item.entry_id:
        yield item.entry_id


def with_address(note: Callable[[int], str], item: Item, view: View, missing: int) -> str:
    """Return a note about missing content of a message, with the address of the whole."""
    return note(missing) + address(item, view, text_length(item.message) - missing)


# ---------------------------------------------------------------------------------------------------------------------
# Which tool made a result, and with which arguments.


class ToolUse(Frozen):
    """A call of a tool: where its message is, the call, its name and arguments, and where its results are."""

    call: Call
    name: str
    arguments: JsonObject
    results: Sequence[int]


def pairing_of(items: Sequence[Item]) -> Pairing:
    """Return which results answer which calls in some messages. Only those that call or answer are decoded. O(size)."""
    return Pairing([item.message if item.is_answer or item.is_result else None for item in items])


def tool_uses(items: Sequence[Item]) -> list[ToolUse]:
    """Return the calls of tools in some messages, in order, with the places of their results. O(size)."""
    pairing = pairing_of(items)
    return [
        ToolUse(
            call,
            string_field(part, "name"),
            arguments if isinstance(arguments := part.get("arguments"), dict) else {},
            pairing.results[call],
        )
        for call, part in pairing.parts.items()
    ]


def tool_of_results(items: Sequence[Item]) -> dict[int, str]:
    """Return the name of the tool of each result, by its place: that of its call, or else the one in the result."""
    named = {at: use.name for use in tool_uses(items) for at in use.results}
    for at, item in enumerate(items):
        if item.is_result and not named.get(at):
            named[at] = string_field(item.message, "toolName")
    return named


def plain_name(name: str) -> str:
    """Return the name of a tool without case, ``_`` and ``-``: ``ReadFile`` is ``read_file``."""
    return name.casefold().replace("_", "").replace("-", "")


def plain_names(names: Iterable[str]) -> frozenset[str]:
    """Return the names of tools, each as `plain_name` has it."""
    return frozenset(map(plain_name, names))


def path_of(arguments: JsonObject) -> str | None:
    """Return the argument ``path`` of a call, in any case of its name; None if it has none."""
    for name, value in arguments.items():
        if name.casefold() == PATH:
            return value if isinstance(value, str) else None
    return None


# ---------------------------------------------------------------------------------------------------------------------
# When an epoch begins: from then on, steps that wait for one may rewrite earlier messages.

_MICROSECONDS = 1_000_000


class Rewritten(Frozen):
    """One request, rewritten and as it would be otherwise, in tokens.

    ``tokens`` it has if it is rewritten, the first ``common`` of them as in the request before it. ``unedited`` it has
    otherwise, the first ``cached`` of them as in that.
    """

    tokens: int
    common: int
    unedited: int
    cached: int


class EpochRules(Frozen):
    """The conditions for an epoch beside a compaction: so many ``tokens`` more, if rewriting then ``pays``.

    None stands for always. A request whose last call is more than ``cold_seconds`` ago begins one, too, since a cache
    has nothing of it any longer; by the stored times alone, so that later requests find the same. None is for never.
    """

    tokens: int
    cold_seconds: int | None = None
    pays: Callable[[Rewritten], bool] | None = None


NO_EPOCHS = EpochRules(0)


def epoch_end(
    context: Sequence[ContextEntry],
    sizes: Sequence[int],
    rules: EpochRules,
    rewritten: Callable[[int, int, int], Rewritten],
) -> int:
    """Return where the context ended when the epoch began: messages before that may be rewritten.

    An epoch begins at a compaction, and with the first request for which the context has grown by so many tokens
    since, or whose last call is long ago. Requests were made before each answer, and are made at the end.
    ``rewritten`` returns a request that ends at a place, for an epoch that goes on from another and one that begins.
    O(items), and its cost where rewriting has to pay.
    """
    compaction = max((item.entry.depth for item in context if item.entry.kind == COMPACTION), default=-1)
    end = next((at for at, item in enumerate(context) if item.entry.depth > compaction), len(context))
    grown, due, called_us = 0, rules.tokens, None
    are_answers = [item.role == ASSISTANT for item in context]
    for at in range(end, len(context) + 1):
        is_request = at == len(context) or are_answers[at]
        if is_request and at > end and _is_cold(context[at - 1], called_us, rules):
            end, due = at, (grown // rules.tokens + 1) * rules.tokens
        elif is_request and grown >= due:
            if rules.pays is None or rules.pays(rewritten(at, end, at)):
                end = at
            due = (grown // rules.tokens + 1) * rules.tokens
        if at < len(context):
            grown += sizes[at]
            if are_answers[at]:
                called_us = context[at].entry.created_us
    return end


def _is_cold(last: ContextEntry, called_us: int | None, rules: EpochRules) -> bool:
    """Return whether a request that ends with an item came so long after the last call."""
    if rules.cold_seconds is None or called_us is None:
        return False
    return last.entry.created_us - called_us > rules.cold_seconds * _MICROSECONDS


# ---------------------------------------------------------------------------------------------------------------------
# The sizes of requests if an epoch began with them, and if none did, by the steps that wait for one.
#
# Whether rewriting pays is asked for every place of a context where an epoch might have begun, again in each request.
# The results are remembered in the process: the request after it asks for later messages. A memory that has
# nothing yet finds the same, from the context alone.

MOST_REMEMBERED = 50_000
"""How many requests are remembered. All of them take some 20 MB."""

Waiting: TypeAlias = Callable[[Sequence[Item]], Sequence[Item]]
"""Returns the result of the steps that wait for messages that are all there when an epoch begins."""


FORESEEN: Remembered[Hashable, Rewritten] = Remembered(MOST_REMEMBERED)
"""The memory that all sessions of the process share."""


class Foresight:
    """The sizes of requests that end at a place of one context, for `epoch_end`."""

    def __init__(
        self,
        context: Sequence[ContextEntry],
        whole: Sequence[Item],
        steps: Sequence[Step],
        view: View,
        waiting: Waiting,
    ) -> None:
        self._context = context
        self._given = whole
        self._view = view
        self._waiting = waiting
        self._asked: Hashable = (
            (view.counter.name, view.agent, view.addresses, tuple(steps)) if _are_values(steps) else None
        )
        self._marks: list[int] = []
        self._made: dict[int, Sequence[Item]] = {}

    def __call__(self, at: int, end: int, begins: int) -> Rewritten:
        """Return a request that ends ``at`` a place, for the epoch that ends at ``end`` and one that ``begins``.

        O(1) if it was made before, else O(at) and the cost of the steps.
        """
        if self._asked is None:
            return self._made_anew(at, end, begins)
        self._marks = self._marks or [*accumulate(map(hash, self._context), lambda *both: hash(both), initial=0)]
        key = (self._asked, at, end, begins, self._marks[at])
        request = FORESEEN.get(key)
        if request is None:
            request = FORESEEN.keep(key, self._made_anew(at, end, begins))
        return request

    def _made_anew(self, at: int, end: int, begins: int) -> Rewritten:
        # Only these two are asked for again: one of them is where the next request begins.
        self._made = {
            epoch: self._made[epoch] if epoch in self._made else self._waiting(self._given[:epoch])
            for epoch in (begins, end)
        }
        after, unedited = ([*self._made[epoch], *self._given[epoch:at]] for epoch in (begins, end))
        same = next(_differing(after, unedited), min(len(after), len(unedited)))
        sent = next((place for place in range(len(unedited) - 1, -1, -1) if unedited[place].is_answer), 0)
        sizes, others = [*map(self._view.tokens, after)], [*map(self._view.tokens, unedited)]
        return Rewritten(sum(sizes), sum(others[: min(same, sent)]), sum(others), sum(others[:sent]))


def _are_values(steps: Sequence[Step]) -> bool:
    """Return whether steps that are equal do the same: they are frozen values, not objects that may change."""
    try:
        hash(tuple(steps))
    except TypeError:
        return False
    return all(type(step).__hash__ is not object.__hash__ for step in steps)


def _differing(after: Sequence[Item], unedited: Sequence[Item]) -> Iterator[int]:
    for place, (new, old) in enumerate(zip(after, unedited, strict=False)):
        if new is not old and (new.place != old.place or new.message != old.message):
            yield place


# ---------------------------------------------------------------------------------------------------------------------
# Running the steps.


class Piped(Frozen):
    """The items for the request, in order, and the report."""

    items: Sequence[Item]
    report: ContextReport


def run_steps(
    context: Sequence[ContextEntry], steps: Iterable[Step], view: View, *, rules: EpochRules = NO_EPOCHS
) -> Piped:
    """Return the items that the steps leave of a context, and a report. Epochs begin by ``rules``.

    Raises `InvalidArgument` for a step that returns something else than items. O(items) without steps, and the cost
    of each step.
    """
    steps = [*steps]
    whole_items = [Item(entry, place) for place, entry in enumerate(context)]
    sizes, whole = ENTRY_COUNTS.each_and_all(context, view.counter)
    view.note_sizes(whole_items, sizes)
    waiting = [step for step in steps if step.at_epochs]
    end = len(whole_items)
    if waiting and rules.tokens:
        # Their events belong to a request that may never be made.
        aside = view.aside()
        foresight = Foresight(context, whole_items, waiting, aside, partial(_waited, waiting, aside))
        end = epoch_end(context, sizes, rules, foresight)
    turn = turn_start(whole_items, view.agent)
    turns = turn if end == len(whole_items) else turn_start(whole_items[:end], view.agent), turn
    current: Sequence[Item] = whole_items
    reports: list[StepReport] = []
    for step in steps:
        current, inside, returned = _applied(step, current, (end, len(whole_items)), turns, view)
        reports.append(StepReport(step.name, step.reason, tuple(_changes(step.name, inside, returned, view))))
    report = ContextReport(
        tuple(reports),
        tuple(view.events),
        whole.tokens,
        whole.tokens - sum(step.tokens_freed for step in reports),
        view.counter.name,
        whole.is_estimate,
        view.agent,
        whole_items[end - 1].entry_id if end and waiting else None,
    )
    return Piped(current, report)


def _applied(
    step: Step, items: Sequence[Item], ends: tuple[int, int], turns: tuple[int, int], view: View
) -> tuple[Sequence[Item], Sequence[Item], Sequence[Item]]:
    """Return the items after a step, those that it was given, and those that it returned.

    ``ends`` is where the epoch ends and the context does, ``turns`` where the turn begins by either.
    """
    end, turn = (ends[0], turns[0]) if step.at_epochs else (ends[1], turns[1])
    low, high = turn if step.over == "turn" else 0, min(end, turn) if step.over == "history" else end
    first, last = _index(items, low) if low else 0, len(items) if high == ends[1] else _index(items, high)
    # A list could be changed in place, and then no difference would be found.
    inside = tuple(items[first:last])
    returned = _items(step, inside, step.apply(inside, view))
    return [*items[:first], *returned, *items[last:]], inside, returned


def _waited(steps: Sequence[Step], view: View, items: Sequence[Item]) -> Sequence[Item]:
    """Return messages after the steps that wait, if all of them are there when an epoch begins."""
    at, current = len(items), items
    turn = turn_start(items, view.agent)
    for step in steps:
        current = _applied(step, current, (at, at), (turn, turn), view)[0]
    return current


def turn_in(context: Sequence[ContextEntry], agent: str | None) -> int:
    """Return where in a context the turn begins that is in progress, as `turn_start`. O(items)."""
    return turn_start([Item(entry, place) for place, entry in enumerate(context)], agent)


def turn_start(items: Sequence[Item], agent: str | None) -> int:
    """Return where the turn begins that is in progress: the answers and results after the last message of the user.

    With ``agent``, answers of another one do not belong to it. It is in progress if the model still has to say
    something about a tool: else there is none, and the end is returned. Notes do not end it, a handoff does. A result
    of it has its call in it, also where the user said something between the two. O(turn), and O(size) where that is so.
    """
    agent = plain_agent(agent) if agent else None
    start = first = len(items)
    after_note = True
    for at in range(len(items) - 1, -1, -1):
        item = items[at]
        source = item.source
        if source is not None and source.entry.kind != MESSAGE and is_note(source.entry):
            after_note = True
            continue
        if after_note and not (item.is_result or item.calls):
            break
        after_note = False
        if item.is_answer and _is_of(item, agent):
            start = at
        elif not item.is_result:
            break
        first = at
    caller = _caller(items, first, agent) if first < len(items) else None
    return start if caller is None else caller


def _is_of(item: Item, agent: str | None) -> bool:
    """Return whether an answer is one of an agent, None for any. ``agent`` is a name as `plain_agent` returns it."""
    return agent is None or not (name := item.agent) or name.casefold() == agent


def _caller(items: Sequence[Item], first: int, agent: str | None) -> int | None:
    """Return where the first call is that a result from ``first`` on answers; None if none lies before that."""
    caller: int | None = None
    wanted: set[str] = set()
    passed: set[str] = set()
    for at in range(len(items) - 1, -1, -1):
        item = items[at]
        if at < first and not wanted:
            break
        if item.is_result and (call_id := answered_id(item.message)) is not None:
            # A repeated answer from before belongs to no turn.
            if at >= first:
                wanted.add(call_id)
            else:
                wanted.discard(call_id)
                passed.add(call_id)
        elif item.is_answer:
            called = set(called_ids(item.message))
            if at < first and called & wanted and _is_of(item, agent):
                caller = at
                wanted, passed = wanted | passed, set()
            wanted -= called
            passed -= called
    return caller


def _index(items: Sequence[Item], place: int) -> int:
    """Return where the first item at a place of the context or behind it is; items that steps added go before it."""
    return next((at for at, item in enumerate(items) if item.place is not None and item.place >= place), len(items))


def checked_step(step: Step) -> Step:
    """Return a step. Raises `InvalidArgument` for a value that lacks a part of one."""
    has_texts = all(isinstance(getattr(step, name, None), str) for name in ("name", "reason"))
    over = getattr(step, "over", None)
    is_step = has_texts and over in ("all", "history", "turn") and isinstance(getattr(step, "at_epochs", None), bool)
    if not is_step or not callable(getattr(step, "apply", None)):
        needs = "name, reason, over ('all', 'history' or 'turn'), at_epochs and apply"
        raise InvalidArgument(f"steps: {shown(step)} is not a step, which has {needs}")
    return step


def _items(step: Step, inside: Sequence[Item], returned: Sequence[Item]) -> Sequence[Item]:
    if returned is inside:
        return returned
    if (
        isinstance(returned, (str, bytes))
        or not isinstance(returned, Sequence)
        or not all(isinstance(candidate, Item) for candidate in returned)
    ):
        raise InvalidArgument(f"the step {step.name!r} should return a list of items, not {shown(returned)}")
    places = [item.place for item in returned if item.place is not None]
    places_inside = {item.place for item in inside}
    is_ordered = all(before < after for before, after in pairwise(places)) and places_inside.issuperset(places)
    if not is_ordered or len({id(item) for item in returned}) < len(returned):
        raise InvalidArgument(f"the step {step.name!r} should return items that it was given, in order, each once")
    return [*returned]


def _changes(name: str, before: Sequence[Item], after: Sequence[Item], view: View) -> Iterator[ContextChange]:
    """Yield the changes between the items that a step was given and those it returned."""
    if before is after:
        return
    left: dict[int | None, Item] = {item.place: item for item in after if item.place is not None}
    inside: dict[int | None, Item] = {
        part.place: item for item in after for part in item.made_of if part.place is not None
    }
    same = {id(item) for item in after}
    for item in before:
        if id(item) in same:
            continue
        rest, whole = left.get(item.place), inside.get(item.place)
        size = view.tokens(item)
        if rest is not None:
            yield ContextChange(name, item.entry_id, rest.how or "replaced", size, view.tokens(rest))
        elif whole is not None:
            yield ContextChange(name, item.entry_id, "merged", size, 0, whole.entry_id)
        else:
            yield ContextChange(name, item.entry_id, "dropped", size, 0)
        if item.made_of:
            yield from _changes_within(name, item, rest or whole)
    ids_before = {id(item) for item in before}
    for item in after:
        if item.place is None and id(item) not in ids_before:
            yield ContextChange(name, None, "added", 0, view.tokens(item))


def _changes_within(name: str, item: Item, whole: Item | None) -> Iterator[ContextChange]:
    """Yield the changes of messages that were merged into one before, with which their tokens count."""
    parts = [] if whole is None else parts_of(whole.message)
    for merged in item.made_of[1:]:
        if whole is None:
            yield ContextChange(name, merged.entry_id, "dropped", 0, 0)
        elif not all(part in parts for part in parts_of(merged.message)):
            yield ContextChange(name, merged.entry_id, whole.how or "replaced", 0, 0, whole.entry_id)
