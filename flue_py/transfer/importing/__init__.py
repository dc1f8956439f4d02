"""Importing files of other programs."""
