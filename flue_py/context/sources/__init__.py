"""Named sources of what an agent is told in place of the history, and of handoffs."""
