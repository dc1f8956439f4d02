"""Several summaries as one, for a compaction that takes over from all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from flue_py.compaction.content import string_field
from flue_py.compaction.quoting import without_tags
from flue_py.compaction.serialize import appended_file_lists, file_lists, listed_files
from flue_py.core.entries import FROM_HOOK, Entry
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.registered import REGISTERED

TURNS_BEFORE = "turnsBefore"
"""The detail of a summary of a range that says how many turns lie before it."""

WRITTEN = frozenset({"mode", "turns", "originals", "own", TURNS_BEFORE, REGISTERED})
"""The details that are written beside every summary, whoever made it."""


class Told(NamedTuple):
    """What a compaction says: its text, and what is stored beside it."""

    summary: str
    details: Mapping[str, JsonValue] | None

    @classmethod
    def of(cls, entry: Entry) -> Told:
        """Return what the entry of a compaction says. What a hook has stored beside its text is the hook's own."""
        fields = entry.fields
        details = fields.get("details")
        told = details if isinstance(details, Mapping) else None
        if told is not None and fields.get(FROM_HOOK) is True:
            told = {name: value for name, value in told.items() if name in WRITTEN}
        return cls(string_field(fields, "summary"), told)

    @property
    def own_text(self) -> str:
        """The text without the blocks around it and the lists of files, which a later compaction writes anew."""
        details = self.details or {}
        own = text_in(self.summary, details.get("own"))
        # Another program's summary may quote anything.
        return (
            without_tags(self.summary.removesuffix(appended_file_lists(listed_files(details)))) if own is None else own
        )

    @property
    def own_turns(self) -> int:
        """How many turns it stands for itself, as far as it says."""
        details = self.details or {}
        return max(_count(details.get("turns")) - _count(details.get(TURNS_BEFORE)), 0)


def text_in(text: str, span: JsonValue) -> str | None:
    """Return the part of a text that a span names, None where it is no span of it."""
    if not isinstance(span, (list, tuple)) or len(span) != 2:
        return None
    start, end = span
    if not isinstance(start, int) or not isinstance(end, int) or not 0 <= start <= end <= len(text):
        return None
    return text[start:end]


def joined(told: Sequence[Told], *, is_first: bool) -> Told | None:
    """Return what summaries say together, in their order; None for none.

    The only one, where nothing else is summarized that came before it (``is_first``), is continued as it is. Otherwise
    the texts follow each other, and count as those of another mode: no list goes on in the order of the conversation.
    """
    if not told or (len(told) == 1 and is_first):
        return told[0] if told else None
    lists = [listed_files(each.details) for each in told]
    files = file_lists(
        chain.from_iterable(each.read_files for each in lists),
        chain.from_iterable(each.modified_files for each in lists),
        (),
    )
    details: JsonObject = {**_carried(told), **files.details, "turns": sum(each.own_turns for each in told)}
    text = "\n\n".join(filter(None, (each.own_text for each in told))) + appended_file_lists(files)
    return Told(text, details)


def _carried(told: Sequence[Told]) -> JsonObject:
    """Return what each compaction hands on to the next: what the user said, key facts, and the last handoff."""
    facts: dict[str, list[JsonValue]] = {}
    said: list[JsonValue] = []
    left_out, carried = 0, JsonObject()
    for each in told:
        details = each.details or {}
        words = details.get("userWords")
        if isinstance(words, Mapping):
            found = words.get("said")
            said += found if isinstance(found, (list, tuple)) else ()
            left_out += _count(words.get("leftOut"))
        if "lastHandoff" in details:
            carried["lastHandoff"] = details["lastHandoff"]
        stored = details.get("keyFacts")
        for name, listed in stored.items() if isinstance(stored, Mapping) else ():
            # They are stored with the newest first.
            facts[name] = [*(listed if isinstance(listed, (list, tuple)) else ()), *facts.get(name, ())]
    if facts:
        carried["keyFacts"] = {**facts}
    return {**carried, "userWords": {"said": said, "leftOut": left_out}} if said else carried


def _count(value: JsonValue) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
