"""The commands that read sessions. The table of all commands is in `flue_py.cli`."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import partial
from os.path import exists, getsize
from types import SimpleNamespace
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import click
from msgspec.structs import replace

import flue_py
from flue_py.cli import command as cli
from flue_py.cli.command import Answer
from flue_py.cli.main import (
    HelpfulGroup,
    Place,
    exit_code_of,
    finished,
    in_commands,
    is_only_readable,
    on_one_line,
    read_config,
)
from flue_py.core.context import Turn, entry_costs
from flue_py.core.entries import Artifact, Entry
from flue_py.core.json import Frozen, JsonObject, JsonValue
from flue_py.core.kinds import Shape, message_text
from flue_py.core.ledger import BRANCH_STATES, DIMENSIONS, BranchState, Dimension, UsageRow, usage_report
from flue_py.core.sessions import HARNESS, ORDERS, STORED, LeafChoice, Scalar, SessionInfo, SessionKind, SessionOrder
from flue_py.errors import AmbiguousId, ArtifactNotFound, FlueError, InvalidArgument, SessionNotFound, damaged_session
from flue_py.lazy import expression, lazy_module
from flue_py.render import views
from flue_py.render.lines import (
    Cost,
    Line,
    Span,
    cells,
    clip,
    cost_text,
    counted,
    one_line,
    plan_tree,
    short_count,
    table,
    text_of,
    without_program_rows,
)
from flue_py.sessions.handle import forks_seen, listed_sessions, names_of
from flue_py.sessions.money import listed_rows
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

if TYPE_CHECKING:
    from flue_py import search as search_values
    from flue_py.agents import conversation
    from flue_py.context import request as explained
    from flue_py.context import settings
    from flue_py.context.artifacts import ArtifactExcerpt
    from flue_py.context.request import ContextRequest
    from flue_py.core.sessions import TaskLink
    from flue_py.db import migrate
    from flue_py.render import transcript
    from flue_py.search import How, Part, SearchAnswer
    from flue_py.sessions import housekeeping
else:
    explained = lazy_module("flue_py.context.request")
    settings = lazy_module("flue_py.context.settings")
    migrate = lazy_module("flue_py.db.migrate")
    transcript = lazy_module("flue_py.render.transcript")
    conversation = lazy_module("flue_py.agents.conversation")
    housekeeping = lazy_module("flue_py.sessions.housekeeping")
    search_values = lazy_module("flue_py.search")

_NO_TURNS = "there are no turns yet"

# ---------------------------------------------------------------------------------------------------------------------
# The artifacts command.


@click.group(cls=HelpfulGroup)
def artifacts() -> None:
    """List and show results of tools that are stored beside the conversation."""


artifacts.synonyms = {"ls": "list", "read": "show", "cat": "show", "grep": "show"}


@cli.command("list", group=artifacts, paged=True)
@cli.session_argument
async def list_(session: Session) -> Answer:
    """List the artifacts that SESSION sees, on the active path or off it, in the order they came.

    With --json: a list of id, tool, hint, characters, callId, entryId, createdAt.
    """
    artifacts_seen = await session.artifacts.all()
    return Answer(lambda: _lines(artifacts_seen), lambda: [artifact.json for artifact in artifacts_seen])


def _lines(artifacts_seen: Sequence[Artifact]) -> list[Line]:
    if not artifacts_seen:
        return cli.plain_lines("there are no artifacts")
    rows: list[list[Span]] = [[(name, "dim") for name in ("artifact", "characters", "made", "tool")]]
    for artifact in artifacts_seen:
        about_text = " | ".join(one_line(text, 80) for text in (artifact.tool, artifact.hint) if text)
        about = (f"{artifact.characters:,}", views.minute(artifact.created_at), about_text)
        rows.append([(one_line(artifact.id, 64), "bold"), *((text, "") for text in about)])
    return table(rows, right=frozenset({1}))


@cli.command("show", group=artifacts, paged=True)
@cli.session_argument
@click.argument("artifact")
@click.option(
    "--start", metavar="N", type=click.IntRange(min=0), default=0, help="The character to begin at, from 0 (default)."
)
@click.option(
    "--length", metavar="N", type=click.IntRange(min=1), help="How many characters to show at most (default: all)."
)
@click.option("--grep", metavar="WORDS", help="Only the lines that have WORDS, taken literally, in any case.")
async def artifacts_show(session: Session, artifact: str, start: int, length: int | None, grep: str | None) -> Answer:
    """Show the text of ARTIFACT, an id or the beginning of one: all of it, a range, or the lines with some words.

    With --grep, --length counts the characters of those lines. With --json: an object: artifact (as in list), text,
    start, end, firstLine, found (a list of number, text), leftOut.
    """
    excerpt = await session.artifacts.read(await _named(session, artifact), start=start, length=length, grep=grep)
    if grep is None:
        return Answer(lambda: cli.plain_lines(excerpt.text), lambda: excerpt.json)
    return Answer(lambda: _found_lines(excerpt), lambda: excerpt.json)


async def _named(session: Session, name: str) -> str:
    """Return the one id that is, or begins with, ``name``. Raises `ArtifactNotFound`, `AmbiguousId`."""
    ids = list(dict.fromkeys(artifact.id for artifact in await session.artifacts.all()))
    matches = [artifact_id for artifact_id in ids if name and artifact_id.startswith(name.lower())]
    if not matches:
        raise ArtifactNotFound(session.id, name)
    if len(matches) > 1 and matches[0] != name.lower():
        raise AmbiguousId(name, tuple(matches))
    return matches[0]


def _found_lines(excerpt: ArtifactExcerpt) -> Iterable[Line]:
    if not excerpt.found:
        yield (("nothing found", "dim"),)
    for line in excerpt.found:
        yield ((f"{line.number}: ", "dim"), (line.text, ""))
    if excerpt.left_out:
        yield ((f"({counted(excerpt.left_out, 'more line')}; go on with --start {excerpt.end})", "dim"),)


# ---------------------------------------------------------------------------------------------------------------------
# The browse command.


def _check(_: SimpleNamespace) -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("this needs a terminal; without one, sessions, tree, show and search print the same")


@cli.command(check=_check, json=False)
@click.argument("session", type=cli.SESSION_NAME, required=False)
@click.argument("entry", required=False)
def browse(place: Place, session: str | None, entry: str | None) -> Answer:
    """Look at all sessions, or at SESSION from ENTRY on, and change them, with the keyboard.

    The key ? shows the keys (F1 where text is typed). Secrets are hidden until they are asked for. It follows what
    other programs write. Needs the extra tui: pip install 'flue-py[tui]'.

    A database that can only be read is not changed. After a signal that ends it, the exit code is 128 and the
    number of the signal.
    """
    from flue_py.tui import browse as run_browser

    cli.require_database(place)
    code = run_browser(
        place.target,
        read_only=is_only_readable(place.target),
        session=session,
        entry=entry,
        key=place.keys(),
        unchecked=place.unchecked,
        witness=place.witnessed(),
        accept=place.accept,
        secrets=read_config().secrets,
    )
    return Answer(code=code)


# ---------------------------------------------------------------------------------------------------------------------
# The context command.

if TYPE_CHECKING:
    _Request: TypeAlias = Awaitable[ContextRequest]

_HEAD = 100
"""How many messages are shown from the beginning of a context that is too long to be shown whole."""


def _context_check(options: SimpleNamespace) -> None:
    is_request = options.explain or options.target is not None
    of_request = (options.agent, options.settings, options.system, options.tools, options.model)
    if not is_request and any(option is not None for option in of_request):
        raise click.UsageError("--agent, --settings, --system, --tools and --model are for --explain or --target")
    if is_request and (options.last is not None or options.count):
        raise click.UsageError(
            "--last and --count show the context as it is; leave them out with --explain and --target"
        )


@cli.command(check=_context_check, bar="reading", paged=True)
@cli.session_argument
@cli.leaf_option("Read at this entry instead of the stored leaf.")
@cli.last_option
@cli.count_option
@click.option("--explain", is_flag=True, help="Show what an agent is sent of it, by step and by entry, and why.")
@click.option("--agent", metavar="NAME", help="The agent that is asked.")
@click.option("--settings", metavar="FILE", help="The settings of the pipeline, a JSON file (default: none).")
@click.option("--system", metavar="FILE", help="The system prompt that goes before it, a text.")
@click.option("--tools", metavar="FILE", help="The tools that are offered beside it, a JSON list.")
@click.option(
    "--model", metavar="MODEL", help="The model that is asked: what another one reasoned is no part of its --target."
)
@click.option(
    "--target", type=click.Choice(get_args(Shape)), help="The request of this provider, and what is repaired for it."
)
@cli.schema_option("Print the JSON schema of the settings.", lambda: settings.context_schema())  # noqa: PLW0108 - not imported before
async def context(
    session: Session,
    leaf: LeafChoice,
    last: int | None,
    count: bool,
    explain: bool,
    agent: str | None,
    settings: str | None,
    system: str | None,
    tools: str | None,
    model: str | None,
    target: str | None,
    as_json: bool,
) -> Answer:
    """Show what the model sees of SESSION, with sizes in tokens.

    Of a very long one the beginning and the end are shown, 10,000 messages, unless --last says how many.
    With --json: the list of messages, exactly as the model gets them. With --target: the request of a provider.

    --explain shows the steps with counts and tokens, and of each entry whether it is sent whole, cut, replaced or
    not at all, and why; and whether the context begins with all of the last request, or else the first entry that
    differs, and the step that made it differ. With --json the same for programs. What stands beside the messages,
    by --system and --tools, counts, and signed reasoning is kept or left out by it. A request is JSON with the
    provider's own names. With --schema no session is named.
    """
    if explain or target is not None:
        ask = partial(
            session.request,
            target,
            agent=agent,
            settings=cli.settings_in(settings),
            model=model,
            system=cli.system_in(system),
            tools=cli.tools_in(tools),
        )
        return await _request(session, leaf, ask, explain=explain)
    if as_json:
        messages = await session.build_context(leaf=leaf)
        return Answer(row=lambda: [*messages[-(last or 0) :]])
    items, marks = await session.build_context_entries(leaf=leaf), await cli.marks_of(session)

    def lines() -> Iterable[Line]:
        sizes = cli.item_sizes(items, count=count)
        tokens = sum(size.tokens for size in sizes.values())
        is_estimate = any(size.is_estimate for size in sizes.values())
        summary, head, tail = views.context_summary(items, tokens, is_estimate=is_estimate), None, 0
        if last is not None:
            head, tail = 0, last
        elif len(items) > cli.MOST_LINES:
            head, tail = _HEAD, cli.MOST_LINES - _HEAD
            summary += f"; the first {head} and the last {tail:,} are shown (--last N shows more, --json all)"
        yield ((summary, "bold"),)
        style = cli.look(sizes={entry: size.tokens for entry, size in sizes.items()}, counted=count, labels=marks)
        yield from views.context_lines(items, style, head=head, tail=tail)

    return Answer(lines)


async def _request(session: Session, leaf: LeafChoice, ask: Callable[..., _Request], *, explain: bool) -> Answer:
    items = await session.build_context_entries(leaf=leaf)
    sent = await ask(leaf=leaf)
    if explain:
        last = next((item.entry for item in reversed(items) if item.role == "assistant"), None)
        before = None
        if last is not None and last.parent_id is not None:
            before = await ask(leaf=last.parent_id)
        return Answer(
            lambda: cli.explained_lines(items, sent, before), lambda: explained.explained_row(items, sent, before)
        )

    text = json.dumps(sent.body, ensure_ascii=False, indent=2) + "\n"
    return Answer(document=text, is_json=True, row=lambda: sent.body)


# ---------------------------------------------------------------------------------------------------------------------
# The diff command.


@cli.command()
@click.argument("a", metavar="A", type=cli.SESSION_NAME)
@click.argument("b", metavar="B", type=cli.SESSION_NAME)
@click.option("--all", "show_all", is_flag=True, help="Show every entry; otherwise long stretches are folded.")
async def diff(store: Store, a: str, b: str, show_all: bool) -> Answer:
    """Compare two leaves: what they share, and what each has alone (messages, tools, cost).

    A and B are each a SESSION, at its leaf, or SESSION@ENTRY; B may be @ENTRY of the same session.

    With --json: an object: ancestorId, same, and left and right with sessionId, leafId, messages (by role), kinds,
    tools (calls, errors), usage (as the entries report it), cost and costIsWhole (as the ledger knows it) and
    entries.
    """
    left, leaf = await cli.end_of(store, a)
    right, other_leaf = await cli.end_of(store, b, left)
    report = await left.branches.diff(right, leaf=leaf, other_leaf=other_leaf)
    ancestor = None if report.ancestor_id is None else await left.get_entry(report.ancestor_id)
    names = {session.id: await session.reports.name() for session in (left, right)}
    return Answer(
        lambda: views.diff_lines(report, ancestor, names, cli.look(), show_all=show_all), lambda: views.diff_row(report)
    )


# ---------------------------------------------------------------------------------------------------------------------
# The events command.


@cli.command(json=False)
@click.option(
    "--session", "session", type=cli.SESSION_NAME, multiple=True, help="Only of this session; may be given again."
)
@cli.scope_option
@click.option("--after", metavar="EVENT", multiple=True, help="Go on behind the event with this id, in its session.")
@click.option("--after-file", metavar="FILE", multiple=True, help="Go on behind the events that this file has.")
@click.option("--follow", is_flag=True, help="Go on with what comes, until interrupted.")
async def events(
    store: Store, session: Sequence[str], after: Sequence[str], after_file: Sequence[str], follow: bool
) -> Answer:
    """Print what happened to all sessions as JSON lines, one for each event.

    The events of a session are in order. --session also takes the id of a deleted session that an earlier event
    names. --session, --after and --after-file may be given several times. A last line of a file without an end is
    passed over; if the output goes to that file, it is an error. --follow goes on with the commits of any process
    until it is interrupted (exit code 130) or its reader goes away (141).

    A line is an object: id, session (null of a budget of a scope), time (null if it is not known), type, and of
    these what the event has: entryId, what, words, role, model, provider, stopReason, tool, callId, isError,
    fromId, toId, keptId, tokensBefore, otherSessionId, status, by, why, budgetId, scope, unit, allowed, spent,
    period, periodBegan.
    """

    def seen() -> Iterator[str]:
        yield from after
        for file in after_file:
            yield from cli.ids_in("--after-file", file)

    named = [await _found(store, name) for name in session]
    events_read = store.events(sessions=named or None, after=seen(), follow=follow)
    async with aclosing(events_read) as event_stream:
        async for event in event_stream:
            cli.print_line(views.event_row(event))
    return Answer()


async def _found(store: Store, name: str) -> Session | str:
    """Return the session that is meant; a name that none has may be the id of one whose deletion is to be told."""
    try:
        return await store.find_session(name)
    except SessionNotFound:
        return name


# ---------------------------------------------------------------------------------------------------------------------
# The log command.


@cli.command()
@cli.session_argument
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Show this many lines.")
@click.option("--before", type=click.IntRange(min=1), metavar="REVISION", help="Show the lines before this one.")
async def log(session: Session, limit: int, before: int | None) -> Answer:
    """Show what was done to SESSION, newest first. Each line is a revision that `undo --to` restores.

    With --json: a list of objects: sessionId, revision, what, at, fromId, toId, entryCount, entryIds (the first
    20), kinds, edits (what, entryId, before, after), refersTo, by, why, words.
    """
    lines = await session.log(limit=limit, before=before)
    return Answer(lambda: views.log_lines(lines, cli.look()), lambda: [views.log_row(line) for line in lines])


# ---------------------------------------------------------------------------------------------------------------------
# The search command.

_OPTIONS = {
    "sessions": "leave out --session, --program, --model, --git-branch, --newest",
    "exclude": "leave out --exclude-session",
    "scope": "leave out --scope",
    "project": "leave out --project",
    "role": "leave out --role",
    "tool": "leave out --tool",
    "since": "leave out --since",
    "until": "leave out --until",
    "parts": "--in messages,tools,thinking,titles,summaries",
    "substring": "--substring",
}
_INDEXING = "indexing once, about half the size of the text"
_OTHER_NAMES = {"tool": "toolResult", "result": "toolResult"}


@cli.command(bar="searching", paged=True)
@click.argument("words", metavar="WORDS...", nargs=-1, required=True)
@click.option("--query", "how", flag_value="query", help='Read WORDS as a query: AND, OR, NOT, "a phrase", begin*, ().')
@click.option("--substring", "how", flag_value="substring", help="Find WORDS as a piece of text. Reads everything.")
@click.option("--regex", "how", flag_value="regex", help="Find WORDS as a regular expression. Reads everything.")
@click.option(
    "--in",
    "parts",
    metavar="PART,...",
    help="Search these parts (default: messages,tools,titles,summaries; there is also thinking).",
)
@click.option("--session", "sessions", type=cli.SESSION, multiple=True, help="Only this session, with its tasks.")
@click.option("--exclude-session", "exclude", type=cli.SESSION, multiple=True, help="Not in this session.")
@cli.scope_option
@cli.choice_options
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
    choice: cli.SessionChoice,
    role: str | None,
    tool: str | None,
    limit: int,
    tell: cli.Tell,
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
    (what was not tried, by the name of the argument), suggestions and damaged (which entries and sessions are left
    out since they are damaged, in words). A hit has sessionId, sessionName, scope,
    revision (up to which the session was searched), entryId (null for a title), part, role, tool, at, place
    (active, abandoned, compacted, title), snippet, matches (pairs of places in the snippet), isCut (the text is
    longer than what is searched of it), go, the command, and byId (WORDS are its id, or that of its session where
    entryId is null).
    """
    begin, end = choice.times()
    ids: list[str] | None = [session.id for session in sessions] or None
    if choice.reads_sessions or choice.model is not None:
        ids = [info.id for info in await cli.chosen_sessions(store, choice) if ids is None or info.id in ids]
    answer = await store.search(
        " ".join(words),
        how=how or "words",
        parts=_parts(parts),
        sessions=ids,
        exclude=exclude,
        project=choice.project,
        role=None if role is None else _OTHER_NAMES.get(role, role),
        tool=tool,
        since=begin,
        until=end,
        limit=limit,
        progress=lambda done, total: tell(done, total, _step(done, total)),
    )
    names = await names_of(store.backend, [group.session for group in answer.sessions])
    return Answer(lambda: _search_lines(answer, names), lambda: views.search_row(answer, names))


