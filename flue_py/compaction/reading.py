"""The messages of a context, decoded when somebody looks at one, and then once.

Most of a plan needs no message: the role is beside the payload of an entry, and counts are remembered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, overload

from flue_py.compaction.content import ASSISTANT, USER, Message
from flue_py.compaction.estimate import estimate_messages
from flue_py.compaction.policy import CompactionPolicy
from flue_py.compaction.serialize import FileLists, collect_file_lists
from flue_py.core.exchange import Pairing, undecoded_exchange
from flue_py.core.jsontext import JsonValue
from flue_py.core.kinds import MESSAGE
from flue_py.core.projection import ContextEntry

if TYPE_CHECKING:
    from flue_py.compaction.plan import ContextItem

_SUMMARY: Message = {"role": USER}
"""What stands for what is made of an entry that is not a message, where only calls and results are looked for."""


class Messages(Sequence[Message]):
    """The messages of the items of a context, or messages as they are."""

    __slots__ = ("_found", "_items")

    def __init__(self, items: Sequence[ContextItem] | None, messages: Sequence[Message] = ()) -> None:
        self._items = items
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
                found = self._found[index] = self._items[index].data
            return found
        return [self[at] for at in range(*index.indices(len(self)))]

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
                if item.entry.role == ASSISTANT and '"toolCall"' in item.entry.payload:
                    yield at
            elif self[at].get("role") == ASSISTANT:
                yield at

    def exchanges(self, among: Iterable[int]) -> Iterator[Message]:
        """Yield what `Pairing` reads of some messages, each of which is decoded only if that is needed."""
        items = self._items
        for at in among:
            item = None if items is None else items[at]
            if not isinstance(item, ContextEntry):
                yield self[at]
                continue
            entry = item.entry
            found = undecoded_exchange(entry) if entry.kind == MESSAGE else _SUMMARY
            yield self[at] if found is None else found

    def has_failed(self, at: int) -> bool:
        """Return whether a message is the result of a call that failed."""
        item = None if self._items is None else self._items[at]
        # Written without spaces, as every payload is.
        if isinstance(item, ContextEntry) and '"isError":true' not in item.entry.payload:
            return False
        return self[at].get("isError") is True


class PlannedContent:
    """What a plan takes from a context; each part is worked out when it is first asked for."""

    def __init__(
        self,
        messages: Messages,
        history: Sequence[int],
        prefix: Sequence[int],
        earlier: FileLists,
        policy: CompactionPolicy,
        usage_from: int | None,
    ) -> None:
        self._messages = messages
        self._history, self._prefix = history, prefix
        self._earlier = earlier
        self._policy, self._usage_from = policy, usage_from

    def without(self, gone: Collection[int], earlier: FileLists) -> PlannedContent:
        """Return the same without some of the messages, with other files of earlier compactions."""
        history, prefix = ([at for at in part if at not in gone] for part in (self._history, self._prefix))
        return PlannedContent(self._messages, history, prefix, earlier, self._policy, self._usage_from)

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
    def roles(self) -> list[JsonValue]:
        """The role of each message that leaves."""
        return list(map(self._messages.role, self.indices))

    @cached_property
    def turns(self) -> list[int]:
        """The turn of each message that leaves, from 1: each message of the user or the model begins one."""
        return list(accumulate(int(role in (USER, ASSISTANT)) for role in self.roles))

    def has_failed(self, at: int) -> bool:
        """Return whether one of the messages is the result of a call that failed."""
        return self._messages.has_failed(self.indices[at])

    @cached_property
    def pairing(self) -> Pairing:
        """Which of the results among what leaves answer which of the calls among it."""
        return Pairing(self._messages.exchanges(self.indices))

    @cached_property
    def files(self) -> FileLists:
        """The files that what leaves has read and modified, with those of earlier compactions."""
        return collect_file_lists(map(self._messages.__getitem__, self._messages.calling(self.indices)), self._earlier)

    @cached_property
    def tokens_before(self) -> int:
        """The estimated size of the whole context."""
        return estimate_messages(self._messages, self._policy, self._usage_from or 0).tokens

    def message(self, at: int) -> Message:
        """Return one of the messages that leave, by its place among them."""
        return self._messages[self.indices[at]]
