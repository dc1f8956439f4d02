"""Foreign formats, one module each: from and to values. What stores the values is elsewhere."""

from __future__ import annotations