def _step(done: int, total: int) -> str:
    return "searching" if done == total else f"{_INDEXING}: {done:,} of {total:,} entries"


def _search_lines(answer: SearchAnswer, names: Mapping[str, str]) -> Iterable[Line]:
    if not answer.sessions:
        yield (("nothing found", "bold"),)
        if answer.suggestions:
            yield ((f"did you mean: {', '.join(answer.suggestions)}", ""),)
        if answer.widen:
            yield ((f"not tried: {'; '.join(_OPTIONS[name] for name in answer.widen)}", ""),)
    yield from views.search_lines(answer, names)
    for fault in answer.damaged:
        yield (("not searched: ", "bold red"), (on_one_line(in_commands(fault)), ""))


def _parts(text: str | None) -> list[Part] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    part_names: dict[str, Part] = {part: part for part in search_values.PARTS}
    for name in names:
        if name not in part_names:
            raise InvalidArgument(f"--in: {name!r} is no part; give some of {', '.join(search_values.PARTS)}")
    return [part_names[name] for name in names]


# ---------------------------------------------------------------------------------------------------------------------
# The sessions command.

_PAGE = 1000


@cli.command(bar="reading", paged=True)
@cli.scope_option
@click.option("--kind", type=click.Choice(["root", "fork", "task"]), help="Only the sessions of this kind.")
@click.option("--all", "show_all", is_flag=True, help="Completed sessions, too.")
@cli.choice_options
@click.option("--limit", type=click.IntRange(min=1), help="List at most this many (default: all).")
@click.option("--sort", "order", type=click.Choice(ORDERS), default="activity", help="Sort by this, the most first.")
@click.option("--reverse", is_flag=True, help="Reverse the order.")
@click.option("--title", help="Only the sessions whose title contains this, in any case.")
@click.option("--scope-prefix", help="Only the sessions whose scope begins with this.")
@click.option("--metadata", multiple=True, metavar="KEY=VALUE", help="Only those with this in their metadata.")
async def sessions(
    store: Store,
    kind: SessionKind | None,
    show_all: bool,
    choice: cli.SessionChoice,
    limit: int | None,
    order: SessionOrder,
    reverse: bool,
    title: str | None,
    scope_prefix: str | None,
    metadata: tuple[str, ...],
) -> Answer:
    """List the sessions that are not completed, most recently active first.

    Completed is a task that has ended, a run whose file says so, and what a program has marked as completed.
    The name is the title that was given, else the one that a program made, else the key, else the first words; a fork
    also shows what it was forked from. The model is the one of most calls. "+ ?" after a cost means that some calls
    have no known price; "-" means that none has one. A VALUE that is a JSON number, true, false or null is that; a text
    may be given in quotes. Where --metadata is repeated, all have to be there.

    A session was last active at the time of its newest entry, one without entries when it was made. Messages and
    costs are its own. The project is the last part of its folder. Titles are sorted as they are listed, whatever
    their case. If completed sessions are left out, a line on stderr says so, and likewise of those that
    pydantic-ai's harness keeps, which are listed only with --all, --kind or --metadata.

    With --json: a list of objects: id, name (as it is listed), key, title, autoTitle, scope, kind, forkedFrom
    (sessionId, entryId, or null), leafId, revision, cwd, entryCount, messageCount, firstMessage, spentTokens and
    spent (null where nobody knows them), unpricedCalls, unknownCalls (those of which nobody knows the tokens
    either), metadata, completedAt, createdAt, activeAt, updatedAt, model. Of one that was changed by other means, and
    cannot be opened, id and damaged (true) alone.
    """
    damaged: list[str] = []
    wanted = dict(map(_pair, metadata)) or None
    times = choice.times()
    completed = None if show_all else False
    is_asked_for = show_all or kind is not None or wanted is not None
    if choice.newest is None:
        is_chosen = await cli.chooser(store, choice, times)
    else:
        every = replace(choice, newest=None)
        chosen = await cli.chosen_sessions(store, every, times, completed=completed, damaged=damaged)
        ids = {*[info.id for info in chosen if is_asked_for or HARNESS not in info.metadata][: choice.newest]}
        is_chosen = lambda info: info.id in ids  # noqa: E731
    infos: list[SessionInfo] = []
    has_harness = False
    # The store knows only titles, not names: all sessions are read before they are put in the order of their names.
    enough = None if order == "title" else limit
    listing = partial(store.list_sessions, kind=kind, title=title, scope_prefix=scope_prefix, metadata=wanted)
    pages = partial(
        listing,
        order_by=order,
        descending=reverse if order == "title" else not reverse,
        completed=completed,
        limit=_PAGE if enough is None or choice != cli.SessionChoice() else min(enough, _PAGE),
    )
    async with aclosing(listed_sessions(pages, damaged)) as sessions:
        async for info in sessions:
            is_left_out = HARNESS in info.metadata and not is_asked_for
            has_harness |= is_left_out
            if is_chosen(info) and not is_left_out:
                infos.append(info)
                if len(infos) == enough:
                    break
    rows = await listed_rows(store, infos if order == "title" else infos[:limit])
    if order == "title":
        rows.sort(key=lambda row: (row.name.casefold(), row.name), reverse=reverse)
    listed = rows[:limit]
    has_others = not show_all and (await listing(completed=True, limit=1)).sessions
    left_out = ["completed sessions"] * bool(has_others) + ["sessions of pydantic-ai's harness"] * has_harness
    unread = list(dict.fromkeys(damaged))
    unread_rows: list[JsonValue] = [{"id": session_id, "damaged": True} for session_id in unread]
    return Answer(
        lambda: [*views.session_lines(listed, cli.look()), *views.damaged_lines(unread)],
        lambda: [
            *({**views.session_row(row.info, row.name), "model": row.model or None} for row in listed),
            *unread_rows,
        ],
        notes=[f"{name} are left out; --all lists them, too" for name in left_out],
    )


