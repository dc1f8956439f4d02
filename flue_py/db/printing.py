"""The schema as SQL, made from the tables: ``python -m flue_py.db.printing`` writes both files anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from flue_py.db import tables
from flue_py.db.schema import HEAD, STATEMENT_END, Dialect, printed_path

if TYPE_CHECKING:
    from sqlalchemy import Dialect as SQLDialect


DIALECTS: tuple[Dialect, ...] = ("sqlite", "postgresql")


def printed_schema(dialect: Dialect) -> str:
    """Return the SQL that makes every table but the stamp, in an order in which it can be run."""
    compiler: SQLDialect = sqlite.dialect() if dialect == "sqlite" else postgresql.dialect()  # type: ignore[no-untyped-call]
    statements = []
    for table in tables.metadata.sorted_tables:
        if table.name == "flue_store":
            continue
        statements.append(str(CreateTable(table).compile(dialect=compiler)))
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        statements += [str(CreateIndex(index).compile(dialect=compiler)) for index in indexes]
    statements += [
        tables.HISTORY_VIEW,
        """\
CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
)""",
        f"INSERT INTO alembic_version (version_num) VALUES ('{HEAD}')",
    ]
    return "".join(_tidy(statement) + STATEMENT_END for statement in statements)


def _tidy(statement: str) -> str:
    return "\n".join(line.rstrip().replace("\t", "    ") for line in statement.strip().splitlines())


def main() -> None:
    """Write the files."""
    for dialect in DIALECTS:
        printed_path(dialect).write_text(printed_schema(dialect), encoding="utf-8")


if __name__ == "__main__":
    main()
