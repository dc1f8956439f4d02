"""What a database is stamped with, so that anybody can tell whose it is and in which format."""

from __future__ import annotations

APPLICATION_ID = 0x464C5545
"""``PRAGMA application_id`` of every SQLite file of ours: "FLUE"."""

FIRST_FORMAT = 4
"""The format of the first release. Stores of a lower one were made before it, and are refused."""

FORMAT_VERSION = 4
"""The stored format that this package reads and writes. Older ones are upgraded, newer ones refused."""
