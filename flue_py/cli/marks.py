"""The budget command."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Literal, TypeVar

import click

from flue_py.cli import command as cli
from flue_py.cli.command import Answer, Plan
from flue_py.cli.main import HelpfulGroup
from flue_py.core.json import JsonObject, JsonValue
from flue_py.core.ledger import BUDGET_PERIODS, Budget, BudgetPeriod, Money, shown_amount
from flue_py.core.sessions import Document, DocumentFilter, DocumentName
from flue_py.errors import AmbiguousId, BudgetNotFound, FixTheCall
from flue_py.lazy import lazy_module
from flue_py.render import views
from flue_py.render.lines import counted, printable
from flue_py.sessions.handle import listed_sessions
from flue_py.sessions.session import Session
from flue_py.sessions.store import REPL, Store

if TYPE_CHECKING:
    from flue_py import models
    from flue_py.agents import harness
else:
    models = lazy_module("flue_py.models")
    harness = lazy_module("flue_py.agents.harness")

# ---------------------------------------------------------------------------------------------------------------------
# The title command.


def _title_check(options: SimpleNamespace) -> None:
    if [options.text is not None, options.is_cleared, options.model is not None].count(True) != 1:
        raise click.UsageError("give a TITLE, --clear, or --model")
    cli.refuse(options.show_all == (options.session is not None), "name a SESSION, or give --all with --model")
    cli.refuse(options.show_all and options.model is None, "--all goes with --model")


@cli.command(check=_title_check)
@click.argument("session", type=cli.SESSION, required=False)
@click.argument("text", metavar="TITLE", required=False)
@click.option(
    "--clear", "is_cleared", is_flag=True, help="Take the title away: one that a program made is shown again."
)
@click.option("--model", metavar="MODEL", help="The model that writes one, such as openai:gpt-5 (extra: models).")
@click.option("--all", "show_all", is_flag=True, help="With --model: all sessions without a title, newest first.")
@click.option("--limit", type=click.IntRange(min=1), help="With --all: at most so many.")
async def title(
    store: Store,
    session: Session | None,
    text: str | None,
    is_cleared: bool,
    model: str | None,
    show_all: bool,
    limit: int | None,
    tell: cli.Tell,
) -> Answer:
    """Give SESSION a TITLE, or take it away; or have a model write one, from the first words of the conversation.

    A title that was given is shown before one that was made. What the model costs is in the ledger, for the purpose
    title. A session of which it writes none is named on stderr, and the exit code is 1.

    With --json: a list of objects: sessionId, title, autoTitle.
    """
    named = [] if session is None else [session]
    notes: list[str] = []
    if show_all:
        async with aclosing(listed_sessions(partial(store.list_sessions, limit=_PAGE))) as listed:
            infos = [info async for info in listed if info.message_count and not (info.title or info.auto_title)]
        found = [await store.get_session(info.id) for info in infos[:limit]]
        named = [each for each in found if each is not None]
    asked = None if model is None else models.open_model(model)
    for number, each in enumerate(named):
        tell(number, len(named), "asking for titles")
        if asked is None:
            await each.set_title(None if is_cleared else text)
            continue
        try:
            await harness.write_title(each, asked)
        except FixTheCall as error:
            notes.append(f"Error: {error}")
    rows: list[JsonValue] = [{"sessionId": each.id, **views.row_of(each.info, "title auto_title")} for each in named]
    lines = [f"{each.id}: {each.info.shown_title or '(no title)'}" for each in named] or ["every session has a title"]
    return Answer(lambda: cli.plain_lines("\n".join(lines)), lambda: rows, notes=notes, code=int(bool(notes)))


# ---------------------------------------------------------------------------------------------------------------------
# The budget command.

_PAGE = 1000

Item = TypeVar("Item")


@click.group(cls=HelpfulGroup)
def budget() -> None:
    """Set, list, show and delete budgets of tokens or of money.

    BUDGET is a budget's id or the beginning of it. With --json: an object, of list an array of them: id, covers
    (session, tasks or scope), sessionId, scope, unit (tokens or usd), allowed, spent, reserved, left, beganWith,
    period, tz, periodBegan, periodEnds (each null without a period), createdAt, updatedAt; of rm also dryRun; of show
    also held: reservationId, sessionId, amount, createdAt, expiresAt. Money is a string in US dollars. If its time zone
    is not known here, spent and left are null, and fault says so.
    """


budget.synonyms = {"ls": "list", "delete": "rm", "remove": "rm", "add": "set", "new": "set", "create": "set"}

budget_argument = click.argument("budget_id", metavar="BUDGET")


def _begins(text: str | None, cost: str | None) -> Money | Literal["ledger"] | None:
    if text is None or cost is not None or text == "ledger":
        return text
    if not (text.isascii() and text.isdigit()):
        raise click.BadParameter(f"{text!r} is neither a number of tokens nor 'ledger'", param_hint="--spent-so-far")
    return int(text[:30])


def _check_set(options: SimpleNamespace) -> None:
    if [options.session, options.scope, options.scope_prefix, options.show_all or None].count(None) != 3:
        raise click.UsageError("name a SESSION, or give --scope, --scope-prefix or --all")
    cli.refuse(options.tz is not None and options.period is None, "--tz is the time zone of a --period")
    if (options.tokens is None) == (options.cost is None):
        raise click.UsageError("give either --tokens or --cost; set a budget for each")
    if options.tasks and options.session is None:
        raise click.UsageError("--tasks is for a SESSION; a budget of a scope covers all of its sessions")
    _begins(options.spent_so_far, options.cost)


@cli.command("set", group=budget, check=_check_set)
@click.argument("session", type=cli.SESSION, required=False)
@click.option("--scope", help="Cover all sessions of this tenant or user, instead of SESSION.")
@click.option("--scope-prefix", help="Cover all sessions whose scope begins with this, instead of SESSION.")
@click.option("--all", "show_all", is_flag=True, help="Cover all sessions of the store, instead of SESSION.")
@click.option("--tasks", is_flag=True, help="Cover the task sessions of SESSION, too, and theirs.")
@click.option("--tokens", type=click.IntRange(min=0), help="The tokens that may be used in all.")
@click.option("--cost", metavar="USD", help="The US dollars that may be spent in all.")
@click.option(
    "--spent-so-far",
    metavar="AMOUNT",
    help="The amount that a new budget starts with, or 'ledger' for what the ledger has.",
)
@click.option("--period", type=click.Choice(BUDGET_PERIODS), help="Allow so much in each of these, by the ledger.")
@click.option("--tz", metavar="ZONE", help="Periods of this zone, such as Europe/Berlin (default: the machine's).")
async def set_(
    store: Store,
    session: Session | None,
    scope_prefix: str | None,
    show_all: bool,
    tasks: bool,
    tokens: int | None,
    cost: str | None,
    spent_so_far: str | None,
    period: BudgetPeriod | None,
    tz: str | None,
) -> Answer:
    """Set what SESSION, a scope, or all may use. An existing budget keeps what it has counted."""
    budget = await store.set_budget(
        session,
        scope_prefix="" if show_all else scope_prefix,
        tasks=tasks,
        tokens=tokens,
        cost=cost,
        spent_so_far=_begins(spent_so_far, cost),
        period=period,
        tz=tz,
    )
    until = views.period_end(budget)
    text = (
        f"budget {budget.id} of {budget.target}: {shown_amount(budget.allowed, budget.unit)} allowed, "
        f"{shown_amount(budget.left, budget.unit)} left{until and f' until {until}'}"
    )
    return cli.said(text, views.budget_row(budget))


def _check_list(options: SimpleNamespace) -> None:
    if options.session is not None and (options.scope, options.scope_prefix) != (None, None):
        raise click.UsageError("name a SESSION or give --scope or --scope-prefix, not both")


@cli.command("list", group=budget, check=_check_list)
@click.argument("session", type=cli.SESSION, required=False)
@cli.scope_option
@click.option("--scope-prefix", help="Only the budgets of scopes that begin with this.")
async def list_(store: Store, session: Session | None, scope_prefix: str | None) -> Answer:
    """List all budgets, oldest first, or those that cover SESSION."""
    budgets = await _all_budgets(store, scope_prefix) if session is None else await session.money.budgets()
    return Answer(lambda: views.budget_lines(budgets), lambda: [views.budget_row(budget) for budget in budgets])


async def _all_budgets(store: Store, scope_prefix: str | None = None) -> list[Budget]:
    return await _all_pages(
        lambda last: store.list_budgets(scope_prefix=scope_prefix, after=None if last is None else last.id, limit=_PAGE)
    )


async def _all_pages(read: Callable[[Item | None], Awaitable[Sequence[Item]]]) -> list[Item]:
    """Return the items of all pages; ``read`` returns up to `_PAGE` items that follow the one given."""
    items: list[Item] = []
    while True:
        page = await read(items[-1] if items else None)
        items += page
        if len(page) < _PAGE:
            return items


async def _find_budget(store: Store, name: str) -> Budget:
    """Return the one budget whose id is, or begins with, ``name``. Raises `BudgetNotFound`, `AmbiguousId`."""
    exact = await store.get_budget(name)
    if exact is not None:
        return exact
    matches = [budget for budget in await _all_budgets(store) if name and budget.id.startswith(name)]
    if not matches:
        raise BudgetNotFound(name)
    if len(matches) > 1:
        raise AmbiguousId(name, tuple(budget.id for budget in matches))
    return matches[0]


@cli.command(group=budget)
@budget_argument
async def show(store: Store, budget_id: str) -> Answer:
    """Show BUDGET: what is allowed, spent, reserved and left, and the open reservations."""
    budget = await _find_budget(store, budget_id)
    reservations = await store.held_amounts(budget.id)
    return Answer(
        lambda: views.facts_lines(views.budget_facts(budget, reservations), cli.look()),
        lambda: {**views.budget_row(budget), "held": [views.held_row(amount, budget.unit) for amount in reservations]},
    )


@cli.destructive(group=budget)
@budget_argument
async def rm(store: Store, budget_id: str) -> Plan:
    """Delete BUDGET and its reservations. The ledger is kept."""
    planned = await _find_budget(store, budget_id)

    def answer(budget: Budget, verb: str, *, dry_run: bool) -> Answer:
        spent = "" if budget.fault is not None else f", {shown_amount(budget.spent, budget.unit)} spent"
        return cli.said(
            f"{verb} budget {budget.id} of {budget.target}{spent}", {**views.budget_row(budget), "dryRun": dry_run}
        )

    async def go(store: Store) -> Answer:
        return answer(await store.delete_budget(planned.id), "deleted", dry_run=False)

    return Plan(f"budget {planned.id} of {planned.target}", answer(planned, "would delete", dry_run=True), go)


# ---------------------------------------------------------------------------------------------------------------------
# The exclude command.


clear_option = click.option("--clear", is_flag=True, help="Take it back.")


@cli.command()
@cli.session_argument
@cli.entry_argument
@cli.part_option
@clear_option
@cli.why_option
async def exclude(session: Session, entry: str, part: int | str | None, clear: bool, why: str | None) -> Answer:
    """Leave ENTRY of SESSION, or a part of it, out of the context; with --clear put it back.

    Later entries stay, and undo reverses it. A tool call goes with its results. It says how many tokens that saves.
    With --json: as pin.
    """
    if clear:
        return cli.marked(session, "included", entry, await session.marks.include(entry, part, by=cli.BY, why=why))
    return cli.marked(session, "excluded", entry, await session.marks.exclude(entry, part, by=cli.BY, why=why))


# ---------------------------------------------------------------------------------------------------------------------
# The label command.


def _check(options: SimpleNamespace) -> None:
    cli.refuse(bool(options.text) == options.is_removal, "give the TEXT of the label, or --clear")


@cli.command(check=_check)
@cli.session_argument
@cli.entry_argument
@click.argument("text", required=False)
@click.option("--clear", "is_removal", is_flag=True, help="Remove the label.")
@cli.why_option
async def label(
    session: Session, entry: str, text: str | None, is_removal: bool, why: str | None, as_json: bool
) -> Answer:
    """Label ENTRY of SESSION with TEXT, in the views of this session.

    With --json: an object: sessionId, entryId, label.
    """
    from flue_py.context.tokens import count_tokens

    await session.marks.set_label(entry, text, by=cli.BY, why=why)
    tokens = 0 if as_json else count_tokens(await session.build_context()).tokens
    done = f"entry {entry} is called {text}" if text else f"entry {entry} has no label"
    row: JsonObject = {"sessionId": session.id, "entryId": entry, "label": text}
    return cli.said(f"{done}; {cli.context_change(tokens, tokens)}", row)


# ---------------------------------------------------------------------------------------------------------------------
# The memory command.


@click.group(cls=HelpfulGroup)
def memory() -> None:
    """Keep, list, find and delete what agents remember from session to session.

    With --json, of add an object: name, type, space (repl, or agents/ and a name), project (null for all folders),
    scope, source, characters, createdAt, changedAt; of list and search an array of them, each with text; of rm an
    object: dryRun, and forgotten, which is one, or null if there was none.
    """


memory.synonyms = {
    "ls": "list", "find": "search", "set": "add", "remember": "add", "delete": "rm", "remove": "rm", "forget": "rm",
}  # fmt: skip

agent_option = click.option("--agent", metavar="NAME", help="The memory of this agent (default: that of the REPL).")
_memory_options = cli.all_of(agent_option, cli.document_project_option, cli.scope_option)
"""The options that say whose memory it is."""


def _space(agent: str | None) -> str:
    return REPL if agent is None else f"agents/{agent}"


@cli.command(group=memory, create=True)
@click.argument("name")
@click.argument("text")
@click.option("--type", "type_", metavar="WORD", default="user", show_default=True, help="What it is about.")
@_memory_options
async def add(store: Store, name: str, text: str, type_: str, agent: str | None, project: str | None) -> Answer:
    """Remember TEXT under NAME, in place of what was remembered under it. "-" reads TEXT from standard input.

    A WORD of --type is user, feedback, project, reference or another one. A database that is missing is made.
    """
    body = cli.text_from_stdin("TEXT") if text == "-" else text
    info = await store.remember(name, body, type=type_, space=_space(agent), project=project or "")
    return cli.said(
        f"remembered {info.name!r}{views.place_of(info)}, {counted(info.chars, 'character')}", views.info_row(info)
    )


@cli.command("list", group=memory, paged=True)
@_memory_options
async def memory_list_(store: Store, agent: str | None, project: str | None) -> Answer:
    """List what is remembered: everything, or of one agent or folder, in order of agent, folder and name."""
    where = DocumentFilter("memory", store.scope or "", None if agent is None else _space(agent), project)
    memories = await _all_pages(
        lambda last: store.backend.read_documents(where, after=None if last is None else last.info.id, limit=_PAGE)
    )
    return _listed(memories, "nothing is remembered")


@cli.command(group=memory, paged=True)
@click.argument("words", metavar="WORDS...", nargs=-1, required=True)
@_memory_options
async def search(store: Store, words: tuple[str, ...], agent: str | None, project: str | None) -> Answer:
    """Find memories whose names or texts have all WORDS, taken literally and in any case."""
    memories: list[Document] = []
    after: DocumentName | None = None
    while True:
        page = await store.search_memories(
            " ".join(words), space=None if agent is None else _space(agent), project=project, after=after, limit=_PAGE
        )
        memories += page.documents
        after = page.after
        if after is None:
            return _listed(memories, "nothing found")


def _listed(memories: Sequence[Document], nothing: str) -> Answer:
    if not memories:
        return cli.said(nothing, [])
    return Answer(lambda: views.memory_lines(memories), lambda: [views.document_row(memory) for memory in memories])


@cli.destructive("rm", group=memory)
@click.argument("name")
@_memory_options
async def memory_rm(store: Store, name: str, agent: str | None, project: str | None) -> Plan:
    """Forget the memory NAME. Its text is kept nowhere."""
    space, folder = _space(agent), project or ""
    address = DocumentName(store.scope or "", "memory", space, folder, name)

    async def forget(store: Store) -> bool:
        return await store.forget(name, space=space, project=folder)

    return cli.document_plan(
        await store.backend.get_document(address),
        f"{printable(repr(name))}{views.place_of(address)}",
        forget,
        ("memory", "forget", "forgot", "forgotten"),
    )


# ---------------------------------------------------------------------------------------------------------------------
# The pin command.


@cli.command()
@cli.session_argument
@cli.entry_argument
@clear_option
@cli.why_option
async def pin(session: Session, entry: str, clear: bool, why: str | None) -> Answer:
    """Keep ENTRY word for word in every later compaction of SESSION, a tool call with its results.

    With --clear compactions may summarize it again. It says how many tokens that is. With --json: an object:
    sessionId, entryId, entryIds, exclusionIds, tokensBefore, tokensAfter (of the context), ownTokens (of the entries).
    """
    if clear:
        return cli.marked(session, "unpinned", entry, await session.marks.unpin(entry, by=cli.BY, why=why))
    return cli.marked(session, "pinned", entry, await session.marks.pin(entry, by=cli.BY, why=why))
