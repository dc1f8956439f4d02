"""Scenes of the browser: as texts that the tests compare, and as pictures for the documentation.

python tests/tui/pictures.py            say which differ from what the browser shows
python tests/tui/pictures.py --write    put what it shows there
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.tui.driving import Driver, browsing
from tests.tui.story import tell

TEXTS = Path(__file__).parent / "screens"
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "find-a-session.md"
DRAWN = PAGE.parent
PICTURES = {"session": "browse-a-session.svg", "sessions": "browse-sessions.svg"}
"""The scenes that the documentation shows, and under which names."""


async def sessions(driver: Driver) -> None:
    await driver.sees("Why is the build")


async def filtered(driver: Driver) -> None:
    await driver.sees("Why is the build")
    await driver.type("web notes")
    await driver.lacks("build")


async def session(driver: Driver) -> None:
    await driver.open("Why is the build")
    await driver.at("One test")
    await driver.sees("it waits for a clock")


async def prompts(driver: Driver) -> None:
    await driver.open("Why is the build")
    await driver.press("3", "end")
    await driver.sees("prompts")


async def labelled(driver: Driver) -> None:
    await driver.open("Why is the build")
    await driver.press("4")
    await driver.sees("labelled")


async def folded(driver: Driver) -> None:
    await driver.open("Why is the build")
    await driver.at("One test")
    await driver.press("left")
    await driver.sees("(folded)")


async def hidden(driver: Driver) -> None:
    await driver.open("Why is the build")
    await driver.at("Deploy it")
    await driver.sees("1 secret hidden")


async def edit(driver: Driver) -> None:
    await driver.open("Why is the build")
    await driver.at("Fix it.")
    await driver.press("enter")
    await driver.sees("Change the prompt")


async def before(driver: Driver) -> None:
    await driver.open("Why is the build")
    await driver.at("compaction")
    await driver.press("enter")
    await driver.sees("before compaction")


async def compared(driver: Driver) -> None:
    await driver.open("Why is the build")
    await driver.at("Fixed by")
    await driver.press("equals_sign", "end", "equals_sign")
    await driver.sees("in common")


async def found(driver: Driver) -> None:
    await driver.sees("Why is the build")
    await driver.type("test")
    await driver.press("ctrl+f")
    await driver.sees("searched")


async def asked(driver: Driver) -> None:
    await driver.open("Why is the build")
    await driver.press("D")
    await driver.sees("Delete")


async def keys(driver: Driver) -> None:
    await driver.open("Why is the build")
    await driver.press("question_mark")
    await driver.sees("move the leaf")


async def strange(driver: Driver) -> None:
    await driver.open("scratch")
    await driver.sees("not bold")


SCENES: dict[str, Callable[[Driver], Awaitable[None]]] = {
    scene.__name__: scene
    for scene in (
        sessions, filtered, session, prompts, labelled, folded, hidden, edit, before, compared, found, asked, keys,
        strange,
    )
}  # fmt: skip


def text_file(name: str) -> Path:
    return TEXTS / f"{name}.txt"


async def shown(name: str, folder: Path) -> tuple[str, str]:
    """Return a scene as text and as SVG."""
    path = folder / name / "sessions.db"
    path.parent.mkdir()
    await tell(path)
    async with browsing(path) as driver:
        await SCENES[name](driver)
        return driver.screen + "\n", driver.app.export_screenshot(title=f"flue-py browse: {name}")


def main() -> None:
    """Compare the scenes, or write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    is_written = parser.parse_args().write
    differ = []
    with tempfile.TemporaryDirectory() as folder:
        for name in SCENES:
            text, picture = asyncio.run(shown(name, Path(folder)))
            files = {text_file(name): text}
            if name in PICTURES:
                files[DRAWN / PICTURES[name]] = picture
            for path, content in files.items():
                if path.exists() and path.read_text(encoding="utf-8") == content:
                    continue
                differ.append(path.name)
                if is_written:
                    path.parent.mkdir(exist_ok=True)
                    path.write_text(content, encoding="utf-8")
    print(f"{'written' if is_written else 'differ'}: {', '.join(differ) or 'none'}")
    sys.exit(bool(differ) and not is_written)


if __name__ == "__main__":
    main()
