"""JSON lines that are printed whole or not at all, and read again up to the last whole one."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from flue_py.cli.output import print_document
from flue_py.cli.place import expanded
from flue_py.core.jsontext import JsonObject
from flue_py.errors import InvalidArgument, shown
from flue_py.plain_files import open_if_plain

_MOST_BYTES = 1_000_000
"""A line of ours is far shorter."""


def print_line(row: JsonObject) -> None:
    """Print a value as one line of JSON, at once. A signal that comes meanwhile waits for the end of the line."""
    text = json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"
    with _signals_waiting():
        print_document(text, is_json=True)
        sys.stdout.flush()


@contextmanager
def _signals_waiting() -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ids_in(option: str, file: str) -> Iterator[str]:
    """Yield the ``id`` of each line of a file of JSON lines; a last line that has no end is passed over.

    Raises `InvalidArgument` for a file that cannot be read, for a line that is no JSON object with an id, and for a
    last line without an end where the output goes behind it: the first line would be joined to it.
    """
    where = f"{option} {file}"
    try:
        opened = open_if_plain(Path(expanded(file)))
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else None
        raise InvalidArgument(f"{where}: {said or error}") from error
    if opened is None:
        raise InvalidArgument(f"{where}: it is a pipe or a device, not a file; write it into a file first")
    with opened:
        number = 0
        while (line := opened.readline(_MOST_BYTES)).endswith(b"\n"):
            number += 1
            yield _id_of(f"{where}: line {number}", line)
        if len(line) == _MOST_BYTES:
            raise InvalidArgument(f"{where}: line {number + 1} has more than {_MOST_BYTES:,} bytes")
        if line and _is_stdout(opened):
            raise InvalidArgument(
                f"{where}: its last line, {number + 1}, has no end, and the output would be joined to it; take it out "
                "(sed -i '$d' FILE), it is told again"
            )


def _is_stdout(opened: BinaryIO) -> bool:
    try:
        return os.path.sameopenfile(opened.fileno(), sys.stdout.fileno())
    except (OSError, ValueError):
        # No file at all, as in a test, or one that was closed.
        return False


def _id_of(where: str, line: bytes) -> str:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{where} is no JSON ({error})") from error
    if not isinstance(found, dict) or not isinstance(found.get("id"), str):
        raise InvalidArgument(f"{where} is no event, but {shown(found)}")
    return str(found["id"])
