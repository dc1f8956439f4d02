"""The page on architecture names every room, every name on it exists, and imports are as it says."""

from __future__ import annotations

import re
from pathlib import Path

import flue_py
from flue_py.formats.registry import FORMATS

PACKAGE = Path(flue_py.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
TEXT = PAGE.read_text(encoding="utf-8")
ROOMS = re.findall(r"^\| `flue_py/(\S+?)/?` \|", TEXT, re.MULTILINE)


def rooms_of(folder: Path) -> set[str]:
    """Return the packages and modules of a folder, as the page names them."""
    packages = {path.parent for path in folder.glob("*/__init__.py")}
    modules = {path for path in folder.glob("*.py") if path.name != "__init__.py"}
    return {path.relative_to(PACKAGE).as_posix() for path in packages | modules}


def test_every_room_and_every_module_of_the_database_is_on_the_page() -> None:
    assert (rooms_of(PACKAGE) | rooms_of(PACKAGE / "db")) - set(ROOMS) == set()


def test_every_file_of_the_page_is_there() -> None:
    assert [room for room in ROOMS if not (PACKAGE / room).exists()] == []
    files = re.findall(r"`((?:\w+/)*\w+\.py)`", TEXT)
    assert [
        name for name in files if not any((PACKAGE / base / name).exists() for base in ("", "db", "formats", ".."))
    ] == []
    assert len(files) > 20


def test_every_format_is_on_the_page() -> None:
    names = rooms_of(PACKAGE / "formats") - {"formats/kit.py", "formats/registry.py"}
    missing = [name for name in names if f"`{name.removeprefix('formats/')}`" not in TEXT]
    assert missing == [], f"name {missing} in the row flue_py/formats/ of docs/architecture.md"
    docs = PAGE.parent
    pages = {page.name: page.read_text(encoding="utf-8") for page in (docs / "formats").glob("*.md")}
    unsaid = [one.name for one in FORMATS if not any(f"flue-py import {one.name} " in text for text in pages.values())]
    assert unsaid == [], f"write docs/formats/NAME.md with a line `flue-py import NAME FILE` for {unsaid}"
    text = (docs / "index.md").read_text(encoding="utf-8")
    unlinked = [name for name in pages if name not in ("README.md", "bundle.md") and f"formats/{name}" not in text]
    assert unlinked == [], f"link docs/formats/{unlinked} from docs/index.md"
