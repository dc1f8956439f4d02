"""What statements of several files take."""

from __future__ import annotations

from typing import TypedDict

AfterCount = TypedDict("AfterCount", {"after_key": int, "count": int})
Held = TypedDict("Held", {"tree_id": int, "session_key": int, "leaf": str | None, "forked_from_entry": str | None})
Id = TypedDict("Id", {"id": str})
Ids = TypedDict("Ids", {"ids": str})
Keys = TypedDict("Keys", {"keys": str})
Scope = TypedDict("Scope", {"scope": str})
ScopeProviderCall = TypedDict("ScopeProviderCall", {"scope": str, "provider": str, "call_id": str})
Session = TypedDict("Session", {"session_key": int})
SessionScope = TypedDict("SessionScope", {"session_key": int, "scope": str})
SessionRevisionLast = TypedDict("SessionRevisionLast", {"session_key": int, "revision": int, "last_revision": int})
Tree = TypedDict("Tree", {"tree_id": int})
TreeEntry = TypedDict("TreeEntry", {"tree_id": int, "entry_id": str})
TreeLane = TypedDict("TreeLane", {"tree_id": int, "lane_id": int})
TreeLaneDepth = TypedDict("TreeLaneDepth", {"tree_id": int, "lane_id": int, "depth": int})
