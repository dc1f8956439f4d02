"""The values that fuseraft documents for its runs, where those of this package are others."""

from __future__ import annotations

from os import PathLike, fspath
from typing import TypedDict

from flue_py.compaction.settings import CompactionSettings, TriggerSettings
from flue_py.context.artifacts import OffloadSettings
from flue_py.context.blocks import Block, Gitignore, LocalMemory, RuntimeEnvironment
from flue_py.context.settings import ContextSettings, ContextWindow, InTurn, Trimming
from flue_py.sessions.store import Store


class RunDefaults(TypedDict):
    """Parameters of `CompactionGuard`."""

    settings: CompactionSettings
    triggers: TriggerSettings
    context: ContextSettings
    stop_over_budget: bool


RUN_DEFAULTS: RunDefaults = {
    "settings": CompactionSettings(
        summary_form="turns", on_failure="mark", include_reasoning=True, include_symbols=True, include_files=True
    ),
    "triggers": TriggerSettings(trigger_turns=50, keep_recent_turns=10, least_share=0.0),
    "context": ContextSettings(
        window=ContextWindow(max_replay_chars=0), in_turn=InTurn(max_tool_pairs=12), faithful=True
    ),
    "stop_over_budget": True,
}
"""For ``CompactionGuard(store, session, model, **RUN_DEFAULTS)``: a compaction after 50 turns, of which 10 stay;
summaries by turns, and a marker in place of one that failed; excerpts of reasoning and symbols before it, and files
that were read behind it; mode ``window`` leaves 80,000 tokens; answers cut after 2,000 characters where they are sent
again, and in the turn in progress the last 12 results of tools in full; no turn once the ledger has more than a budget
allows. Only ``thrash_window`` holds fruitless compactions back."""

RUN_OFFLOAD = OffloadSettings(above=40_000)
"""For ``offload=``: the results of tools that are stored beside the conversation."""

REPL_CONTEXT = ContextSettings(trim=Trimming(), faithful=True, epoch_tokens=0)
"""For ``Conversation(store, session, context=REPL_CONTEXT)``: the turns that fit 80,000 tokens are sent anew
in every request; without it that waits for epochs, and the messages sent stay in the provider's cache."""


def run_blocks(
    store: Store, *, folder: str | PathLike[str] | None = None, space: str = "repl", project: str = ""
) -> tuple[Block, ...]:
    """Return the blocks that nobody has to configure: the environment, the ``.gitignore``, and what is remembered.

    ``folder`` is where the agent works, by default the process; ``space`` and ``project`` are those of its memories.
    """
    cwd = None if folder is None else fspath(folder)
    return (RuntimeEnvironment(cwd=cwd), Gitignore(folder), LocalMemory(store, space=space, project=project))
