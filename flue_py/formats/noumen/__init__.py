"""noumen session files."""
