"""How much one call may bring: bounds that a mistake runs into before the database does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from flue_py.core.entries import NewEntry
from flue_py.errors import InvalidArgument, InvalidEntry, shown

_WIDEST_CHARACTER = 4
# What SQLite (1 GB for a row) and PostgreSQL (1 GB for a statement) take, with room for what stands beside it.
# A store's own reads unpack up to this: whatever was stored under some limits is read under all others.
LARGEST_ENTRY = 512 * 2**20

_LARGEST = 2**31 - 1  # what every database can count to


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most that one call may bring. Raises `InvalidArgument` if one is not a limit.

    They are of the store that was opened, not of the database: what another process has written is read whatever
    its size, up to the 512 MiB that no limit exceeds. Bytes are those of the JSON in UTF-8, before compression. Files
    to import and bundles are held to them before anything of them is unpacked.
    """

    entry_bytes: int = 64 * 2**20
    """One entry: its payload, and what an import has kept beside it; or one document. 1 to 512 MiB."""
    batch_entries: int = 100_000
    """The entries of one append or import, which are one transaction."""
    metadata_bytes: int = 2**20
    """The metadata of one session."""
    document_bytes: int = 512 * 2**20
    """A file to import of a format that is read as a whole. The values in it may take three times as much memory."""
    extraction_bytes: int = 2**30
    """The memory that extracting the text of a document may take, beside what its library takes. On Linux."""
    extraction_seconds: int = 60
    """The time on a processor that extracting the text of a document may take."""
    task_depth: int = 4
    """How many levels of tasks may be below a session that is not a task."""
    sessions_per_page: int = 1_000
    """The sessions of one page of `Store.list_sessions`."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LARGEST:
                raise InvalidArgument(
                    f"limits: {field.name}: {shown(value)} is not a whole number from 1 to {_LARGEST}"
                )
        if self.entry_bytes > LARGEST_ENTRY:
            raise InvalidArgument(
                f"limits: entry_bytes: {shown(self.entry_bytes)} is more than databases take in a row; "
                f"give at most {LARGEST_ENTRY}"
            )

    def check_entries(self, entries: Sequence[NewEntry]) -> None:
        """Raise `InvalidEntry` for too many entries, or for one that is too large, by its position. O(entries)."""
        if len(entries) > self.batch_entries:
            raise InvalidEntry(
                f"{len(entries)} entries at once are more than {self.batch_entries}; bring them in smaller batches, "
                "or open the store with other limits (batch_entries)"
            )
        for position, entry in enumerate(entries):
            length = len(entry.payload) + len(entry.extra) if entry.extra else len(entry.payload)
            if _WIDEST_CHARACTER * length <= self.entry_bytes:
                continue
            size = self._excess(entry.payload, entry.extra or "", self.entry_bytes)
            if size is not None:
                raise InvalidEntry(
                    f"entry {position} of {len(entries)} ({entry.kind}): {size} bytes are more than "
                    f"{self.entry_bytes}; keep large content elsewhere and refer to it, or open the store with "
                    "other limits (entry_bytes)"
                )

    def check_metadata(self, text: str) -> None:
        """Raise `InvalidArgument` if the JSON text of a session's metadata is too long."""
        size = self._excess(text, "", self.metadata_bytes)
        if size is not None:
            raise InvalidArgument(
                f"metadata: {size} bytes are more than {self.metadata_bytes}; append a custom entry instead, or open "
                "the store with other limits (metadata_bytes)"
            )

    def check_document(self, body: str) -> None:
        """Raise `InvalidArgument` if the text of a memory or of a file is too long."""
        size = self._excess(body, "", self.entry_bytes)
        if size is not None:
            raise InvalidArgument(
                f"body: {size} bytes are more than {self.entry_bytes}; store a part of it, or open the store with "
                "other limits (entry_bytes)"
            )

    def check_page(self, limit: int) -> None:
        """Raise `InvalidArgument` if ``limit`` is not a number of sessions for one page."""
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= self.sessions_per_page:
            raise InvalidArgument(
                f"limit: {shown(limit)} is not a number from 1 to {self.sessions_per_page}; read page by page"
            )

    @staticmethod
    def _excess(text: str, other: str, most: int) -> int | None:
        """Return how many bytes two texts take, or None if that is not more than ``most``."""
        if _WIDEST_CHARACTER * (len(text) + len(other)) <= most:
            return None
        size = len(text.encode()) + len(other.encode())
        return size if size > most else None


DEFAULT_LIMITS = Limits()
