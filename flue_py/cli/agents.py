"""The commands that run agents. The table of all commands is in `flue_py.cli`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

from flue_py.cli import command as cli
from flue_py.cli.command import Answer
from flue_py.cli.main import Place
from flue_py.db.files import make_private_folder
from flue_py.errors import MissingExtra
from flue_py.runtime.conversation import REPLAYED_TURNS

# ---------------------------------------------------------------------------------------------------------------------
# The repl command.


@cli.command(json=False)
@click.option("--model", metavar="PROVIDER:MODEL", help="The model, as pydantic-ai names it; test needs no network.")
@click.option("--base-url", metavar="URL", help="The address of the provider, or of a server that speaks as it does.")
@click.option("--resume", metavar="SESSION", type=cli.SESSION_NAME, help="Go on with a session, with its own model.")
@click.option("--replay", metavar="N", type=click.IntRange(min=0), default=REPLAYED_TURNS, show_default=True)
@cli.scope_option
def repl(
    place: Place, model: str | None, base_url: str | None, resume: str | None, replay: int, scope: str | None
) -> Answer:
    """Talk to an agent. Each message, answer and result of a tool is stored as soon as it is there.

    /help lists the commands. Ctrl-C ends a turn, Ctrl-D the program; nothing is lost. Keys of providers come from
    the environment, such as OPENAI_API_KEY. Without --model, FLUE_PY_MODEL names it. --replay is how many turns are
    shown again on --resume.

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

    talk(cli.opening(place, threads=None), model, base_url=base_url, resume=resume, replay=replay, scope=scope)
    return Answer()
