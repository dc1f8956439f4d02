"""Files in the making, and temporary folders."""
