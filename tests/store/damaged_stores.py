"""A store with something of everything, ways to destroy parts of its file, and what should be left of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random

from flue_py.core.json import payload_digest
from flue_py.core.sessions import NewSession
from flue_py.db.salvage.pages import Cell, PageFile, Scan, Shape
from flue_py.db.sqlite.runner import open_sqlite
from tests.checks import give_heads
from tests.formats.pi_files import parse_pi, real_lines
from tests.samples import add, assistant, compaction, new_session, path_ids, talk, user
from tests.sources import counted_sources

PAGE = 4096
KEYS = {
    "sessions": "session_key", "lanes": "tree_id, lane_id", "entries": "tree_id, id", "blobs": "tree_id, sha256",
    "leaf_moves": "session_key, revision", "marks": "session_key, entry_id, kind", "task_links": "parent_key, position",
    "requests": "session_key, idempotency_key", "ledger": "number",
    "ledger_sessions": "session_key", "session_edits": "session_key, revision, what", "budgets": "budget_key",
    "reservations": "reservation_id, budget_key", "documents": "scope, kind, space, project, name",
    "flue_store": "name", "alembic_version": "version_num",
}  # fmt: skip


def noise(seed: int, size: int) -> str:
    return "".join(Random(seed).choices("abcdefghijklmnopqrstuvwxyz0123456789-", k=size))


async def make_store(path: Path) -> None:
    """Make a store: a third of a real transcript, its forks and theirs, tasks, blobs, compactions, a deletion."""
    backend = await open_sqlite(path, sources=counted_sources(), durability="normal")
    parsed = parse_pi(real_lines()[:350])
    real = await backend.import_session(parsed.session, parsed.entries, leaf=parsed.leaf)
    ids = await path_ids(backend, real.id)
    for number in range(3):
        fork = await backend.fork(real.id, ids[len(ids) * number // 3], NewSession(key=f"fork-{number}"))
        await add(backend, fork.id, *talk(8), user(noise(number, 40_000)), assistant("after", tokens=3, dollars=0.1))
        kept = (await path_ids(backend, fork.id))[-5]
        await backend.append(fork.id, [compaction(kept, tokens=5, dollars=0.5)], idempotency_key="once")
        await add(backend, fork.id, user(noise(number + 50, 3_000)), *talk(3))
        again = await backend.fork(fork.id, kept, NewSession(title=f"fork of fork {number}"))
        await add(backend, again.id, *talk(4))
        await backend.move(fork.id, kept, reason="rewind")
        await add(backend, fork.id, *talk(4))
        await backend.set_label(fork.id, kept, f"label {number}")
        (failed,) = await add(backend, fork.id, assistant("failed", tokens=1))
        await backend.retract(fork.id, failed)
        task = await backend.create_task(fork.id, f"task-{number}", NewSession(title="a task"))
        await add(backend, task.id, *talk(6))
    for number in range(12):
        session = await new_session(backend, *talk(10), key=f"small-{number}")
        await backend.update_session(session.id, metadata_text='{"note": "' + "n" * 300 + '"}')
        left = await path_ids(backend, session.id)
        if number % 5 == 0:
            heir = await backend.fork(session.id, left[4], NewSession(title="an heir"))
            if number % 10 == 0:
                await add(backend, heir.id, user("mine now"))
            await backend.delete_tree(session.id)
    await backend.close()
    add_money_and_edits(path)
    backend = await open_sqlite(path, sources=counted_sources(), durability="normal")
    assert (await backend.verify()).problems == []
    await backend.close()


def add_money_and_edits(path: Path) -> None:
    """Add budgets with reservations in every state, documents, edits of sessions, and notes on moves and calls."""
    with closing(sqlite3.connect(path)) as connection:
        for number in range(60):
            unit = ("tokens", "picodollars")[number % 2]
            connection.execute(
                "INSERT INTO budgets VALUES (?, ?, ?, 'scope', NULL, ?, 5000, 107, 30, 100, ?, 9, '', '')",
                (number + 1, f"budget-{number}", f"scope {number}", unit, number),
            )
            reservations = [("held", 30, None), ("committed", 5, 7), ("released", 9, None), ("expired", 4, None)]
            for state, amount, used in reservations:
                row = (f"{state}-{number}", number + 1, None, amount, state, used, 1, 90, None if used is None else 3)
                connection.execute("INSERT INTO reservations VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        for number in range(40):
            body = f"{number}: é {noise(number, 50 + 150 * number)}"
            kind, scope = ("memory", "file")[number % 4 == 0], ("", "a scope")[number % 2]
            name = (scope, kind, "repl", "/srv" * (number % 3), f"document {number}")
            digest = payload_digest(body)
            row = (*name, "user", None, 7, 9 + number, len(body), digest, body, 0, 0)
            connection.execute("INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        connection.execute(
            "INSERT INTO session_edits SELECT session_key, revision, 'title', leaf, NULL, 'new', 'somebody', NULL, 5, 0"
            " FROM sessions WHERE revision > 0"
        )
        connection.execute("UPDATE leaf_moves SET why = 'it went astray' WHERE reason = 'rewind'")
        connection.execute("UPDATE ledger SET outcome = 'aborted' WHERE call_id > 'f'")
        connection.execute("UPDATE sessions SET auto_title = 'About ' || id WHERE kind = 'task'")
        connection.commit()
    give_heads(path)


@dataclass(frozen=True)
class Template:
    """A store's file before anything happened to it: its rows, and the pages that each row needs."""

    data: bytes
    rows: dict[str, dict[tuple[object, ...], tuple[object, ...]]]
    pages: dict[tuple[int, str], frozenset[int]]
    id_pages: frozenset[int]
    """The pages of the index of entry ids, with which every lost entry can be named."""

    schema_pages: frozenset[int]

    @property
    def count(self) -> int:
        return len(self.data) // PAGE


