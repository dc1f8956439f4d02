"""What a call costs whose provider did not say: from the user's own prices, or from published ones. No network."""

from __future__ import annotations
