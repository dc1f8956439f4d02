"""The index of words of a store on PostgreSQL: tables beside those of the store, with a vector of terms for each text.

They are no part of the store's format: the first search makes them, any search may make them anew. They are unlogged,
since they can be: a crash of the server empties them, and the next search fills them again. A text with more terms than
a vector holds (a megabyte) has several; which of its terms are in one vector says nothing, so it is named wherever one
of the terms asked for is in it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence

from flue_py.db.runner import (
    MARK,
    FoundText,
    IndexedText,
    KnownSession,
    Nothing,
    Runner,
    Transaction,
    Wanted,
    session_mark,
)
from flue_py.db.sql import IN_IDS, IN_KEYS, statement
from flue_py.search import Need

SCHEMA = 3
LOCATION = "the tables flue_words_sessions and flue_words_texts"
_LOCK = 7_161_022
"""Sets our locks of those who make the tables, or add to them, apart from those of other programs."""
_MOST_TERMS = 4_000
"""How many terms lie in one vector: of 64 characters each, which may be four bytes, they fit into a megabyte."""
_SPOKEN_IN = 5_000
"""Of how many texts, the newest, terms are told."""
_FEWEST = 1_000
"""How many texts are asked for at least. For one, PostgreSQL would read texts backwards until it meets a word that may
be nowhere, taking it for no rarer than most."""
_MANY = f"{MARK}m"
"""The mark of a text whose terms lie in several vectors."""

_DROP = statement(Nothing)("DROP TABLE IF EXISTS flue_words, flue_words_sessions, flue_words_more, flue_words_texts")
_TABLES = """\
CREATE UNLOGGED TABLE flue_words (version BIGINT NOT NULL);
CREATE UNLOGGED TABLE flue_words_sessions (session_key BIGINT PRIMARY KEY, id TEXT NOT NULL, revision BIGINT NOT NULL,
    source_key BIGINT, title TEXT, updated_us BIGINT NOT NULL, last_revision BIGINT NOT NULL, last_entry TEXT);
CREATE INDEX ix_flue_words_sessions_id ON flue_words_sessions (id);
CREATE UNLOGGED TABLE flue_words_texts (doc BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_key BIGINT NOT NULL, entry_id TEXT NOT NULL, number BIGINT NOT NULL, at_us BIGINT NOT NULL,
    weight BIGINT NOT NULL, length BIGINT NOT NULL, terms TSVECTOR NOT NULL, pairs BYTEA NOT NULL);
CREATE UNIQUE INDEX uq_flue_words_texts ON flue_words_texts (session_key, entry_id, number);
CREATE INDEX ix_flue_words_texts_terms ON flue_words_texts USING gin (terms);
CREATE UNLOGGED TABLE flue_words_more (doc BIGINT NOT NULL REFERENCES flue_words_texts ON DELETE CASCADE,
    terms TSVECTOR NOT NULL);
