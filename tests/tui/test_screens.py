"""The screens, as they look on 80 x 24 cells: each is compared with the text in ``screens/``.

python tests/tui/pictures.py --write    makes these texts, and the pictures of the documentation, anew
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.needed import needs

needs("tui", "textual", "detect_secrets")

from tests.tui import pictures  # noqa: E402
from tests.tui.driving import browsing  # noqa: E402


@pytest.mark.parametrize("name", pictures.SCENES)
async def test_a_screen_looks_as_it_did(name: str, story: Path) -> None:
    async with browsing(story) as driver:
        await pictures.SCENES[name](driver)
        text = pictures.text_file(name).read_text(encoding="utf-8")
        await driver.until(lambda: driver.screen + "\n" == text)


def test_the_page_about_the_browser_names_its_keys() -> None:
    page = pictures.PAGE.read_text(encoding="utf-8")
    assert pictures.with_keys(page) == page
    assert "`ctrl+f`" in page
    assert all(name in page and (pictures.DRAWN / name).exists() for name in pictures.PICTURES.values())


def test_no_text_is_of_a_scene_that_is_gone() -> None:
    assert {path.stem for path in pictures.TEXTS.glob("*.txt")} == set(pictures.SCENES)


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (200, 60), (20, 5)])
async def test_every_screen_can_be_drawn_in_any_size(size: tuple[int, int], story: Path) -> None:
    async with browsing(story, size=size) as driver:
        await driver.sees("flue-py")
        await driver.press("enter")
        await driver.whole()
        for key in (
            "1", "2", "3", "4", "5", "end", "home", "question_mark", "escape", "z", "z", "equals_sign", "down",
            "equals_sign",
        ):  # fmt: skip
            await driver.press(key)
        await driver.press("escape", "escape")
        assert len(driver.screen.splitlines()) == size[1]
