"""What a row of the ledger counts for in a sum, in SQL that SQLite and PostgreSQL both read."""

from __future__ import annotations


def all_tokens(row: str = "g.") -> str:
    """Return the expression for all tokens of a call: the reported total, or the sum of the kinds where there is none.

    ``row`` is put before each column.
    """
    kinds = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens")
    summed = " + ".join(f"{row}{kind}" for kind in kinds)
    return f"CASE WHEN {row}total_tokens > 0 THEN {row}total_tokens ELSE {summed} END"
