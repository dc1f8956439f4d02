"""Options of commands that write for a script: what it has seen, and a key by which a retry is done once."""

from __future__ import annotations

import click

from flue_py.core.sessions import STORED, LeafChoice


def _leaf(ctx: click.Context, param: click.Parameter, leaf: str | None) -> LeafChoice:
    return STORED if leaf is None else leaf or None


expected_option = click.option(
    "--expected",
    metavar="LEAF",
    callback=_leaf,
    help='Only if this whole id is the leaf ("" before the first entry); else exit 5.',
)
idempotency_option = click.option("--idempotency-key", metavar="KEY", help="The same key again is done once.")
