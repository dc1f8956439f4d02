"""What a search looks for, and where: terms, queries, the texts of entries, snippets. No I/O."""
