"""The search command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import click

from flue_py.cli.choosing import SESSION, scope_option
from flue_py.cli.filters import SessionChoice, choice_options, chosen_sessions, moment
from flue_py.cli.output import Answer
from flue_py.cli.progress import Tell
from flue_py.cli.running import command
from flue_py.errors import InvalidArgument
from flue_py.render.lines import Line
from flue_py.render.search import search_lines, search_row
from flue_py.render.views import name_among
from flue_py.search.values import DEFAULT_PARTS, PARTS, How, Part
from flue_py.sessions.families import sources_of
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from flue_py.search.values import SearchAnswer
    from flue_py.sessions.session import Session

_OPTIONS = {
    "sessions": "leave out --session, --program, --model, --git-branch, --newest",
    "exclude": "leave out --exclude-session",
    "scope": "leave out --scope",
    "project": "leave out --project",
    "role": "leave out --role",
    "tool": "leave out --tool",
    "since": "leave out --since",
    "until": "leave out --until",
    "parts": "--in " + ",".join(PARTS),
    "substring": "--substring",
}
_INDEXING = "indexing once, about half the size of the text"
_OTHER_NAMES = {"tool": "toolResult", "result": "toolResult"}


@command(bar="searching", paged=True)
@click.argument("words", metavar="WORDS...", nargs=-1, required=True)
@click.option("--query", "how", flag_value="query", help='Read WORDS as a query: AND, OR, NOT, "a phrase", begin*, ().')
@click.option("--substring", "how", flag_value="substring", help="Find WORDS as a piece of text. Reads everything.")
@click.option("--regex", "how", flag_value="regex", help="Find WORDS as a regular expression. Reads everything.")
@click.option(
    "--in",
    "parts",
    metavar="PART,...",
    help=f"Search these parts (default: {','.join(DEFAULT_PARTS)}; there is also thinking).",
)
@click.option("--session", "sessions", type=SESSION, multiple=True, help="Only this session, with its tasks.")
@click.option("--exclude-session", "exclude", type=SESSION, multiple=True, help="Not in this session.")
@scope_option
@choice_options
@click.option("--role", help="Only messages of this role: user, assistant, tool.")
@click.option("--tool", help="Only calls and results of this tool.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Show at most this many.")
async def search(
    store: Store,
    words: tuple[str, ...],
    how: How | None,
    parts: str | None,
    sessions: list[Session],
    exclude: list[Session],
    program: str | None,
    project: str | None,
    model: str | None,
    git_branch: str | None,
    since: str | None,
    until: str | None,
    newest: int | None,
    role: str | None,
    tool: str | None,
    limit: int,
    tell: Tell,
) -> Answer:
    """Find WORDS in what was said, in all sessions. The best match comes first.

    Every word has to be in the text. They are taken literally, in any case: it's, src/pool.py and TODO: are words, and
    userName is found in getUserName. The id of an entry or of a session finds that one. With each hit comes where it
    lies on the tree, if not on the active path, and the command that shows it.

    With --session, its tasks are searched, too, and what it sees of the sessions it was forked from. Each regular
    expression has five seconds of CPU time at most for a text. The last line says what was searched, up to which
    revision, and which parts were not.

    With --json: an object: words, how (the kind of search), hits, hasMore, searched (sessions, entries, revisions,
    newest: sessionId and revision of the session that was active last, parts, leftOut, byIndex, whyNot), widen
    (what was not tried, by the name of the argument) and suggestions. A hit has sessionId, sessionName, scope,
    revision (up to which the session was searched), entryId (null for a title), part, role, tool, at, place
    (active, abandoned, compacted, title), snippet, matches (pairs of places in the snippet), isCut (the text is
    longer than what is searched of it), go, the command, and byId (WORDS are its id, or that of its session where
    entryId is null).
    """
    begin, end = moment(since, "--since"), moment(until, "--until", is_end=True)
    choice = SessionChoice(program, project, model, git_branch, newest=newest)
    ids: list[str] | None = [session.id for session in sessions] or None
    if choice.reads_sessions or model is not None:
        ids = [info.id for info in await chosen_sessions(store, choice) if ids is None or info.id in ids]
    answer = await store.search(
        " ".join(words),
        how=how or "words",
        parts=_parts(parts),
        sessions=ids,
        exclude=exclude,
        project=project,
        role=None if role is None else _OTHER_NAMES.get(role, role),
        tool=tool,
        since=begin,
        until=end,
        limit=limit,
        progress=lambda done, total: tell(done, total, _step(done, total)),
    )
    infos = [group.session for group in answer.sessions]
    sources = await sources_of(store.backend, infos)
    names = {info.id: name_among(info, sources) for info in infos}
    return Answer(lambda: _lines(answer, names), lambda: search_row(answer, names))


def _step(done: int, total: int) -> str:
    return "searching" if done == total else f"{_INDEXING}: {done:,} of {total:,} entries"


def _lines(answer: SearchAnswer, names: Mapping[str, str]) -> Iterable[Line]:
    if not answer.sessions:
        yield (("nothing found", "bold"),)
        if answer.suggestions:
            yield ((f"did you mean: {', '.join(answer.suggestions)}", ""),)
        if answer.widen:
            yield ((f"not tried: {'; '.join(_OPTIONS[name] for name in answer.widen)}", ""),)
    yield from search_lines(answer, names)


def _parts(text: str | None) -> list[Part] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    known: dict[str, Part] = {part: part for part in PARTS}
    for name in names:
        if name not in known:
            raise InvalidArgument(f"--in: {name!r} is no part; give some of {', '.join(PARTS)}")
    return [known[name] for name in names]
