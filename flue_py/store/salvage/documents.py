"""The documents of a damaged database: each is checked against its digest, and its text is read again to be written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from flue_py.core.documents import DocumentName, DocumentRow, is_line
from flue_py.core.jsontext import payload_digest
from flue_py.core.salvaging import Loss
from flue_py.core.sessions import is_name
from flue_py.errors import shown
from flue_py.store.salvage.pages import Cell, Image, PageFile, Value
from flue_py.store.salvage.shapes import Shape

Place: TypeAlias = tuple[Image, int, int]

_TABLE = "documents"
_INDEX = "sqlite_autoindex_documents_1"
_PARTS = len(DocumentName._fields)


@dataclass(slots=True)
class FoundDocuments:
    """The documents that were found, by name: where the text of each is, so that no more than one is in memory."""

    file: PageFile
    rows: dict[tuple[Value, ...], tuple[bool, Place]] = field(default_factory=dict)
    damaged: dict[tuple[Value, ...], None] = field(default_factory=dict)
    named: dict[tuple[Value, ...], None] = field(default_factory=dict)
    """What the index names."""

    def note(self, values: tuple[Value, ...]) -> None:
        """Record a name that the index has."""
        self.named[values[:_PARTS]] = None

    def take(self, shape: Shape, kind: int, cell: Cell, live: bool) -> bool:
        """Take a row; return whether it makes sense."""
        row = _row(shape, cell)
        if row is None:
            return False
        name = row[:_PARTS]
        if payload_digest(row.body) != row.digest:
            if live:
                self.damaged[name] = None
        elif name not in self.rows or live > self.rows[name][0]:
            self.rows[name] = (live, (cell.image, cell.offset, kind))
        return True

    @property
    def misses_rows(self) -> bool:
        """Whether the index names documents that were not found."""
        return not self.named.keys() <= self.rows.keys()

    def whole(self, shape: Shape, complete: set[str]) -> Iterator[tuple[DocumentRow, bool]]:
        """Yield the documents, read again, each with whether it had a name that no store takes, and has another now.

        Left out are those of which only an old row was found, and which a whole index does not name.
        """
        taken = {name for name in self.rows if _is_usable(name)}
        for name, (live, place) in self.rows.items():
            if not live and _INDEX in complete and name not in self.named:
                continue
            cell = self.file.cell(*place)
            row = None if cell is None else _row(shape, cell)
            if row is None:
                self.damaged[name] = None
                continue
            usable = _usable(row, taken)
            yield usable._replace(chars=len(row.body)), usable[: _PARTS + 2] != row[: _PARTS + 2]

    def losses(self) -> Iterator[Loss]:
        """Yield what is lost, as far as its name is known."""
        for name in {**self.named, **self.damaged}:
            if name not in self.rows:
                why = "its text does not match its digest" if name in self.damaged else "its row is lost"
                yield lost_document(name, why)


def lost_document(name: tuple[Value, ...], why: str) -> Loss:
    """Return a document as lost."""
    _, kind, space, project, own = name
    where = "".join(f", {what} {shown(part)}" for what, part in (("of", space), ("for", project)) if part)
    return Loss("document", None, None, f"{kind!s} {shown(own)}{where}: {why}")


def _row(shape: Shape, cell: Cell) -> DocumentRow | None:
    values = shape.values(cell)
    return DocumentRow._make(values) if values is not None and shape.fits(cell) else None


def _is_usable(name: tuple[Value, ...]) -> bool:
    scope, _, *others = name
    return (scope == "" or is_name(scope)) and all(map(is_line, others)) and name[-1] != ""


def _usable(row: DocumentRow, taken: set[tuple[Value, ...]]) -> DocumentRow:
    """Return a row with others for what no store takes of its name, its type and its source."""
    row = row._replace(
        type=row.type if is_line(row.type) and row.type else "rescued",
        source=row.source if row.source is None or is_line(row.source) else None,
    )
    if _is_usable(row[:_PARTS]):
        return row
    row = row._replace(
        scope=row.scope if is_name(row.scope) else "",
        space=row.space if is_line(row.space) else "",
        project=row.project if is_line(row.project) else "",
        name=row.name if row.name and is_line(row.name) else "rescued-name",
    )
    while row[:_PARTS] in taken:
        row = row._replace(name=f"{row.name}-")
    taken.add(row[:_PARTS])
    return row
