"""Keys of providers, which no error and no ``repr`` may show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_LOOKS_LIKE_A_KEY = re.compile(r"\b(?:sk|pk|gsk|xai|AIza)[-_]?[\w*-]{12,}|(?<=Bearer )\S{8,}")
_SHORTEST = 8
_HIDDEN = "[hidden]"


class Secrets:
    """The keys that a model was opened with. Its ``repr`` shows none of them."""

    def __init__(self, keys: Iterable[str]) -> None:
        # A short one is no key but a stand-in, and would be hidden in the midst of words.
        self._keys = sorted({key for key in keys if len(key) >= _SHORTEST}, key=len, reverse=True)

    def hidden(self, text: str) -> str:
        """Return a text without the keys, and without what looks like one."""
        for key in self._keys:
            text = text.replace(key, _HIDDEN)
        return _LOOKS_LIKE_A_KEY.sub(_HIDDEN, text)

    def are_told_by(self, error: BaseException) -> bool:
        """Return whether a traceback of an error would show a key, by its own text or that of what it came from."""
        return any(self.hidden(text) != text for each in _chain(error) for text in (str(each), repr(each)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self._keys)} hidden)"


def keys_of(model: object) -> Iterator[str]:
    """Yield the keys of the clients behind a model of pydantic-ai, those of wrapped models included."""
    client = getattr(model, "client", None)
    for name in ("api_key", "auth_token"):
        key = getattr(client, name, None)
        if isinstance(key, str):
            yield key
    wrapped = getattr(model, "wrapped", None)
    for each in (*(getattr(model, "models", None) or ()), *([] if wrapped is None else [wrapped])):
        yield from keys_of(each)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
