"""The cost of calls whose provider did not report it, from the user's own or from published prices. No network."""

from __future__ import annotations
