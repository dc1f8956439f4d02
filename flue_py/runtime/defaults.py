"""The values that fuseraft documents for its runs, where those of this package are others."""

from __future__ import annotations

from typing import TypedDict

from flue_py.compaction.settings import CompactionSettings, TriggerSettings
from flue_py.context.settings import ContextSettings, ContextWindow, Trimming


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
    "context": ContextSettings(window=ContextWindow(max_replay_chars=0), faithful=True),
    "stop_over_budget": True,
}
"""For ``CompactionGuard(store, session, model, **RUN_DEFAULTS)``: a compaction after 50 turns, of which 10 stay;
summaries by turns, and a marker in place of one that failed; excerpts of reasoning and symbols before it, and files
that were read behind it; answers cut after 2,000 characters where they are sent again; no turn once the ledger has more
than a budget allows. Only ``thrash_window`` holds fruitless compactions back."""

REPL_CONTEXT = ContextSettings(trim=Trimming(), faithful=True, epoch_tokens=0)
"""For ``Conversation(store, session, context=REPL_CONTEXT)``: the turns that fit 80,000 tokens are sent anew
in every request; without it that waits for epochs, and the messages sent stay in the provider's cache."""
