"""Commands between two leaves: diff, cherry-pick, merge-back."""

from __future__ import annotations

import sys

import click

from flue_py.cli.output import json_option, look, print_json, print_lines, print_result
from flue_py.cli.place import Place
from flue_py.cli.running import leaf_of, run
from flue_py.core.diffing import LeafDiff
from flue_py.core.entries import Entry
from flue_py.core.jsontext import JsonObject
from flue_py.core.sessions import STORED, Appended, LeafChoice
from flue_py.errors import SessionNotFound
from flue_py.render.diff import diff_lines, diff_row
from flue_py.render.lines import counted
from flue_py.runtime.finding import find_session
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store


async def _end(store: Store, name: str, before: Session | None = None) -> tuple[Session, LeafChoice]:
    """Return the session and the leaf that ``SESSION``, ``SESSION@ENTRY`` or, after another, ``@ENTRY`` names."""
    try:
        return await find_session(store, name), STORED
    except SessionNotFound:
        owner, sign, entry = name.rpartition("@")
        if not sign or not (owner or before):
            raise
    session = await find_session(store, owner) if owner or before is None else before
    return session, await leaf_of(session, entry)


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--all", "show_all", is_flag=True, help="Give every entry a line; long stretches are folded otherwise.")
@json_option
@click.pass_obj
def diff(place: Place, a: str, b: str, show_all: bool, as_json: bool) -> None:
    """Show what two leaves have in common, and what each has by itself: messages, tools, cost.

    A and B are each a SESSION, at its leaf, or SESSION@ENTRY; B may be @ENTRY of the same session.
    """

    async def work(store: Store) -> tuple[LeafDiff, Entry | None, dict[str, str]]:
        left, leaf = await _end(store, a)
        right, other_leaf = await _end(store, b, left)
        found = await left.diff(right, leaf=leaf, other_leaf=other_leaf)
        ancestor = None if found.ancestor_id is None else await left.get_entry(found.ancestor_id)
        return found, ancestor, {each.id: await each.name() for each in (left, right)}

    found, ancestor, names = run(place, work)
    if as_json:
        print_json(diff_row(found))
    else:
        print_lines(diff_lines(found, ancestor, names, look(), show_all=show_all))


@click.command("cherry-pick")
@click.argument("session")
@click.argument("entries", metavar="ENTRY...", nargs=-1, required=True)
@click.option("--from", "source", metavar="SESSION", help="The session that has the entries; SESSION itself otherwise.")
@json_option
@click.pass_obj
def cherry_pick(place: Place, session: str, entries: tuple[str, ...], source: str | None, as_json: bool) -> None:
    """Append copies of chosen entries of another branch or session below the leaf of SESSION, once.

    A tool call and its result come together. What they cost is not counted again.
    """

    async def work(store: Store) -> tuple[str, Appended]:
        target = await find_session(store, session)
        there = target if source is None else await find_session(store, source)
        ids = [await there.resolve_entry_id(entry) for entry in entries]
        return target.id, await target.cherry_pick(ids, source=there)

    session_id, appended = run(place, work)
    copies = counted(len(appended.entry_ids), "entry", "entries")
    done = "were there already; nothing was changed" if appended.replayed else "copied"
    print_result(f"{copies} {done}; the leaf is {appended.leaf_id}", _row(session_id, appended), as_json=as_json)


@click.command("merge-back")
@click.argument("session")
@click.argument("source")
@click.option("--summary", metavar="TEXT", required=True, help="What was done there; - reads it from standard input.")
@json_option
@click.pass_obj
def merge_back(place: Place, session: str, source: str, summary: str, as_json: bool) -> None:
    """Append a summary of what SOURCE has done, since it parted from SESSION, below the leaf of SESSION, once.

    SOURCE is a fork or a task session, at its leaf, SESSION@ENTRY, or @ENTRY of another branch of the same session.
    """
    text = sys.stdin.read().strip() if summary == "-" else summary
    if not text.strip():
        raise click.UsageError("the summary is empty")

    async def work(store: Store) -> tuple[str, Appended]:
        target = await find_session(store, session)
        there, leaf = await _end(store, source, target)
        return target.id, await target.merge_back(text, source=there, source_leaf=leaf)

    session_id, appended = run(place, work)
    done = "was there already; nothing was changed" if appended.replayed else "appended"
    print_result(f"summary {appended.entry_id} {done}", _row(session_id, appended), as_json=as_json)


def _row(session_id: str, appended: Appended) -> JsonObject:
    return {
        "sessionId": session_id,
        "entryIds": list(appended.entry_ids),
        "leafId": appended.leaf_id,
        "replayed": appended.replayed,
    }
