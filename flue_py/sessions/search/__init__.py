"""Searching a store: the index is caught up, asked, and what it says is looked up in the store."""
