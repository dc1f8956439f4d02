"""Checkpoints of files: which content each file had at an entry, where its backup is, and how files would change."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from msgspec import ValidationError, convert, to_builtins

from flue_py.core.entries import Entry, NewEntry
from flue_py.core.json import Frozen, JsonObject
from flue_py.core.kinds import FILE_BACKUP, FILE_CHECKPOINT
from flue_py.lazy import lazy_module

if TYPE_CHECKING:
    import difflib
else:
    difflib = lazy_module("difflib")

MAX_SNAPSHOTS = 100
"""How many checkpoints are offered where nothing else is said: the oldest are evicted."""

_CONTROLS = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f]")
"""What a text does not have, and what would be six characters each in JSON."""

_COMPARED = 50_000
"""How many lines are compared at most: the time of a diff grows with their square, where they are much alike."""

_LINE = re.compile("[^\n]*\n|[^\n]+")
_UNENDED = "\n\\ No newline at end of file\n"
_NO_DIFF = "it is no text, or has too many lines to be compared"


class FileContent(Frozen):
    """The bytes of a plain file, and its permissions."""

    data: bytes
    mode: int

    @property
    def digest(self) -> str:
        """The SHA-256 of the bytes, in hexadecimal. O(bytes)."""
        return sha256(self.data).hexdigest()


class FileState(Frozen, omit_defaults=True, rename="camel"):
    """A file at a checkpoint. ``sha256`` is None if there was none; ``backup`` is the entry that has its content.

    ``version`` counts from 1, and grows with each change. ``problem`` says why a file that was there has no backup.
    """

    version: int
    sha256: str | None = None
    mode: int = 0
    size: int = 0
    backup: str | None = None
    problem: str | None = None

    def has(self, content: FileContent | None) -> bool:
        """Return whether a file is as it was then. O(bytes)."""
        if content is None:
            return self.sha256 is None and self.problem is None
        return (self.sha256, self.mode) == (content.digest, content.mode)


Reason: TypeAlias = Literal["turn", "edit", "edited", "before restore", "replaced", "restored"]
"""An ``edit`` adds files to a checkpoint, ``edited`` says what became of them; all others are checkpoints.

``before restore`` has the files as they belong to the entry above it, ``replaced`` as they should not have been there.
"""


class FileRecord(Frozen, omit_defaults=True, rename="camel"):
    """The payload of a ``file_checkpoint``. ``of`` is the entry of the checkpoint that an edit belongs to."""

    reason: Reason
    sequence: int
    files: dict[str, FileState]
    of: str | None = None
    max_snapshots: int = MAX_SNAPSHOTS

    def entry(self, entry_id: str) -> NewEntry:
        """Return the entry of a record."""
        return NewEntry.custom(FILE_CHECKPOINT, cast("JsonObject", to_builtins(self)), id=entry_id)


def record_of(entry: Entry) -> FileRecord | None:
    """Return the record that an entry has; None for any other, and for one that was redacted or is none of ours."""
    try:
        return convert(entry.data, FileRecord) if entry.kind == FILE_CHECKPOINT else None
    except ValidationError:
        return None


def text_of(content: FileContent) -> str | None:
    """Return the text that a file has; None if it is none. O(bytes)."""
    try:
        text = content.data.decode()
    except UnicodeDecodeError:
        return None
    return text if _CONTROLS.search(text) is None else None


def new_backup(content: FileContent, entry_id: str) -> NewEntry:
    """Return the entry that has the content of a file: as text if it is some, so that it can be searched and masked."""
    text = text_of(content)
    body: JsonObject = {"data": b64encode(content.data).decode()} if text is None else {"text": text}
    return NewEntry.custom(FILE_BACKUP, {"sha256": content.digest, **body}, id=entry_id)


def content_of(entry: Entry | None, state: FileState) -> FileContent | None:
    """Return the content that a file had; None if its backup was redacted, masked, or is not there."""
    fields = entry.data if entry is not None and entry.kind == FILE_BACKUP else None
    if not isinstance(fields, dict):
        return None
    text, packed = fields.get("text"), fields.get("data")
    try:
        data = text.encode() if isinstance(text, str) else b64decode(packed) if isinstance(packed, str) else None
    except ValueError:
        data = None
    content = None if data is None else FileContent(data, state.mode)
    return content if content is not None and content.digest == state.sha256 else None


class FileCheckpoint(Frozen, rename="camel"):
    """How files were at a checkpoint, by their names: those that were tracked then, and those first edited after it.

    ``sequence`` counts the checkpoints of a session, evicted ones included. ``reason`` is ``turn``, or what a restore
    was made for: to keep what it replaced (``before restore``, ``replaced``), and to say what it brought back
    (``restored``).
    """

    entry_id: str
    sequence: int
    reason: str
    max_snapshots: int
    created_at: datetime
    files: Mapping[str, FileState]

    @property
    def json(self) -> JsonObject:
        """The checkpoint as JSON."""
        return cast("JsonObject", to_builtins(self))


class FileChange(Frozen):
    """How a file would change, or has changed. ``before`` and ``after`` are None for a file that is not there.

    ``is_outside`` says that it is not as it was at any checkpoint or edit; ``problem`` why it has to stay as it is: its
    content is not stored any more, or it is no plain file now.
    """

    name: str
    before: FileContent | None
    after: FileContent | None
    is_outside: bool = False
    problem: str | None = None

    @property
    def what(self) -> Literal["stay", "create", "delete", "mode", "change"]:
        """What becomes of the file."""
        if self.problem is not None or self.after is None or self.before is None:
            return "stay" if self.problem is not None else "create" if self.after is not None else "delete"
        return "mode" if self.before.data == self.after.data else "change"

    @property
    def lines(self) -> tuple[int, int] | None:
        """How many lines are inserted and deleted; None where `diff` has none of them. O(lines^2) at worst."""
        diff = self._diff()
        if diff is None:
            return None
        return sum(line[0] == "+" for line in diff[2:]), sum(line[0] == "-" for line in diff[2:])

    @property
    def diff(self) -> str:
        """The unified diff; a line that says so for a file that is no text, has too many lines, or stays."""
        diff = self._diff()
        return f"{self.name}: {self.problem or _NO_DIFF}\n" if diff is None else "".join(diff)

    @property
    def json(self) -> JsonObject:
        """The change as JSON. O(lines^2) at worst."""
        inserted, deleted = self.lines or (None, None)
        return {
            "name": self.name,
            "what": self.what,
            "insertions": inserted,
            "deletions": deleted,
            "outside": self.is_outside,
            "problem": self.problem,
            "diff": self.diff,
        }

    def _diff(self) -> list[str] | None:
        sides = ("" if side is None else text_of(side) for side in (self.before, self.after))
        texts = [text for text in sides if text is not None]
        if self.problem is not None or len(texts) < 2 or sum(text.count("\n") for text in texts) > _COMPARED:
            return None
        before, after = (
            [line if line[-1] == "\n" else line + _UNENDED for line in _LINE.findall(text)] for text in texts
        )
        old, new = ("/dev/null" if content is None else self.name for content in (self.before, self.after))
        return [*difflib.unified_diff(before, after, old, new)]


class RestoredFiles(Frozen):
    """The result of a restore, or of its dry run: the checkpoint, and the files that differ from it, by name.

    ``untracked`` are files that are tracked now, and were not then: they are left alone. ``done`` is False for a dry
    run, and if nothing differed.
    """

    checkpoint: FileCheckpoint
    changes: tuple[FileChange, ...]
    untracked: tuple[str, ...] = ()
    done: bool = False
