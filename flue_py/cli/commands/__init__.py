"""The commands: a module for each, named as the command. The table of them is in `flue_py.cli`."""

from __future__ import annotations
