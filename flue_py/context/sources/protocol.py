"""What a source is, what it may read, and what was found in sources."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from flue_py.core.frozen import frozen
from flue_py.core.projection import ContextEntry
from flue_py.core.registered import RegisteredText
from flue_py.core.sessions import SessionInfo


@frozen
class Asked:
    """What a source is asked about: ``parameter`` is what stands behind the colon, None without one.

    ``context`` is what a model sees of the session, in order, up to the turn in progress; ``registered`` are its
    registered texts, ``session`` is its row. ``stored`` is the whole path up to that turn, also before a
    compaction; None if it is the context. ``agent`` is who will read it, None for one without a name.
    """

    parameter: str | None
    agent: str | None
    context: Sequence[ContextEntry]
    registered: Sequence[RegisteredText]
    session: SessionInfo
    stored: Sequence[ContextEntry] | None = None


SourceReader: TypeAlias = Callable[[Asked], str | None | Awaitable[str | None]]
"""Returns a text, None or "" where it has none; it may be a coroutine function. What it raises is reported, and leaves
its section out."""


@frozen
class Section:
    """What one source has to say: the source as the settings name it, the heading, and the text, cut to its limit."""

    source: str
    label: str
    text: str


@frozen
class SkippedSource:
    """A source that has said nothing, and why."""

    source: str
    why: str

    def __str__(self) -> str:
        return f"{self.source}: {self.why}"


@frozen
class GatheredContext:
    """What the sources of an agent had to say at one moment, in their order, and those that said nothing.

    Given to several requests, it has each of them say the same (`Session.request`).
    """

    agent: str | None
    sections: tuple[Section, ...] = ()
    skipped: tuple[SkippedSource, ...] = ()

    def text(self, heading: str) -> str:
        """Return the sections under a heading, "" where there are none."""
        if not self.sections:
            return ""
        return "\n\n".join([heading, *(f"## {each.label}\n{each.text}" for each in self.sections)])


NOTHING_GATHERED = GatheredContext(None)
