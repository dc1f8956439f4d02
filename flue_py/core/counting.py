"""How large a context is: what counts its tokens, what a provider said of it, and which of the two to believe."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Literal, Protocol

from flue_py.core.faithful import ASSISTANT, USER, Message
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonValue
from flue_py.core.kinds import COMPACTION
from flue_py.core.projection import CONTEXT_PREFIX, ContextEntry
from flue_py.core.usage_shapes import read_reported

MOST_ABOVE_ESTIMATE = 1.5
"""A report of more than so many times our own estimate is not believed: some gateways report sums of several calls."""

UNSEEN_SHARE = 5
"""Where the system prompt or the tools were not given, a report may also be larger by one in so many of the window."""

USUAL_WINDOW = 200_000
"""The window that such a share is taken of where the model's is unknown."""

_FAILED = ("aborted", "error")
_KIND = attrgetter("entry.kind")
_RELEASE = re.compile(r"[-@](?:20\d\d-?[01]\d-?[0-3]\d|latest)\Z")


class Counter(Protocol):
    """Counts the tokens of a message."""

    @property
    def name(self) -> str:
        """Which counter it is, for events and reports: ``tiktoken:o200k_base``, ``bytes/3``, ``faithful``."""

    @property
    def is_estimate(self) -> bool:
        """False if text is counted with the model's own vocabulary."""

    def count(self, message: Mapping[str, JsonValue], /) -> int:
        """Return how many tokens one message takes. Cost: O(size)."""


class EntryCounter(Counter, Protocol):
    """A counter that remembers what the items of contexts take."""

    def count_entry(self, item: ContextEntry, /) -> int:
        """Return what `count` says of the item's message. O(1) if it was counted before, else O(size)."""


@frozen
class ReportedSize:
    """What a provider counted: the context up to and including the answer ``entry_id``, the answer included.

    ``place`` is the index of the answer among the items that were measured. The system prompt and the tools of that
    call are in ``tokens``. ``provider`` and ``model`` are those that the answer names, None where it names none.
    ``cleared`` is how many tokens of it the provider says that it left out itself before it counted, which are not in
    ``tokens``; None where it does not say.
    """

    tokens: int
    entry_id: str
    place: int
    provider: str | None = None
    model: str | None = None
    cleared: int | None = None


@frozen
class ContextSize:
    """The size of a context in tokens: our own count, and what the provider reported, where that is fresh.

    ``counter`` names what counted. It counted ``messages`` for all messages, ``trailing`` for those of them that come
    after the report (all, where there is none), ``system`` for the system prompt and ``tools`` for the tools: None
    where these were not given. ``is_counted_estimate`` says that any of this is an estimate, ``is_trailing_estimate``
    that what follows the report is one. ``window`` is the model's, None if it is unknown.
    """

    counter: str
    messages: int
    trailing: int
    system: int | None = None
    tools: int | None = None
    reported: ReportedSize | None = None
    window: int | None = None
    is_counted_estimate: bool = True
    is_trailing_estimate: bool = True

    @property
    def tokens(self) -> int:
        """The size: what was reported and our count of what follows it, if that is trusted, else `counted`."""
        if self.reported is None or self.distrust is not None:
            return self.counted
        return self.reported.tokens + self.trailing

    @property
    def counted(self) -> int:
        """Our own count: messages, and system prompt and tools where these were given."""
        return self.messages + (self.system or 0) + (self.tools or 0)

    @property
    def trusts_reported(self) -> bool:
        """Whether `tokens` builds on what the provider reported."""
        return self.reported is not None and self.distrust is None

    @property
    def distrust(self) -> Literal["above_window", "above_estimate"] | None:
        """Why the report is not believed; None if it is, or if there is none.

        It is larger than the model's window, or more than `MOST_ABOVE_ESTIMATE` times our count of the same. Where the
        system prompt or the tools were not given, they are allowed a fifth of the window on top of that.
        """
        if self.reported is None:
            return None
        if self.window is not None and self.reported.tokens > self.window:
            return "above_window"
        is_whole = self.system is not None and self.tools is not None
        unseen = 0 if is_whole else (self.window or USUAL_WINDOW) // UNSEEN_SHARE
        most = MOST_ABOVE_ESTIMATE * (self.counted - self.trailing) + unseen
        return "above_estimate" if self.reported.tokens > most else None

    @property
    def is_estimate(self) -> bool:
        """Whether any part of `tokens` is an estimate of ours."""
        return self.is_trailing_estimate if self.trusts_reported else self.is_counted_estimate


