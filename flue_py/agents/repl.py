"""The REPL: a person's lines in, the answers of an agent out, each step stored before it has effects.

`Repl` knows no terminal: `flue_py.cli.agents` reads the lines, and is the `Screen`.
"""

from __future__ import annotations

import asyncio
import json
import mimetypes
import os
import re
import signal
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypeVar

# The first import names the extra if the framework is missing.
from flue_py.agents.recorded import MAY_REPEAT, RETRY_SECONDS, Recorded, is_transient

# isort: split
from msgspec.structs import replace
from pydantic_ai import Agent, messages
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.toolsets import FunctionToolset

from flue_py.adapters.messages import to_pydantic_ai
from flue_py.agents.conversation import BY, COMMANDS, Command, Conversation, run_command, shown_lines
from flue_py.agents.defaults import RUN_DEFAULTS, RUN_OFFLOAD, note_event, tell_answer
from flue_py.agents.guard import CompactionGuard
from flue_py.agents.harness import write_memories
from flue_py.context import blocks
from flue_py.core.entries import Entry
from flue_py.core.files import FileContent, text_of
from flue_py.core.json import Frozen, JsonObject
from flue_py.core.kinds import message_text
from flue_py.core.model import Model as CompactionModel
from flue_py.db.files import Folder
from flue_py.errors import (
    EntryNotFound,
    FlueError,
    InvalidArgument,
    SessionNotFound,
    StoreUnavailable,
    UnreadableFile,
    shown,
)
from flue_py.render.lines import counted, one_line, printable
from flue_py.render.tools import call_line, read_call
from flue_py.render.transcript import listed_lines
from flue_py.render.views import bill_lines, budget_lines, event_row, iso, log_row, minute
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.sessions.write import PATIENCE
from flue_py.system import read_whole

if TYPE_CHECKING:
    from pydantic_ai.models import Model
    from pydantic_ai.tools import DeferredToolApprovalResult, DeferredToolRequests, DeferredToolResults, RunContext

    from flue_py.core.operations import NoteType

NAME = "repl"
"""The agent in the ledger, and the field of a session's metadata that has the model."""
REMEMBERED = "replRemembered"
"""The field that has the last entry of which memories were written."""

Result = TypeVar("Result")
Prompt: TypeAlias = "str | Sequence[messages.UserContent]"

_RESULT_CHARACTERS = 200
_MOST_BYTES = 20_000_000


class Opened(Frozen, eq=False):
    """A model by its name: for the agent, and for compactions.

    ``explain`` returns the error of ours for one that a call of it raised; None if neither it nor its provider failed.
    """

    name: str
    model: Model
    summarizer: CompactionModel
    explain: Callable[[Exception], Exception | None]


class Screen(Protocol):
    """The terminal, or whatever stands for it."""

    def write(self, text: str, style: str = "") -> None:
        """Show a text as it is, in a style of rich."""

    async def ask(self, question: str) -> str:
        """Return the answer of the person; "" if there is nobody to ask."""


