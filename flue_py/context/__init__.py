"""From projected entries to what one agent is sent."""
