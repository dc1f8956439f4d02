"""`AsyncSqliteSaver` of LangGraph with plain dicts for messages, which its encoder takes fastest."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.langgraph_saver import LangGraphPeer, open_saver


async def open_peer(folder: Path) -> LangGraphPeer:
    """Open the store in ``folder``."""
    return await open_saver(folder, dict)
