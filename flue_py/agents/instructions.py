"""The instructions of the REPL's agent: its session, where it runs, memories, and the rules of AGENTS.md."""

from __future__ import annotations

from pathlib import Path

from flue_py.context.blocks import (
    MOST_CHARS,
    Block,
    BlockFailure,
    BlockText,
    Gitignore,
    LocalMemory,
    RuntimeEnvironment,
    read_blocks,
    visible,
)
from flue_py.errors import UnreadableFile, shown
from flue_py.render.views import iso
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.sessions.write import PATIENCE
from flue_py.system import read_beginning

RULES = "AGENTS.md"

_ROLE = """You are an agent at work in the terminal of a person, who reads your words as they come. Be brief.
All that is said here is stored, step by step; the person may go back to any earlier turn, and ask again."""


class Rules:
    """The block ``rules``: AGENTS.md of a folder, behind those of the folders above it in the same repository."""

    name = "rules"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def read(self) -> BlockText | None:
        """Return the block, None if there is none. Raises `UnreadableFile`, also for more than 100,000 bytes."""
        from anyio.to_thread import run_sync  # noqa: PLC0415 - anyio takes 30 ms to load

        return await run_sync(self._read)

    def _read(self) -> BlockText | None:
        above = [self._folder, *self._folder.parents]
        top = next((number for number, folder in enumerate(above) if (folder / ".git").exists()), 0)
        texts = (_rules_in(folder / RULES) for folder in reversed(above[: top + 1]))
        text = "\n\n".join(filter(None, texts))
        return BlockText(text) if text else None


def _rules_in(path: Path) -> str:
    try:
        data = read_beginning(path, MOST_CHARS + 1)
        if data is None:
            raise ValueError("it is not a file")
        if len(data) > MOST_CHARS:
            raise ValueError(f"it has more than {MOST_CHARS:,} bytes")
        text = data.decode().strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as error:
        raise UnreadableFile(
            f"{shown(str(path))} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
    return f"# {RULES} instructions for {visible(str(path.parent))}\n\n{text}" if text else ""


async def instructions_of(store: Store, session: Session, folder: Path) -> tuple[str, list[BlockFailure]]:
    """Return the instructions for a session in a folder as all is now, and the parts that could not be read.

    O(memories), and the time of reading the files.
    """
    memory = LocalMemory(store, project=session.info.cwd or "", scope=session.info.scope)
    blocks: list[Block] = [RuntimeEnvironment(cwd=str(folder)), Gitignore(folder), Rules(folder), memory]
    texts = await read_blocks(blocks, PATIENCE)
    facts = {
        "Session": session.id,
        "Started": iso(session.info.created_at),
        "Stored in": (await store.info()).location,
        "Event log": "the tool repl_session_read_event_log",
    }
    own = "\n".join(["## This session", *(f"- {name}: {value}" for name, value in facts.items())])
    parts = [_ROLE, own, *(text.text for text in texts if isinstance(text, BlockText))]
    return "\n\n".join(parts), [text for text in texts if isinstance(text, BlockFailure)]
