"""A JSONL file per session, with an fsync per line."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from benchmarks.peers.plain_jsonl import FileSession, FilesPeer


def message(text: str, tokens: int = 0) -> Any:
    return {"role": "user", "content": text, "usage": {"output": tokens}}


async def opened(folder: Path, *texts: str) -> tuple[FilesPeer, FileSession]:
    peer = FilesPeer(folder)
    own = await peer.session("a")
    for text in texts:
        await own.append(message(text))
    return peer, own


def lines(folder: Path, name: str = "a.jsonl") -> list[str]:
    return (folder / name).read_text(encoding="utf-8").splitlines()


async def fork(folder: Path) -> None:
    """By hand. A new file with the lines up to there."""
    peer, own = await opened(folder, "one", "two")
    await own.fork(1)
    assert lines(folder, "a.0.fork") == lines(folder)[:1]
    await peer.close()


async def rewind(folder: Path) -> None:
    """No. Lines are only added; going back is cutting the file, and with it what came after."""
    peer, _ = await opened(folder, "one", "two")
    await peer.close()
    kept = lines(folder)[0]
    (folder / "a.jsonl").write_text(kept + "\n", encoding="utf-8")
    assert lines(folder) == [kept]


async def undo(folder: Path) -> None:
    """No. What was cut off is gone, unless somebody copied the file."""
    peer, _ = await opened(folder, "one", "two")
    await peer.close()
    before = lines(folder)
    shutil.copy(folder / "a.jsonl", folder / "copy.jsonl")
    (folder / "a.jsonl").write_text(before[0] + "\n", encoding="utf-8")
    assert lines(folder) != before
    assert lines(folder, "copy.jsonl") == before


async def bills(folder: Path) -> None:
    """No. What a line says was used is in every copy of it."""
    peer, own = await opened(folder)
    await own.append(message("one", tokens=7))
    await own.fork(1)
    await peer.close()
    assert (
        sum('"output":7' in line.replace(" ", "") for name in ("a.jsonl", "a.0.fork") for line in lines(folder, name))
        == 2
    )


async def conflicts(folder: Path) -> None:
    """No. Two writers that have read the same file both append, and their lines mix."""
    one, mine = await opened(folder, "asked")
    other = FilesPeer(folder)
    theirs = await other.session("a")
    assert await mine.load() == await theirs.load() == 1
    await mine.append(message("by one"))
    await theirs.append(message("by the other"))
    assert await mine.load() == 3
    await one.close()
    await other.close()


async def deletion(folder: Path) -> None:
    """Yes. A session is a file."""
    peer, _ = await opened(folder, "one")
    await peer.close()
    (folder / "a.jsonl").unlink()
    assert not (folder / "a.jsonl").exists()


async def migration(folder: Path) -> None:
    """No. A line does not say by which rules it was written."""
    peer, _ = await opened(folder, "one")
    await peer.close()
    assert "version" not in lines(folder)[0]


async def growth(folder: Path) -> None:
    """Yes. A line for each message; a fork is a copy of all lines before it."""
    peer, own = await opened(folder, *["x" * 200] * 50)
    await own.fork(50)
    assert len(lines(folder)) == 50
    assert lines(folder, "a.0.fork") == lines(folder)
    await peer.close()
