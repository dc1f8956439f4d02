"""Asking the sources that settings name, one after the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from inspect import iscoroutinefunction
from pathlib import PurePath
from typing import Protocol, TypeAlias, TypeVar, cast

from flue_py.context.settings import ContextSource
from flue_py.context.sources.protocol import Asked, GatheredContext, Section, SkippedSource, SourceReader
from flue_py.core.frozen import changed
from flue_py.errors import InvalidArgument, shown

SOURCE_SECONDS = 30.0
"""How long a source that is a coroutine function is waited for."""
SOURCE_CHARS = 4_000
"""How much of a source is told if it has no limit of its own."""
_IN_FILES = ("session_context", "changes_recent", "brief_field", "file")
"""The sources that a tool of the agent's can read in full, as far as we know."""
_LABELS = {"session_context": "Session Context", "changes_recent": "Recent Changes"}

_Found: TypeAlias = str | None | Awaitable[str | None]
Result = TypeVar("Result")
_Asking: TypeAlias = Callable[[], Coroutine[object, object, str | None]]


class Calling(Protocol):
    """How functions of the caller are called: those that may block, and coroutine functions."""

    async def call(self, function: Callable[[], Result]) -> Result:
        """Return what a function returns, called where it holds up nobody else."""

    async def ask(
        self, function: Callable[[], Coroutine[object, object, str | None]], seconds: float | None
    ) -> str | None:
        """Return what a coroutine function returns. Raises `TimeoutError` after so many seconds."""


async def gather(
    wanted: Sequence[ContextSource], asked: Asked, sources: Mapping[str, SourceReader], calling: Calling
) -> GatheredContext:
    """Return what the sources have to say, in their order. What one raises is reported, and leaves it out.

    A source's own history is no text (the step `Assembled` has it), and is passed over. The cost of the sources.
    """
    sections: list[Section] = []
    skipped: list[SkippedSource] = []
    for each in wanted:
        if each.kind == "own_history":
            continue
        found = await _read(each, changed(asked, parameter=each.parameter), sources, calling)
        if isinstance(found, SkippedSource):
            skipped.append(found)
        else:
            sections.append(Section(each.source, each.label or label_of(each), found))
    return GatheredContext(asked.agent, tuple(sections), tuple(skipped))


async def _read(
    wanted: ContextSource, asked: Asked, sources: Mapping[str, SourceReader], calling: Calling
) -> str | SkippedSource:
    source = sources.get(wanted.kind)
    if source is None:
        return SkippedSource(wanted.source, "no source has this name")
    try:
        found = await _said(source, asked, calling)
    except Exception as error:  # noqa: BLE001 - a source of the caller's, and no reason to ask no model
        found = error
    if isinstance(found, Exception):
        return SkippedSource(wanted.source, f"it failed: {_reason(found)}")
    if found is not None and not isinstance(found, str):
        return SkippedSource(wanted.source, f"it returned {shown(found)}, not a text")
    text = cut_source(found or "", wanted).strip()
    return text or SkippedSource(wanted.source, "it has nothing to say")


async def _said(source: SourceReader, asked: Asked, calling: Calling) -> object:
    """Return what a source returns, or what it raised."""
    if iscoroutinefunction(source) or iscoroutinefunction(getattr(source, "__call__", None)):  # noqa: B004
        return await calling.ask(cast("_Asking", partial(source, asked)), SOURCE_SECONDS)
    (found,) = await calling.call(partial(_outcome, source, asked))
    if not isinstance(found, Awaitable):
        return found

    async def answer() -> str | None:
        return await found

    return await calling.ask(answer, SOURCE_SECONDS)


def _outcome(source: SourceReader, asked: Asked) -> tuple[_Found | Exception]:
    # A StopIteration cannot leave a thread: asyncio would wait for it for ever. And trio takes no coroutine from one.
    try:
        return (source(asked),)
    except Exception as error:  # noqa: BLE001 - returned, and reported
        return (error,)


def _reason(error: Exception) -> str:
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 - an error that cannot be printed is one all the same
        said = ""
    return shown(said or type(error).__name__)


def cut_source(text: str, wanted: ContextSource) -> str:
    """Return what a source says, or the beginning of it and a note of how much is missing, and where the whole is."""
    most = wanted.max_chars or SOURCE_CHARS
    if len(text) <= most:
        return text
    whole = "use file tool to read in full" if wanted.kind in _IN_FILES else f"source {wanted.source} has it in full"
    return f"{text[:most]}\n[...{len(text) - most:,} chars truncated — {whole}]"


def label_of(wanted: ContextSource) -> str:
    """Return the heading of a source that has none of its own."""
    if wanted.kind == "brief_field":
        return f"Task: {wanted.parameter}"
    if wanted.kind == "file":
        return PurePath(wanted.parameter or "").name or "File"
    return _LABELS.get(wanted.kind, wanted.source)


def checked_sources(given: Mapping[str, SourceReader] | None) -> Mapping[str, SourceReader]:
    """Return sources by their plain names. Raises `InvalidArgument` for anything that is not a mapping to functions."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidArgument(f"sources: should be functions by their names, not {shown(given)}")
    for name, source in given.items():
        if not isinstance(name, str) or not name.strip() or ":" in name:
            raise InvalidArgument(f"sources: {shown(name)} is not a name; it has no colon, which a parameter follows")
        if not callable(source):
            raise InvalidArgument(f"sources[{shown(name)}]: {shown(source)} is not a function")
    return {name.strip().casefold(): source for name, source in given.items()}
