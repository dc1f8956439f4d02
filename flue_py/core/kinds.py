"""Entry kinds: one row for each kind that means something to this library, and what it means.

Everything that treats kinds differently asks this table: the projection, the usage of a path, the ledger, pins, the
renderers, salvage. A kind without a row is custom: it is stored and read back, and no model sees it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

MESSAGE = "message"
COMPACTION = "compaction"
BRANCH_SUMMARY = "branch_summary"
CUSTOM_MESSAGE = "custom_message"
EXCLUSION = "exclusion"
ARTIFACT = "tool_artifact"
"""The kind of an entry that has the result of a tool whose message says where it is instead."""


class Kind(NamedTuple):
    """What one kind of entry means."""

    name: str

    says: Literal["message", "summary", "content"] | None = None
    """What the model reads of it: the message that the payload is, or the text or the parts in the field of this name,
    as a user message. None if no context shows it."""
    prefix: str = ""
    """The line before the summary that the model reads."""
    stands_in_place: bool = False
    """The context shows it where it lies on the path. (A compaction is shown first, and only the latest one.)"""

    may_be_paid: bool = False
    """A paid call may have made it: the ledger has a row for the usage that it reports. Of messages, for answers."""
    adds_usage: bool = False
    """The usage that it reports counts for its path. Of messages, that of answers."""

    references: tuple[str, ...] = ()
    """The fields of the payload that hold an id of an entry, a list of ids, or objects of ids."""
    has_builder: bool = False
    """Its payload is an object, which a function of `flue_py.core.entries` builds: `append_custom` refuses the kind."""

    heading: str = ""
    """The heading of its text in a transcript."""
    word: str = ""
    """What lists call it, where that is not its name."""
    line_from: str = ""
    """The field of the payload that is its line in a list; "" for the JSON of the payload, or what the model reads."""


KINDS: tuple[Kind, ...] = (
    Kind(
        MESSAGE,
        says="message",
        stands_in_place=True,
        may_be_paid=True,
        adds_usage=True,
        has_builder=True,
    ),
    Kind(
        COMPACTION,
        says="summary",
        prefix="[Context Summary]",
        may_be_paid=True,
        adds_usage=True,
        references=(
            "firstKeptEntryId",
            "pinnedEntryIds",
            "baseCompactionId",
            "ranges",
            "restoresCompactionId",
            "takesBackCompactionId",
        ),
        has_builder=True,
        heading="Summary of what came before",
        line_from="summary",
    ),
    Kind(
        BRANCH_SUMMARY,
        says="summary",
        prefix="[Branch Summary]",
        stands_in_place=True,
        may_be_paid=True,
        references=("fromId", "abandonedLeafId"),
        has_builder=True,
        heading="Summary of another branch",
        word="branch",
        line_from="summary",
    ),
    Kind(CUSTOM_MESSAGE, says="content", stands_in_place=True, heading="Custom message", word="custom"),
    Kind(EXCLUSION, references=("entryId",)),
    Kind(ARTIFACT, word="artifact", line_from="tool"),
    # Kinds of imported files that the context does not show, and lists show in their own words.
    Kind("model_change", word="model"),
    Kind("thinking_level_change", word="thinking", line_from="thinkingLevel"),
    Kind("session_info", word="title", line_from="name"),
)

_BY_NAME = {kind.name: kind for kind in KINDS}

CONTEXT_KINDS = frozenset(kind.name for kind in KINDS if kind.stands_in_place)
"""The kinds that a context shows where they lie on the path."""

SHOWN_KINDS = frozenset(kind.name for kind in KINDS if kind.says is not None)
"""The kinds that a context can show at all: those, and a compaction. All of them can be pinned."""

SUMMARIES = frozenset(kind.name for kind in KINDS if kind.says == "summary")
"""The kinds whose text was made of other entries."""

BUILT_KINDS = frozenset(kind.name for kind in KINDS if kind.has_builder)
"""The kinds whose payload is an object that `flue_py.core.entries` builds."""


def kind_of(name: str) -> Kind:
    """Return the row of a kind; for a custom kind, one that says nothing but its name. O(1)."""
    return _BY_NAME.get(name) or Kind(name)


def is_answer(kind: str, role: str | None) -> bool:
    """Return whether an entry is a message of the model."""
    return kind == MESSAGE and role == "assistant"


def may_be_paid(kind: str, role: str | None) -> bool:
    """Return whether a paid call may have made an entry of this kind and role: an answer, or a summary."""
    return kind_of(kind).may_be_paid and (kind != MESSAGE or role == "assistant")


def adds_usage(kind: str, role: str | None) -> bool:
    """Return whether the usage that an entry of this kind and role reports counts for its path."""
    return kind_of(kind).adds_usage and (kind != MESSAGE or role == "assistant")
