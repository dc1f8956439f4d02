"""Every statement, a file for each idea."""