CREATE INDEX ix_flue_words_more_doc ON flue_words_more (doc)"""
_MAKE = [_DROP, *map(statement(Nothing), _TABLES.split(";"))]


IS_THERE = statement(tuple[bool])(
    "SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = current_schema() AND c.relname = 'flue_words')"
)
_LOCK_ALL = statement(tuple[str])(f"SELECT pg_advisory_xact_lock({_LOCK}, 0)::text")
_LOCK_ONE = statement(tuple[str])(f"SELECT pg_advisory_xact_lock({_LOCK}, hashint8(:session_key))::text")
_VERSION = statement(tuple[int])("SELECT version FROM flue_words")
_SET_VERSION = statement(Nothing)("INSERT INTO flue_words VALUES (:version)")
_COLUMNS = (
    "SELECT session_key, id, revision, source_key, title, updated_us, last_revision, last_entry"
    " FROM flue_words_sessions"
)
_KNOWN = statement(KnownSession)(_COLUMNS)
_KNOWN_ONE = statement(KnownSession)(f"{_COLUMNS} WHERE session_key = :session_key")
_IS_ALIVE = statement(tuple[int])(
    "SELECT 1 FROM sessions WHERE session_key = :session_key AND trashed_at IS NULL FOR KEY SHARE"
)
_SET_KNOWN = statement(Nothing)(
    "INSERT INTO flue_words_sessions VALUES (:session_key, :id, :revision, :source_key, :title, :updated_us,"
    " :last_revision, :last_entry)"
    " ON CONFLICT (session_key) DO UPDATE SET revision = excluded.revision, source_key = excluded.source_key,"
    " title = excluded.title, updated_us = excluded.updated_us, last_revision = excluded.last_revision,"
    " last_entry = excluded.last_entry"
)
_ADD = statement(tuple[int, str, int])(
    "INSERT INTO flue_words_texts (session_key, entry_id, number, at_us, weight, length, terms, pairs)"
    " SELECT :session_key, t->>0, (t->>1)::bigint, (t->>2)::bigint, (t->>3)::bigint, (t->>4)::bigint,"
    " array_to_tsvector(ARRAY(SELECT json_array_elements_text(t->5))), decode(t->>6, 'hex')"
    " FROM json_array_elements(:texts::json) WITH ORDINALITY AS given(t, place) ORDER BY place"
    " ON CONFLICT (session_key, entry_id, number) DO NOTHING RETURNING doc, entry_id, number"
)
_ADD_MORE = statement(Nothing)(
    "INSERT INTO flue_words_more SELECT :doc, array_to_tsvector(ARRAY(SELECT json_array_elements_text(:terms::json)))"
)
_FORGET = statement(Nothing)(f"DELETE FROM flue_words_texts WHERE session_key {IN_KEYS}")
_FORGET_KNOWN = statement(Nothing)(f"DELETE FROM flue_words_sessions WHERE session_key {IN_KEYS}")
_REREAD = statement(Nothing)(
    f"UPDATE flue_words_sessions SET revision = -1, source_key = NULL WHERE session_key {IN_KEYS}"
)
KEYS_OF = statement(tuple[int])(f"SELECT session_key FROM flue_words_sessions WHERE id {IN_IDS}")
_TEXT = "SELECT t.doc, t.session_key, NULLIF(t.entry_id, ''), t.number, t.at_us, t.weight, t.length"
# How rare a term is decides how it is looked for: a plan for any term reads all texts where a rare one is asked for.
_PLAN_EACH = statement(tuple[str])("SELECT set_config('plan_cache_mode', 'force_custom_plan', true)")
_NEWEST = "AND t.doc < :below AND t.at_us >= :since ORDER BY t.doc DESC LIMIT :count"
# The same as `flue_py.search.may_have`.
_MAY_HAVE = (
    "(:pairs = '[]' OR octet_length(t.pairs) = 0 OR NOT EXISTS"
    " (SELECT FROM json_array_elements(:pairs::json) AS wanted(pairs) WHERE NOT EXISTS"
    " (SELECT FROM json_array_elements_text(wanted.pairs) AS wanted(pair)"
    " WHERE get_bit(t.pairs, pair::bigint * (8 * octet_length(t.pairs)) >> 32) = 1)))"
)
# Each side has an order and a limit of its own: of a common word, the newest texts are read, and not all that have it.
_FIND = statement(FoundText)(
    f"({_TEXT} FROM flue_words_texts t WHERE t.terms @@ :query::tsquery AND {_MAY_HAVE} {_NEWEST})"
    f" UNION ALL ({_TEXT} FROM flue_words_texts t WHERE t.terms @@ :many::tsquery"
    f" AND EXISTS (SELECT FROM flue_words_more m WHERE m.doc = t.doc AND m.terms @@ :some::tsquery) {_NEWEST})"
    " ORDER BY doc DESC LIMIT :count"
)
# (ts_stat takes four times as long for the same.)
_TERMS = statement(tuple[str])(
    'SELECT DISTINCT word FROM (SELECT unnest(tsvector_to_array(t.terms)) COLLATE "C" AS word FROM'
    f" (SELECT terms FROM flue_words_texts ORDER BY doc DESC LIMIT {_SPOKEN_IN}) t) w"
    " WHERE word >= :begin AND word < :end LIMIT :count"
)
_STRAY = statement(tuple[int])(
    "SELECT count(*) FROM flue_words_texts t WHERE NOT EXISTS"
    " (SELECT FROM flue_words_sessions s WHERE s.session_key = t.session_key)"
)


async def open_postgres_words(runner: Runner, version: int) -> PostgresWords:
    """Open the index of a store, made anew if it is of another version. Raises `StoreUnavailable` without the right."""
    stamp = version * 100 + SCHEMA
    if not await runner.read(lambda tx: _is_prepared(tx, stamp), loose=True):
        await runner.write(lambda tx: _prepare(tx, stamp), repeatable=True)
    return PostgresWords(runner)


async def remove_postgres_words(runner: Runner) -> None:
    """Remove the index of a store."""

    def drop(tx: Transaction) -> None:
        tx.first(_LOCK_ALL)
        tx.rows(_DROP)

    await runner.write(drop, repeatable=True)


async def forget_postgres_words(runner: Runner, ids: Collection[str]) -> None:
    """Remove every trace of sessions from the index of a store, if there is one."""

    def forget(tx: Transaction) -> None:
        _forget(tx, [key for (key,) in tx.rows(KEYS_OF, ids=json.dumps(list(ids)))])

    if await words_are_there(runner):
        await runner.write(forget, repeatable=True)


async def words_are_there(runner: Runner) -> bool:
    """Return whether a store has an index."""
    row = await runner.read(lambda tx: tx.first(IS_THERE), loose=True)
    return row is not None and row[0]


def _is_prepared(tx: Transaction, stamp: int) -> bool:
    return tx.first(IS_THERE) == (True,) and tx.first(_VERSION) == (stamp,)


def _prepare(tx: Transaction, stamp: int) -> None:
    tx.first(_LOCK_ALL)
    if not _is_prepared(tx, stamp):
        for command in _MAKE:
            tx.rows(command)
        tx.run(_SET_VERSION, version=stamp)


def _forget(tx: Transaction, keys: Collection[int]) -> None:
    doomed = json.dumps(sorted(keys))
    tx.run(_FORGET, keys=doomed)
    tx.run(_FORGET_KNOWN, keys=doomed)


class PostgresWords:
    """The index of words in tables of PostgreSQL. Each function is a transaction."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def begin(self) -> None:
        """Do nothing: `add` compares the state that it builds on."""

    async def commit(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing: the connections are the store's."""

    async def known(self) -> Mapping[int, KnownSession]:
        rows = await self._runner.read(lambda tx: tx.rows(_KNOWN), loose=True)
        return {session.key: session for session in rows}

    async def known_one(self, key: int) -> KnownSession | None:
        return await self._runner.read(lambda tx: tx.first(_KNOWN_ONE, session_key=key), loose=True)

    async def add(self, before: KnownSession, after: KnownSession, texts: Sequence[IndexedText]) -> bool:
        return await self._runner.write(lambda tx: _add(tx, before, after, texts))

    async def forget(self, keys: Collection[int]) -> None:
        await self._runner.write(lambda tx: _forget(tx, keys), repeatable=True)

    async def reread(self, keys: Collection[int]) -> None:
        await self._runner.write(lambda tx: tx.run(_REREAD, keys=json.dumps(sorted(keys))), repeatable=True)

    async def moment(self) -> int:
        """Return 0: texts of a session go only with the session."""
        return 0

    async def find(self, wanted: Wanted, before: int | None, limit: int) -> Sequence[FoundText]:
        marks = [_any(map(_quoted, group)) for group in wanted.marks if group]
        query = {
            "query": " & ".join([*marks, _needed(wanted.need)]),
            "many": " & ".join([*marks, _quoted(_MANY)]),
            "some": _any(_leaves(wanted.need)),
            "pairs": json.dumps(wanted.pairs),
        }
        low, high = -(2**62) if wanted.since_us is None else wanted.since_us, 2**62 if before is None else before

        def named(tx: Transaction) -> Sequence[FoundText]:
            tx.first(_PLAN_EACH)
            return tx.rows(_FIND, **query, below=high, since=low, count=max(limit, _FEWEST))[:limit]

        return await self._runner.read(named)

    async def terms_from(self, begin: str, end: str, limit: int) -> Sequence[str]:
        rows = await self._runner.read(lambda tx: tx.rows(_TERMS, begin=begin, end=end, count=limit), loose=True)
        return [term for (term,) in rows]

    async def problems(self) -> Sequence[str]:
        row = await self._runner.read(lambda tx: tx.first(_STRAY), loose=True)
        stray = 0 if row is None else row[0]
        return [f"{stray} texts are of no session that it knows"] if stray else []


def _add(tx: Transaction, before: KnownSession, after: KnownSession, texts: Sequence[IndexedText]) -> bool:
    """Add texts of a session, unless another process was faster, or has deleted it; return whether that was so."""
    tx.first(_LOCK_ONE, session_key=after.key)
    indexed = tx.first(_KNOWN_ONE, session_key=after.key)
    # Whoever deletes it waits for the end of this, and then removes it from the index.
    if (before.revision if indexed is None else indexed.revision) != before.revision:
        return False
    if tx.first(_IS_ALIVE, session_key=after.key) is None:
        return False
    rows = [_row(session_mark(after.key), text) for text in texts]
    added = tx.rows(_ADD, session_key=after.key, texts=json.dumps(rows)) if rows else ()
    long = {(text.entry_id or "", text.number): text for text in texts if len(text.terms) > _MOST_TERMS}
    for doc, entry_id, number in added:
        text = long.get((entry_id, number))
        for terms in () if text is None else _vectors(text.terms):
            tx.run(_ADD_MORE, doc=doc, terms=json.dumps(terms))
    tx.run(
        _SET_KNOWN, session_key=after.key, **{name: value for name, value in after._asdict().items() if name != "key"}
    )
    return True


def _row(own: str, text: IndexedText) -> list[object]:
    is_long = len(text.terms) > _MOST_TERMS
    terms = [own, *text.marks, *([_MANY] if is_long else text.terms)]
    return [text.entry_id or "", text.number, text.at_us, text.weight, len(text.terms), terms, text.pairs.hex()]


def _vectors(terms: Collection[str]) -> Iterator[list[str]]:
    every = list(terms)
    for low in range(0, len(every), _MOST_TERMS):
        yield every[low : low + _MOST_TERMS]


def _needed(need: Need) -> str:
    """Return a need as a query of PostgreSQL."""
    return need.written("'{}'", "'{}':*", " & ", " | ")


def _leaves(need: Need) -> Iterator[str]:
    if need.parts:
        for part in need.parts:
            yield from _leaves(part)
    else:
        yield _needed(need)


def _any(parts: Iterator[str] | Collection[str]) -> str:
    return f"({' | '.join(parts)})"


def _quoted(term: str) -> str:
    # Terms are letters and digits, or ours: nothing in them has to be escaped.
    return f"'{term}'"
