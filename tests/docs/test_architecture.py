"""The page on architecture names every room, every name on it exists, and imports are as it says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import flue_py

PACKAGE = Path(flue_py.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
ROOMS = re.findall(r"^\| `flue_py/(\S+?)/?` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def folders_of(room: Path) -> set[str]:
    return {path.parent.relative_to(PACKAGE).as_posix() for path in room.glob("*/__init__.py")}


def test_every_room_and_every_folder_of_the_store_is_on_the_page() -> None:
    assert folders_of(PACKAGE) | folders_of(PACKAGE / "store") <= set(ROOMS)


def test_what_the_page_names_is_there() -> None:
    assert [room for room in ROOMS if not (PACKAGE / room).exists()] == []
    text = PAGE.read_text(encoding="utf-8")
    files = re.findall(r"`((?:core|sessions|ops|sqlite|postgres)/\w+\.py)`", text)
    assert [name for name in files if not any((PACKAGE / base / name).exists() for base in ("", "store"))] == []
    assert len(files) > 5


def test_every_format_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    names = {Path(folder).name for folder in folders_of(PACKAGE / "formats")}
    assert [name for name in names if f"`{name}/`" not in text] == []


def test_no_module_imports_a_private_name_of_another() -> None:
    # ruff's SLF001 sees `module._name`, but not `from module import _name`.
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {alias.name}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "flue_py"
        for alias in node.names
        if re.match("_(?!_)", alias.name)
    ]
    assert found == []
