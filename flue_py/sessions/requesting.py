"""What one provider is sent of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flue_py.core.sessions import STORED, LeafChoice
from flue_py.lazy import lazy_module
from flue_py.sessions.arguments import checked_text
from flue_py.sessions.contexts import Contexts

if TYPE_CHECKING:
    from flue_py.wire import requests, rules
    from flue_py.wire.lists import said
    from flue_py.wire.requests import WireRequest
else:
    requests = lazy_module("flue_py.wire.requests")
    rules = lazy_module("flue_py.wire.rules")
    said = lazy_module("flue_py.wire.lists.said")


class Requesting(Contexts):
    """The requests of a `Session`."""

    __slots__ = ()

    async def request(
        self, target: str, *, leaf: LeafChoice = STORED, model: str | None = None, account: str | None = None
    ) -> WireRequest:
        """Return the context as ``target`` takes it: what it would refuse is mended, and each repair is named.

        A target is ``anthropic``, ``openai-chat``, ``openai-responses`` or ``gemini``. Every call of a tool gets its
        result, every result has its call, ids and names fit, images are within the limits, users and answers take turns
        where that is asked for. With ``model``, the one that is asked, reasoning of any other is left out. ``account``
        is whose a compaction by the provider itself has to be. What the session stores is not changed, and the same
        leaf gives the same bytes.

        `WireRequest.broken` has what could not be mended: a request that is too large, or has no message. Raises
        `EntryNotFound`, `InvalidArgument`. The cost of the context, and O(its size); other tasks go on meanwhile.
        """
        name = rules.checked_target(target)
        checked_text(model, "model")
        checked_text(account, "account")
        items = (await self._read_context(leaf)).items
        return await self._backend.waiting.call(
            lambda: requests.wire_request(name, said.said_in(items), model=model, account=account)
        )