def _pair(text: str) -> tuple[str, Scalar]:
    key, separator, value = text.partition("=")
    if not separator:
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--metadata")
    try:
        parsed = json.loads(value)
    except ValueError:
        return key, value
    return key, value if isinstance(parsed, (dict, list)) else parsed


# ---------------------------------------------------------------------------------------------------------------------
# The show command.


View: TypeAlias = Literal["path", "turns", "history", "answer", "leaf"]


def _show_check(options: SimpleNamespace) -> None:
    if options.view is not None and options.entry is not None:
        raise click.UsageError("--path, --turns, --history, --answer and --print-leaf show a session; leave ENTRY out")
    if options.view != "path" and (options.leaf is not None or options.count):
        raise click.UsageError("--leaf and --count are for --path")
    cli.refuse(options.around is not None and options.entry is None, "--around is for an ENTRY; name it")
    if options.view not in ("path", "history") and options.last is not None:
        raise click.UsageError("--last is for --path and --history")
    cli.refuse(options.view != "turns" and options.show_all, "--all is for --turns")


@cli.command(check=_show_check, bar="reading", paged=True)
@cli.newest_argument
@click.argument("entry", type=cli.ENTRY, required=False)
@click.option("--path", "view", flag_value="path", help="Show the active path, root to leaf, with sizes in tokens.")
@click.option("--turns", "view", flag_value="turns", help="List the turns that the model sees, numbered as by move.")
@click.option("--history", "view", flag_value="history", help="Show the conversation in full, without tool calls.")
@click.option("--answer", "view", flag_value="answer", help="Show the last answer.")
@click.option("--print-leaf", "view", flag_value="leaf", help="Print the id of the leaf alone; an empty line for none.")
@cli.leaf_option("With --path: read at this entry instead of the stored leaf.")
@click.option(
    "--last", metavar="N", type=click.IntRange(min=1), help="Show only the last N: entries of --path, or turns."
)
@click.option("--all", "show_all", is_flag=True, help="With --turns: list compacted turns, too.")
@click.option(
    "--around", metavar="N", type=click.IntRange(1, 100), help="With ENTRY: show N before and N behind it, too."
)
@cli.count_option
async def show(
    store: Store,
    session: Session,
    entry: str | None,
    view: View | None,
    leaf: LeafChoice,
    last: int | None,
    show_all: bool,
    around: int | None,
    count: bool,
    as_json: bool,
) -> Answer:
    """Show the facts about SESSION, by default the newest, one ENTRY of it in full, or a view of it.

    "set to" is the model that is asked next, "model" the one of most calls. Of a very long --path the last 10,000
    entries are shown, unless --last says how many. --history --last N names the session first, to go on with it. What
    stands --around ENTRY is on its branch, cut if it is long.

    With --json: the object of sessions, with settings (thinkingLevel, provider, model) and tasks (taskId, sessionId,
    entryId: the entry below which it began, or null; status and summary: how it ended). Of --path, --history and
    --around a list of whole entries: id, parentId, sessionId, kind, role, source, depth, createdAt, payload, and extra
    if an imported row carried more; --history has tool calls, too. Of ENTRY such an object with its label, of --answer
    one, or null. Of --turns a list of number, entryId, preview, compacted, createdAt.
    """
    answers: dict[View | None, Callable[[], Awaitable[Answer]]] = {
        "path": lambda: _path(session, leaf, last, count=count, as_json=as_json),
        "turns": lambda: _turns(store, session, show_all=show_all),
        "history": lambda: _history(store, session, last),
        "answer": lambda: _last_answer(session),
    }
    if view == "leaf":
        return cli.said(session.leaf_id or "", session.leaf_id)
    if view in answers:
        return await answers[view]()
    if entry is None:
        return await _session(store, session)
    if around is not None:
        entries = await session.branches.neighbours(entry, around)
        return Answer(lambda: _around_lines(entries, entry), lambda: [views.entry_row(shown) for shown in entries])
    stored, label = await session.get_entry(entry), (await session.marks.labels()).get(entry)
    assert stored is not None
    return Answer(lambda: views.entry_block(stored, label), lambda: {**views.entry_row(stored), "label": label})


