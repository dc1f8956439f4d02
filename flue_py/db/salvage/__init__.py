"""The readable rows of a damaged SQLite file, page by page, without SQLite."""
