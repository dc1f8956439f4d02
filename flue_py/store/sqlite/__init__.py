"""SQLite, in files."""
