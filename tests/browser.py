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
from typing import TYPE_CHECKING, NoReturn, TypeVar
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, ViewportSize

PROGRAM_VARIABLE = "FLUE_PY_TEST_CHROMIUM"
REQUIRE_VARIABLE = "FLUE_PY_REQUIRE_CHROMIUM"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
SWITCHES = (
    "--no-sandbox", "--disable-gpu", "--in-process-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip

SCREEN: ViewportSize = {"width": 1280, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}

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
        self._page: Page | None = None
        self._visit = Visit()
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

    def look(
        self, file: Path | str, look: Callable[[Page], Result], *, at: str = "", viewport: ViewportSize | None = None
    ) -> Result:
        """Return what ``look`` returns, given the open page; ``at`` is the fragment of its address, with its #.

        A page that asks for anything but its own file, or of a server (a URL) for anything elsewhere, logs a warning or
        an error, or has an uncaught exception fails the test. What a server refuses is logged, and no failure.
        """
        address = file if isinstance(file, str) else file.as_uri()
        return self._thread.submit(self._look, address + at, look, viewport or SCREEN).result()

    def _look(self, address: str, look: Callable[[Page], Result], viewport: ViewportSize) -> Result:
        # The page of the last file, emptied: a new one is a new process. One that failed a test is not used again, nor
        # one of a server, with its cookies and storage.
        page, self._page = self._page or self._new_page(), None
        visit = self._visit = Visit()
        page.set_viewport_size(viewport)
        try:
            page.goto(address)
            result = look(page)
            if address.startswith("http"):
                asked = {"{0.scheme}://{0.netloc}".format(urlsplit(request)) for request in visit.requests}
                visit.console = [line for line in visit.console if not line.startswith(_REFUSED)]
                assert (asked, visit.console, visit.errors) == ({address.partition("/sessions")[0].rstrip("/")}, [], [])
            else:
                assert visit == Visit([address.partition("#")[0]])
                page.mouse.move(0, 0)
                page.goto("about:blank")
                page.emulate_media(media="null", color_scheme="null")
                self._page = page
            return result
        finally:
            if self._page is None:
                page.context.close()

    def _new_page(self) -> Page:
        page = self._browser.new_context(reduced_motion="reduce").new_page()
        page.set_default_timeout(20_000)
        page.on("request", lambda request: self._visit.requests.append(request.url))
        page.on("console", lambda message: self._visit.console.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self._visit.errors.append(str(error)))
        return page


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
