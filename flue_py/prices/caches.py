"""What providers keep of a request, so that the next one with the same beginning is cheaper: as documented in 2026."""

from __future__ import annotations

from dataclasses import replace

from flue_py.core.counting import model_names
from flue_py.core.frozen import frozen


@frozen
class CacheRules:
    """How a provider caches: the shortest prefix, in which steps, and for how long after the last use.

    ``source`` names the provider, None for rules that are assumed, since the provider's are not known.
    """

    least_tokens: int
    step: int
    lifetime_seconds: int
    source: str | None = None

    def kept(self, prefix: int) -> int:
        """Return how many of so many tokens, the same as in the request before, are read from the cache."""
        return 0 if prefix < self.least_tokens else prefix - prefix % self.step


ASSUMED = CacheRules(1_024, 1, 300)
_RULES = (
    # Writes for an hour cost more, and are asked for by the caller; so are all breakpoints.
    ("anthropic", ("claude",), CacheRules(1_024, 1, 300, "anthropic")),
    ("openai", ("gpt-", "o1", "o3", "o4", "codex"), CacheRules(1_024, 128, 300, "openai")),
    ("google", ("gemini",), CacheRules(4_096, 1, 300, "google")),
    ("deepseek", ("deepseek",), CacheRules(64, 64, 3_600, "deepseek")),
)
_LEAST = (
    ("claude-opus-4-5", 4_096),
    ("claude-haiku-4-5", 4_096),
    ("claude-3-5-haiku", 2_048),
    ("claude-3-haiku", 2_048),
    ("gemini-2.5", 2_048),
)
"""Models whose shortest prefix is another than that of their provider."""


def cache_rules(model: str | None, provider: str | None = None) -> CacheRules:
    """Return how the requests of a model are cached, by its provider or by its name; `ASSUMED` for all others."""
    names = () if model is None else model_names(model)
    for source, prefixes, rules in _RULES:
        if (provider or "").lower().startswith(source) or any(name.startswith(prefixes) for name in names):
            least = next((tokens for start, tokens in _LEAST if names and names[-1].startswith(start)), None)
            return rules if least is None else replace(rules, least_tokens=least)
    return ASSUMED
