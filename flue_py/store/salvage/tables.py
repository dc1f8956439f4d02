"""Find the rows of a damaged database: along the b-trees where they are whole, else in single pages.

A row is recognised by its shape (how many columns, of which types), even on a page that no longer belongs to a known
table. Pages that are known to be free are left out: they have deleted rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from flue_py.store.salvage.pages import (
    INDEX_INTERIOR,
    INDEX_LEAF,
    INTERIOR,
    TABLE_INTERIOR,
    TABLE_LEAF,
    Cell,
    Image,
    PageFile,
)
from flue_py.store.salvage.shapes import Shape, Shapes, shapes

_RANKS = {int: 1, float: 1, str: 2, bytes: 3}
_MASTER = "sqlite_master"
_MIN_CARVED_COLUMNS = 5

Sink: TypeAlias = Callable[[Shape, int, Cell, bool], None]
"""Takes a row: its shape, the kind of its page, the row, and whether it is certainly a current one."""


def _kinds(shape: Shape) -> tuple[int, int]:
    """Return the kinds of the leaf pages and of the inner pages of a table or index."""
    return (TABLE_LEAF, TABLE_INTERIOR) if shape.has_rowid else (INDEX_LEAF, INDEX_INTERIOR)


def _is_in_order(cells: list[Cell]) -> bool:
    """Return whether the rows of a page are sorted as SQLite sorts them: by rowid, or by their values."""
    keys = [(cell.rowid,) if cell.rowid is not None else cell.values or () for cell in cells]
    ranked = [[(_RANKS.get(type(value), 0), 0 if value is None else value) for value in key] for key in keys]
    try:
        return all(before <= after for before, after in pairwise(ranked))
    except TypeError:
        return False


@dataclass(slots=True)
class Scan:
    """Reads a file's rows into a sink. Its fields say what was damaged."""

    file: PageFile
    sink: Sink
    reached: set[int] = field(default_factory=set)
    bad: dict[int, str | None] = field(default_factory=dict)
    free_is_known: bool = False
    torn: bool = False
    """Whether a pointer leads to a wrong page, so that other pages may be unreachable."""

    schema_is_whole: bool = False
    """Whether the schema names all tables and indexes of its format, so that there are no others."""

    suspect: set[int] = field(default_factory=set)
    """The numbers of readable pages with rows that are wrong or in the wrong place."""

    broken: set[str] = field(default_factory=set)
    """The names of the trees with pages that could not be read whole."""

    _guessed: set[str] = field(default_factory=set)
    """The names of the trees whose root pages no schema names."""

    _to_carve: list[Image] = field(default_factory=list)
    _shapes: Shapes = field(init=False)

    def __post_init__(self) -> None:
        self._shapes = shapes(self.file.page_size)

    def along_trees(self) -> None:
        """Read every b-tree from its root, and note the free pages. O(file)."""
        roots = self._roots()
        for shape in self._shapes.by_name.values():
            root = roots.get(shape.name)
            if root is not None:
                self._tree(shape, root)
                if shape.name in self._guessed and self._is_empty(root):
                    # An empty page fits every shape: it is no evidence that there are no rows.
                    self.broken.add(shape.name)
            elif not self.schema_is_whole:
                # It may be anywhere, or may never have existed.
                self.broken.add(shape.name)
                self.torn = True
        self.free_is_known = self._free_pages()

    @property
    def is_accounted_for(self) -> bool:
        """Whether every page is known to belong to a tree or to be free."""
        return self.free_is_known and len(self.reached) >= self.file.count

    # -- trees ----------------------------------------------------------------------------------------------------

    def _roots(self) -> dict[str, int]:
        """Return the root pages that the schema names; where it is damaged, those of a new database."""
        named: dict[str, int] = {}

        def note(_: Shape, __: int, cell: Cell, ___: bool) -> None:
            values = cell.values or ()
            if len(values) == 5 and isinstance(values[1], str) and isinstance(values[3], int):
                named[values[1]] = values[3]

        if self.file.page(1) is not None:
            master = Shape(_MASTER, _MASTER, (), has_rowid=True, holds_rows=False)
            Scan._tree(self, master, 1, note)
            self.schema_is_whole = self._shapes.by_name.keys() <= named.keys() and _MASTER not in self.broken
            self.broken.discard(_MASTER)
        named = {name: root for name, root in named.items() if self.file.image(root) is not None}
        if self.schema_is_whole:
            return named
        self._guessed = self._shapes.roots.keys() - named.keys()
        return {**self._shapes.roots, **named}

    def _is_empty(self, root: int) -> bool:
        image = self.file.image(root)
        page = None if image is None else self.file.parse(image)
        return page is not None and not page.cells and page.right is None

    def _tree(self, shape: Shape, root: int, sink: Sink | None = None) -> None:
        """Read one b-tree. Pages that belong to another one, or to none, are bad."""
        leaf, interior = _kinds(shape)
        waiting = [(root, 0)]
        leaf_depth: int | None = None
        failed: list[tuple[int, int]] = []
        while waiting:
            number, depth = waiting.pop()
            image = self.file.image(number)
            page = None if image is None or number in self.reached else self.file.parse(image)
            if page is None or page.kind not in (leaf, interior) or self._is_of_another(page.cells, shape, sink):
                failed.append((number, depth))
                continue
            self.reached.add(number)
            if page.kind == leaf:
                leaf_depth = depth if leaf_depth is None else leaf_depth
            strange = any(cell.values is not None and shape.values(cell) is None for cell in page.cells)
            if not page.sound or strange or not _is_in_order(page.cells):
                self.suspect.add(number)
            if (sink is None and strange) or not page.sound or (page.kind == leaf and depth != leaf_depth):
                self.broken.add(shape.name)
                self.torn = self.torn or page.kind == interior or depth != leaf_depth
                self.bad[number] = shape.table if shape.holds_rows else None
            self._take(shape, page.kind, page.cells, sink or self.sink)
            if not page.sound and image is not None and sink is None:
                self._to_carve.append(image)
            children = [cell.child for cell in page.cells if cell.child is not None]
            if page.right is not None:
                children.append(page.right)
            waiting += [(child, depth + 1) for child in reversed(children)]
        for number, depth in failed:
            self._note_failed(number, depth, leaf_depth, shape)

    def _note_failed(self, number: int, depth: int, leaf_depth: int | None, shape: Shape) -> None:
        self.broken.add(shape.name)
        is_leaf = leaf_depth is not None and depth >= leaf_depth
        self.torn = self.torn or not is_leaf or number in self.reached
        image = self.file.image(number)
        if number in self.reached or number in self.bad:
            return
        # An inner page of a table with rowids holds no rows itself.
        holds = shape.holds_rows and (is_leaf or not shape.has_rowid or leaf_depth is None)
        self.bad[number] = shape.table if holds else None
        if image is None:
            return
        page = self.file.parse(image)
        if page is not None and page.cells and not is_leaf:
            return  # a page of another tree, which is read later
        self.reached.add(number)
        self._to_carve.append(image)

    def _is_of_another(self, cells: Iterable[Cell], shape: Shape, sink: Sink | None) -> bool:
        """Return whether no row on a page can belong to this tree, by its columns or their values."""
        rows = [cell for cell in cells if cell.values is not None]
        if sink is not None or not rows or any(shape.fits(cell) for cell in rows):
            return False
        if all(shape.values(cell) is None for cell in rows):
            return True
        others = [other for other in self._shapes.by_name.values() if _kinds(other) == _kinds(shape)]
        return any(other.fits(cell) for other in others for cell in rows)

    def _take(self, shape: Shape, kind: int, cells: Iterable[Cell], sink: Sink, *, live: bool = True) -> None:
        for cell in cells:
            self.reached.update(cell.overflow if live else ())
            if cell.values is not None and (sink is not self.sink or shape.values(cell) is not None):
                sink(shape, kind, cell, live)

    def _free_pages(self) -> bool:
        """Record the pages of the free list; return whether it could be read to its end."""
        if not self.file.has_header:
            return False
        trunk, stated = (int.from_bytes(self.file.header[at : at + 4]) for at in (32, 36))
        free: set[int] = set()
        while trunk:
            data = self.file.page(trunk)
            if data is None or trunk in free or trunk in self.reached:
                return False
            count = int.from_bytes(data[4:8])
            if count > self.file.usable // 4 - 2:
                return False
            leaves = {int.from_bytes(data[8 + 4 * index : 12 + 4 * index]) for index in range(count)}
            if (
                len(leaves) != count
                or leaves & (free | self.reached)
                or not all(0 < leaf <= self.file.count for leaf in leaves)
            ):
                return False
            free |= leaves | {trunk}
            trunk = int.from_bytes(data[:4])
        if len(free) != stated:
            return False
        self.reached |= free
        return True

    # -- single pages -----------------------------------------------------------------------------------------------

    @property
    def whole_trees(self) -> set[str]:
        """Return the names of the trees that were read whole."""
        return self._shapes.by_name.keys() - self.broken

    def damaged_pages(self) -> None:
        """Look for single rows in the pages of trees that could not be read whole. Call it after all trees."""
        for image in self._to_carve:
            self._carve(image)

    def loose_pages(self) -> None:
        """Read the pages that no pointer leads to, such as those below a damaged page."""
        for number in range(1, self.file.count + 1):
            image = self.file.image(number)
            if number not in self.reached and image is not None:
                self._loose(image)
        for number in range(self.file.in_file + 1, self.file.count + 1):
            if self.file.image(number) is None and number not in self.reached:
                self.bad.setdefault(number, None)

    def older_pages(self) -> None:
        """Read old versions of pages, for rows whose newer page in the log is damaged."""
        for image in self.file.older_images():
            self._loose(image)

    def _loose(self, image: Image) -> None:
        page = self.file.parse(image)
        if page is None or not page.cells:
            self._carve(image)
            return
        candidates = self._shapes.of_rows(rowid=page.kind in (TABLE_LEAF, TABLE_INTERIOR))
        for shape in candidates:
            self._take(shape, page.kind, [cell for cell in page.cells if shape.fits(cell)], self.sink, live=False)
        if not page.sound and page.kind not in INTERIOR:
            self._carve(image)

    def _carve(self, image: Image) -> None:
        """Find rows in a damaged page by their shape alone. Shapes with few, short columns would fit anything."""
        wide = {
            TABLE_LEAF: [s for s in self._shapes.of_rows(rowid=True) if len(s.columns) >= _MIN_CARVED_COLUMNS - 1],
            INDEX_LEAF: [
                shape
                for shape in self._shapes.of_rows(rowid=False)
                if len(shape.columns) >= _MIN_CARVED_COLUMNS
                and (any(column.words for column in shape.columns) or shape.table == "ledger")
            ],
        }
        # One byte for its own length, then one for each column, or two for a long value.
        headers = {
            kind: frozenset(
                length for shape in fitting for length in range(shape.lengths[0] + 1, shape.lengths[-1] + 12)
            )
            for kind, fitting in wide.items()
        }
        for kind, cell in self.file.carve(
            image, headers, lambda kind, cell: any(shape.fits(cell) for shape in wide[kind])
        ):
            for shape in wide[kind]:
                if shape.fits(cell):
                    self.sink(shape, kind, cell, False)
