"""The artifacts command."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from flue_py.cli.choosing import session_argument
from flue_py.cli.group import HelpfulGroup
from flue_py.cli.output import Answer, plain_lines
from flue_py.cli.running import command
from flue_py.core.artifacts import Artifact
from flue_py.errors import AmbiguousId, ArtifactNotFound
from flue_py.render.lines import Line, Span, counted, one_line, table
from flue_py.render.views import minute
from flue_py.sessions.session import Session

if TYPE_CHECKING:
    from flue_py.context.excerpts import ArtifactExcerpt


class _Artifacts(HelpfulGroup):
    synonyms = MappingProxyType({"ls": "list", "read": "show", "cat": "show", "grep": "show"})


@click.group(cls=_Artifacts)
def artifacts() -> None:
    """List and show results of tools that are stored beside the conversation."""


@command("list", paged=True)
@session_argument
async def list_(session: Session) -> Answer:
    """List the artifacts that SESSION sees, on the active path or off it, in the order they came.

    With --json: a list of id, tool, hint, characters, callId, entryId, createdAt.
    """
    found = await session.artifacts()
    return Answer(lambda: _lines(found), lambda: [artifact.json for artifact in found])


def _lines(found: Sequence[Artifact]) -> list[Line]:
    if not found:
        return plain_lines("there are no artifacts")
    rows: list[list[Span]] = [[(name, "dim") for name in ("artifact", "characters", "made", "tool")]]
    for artifact in found:
        said = " | ".join(one_line(text, 80) for text in (artifact.tool, artifact.hint) if text)
        about: list[Span] = [(f"{artifact.characters:,}", ""), (minute(artifact.created_at), ""), (said, "")]
        rows.append([(one_line(artifact.id, 64), "bold"), *about])
    return table(rows, right=frozenset({1}))


@command(paged=True)
@session_argument
@click.argument("artifact")
@click.option(
    "--start", metavar="N", type=click.IntRange(min=0), default=0, help="The character to begin at, from 0 (default)."
)
@click.option(
    "--length", metavar="N", type=click.IntRange(min=1), help="How many characters to show at most (default: all)."
)
@click.option("--grep", metavar="WORDS", help="Only the lines that have WORDS, taken literally, in any case.")
async def show(session: Session, artifact: str, start: int, length: int | None, grep: str | None) -> Answer:
    """Show the text of ARTIFACT, an id or the beginning of one: all of it, a range, or the lines with some words.

    With --grep, --length counts the characters of those lines. With --json: an object: artifact (as in list), text,
    start, end, firstLine, found (a list of number, text), leftOut.
    """
    found = await session.read_artifact(await _named(session, artifact), start=start, length=length, grep=grep)
    if grep is None:
        return Answer(lambda: plain_lines(found.text), lambda: found.json)
    return Answer(lambda: _found_lines(found), lambda: found.json)


async def _named(session: Session, name: str) -> str:
    """Return the one id that is, or begins with, ``name``. Raises `ArtifactNotFound`, `AmbiguousId`."""
    ids = list(dict.fromkeys(artifact.id for artifact in await session.artifacts()))
    fitting = [each for each in ids if name and each.startswith(name.lower())]
    if not fitting:
        raise ArtifactNotFound(session.id, name)
    if len(fitting) > 1 and fitting[0] != name.lower():
        raise AmbiguousId(name, tuple(fitting))
    return fitting[0]


def _found_lines(found: ArtifactExcerpt) -> Iterable[Line]:
    if not found.found:
        yield (("nothing found", "dim"),)
    for line in found.found:
        yield ((f"{line.number}: ", "dim"), (line.text, ""))
    if found.left_out:
        yield ((f"({counted(found.left_out, 'more line')}; go on with --start {found.end})", "dim"),)


for each in (list_, show):
    artifacts.add_command(each)
