"""From values to lines for people (`tree`, `views`) and to JSON for programs (`rows`).

Pure functions: they know neither a terminal nor a database. A line is a row of ``(text, style)`` pairs, the
style in the words terminals share ("bold", "green", "dim"); the caller that prints decides how to show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.lazy import lazy_modules

if TYPE_CHECKING:
    from flue_py.render import report as report
    from flue_py.render import views as views
__all__ = ["report", "report_data", "views"]
__getattr__ = lazy_modules(__name__)