def rows_of(path: Path) -> dict[str, dict[tuple[object, ...], tuple[object, ...]]]:
    """Return every row of every table, by its key."""
    with closing(sqlite3.connect(path)) as connection:
        return {
            table: {row[: len(key.split(","))]: row for row in connection.execute(f"SELECT {key}, * FROM {table}")}
            for table, key in KEYS.items()
        }


def template_of(path: Path) -> Template:
    pages: dict[tuple[int, str], frozenset[int]] = {}
    blobs: dict[tuple[object, ...], frozenset[int]] = {}
    named: dict[tuple[int, str], bytes] = {}
    id_pages: set[int] = set()

    def note(shape: Shape, _: int, cell: Cell, live: bool) -> None:
        assert live
        values, where = shape.values(cell) or (), frozenset({cell.image.number, *cell.overflow})
        names = [column.name for column in shape.columns]
        if shape.name == "entries":
            row = dict(zip(names, values, strict=True))
            place = (row["tree_id"], row["id"])
            pages[place] = where
            if row["blob"] is not None:
                named[place] = row["blob"]
        elif shape.name == "blobs":
            blobs[values[1],] = where
        elif sorted(names[:2]) == ["id", "tree_id"]:
            id_pages.add(cell.image.number)

    with PageFile(path) as file:
        scan = Scan(file, note)
        scan.along_trees()
        assert scan.is_accounted_for
        assert scan.bad == {}
        for place, blob in named.items():
            pages[place] |= blobs[blob,]
        schema = {number for number in range(1, 40) if b"CREATE " in (file.page(number) or b"")}
    return Template(path.read_bytes(), rows_of(path), pages, frozenset(id_pages), frozenset(schema | {1}))


# -- destroying -------------------------------------------------------------------------------------------------------


def zeroed(random: Random, page: bytes) -> bytes:
    return bytes(len(page))


def scrambled(random: Random, page: bytes) -> bytes:
    return random.randbytes(len(page))


def flipped(random: Random, page: bytes) -> bytes:
    data = bytearray(page)
    for _ in range(random.choice([1, 1, 3, 20])):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(data)


def half_lost(random: Random, page: bytes) -> bytes:
    """Lose one or more sectors of 512 bytes."""
    data = bytearray(page)
    first = random.randrange(8)
    data[first * 512 : (first + random.choice([1, 2, 4])) * 512] = bytes(512)
    return bytes(data).ljust(len(page), b"\0")[: len(page)]


def swapped(random: Random, page: bytes) -> bytes:
    """Text where a page was, as another program would have written it."""
    return (b"another program wrote this here. " * (len(page) // 16))[: len(page)]


KINDS: list[Callable[[Random, bytes], bytes]] = [zeroed, scrambled, flipped, half_lost, swapped]


def destroyed(random: Random, template: Template, *, most: int = 20) -> tuple[bytes, set[int]]:
    """Return the file with up to ``most`` pages and its end destroyed at random, and the pages it was done to."""
    data, touched = bytearray(template.data), set()
    for _ in range(random.choice([1, 2, min(5, most), most])):
        page = 1 if random.random() < 0.05 else random.randrange(template.count) + 1
        start = (page - 1) * PAGE
        data[start : start + PAGE] = random.choice(KINDS)(random, bytes(data[start : start + PAGE]))
        touched.add(page)
    if random.random() < 0.25:
        end = random.randrange(PAGE * 2, len(data))
        touched |= set(range(end // PAGE + 1, template.count + 1))
        del data[end:]
    return bytes(data), touched


def readable_by_sql(path: Path, template: Template) -> set[tuple[int, str]]:
    """Return which entries plain SQL can read, one by one, in both directions and by either key, as they were."""
    found: set[tuple[int, str]] = set()
    columns = "tree_id, id, digest, payload, packed, blob"
    blob_sql = "SELECT data FROM blobs WHERE tree_id = ? AND sha256 = ?"
    asked = (f"SELECT {columns} FROM entries NOT INDEXED ORDER BY rowid {way}" for way in ("ASC", "DESC"))
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
        for row in [row for sql in asked for row in _rows(connection, sql)]:
            _note(found, row, template)
        for key in template.rows["entries"]:
            one = f"SELECT {columns} FROM entries WHERE tree_id = ? AND id = ?"
            for row in _rows(connection, one, key):
                _note(found, row, template)
        for key, whole in template.rows["blobs"].items():
            if next(_rows(connection, blob_sql, key), None) != whole[-1:]:
                found -= {place for place in found if key[1] in template.rows["entries"][place]}
    return found


def _rows(connection: sqlite3.Connection, sql: str, values: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    try:
        yield from connection.execute(sql, values)
    except (sqlite3.Error, UnicodeDecodeError):
        return


def _note(found: set[tuple[int, str]], row: tuple[object, ...], template: Template) -> None:
    whole = template.rows["entries"].get(row[:2])
    if whole is not None and row[2:] == (whole[30], whole[34], whole[32], whole[31]):
        found.add((int(str(row[0])), str(row[1])))


def change(path: Path, *statements: str) -> None:
    """Run statements on a store's file, each of which changes something."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            assert connection.execute(statement).rowcount > 0
        connection.commit()


def root_of(path: Path, name: str) -> int:
    """Return the first page of a table or an index."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
    return int(page)
