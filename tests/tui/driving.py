"""Driving the browser without a terminal: what is on its screen, and waiting for something to be there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import flue_py
from flue_py.render.lines import text_of
from flue_py.tui.app import Browser, RowList, SessionScreen

SIZE = (80, 24)
_LOOKS = 2_000


def shown(app: Browser) -> str:
    """Return the screen as text, without blanks at the ends of lines."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


class Driver:
    """A browser under test."""

    def __init__(self, app: Browser, pilot: Any) -> None:
        self.app, self.pilot = app, pilot

    @property
    def screen(self) -> str:
        return shown(self.app)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def type(self, text: str) -> None:
        await self.pilot.press(*("space" if char == " " else char for char in text))

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds. It is looked for often, and then the screen is shown in a failure."""
        for _ in range(_LOOKS):
            if holds():
                await self.pilot.pause()
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"it never came:\n{self.screen}")

    async def sees(self, text: str) -> str:
        """Wait until a text is on the screen, and return the screen."""
        await self.until(lambda: text in self.screen)
        return self.screen

    async def lacks(self, text: str) -> str:
        """Wait until a text is not on the screen, and return the screen."""
        await self.until(lambda: text not in self.screen)
        return self.screen

    async def open(self, name: str) -> None:
        """Open the session whose name has this in it, from the list, and wait until all of it is there."""
        await self.sees(name)
        await self.type(name)
        await self.press("enter")
        await self.whole()

    async def whole(self) -> None:
        def is_whole() -> bool:
            screen = self.app.screen
            return isinstance(screen, SessionScreen) and screen.is_whole

        await self.until(is_whole)

    async def at(self, text: str) -> None:
        """Go to the first row of the list that has a text."""
        rows = self.app.screen.query_one(RowList)
        for at in range(rows.count):
            if text in text_of(rows._draw(at, 200)):
                rows.stand_on(at)
                await self.pilot.pause()
                return
        raise AssertionError(f"no row has {text!r}:\n{self.screen}")


@asynccontextmanager
async def browsing(
    path: Path, *, size: tuple[int, int] = SIZE, session: str | None = None, opens: str | None = None
) -> AsyncIterator[Driver]:
    """Run the browser on a database, which is verified at the end. ``opens`` is the name of a session to open first."""
    async with flue_py.open(path) as store:
        app = Browser(store, path.name, session_id=session)
        async with app.run_test(size=size) as pilot:
            driver = Driver(app, pilot)
            if opens is not None:
                await driver.open(opens)
            yield driver
        assert not (await store.verify()).problems
