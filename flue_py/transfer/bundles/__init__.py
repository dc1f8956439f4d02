"""Bundles: whole trees with their blobs and their part of the ledger, in one file that can be checked to be whole.

A bundle is a gzip stream of lines of JSON. The first says what it is; then comes each tree, a line that counts its rows
followed by them, then what sessions now gone have paid; the last has the SHA-256 of all lines before it. Rows are those
that `core.trees` describes, in a canonical order, under numbers of the bundle's own, so that the same trees give the
same bytes from whatever store. docs/formats/bundle.md describes it for other programs.
"""

from __future__ import annotations
