"""Benchmarks of what stands around the library, each in an environment with its extra."""
