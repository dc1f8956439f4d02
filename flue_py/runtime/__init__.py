"""Sessions for the program that runs an agent: a harness with names, roles and tasks, and a conversation."""

from __future__ import annotations