def _around_lines(entries: Sequence[Entry], at: str) -> Iterator[Line]:
    """Yield entries with a heading each: that of the id ``at`` in full, of the others the beginning."""
    for entry in entries:
        heading = f"{entry.id}  {one_line(entry.role or entry.kind)}  {views.minute(entry.created_at)} UTC"
        yield ((f"{'>' if entry.id == at else '-'} {heading}", "bold"),)
        text = views.body_text(entry)
        if entry.id != at and len(text) > views.MOST_OF_A_NEIGHBOUR:
            text = f"{text[: views.MOST_OF_A_NEIGHBOUR]}\n(the entry goes on: show SESSION ENTRY)"
        yield from (((line, ""),) for line in (*text.split("\n"), ""))


async def _path(session: Session, leaf: LeafChoice, last: int | None, *, count: bool, as_json: bool) -> Answer:
    limit = None if as_json else max(last or 0, cli.MOST_LINES)
    entries = await session.get_active_path(leaf=leaf, limit=limit)
    labels = await session.marks.labels()

    def lines() -> Iterable[Line]:
        shown = entries
        if entries and entries[0].depth > 0:
            shown = entries[-(last or 0) :]
            yield (
                (f"{shown[0].depth:,} earlier entries are not shown; --last N shows more, --json all", "dim italic"),
            )
        style = cli.look(sizes=cli.entry_sizes(shown, count=count), counted=count, labels=labels)
        end = entries[-1].id if entries else None
        yield from views.path_lines(shown, style, leaf=end, head=None if last is None else 0, tail=last or 0)

    return Answer(lines, lambda: [views.entry_row(entry) for entry in entries[-(last or 0) :]])


