"""The browser of a test run: Debian's Chromium, driven by Playwright, one for each process that needs it.

FLUE_PY_TEST_CHROMIUM names the program; without it the usual names are looked up on the PATH. If there is none, or
the name is "none", tests skip, or fail with FLUE_PY_REQUIRE_CHROMIUM=1. A browser is never downloaded.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PROGRAM_VARIABLE = "FLUE_PY_TEST_CHROMIUM"
REQUIRE_VARIABLE = "FLUE_PY_REQUIRE_CHROMIUM"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
SWITCHES = (
    "--no-sandbox", "--disable-gpu", "--in-process-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip

_REFUSED = "error: Failed to load resource: the server responded with a status of 4"

Result = TypeVar("Result")


@dataclass(slots=True)
class Visit:
    """What a page did while it was open: requests beside its own file, what it logged, and what went wrong."""

    requests: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class Chromium:
    """A running browser. It lives on a thread of its own, as Playwright keeps an event loop running there."""

    def __init__(self, program: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="chromium")
        self._browser: Browser = self._thread.submit(self._launch, program).result()

    def _launch(self, program: str) -> Browser:
        from playwright.sync_api import sync_playwright

        self._playwright = sync_playwright().start()
        return self._playwright.chromium.launch(executable_path=program, args=list(SWITCHES))

    def close(self) -> None:
        """End the browser, and what drives it."""
        self._thread.submit(self._close).result()
        self._thread.shutdown()

    def _close(self) -> None:
        self._browser.close()
        self._playwright.stop()

    def look(self, file: Path | str, look: Callable[[Page], Result], *, at: str = "", **settings: Any) -> Result:
        """Return what ``look`` returns, given the open page; ``at`` is the fragment of its address, with its #.

        A page that asks for anything but its own file, or of a server (a URL) for anything elsewhere, logs a warning or
        an error, or has an uncaught exception fails the test. What a server refuses is logged, and no failure.
        """
        address = file if isinstance(file, str) else file.as_uri()
        return self._thread.submit(self._look, address + at, look, settings).result()

    def _look(self, address: str, look: Callable[[Page], Result], settings: dict[str, Any]) -> Result:
        visit = Visit()
        size = {"width": 1280, "height": 900}
        context = self._browser.new_context(**{"viewport": size, "reduced_motion": "reduce", **settings})
        try:
            context.on("request", lambda request: visit.requests.append(request.url))
            page = context.new_page()
            page.set_default_timeout(20_000)
            page.on("console", lambda message: visit.console.append(f"{message.type}: {message.text}"))
            page.on("pageerror", lambda error: visit.errors.append(str(error)))
            page.goto(address)
            result = look(page)
            if address.startswith("http"):
                asked = {"{0.scheme}://{0.netloc}".format(urlsplit(request)) for request in visit.requests}
                visit.console = [line for line in visit.console if not line.startswith(_REFUSED)]
                assert (asked, visit.console, visit.errors) == ({address.partition("/sessions")[0].rstrip("/")}, [], [])
            else:
                assert visit == Visit([address.partition("#")[0]])
            return result
        finally:
            context.close()


def find_program() -> str | None:
    """Return the browser to run the tests in, or None where there is none, or the tests shall do without."""
    named = os.environ.get(PROGRAM_VARIABLE)
    if named == "none":
        return None
    return shutil.which(named) if named else next(filter(None, map(shutil.which, PROGRAMS)), None)


def _without(reason: str) -> NoReturn:
    if os.environ.get(REQUIRE_VARIABLE) == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    """Give the browser of this process."""
    if find_spec("playwright") is None:
        _without("playwright is missing; install the extra `test`")
    program = find_program()
    if program is None:
        _without(f"no Chromium found; install one, or name it in {PROGRAM_VARIABLE}")
    browser = Chromium(program)
    yield browser
    browser.close()
