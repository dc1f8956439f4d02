"""What the formats share: rows, documents, lists, entries in the making, and what readers and writers return."""
