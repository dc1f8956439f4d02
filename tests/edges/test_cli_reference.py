"""The page on the command line, which is built from the commands themselves."""

from __future__ import annotations

import re
from importlib import import_module

import click

from flue_py.cli import MODULES, main
from tests.docs.reference import argument_name, command_line_page
from tests.values import existing

CONTEXT = click.Context(main, info_name="flue-py")


def command(name: str) -> click.Command:
    return existing(main.get_command(CONTEXT, name))


def headings() -> list[str]:
    return re.findall(r"^### `flue-py (.+)`$", command_line_page(), re.MULTILINE)


def calls() -> list[str]:
    """Return a call of each command, with the names of its arguments, in the order of the overview."""
    found = []
    for name in main.list_commands(CONTEXT):
        several = {name: command(name)}
        if isinstance(several[name], click.Group):
            several |= {f"{name} {below}": each for below, each in several[name].commands.items()}
        for call, each in several.items():
            names = [argument_name(part) for part in each.params if isinstance(part, click.Argument)]
            found.append(" ".join([call, *names]))
    return found


def test_the_page_has_every_command_in_order_and_no_other() -> None:
    assert headings() == calls()
    assert len(calls()) > len(main.list_commands(CONTEXT))
    modules = [import_module(f"flue_py.cli.{name}") for name in {*MODULES.values()}]
    made = [value for module in modules for value in vars(module).values() if isinstance(value, click.Command)]
    below = [part for each in made if isinstance(each, click.Group) for part in each.commands.values()]
    unnamed = {str(each.name) for each in made if each not in below} - {*main.list_commands(CONTEXT)}
    assert unnamed == set(), "give each a line of SECTIONS in flue_py/cli/__init__.py: it cannot be called"


def test_every_option_is_on_the_page_and_the_json_of_every_command_is_described() -> None:
    faults = []
    texts = re.split(r"^### .+$", command_line_page(), flags=re.MULTILINE)[1:]
    for heading, text in zip(headings(), texts, strict=True):
        name, *below = re.findall(r"(?:^| )([a-z-]+)(?= |$)", heading)
        found = command(name)
        if isinstance(found, click.Group) and below:
            found = found.commands[below[0]]
        options = [part for part in found.params if isinstance(part, click.Option)]
        flags = {flag for part in options for flag in (*part.opts, *part.secondary_opts)}
        listed = re.findall(r"^- `(--.+?)`: .", text, re.MULTILINE)
        if flags != {flag for names in listed for flag in re.findall(r"(?:^| )(--[a-z-]+)", names)}:
            faults.append(f"{heading}: an option without help")
        # The commands of these two have the same JSON, which the group describes.
        described = command(name).help if name in ("budget", "memory") else text.partition("\n- `--")[0]
        if "--json" in flags and not re.search(r"--json|\bJSON\b", described or ""):
            faults.append(f"{heading}: the docstring has no keys of its JSON (With --json: ...)")
    assert faults == []
