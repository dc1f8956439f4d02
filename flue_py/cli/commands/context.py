"""The context command."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, get_args

import click

from flue_py.cli.about import MOST_LINES, count_option, item_sizes, marks_of
from flue_py.cli.choosing import last_option, leaf_option, session_argument
from flue_py.cli.output import Answer, look, print_answer
from flue_py.cli.running import command
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.sessions import LeafChoice
from flue_py.core.shapes import Shape
from flue_py.lazy import lazy_module
from flue_py.render.lines import Line
from flue_py.render.views import context_lines, context_summary
from flue_py.sessions.session import Session

if TYPE_CHECKING:
    from flue_py.cli import explaining, given
    from flue_py.context import explained
    from flue_py.context import settings as context_settings
    from flue_py.context.requests import ContextRequest

    _Request: TypeAlias = Awaitable[ContextRequest]
else:
    explained = lazy_module("flue_py.context.explained")
    explaining = lazy_module("flue_py.cli.explaining")
    given = lazy_module("flue_py.cli.given")
    context_settings = lazy_module("flue_py.context.settings")

_HEAD = 100
"""How many messages are shown from the beginning of a context that is too long to be shown whole."""
_FIELDS = {"openai-responses": ("instructions", "input"), "gemini": ("systemInstruction", "contents")}
"""What a provider calls the system prompt and the messages, where it is not ``system`` and ``messages``."""


def _print_schema(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        print_answer(Answer(row=context_settings.context_schema), as_json=True)
        ctx.exit()


def _check(
    explain: bool,
    agent: str | None,
    settings: str | None,
    system: str | None,
    tools: str | None,
    model: str | None,
    target: str | None,
    last: int | None,
    count: bool,
    **_: object,
) -> None:
    asked = any(option is not None for option in (agent, settings, system, tools, model))
    if asked and not explain and target is None:
        raise click.UsageError("--agent, --settings, --system, --tools and --model are for --explain or --target")
    if (explain or target is not None) and (last is not None or count):
        raise click.UsageError(
            "--last and --count show the context as it is; leave them out with --explain and --target"
        )


@command(check=_check, bar="reading", paged=True)
@session_argument
@leaf_option("Read at this entry instead of the stored leaf.")
@last_option
@count_option
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
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON schema of the settings.",
)
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
            settings=given.settings_in(settings),
            model=model,
            system=given.system_in(system),
            tools=given.tools_in(tools),
        )
        return await _request(session, leaf, ask, explain=explain)
    if as_json:
        messages = await session.build_context(leaf=leaf)
        return Answer(row=lambda: [*messages[-(last or 0) :]])
    items, marks = await session.build_context_entries(leaf=leaf), await marks_of(session)

    def lines() -> Iterable[Line]:
        sizes = item_sizes(items, count=count)
        tokens = sum(size.tokens for size in sizes.values())
        is_estimate = any(size.is_estimate for size in sizes.values())
        summary, head, tail = context_summary(items, tokens, is_estimate=is_estimate), None, 0
        if last is not None:
            head, tail = 0, last
        elif len(items) > MOST_LINES:
            head, tail = _HEAD, MOST_LINES - _HEAD
            summary += f"; the first {head} and the last {tail:,} are shown (--last N shows more, --json all)"
        yield ((summary, "bold"),)
        style = look(sizes={entry: size.tokens for entry, size in sizes.items()}, counted=count, labels=marks)
        yield from context_lines(items, style, head=head, tail=tail)

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
            lambda: explaining.explained_lines(items, sent, before),
            lambda: explained.explained_row(items, sent, before),
        )

    def request() -> JsonValue:
        prompt_field, messages_field = _FIELDS.get(sent.target or "", ("system", "messages"))
        system: JsonObject = {} if sent.system is None else {prompt_field: sent.system}
        tools: JsonObject = {"tools": [*sent.tools]} if sent.tools else {}
        return {**system, **tools, messages_field: [*sent.messages], **sent.extra}

    return Answer(document=json.dumps(request(), ensure_ascii=False, indent=2) + "\n", is_json=True, row=request)
