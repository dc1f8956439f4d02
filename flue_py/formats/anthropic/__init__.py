"""Anthropic message lists, as files."""
