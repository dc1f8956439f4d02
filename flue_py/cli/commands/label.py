"""The label command."""

from __future__ import annotations

import click

from flue_py.cli.changing import context_change
from flue_py.cli.choosing import BY, entry_argument, session_argument, why_option
from flue_py.cli.output import Answer, said
from flue_py.cli.running import command
from flue_py.core.jsontext import JsonObject
from flue_py.sessions.session import Session


def _check(text: str | None, clear: bool, **_: object) -> None:
    if bool(text) == clear:
        raise click.UsageError("give the TEXT of the label, or --clear")


@command(check=_check)
@session_argument
@entry_argument
@click.argument("text", required=False)
@click.option("--clear", is_flag=True, help="Remove the label.")
@why_option
async def label(session: Session, entry: str, text: str | None, clear: bool, why: str | None, as_json: bool) -> Answer:
    """Label ENTRY of SESSION with TEXT, in the views of this session.

    With --json: an object: sessionId, entryId, label.
    """
    await session.set_label(entry, text, by=BY, why=why)
    from flue_py.context.tokens import count_tokens

    tokens = 0 if as_json else count_tokens(await session.build_context()).tokens
    done = f"entry {entry} is called {text}" if text else f"entry {entry} has no label"
    row: JsonObject = {"sessionId": session.id, "entryId": entry, "label": text}
    return said(f"{done}; {context_change(tokens, tokens)}", row)
