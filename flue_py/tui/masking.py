"""Secrets in what is shown: found by the detectors of detect-secrets, and hidden.

Their expressions are used, not their scanner: that reads files, and may ask services whether a key is a real one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from importlib import import_module
from typing import NamedTuple

from flue_py.errors import MissingExtra

HIDDEN = "[hidden]"

_PLUGINS = (
    "artifactory", "aws", "azure_storage_key", "basic_auth", "cloudant", "discord", "github_token", "gitlab_token",
    "ibm_cloud_iam", "ibm_cos_hmac", "jwt", "mailchimp", "npm", "openai", "pypi_token", "sendgrid", "slack",
    "softlayer", "square_oauth", "stripe", "telegram_token", "twilio",
)  # fmt: skip
"""All that look for the form of a key. High entropy alone is left out: every hash of a commit has it."""

_OURS = (
    # Keys of providers of models, which are the likeliest ones in a session of an agent.
    re.compile(r"\b(?:sk|pk|rk|gsk|xai|hf|r8)[-_](?=[\w-]*\d)[\w*-]{12,}|\bAIza[\w-]{20,}"),
    # More than detect-secrets knows: GitHub, Slack, Google, Vault, age, Databricks, DigitalOcean, Hugging Face.
    re.compile(
        r"\b(?:github_pat_\w{20,}|xapp-[\w-]{10,}|GOCSPX-[\w-]{10,}|ya29\.[\w.-]{10,}|hv[sb]\.[\w-]{10,}"
        r"|AGE-SECRET-KEY-1\w{10,}|dapi[0-9a-f]{32}|dop_v1_\w{20,}|hf_\w{20,})"
    ),
    re.compile(r"://[^\s/@:'\"]*:[^\s/'\"]+@"),
    # The head of a token, should its end be cut off.
    re.compile(r"\beyJ[\w-]{16,}[\w.=-]*"),
)
_BEHIND = (
    # A value behind a telling name, if it has a digit and is more than a number.
    re.compile(
        r"(?:token|secret|api[_-]?key|credentials?|cookie|authorization|session[_-]?id)[\"']?\s{0,3}[:=]\s{0,3}[\"']?"
        r"(?![\d.,_]+(?:[\s\"',;]|$))(?=[^\s\"',;]*\d)([^\s\"',;]{8,})",
        re.IGNORECASE,
    ),
    re.compile(r"\b(?:Basic|Bearer) ([\w+/=.~-]{8,})", re.IGNORECASE),
    re.compile(r"(?:--?(?:password|passwd|pass|token|api-key|secret)[ =]|\bsshpass -p ?)[\"']?([^\s\"']+)"),
    re.compile(r"\bcurl\b.{0,200}? (?:-u|--user)[ =]?[\"']?[^\s:\"']*:([^\s\"']+)"),
    re.compile(r"\blogin\s+\S+\s+password\s+(\S+)"),
    re.compile(r"\"auth\"\s*:\s*\"([\w+/=]{8,})\""),
)
"""What follows such words is hidden, and the words stay."""

# detect-secrets knows the head of a private key; what has to be hidden is its body.
_KEY = "[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_PRIVATE_KEY = re.compile(rf"-----BEGIN {_KEY}.*?(?:-----END {_KEY}|\Z)", re.DOTALL)

_PIECE = 1_000
"""Texts are looked at in pieces: on a long run without a blank, some of the expressions take quadratic time."""

_OVERLAP = 200
_LEAST = 4
"""A shorter part of a secret says nothing of it, and stands by chance in many texts."""

_RUN_END = re.compile(r"[\s'\"]")
_REMEMBERED = 4_000


class Masked(NamedTuple):
    """A text without its secrets, and how many there were."""

    text: str
    hidden: int


class Mask:
    """Hides secrets. Raises `MissingExtra` if detect-secrets is not installed. O(0.4 s): the import."""

    def __init__(self) -> None:
        try:
            keyword = import_module("detect_secrets.plugins.keyword")
            modules = [import_module(f"detect_secrets.plugins.{name}") for name in _PLUGINS]
        except ImportError as error:
            raise MissingExtra("tui", "hiding secrets") from error
        self._shapes = (*_OURS, *_expressions(modules))
        self._words = re.compile(keyword.DENYLIST_REGEX, re.IGNORECASE)
        self._after_words: list[tuple[re.Pattern[str], int]] = [
            *keyword.QUOTES_REQUIRED_DENYLIST_REGEX_TO_GROUP.items(),
            *keyword.CONFIG_DENYLIST_REGEX_TO_GROUP.items(),
        ]
        self._remembered = lru_cache(_REMEMBERED)(self._masked)

    def masked(self, text: str) -> Masked:
        """Return a text with `HIDDEN` in place of each secret. O(characters); what is short is remembered."""
        return self._remembered(text) if len(text) <= _PIECE else self._masked(text)

    def secrets(self, text: str) -> tuple[str, ...]:
        """Return the secrets in a text, in order. O(characters)."""
        return tuple(text[start:end] for start, end in _joined(sorted(self._spans(text))))

    def _masked(self, text: str) -> Masked:
        kept: list[str] = []
        at = count = 0
        for start, end in _joined(sorted(self._spans(text))):
            kept += (text[at:start], HIDDEN)
            at, count = end, count + 1
        return Masked("".join((*kept, text[at:])), count)

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        yield from (found.span() for found in _PRIVATE_KEY.finditer(text))
        has_words = self._words.search(text) is not None
        at = 0
        for line in text.splitlines(keepends=True):
            for begin, piece in _pieces(line):
                spans = self._shaped(piece)
                for start, end in (*spans, *self._behind_words(piece)) if has_words else spans:
                    # What ends with its piece may go on behind it.
                    stop = end + begin if end < len(piece) else _end_of_run(line, end + begin)
                    yield at + begin + start, at + stop
            at += len(line)

    def _shaped(self, piece: str) -> Iterator[tuple[int, int]]:
        for shape in self._shapes:
            for found in shape.finditer(piece):
                yield found.span()
        for shape in _BEHIND:
            for found in shape.finditer(piece):
                yield found.span(1)

    def _behind_words(self, line: str) -> Iterator[tuple[int, int]]:
        if self._words.search(line) is None:
            return
        for expression, group in self._after_words:
            for found in expression.finditer(line):
                if found.group(group).strip():
                    yield found.span(group)


def without(piece: str, secrets: Iterable[str]) -> str:
    """Return a piece of a text without the secrets of that text, and without parts of them at its ends.

    White space may be other than it is in the text. O(characters of the secrets).
    """
    for secret in (" ".join(each.split()) for each in secrets):
        piece = piece.replace(secret, HIDDEN)
        for length in range(min(len(secret) - 1, len(piece)), _LEAST - 1, -1):
            if piece.startswith(secret[-length:]):
                piece = HIDDEN + piece[length:]
                break
        for length in range(min(len(secret) - 1, len(piece)), _LEAST - 1, -1):
            if piece.endswith(secret[:length]):
                piece = piece[:-length] + HIDDEN
                break
    return piece


def _expressions(modules: Sequence[object]) -> Iterator[re.Pattern[str]]:
    """Yield the expressions of the detectors in some modules of detect-secrets."""
    for module in modules:
        for name, value in vars(module).items():
            if (
                isinstance(value, type)
                and name.endswith("Detector")
                and value.__module__ == getattr(module, "__name__", "")
            ):
                yield from getattr(value, "denylist", ())


def _pieces(line: str) -> Iterator[tuple[int, str]]:
    """Yield a line in pieces that overlap, each with where it begins; cut at blanks where there are some."""
    begin = 0
    while len(line) - begin > _PIECE:
        blank = line.rfind(" ", begin + 2 * _OVERLAP, begin + _PIECE)
        end = begin + _PIECE if blank < 0 else blank
        yield begin, line[begin:end]
        # A word such as "password" may stand before the cut, and the secret behind it.
        begin = end - _OVERLAP
    yield begin, line[begin:].rstrip("\r\n")


def _end_of_run(line: str, at: int) -> int:
    found = _RUN_END.search(line, at)
    return len(line) if found is None else found.start()


def _joined(spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield spans in order, those that overlap as one."""
    begin = end = 0
    for start, stop in spans:
        if start > end or end == 0:
            if end > begin:
                yield begin, end
            begin, end = start, stop
        else:
            end = max(end, stop)
    if end > begin:
        yield begin, end
