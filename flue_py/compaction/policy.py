"""What a caller may set about compaction: its sizes, and how far it departs from the reference."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias, TypeGuard

from flue_py.errors import InvalidArgument, shown

OnFailure: TypeAlias = Literal["raise", "fallback", "mark"]
ON_FAILURE: tuple[OnFailure, ...] = ("raise", "fallback", "mark")
SummaryForm: TypeAlias = Literal["notes", "turns"]
SUMMARY_FORMS: tuple[SummaryForm, ...] = ("notes", "turns")


class _Unset(int):
    """A number that nobody has set."""


TOKEN_BUDGET = 80_000
"""What mode ``window`` leaves of a context, where nobody says."""


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """When to compact, how much to keep, in tokens, and how the summary is made.

    ``reserve_tokens`` is the room left for the next answer: compaction is due above the context window minus
    this, and it bounds the length of a summary. ``keep_recent_tokens`` is how much of the end of the context
    stays word for word, 20,000 if nobody sets it, or in mode ``window`` 80,000, counted as characters / 4;
    ``keep_recent_messages`` how many messages of it do at most, None for any number; one stays in any case, but with 0
    only what the last turn owes. ``mode`` is the name of the mode that makes the text.

    ``summary_form`` says how a model writes a summary: as ``notes`` (the task, ground rules, state, decisions, next,
    facts), or by ``turns``: below a line that names the turns it covers, what is completed, open questions, remaining
    work and key findings.

    ``user_words_share`` is the share of the window up to which a summary carries what the user said, word for word; 0
    leaves it out. ``on_failure`` says what a model that fails leads to: ``raise``, ``fallback`` (the mode ``intent``
    makes the text), or ``mark`` (a text that says what is missing). With ``prefer_deterministic`` no model is asked:
    ``intent`` takes the place of a mode that needs one, as is wise where the window has overflowed.
    ``max_message_chars`` cuts longer messages in what a model is shown; 0 cuts none. ``include_reasoning`` and
    ``include_symbols`` put excerpts of the model's thinking, and what defines what in source files, before a summary;
    ``include_files`` puts up to five files behind it, as they were read last.

    ``registered_item_tokens`` is how much of one registered text a compaction brings back (`Session.register`), and
    ``registered_tokens`` of all of them. ``summary_timeout`` is the number of seconds after which a model that has not
    answered is given up, ``rate_limit_wait`` how many seconds one compaction waits in all where a provider says when to
    call again; 0 waits for none. Raises `InvalidArgument` naming each field that is wrong.
    """

    reserve_tokens: int = 16_384
    keep_recent_tokens: int = _Unset(20_000)
    keep_recent_messages: int | None = None
    enabled: bool = True
    mode: str = "llm"
    summary_form: SummaryForm = "notes"
    user_words_share: float = 0.2
    on_failure: OnFailure = "raise"
    prefer_deterministic: bool = False
    max_message_chars: int = 8_000
    include_reasoning: bool = False
    include_symbols: bool = False
    include_files: bool = False
    registered_item_tokens: int = 5_000
    registered_tokens: int = 25_000
    summary_timeout: float = 300.0
    rate_limit_wait: float = 60.0

    def __post_init__(self) -> None:
        wrong = [f"{name}: {problem}" for name, check in _CHECKS.items() if (problem := check(getattr(self, name)))]
        if wrong:
            raise InvalidArgument("; ".join(wrong))


def _wrong_amount(value: object) -> str:
    is_amount = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return "" if is_amount else f"{shown(value)} is negative or no whole number; give one >= 0"


def _wrong_number_of_messages(value: object) -> str:
    return "" if value is None else _wrong_amount(value)


def _is_number(value: object) -> TypeGuard[int | float]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    # A whole number may be too large for a float, which `isfinite` makes of it.
    return abs(value) <= sys.float_info.max


def _wrong_share(value: object) -> str:
    return "" if _is_number(value) and 0 <= value <= 1 else f"{shown(value)} is no share; give a number from 0 to 1"


def _wrong_timeout(value: object) -> str:
    return "" if _is_number(value) and value > 0 else f"{shown(value)} is no time; give a number of seconds above 0"


def _wrong_wait(value: object) -> str:
    return "" if _is_number(value) and value >= 0 else f"{shown(value)} is no time; give a number of seconds >= 0"


def _wrong_flag(value: object) -> str:
    return "" if isinstance(value, bool) else f"should be True or False, not {shown(value)}"


def _wrong_mode(value: object) -> str:
    return "" if isinstance(value, str) and value else f"{shown(value)} is not the name of a mode"


def _wrong_word(words: tuple[str, ...], value: object) -> str:
    return "" if value in words else f"{shown(value)} is none of {', '.join(words)}"


_CHECKS: dict[str, Callable[[object], str]] = {
    "reserve_tokens": _wrong_amount,
    "keep_recent_tokens": _wrong_amount,
    "keep_recent_messages": _wrong_number_of_messages,
    "enabled": _wrong_flag,
    "mode": _wrong_mode,
    "summary_form": partial(_wrong_word, SUMMARY_FORMS),
    "user_words_share": _wrong_share,
    "on_failure": partial(_wrong_word, ON_FAILURE),
    "prefer_deterministic": _wrong_flag,
    "max_message_chars": _wrong_amount,
    "include_reasoning": _wrong_flag,
    "include_symbols": _wrong_flag,
    "include_files": _wrong_flag,
    "registered_item_tokens": _wrong_amount,
    "registered_tokens": _wrong_amount,
    "summary_timeout": _wrong_timeout,
    "rate_limit_wait": _wrong_wait,
}
"""What is wrong with the value of each field, "" for nothing: all are checked at once, so that one start names all."""


DEFAULT_SETTINGS = CompactionSettings()
WHOLE = CompactionSettings(keep_recent_tokens=0, keep_recent_messages=0)
"""What somebody who asks for a compaction, and says no more, gets of a model: a summary of all that is over."""


def checked_settings(settings: CompactionSettings | None) -> CompactionSettings:
    """Return settings as they are, or the default ones for None. Raises `InvalidArgument` for anything else."""
    if settings is None:
        return DEFAULT_SETTINGS
    if not isinstance(settings, CompactionSettings):
        raise InvalidArgument(f"settings: should be CompactionSettings, not {shown(settings)}")
    return settings


def settings_keeping(tokens: int | None) -> CompactionSettings | None:
    """Return settings that keep so many tokens of the end, with 0 only what the last turn owes; None for None."""
    messages = None if tokens else 0
    return None if tokens is None else CompactionSettings(keep_recent_tokens=tokens, keep_recent_messages=messages)


def sized_for(settings: CompactionSettings, window: int | None, around: int = 0) -> CompactionSettings:
    """Return settings whose sizes fit into a context window: reserve at most a quarter, keep half of what is left.

    ``around`` are the tokens of what goes with the messages. A window of None, or not above 0, is unknown, and changes
    nothing.
    """
    if window is None or window <= 0:
        return settings
    reserve = min(settings.reserve_tokens, window // 4)
    keep = min(settings.keep_recent_tokens, max(window - around - reserve, 0) // 2)
    return replace(settings, reserve_tokens=reserve, keep_recent_tokens=keep)


def token_budget(settings: CompactionSettings, default: int = TOKEN_BUDGET) -> int:
    """Return how many tokens mode ``window`` leaves: what somebody has set, or the default."""
    kept = settings.keep_recent_tokens
    return default if isinstance(kept, _Unset) else kept


def window_above(settings: CompactionSettings, most: int) -> int:
    """Return the window in which, by these settings, a compaction is due above a size of ``most`` tokens."""
    return most + min(settings.reserve_tokens, -(-most // 3))


def window_of_messages(window: int | None, around: int) -> int | None:
    """Return what of a context window so many tokens around the messages leave to these; None where it is unknown."""
    return None if window is None or window <= 0 else max(window - around, 1)


def most_kept(settings: CompactionSettings, window: int | None) -> int | None:
    """Return how many tokens may stay of a context, so that a summary has room beside them; None for no such limit.

    Three quarters of the window without the reserve. A window of None, or not above 0, is unknown.
    """
    return None if window is None or window <= 0 else max(window - settings.reserve_tokens, 0) * 3 // 4


def within_budget(
    settings: CompactionSettings,
    counts: Sequence[int],
    budgeted: Sequence[int],
    sized: CompactionSettings,
    window: int | None,
    *,
    has_summary: bool,
) -> int | None:
    """Return how many tokens the end of a context takes that is within the budget of mode ``window``; None for all.

    ``counts`` are the sizes of its items, ``budgeted`` those that the budget counts; the first is a summary that stays
    where there is one. What a window leaves beside the reserve is the most; one of None, or not above 0, is unknown.
    O(items).
    """
    budget, kept = token_budget(settings), 0
    most = max(window - sized.reserve_tokens, 0) if window is not None and window > 0 else sys.maxsize
    if sum(budgeted) <= budget and sum(counts) <= most:
        return None
    if has_summary:
        # What it carries on is written anew, in as much room.
        budget, most = budget - budgeted[0], most - max(counts[0], (window or 0) // 16)
    for size, counted in zip(reversed(counts), reversed(budgeted), strict=True):
        budget -= counted
        if budget < 0:
            break
        kept += size
    return max(min(kept, most), 0)


def room_for_text(settings: CompactionSettings, window: int | None, staying: int) -> int | None:
    """Return how many tokens the text of a compaction should take beside so many that stay; None for no limit.

    What fifteen sixteenths of the window without the reserve have left: the next message should not be enough for
    another compaction. A sixteenth of the window in any case. A window of None, or not above 0, is unknown.
    """
    if window is None or window <= 0:
        return None
    return max((window - settings.reserve_tokens) * 15 // 16 - staying, window // 16)


def keeping_less(settings: CompactionSettings, tokens: int) -> CompactionSettings:
    """Return settings that keep so many tokens less of the end, for something else that will be in the context."""
    return replace(settings, keep_recent_tokens=max(settings.keep_recent_tokens - tokens, 0)) if tokens else settings


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """Named departures from the reference. Each switch is on by default; `FAITHFUL_POLICY` has all of them off.

    The plan carries its policy, so that planning and summarizing always agree.
    """

    keep_previous_summary: bool = True
    """A split turn with no history before it carries the previous summary on. Off: it is lost."""

    cut_before_large_tail: bool = True
    """If the budget is used up inside the tool results at the end of the context, the cut is at the message that
    called the tools. Off: such a context is never compacted."""

    ignore_zero_usage: bool = True
    """An assistant message that reports zero tokens in total is ignored, and an earlier report is used.
    Off: everything up to it counts as zero."""

    ignore_older_usage: bool = True
    """Usage that was reported before the latest compaction is ignored: that context is gone. Off: it counts, and a
    compaction is due again right after a compaction."""

    read_plain_text: bool = True
    """Content that is a plain string counts, and is summarized, in assistant messages and tool results as in
    user messages. Off: it counts zero tokens and is left out of summaries."""

    whole_characters: bool = True
    """The cut of a long tool result never leaves half of a surrogate pair, which could not be encoded. Off: it
    is made after exactly 2,000 UTF-16 code units."""

    cut_at_message_entries: bool = True
    """A session is cut at the next message entry where the cut would fall on an entry of another kind, such as
    a branch summary. Off: it is not compacted then, for the reason ``first_kept_not_message``."""

    keep_exchanges_whole: bool = True
    """A cut never falls between a tool call and its result, even if other messages are between them. Off: a
    result may be kept without its call."""

    know_file_tools: bool = True
    """The lists of files have those of ``read_file``, ``Write``, ``MultiEdit`` and other names that tools for files
    have, with the path as ``file_path`` and the like. Off: those of ``read``, ``write``, ``edit`` with ``path``."""

    refuse_blank_summary: bool = True
    """A summary of nothing but white space is a failed call. Off: it takes the place of the history."""

    stop_at_failed_call: bool = True
    """After a failed summarizer call no other is made. Off: the second of two is still made."""


DEFAULT_POLICY = CompactionPolicy()
"""What sessions use: every known fault of the reference is fixed."""

FAITHFUL_POLICY = CompactionPolicy(
    keep_previous_summary=False,
    cut_before_large_tail=False,
    ignore_zero_usage=False,
    ignore_older_usage=False,
    read_plain_text=False,
    whole_characters=False,
    cut_at_message_entries=False,
    keep_exchanges_whole=False,
    know_file_tools=False,
    refuse_blank_summary=False,
    stop_at_failed_call=False,
)
"""The reference, exactly."""
