"""The demo: a tour through a real session of a coding agent. NOTICE says where the session is from."""

from __future__ import annotations

import asyncio
import gzip
import tempfile
from collections.abc import AsyncIterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TypeAlias

import click
from msgspec.structs import replace
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

import flue_py
from flue_py.context.tokens import count_message_tokens, count_tokens
from flue_py.core.context import ContextEntry, entry_costs
from flue_py.core.json import JsonObject
from flue_py.core.kinds import SHOWN_KINDS
from flue_py.db.files import make_private_folder
from flue_py.db.waiting import run_here
from flue_py.errors import SessionExists
from flue_py.formats.kit import ParseReport, SessionPart, read_lines
from flue_py.formats.pi import PiReader
from flue_py.render import views
from flue_py.render.lines import ASCII, UNICODE, Line, Look, counted, printable
from flue_py.sessions.housekeeping import delete_all
from flue_py.sessions.money import listed_rows
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.system import in_full

# ---------------------------------------------------------------------------------------------------------------------
# The steps of the demo, and the lines that it shows of each.

Section: TypeAlias = tuple[str, Sequence[Line]]
"""A part of the demo: its title, and the lines below it."""

MODEL = {"api": "anthropic-messages", "provider": "anthropic", "model": "claude-sonnet-4-5"}
SUMMARY = """\
## Goal
Themes for the terminal interface that users can edit while it runs, then a minor release.

## Done
- Custom themes are watched and reloaded; a broken one falls back to the dark theme and never crashes.
- Tool titles, tool output and user messages have colours of their own; docs and changelog describe them.

## Next
- The interface package was never committed with its new types: commit it, build, then release."""


def read_transcript() -> tuple[SessionPart, ParseReport]:
    """Return the session that comes with the package, and the report on its rows."""
    packed = files("flue_py.demo").joinpath("transcript.jsonl.gz").read_bytes()
    reader = PiReader("transcript.jsonl")
    (session,) = read_lines(reader, gzip.decompress(packed).splitlines())
    return session, reader.report()


async def tell(store: Store, look: Look) -> AsyncIterator[Section]:
    """Import the session, work with it, and yield the sections to show, in order.

    Raises `SessionExists` if the demo's session is in the store already.
    """
    parsed, report = read_transcript()
    if await store.get_session(str(parsed.session.id)) is not None:
        raise SessionExists(
            str(parsed.session.id),
            detail=f"this database holds the demo already, as session {parsed.session.id!r}; name another with --db",
        )
    new = replace(parsed.session, title="Themes for the terminal interface")
    session = await store.import_session(new, parsed.entries, leaf=parsed.leaves[-1])
    rows = f"{counted(report.rows, 'row')} imported as {counted(len(parsed.entries), 'entry', 'entries')}"
    lines = [_line(rows), _line(f"session {session.id}, leaf {session.leaf_id}")]
    yield "A real session of the pi coding agent", lines
    before_call, task = await _work_with(session)
    async for section in _views_of(session, before_call, look):
        yield section
    infos = (await store.list_sessions()).sessions
    yield "The sessions", views.session_lines(await listed_rows(store, infos), look)
    names = {info.id: views.session_name(info, None) for info in infos}
    yield "Deleting the task session", views.receipt_lines(await delete_all(store, [task.id]), names)
    left = await listed_rows(store, (await store.list_sessions()).sessions)
    yield "The sessions that are left", views.session_lines(left, look)
    verified = await store.verify()
    problems = counted(len(verified.problems), "problem")
    yield "The store checks itself", [_line(f"{counted(verified.entries, 'entry', 'entries')}: {problems}")]


def _line(text: str) -> Line:
    return ((text, ""),)


async def _work_with(session: Session) -> tuple[str | None, Session]:
    """Fork, rewind, append, compact, start a task; return the leaf before the last call, and the task session."""
    turns = await session.turns()
    fork = await session.fork(at=turns[18].parent_id, title="What if themes had a schema?")
    await fork.append_messages(
        [
            _user("Check themes against a JSON schema, before they are loaded."),
            _assistant("Done: a theme that does not fit the schema is refused, with the line at fault.", 1, 64, 9_821),
        ]
    )

    await session.rewind(turns=-1)
    if session.leaf_id is not None:
        await session.marks.set_label(session.leaf_id, "before the release")
    await session.append_messages(
        [
            _user("Before we release: is everything in the interface package committed?"),
            _assistant("No. Its new theme types were never committed; the release would not build.", 3, 58, 176_102),
        ],
        source="prompt",
    )

    tokens = count_tokens(await session.build_context()).tokens
    await session.append_compaction(
        SUMMARY,
        first_kept_entry_id=(await session.turns())[-3].id,
        tokens_before=tokens,
        usage=_usage(1_204, 163, tokens),
    )
    request = await session.append_message(_user("Commit them, and start a task that checks the changelog."))
    await session.append_message(_assistant("Committed. The task is running.", 12, 41, 4_310))

    task = await session.tasks.create(task_id="changelog", title="Check the changelog")
    await task.append_message(_user("Does CHANGELOG.md name every new theme token?"), source="task")
    part = await task.tasks.create(task_id="tokens", title="List the theme tokens")
    await part.append_message(_user("List the tokens in theme.ts."), source="task")
    await part.append_message(_assistant("userMessageText, toolTitle, toolOutput.", 2, 19, 812))
    await task.append_message(_assistant("It names all three.", 2, 11, 1_090))
    return request.leaf_id, task