class Repl:
    """A conversation with an agent. Each line is a command, or the person's next words.

    ``open_model`` returns the model of a name, and raises `FlueError`. ``draft`` has the words of a turn that had no
    answer: the person may want to say them again. Unless ``allows_tools``, each call of a tool that reads, writes or
    runs something waits for the person to allow it.
    """

    def __init__(
        self,
        conversation: Conversation,
        model: Opened,
        open_model: Callable[[str], Opened],
        screen: Screen,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.conversation = conversation
        self.draft = ""
        self.allows_tools = False
        self.remembers = True
        self._model = model
        self._open_model = open_model
        self._screen = screen
        self._sleep = sleep
        self._instructions = ""
        self._pictures: list[messages.BinaryContent] = []
        self._allowed: set[str] = set()
        self._spoken: dict[str, Session] = {}
        self._focus: str | None = None
        self._work: asyncio.Task[object] | None = None
        self._use(model)
        self.commands = {
            **COMMANDS,
            "switch": Command(self._switch, "/switch ID", COMMANDS["switch"].summary),
            "model": Command(self._show_model, "/model [NAME]", "Show the model, or go on with another."),
            "image": Command(self._add_image, "/image FILE", "Send a picture with the next message."),
            "tools": Command(self._tools, "/tools [on|off]", "Show which tools are allowed; allow all, or ask again."),
            "files": Command(self._files, "/files", "List the checkpoints of files that tools edited."),
            "diff": Command(self._diff, "/diff", "Show how the last turn has changed files."),
            "cost": Command(self._cost, "/cost", "Show the tokens and the money of this conversation, by model."),
            "budget": Command(self._budget, "/budget [N|$N]", "List the budgets, or allow N tokens or dollars in all."),
        }

    @property
    def session(self) -> Session:
        """The session of the conversation."""
        return self.conversation.session

    @property
    def folder(self) -> Path:
        """The folder that the agent works in: that of the session, or of this process."""
        folder = Path(self.session.info.cwd or ".")
        return (folder if folder.is_dir() else Path()).absolute()

    # -- lines --------------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Show the session and the model, and the last turns of a conversation that goes on."""
        self._line(f"flue-py {NAME}: session {self.session.id}, /help lists the commands", "dim")
        self._line(await self._take_up(), "dim")
        turns = await self.session.turns()
        if turns:
            self._line(await self.conversation.resume_text())
        if turns and not any(entry.role == "assistant" for entry in await self.conversation.history(turns=1)):
            self._line("Your last message has no answer; /retry sends it again.", "yellow")

    async def run(self, line: str) -> bool:
        """Do as a line says; return whether to go on. Never raises a `FlueError`."""
        self.draft = ""
        line = line.strip()
        if not line.startswith("/"):
            if line:
                pictures, self._pictures = self._pictures, []
                await self._say([line, *pictures] if pictures else line)
            return True
        if line[1:].partition(" ")[0].lower() in {"help", *self.commands}:
            await self._note("command", line)
        return await self._obey(line)

    async def _obey(self, line: str) -> bool:
        reply = await self._interruptible(run_command(self.conversation, line, self.commands), line)
        if reply is None:
            return True
        if reply.text:
            self._line(reply.text)
        if reply.resend is not None:
            await self._say(_prompt_of(reply.resend))
        return not reply.is_over

    async def end(self) -> None:
        """Have the model write memories of the turns since it last did, and note that the conversation ended.

        It does so for each conversation in which this process has said something and that is there, this one first.
        `interrupt` leaves the memories out, as ``remembers`` does. Never raises a `FlueError`.
        """
        others = [session for name, session in self._spoken.items() if name != self.session.id]
        for session in (self.session, *others) if self.remembers else ():
            try:
                if await self._interruptible(self._remember(session), "the memories") is None:
                    break
            except SessionNotFound:
                continue  # deleted meanwhile
            except FlueError as error:
                of = "" if session.id == self.session.id else f" of {session.id}"
                self._line(f"Nothing was remembered{of}: {error}", "yellow")
        await self._note("session_end", self._model.name)

    async def _remember(self, session: Session) -> bool:
        await session.refresh()
        path, last = await session.get_active_path(), session.metadata.get(REMEMBERED)
        heard: Sequence[Entry] = ()
        with suppress(EntryNotFound):
            heard = await session.get_active_path(leaf=last) if isinstance(last, str) else ()
        ids = {entry.id for entry in heard}
        new = [entry for entry in path if entry.id not in ids]
        if not any(entry.role == "assistant" for entry in new):
            return True
        self._line("Looking for facts to remember; Ctrl-C ends that.", "dim")
        for memory in await write_memories(self.conversation.store, session, self._model.summarizer, new):
            before = "" if memory.before is None else f" (before: {memory.before})"
            self._line(f"Remembered {memory.name}: {memory.text}{before}", "dim")
        await session.set_metadata({REMEMBERED: path[-1].id}, merge=True)
        return True

    async def _note(self, event: NoteType, text: str) -> None:
        await note_event(self.session, event, text, self._line)

    async def prompt(self) -> str:
        """Return the text before the person's next words: the number of the turn. O(path)."""
        await self.session.refresh()
        return f"{len(await self.session.turns()) + 1}> "

    def interrupt(self) -> None:
        """Have the turn or the command end that runs now, if there is one."""
        if self._work is not None:
            self._work.cancel()

    async def _interruptible(self, work: Coroutine[None, None, Result], name: str) -> Result | None:
        """Return the result of some work; None, and say so, if it was interrupted. Raises its errors."""
        self._work = task = asyncio.create_task(work)
        try:
            await asyncio.wait([task])
        finally:
            self._work = None
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
        if not task.cancelled():
            return task.result()
        self._line("\nInterrupted.", "yellow")
        await self._note("cancelled", name)
        return None

    def _line(self, text: str, style: str = "") -> None:
        self._screen.write(f"{printable(text)}\n", style)

    # -- a turn -------------------------------------------------------------------------------------------------------

    async def _say(self, prompt: Prompt) -> None:
        """Have the agent answer. Whatever becomes of that, all that was said is stored."""
        await self.session.refresh()
        self._spoken[self.session.id] = self.session
        turns = len(await self.session.turns())
        try:
            if await self._interruptible(self._answered(prompt), "the turn") is None:
                await self._offer_again(turns)
        except Exception as error:  # noqa: BLE001 - the conversation goes on, whatever a client or a tool raises
            problem = error if isinstance(error, FlueError) else self._model.explain(error) or error
            self._line(f"\n{str(problem) or type(problem).__name__}", "red")
            await self._offer_again(turns)
        self._screen.write("\n")
        focus, self._focus = self._focus, None
        if focus is not None:
            await self._obey(f"/compact {focus}")

    async def _answered(self, prompt: Prompt | None) -> object:
        store, session, folder = self.conversation.store, self.session, Folder(self.folder)
        own = SessionTools(self.conversation, self._model.name, self._have_compacted).toolset()
        coding = FolderTools(session, folder).toolset()
        recorded = Recorded(store, session, guard=self._guard, offload=RUN_OFFLOAD, files=folder.path)
        agent = Agent(
            self._model.model,
            name=NAME,
            instructions=self._instructions,
            toolsets=[own, coding.approval_required(lambda ctx, tool, arguments: not self._may(tool.name))],
            capabilities=[recorded, HandleDeferredToolCalls(self._permit)],
        )
        for seconds in (*RETRY_SECONDS, None):
            try:
                return await agent.run(prompt, conversation_id=session.id, event_stream_handler=self._show)
            except Exception as error:
                # Whatever fails before its answer begins has been tried again by `Recorded`.
                if seconds is None or not is_transient(error):
                    raise
                await session.refresh()
                last = await session.get_active_path(limit=1)
                if not last or last[0].fields.get("stopReason") != "aborted":
                    raise
                self._line(f"\nThe answer broke off ({one_line(str(error), _RESULT_CHARACTERS)}).", "yellow")
                await self._sleep(seconds)
                # What there was of it stays stored, and the model is asked again.
                prompt = None
        return None

    def _guard(self, session: Session) -> CompactionGuard:
        on_answer = partial(tell_answer, self._line)
        return CompactionGuard(
            self.conversation.store, session, self._model.summarizer, on_answer=on_answer, **RUN_DEFAULTS
        )

    def _may(self, tool: str) -> bool:
        return self.allows_tools or tool in self._allowed

    async def _permit(self, ctx: RunContext[object], requests: DeferredToolRequests) -> DeferredToolResults:
        """Ask the person about calls of tools that are not allowed yet."""
        approvals: dict[str, bool | DeferredToolApprovalResult] = {}
        for call in requests.approvals:
            arguments = call.args_as_dict()
            answer = "y"
            if not self._may(call.tool_name):
                # A command is shown whole, so that nobody allows its beginning.
                subject = arguments.get("command") or call_line(read_call(call.tool_name, arguments))
                said = await self._screen.ask(f"Allow {printable(str(subject))}? [y]es, [n]o, [a]lways: ")
                answer = said.strip().lower()[:1]
            if answer == "a":
                self._allowed.add(call.tool_name)
            approvals[call.tool_call_id] = answer in ("y", "a")
        return requests.build_results(approvals=approvals)

    def _have_compacted(self, focus: str) -> None:
        self._focus = focus

    async def _offer_again(self, turns_before: int) -> None:
        """Take a question back that was not answered with a word, and offer it as the person's next words."""
        await self.session.refresh()
        turns = await self.session.turns()
        entries = await self.conversation.history(turns=1)
        is_answered = any(entry.role not in (None, "user") and entry.fields.get("content") for entry in entries)
        if len(turns) == turns_before or is_answered:
            return
        await self.session.rewind(turns=-1, by=BY, why="there was no answer")
        self.draft, said = message_text(turns[-1].fields), _prompt_of(turns[-1].fields)
        self._pictures = [part for part in said if isinstance(part, messages.BinaryContent)]
        self._line("There was no answer, so your message was taken back.", "yellow")

    async def _show(self, ctx: RunContext[object], events: AsyncIterable[messages.AgentStreamEvent]) -> None:
        async for event in events:
            if isinstance(event, messages.PartStartEvent) and isinstance(event.part, messages.TextPart):
                self._screen.write(printable(event.part.content))
            elif isinstance(event, messages.PartDeltaEvent) and isinstance(event.delta, messages.TextPartDelta):
                self._screen.write(printable(event.delta.content_delta))
            elif isinstance(event, messages.FunctionToolCallEvent):
                self._line(f"\n· {call_line(read_call(event.part.tool_name, event.part.args_as_dict()))}", "cyan")
            elif isinstance(event, messages.FunctionToolResultEvent):
                self._line(f"  {one_line(event.part.model_response_str(), _RESULT_CHARACTERS)}", "dim")

    # -- sessions and models ------------------------------------------------------------------------------------------

    async def _take_up(self) -> str:
        """Go on with the session, with instructions as of now. Return the text to show."""
        if model_in(self.session) is None:
            await self._note_model()
        self._instructions, failures = await instructions_of(self.conversation.store, self.session, self.folder)
        return "\n".join([f"Model: {self._model.name}", *map(str, failures)])

    def _use(self, model: Opened) -> None:
        self._model = model
        self.conversation.summarizer = model.summarizer

    async def _note_model(self) -> None:
        # Nobody is named, so that an undo passes over it.
        await self.session.set_metadata({NAME: {"model": self._model.name}}, merge=True)

    async def _switch(self, _: Conversation, argument: str) -> str:
        if not argument:
            return f"Usage: {self.commands['switch'].usage}"
        before = self.session
        if not await self.conversation.switch(argument):
            return "Already in this session."
        problem = ""
        name = model_in(self.session)
        if name not in (None, self._model.name):
            try:
                self._use(self._open_model(name))
            except FlueError as error:
                problem = f"{name} cannot be opened: {error}\n"
        model = problem + await self._take_up()
        turns = counted(len(await self.session.turns()), "turn")
        started = minute(self.session.info.created_at)
        return f"Switched to: {self.session.id}  (was {before.id})\n{model}\n{turns} · started {started}"

    async def _show_model(self, _: Conversation, argument: str) -> str:
        if argument and argument != self._model.name:
            self._use(self._open_model(argument))
            await self.session.refresh()
            await self._note_model()
        return f"Model: {self._model.name}"

    async def _add_image(self, _: Conversation, argument: str) -> str:
        path = self.folder / argument
        media_type = mimetypes.guess_type(path.name)[0] or ""
        if not argument or not media_type.startswith("image/"):
            return f"Usage: {self.commands['image'].usage}; a picture has a name such as plan.png."
        data = await asyncio.to_thread(read_whole, path, _MOST_BYTES)
        self._pictures.append(messages.BinaryContent(data, media_type=media_type, identifier=path.name))
        return f"{path.name} ({media_type}, {len(data):,} bytes) goes with your next message."

    # -- tools and files ----------------------------------------------------------------------------------------------

    async def _tools(self, _: Conversation, argument: str) -> str:
        if argument in ("on", "off"):
            self.allows_tools = argument == "on"
            self._allowed.clear()
        elif argument:
            return f"Usage: {self.commands['tools'].usage}"
        if self.allows_tools:
            return "Tools may read, write and run everything in the folder."
        return f"Allowed: {', '.join(sorted(self._allowed)) or 'no tool'}; each other call asks."

    async def _files(self, _: Conversation, argument: str) -> str:
        checkpoints = await self.session.files.checkpoints()
        rows = [
            f"{point.entry_id}  {minute(point.created_at)}  {point.reason}  {counted(len(point.files), 'file')}"
            for point in checkpoints
            if point.files
        ]
        return "\n".join(rows) or "No tool has edited a file."

    async def _diff(self, _: Conversation, argument: str) -> str:
        turns = await self.session.turns()
        if not turns:
            return "There are no turns yet."
        files = self.session.files
        back = await files.restore(turns[-1].parent_id, root=self.folder, dry_run=True)
        changes = [replace(change, before=change.after, after=change.before) for change in back.changes]
        return "".join(change.diff for change in changes).rstrip() or "Files are as they were before the last turn."

    # -- money --------------------------------------------------------------------------------------------------------

    async def _cost(self, _: Conversation, argument: str) -> str:
        report = await self.conversation.store.usage(self.session, group_by=("model",))
        return shown_lines(bill_lines(report, ("model",)))

    async def _budget(self, _: Conversation, argument: str) -> str:
        store = self.conversation.store
        if argument.startswith("$"):
            await store.set_budget(self.session, cost=argument[1:], spent_so_far="ledger")
        elif argument.isascii() and argument.isdigit():
            await store.set_budget(self.session, tokens=int(argument), spent_so_far="ledger")
        elif argument:
            return f"Usage: {self.commands['budget'].usage}"
        budgets = await self.session.money.budgets()
        return shown_lines(budget_lines(budgets)) if budgets else "No budget covers this conversation."


def model_in(session: Session) -> str | None:
    """Return the name of the model that a session was talking to in a REPL; None if there was none."""
    noted = session.metadata.get(NAME)
    name = noted.get("model") if isinstance(noted, dict) else None
    return name if isinstance(name, str) else None


def _prompt_of(message: JsonObject) -> Prompt:
    """Return a stored message of a person as the framework takes it."""
    parts = [part for request in to_pydantic_ai([message]).messages for part in request.parts]
    return next((part.content for part in parts if isinstance(part, messages.UserPromptPart)), "")


# ---------------------------------------------------------------------------------------------------------------------
# The instructions of the REPL's agent: its session, where it runs, memories, and the rules of AGENTS.md.

RULES = "AGENTS.md"

_ROLE = """You are an agent at work in the terminal of a person, who reads your words as they come. Be brief.
All that is said here is stored, step by step; the person may go back to any earlier turn, and ask again."""


class Rules:
    """The block ``rules``: AGENTS.md of a folder, behind those of the folders above it in the same repository."""

    name = "rules"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def read(self) -> blocks.BlockText | None:
        """Return the block, None if there is none. Raises `UnreadableFile`, also for more than 100,000 bytes."""
        from anyio.to_thread import run_sync  # noqa: PLC0415 - anyio takes 30 ms to load

        return await run_sync(self._read)

    def _read(self) -> blocks.BlockText | None:
        above = [self._folder, *self._folder.parents]
        top = next((number for number, folder in enumerate(above) if (folder / ".git").exists()), 0)
        texts = (_rules_in(folder / RULES) for folder in reversed(above[: top + 1]))
        text = "\n\n".join(filter(None, texts))
        return blocks.BlockText(text) if text else None


def _rules_in(path: Path) -> str:
    try:
        text = read_whole(path, blocks.MOST_CHARS).decode().strip()
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"{shown(str(path))} cannot be read: {error}") from error
    except UnreadableFile as error:
        if isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError)):
            return ""
        raise
    return f"# {RULES} instructions for {blocks.visible(str(path.parent))}\n\n{text}" if text else ""


