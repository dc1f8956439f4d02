"""The commands that run agents, and serve a store to others. The table of all commands is in `flue_py.cli`."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import click

from flue_py.agents.conversation import REPLAYED_TURNS
from flue_py.cli import command as cli
from flue_py.cli.command import Answer
from flue_py.cli.main import Place, absolute, in_commands, key_in, on_one_line
from flue_py.core.json import JsonObject
from flue_py.core.sessions import SessionInfo
from flue_py.db.files import make_private_folder, write_private, write_whole
from flue_py.errors import FlueError, InvalidArgument, MissingExtra, SessionNotFound, UnreadableFile
from flue_py.lazy import lazy_module
from flue_py.render.lines import Line, counted, one_line
from flue_py.render.views import bill_lines
from flue_py.server.listener import checked_address
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.system import in_full, read_whole
from flue_py.transfer.export import write_transcript

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from flue_py import models
    from flue_py import server as servers
    from flue_py.agents import config as configs
    from flue_py.agents import defaults, journal
    from flue_py.agents import run as runs
    from flue_py.agents.config import RunConfig
    from flue_py.agents.run import RunReport
    from flue_py.server import mcp as tools
else:
    models = lazy_module("flue_py.models")
    configs = lazy_module("flue_py.agents.config")
    defaults = lazy_module("flue_py.agents.defaults")
    journal = lazy_module("flue_py.agents.journal")
    runs = lazy_module("flue_py.agents.run")
    servers = lazy_module("flue_py.server")
    tools = lazy_module("flue_py.server.mcp")

# ---------------------------------------------------------------------------------------------------------------------
# The repl command.


@cli.command(json=False)
@click.option("--model", metavar="PROVIDER:MODEL", help="The model, as pydantic-ai names it; test needs no network.")
@click.option("--base-url", metavar="URL", help="The address of the provider, or of a server that speaks as it does.")
@click.option("--resume", metavar="SESSION", type=cli.SESSION_NAME, help="Go on with a session, with its own model.")
@click.option("--replay", metavar="N", type=click.IntRange(min=0), default=REPLAYED_TURNS, show_default=True)
@click.option("--allow-tools", is_flag=True, help="Let the agent read, write and run without asking.")
@click.option("--no-memories", is_flag=True, help="Do not ask the model at the end for facts to remember.")
@cli.scope_option
def repl(
    place: Place,
    model: str | None,
    base_url: str | None,
    resume: str | None,
    replay: int,
    allow_tools: bool,
    no_memories: bool,
    scope: str | None,
) -> Answer:
    """Talk to an agent. Each message, answer and result of a tool is stored as soon as it is there.

    /help lists the commands. Ctrl-C ends a turn, Ctrl-D the program; nothing is lost. At the end the model
    writes memories for the folder, unless Ctrl-C ends that. Keys of providers come from the environment, such as
    OPENAI_API_KEY. Without --model, FLUE_PY_MODEL names it. --replay is how many turns --resume shows again.

    The instructions of the agent are read when a conversation is taken up: AGENTS.md of the folder and of the folders
    above it in the repository, memories, and where it runs. Needs the extra agents: pip install
    'flue-py[agents]', and [models] for Anthropic and OpenAI.
    """
    if find_spec("prompt_toolkit") is None or find_spec("pydantic_ai") is None:
        raise MissingExtra("agents", "flue-py repl")
    if resume is None and place.is_file:
        make_private_folder(Path(place.target).parent)
    else:
        cli.require_database(place)
    from flue_py.cli.terminal import talk

    opening, remembers = cli.opening(place, threads=None), not no_memories
    asyncio.run(talk(opening, model, base_url, resume, replay, tools=allow_tools, remembers=remembers, scope=scope))
    return Answer()


# ---------------------------------------------------------------------------------------------------------------------
# The run command.

_CODES = {"complete": 0, "paused": 0, "rate_limited": 7, "failed": 1}
"""The exit codes of outcomes; all others are something that was refused: 8."""

_MOST_TASK = 1_000_000
_COMPACTION = ("Compaction:", "  Mode: window        # no call of a model", "  TokenBudget: 80000")


def _check(options: SimpleNamespace) -> None:
    cli.refuse(options.config is None and options.resume is None, "name a CONFIG, or --resume a run")
    cli.refuse(options.task is not None and options.task_file is not None, "give TASK, or --task-file")
    has_task = options.task is not None or options.task_file is not None
    cli.refuse(not (has_task or options.check or options.resume is not None), "give a TASK, or --task-file")
    cli.refuse(options.check and options.config is None, "--check is for a CONFIG")


@cli.command(check=_check)
@click.argument("config", required=False)
@click.argument("task", required=False)
@click.option("--task-file", metavar="FILE", help="A file with the task.")
@click.option("--check", is_flag=True, help="Check CONFIG, and run nothing.")
@click.option("--resume", metavar="[ID]", is_flag=False, flag_value="", help="Go on with a run; without ID choose one.")
@click.option("--hitl", is_flag=True, help="Ask a person after every turn.")
@click.option("--ci", is_flag=True, help="Exit code 2 if a contract does not hold at the end.")
@click.option("--work-dir", metavar="FOLDER", help="Where the agents work (default: here).")
@click.option("--output", metavar="FILE", help="Write a transcript, as Markdown.")
def run(
    place: Place,
    as_json: bool,
    config: str | None,
    task: str | None,
    task_file: str | None,
    check: bool,
    resume: str | None,
    hitl: bool,
    ci: bool,
    work_dir: str | None,
    output: str | None,
) -> Answer:
    """Run the agents of CONFIG, a file of YAML or JSON, on TASK, until they are done.

    Every step is stored before it has effects: a run that ends in any way goes on with --resume, also with another
    CONFIG, and with a TASK that is said in addition. A complete run goes on with a TASK alone; the one argument beside
    --resume is a CONFIG if it is a file or ends with .json, .yaml or .yml. Functions of CONFIG are
    imported, also from its own folder. The answer of a person may come from elsewhere: flue-py append ID TEXT.

    At the end the chart of the contexts is written to .flue-py/logs in the folder of the agents. Exit codes: 0 if the
    run is complete or paused, 8 if a limit or the provider stopped it, 7 if its rate is limited, 1 for an error, of
    which a dump is written beside the database; what was done stays. Needs the extra agents.

    With --json, one line: sessionId, outcome (complete, paused, tokens, cost, budget, context_exceeded, rate_limited,
    refused or failed), reason, turns, usage (as of usage --by agent), failedContracts (name, reason), dump and chart
    (files, or null). With --check: agents.
    """
    if find_spec("pydantic_ai") is None:
        raise MissingExtra("agents", "flue-py run")
    folder = Path(absolute(work_dir or "."))
    cli.refuse(not folder.is_dir(), f"--work-dir: there is no folder {str(folder)!r}")
    if resume is not None and config is not None and task is None and not _is_config(config):
        config, task = None, config
    settings = None if config is None else _config(config)
    if check and settings is not None:
        names = [agent.name for agent in settings.agents]
        return cli.said(f"{config}: {counted(len(names), 'agent')}", {"agents": [*names]})
    text = task if task_file is None else _text_in(task_file)

    async def work() -> Answer:
        if resume is not None:
            cli.require_database(place)
        elif place.is_file:
            make_private_folder(Path(place.target).parent)
        async with cli.opening(place, threads=None) as store:
            earlier = None if resume is None else await _resumed(store, resume, text)
            chosen = settings or _config((None if earlier is None else earlier.info.config_path) or "")
            # Nothing is begun or said that cannot go on.
            runs.check(chosen, _model_of)
            if earlier is None:
                session = await runs.begin(store, text or "", folder=folder, config_path=absolute(config or ""))
            else:
                session = earlier
                if text is not None:
                    async with journal.leased(store, session):
                        await runs.say(session, text)
            return await _run(store, session, chosen, place, SimpleNamespace(**options))

    options = {"folder": folder, "as_json": as_json, "hitl": hitl, "ci": ci, "output": output}
    return asyncio.run(work())


def _is_config(text: str) -> bool:
    """Return whether the one argument beside --resume is a CONFIG; otherwise it is a TASK."""
    return text.endswith((".json", ".yaml", ".yml")) or Path(absolute(text)).is_file()


def _config(path: str) -> RunConfig:
    cli.refuse(not path, "this run names no CONFIG of its own; give one")
    config = configs.read_config(path)
    folder = str(Path(absolute(path)).parent)
    if folder not in sys.path:
        # Beside the file lie the functions that it names.
        sys.path.insert(0, folder)
    return config


def _model_of(name: str) -> Model:
    return models.client_of(name, {})


def _text_in(file: str) -> str:
    try:
        return read_whole(Path(in_full(file)), _MOST_TASK).decode()
    except (UnreadableFile, ValueError) as error:
        raise InvalidArgument(f"--task-file {file}: {error}") from error


async def _resumed(store: Store, name: str, text: str | None) -> Session:
    """Return the session of a run that goes on. Raises `SessionNotFound`, and `InvalidArgument` if it is complete."""
    session = await store.find_session(name or await _chosen(store))
    if text is None and session.info.completed_us is not None:
        raise InvalidArgument(f"run {session.id} is complete; give a TASK to go on with it")
    return session


async def _chosen(store: Store) -> str:
    """Return the id of the run that a person chooses of those that are not complete, newest first."""
    page = await store.list_sessions(completed=False, metadata=runs.RUN_METADATA, limit=20)
    if not page.sessions:
        raise SessionNotFound("", detail="no run is incomplete; sessions --all lists the others")
    lines = [*map(_listed, page.sessions)]
    if not sys.stdin.isatty():
        raise InvalidArgument("--resume: name one of these runs: " + "; ".join(lines))
    cli.print_lines([((f"{number}  {line}", ""),) for number, line in enumerate(lines, 1)], err=True)
    number = cli.choose("Which one", len(lines))
    return page.sessions[number - 1].id


def _listed(info: SessionInfo) -> str:
    return f"{info.id}  {one_line(info.title or info.first_message or '', 60)}"


async def _run(store: Store, session: Session, config: RunConfig, place: Place, options: SimpleNamespace) -> Answer:
    def tell(text: str, style: str) -> None:
        lines: list[Line] = [((line, style),) for line in text.splitlines()]
        cli.print_lines(lines, err=options.as_json or style == "yellow")

    name = defaults.needs_summarizer(config)
    run = runs.Run(
        store,
        config,
        session,
        folder=options.folder,
        model_of=_model_of,
        summarizer=None if name is None else models.open_model(name),
        tell=tell,
        ask=cli.ask_line if options.hitl else None,
    )
    tell(f"session {session.id}", "dim")
    try:
        report = await run.go()
    except BaseException:
        # Ctrl-C, too: what was done stays.
        cli.tell(_resume_line(session.id))
        raise
    dump = _dump(place, report) if report.outcome == "failed" and report.error is not None else None
    if report.outcome != "complete":
        for line in _advice(report, dump):
            tell(line, "yellow")
    chart = await _charted(session, config, options.folder, tell)
    if options.output is not None:
        await write_transcript(session, options.output, overwrite=True)
    code = 2 if options.ci and report.failed_contracts else _CODES.get(report.outcome, 8)
    row = {**_row(report), "dump": dump, "chart": chart}
    if options.as_json:
        cli.print_line(row)
        return Answer(code=code)
    return Answer(lambda: _summary(report, chart), code=code)


def _advice(report: RunReport, dump: str | None) -> list[str]:
    """Return the lines about a run that is not complete: why, and how to go on."""
    lines = [f"{report.outcome.replace('_', ' ')}: {report.reason}"]
    if report.outcome == "context_exceeded":
        lines += ["The context window is exceeded. Add this to the configuration, if it has no such section:"]
        lines += _COMPACTION
    if dump is not None:
        lines.append(f"Crash dump: {dump}")
    return [*lines, _resume_line(report.session_id)]


def _resume_line(session_id: str) -> str:
    return f"Resume with: flue-py run --resume {session_id}"


def _dump(place: Place, report: RunReport) -> str | None:
    """Write the errors that ended a run beside the database, and return the path; None if even that fails."""
    now = datetime.now(UTC)
    home = Path(place.target).parent if place.is_file else Path(in_full("~/.flue-py"))
    chain: list[JsonObject] = []
    error: BaseException | None = report.error
    while error is not None and len(chain) < 20:
        trace = traceback.format_tb(error.__traceback__)
        chain.append({"type": type(error).__name__, "message": str(error), "traceback": [*trace]})
        error = error.__cause__ or error.__context__
    row: JsonObject = {"sessionId": report.session_id, "time": now.isoformat(), "errors": [*chain]}
    try:
        make_private_folder(home / "crashdumps")
        path = home / "crashdumps" / f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(4)}.json"
        return write_private(str(path), json.dumps(row, indent=2))
    except (FlueError, OSError) as failure:
        cli.tell(f"the crash dump could not be written: {failure}")
        return None


async def _charted(session: Session, config: RunConfig, folder: Path, tell: Callable[[str, str], None]) -> str | None:
    """Write the chart of the contexts and its data, if there are any, and return the path of the chart."""
    warn_at, cutover_at = config.context_budget.warn_at, config.context_budget.cutover_at
    logs = folder / ".flue-py" / "logs"
    try:
        snapshots = await session.reports.snapshots(warn_at=warn_at, cutover_at=cutover_at)
        if not snapshots:
            return None
        make_private_folder(logs)
        write_whole(logs / f"ctx_snapshots_{session.id}.jsonl", snapshots.encode(), overwrite=True)
        chart = logs / f"ctx_viz_{session.id}.html"
        page = await session.reports.html(warn_at=warn_at, cutover_at=cutover_at)
        write_whole(chart, page.encode(), overwrite=True)
    except (FlueError, OSError) as failure:
        tell(f"the chart could not be written: {failure}", "yellow")
        return None
    return str(chart)


def _row(report: RunReport) -> JsonObject:
    return {
        "sessionId": report.session_id,
        "outcome": report.outcome,
        "reason": report.reason,
        "turns": report.turns,
        "usage": report.usage.to_json(),
        "failedContracts": [{"name": name, "reason": why} for name, why in report.failed_contracts],
    }


def _summary(report: RunReport, chart: str | None) -> Sequence[Line]:
    """Return how a run ended, the table of its agents, and where the chart is."""
    lines: list[Line] = [((f"{report.outcome}: {report.reason}, {counted(report.turns, 'turn')}", "bold"),)]
    lines += bill_lines(report.usage, ("agent",))
    lines += [((f"✗ {name}: {why}", "yellow"),) for name, why in report.failed_contracts]
    return lines if chart is None else [*lines, ((f"Context viz → {chart}", ""),)]


# ---------------------------------------------------------------------------------------------------------------------
# The commands serve and mcp.


@cli.command(json=False)
@click.option("--http", "address", metavar="[HOST:]PORT", default="8765", help="By default 8765; port 0 is a free one.")
@click.option("--token-file", metavar="FILE", help="A file of tokens, one a line: TOKEN, or TOKEN SCOPE.")
@click.option(
    "--allow-host", "hosts", metavar="NAME", multiple=True, help="A name by which it is called; again for others."
)
@click.option("--settings", metavar="FILE", help="Show on pages the requests of agents by these settings (JSON).")
def serve(place: Place, address: str, token_file: str | None, hosts: tuple[str, ...], settings: str | None) -> Answer:
    """Answer on HTTP: a page for a browser at /, and sessions, entries, appends, contexts, usage, search and events.

    GET /openapi.json describes what is JSON. Without --token-file it answers this machine alone. A token with a SCOPE
    sees that scope alone. The URL is printed on stderr. A signal ends it. Needs the extra server: pip install
    'flue-py[server]'.
    """
    cli.require_database(place)
    servers.serve(
        cli.opening(place, threads=None),
        address,
        token_file=token_file,
        hosts=hosts,
        settings=cli.settings_in(settings),
        tell=cli.tell,
    )
    return Answer()


@cli.command(json=False)
@click.option("--http", "address", metavar="[HOST:]PORT", help="Answer on HTTP instead; port 0 is a free one.")
@click.option("--token-file", metavar="FILE", help="The file with the token that requests on HTTP have to bring.")
@cli.scope_option
@click.option("--write", is_flag=True, help="Offer the tool remember, too, which adds a memory.")
def mcp(place: Place, address: str | None, token_file: str | None, scope: str | None, write: bool) -> Answer:
    """Let agents search and read sessions, by the Model Context Protocol on standard input and output.

    The tools are search, read, recall, sessions, usage and memories. An answer has 20,000 tokens at most, and says how
    to read on. Nothing is deleted or replaced. Each call opens the database anew. Needs the extra mcp: pip install
    'flue-py[mcp]'.

    On HTTP, other machines need --token-file: at least 16 characters, sent as Authorization: Bearer. The URL is
    printed on stderr. A signal ends it.
    """
    cli.refuse(token_file is not None and address is None, "--token-file is for --http")
    token = None if token_file is None else tools.checked_token(key_in(token_file, "--token-file") or b"")
    at = None if address is None else checked_address(address, has_token=token is not None)

    server = server_on(place, scope=scope, writes=write)
    asyncio.run(tools.serve_stdio(server) if at is None else tools.serve_http(server, at, token, cli.tell))
    return Answer()


def server_on(place: Place, *, scope: str | None = None, writes: bool = False) -> tools.Server:
    """Return a server of the tools on the database that was named."""

    def opening() -> AbstractAsyncContextManager[Store]:
        cli.require_database(place)
        return cli.opening(place, threads=None)

    def explain(error: FlueError) -> str:
        return on_one_line(in_commands(str(error)))

    return tools.make_server(opening, explain, scope=scope, writes=writes)
