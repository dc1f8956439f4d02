"""The messages of a context, decoded when somebody looks at one, and then once.

Most of a plan needs no message: the role is beside the payload of an entry, and counts are remembered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast, overload

from flue_py.compaction.content import ASSISTANT, TOOL_RESULT, USER, Message
from flue_py.compaction.estimate import estimate_messages, usage_start
from flue_py.compaction.policy import CompactionPolicy
from flue_py.compaction.serialize import FileLists, collect_file_lists
from flue_py.core.exchange import CALLS, Pairing
from flue_py.core.jsontext import JsonValue, decode_object
from flue_py.core.kinds import MESSAGE
from flue_py.core.projection import ContextEntry
from flue_py.core.spoken import words_of
from flue_py.core.traits import TRAITS, Traits, traits_in
from flue_py.core.turns import Turns, part_in

if TYPE_CHECKING:
    from flue_py.compaction.plan import ContextItem

Item = TypeVar("Item")


class Outline(NamedTuple):
    """What can be told of messages by the traits of their entries: their roles, and what each is beside that.

    ``last_said`` is the place of the last of those that call nothing in which the user or the model says something, -1
    for none; ``callers`` are the places of those that call tools, ``results`` those of the results of tools.
    """

    roles: list[JsonValue]
    traits: list[Traits]
    last_said: int
    callers: list[int]
    results: list[int]


class Messages(Sequence[Message]):
    """The messages of the items of a context, or messages as they are.

    ``made_at`` is the depth of the latest compaction where none of the items is its summary.
    """

    __slots__ = ("_found", "_items", "_made_at")

    def __init__(
        self, items: Sequence[ContextItem] | None, messages: Sequence[Message] = (), made_at: int | None = None
    ) -> None:
        self._items = items
        self._made_at = made_at
        self._found: list[Message | None] = list(messages) if items is None else [None] * len(items)

    def __len__(self) -> int:
        return len(self._found)

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...

    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, int):
            found = self._found[index]
            if found is None:
                assert self._items is not None, "messages without items are there from the start"
                found = self._found[index] = _decoded(self._items[index])
            return found
        return self.several(range(*index.indices(len(self))))

    def turn_of(self, at: int, turns: Turns) -> int:
        """Return the turn of a message, the next one that is counted. O(1) for most that are of entries."""
        item = None if self._items is None else self._items[at]
        return turns.add_entry(item.entry) if isinstance(item, ContextEntry) else turns.add(part_in(self[at]))

    def several(self, among: Sequence[int]) -> list[Message]:
        """Return the messages at some places, in their order."""
        items, found = self._items, self._found
        if items is not None:
            for at in among:
                if found[at] is None:
                    found[at] = _decoded(items[at])
        return cast("list[Message]", [found[at] for at in among])

    def role(self, at: int) -> JsonValue:
        """Return the role of a message. O(1) for that of an entry."""
        item = None if self._items is None else self._items[at]
        return item.role if isinstance(item, ContextEntry) else self[at].get("role")

    def calling(self, among: Iterable[int]) -> Iterator[int]:
        """Yield those of some messages that may call tools."""
        items = self._items
        for at in among:
            item = None if items is None else items[at]
            if isinstance(item, ContextEntry):
                if item.entry.role == ASSISTANT and CALLS in item.entry.payload:
                    yield at
            elif self[at].get("role") == ASSISTANT:
                yield at

    def outline(self, among: Sequence[int]) -> Outline:
        """Return what can be told of some messages, by their places among these. O(1) for most that are of entries."""
        items, known = self._items, TRAITS.known
        roles: list[JsonValue] = []
        found: list[Traits] = []
        for at in among:
            # Written out, since this is all that happens for most of ten thousand messages.
            item = None if items is None else items[at]
            if isinstance(item, ContextEntry) and item.entry.kind == MESSAGE and not item.excluded_parts:
                entry = item.entry
                traits = known(entry.id)
                if traits is None or traits[0] != hash(entry.payload):  # by its place, which takes half as long
                    traits = TRAITS.of(entry)
                roles.append(entry.role or USER)
            else:
                traits = traits_in(self[at])
                if item is not None and item.kind != MESSAGE:
                    traits = traits._replace(is_spoken=False)
                roles.append(self.role(at))
            found.append(traits)
        callers = [place for place, traits in enumerate(found) if traits.calls and roles[place] == ASSISTANT]
        results = [place for place, role in enumerate(roles) if role == TOOL_RESULT]
        return Outline(roles, found, _last_said(roles, found), callers, results)

    def pairing(self, among: Sequence[int], outline: Outline | None = None) -> Pairing:
        """Return which of some messages answer which calls, by their places among these."""
        found = outline or self.outline(among)
        # Both are in order, so that sorting them merges them.
        places = sorted([*found.callers, *found.results])
        return Pairing([found.traits[place].exchange for place in places], places, found.last_said)

    def words(self, at: int) -> str:
        """Return what may be a person's own in a message of the user, "" for nothing."""
        return words_of(self[at])

    def usage_start(self) -> int:
        """Return the index of the first message that is newer than the latest compaction; 0 if there is none."""
        items = self._items
        if items and isinstance(items[0], ContextEntry):
            return usage_start(cast("Sequence[ContextEntry]", items), self._made_at)
        return usage_start(self)

    def may_have(self, at: int, text: str) -> bool:
        """Return whether a message may have a text in it, of letters and signs that JSON writes as they are."""
        item = None if self._items is None else self._items[at]
        return not isinstance(item, ContextEntry) or text in item.entry.payload


