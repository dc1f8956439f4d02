"""The command that prints what a message is."""

from __future__ import annotations

import click

from flue_py.cli.output import print_json


@click.command()
def schema() -> None:
    """Print the JSON Schema of a message, as append_message takes it. No database is needed."""
    from flue_py.core.message_schema import message_schema

    print_json(message_schema())