async def instructions_of(store: Store, session: Session, folder: Path) -> tuple[str, list[blocks.BlockFailure]]:
    """Return the instructions for a session in a folder as all is now, and the parts that could not be read.

    O(memories), and the time of reading the files.
    """
    wanted: list[blocks.Block] = [
        blocks.RuntimeEnvironment(cwd=str(folder)),
        blocks.Gitignore(folder),
        Rules(folder),
        blocks.LocalMemory(store, project=session.info.cwd or "", scope=session.info.scope),
    ]
    texts = await blocks.read_blocks(wanted, PATIENCE)
    facts = {
        "Session": session.id,
        "Started": iso(session.info.created_at),
        "Stored in": (await store.info()).location,
        "Event log": "the tool repl_session_read_event_log",
    }
    own = "\n".join(["## This session", *(f"- {name}: {value}" for name, value in facts.items())])
    parts = [_ROLE, own, *(text.text for text in texts if isinstance(text, blocks.BlockText))]
    return "\n\n".join(parts), [text for text in texts if isinstance(text, blocks.BlockFailure)]


# ---------------------------------------------------------------------------------------------------------------------
# The tools of the REPL's agent: the files of a folder, a shell in it, and the agent's own session.

Log: TypeAlias = Literal["repl_events", "events", "provider_errors", "app"]