async def _turns(store: Store, session: Session, *, show_all: bool) -> Answer:
    turns = await conversation.Conversation(store, session).turns()

    def row(turn: Turn) -> JsonObject:
        return {
            "number": turn.number,
            "entryId": turn.entry.id,
            **views.row_of(turn, "preview compacted=is_compacted"),
            **views.row_of(turn.entry, "created_at"),
        }

    return Answer(
        lambda: transcript.turn_lines(turns, whole=show_all) or cli.plain_lines(_NO_TURNS), lambda: [*map(row, turns)]
    )


async def _history(store: Store, session: Session, last: int | None) -> Answer:
    talk = conversation.Conversation(store, session)
    entries = await talk.history(turns=last)

    def row() -> JsonValue:
        return [views.entry_row(entry) for entry in entries]

    if last is None:
        return Answer(lambda: transcript.said_lines(entries) or cli.plain_lines(_NO_TURNS), row)
    text = await talk.resume_text(last)
    return Answer(lambda: cli.plain_lines(text), row)


async def _last_answer(session: Session) -> Answer:
    answer = await session.context.latest_assistant()
    if answer is None:
        return Answer(lambda: cli.plain_lines("there is no answer yet"), lambda: None)
    return Answer(lambda: cli.plain_lines(message_text(answer.fields)), lambda: views.entry_row(answer))


async def _session(store: Store, session: Session) -> Answer:
    """Return the facts of a session. Its model is the one of most calls; its settings say which one comes next."""
    settings = await session.settings()
    info = await session.refresh()
    (listed,) = await listed_rows(store, [info])
    name, model = listed.name, listed.model or None
    tasks, parents = await session.tasks.links(), await session.tasks.parents()

    def lines() -> list[Line]:
        facts = views.session_facts(info, name)
        facts.append(("model", one_line(listed.model)))
        facts.append(("set to", "/".join(part for part in (settings.provider, settings.model) if part)))
        facts.append(("thinking", settings.thinking_level or ""))
        facts += [("task of", f"{link.parent_id} as {link.task_id}") for link in parents]
        facts += [("task", _told(link)) for link in tasks]
        return views.facts_lines(facts, cli.look())

    def row() -> JsonObject:
        return {
            **views.session_row(info, name),
            "model": model,
            "settings": views.row_of(settings, "thinking_level provider model"),
            "tasks": [views.task_row(link) for link in tasks],
        }

    return Answer(lines, row)


def _told(link: TaskLink) -> str:
    """Return a task on one line: its session, its name in the parent, and how it ended."""
    text = f"{link.child_id} as {link.task_id}" + (f", {link.status}" if link.status is not None else "")
    return text if link.summary is None else f"{text}: {one_line(link.summary)}"


# ---------------------------------------------------------------------------------------------------------------------
# The tree command.

_MOST_TASKS = 100


def _tree_check(options: SimpleNamespace) -> None:
    cli.refuse(options.count and not options.sizes, "--count and --no-sizes contradict each other; give one of them")


