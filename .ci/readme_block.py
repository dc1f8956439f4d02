"""Print the Nth fenced ``sh`` block of a Markdown file, verbatim: readme_block.py N [FILE]."""

from __future__ import annotations

import re
import sys
from pathlib import Path

SHELL_BLOCK = re.compile(r"^```sh[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


def shell_blocks(markdown: str) -> list[str]:
    """Return the text inside each ```sh fence, in order, without the fences."""
    return SHELL_BLOCK.findall(markdown)


def main(arguments: list[str]) -> int:
    number = int(arguments[0])
    path = Path(arguments[1] if len(arguments) > 1 else "README.md")
    blocks = shell_blocks(path.read_text(encoding="utf-8"))
    if not 1 <= number <= len(blocks):
        print(f"{path} has {len(blocks)} sh blocks; there is no number {number}", file=sys.stderr)
        return 1
    sys.stdout.write(blocks[number - 1])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
