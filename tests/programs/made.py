"""The files that real programs wrote: a folder of each, packed as one file in ``tests/data/programs``.

``python -m tests.programs.made pack FOLDER NAME [PATTERN ...]`` packs what a program left below a home.
"""

from __future__ import annotations

import base64
import gzip
import json
import sys
from pathlib import Path

DATA = Path(__file__).parents[1] / "data" / "programs"


def pack(folder: Path, name: str, patterns: list[str]) -> Path:
    """Pack the files below a folder that match one of the patterns (all, if there are none), and return the file."""
    files = sorted({path for pattern in patterns or ["**/*"] for path in folder.glob(pattern) if path.is_file()})
    packed: dict[str, object] = {}
    for path in files:
        data = path.read_bytes()
        try:
            packed[str(path.relative_to(folder))] = data.decode()
        except UnicodeDecodeError:
            packed[str(path.relative_to(folder))] = {"base64": base64.b64encode(data).decode()}
    DATA.mkdir(parents=True, exist_ok=True)
    target = DATA / f"{name}.json.gz"
    target.write_bytes(gzip.compress(json.dumps(packed, indent=0, sort_keys=True).encode(), mtime=0))
    return target


def unpack(name: str, folder: Path) -> Path:
    """Write the files of a program, as ``gemini-cli-0.61.0``, below a folder, and return it."""
    packed = json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
    for place, content in packed.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else base64.b64decode(content["base64"]))
    return folder


if __name__ == "__main__":
    print(pack(Path(sys.argv[2]), sys.argv[3], sys.argv[4:]))