@cli.command(check=_tree_check, bar="reading", paged=True)
@cli.newest_argument
@click.option("--all", "show_all", is_flag=True, help="Show every entry, and leave out nothing.")
@click.option("--depth", type=click.IntRange(min=0), metavar="N", help="Show branches only up to this depth.")
@click.option("--sizes/--no-sizes", default=True, help="Show or hide sizes in tokens.", show_default=True)
@cli.count_option
async def tree(
    store: Store, session: Session, show_all: bool, depth: int | None, sizes: bool, count: bool, as_json: bool
) -> Answer:
    """Draw the tree of SESSION, by default the newest: branches, leaf, labels, forks, tasks, and what each branch cost.

    A line stands for a run of entries, and shows the id of the last one. Costs come from the ledger, whichever session
    paid; the first line shows what SESSION itself paid. A + means that some calls have no known cost, a dash that
    none has one.

    The active path goes straight down (●); what branches off is indented below the entry it left (○). A turn in
    which nothing branches is one line, of the last 40 turns; a history of up to 24 entries has a line for each
    entry. A line shows how many messages it stands for, the first words of the user in it, its size and its cost.
    Sessions that fork off stand below the entry (↳), task sessions at the end. The last line of a branch has the
    sum of the branch (Σ), if several of its lines cost something. Of more than 50 branches the smallest are folded
    away (+3 branches). Depth 0 is main lines only.

    With --json: an object: sessionId, name, leafId; entries, parents before children: id, parentId, kind, role,
    depth, createdAt, text (its beginning), size (in tokens; null if it is never part of a context), label, and of a
    call cost and costIsWhole; sizesCounted (false for estimates); spentTokens, spent, unpricedCalls and
    unknownCalls, as in sessions; branches: fromId (the entry it left), tipId, entries, active, cost (null if nobody
    knows it, or nothing was called), costIsWhole (false if some calls have no known cost); forks (as in sessions)
    and tasks (as in show).
    """
    info, name = await session.refresh(), await session.reports.name()
    entries = await session.get_tree()
    labels = await session.marks.labels() if as_json else await cli.marks_of(session)
    forks = await forks_seen(store.backend, info, {entry.id for entry in entries})
    forked = [fork for begun in forks.values() for fork in begun]
    links = await session.tasks.links()
    tasks = {}
    for link in links[:_MOST_TASKS]:
        child = await store.get_session(link.child_id)
        if child is not None:
            tasks[link.child_id] = child.info
    ends = {entry_id for entry_id in (*forks, *(link.entry_id for link in links)) if entry_id is not None}
    drawn = entries
    if not (show_all or as_json):
        from flue_py.formats.registry import FORMATS

        prefixes = tuple(f"{form.name.replace('-', '_')}." for form in FORMATS)
        drawn = without_program_rows(entries, prefixes, {*ends, *labels, *([info.leaf_id] if info.leaf_id else [])})
    plan = plan_tree(drawn, info.leaf_id, fold=not show_all, depth=depth, landmarks=labels, ends=ends)
    costs = entry_costs(entries, await session.money.entry_costs())
    line_costs, branch_costs = views.plan_costs(plan, drawn, costs, whole=as_json)
    names = await names_of(store.backend, forked) if as_json else {}

    def tokens() -> dict[str, int] | None:
        return cli.entry_sizes(entries, count=count) if sizes else None

    def row() -> JsonObject:
        branches = [(branch, branch_costs.get(branch.tip_id)) for branch in plan.branches]
        return {
            **views.tree_row(info, name, entries, labels, tokens() or {}, count, branches, costs),
            "forks": [views.session_row(fork, names[fork.id]) for fork in forked],
            "tasks": [views.task_row(link) for link in links],
        }

    def lines() -> Iterable[Line]:
        style = replace(
            cli.look(sizes=tokens(), counted=count, labels=labels), costs=line_costs, branch_costs=branch_costs
        )
        numbers = [
            counted(len(entries), "entry", "entries"),
            counted(len(plan.branches), "branch", "branches"),
            *([f"{views.spent_tokens(info)} tokens used"] if info.spent_tokens else []),
            _spent(info),
        ]
        rest = "".join(f", {number}" for number in numbers)
        yield ((style.fit(name, max(16, style.width - len(rest))) + rest, "bold"),)
        begun = {entry_id: infos for entry_id, infos in forks.items() if entry_id is not None}
        yield from views.plan_lines(plan, info.leaf_id, style, forks=begun, links=links, tasks=tasks)
        if len(drawn) < len(entries):
            rows = counted(len(entries) - len(drawn), "row", "rows")
            yield ((f"{rows} that the program wrote for itself left out; see --all", "dim"),)
        if info.leaf_id is None:
            yield (("the leaf is before the first entry", "bold green"),)
        yield from views.begun_lines("begun before the first entry", forks.get(None, ()), style)
        ids = {run.id for run in plan.runs}
        yield from views.task_lines([link for link in links if link.entry_id not in ids], tasks, style)

    return Answer(lines, row)


def _spent(info: SessionInfo) -> str:
    amount = views.spent(info, f"${cost_text(Cost(info.spent_picodollars))}")
    return "no known cost" if amount == "-" else amount


# ---------------------------------------------------------------------------------------------------------------------
# The usage command.

_day = click.DateTime(["%Y-%m-%d"])

RECENT_DAYS = 30
"""The default number of days that the view of the whole store goes back."""


class _Days(Frozen):
    """The days, first and last included, that a bill is of; None is without end. The heading says so to people."""

    first: date | None = None
    last: date | None = None
    heading: str | None = None

    def to_json(self) -> JsonObject:
        first, last = (None if day is None else day.isoformat() for day in (self.first, self.last))
        return {"firstDay": first, "lastDay": last}


def _days_shown(
    session: str | None,
    first: datetime | None,
    last: datetime | None,
    days: int | None,
    *,
    always: bool,
    zone: tzinfo = UTC,
) -> _Days:
    """Return the days that were asked for. Raises `InvalidArgument` for two answers to one question."""
    if sum((first is not None or last is not None, days is not None, always)) > 1:
        raise InvalidArgument("--days, --all and --first-day with --last-day exclude each other; give one of them")
    if first is not None or last is not None:
        return _Days(None if first is None else first.date(), None if last is None else last.date())
    if always or (session is not None and days is None):
        return _Days()
    count = RECENT_DAYS if days is None else days
    today = datetime.now(zone).date()
    start = today - timedelta(days=min(count - 1, today.toordinal() - 1))
    hint = "; --all shows what was before" if days is None else ""
    span = "today" if count == 1 else f"the last {count:,} days"
    return _Days(start, today, f"{span}, {start} to {today} ({datetime.now(zone).tzname()}){hint}")


def _usage_check(options: SimpleNamespace) -> None:
    session, choice = options.session, options.choice
    if session is not None and options.line:
        raise InvalidArgument("--line is of all sessions; leave out SESSION")
    if session is None and (options.path or options.leaf is not None):
        raise InvalidArgument("--path and --leaf are of a session; name it")
    if session is not None and (choice.until or choice.newest or choice.program or choice.git_branch):
        raise InvalidArgument("--program, --git-branch, --until and --newest choose sessions; leave out SESSION")
    first_day, last_day = options.first_day, options.last_day
    if session is None:
        first_day, last_day = _days_between(choice, first_day, last_day)
    _days_shown(session, first_day, last_day, options.days, always=options.always)


