"""What is remembered, asked of a server before each turn, which is given what was said after it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from flue_py.context.blocks.exchange import Address, Exchange, checked_address
from flue_py.context.blocks.protocol import BlockText
from flue_py.core.jsontext import JsonObject, JsonValue
from flue_py.core.spoken import message_text
from flue_py.errors import InvalidArgument, MemoryUnavailable, shown

_MOST_BYTES = 64 * 1024
_SAVED = ("user", "assistant")


class WebhookMemory:
    """The block ``memory`` of a server: it answers what is remembered, and is given what was said.

    ``url`` is asked before a turn, by a POST of ``{"agent": ...}``, and answers ``{"block": ...}``, a text, or null for
    nothing. ``save_url`` is given ``{"agent": ..., "history": [{"role": ..., "content": ...}, ...]}`` after it, with
    what the user and the model said in the turn, as text. Either may be None.

    ``token`` returns what the server knows the caller by, or ``token_variable`` is the variable of the environment that
    has it; it is sent as ``Authorization: Bearer``, read anew each time, and is in no error. An exchange ends after
    ``timeout`` seconds, and an answer has at most ``most_bytes``. Redirects are not followed, and proxies not asked.
    """

    def __init__(
        self,
        url: str | None,
        *,
        save_url: str | None = None,
        agent: str = "",
        token: Callable[[], str | None] | None = None,
        token_variable: str | None = None,
        timeout: float = 10.0,
        most_bytes: int = _MOST_BYTES,
        name: str = "memory",
    ) -> None:
        if url is None and save_url is None:
            raise InvalidArgument("url: there is neither a url nor a save_url")
        for what, text in (("agent", agent), ("name", name), ("token_variable", token_variable)):
            if not isinstance(text, str) and (text is not None or what != "token_variable"):
                raise InvalidArgument(f"{what}: {shown(text)} is not a text")
        if token is not None and (not callable(token) or token_variable is not None):
            raise InvalidArgument("token: should be a function that returns it, and not be there beside token_variable")
        is_number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
        if not is_number or not math.isfinite(timeout) or timeout <= 0:
            raise InvalidArgument(f"timeout: {shown(timeout)} is not a number of seconds above 0")
        if isinstance(most_bytes, bool) or not isinstance(most_bytes, int) or most_bytes < 1:
            raise InvalidArgument(f"most_bytes: {shown(most_bytes)} is not a number of bytes from 1")
        self.name = name
        self._load = None if url is None else checked_address(url, "url")
        self._save = None if save_url is None else checked_address(save_url, "save_url")
        self._agent = agent
        self._token = token
        self._token_variable = token_variable
        self._timeout = timeout
        self._most_bytes = most_bytes

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._load or self._save!r}>"

    async def read(self) -> BlockText | None:
        """Return what the server remembers, None if that is nothing. Raises `MemoryUnavailable`."""
        if self._load is None:
            return None
        answer = await self._ask(self._load, {"agent": self._agent})
        block = _fields(answer, self._load).get("block") if answer.strip() else None
        if not isinstance(block, (str, type(None))):
            raise MemoryUnavailable(f"{self._load!r} answered a block that is not a text")
        return BlockText(block) if block and block.strip() else None

    async def save(self, messages: Sequence[JsonObject]) -> None:
        """Give the server what was said in a turn. Raises `MemoryUnavailable`."""
        said: list[JsonValue] = [
            {"role": str(message["role"]), "content": text}
            for message in messages
            if message.get("role") in _SAVED and (text := message_text(message)).strip()
        ]
        if self._save is not None and said:
            await self._ask(self._save, {"agent": self._agent, "history": said})

    async def _ask(self, address: Address, body: Mapping[str, JsonValue]) -> bytes:
        from anyio import fail_after, to_thread  # noqa: PLC0415 - it takes 30 ms to load

        exchange = Exchange(address, json.dumps(body).encode(), self._read_token(), self._timeout, self._most_bytes)
        try:
            with fail_after(self._timeout):
                return await to_thread.run_sync(exchange.run, abandon_on_cancel=True)
        except TimeoutError:
            raise MemoryUnavailable(f"{address!r} gave no answer within {self._timeout:g} seconds") from None
        finally:
            # The thread would go on for as long as the server sends a byte now and then.
            exchange.end()

    def _read_token(self) -> str | None:
        if self._token is None and self._token_variable is None:
            return None
        try:
            token = os.environ.get(self._token_variable or "") if self._token is None else self._token()
        except Exception as error:  # noqa: BLE001 - its text may have the token
            raise MemoryUnavailable(f"token: the function that returns it raised {type(error).__name__}") from None
        if token is None and self._token is None:
            raise MemoryUnavailable(f"token: there is no variable {self._token_variable} in the environment")
        if token is not None and not (isinstance(token, str) and token.isascii() and token.isprintable() and token):
            raise MemoryUnavailable("token: it has characters that cannot be sent, or none")
        return token


def _fields(answer: bytes, address: Address) -> JsonObject:
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError):
        raise MemoryUnavailable(f"{address!r} answered something that is not JSON") from None
    if not isinstance(found, dict):
        raise MemoryUnavailable(f"{address!r} answered something that is not an object")
    return cast("JsonObject", found)
