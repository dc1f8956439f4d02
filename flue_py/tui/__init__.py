"""Sessions in the terminal: ``flue-py browse`` (`pip install 'flue-py[tui]'`).

`model` knows no screen; `widgets` draw lines, and the screens in `app` put them together and take the keys.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Collection
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from importlib.util import find_spec

import flue_py
from flue_py.core.chain import Witness
from flue_py.db.backend import KeyChoice
from flue_py.db.secrets import SecretsChoice
from flue_py.errors import MissingExtra
from flue_py.render.lines import ASCII, UNICODE
from flue_py.sessions.store import Store

_SIGNALS = ("SIGTERM", "SIGHUP")
"""Signals that end the browser, too: the terminal is put back as it was."""


def browse(
    target: str,
    *,
    read_only: bool = False,
    session: str | None = None,
    entry: str | None = None,
    key: KeyChoice = None,
    unchecked: bool = False,
    secrets: SecretsChoice | None = None,
    witness: Witness | None = None,
    accept: Collection[str] = (),
) -> int:
    """Run the browser until it is left; return the exit code: 0, or that of the signal that ended it.

    ``session`` and ``entry`` are names, or the beginnings of ids, to begin at; the others are as for `flue_py.open`.

    Raises `MissingExtra` without the extra ``tui``, `StoreUnavailable`, `SessionNotFound`, `EntryNotFound`,
    `AmbiguousId`.
    """
    if find_spec("textual") is None or find_spec("detect_secrets") is None:
        raise MissingExtra("tui", "flue-py browse")
    opening = flue_py.open(
        target, read_only=read_only, key=key, unchecked=unchecked, secrets=secrets, witness=witness, accept=accept
    )
    return asyncio.run(_browse(opening, read_only=read_only or unchecked, session=session, entry=entry))


async def _browse(
    opening: AbstractAsyncContextManager[Store], *, read_only: bool, session: str | None, entry: str | None
) -> int:
    from flue_py.tui.app import Browser

    async with opening as store:
        session_id = entry_id = None
        if session is not None:
            opened = await store.find_session(session)
            session_id = opened.id
            entry_id = None if entry is None else await opened.resolve_entry_id(entry)
        place = (await store.info()).location
        # Where the terminal takes no more than ASCII, the signs would all be "?".
        is_utf8 = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
        signs = UNICODE if is_utf8 else ASCII
        browser = Browser(store, place, session_id=session_id, entry_id=entry_id, read_only=read_only, glyphs=signs)
        loop = asyncio.get_running_loop()
        for name in _SIGNALS:
            number = getattr(signal, name, None)
            if number is not None:
                with suppress(NotImplementedError):  # of event loops on Windows
                    loop.add_signal_handler(number, partial(browser.exit, return_code=128 + number))
        await browser.run_async()
        return browser.return_code or 0
