"""A message on its way from the context into a request, with the entry behind it."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, Protocol, TypeAlias

from msgspec.structs import replace

from flue_py.context.tokens import ENTRY_COUNTS, ModelCounter, counter_for
from flue_py.core.context import ContextEntry
from flue_py.core.entries import Call, Pairing, referred_artifact, tool_calls
from flue_py.core.json import Frozen, JsonObject, JsonValue
from flue_py.core.kinds import ASSISTANT, COMPACTION, MESSAGE, SYSTEM, TOOL_RESULT, USER
from flue_py.core.usage import agent_of

# ---------------------------------------------------------------------------------------------------------------------
# A message on its way from the context into a request, with the entry behind it.

How: TypeAlias = Literal["dropped", "cut", "replaced", "merged", "added"]
"""What a step did with a message: left it out, shortened it, put other content in its place, put its content behind
that of another one, or put it there."""

# What a user ran or an extension said is shown as a message of the user.
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
            assert self.source is not None  # what has no source was given a message
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
# What the steps of a pipeline did: by step and by entry, with the tokens that it freed.


class ContextChange(Frozen):
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


def is_text(part: JsonValue) -> bool:
    """Return whether a part of a content is text."""
    return isinstance(part, dict) and part.get("type") == "text"


def part_text(part: JsonValue) -> JsonValue:
    """Return the text of a part, None if it is no text."""
    return part.get("text") if isinstance(part, dict) and is_text(part) else None


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
        part for part in content_parts(message) if isinstance(text := part_text(part), str) and text.strip()
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
    return {**message, "content": _cut_parts(message, limit, tail(missing))}


def _cut_parts(message: Mapping[str, JsonValue], limit: int, note: str) -> list[JsonValue]:
    parts: list[JsonValue] = []
    left = limit
    is_cut = False
    for part in content_parts(message):
        text = part_text(part)
        if not isinstance(part, dict) or not isinstance(text, str):
            parts.append(part)
            continue
        if is_cut:
            continue
        if len(text) <= left:
            parts.append(part)
            left -= len(text)
            continue
        parts.append({**unsigned(part), "text": text[:left] + note})
        is_cut = True
    return parts


def is_thinking(part: JsonValue) -> bool:
    """Return whether a part of a content is reasoning."""
    return isinstance(part, dict) and part.get("type") == "thinking"


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
    parts = [*content_parts(message)]
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


def content_parts(message: Mapping[str, JsonValue]) -> list[JsonValue]:
    """Return the parts of a content that is a list, [] of any other."""
    content = message.get("content")
    return content if isinstance(content, list) else []


def as_parts(message: Mapping[str, JsonValue]) -> list[JsonObject]:
    """Return the content of a message as parts, a text as the only one, without values that are no objects."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [part for part in content_parts(message) if isinstance(part, dict)]


def calls_kept(item: Item, answered: Container[int]) -> Item | None:
    """Return an answer without the calls whose place in the content is not ``answered``; None if nothing is left.

    Without any call left, it is reduced to its text: reasoning before a call leads nowhere without it.
    """
    message = item.message
    content = content_parts(message)
    rest_of_parts = [part for place, part in enumerate(content) if not _is_call(part) or place in answered]
    if len(rest_of_parts) == len(content):
        return item
    if any(map(_is_call, rest_of_parts)):
        return item.cut({**message, "content": rest_of_parts})
    rest = texts_only(message)
    return None if rest is None else item.cut(rest)


def _is_call(part: JsonValue) -> bool:
    return isinstance(part, dict) and part.get("type") == "toolCall"


# ---------------------------------------------------------------------------------------------------------------------
# What a step of the pipeline is, and what it may ask.

Over: TypeAlias = Literal["all", "history", "turn"]
"""What a step is given: the whole context, what lies before the turn that is in progress, or that turn."""


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
# Notes in place of content, or behind what was cut: each says where the whole is, an entry or an artifact.


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
            _text(part.get("name")),
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
            named[at] = _text(item.message.get("toolName"))
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


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""
