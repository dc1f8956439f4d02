"""Rescue the readable data of a damaged SQLite store, page by page, without SQLite."""