_MOST_TEXT_BYTES = 1_000_000
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
        """Run a command in a shell in the working directory; return its exit code, and all that it printed.

        Its processes in the background end with it.
        """
        # A pipe would have to be read until all that hold it have ended, into memory.
        with TemporaryFile() as printed:
            process = await asyncio.create_subprocess_shell(
                command,
                cwd=self._folder.path,
                env={name: value for name, value in os.environ.items() if not _HIDDEN.search(name)},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=printed,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                await process.wait()
            finally:
                # The whole group, and also after an interruption.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
            printed.seek(0)
            beginning = printed.read(_MOST_TEXT_BYTES)
            rest = os.fstat(printed.fileno()).st_size - len(beginning)
        more = f"\n[... {rest:,} more bytes]" if rest else ""
        return f"exit code {process.returncode}\n{beginning.decode(errors='replace')}{more}"

    def _name(self, path: str) -> str:
        try:
            return self._folder.name(path)
        except InvalidArgument as error:
            raise ToolFailed(str(error)) from error

    async def _text(self, name: str) -> str | None:
        try:
            content = await asyncio.to_thread(self._folder.read, name, _MOST_TEXT_BYTES)
        except UnreadableFile as error:
            raise ToolFailed(str(error)) from error
        text = "" if content is None else text_of(content)
        if text is None:
            raise ToolFailed(f"{name} is no text")
        return None if content is None else text

    async def _replace(self, name: str, text: str) -> None:
        files, root = self._session.files, self._folder.path
        try:
            before = await asyncio.to_thread(self._folder.read, name, _MOST_TEXT_BYTES)
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
        tools: list[Callable[..., object]] = [
            self.repl_session_current,
            self.repl_session_list,
            self.repl_session_read_event_log,
            self.repl_session_read_log,
            self.compact_conversation,
        ]
        return FunctionToolset(tools, metadata={MAY_REPEAT: True})

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
        rows = shown_lines(listed_lines(listed, self._conversation.clock())).split("\n")
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
