"""What a store does, as functions of a transaction: a file for each idea."""
