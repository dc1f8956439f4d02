"""Stores as earlier versions left them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch


@contextmanager
def names_unchecked() -> Iterator[None]:
    """Let the block store names with control characters, as stores did before they refused them."""
    with patch("flue_py.core.sessions._CONTROLS", re.compile("(?!)")):
        yield
