"""The agent's side: sessions that stay inside their window, conversations, and agents whose steps are stored.

`guard`, `conversation` and `harness` need nothing else. The rest is for agents of pydantic-ai
(`pip install 'flue-py[agents]'`), whose every step is stored before it has effects:

    agent = Agent(model, capabilities=[Recorded(store)])
    await agent.run("Where is my order?", conversation_id="support-42")

`recorded` has the capability, what it sends, and the runs inside tools; `journal` what a run has stored, and that a
session has one run at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.lazy import lazy_names

if TYPE_CHECKING:
    from flue_py.agents.journal import ToolCall, tool_calls
    from flue_py.agents.recorded import Recorded
__all__ = ["Recorded", "ToolCall", "tool_calls"]

if not TYPE_CHECKING:
    _HOMES = {"flue_py.agents.journal": "ToolCall tool_calls", "flue_py.agents.recorded": "Recorded"}
    __getattr__ = lazy_names(__name__, _HOMES)
