"""Rescuing what is readable in a damaged SQLite store, page by page, without SQLite."""
