"""The tools of the REPL's agent: the files of a folder, a shell in it, and the agent's own session."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.toolsets import FunctionToolset

from flue_py.agents.conversation import Conversation
from flue_py.agents.recorded import MAY_REPEAT
from flue_py.core.files import FileContent, text_of
from flue_py.db.files import Folder
from flue_py.errors import FlueError, InvalidArgument, StoreUnavailable, UnreadableFile
from flue_py.render import lines as rendering
from flue_py.render.transcript import listed_lines
from flue_py.render.views import event_row, iso, log_row

if TYPE_CHECKING:
    from flue_py.core.json import JsonObject
    from flue_py.sessions.session import Session

Log: TypeAlias = Literal["repl_events", "events", "provider_errors", "app"]

_MOST_BYTES = 1_000_000
_MOST_CHARACTERS = 40_000
_NEW_FILE = 0o644
_HIDDEN = re.compile("KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
"""The variables that commands do not see: what they print is stored, and sent to the model."""


class FolderTools:
    """Tools that read and write the files of a folder, none outside it and none of git's, and run commands in it.

    Before the first edit of a file, its content is stored (`Session.files`), so that a rewind brings it back.
    """

    def __init__(self, session: Session, folder: Folder) -> None:
        self._session = session
        self._folder = folder

    def toolset(self) -> FunctionToolset[object]:
        """Return the tools: ``read``, ``write``, ``edit`` and ``shell``."""
        tools: FunctionToolset[object] = FunctionToolset()
        tools.add_function(self.read, metadata={MAY_REPEAT: True})
        # Edits of one file at the same time would undo each other.
        for tool in (self.write, self.edit, self.shell):
            tools.add_function(tool, sequential=True)
        return tools

    async def read(self, path: str, first_line: int = 1, lines: int = 2_000) -> str:
        """Read a text file of the working directory, or some lines of it."""
        text = await self._text(self._name(path))
        if text is None:
            raise ToolFailed(f"there is no file {path}")
        start = max(first_line, 1) - 1
        return _cut("".join(text.splitlines(keepends=True)[start : start + max(lines, 0)]))

    async def write(self, path: str, text: str) -> str:
        """Write a text file, in the place of the one of that name."""
        await self._replace(self._name(path), text)
        return f"Wrote {path}, {len(text):,} characters."

    async def edit(self, path: str, old: str, new: str) -> str:
        """Replace a text in a file by another; it has to stand there exactly once."""
        name = self._name(path)
        text = await self._text(name) or ""
        if not old or text.count(old) != 1:
            raise ToolFailed(f"the old text stands {text.count(old) if old else 0} times in {path}, and not once")
        await self._replace(name, text.replace(old, new))
        return f"Edited {path}."

    async def shell(self, command: str) -> str:
        """Run a command in a shell in the working directory; return its exit code, and all that it printed."""
        process = await asyncio.create_subprocess_exec(
            "sh",
            "-c",
            command,
            cwd=self._folder.path,
            env={name: value for name, value in os.environ.items() if not _HIDDEN.search(name)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            printed, _ = await process.communicate()
        finally:
            # The whole group, and also after an interruption.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        return f"exit code {process.returncode}\n{_cut(printed.decode(errors='replace'))}"

    def _name(self, path: str) -> str:
        try:
            return self._folder.name(path)
        except InvalidArgument as error:
            raise ToolFailed(str(error)) from error

    async def _text(self, name: str) -> str | None:
        try:
            content = await asyncio.to_thread(self._folder.read, name, _MOST_BYTES)
        except UnreadableFile as error:
            raise ToolFailed(str(error)) from error
        text = "" if content is None else text_of(content)
        if text is None:
            raise ToolFailed(f"{name} is no text")
        return None if content is None else text

    async def _replace(self, name: str, text: str) -> None:
        files, root = self._session.files, self._folder.path
        try:
            before = await asyncio.to_thread(self._folder.read, name, _MOST_BYTES)
            await files.before_edit(name, root=root)
            after = FileContent(text.encode(), _NEW_FILE if before is None else before.mode)
            await asyncio.to_thread(self._folder.write, name, after)
        except (UnreadableFile, StoreUnavailable) as error:
            raise ToolFailed(str(error)) from error
        await files.after_edit(name, root=root)


def _cut(text: str) -> str:
    left = len(text) - _MOST_CHARACTERS
    return text if left <= 0 else f"{text[:_MOST_CHARACTERS]}\n[... {left:,} more characters]"


class SessionTools:
    """Tools by which an agent looks at its own session, and has it compacted.

    ``compact`` is called with what the summary shall attend to; it is done when the turn has ended.
    """

    def __init__(self, conversation: Conversation, model: str, compact: Callable[[str], None]) -> None:
        self._conversation = conversation
        self._model = model
        self._compact = compact

    def toolset(self) -> FunctionToolset[object]:
        """Return the tools."""
        tools: FunctionToolset[object] = FunctionToolset()
        for tool in (
            self.repl_session_current,
            self.repl_session_list,
            self.repl_session_read_event_log,
            self.repl_session_read_log,
            self.compact_conversation,
        ):
            tools.add_function(tool, metadata={MAY_REPEAT: True})
        return tools

    async def repl_session_current(self) -> dict[str, str]:
        """Return the session of this conversation: its id, model, start, folder, and the store that it lies in."""
        info = self._conversation.session.info
        return {
            "session": info.id,
            "model": self._model,
            "started": iso(info.created_at),
            "working_directory": info.cwd or os.getcwd(),
            "stored_in": (await self._conversation.store.info()).location,
            "logs": "repl_events, events, provider_errors, app: read them with repl_session_read_log",
        }

    async def repl_session_list(self) -> str:
        """Return the conversations, newest first, a line each: id, model, turns, age, folder."""
        listed = await self._conversation.sessions()
        rows = [rendering.text_of(line).rstrip() for line in listed_lines(listed, self._conversation.clock())]
        marks = [" ◄ current" if session.is_current else "" for session in listed]
        return "\n".join(row[2:] + mark for row, mark in zip(rows, marks, strict=True))

    async def repl_session_read_event_log(self, session: str | None = None, last: int = 50) -> str:
        """Return the last events of a session, a JSON object a line: turns, calls, results, moves, compactions."""
        try:
            owner = self._conversation.session if session is None else await self._conversation.find(session)
        except FlueError as error:
            raise ToolFailed(str(error)) from error
        return _json_lines(await self._events(owner), last)

    async def repl_session_read_log(self, log: Log, last: int = 50) -> str:
        """Return the end of a log, a JSON object a line.

        repl_events: what happened in this session; events: in all sessions; provider_errors: answers of this session
        that broke off; app: the changes of this session, with who and why.
        """
        session = self._conversation.session
        if log == "app":
            return _json_lines([log_row(line) for line in reversed(await session.log(limit=max(1, last)))], last)
        events = await self._events(None if log == "events" else session)
        if log == "provider_errors":
            events = [event for event in events if event.get("stopReason") in ("aborted", "error")]
        return _json_lines(events, last)

    async def compact_conversation(self, focus: str = "") -> str:
        """Have the beginning of this conversation replaced by a summary, which attends to the focus."""
        self._compact(focus)
        return "It is compacted as soon as this turn has ended."

    async def _events(self, session: Session | None) -> list[JsonObject]:
        sessions = None if session is None else [session.id]
        scope = self._conversation.session.info.scope
        async with aclosing(self._conversation.store.events(sessions=sessions, scope=scope)) as events:
            return [event_row(event) async for event in events]


def _json_lines(rows: list[JsonObject], last: int) -> str:
    return _cut("\n".join(json.dumps(row, ensure_ascii=False) for row in rows[-max(1, last) :]))