def _days_between(
    choice: cli.SessionChoice, first_day: datetime | None, last_day: datetime | None
) -> tuple[datetime | None, datetime | None]:
    """Return the first and the last day of --since and --until, which name days as --first-day and --last-day do."""
    if (choice.since and first_day) or (choice.until and last_day):
        raise InvalidArgument("--since and --first-day, or --until and --last-day, are the same; give one of them")
    since, until = (housekeeping.moment(*named) for named in ((choice.since, "--since"), (choice.until, "--until")))
    return since or first_day, until or last_day


@cli.command(check=_usage_check, bar="reading")
@click.argument("session", type=cli.SESSION_NAME, required=False)
@click.option("--leaf", metavar="ENTRY", type=cli.ENTRY_NAME, help="Read at this entry instead of the stored leaf.")
@click.option(
    "--by",
    "group_by",
    type=click.Choice(DIMENSIONS),
    multiple=True,
    help="Group the calls by this; may be given several times.",
)
@click.option("--path", is_flag=True, help="Calls for the entries on the path, whichever session paid.")
@click.option("--tree", is_flag=True, help="Calls of all sessions of the same tree.")
@click.option("--tasks", is_flag=True, help="Include the task sessions, and theirs.")
@cli.scope_option
@click.option("--scope-prefix", help="Only calls of scopes that begin with this.")
@click.option("--provider", help="Only calls of this provider.")
@cli.choice_options
@click.option("--agent", help="Only calls of this agent, or of the program that a session was imported from.")
@click.option("--purpose", help="Only calls for this purpose: turn, compaction, branch_summary ...")
@click.option("--outcome", help="Only calls with this outcome: failed, aborted ...")
@click.option("--branch", type=click.Choice(BRANCH_STATES), help="Only calls whose entry is there.")
@click.option("--first-day", type=_day, metavar="DAY", help="Only calls of this day (YYYY-MM-DD) and later.")
@click.option("--last-day", type=_day, metavar="DAY", help="Only calls of this day and earlier.")
@click.option("--days", type=click.IntRange(min=1, max=100_000), help="Only calls of the last N days, today included.")
@click.option("--all", "always", is_flag=True, help="All calls, of any day.")
@click.option("--tz", metavar="ZONE", help="Days of this zone, such as Europe/Berlin or UTC (default: the machine's).")
@click.option("--line", is_flag=True, help="One line for a prompt or a status bar: today, this block, this month.")
async def usage(
    store: Store,
    session: str | None,
    leaf: str | None,
    group_by: tuple[Dimension, ...],
    path: bool,
    tree: bool,
    tasks: bool,
    scope_prefix: str | None,
    provider: str | None,
    choice: cli.SessionChoice,
    agent: str | None,
    purpose: str | None,
    outcome: str | None,
    branch: BranchState | None,
    first_day: datetime | None,
    last_day: datetime | None,
    days: int | None,
    always: bool,
    tz: str | None,
    line: bool,
) -> Answer:
    """Show the tokens and the exact cost of the path of SESSION, or of all calls.

    With SESSION, --since is an entry of it; --since and --leaf show a part of the path. With any other option, or
    without SESSION, the numbers come from the ledger, which keeps every paid call. Without SESSION they are of the last
    30 days, by day, unless other days or --by are options. A week is named by its Monday; a block is the five hours
    that begin with the hour of the first call after the block before (of a program, with --agent). A project is the
    folder that a session worked in at its first paid call; an agent is the one that a message names, else the program
    that a session was imported from. "-" means unknown.

    With --since or --leaf, the ledger's numbers are for the entries of that part of the path. The calls of a
    deleted session are found by its whole id. --branch: active and abandoned are calls whose entry is on the active
    path of a session, or on that of none; gone are those of deleted entries; alone are those that never had one.

    With --json, of the path: an object: input, output, cacheRead, cacheWrite, totalTokens (integers, null if no
    call reported any), cost (total: what the ledger knows of the calls, or what the entries report if that is more,
    because another session paid; input, output, cacheRead, cacheWrite as reported; decimal strings, null if nobody
    knows), calls, unpricedCalls, unknownCalls, paidTokens (the ledger's, branch summaries included), sinceId,
    leafId, onPath. Of the ledger: total, rows and onPath; a row has its groups, calls, unpricedCalls, unknownCalls,
    input, output, cacheRead, cacheWrite5m, cacheWrite1h, reasoning, totalTokens (each null if none of its calls
    reported any), costPicodollars and costUsd (a decimal string; both null if no cost is known).
    """
    zone = cli.zone(tz)
    if line:
        return await _status_line(store, agent, zone)
    filters = (store.scope, scope_prefix, provider, agent, purpose, outcome, branch, first_day, last_day, days)
    is_filtered = replace(choice, since=None) != cli.SessionChoice() or any(value is not None for value in filters)
    asks_ledger = group_by or path or tree or tasks or always or is_filtered
    since = choice.since
    payer: Session | None = None
    after: str | None = None
    end: LeafChoice = STORED
    if session is not None:
        try:
            payer = await store.find_session(session)
        except SessionNotFound:
            # What a deleted session paid is asked for by its whole id.
            if not asks_ledger or path or since is not None or leaf is not None:
                raise
    if payer is not None:
        after = None if since is None else await payer.resolve_entry_id(since)
        end = STORED if leaf is None else await payer.resolve_entry_id(leaf)
        if not asks_ledger:
            window = await payer.money.aggregate_usage_since(after, leaf=end, told=True)
            return Answer(lambda: views.usage_lines(window), lambda: views.usage_row(window))
    if session is None:
        first_day, last_day = _days_between(choice, first_day, last_day)
    shown = _days_shown(session, first_day, last_day, days, always=always, zone=zone)
    payers = await cli.chosen_sessions(store, choice) if choice.reads_sessions else None
    groups: tuple[Dimension, ...] = group_by or (("day",) if session is None else ())
    report = await store.usage(
        payers if payers is not None else session if payer is None else payer.id,
        tree=tree,
        tasks=tasks,
        scope_prefix=scope_prefix,
        provider=provider,
        model=choice.model,
        agent=agent,
        project=choice.project,
        purpose=purpose,
        outcome=outcome,
        branch=branch,
        first_day=shown.first,
        last_day=shown.last,
        group_by=groups,
        path=path,
        since=after,
        leaf=end,
        tz=zone,
    )
    heading: list[Line] = [] if shown.heading is None else [((shown.heading, "dim"),)]
    return Answer(
        lambda: [*heading, *views.bill_lines(report, groups)], lambda: {**report.to_json(), **shown.to_json()}
    )


