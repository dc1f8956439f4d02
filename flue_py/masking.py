"""Secrets in texts: where they are, by which rule, and the text without them.

They are found by the detectors of detect-secrets and by the forms of providers' keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from importlib import import_module
from typing import TypeAlias

from flue_py.core.json import Frozen, NamedTuple
from flue_py.errors import MissingExtra

# Their expressions are used, not their scanner: that reads files, and may ask services whether a key is a real one.

HIDDEN = "[hidden]"
_MARK = "[secret: "
_PROBE = "a1b2c3d4e5f6"

_PLUGINS = (
    "artifactory", "aws", "azure_storage_key", "basic_auth", "cloudant", "discord", "github_token", "gitlab_token",
    "ibm_cloud_iam", "ibm_cos_hmac", "jwt", "mailchimp", "npm", "openai", "pypi_token", "sendgrid", "slack",
    "softlayer", "square_oauth", "stripe", "telegram_token", "twilio",
)  # fmt: skip
"""All that look for the form of a key. High entropy alone is left out: every hash of a commit has it."""

_Rule: TypeAlias = tuple[str, re.Pattern[str]]
"""The name of a rule, and its expression."""

_OURS: tuple[_Rule, ...] = (
    # Keys of providers of models, which are the likeliest ones in a session of an agent.
    ("Provider Key", re.compile(r"\b(?:sk|pk|rk|gsk|xai|hf|r8)[-_](?=[\w-]*\d)[\w*-]{12,}|\bAIza[\w-]{20,}")),
    # More than detect-secrets knows: GitHub, Slack, Google, Vault, age, Databricks, DigitalOcean, Hugging Face.
    (
        "Service Token",
        re.compile(
            r"\b(?:github_pat_\w{20,}|xapp-[\w-]{10,}|GOCSPX-[\w-]{10,}|ya29\.[\w.-]{10,}|hv[sb]\.[\w-]{10,}"
            r"|AGE-SECRET-KEY-1\w{10,}|dapi[0-9a-f]{32}|dop_v1_\w{20,}|hf_\w{20,})"
        ),
    ),
    ("Password in an Address", re.compile(r"://[^\s/@:'\"]*:[^\s/'\"]+@")),
    # The head of a token, should its end be cut off.
    ("JSON Web Token", re.compile(r"\beyJ[\w-]{16,}[\w.=-]*")),
)
_BEHIND: tuple[_Rule, ...] = (
    # A value behind a telling name, if it has a digit and is more than a number.
    (
        "Secret Keyword",
        re.compile(
            r"(?:token|secret|api[_-]?key|credentials?|cookie|authorization|session[_-]?id)[\"']?\s{0,3}[:=]\s{0,3}[\"']?"
            r"(?![\d.,_]+(?:[\s\"',;]|$))(?=[^\s\"',;]*\d)([^\s\"',;]{8,})",
            re.IGNORECASE,
        ),
    ),
    ("Authorization Header", re.compile(r"\b(?:Basic|Bearer) ([\w+/=.~-]{8,})", re.IGNORECASE)),
    (
        "Password of a Command",
        re.compile(r"(?:--?(?:password|passwd|pass|token|api-key|secret)[ =]|\bsshpass -p ?)[\"']?([^\s\"']+)"),
    ),
    ("Password of a Command", re.compile(r"\bcurl\b.{0,200}? (?:-u|--user)[ =]?[\"']?[^\s:\"']*:([^\s\"']+)")),
    ("Password of a Login", re.compile(r"\blogin\s+\S+\s+password\s+(\S+)")),
    ("Password of a Login", re.compile(r"\"auth\"\s*:\s*\"([\w+/=]{8,})\"")),
)
"""The text that follows such words is hidden, and the words stay."""

# detect-secrets knows the head of a private key; what has to be hidden is its body.
_KEY = "[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_PRIVATE: _Rule = ("Private Key", re.compile(rf"-----BEGIN {_KEY}.*?(?:-----END {_KEY}|\Z)", re.DOTALL))

_PIECE = 1_000
"""Texts are looked at in pieces: on a long run without a blank, some of the expressions take quadratic time."""

_OVERLAP = 200
_LEAST = 4
"""A shorter part of a secret says nothing of it, and stands by chance in many texts."""

_RUN_END = re.compile(r"[\s'\"]")
_REMEMBERED = 20_000
"""As many as a list of sessions has that a person filters: looking for secrets anew would take a third of a second."""


class Secret(NamedTuple):
    """A place in a text, and the name of the rule that says it is secret."""

    start: int
    end: int
    rule: str


def mark(rule: str) -> str:
    """Return the mark that stands in the place of a secret."""
    return f"{_MARK}{rule}]"


class Masked(Frozen):
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
            raise MissingExtra("secrets", "finding secrets") from error
        self._shapes = (*_OURS, *_expressions(modules))
        self._words = re.compile(keyword.DENYLIST_REGEX, re.IGNORECASE)
        self._keyword = str(keyword.KeywordDetector.secret_type)
        self._after_words: list[tuple[re.Pattern[str], int]] = [
            *keyword.QUOTES_REQUIRED_DENYLIST_REGEX_TO_GROUP.items(),
            *keyword.CONFIG_DENYLIST_REGEX_TO_GROUP.items(),
        ]
        names = {rule for rule, _ in (*self._shapes, *_BEHIND)} | {self._keyword, _PRIVATE[0]}
        # Of rules alone: anything might be hidden in a mark that merely looks like one.
        self._marks = re.compile("|".join(re.escape(mark(name)) for name in sorted(names)))
        self._remembered = lru_cache(_REMEMBERED)(self._search)
        self.is_telling = lru_cache(_REMEMBERED)(self._is_telling)

    def masked(self, text: str) -> Masked:
        """Return a text with `HIDDEN` in place of each secret. O(characters)."""
        secrets = self.find(text)
        return Masked(replaced(text, secrets, lambda _: HIDDEN), len(secrets))

    def secrets(self, text: str) -> tuple[str, ...]:
        """Return the secrets in a text, in order. O(characters)."""
        return tuple(text[secret.start : secret.end] for secret in self.find(text))

    def find(self, text: str) -> tuple[Secret, ...]:
        """Return the places of secrets, in order, none over another or over a mark. O(characters), or remembered."""
        return self._remembered(text) if len(text) <= _PIECE else self._search(text)

    def _search(self, text: str) -> tuple[Secret, ...]:
        return tuple(self._between_marks(text))

    def _between_marks(self, text: str) -> Iterator[Secret]:
        at = 0
        marks = self._marks.finditer(text) if _MARK in text else ()
        for start, end in (*(place.span() for place in marks), (len(text), 0)):
            for secret in joined(sorted(self._spans(text[at:start]))):
                yield Secret(at + secret.start, at + secret.end, secret.rule)
            at = end

    def rule_behind(self, name: str, text: str) -> str | None:
        """Return the rule by which a text is secret as the value of a field of this name; None if it is not."""
        begin = len(name) + len('"": "')
        found = self.find(f'"{name}": "{text}"')
        return next((rule for start, end, rule in found if begin <= start < end <= begin + len(text)), None)

    def _is_telling(self, name: str) -> bool:
        """Return whether the name of a field may say that its value is secret. Those of ids do not."""
        return not name.lower().endswith("id") and self.rule_behind(name, _PROBE) is not None

    def _spans(self, text: str) -> Iterator[Secret]:
        yield from (Secret(*match.span(), _PRIVATE[0]) for match in _PRIVATE[1].finditer(text))
        has_words = self._words.search(text) is not None
        at = 0
        for line in text.splitlines(keepends=True):
            for begin, piece in _pieces(line):
                spans = self._shaped(piece)
                for start, end, rule in (*spans, *self._behind_words(piece)) if has_words else spans:
                    # What ends with its piece may go on behind it.
                    stop = end + begin if end < len(piece) else _end_of_run(line, end + begin)
                    yield Secret(at + begin + start, at + stop, rule)
            at += len(line)

    def _shaped(self, piece: str) -> Iterator[Secret]:
        for rule, shape in self._shapes:
            for match in shape.finditer(piece):
                yield Secret(*match.span(), rule)
        for rule, shape in _BEHIND:
            for match in shape.finditer(piece):
                yield Secret(*match.span(1), rule)

    def _behind_words(self, line: str) -> Iterator[Secret]:
        if self._words.search(line) is None:
            return
        for expression, group in self._after_words:
            for match in expression.finditer(line):
                if match.group(group).strip():
                    yield Secret(*match.span(group), self._keyword)


def replaced(text: str, secrets: Sequence[Secret], mark_of: Callable[[str], str]) -> str:
    """Return a text with other words in place of its secrets, by their rules. The same one if there are none."""
    pieces: list[str] = []
    at = 0
    for start, end, rule in secrets:
        pieces += (text[at:start], mark_of(rule))
        at = end
    return "".join((*pieces, text[at:])) if pieces else text


def without(piece: str, secrets: Iterable[str]) -> str:
    """Return a piece of a text without the secrets of that text, and without parts of them at its ends.

    White space may be other than it is in the text. O(characters of the secrets).
    """
    for secret in (" ".join(secret_text.split()) for secret_text in secrets):
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


def _expressions(modules: Sequence[object]) -> Iterator[_Rule]:
    """Yield the expressions of the detectors in some modules of detect-secrets."""
    for module in modules:
        for name, value in vars(module).items():
            if (
                isinstance(value, type)
                and name.endswith("Detector")
                and value.__module__ == getattr(module, "__name__", "")
            ):
                for expression in getattr(value, "denylist", ()):
                    yield str(getattr(value, "secret_type", name)), expression


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
    match = _RUN_END.search(line, at)
    return len(line) if match is None else match.start()


def joined(secrets: Sequence[Secret]) -> Iterator[Secret]:
    """Yield secrets in order, those that overlap as one, by the rule of the first."""
    last = Secret(0, 0, "")
    for secret in secrets:
        if secret.start > last.end or last.end == 0:
            if last.end > last.start:
                yield last
            last = secret
        else:
            last = last._replace(end=max(last.end, secret.end))
    if last.end > last.start:
        yield last
