"""What docs/comparison.md claims of each store, as programs: a module for each, a function for each claim.

The first words of a function's docstring are the verdict, the rest the claim; its body shows it, by assertions.
"""
