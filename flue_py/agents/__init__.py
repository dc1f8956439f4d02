"""Agents of pydantic-ai whose every step is stored before it has effects (`pip install 'flue-py[agents]'`).

    agent = Agent(model, capabilities=[Recorded(store)])
    await agent.run("Where is my order?", conversation_id="support-42")

`recorded` has the capability, `journal` what a run has stored and what its next commit adds, `requests` what it sends,
`tasks` the runs inside tools, `lease` that a session has one run at a time.
"""

from __future__ import annotations

from flue_py import errors

try:
    import pydantic_ai.conversation_store  # noqa: F401 - older versions of the framework do not have it
except ImportError as error:
    raise errors.MissingExtra("agents", "flue_py.agents") from error

from flue_py.agents.journal import ToolCall, tool_calls
from flue_py.agents.recorded import Recorded

__all__ = ["Recorded", "ToolCall", "tool_calls"]
