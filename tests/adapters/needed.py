"""The frameworks that adapters are for: not installed for most runs, and never missing in CI's environment for one."""

from __future__ import annotations

import os

import pytest


def needs(extra: str, *modules: str) -> None:
    """Skip the module of tests, or the test, that calls this, unless the framework can be imported, with the reason.

    Where ``FLUE_PY_REQUIRE_EXTRAS`` names the extra, a missing module fails instead.
    """
    for module in modules:
        if is_required(extra):
            __import__(module)
        pytest.importorskip(module, reason=f"{module} is not installed: pip install -r .ci/frameworks/{extra}.txt")


def is_required(extra: str) -> bool:
    """Return whether this environment has to have what an extra installs."""
    return extra in os.environ.get("FLUE_PY_REQUIRE_EXTRAS", "").split(",")
