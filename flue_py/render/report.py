"""A session as one HTML file that needs nothing else: the page, its styles, its scripts and its data.

The page asks no network for anything: its Content-Security-Policy allows the scripts and styles of this file, by
their hashes, and nothing more. What was said in a session reaches the page as JSON and is set as text there, so that
it can be neither markup nor script.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files

from flue_py.core.jsontext import JsonValue
from flue_py.core.ledger import UsageRow
from flue_py.render.report_data import ReportedSession, Thresholds, growing, report_data
from flue_py.render.report_growth import snapshot_rows

SCRIPTS = (
    "page", "model", "money", "markdown", "messages", "tree", "map", "compare", "compaction", "sent", "context",
    "growth", "find", "address", "start",
)  # fmt: skip
"""The page's own scripts, in the order in which they have to run."""

_LIBRARIES = ("uPlot.iife.min.js", "d3-hierarchy.min.js", "markdown-it.min.js")
_LICENSES = (
    ("uPlot 1.6.32", "uPlot.LICENSE"),
    ("d3-hierarchy 3.1.3", "d3-hierarchy.LICENSE"),
    ("markdown-it 15.0.3", "markdown-it.LICENSE"),
)
# A source map is a separate file, which a report does not have.
_SOURCE_MAP = re.compile(r"^//# sourceMappingURL=.*$", re.MULTILINE)
_SLOT = re.compile(r"@@([A-Z_]+)@@")
# Characters that could end the element or begin a comment, that old parsers take for a line end, or without UTF-8.
_UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")


def html_report(
    sessions: Sequence[ReportedSession],
    thresholds: Thresholds = Thresholds(),  # noqa: B008 - frozen
    *,
    bill: Sequence[UsageRow] = (),
    made_at: datetime | None = None,
) -> str:
    """Return sessions as one HTML file: the one reported on first, its task sessions after it.

    ``bill`` is what they have paid, by provider, model and purpose.
    The same arguments give the same text: the time of making is on the page only as ``made_at``. Cost: O(entries),
    and O(path) for each compaction; the text is about 1.5 times the payloads, and 240 kB.
    """
    data = report_data(sessions, thresholds, bill=bill, made_at=made_at)
    return _filled(
        _asset("report.html"),
        {
            "POLICY": _policy(),
            "TITLE": escape(str(data["title"])),
            "STYLES": "\n".join(f"<style>{style}</style>" for style in _styles()),
            "SCRIPTS": "\n".join(f"<script>{script}</script>" for script in _scripts()),
            "DATA": embedded_json(data),
            "LICENSES": escape("\n\n".join(f"{name}\n{_asset(f'vendor/{file}').strip()}" for name, file in _LICENSES)),
        },
    )


def context_snapshots(sessions: Sequence[ReportedSession], thresholds: Thresholds = Thresholds()) -> str:  # noqa: B008
    """Return the figures of the chart as JSON lines, for programs that read context snapshots."""
    rows = snapshot_rows(
        growing(sessions), sessions[0].info.id, warn_at=thresholds.warn_at, cutover_at=thresholds.cutover_at
    )
    return "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)


def embedded_json(value: JsonValue) -> str:
    """Return a value as JSON text that can stand in a script element: nothing in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def _filled(template: str, values: dict[str, str]) -> str:
    # In one pass, so that inserted text is never searched for slots.
    return _SLOT.sub(lambda found: values[found.group(1)], template)


@cache
def _asset(name: str) -> str:
    return files("flue_py.render").joinpath("assets").joinpath(*name.split("/")).read_text(encoding="utf-8")


def _styles() -> list[str]:
    return [_asset("vendor/uPlot.min.css"), _asset("report.css")]


def _scripts() -> list[str]:
    own = "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
    libraries = (_SOURCE_MAP.sub("", _asset(f"vendor/{name}")) for name in _LIBRARIES)
    return [*libraries, f'(() => {{\n"use strict";\n{own}}})();\n']


def _policy() -> str:
    scripts = " ".join(_hash(script) for script in _scripts())
    styles = " ".join(_hash(style) for style in _styles())
    return (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; img-src data:; base-uri 'none';"
        " form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
