"""pi session files."""
