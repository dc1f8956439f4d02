"""What a search is narrowed to, as sessions and as marks of texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from hashlib import blake2b

from flue_py.core.frozen import frozen
from flue_py.core.sessions import SessionHead
from flue_py.homes import is_below
from flue_py.search.texts import SearchedText
from flue_py.search.values import Part
from flue_py.store.words import MARK, FoundText, session_mark

_MOST_TEXTS: frozenset[Part] = frozenset(("messages", "tools"))
_WEIGHTS: Mapping[Part, int] = {"titles": 40, "messages": 12, "summaries": 14, "tools": 8, "thinking": 6}
_WEIGHT_OF_USER = 20
_PARTS_BY_WEIGHT: Mapping[int, Part] = {weight: part for part, weight in _WEIGHTS.items()}
_MOST_MARKS = 200
"""How many sessions are asked for by their marks; of more, what is found is looked through."""


@frozen
class Narrowing:
    """What a search is narrowed to.

    ``sessions`` are named ones and their tasks; ``heirs`` are sessions that these were forked from, with the
    forks that see a part of each.
    """

    parts: tuple[Part, ...]
    sessions: frozenset[str] | None = None
    heirs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    without: frozenset[str] = frozenset()
    scope: str | None = None
    project: str | None = None
    role: str | None = None
    tool: str | None = None
    since_us: int | None = None
    until_us: int | None = None

    def chosen(self, heads: Iterable[SessionHead]) -> dict[int, SessionHead]:
        """Return those of the sessions that are searched, by key. O(sessions)."""
        return {head.session_key: head for head in heads if self._has_session(head)}

    def _has_session(self, head: SessionHead) -> bool:
        return (
            (self.sessions is None or head.id in self.sessions or head.id in self.heirs)
            and head.id not in self.without
            and (self.scope is None or head.scope == self.scope)
            and (self.project is None or is_below(head.cwd, self.project))
        )

    def has_text(self, role: str | None, at_us: int, text: SearchedText) -> bool:
        """Return whether a text is one that is searched."""
        return (
            text.part in self.parts
            and (self.role is None or role == self.role)
            and (self.tool is None or text.tool == self.tool)
            and (self.since_us is None or at_us >= self.since_us)
            and (self.until_us is None or at_us < self.until_us)
        )

    def may_have(self, found: FoundText, chosen: Mapping[int, SessionHead]) -> bool:
        """Return whether a text that an index names may be one that is searched, by its session and what it weighs."""
        return found.session_key in chosen and part_of(found.weight) in self.parts

    def marks(self, chosen: Mapping[int, SessionHead]) -> Sequence[Sequence[str]]:
        """Return the marks of which a text has one of each group.

        Nearly all texts are messages or of tools: an index would take ten times as long to find that out of each.
        """
        groups: list[list[str]] = []
        if not set(self.parts) >= _MOST_TEXTS:
            groups.append([part_mark(part) for part in self.parts])
        if self.role is not None:
            groups.append([role_mark(self.role)])
        if self.tool is not None:
            groups.append([tool_mark(self.tool)])
        if self.scope is not None:
            groups.append([scope_mark(self.scope)])
        if (self.sessions is not None or self.project is not None) and len(chosen) <= _MOST_MARKS:
            groups.append([session_mark(key) for key in chosen])
        return groups


def marks_of(head: SessionHead, role: str | None, text: SearchedText) -> list[str]:
    """Return the marks of a text."""
    marks = [part_mark(text.part), scope_mark(head.scope)]
    if role is not None:
        marks.append(role_mark(role))
    if text.tool is not None:
        marks.append(tool_mark(text.tool))
    return marks


def weight_of(part: Part, role: str | None) -> int:
    """Return what a text weighs in a ranking: what people said before what tools did."""
    return _WEIGHT_OF_USER if part == "messages" and role == "user" else _WEIGHTS[part]


def part_of(weight: int) -> Part:
    """Return the part that a text of this weight is."""
    return _PARTS_BY_WEIGHT.get(weight, "messages")


def part_mark(part: Part) -> str:
    """Return the mark of a part."""
    return f"{MARK}p{part}"


def role_mark(role: str) -> str:
    """Return the mark of a role, which may have any characters."""
    return f"{MARK}r{_name(role)}"


def tool_mark(tool: str) -> str:
    """Return the mark of a tool."""
    return f"{MARK}t{_name(tool)}"


def scope_mark(scope: str) -> str:
    """Return the mark of a scope. Scopes may hold what nobody should read in an index."""
    return f"{MARK}c{_name(scope)}"


def _name(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
