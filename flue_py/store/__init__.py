"""The only place that knows a database: schema, statements, runners, migration, verification."""
