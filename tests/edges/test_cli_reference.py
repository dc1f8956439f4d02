"""docs/reference/cli.md against the commands themselves."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from flue_py.cli import main

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "cli.md"
SECTION = re.compile(r"^## `flue-py ([a-z-]+)([^`\n]*)`\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
CONTEXT = click.Context(main, info_name="flue-py")


def sections() -> dict[str, tuple[str, str]]:
    """Return, by command, what follows its name in the heading, and the text below it."""
    return {name: (rest.strip(), text) for name, rest, text in SECTION.findall(PAGE.read_text(encoding="utf-8"))}


def command(name: str) -> click.Command:
    found = main.get_command(CONTEXT, name)
    assert found is not None
    return found


def test_the_page_has_every_command_in_order_and_no_other() -> None:
    assert list(sections()) == main.list_commands(CONTEXT)


@pytest.mark.parametrize("name", main.list_commands(CONTEXT))
def test_a_commands_section_names_its_arguments_and_its_options_and_no_other(name: str) -> None:
    heading, text = sections()[name]
    found = command(name)
    parameters = list(found.params)
    if isinstance(found, click.Group):
        # Each of its commands has a line of its own, with its arguments.
        for each in found.commands.values():
            arguments = [argument_name(part) for part in each.params if isinstance(part, click.Argument)]
            assert f"`{' '.join([name, str(each.name), *arguments])}`" in text
            parameters += [part for part in each.params if isinstance(part, click.Option)]
    assert heading.split() == [argument_name(part) for part in parameters if isinstance(part, click.Argument)]
    options = {
        flag for part in parameters if isinstance(part, click.Option) for flag in (*part.opts, *part.secondary_opts)
    }
    assert set(re.findall(r"`(--[a-z-]+)", text)) == options


def argument_name(argument: click.Argument) -> str:
    """Return an argument as the heading shows it."""
    name = argument.metavar or str(argument.name).upper()
    return name if argument.required else f"[{name}]"


def test_options_of_all_commands_and_exit_codes_are_named() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for option in ("--db", "--version", "--help", "FLUE_PY_DB", "NO_COLOR"):
        assert f"`{option}" in text
    for code in (0, 1, 2):
        assert f"| {code} |" in text
