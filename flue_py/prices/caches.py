"""What providers keep of a request, so that the next one with the same beginning is cheaper.

Looked up on 2026-11-25. Beside each rule is the page that has it, with the date that the page or its copy has.
"""

from __future__ import annotations

import re
from dataclasses import replace

from flue_py.core.counting import model_names
from flue_py.core.frozen import frozen


@frozen
class CacheRules:
    """How a provider caches: the shortest prefix, in which steps, and for how long after the last use.

    The time is what is kept at least; most keep it longer where there is room. ``source`` names the provider, None for
    rules that are assumed, since the provider's are not known.
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
    # https://platform.claude.com/docs/en/build-with-claude/prompt-caching (October 2026): five minutes, renewed by each
    # use. An hour costs more to write, and is asked for by the caller (`ttl` in anthropic 2.12); so are breakpoints.
    ("anthropic", ("claude",), CacheRules(1_024, 1, 300, "anthropic")),
    # https://developers.openai.com/api/docs/guides/prompt-caching (2026-09-02): 2,048 tokens before GPT-5.6, reported
    # in steps of 128; in memory for 5 to 10 minutes without use. `24h` is the default of many accounts, and typically
    # 30 minutes, but those without data retention have five.
    ("openai", ("gpt-", "o1", "o3", "o4", "codex"), CacheRules(2_048, 128, 300, "openai")),
    # https://ai.google.dev/gemini-api/docs/caching (2026-10-13): the shortest prefix of each model, "a short amount of
    # time" for how long, which is not documented: five minutes are assumed.
    ("google", ("gemini",), CacheRules(4_096, 1, 300, "google")),
    # https://api-docs.deepseek.com/guides/kv_cache (September 2026): "a few hours to a few days". The 64 tokens are of
    # https://api-docs.deepseek.com/news/news0802 (2024-08-02); the guide has no other number.
    ("deepseek", ("deepseek",), CacheRules(64, 64, 3_600, "deepseek")),
)

_LEAST = (
    # As above: Claude Fable 5 and 5.1, Mythos 5 and 5.1, Opus 5 and 5.5, Sonnet 5.5 and Haiku 5.5.
    *((name, 512) for name in ("claude-fable-5", "claude-mythos-5", "claude-opus-5", "claude-sonnet-5-5")),
    ("claude-haiku-5-5", 512),
    *((name, 2_048) for name in ("claude-mythos-preview", "claude-opus-4-7", "claude-3-5-haiku", "claude-3-haiku")),
    *((name, 4_096) for name in ("claude-opus-4-6", "claude-opus-4-5", "claude-haiku-4-5")),
    ("gemini-2-5", 2_048),
)
"""Models whose shortest prefix is another than that of their provider."""

_GPT = re.compile(r"gpt-(1?\d)(?!\d)(?:-(\d{1,2})(?!\d))?")
_OF_NEW_GPT = CacheRules(1_024, 128, 1_800, "openai")
"""GPT-5.6 and later, as above: 1,024 tokens, and 30 minutes after the last write or use (`30m` in openai 3.54)."""


def cache_rules(model: str | None, provider: str | None = None) -> CacheRules:
    """Return how the requests of a model are cached, by its provider or by its name; `ASSUMED` for all others."""
    names = () if model is None else model_names(model)
    # Some gateways write `claude-opus-4.5`.
    name = names[-1].replace(".", "-") if names else ""
    for source, prefixes, rules in _RULES:
        if not (provider or "").lower().startswith(source) and not any(each.startswith(prefixes) for each in names):
            continue
        gpt = _GPT.match(name)
        if source == "openai" and gpt is not None and (int(gpt[1]), int(gpt[2] or 0)) >= (5, 6):
            return _OF_NEW_GPT
        least = next((tokens for start, tokens in _LEAST if name.startswith(start)), rules.least_tokens)
        return replace(rules, least_tokens=least)
    return ASSUMED
