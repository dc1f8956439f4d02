"""The tables, how a value lies in its row, and the SQL that makes a store."""
