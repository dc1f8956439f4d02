"""What a mode of compaction makes its text of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from flue_py.compaction.content import Message
from flue_py.compaction.plan import ContextItem, CountTokens, SessionCompactionPlan
from flue_py.compaction.policy import CompactionSettings
from flue_py.core.exchange import Pairing
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject, JsonValue


@frozen
class LastRequest:
    """The request that the session's model would be sent now, which begins as the one it was sent last.

    ``messages`` are the whole context, ``system`` ("" for none) and ``tools`` what goes with it. It takes ``tokens``
    tokens, of which the first ``cached_tokens`` were in the last request, byte for byte.
    """

    messages: tuple[JsonObject, ...]
    system: str
    tools: tuple[JsonObject, ...]
    tokens: int
    cached_tokens: int


@frozen
class Material:
    """What a mode makes its text of.

    ``planned`` says what leaves the context and what stays, with the entry behind each item. ``earlier`` are the
    ``details`` of the compaction that this one continues, None for the first. ``instructions`` is what the caller asks
    the summary to attend to. ``window`` is the context window of the session's model in tokens, None if it is unknown,
    and ``summarizer_window`` that of the model that is asked, whose answers have at most ``summarizer_output`` tokens,
    None for no limit that is known. ``count`` says how many tokens a message takes, and
    ``tokens_leaving`` how many those take that leave, the earlier summary left out; None if nobody counted.
    ``tasks`` are the task sessions that run, each as its id and a few words. ``room`` is how many tokens the text
    should take at most, so that there is room for the next answers right after it; None where the window is unknown.
    ``set_aside`` are tokens beside it that are kept for what the user said, and ``answer_room`` what the answer of a
    model may take of it, None for a third. ``changes`` is what the stored calls of tools have changed up to there, also
    those that earlier compactions stand for; "" for nothing, and where no model is asked.

    ``system`` and ``tools`` are what goes with the session's own requests, as far as the caller said it.
    ``last_request`` is there if the model that is asked is the session's own, and the caller said what goes with its
    requests; if only the latter is so, ``unaligned`` says why not.
    """

    planned: SessionCompactionPlan
    count: CountTokens
    earlier: Mapping[str, JsonValue] | None = None
    instructions: str | None = None
    window: int | None = None
    summarizer_window: int | None = None
    tokens_leaving: int | None = None
    tasks: tuple[str, ...] = ()
    room: int | None = None
    last_request: LastRequest | None = None
    unaligned: str | None = None
    summarizer_output: int | None = None
    system: str | None = None
    tools: tuple[JsonObject, ...] = ()
    set_aside: int = 0
    answer_room: int | None = None
    changes: str = ""

    @property
    def leaving(self) -> tuple[ContextItem, ...]:
        """The items that leave the context, in order."""
        return self.planned.leaving

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of the items that leave, in the same order. Frozen; `ContextItem.data` decodes them anew."""
        return self.planned.plan.content.messages

    @property
    def roles(self) -> Sequence[JsonValue]:
        """The role of each of the messages, which are not decoded for it."""
        return self.planned.plan.content.roles

    @property
    def pairing(self) -> Pairing:
        """Which of the results among the messages answer which calls."""
        return self.planned.plan.content.pairing

    @property
    def spoken(self) -> Sequence[int]:
        """Where among the messages are those of the user in which a person said something."""
        return self.planned.plan.content.spoken

    def words(self, at: int) -> str:
        """Return what a person said in one of the messages, a message of the user."""
        return self.planned.plan.content.words(at)

    @property
    def failed(self) -> Collection[int]:
        """Where among the messages are the results of calls that failed."""
        return self.planned.plan.content.failed

    def may_have(self, at: int, text: str) -> bool:
        """Return whether one of the messages may have a text in it, which JSON writes as it is. It is not decoded."""
        return self.planned.plan.content.may_have(at, text)

    def message(self, at: int) -> Message:
        """Return one of the messages, by its place among them: the others need not be decoded."""
        return self.planned.plan.content.message(at)

    def tokens_at(self, at: int) -> int | None:
        """Return how many tokens one of the messages takes, as the plan was made by; None if nobody counted. O(1)."""
        return self.planned.plan.content.tokens(at)

    @property
    def staying(self) -> tuple[ContextItem, ...]:
        """The items that stay after the summary, in order."""
        return self.planned.staying

    @property
    def previous_summary(self) -> str | None:
        """The summary that this compaction takes over from; None for the first."""
        return self.planned.plan.previous_summary

    @property
    def settings(self) -> CompactionSettings:
        """The settings that the plan was made by."""
        return self.planned.plan.settings

    @property
    def size_leaving(self) -> int:
        """How many tokens the messages take that leave. O(1) where that was counted."""
        return sum(map(self.count, self.messages)) if self.tokens_leaving is None else self.tokens_leaving

    def tokens_of(self, text: str) -> int:
        """Return how many tokens a text takes as a message of the user."""
        return self.count({"role": "user", "content": text})

    def beside(self, text: str) -> Material:
        """Return it with the room left beside a part of the text, less than 0 where that is too long. O(size)."""
        if self.room is None or not text:
            return self
        return replace(self, room=self.room - self.tokens_of(text))

    def within(self, tokens: int) -> Material:
        """Return it with no more room than so many tokens."""
        return self if self.room is None else replace(self, room=min(tokens, self.room))

    def half(self) -> Material:
        """Return it with half of its room: the rest is for what comes after."""
        return self if self.room is None else replace(self, room=self.room // 2)

    def with_all_room(self) -> Material:
        """Return it with the room that was set aside."""
        return self if self.room is None else replace(self, room=self.room + self.set_aside, set_aside=0)

    def fits(self, text: str) -> bool:
        """Return whether there is room for a text."""
        return self.room is None or not text or self.tokens_of(text) <= self.room

    def begun(self, text: str, most: int) -> str:
        """Return the beginning of a text that takes at most so many tokens, the whole text where it does."""
        # No counter has less than a token for 40 characters: a megabyte need not be counted whole.
        begun = text[: 40 * max(most, 0)]
        tokens = self.tokens_of(begun) if begun else 0
        if tokens <= most and len(begun) == len(text):
            return text
        while begun and tokens > most:
            begun = begun[: min(len(begun) * max(most, 0) // tokens, len(begun) - 1)]
            tokens = self.tokens_of(begun)
        return begun

    def at_most(self, tokens: int, share: int | None = None) -> int:
        """Return a number of tokens, or less: the room, or with ``share`` one so many-th of a window that is known."""
        known = [tokens if self.room is None else min(tokens, self.room)]
        if share is not None and self.window:
            known.append(self.window // share)
        return max(min(known), 0)
