"""The terminal of `flue-py repl`: prompt_toolkit reads the lines, rich prints the answers."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import InMemoryHistory
from pydantic_ai.models.test import TestModel

from flue_py import models
from flue_py.agents.conversation import Conversation
from flue_py.agents.repl import Opened, Repl, model_in
from flue_py.cli import command as cli
from flue_py.core.kinds import message_text
from flue_py.errors import InvalidArgument
from flue_py.sessions.store import Store


async def talk(
    opening: AbstractAsyncContextManager[Store],
    model: str | None,
    base_url: str | None,
    resume: str | None,
    replay: int,
    *,
    tools: bool,
    remembers: bool,
    scope: str | None,
) -> None:
    """Talk until the person leaves, in a new session or in ``resume``. Raises as `Store.find_session`, `open_model`."""
    # It would stand between the first message and its answer.
    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")
    async with opening as whole:
        store = cli.narrowed(whole, scope)
        session = None if resume is None else await store.find_session(resume)
        name = model or (session and model_in(session)) or os.environ.get("FLUE_PY_MODEL")
        if not name:
            raise InvalidArgument("model: say --model PROVIDER:MODEL, or set FLUE_PY_MODEL; test needs no network")
        open_model = partial(_opened, base_url=base_url)
        opened = open_model(name)
        if session is None:
            session = await store.create_session(cwd=os.getcwd(), scope=scope)
        screen = _Terminal()
        repl = Repl(Conversation(store, session, replay=replay), opened, open_model, screen)
        repl.allows_tools, repl.remembers = tools, remembers and sys.stdin.isatty()
        await repl.begin()
        while (line := await screen.read(repl)) is not None and await _interruptible(repl, partial(repl.run, line)):
            pass
        await _interruptible(repl, repl.end)


def _opened(name: str, *, base_url: str | None) -> Opened:
    """Return a model by its name. Raises as `open_model`."""
    # The framework's own would call each tool with whatever fits.
    client = TestModel(call_tools=[]) if name == "test" else models.client_of(name, {"base_url": base_url})
    place = models.Place(client.model_name, client.system or None, models.Secrets(models.keys_of(client)))
    return Opened(name, client, models.open_model(client), lambda error: models.failure_of(error, place, None))


async def _interruptible(repl: Repl, work: Callable[[], Coroutine[None, None, bool | None]]) -> bool | None:
    """Return the result of some work. Ctrl-C ends what the REPL does then, and not the program."""
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError):  # of event loops on Windows
        loop.add_signal_handler(signal.SIGINT, repl.interrupt)
    try:
        return await work()
    finally:
        with suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)


class _Terminal:
    """The terminal, or a pipe: lines come in, styled texts go out."""

    def __init__(self) -> None:
        self._prompts: PromptSession[str] | None = None

    def write(self, text: str, style: str = "") -> None:
        cli.print_piece(text, style)

    async def ask(self, question: str) -> str:
        if not sys.stdin.isatty():
            return ""
        try:
            return str(await PromptSession[str]().prompt_async(question))
        except (KeyboardInterrupt, EOFError):
            return ""

    async def read(self, repl: Repl) -> str | None:
        """Return the next line; None at the end."""
        if not sys.stdin.isatty():
            return await asyncio.to_thread(sys.stdin.readline) or None
        if self._prompts is None:
            said = [message_text(turn.fields) for turn in await repl.session.turns()]
            words = WordCompleter([f"/{name}" for name in repl.commands], sentence=True)
            self._prompts = PromptSession(history=InMemoryHistory(said), completer=words)
        while True:
            try:
                return str(await self._prompts.prompt_async(await repl.prompt(), default=repl.draft))
            except KeyboardInterrupt:
                repl.draft = ""
            except EOFError:
                return None