def calculate_context_tokens(usage: Mapping[str, JsonValue]) -> int:
    """Return how large the context was in the call that reported ``usage``.

    That is ``totalTokens``, or, if it is zero or missing, the sum of ``input``, ``output``, ``cacheRead`` and
    ``cacheWrite``; usage in a provider's own shape is read as the ledger reads it. Anything but a finite number counts
    as zero.
    """
    total = _count(usage.get("totalTokens"))
    return (
        total
        or sum(_count(usage.get(name)) for name in ("input", "output", "cacheRead", "cacheWrite"))
        or read_reported(usage).totals.tokens
    )


def _count(value: JsonValue) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    # An integer is finite however large; asking would make a float of it.
    return int(value) if isinstance(value, int) or math.isfinite(value) else 0


def reported_tokens(message: Message) -> int | None:
    """Return the size of the context that an answer reports; None if it reports none, was aborted or failed."""
    if message.get("role") != ASSISTANT or message.get("stopReason") in _FAILED:
        return None
    usage = message.get("usage")
    return calculate_context_tokens(usage) if isinstance(usage, Mapping) else None


def usage_start(context: Sequence[Message] | Sequence[ContextEntry], made_at: int | None = None) -> int:
    """Return the index of the first message that is newer than the latest compaction; 0 if there is none.

    ``made_at`` is the depth of that where none of the items is its summary.
    """
    if not context:
        return 0
    first = context[0]
    if isinstance(first, ContextEntry):
        if made_at is None and COMPACTION not in map(_KIND, context):
            return 0
        # The latest one is not the first where it stands for a range.
        entries = [item.entry for item in context if isinstance(item, ContextEntry)]
        if made_at is None:
            made_at = max(entry.depth for entry in entries if entry.kind == COMPACTION)
        newer = (entry.depth > made_at for entry in entries)
    elif _is_summary(first):
        made = first.get("timestamp")
        newer = (not isinstance(item, ContextEntry) and _is_after(item.get("timestamp"), made) for item in context)
    else:
        return 0
    return next((index for index, is_newer in enumerate(newer) if is_newer), len(context))


def _is_summary(message: Message) -> bool:
    content = message.get("content")
    if isinstance(content, (list, tuple)) and content and isinstance(content[0], Mapping):
        content = content[0].get("text")
    return message.get("role") == USER and isinstance(content, str) and content.startswith(f"{CONTEXT_PREFIX}\n")


def _is_after(moment: JsonValue, other: JsonValue) -> bool:
    if not isinstance(moment, (int, float)) or not isinstance(other, (int, float)):
        return False
    return moment > other


@lru_cache(maxsize=1024)
def is_same_model(one: str, other: str) -> bool:
    """Return whether two names are of one model, as far as names tell.

    The provider before the name does not matter (``openai:gpt-5``, ``openai/gpt-5``), nor does the date of a release
    behind it, if only one of the two has it.
    """
    if one == other:
        return True
    bare, other_bare = _without_provider(one), _without_provider(other)
    return bare == other_bare or _RELEASE.sub("", bare) == other_bare or bare == _RELEASE.sub("", other_bare)


def model_names(model: str) -> tuple[str, ...]:
    """Return the names that a model may be known by: as given, and without the provider before it."""
    bare = _without_provider(model)
    return (model,) if bare == model else (model, bare)


def _without_provider(model: str) -> str:
    bare = model.rpartition("/")[2]
    before, colon, after = bare.partition(":")
    # `llama3:8b` is a model and its size, `gpt-4o:free` a model and how it is paid.
    is_provider = before.replace("-", "").isalpha() and after[:1].isalpha() and any(map(str.isdigit, after))
    return after if colon and is_provider else bare
