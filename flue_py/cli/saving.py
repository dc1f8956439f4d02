"""What commands share that write a text to a new file, or print it."""

from __future__ import annotations

from pathlib import Path

import click

from flue_py.cli.output import Answer
from flue_py.store.files.private import write_private

file_argument = click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))


def saved(text: str, file: Path | None, *, is_json: bool = False) -> Answer:
    """Write a text to a new file that only its owner can read, and return that as the answer; else the text."""
    if file is None:
        return Answer(document=text, is_json=is_json)
    write_private(str(file), text)
    return Answer(lambda: [((f"written to {file}", ""),)])
