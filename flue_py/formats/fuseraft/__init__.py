"""fuseraft REPL snapshots and run checkpoints."""
