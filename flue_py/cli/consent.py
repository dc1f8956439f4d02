"""What every command that deletes has in common: it says what would go, asks, and says what went."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import update_wrapper
from typing import Any

import click

from flue_py.cli.output import confirm, json_option, print_json, print_lines
from flue_py.core.frozen import frozen
from flue_py.core.jsontext import JsonObject
from flue_py.render.lines import Line


@frozen
class Shown:
    """What is printed: lines for people, an object for programs."""

    lines: list[Line]
    row: JsonObject


@frozen
class Plan:
    """What a command would delete. Nothing has happened yet.

    ``what`` is it in a few words, "" where there is nothing to delete; ``shown`` is what would go, one by one. ``go``
    deletes it, and returns what went.
    """

    what: str
    shown: Shown
    go: Callable[[], Shown]
    verb: str = "delete"


def destructive(find: Callable[..., Plan]) -> Callable[..., None]:
    """Make a command of a function that returns what would be deleted, and deletes nothing itself.

    The command has --dry-run, --yes and --json. At a terminal it shows what would go, and asks; off a terminal, where
    nobody can be asked, it deletes with --yes only: else it does what --dry-run does, and ends with exit code 2.
    """

    def command(*args: object, dry_run: bool, yes: bool, as_json: bool, **given: object) -> None:
        plan = find(*args, **given)
        if dry_run:
            _print(plan.shown, as_json=as_json)
            return
        if plan.what and not yes:
            _ask(plan, as_json=as_json)
        _print(plan.go(), as_json=as_json)

    options: list[Callable[[Any], Any]] = [
        json_option,
        click.option("--yes", is_flag=True, help="Do not ask. Needed where there is no terminal to ask at."),
        click.option("--dry-run", is_flag=True, help="Only say what would go."),
    ]
    made = update_wrapper(command, find)
    for option in options:
        made = option(made)
    return made


def _ask(plan: Plan, *, as_json: bool) -> None:
    """Return where the answer is yes. Raises `click.Abort`, and `click.UsageError` where nobody can be asked."""
    if not sys.stdin.isatty():
        _print(plan.shown, as_json=as_json)
        raise click.UsageError(
            f"nothing was changed: this would {plan.verb} {plan.what}, and there is no terminal to ask at; "
            "give --yes to do it"
        )
    print_lines(plan.shown.lines, err=True)
    confirm(f"{plan.verb.capitalize()} {plan.what}?")


def _print(shown: Shown, *, as_json: bool) -> None:
    if as_json:
        print_json(shown.row)
    else:
        print_lines(shown.lines)
