"""A message on its way from the context into a request, with the entry behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from flue_py.core.calls import agent_of
from flue_py.core.exchange import tool_calls
from flue_py.core.faithful import ASSISTANT, SYSTEM, TOOL_RESULT, USER
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.kinds import COMPACTION, MESSAGE
from flue_py.core.projection import ContextEntry

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

    def merged(self, other: Item, message: Mapping[str, JsonValue]) -> Item:
        """Return it with a message that has the content of another one behind its own."""
        made_of = (*(self.made_of or (self,)), *(other.made_of or (other,)))
        return Item(self.source, self.place, dict(message), "replaced", made_of)


def plain_agent(name: str) -> str:
    """Return the name of an agent as names are compared: as `Item.agent` would have it of a message, without case."""
    return (agent_of({"agent": name}) or "").casefold()


def added(message: Mapping[str, JsonValue]) -> Item:
    """Return a message that no entry stands behind, for a step that adds one."""
    return Item(None, None, dict(message), "added")
