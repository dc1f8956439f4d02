"""`Store` and `Session`: a file for each group of methods."""

from __future__ import annotations
