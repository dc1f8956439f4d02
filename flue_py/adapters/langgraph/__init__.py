"""A LangGraph checkpointer that keeps its threads in a store of ours (`pip install 'flue-py[langgraph]'`)."""

from __future__ import annotations

from flue_py.errors import MissingExtra

try:
    import langgraph.checkpoint.base  # noqa: F401 - only to say which extra is missing
except ImportError as error:
    raise MissingExtra("langgraph", "flue_py.adapters.langgraph") from error

from flue_py.adapters.langgraph.saver import FlueSaver, ThreadOwned

__all__ = ["FlueSaver", "ThreadOwned"]