async def _status_line(store: Store, agent: str | None, zone: tzinfo) -> Answer:
    """Return what was spent today, in the block that is running, and this month, on one line."""
    now = datetime.now(zone)
    month = await store.usage(agent=agent, first_day=now.date().replace(day=1), group_by=["day", "block"], tz=zone)
    today = usage_report((row for row in month.rows if row.group["day"] == now.date()), ()).total
    latest = max((str(row.group["block"]) for row in month.rows), default="")
    ends = None if not latest else datetime.fromisoformat(latest) + timedelta(hours=5)
    row: JsonObject = {"today": today.to_json(), "block": None, "month": month.total.to_json()}
    texts = [f"today {_on_the_line(today)}"]
    if ends is not None and ends > now:
        block = usage_report((row for row in month.rows if row.group["block"] == latest), ()).total
        row["block"] = {**block.to_json(), "ends": views.iso(ends.astimezone(UTC))}
        texts.append(f"block {_on_the_line(block)} until {ends.astimezone(zone):%H:%M}")
    texts.append(f"month {_on_the_line(month.total)}")
    return cli.said(" | ".join(texts), row)


def _on_the_line(row: UsageRow) -> str:
    cost, tokens = cost_text(Cost(row.picodollars, is_partial=row.unpriced_calls > 0)), row.known["totalTokens"]
    return f"${cost} {'-' if tokens is None else short_count(tokens)} tokens"


# ---------------------------------------------------------------------------------------------------------------------
# The next steps, in three lines: for a person at a terminal who names no command. The database is only read.

Steps: TypeAlias = Callable[[str], tuple[Line, Line, Line]]
"""Makes the lines, given how a command line begins: ``flue-py``, perhaps with the database."""

_ALL = "    (all commands: flue-py --help)"
_LONGEST_PATH = 400
_ID = 8
_PLAIN = expression(r"[0-9A-Za-z][0-9A-Za-z_.:-]*")


def print_next_steps(place: Place, *, is_typed: bool) -> int:
    """Print the next steps with a database, and return the exit code: of the error, if it cannot be read.

    ``is_typed`` says that it was named by --db, which the next command needs then, too.
    """
    import shlex

    code = 0
    try:
        steps = _steps(place)
    except FlueError as error:
        steps, code = _refused(error, place.target), exit_code_of(error)
    begin = ["flue-py"]
    if is_typed:
        # A URL may hold a password, and a path with signs that a terminal acts on cannot be copied.
        is_shown = place.is_file and place.target.isprintable()
        begin = [f"flue-py --db {shlex.quote(place.target)}"] * is_shown + ["flue-py --db ..."]
    width = cli.look().width
    layouts = [steps(start) for start in begin]
    cli.print_lines(
        next((lines for lines in layouts if all(cells(text_of(line)) <= width for line in lines)), layouts[-1])
    )
    return code


def _steps(place: Place) -> Steps:
    if not place.is_file and migrate.dialect_of(place.target) != "sqlite":
        return finished(_on_store(place, place.target, is_file=False), needs_loop=True)
    path = str(migrate.path_of(place.target))
    if not exists(path) or not getsize(path):  # unlike Path.exists, it has no opinion on names that no file can have
        return _beginning(f"There is no database at {_room(path, 29)} yet.")
    return finished(_on_store(place, path, is_file=True), needs_loop=False)


async def _on_store(place: Place, target: str, *, is_file: bool) -> Steps:
    # Opening a database for writing would make the tables that it lacks, and upgrade those of an older format.
    seen = await migrate.look_at(target)
    if seen.found is None:
        return _beginning(f"There are no sessions in {_room(seen.location, 30)} yet.")
    if seen.found < seen.format:
        return _older(seen.location, seen.found, seen.format)
    async with flue_py.open(
        target,
        read_only=is_file,
        threads=False if is_file else None,
        prices=False,
        key=place.keys(),
        unchecked=place.unchecked,
    ) as store:
        page = await store.list_sessions(limit=1)
        for session_id in page.damaged:
            raise damaged_session(session_id)
        if not page.sessions:
            return _beginning(f"There are no sessions in {_room(seen.location, 30)} yet.")
        return await _going_on(store, (await store.info()).sessions, page.sessions[0])


def _beginning(text: str) -> Steps:
    return lambda flue: (
        ((text, ""),),
        (("Import your own sessions:  ", ""), (f"{flue} import auto --discover", "bold")),
        (("See a real one first:      ", ""), ("flue-py demo", "bold"), (_ALL, "dim")),
    )


async def _going_on(store: Store, sessions: int, latest: SessionInfo) -> Steps:
    from importlib.util import find_spec

    name = (await names_of(store.backend, [latest]))[latest.id]
    passed = transcript.age(datetime.now(UTC) - latest.active_at)
    head = f"{counted(sessions, 'session')}; last active {passed} ago: "
    shown = cli.look()
    first = (head, ""), (clip(name, max(_ID, shown.width - cells(head)), shown.glyphs.cut), "bold")
    session = await _short_id(store, latest)

    def steps(flue: str) -> tuple[Line, Line, Line]:
        looking: Line = ((f"{flue} browse", "bold"),)
        if find_spec("textual") is None:
            looking = (f"{flue} sessions", "bold"), (", then ", ""), (f"{flue} show {session} --history", "bold")
        return (
            first,
            (("Look at them:  ", ""), *looking),
            (("Find words:    ", ""), (f"{flue} search WORDS", "bold"), (_ALL, "dim")),
        )

    return steps


async def _short_id(store: Store, latest: SessionInfo) -> str:
    """Return the beginning of a session's id that names it, or SESSION where there is none to type."""
    short = latest.id[:_ID]
    if _PLAIN.fullmatch(short):
        with suppress(FlueError):
            if (await store.find_session(short)).id == latest.id:
                return short
    return "SESSION"


def _older(location: str, from_format: int, current: int) -> Steps:
    text = f" has format {from_format}, and this flue-py works on format {current}."
    return lambda flue: (
        ((_room(location, len(text)) + text, ""),),
        (("Upgrade it:    ", ""), (f"{flue} migrate", "bold")),
        (("All commands:  ", ""), ("flue-py --help", "bold")),
    )


def _refused(error: FlueError, target: str) -> Steps:
    """Return the message of an error, and its advice."""
    text, _, advice = on_one_line(in_commands(str(error))).partition("; ")
    for path in (target, repr(target)):
        if text.startswith(path):
            rest = text.removeprefix(path)
            text = _room(path, cells(rest)) + rest
    advice = advice or "name another database with --db, or FLUE_PY_DB"
    shown = cli.look()
    return lambda _: (
        ((clip(text, shown.width, shown.glyphs.cut), "red"),),
        ((clip(advice[:1].upper() + advice[1:], shown.width, shown.glyphs.cut), ""),),
        (("All commands:  ", ""), ("flue-py --help", "bold")),
    )


def _room(path: str, taken: int) -> str:
    """Return the end of a path that fits a line in which so many cells are taken."""
    shown = cli.look()
    return clip(one_line(path, _LONGEST_PATH)[::-1], max(_ID, shown.width - taken), shown.glyphs.cut)[::-1]