def _user(text: str) -> JsonObject:
    return {"role": "user", "content": text}


def _assistant(text: str, fresh: int, output: int, cached: int) -> JsonObject:
    return {
        "role": "assistant",
        "content": [{"type": "text", "text": text}],
        **MODEL,
        "usage": _usage(fresh, output, cached),
        "stopReason": "stop",
    }


def _usage(fresh: int, output: int, cached: int) -> JsonObject:
    """Return a call's usage at 3 dollars a million tokens of input, 15 of output, 0.30 of cache reads."""
    cost = {"input": fresh * 3e-6, "output": output * 15e-6, "cacheRead": cached * 0.3e-6, "cacheWrite": 0}
    tokens = {"input": fresh, "output": output, "cacheRead": cached, "cacheWrite": 0}
    return {
        **tokens,
        "totalTokens": fresh + output + cached,
        "cost": {name: round(dollars, 9) for name, dollars in {**cost, "total": sum(cost.values())}.items()},
    }


async def _views_of(session: Session, before_call: str | None, look: Look) -> AsyncIterator[Section]:
    entries = await session.get_tree()
    sizes = {
        entry.id: count_message_tokens(ContextEntry(entry).data).tokens
        for entry in entries
        if entry.kind in SHOWN_KINDS
    }
    look = replace(look, sizes=sizes, labels=await session.marks.labels())
    costs = entry_costs(entries, await session.money.entry_costs())
    tree = views.tree_lines(entries, session.leaf_id, look, costs=costs)
    yield "The tree, with its branches and its leaf", tree
    path = await session.get_active_path()
    yield "The active path", views.path_lines(path, look, leaf=session.leaf_id, head=3, tail=7)
    items = await session.build_context_entries()
    count = count_tokens(item.data for item in items)
    summary = views.context_summary(items, count.tokens, is_estimate=count.is_estimate)
    yield "The context the model sees", [_line(summary), *views.context_lines(items, look, head=4, tail=6)]
    window = await session.money.aggregate_usage_since(before_call, told=True)
    yield "The usage of the last call", views.usage_lines(window)


# ---------------------------------------------------------------------------------------------------------------------
# The command ``demo``: the story on a terminal.


@click.command()
@click.option("--db", "database", metavar="PATH", help="Use this database, and keep it.")
@click.pass_context
def demo(ctx: click.Context, database: str | None) -> None:
    """Show a real session: its tree, path, context and usage, and what deleting a task takes along.

    It works on a temporary database, which is removed at the end, or on the one named with --db.
    """
    if database is None and ctx.obj is not None and ctx.obj.is_named:
        database = ctx.obj.target
    console = Console(highlight=False, markup=False, emoji=False)
    if database is None:
        with tempfile.TemporaryDirectory(prefix="flue-py-demo-") as folder:
            path = Path(folder) / "sessions.db"
            console.print(f"database: {path} (temporary, removed at the end)", soft_wrap=True)
            run_here(_show(str(path), console))
        return
    is_file = "://" not in database
    if is_file:
        database = in_full(database)
        make_private_folder(Path(database).parent)
    console.print(f"database: {printable(database)} (kept)", soft_wrap=True)
    (run_here if is_file else asyncio.run)(_show(database, console))


async def _show(database: str, console: Console) -> None:
    glyphs = UNICODE if console.encoding.startswith("utf") else ASCII
    async with flue_py.open(database, threads=None if "://" in database else False) as store:
        async for title, lines in tell(store, Look(console.width, glyphs=glyphs)):
            console.print()
            console.print(Rule(title, align="left", characters="─" if glyphs is UNICODE else "-"))
            for line in lines:
                text = Text.assemble(*((printable(span_text), style) for span_text, style in line))
                text.rstrip()
                console.print(text, no_wrap=True, overflow="ignore", crop=False)
    console.print()
    console.print("Your own are next: flue-py import auto --discover, then flue-py sessions", soft_wrap=True)
