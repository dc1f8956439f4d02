"""pydantic-ai: a `ConversationStore` that keeps its conversations as sessions of ours.

Each message of a conversation is one or more entries: a request with several tool results is a result each. What our
messages have no place for stands beside them, so that the framework's messages come back value for value, and
everything else of this library reads the conversation as any other session.
"""

from __future__ import annotations

from flue_py.errors import MissingExtra

try:
    import pydantic_ai.conversation_store  # noqa: F401 - older versions of the framework do not have it
except ImportError as error:
    raise MissingExtra("pydantic-ai", "flue_py.adapters.pydantic_ai") from error

from flue_py.adapters.pydantic_ai.store import FlueConversationStore

__all__ = ["FlueConversationStore"]
