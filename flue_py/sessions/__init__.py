"""Store and Session: the public surface. Every operation is one transaction of a `Backend`."""

from __future__ import annotations