def _last_said(roles: Sequence[JsonValue], traits: Sequence[Traits]) -> int:
    for at in range(len(roles) - 1, -1, -1):
        if roles[at] == USER or (roles[at] == ASSISTANT and not traits[at].calls):
            return at
    return -1


def _decoded(item: ContextItem) -> Message:
    # What `ContextEntry.data` does for most of ten thousand messages, without four calls for each.
    if isinstance(item, ContextEntry) and item.entry.kind == MESSAGE and not item.excluded_parts:
        return decode_object(item.entry.payload)
    return item.data


class PlannedContent:
    """What a plan takes from a context; each part is worked out when it is first asked for."""

    def __init__(
        self,
        messages: Messages,
        history: Sequence[int],
        prefix: Sequence[int],
        earlier: FileLists,
        policy: CompactionPolicy,
        counts: Sequence[int] | None = None,
    ) -> None:
        self._messages, self._counts = messages, counts
        self._history, self._prefix = history, prefix
        self._earlier = earlier
        self._policy = policy

    def without(self, gone: Collection[int], earlier: FileLists) -> PlannedContent:
        """Return the same without some of the messages, with other files of earlier compactions."""
        history, prefix = ([at for at in part if at not in gone] for part in (self._history, self._prefix))
        return PlannedContent(self._messages, history, prefix, earlier, self._policy, self._counts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlannedContent):
            return NotImplemented
        mine = self.history, self.prefix, self.files, self.tokens_before
        return mine == (other.history, other.prefix, other.files, other.tokens_before)

    __hash__ = None  # type: ignore[assignment] # messages are dicts

    @cached_property
    def indices(self) -> Sequence[int]:
        """Where the messages that leave are in the context, in order."""
        if isinstance(self._history, range) and isinstance(self._prefix, range):
            return range(self._history.start, self._prefix.stop)
        return (*self._history, *self._prefix)

    def those_of(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return those of the items of the context, or of what is known of each, that leave. O(messages)."""
        indices = self.indices
        return items[indices.start : indices.stop] if isinstance(indices, range) else [items[at] for at in indices]

    @cached_property
    def history(self) -> tuple[Message, ...]:
        """The messages that leave, without the beginning of a split turn."""
        return tuple(map(self._messages.__getitem__, self._history))

    @cached_property
    def prefix(self) -> tuple[Message, ...]:
        """The beginning of a split turn."""
        return tuple(map(self._messages.__getitem__, self._prefix))

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """The messages that leave, in order."""
        return self.history + self.prefix

    @cached_property
    def _outline(self) -> Outline:
        return self._messages.outline(self.indices)

    @property
    def roles(self) -> list[JsonValue]:
        """The role of each message that leaves."""
        return self._outline.roles

    @cached_property
    def turns(self) -> list[int]:
        """The turn of each message that leaves, from 1."""
        return self._turns[0]

    @property
    def turns_ended(self) -> int:
        """How many turns leave whole: the first message that stays belongs to the next one."""
        return self._turns[1]

    @cached_property
    def _turns(self) -> tuple[list[int], int]:
        counter, turn_of = Turns(), self._messages.turn_of
        numbers = [turn_of(at, counter) for at in self.indices]
        following = self.indices[-1] + 1 if numbers else 0
        stays = following < len(self._messages)
        return numbers, turn_of(following, counter) - 1 if stays else counter.ended

    @cached_property
    def spoken(self) -> list[int]:
        """Where among the messages that leave are those of the user in which a person said something."""
        traits = self._outline.traits
        return [
            at
            for at, role in enumerate(self.roles)
            if role == USER and ((is_spoken := traits[at].is_spoken) or (is_spoken is None and self.words(at)))
        ]

    def words(self, at: int) -> str:
        """Return what a person said in one of the messages that leave, a message of the user."""
        return self._messages.words(self.indices[at])

    @cached_property
    def failed(self) -> frozenset[int]:
        """Where among the messages that leave are the results of calls that failed."""
        traits = self._outline.traits
        return frozenset(
            at
            for at in self._outline.results
            if (has_failed := traits[at].has_failed) or (has_failed is None and self.message(at).get("isError") is True)
        )

    @cached_property
    def pairing(self) -> Pairing:
        """Which of the results among what leaves answer which of the calls among it."""
        return self._messages.pairing(self.indices, self._outline)

    @cached_property
    def files(self) -> FileLists:
        """The files that what leaves has read and modified, and those of earlier compactions."""
        traits, callers = self._outline.traits, self._outline.callers
        found = collect_file_lists((traits[place].exchange for place in callers), self._earlier, self._policy)
        is_modified = self._policy.know_file_tools and found.modified_files != self._earlier.modified_files
        if not is_modified or not self.failed:
            return found
        calls = [self._without_failed(place, traits[place].exchange) for place in callers]
        return collect_file_lists(calls, self._earlier, self._policy)

    def _without_failed(self, place: int, message: Message) -> Message:
        """Return the calls of one of the messages that leave, without those that failed to modify a file."""
        found = self.pairing.results_of(place).items()
        failed = {call.part for call, results in found if results and results[0] in self.failed}
        content = message.get("content")
        if not failed or not isinstance(content, list):
            return message
        return {"role": ASSISTANT, "content": [None if at in failed else part for at, part in enumerate(content)]}

    @cached_property
    def tokens_before(self) -> int:
        """The estimated size of the whole context."""
        usage_from = self._messages.usage_start() if self._policy.ignore_older_usage else 0
        return estimate_messages(self._messages, self._policy, usage_from).tokens

    def tokens(self, at: int) -> int | None:
        """Return how many tokens one of the messages that leave takes, by the counter of the plan; None without one."""
        return None if self._counts is None else self._counts[self.indices[at]]

    def may_have(self, at: int, text: str) -> bool:
        """Return whether one of the messages that leave may have a text in it. It is not decoded for it."""
        return self._messages.may_have(self.indices[at], text)

    def message(self, at: int) -> Message:
        """Return one of the messages that leave, by its place among them."""
        return self._messages[self.indices[at]]
