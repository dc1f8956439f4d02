"""The real programs go on with sessions that began elsewhere, and send what the model saw.

They are run where `FLUE_PY_PROGRAMS` names a folder of their commands, such as ``node_modules/.bin`` after
``npm install node@22.23.3 @openai/codex@0.171.0 @anthropic-ai/claude-code@2.1.332 @qwen-code/qwen-code@0.24.4``
and ``@google/gemini-cli@0.61.0``, and after ``npm install opencode-ai@1.18.33``
``node node_modules/opencode-ai/postinstall.mjs``, and ``@github/copilot@1.0.102 @moonshot-ai/kimi-code@2.1.0``; `vibe`
is that of ``pip install mistral-vibe==3.0.2`` on Python 3.12.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import flue_py
from flue_py.core.kinds import Shape
from flue_py.formats.registry import export_names
from flue_py.providers.request import CONTINUE
from flue_py.transfer import write_continuation
from tests.formats.transcripts import CLAUDE, CODEX_MADE, CODEX_REAL, import_lines, lines_of
from tests.programs.loopback import Model, Turn
from tests.programs.make_vibe import CONFIG
from tests.programs.talks import DOT, TALK, WITHOUT_PICTURES, texts_in
from tests.values import existing

FOLDER = Path(os.environ.get("FLUE_PY_PROGRAMS", "/nowhere"))


class Program(NamedTuple):
    """A program: its command, the arguments that go on with a session, its environment, and the file it needs."""

    command: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    target: Shape
    messages: str
    """The field of a request with the messages."""
    own_roles: tuple[str, ...] = ("system",)
    """The roles of which the program has messages of its own alone."""
    settings: tuple[str, Callable[[str], str]] | None = None
    joins: bool = False
    """Whether it sends the texts of an answer as one, with nothing between them."""
    splits: bool = False
    """Whether it sends neighbouring messages of the user as one, with an empty line between them."""
    before: tuple[str, ...] = ()
    """The arguments that take the file in before."""
    said: str = "go on"
    """The prompt as it sends it."""


def _codex_settings(url: str) -> str:
    provider = f'name = "x"\nbase_url = "{url}/v1"\nwire_api = "responses"\nenv_key = "OPENAI_API_KEY"\n'
    return f'model = "made-up"\nmodel_provider = "x"\n[model_providers.x]\n{provider}'


def _pi_settings(url: str) -> str:
    model = {"id": "made-up", "input": ["text", "image"]}
    provider = {"baseUrl": f"{url}/v1", "api": "openai-completions", "apiKey": "made-up", "models": [model]}
    return json.dumps({"providers": {"x": provider}})


def _opencode_settings(url: str) -> str:
    model = {"attachment": True, "tool_call": True, "limit": {"context": 2_000_000, "output": 1_000}}
    model["modalities"] = {"input": ["text", "image"], "output": ["text"]}
    options = {"baseURL": f"{url}/v1", "apiKey": "made-up"}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"made-up": model}}
    return json.dumps({"provider": {"x": provider}, "model": "x/made-up", "small_model": "x/made-up"})


PROGRAMS = {
    "claude-code": Program(
        "claude",
        ("-p", "--resume", "ID", "go on"),
        {
            "ANTHROPIC_BASE_URL": "URL",
            "ANTHROPIC_API_KEY": "made-up",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
        },
        "anthropic",
        "messages",
    ),
    "codex": Program(
        "codex",
        ("exec", "--skip-git-repo-check", "resume", "ID", "go on"),
        {"OPENAI_API_KEY": "made-up"},
        "openai-responses",
        "input",
        ("system",),
        (".codex/config.toml", _codex_settings),
    ),
    "gemini-cli": Program(
        "gemini",
        ("--skip-trust", "-y", "-m", "gemini-2.5-flash", "--session-file", "FILE", "-p", "go on"),
        {"GOOGLE_GEMINI_BASE_URL": "URL", "GEMINI_API_KEY": "made-up"},
        "gemini",
        "contents",
        settings=(".gemini/settings.json", lambda _: '{"security": {"auth": {"selectedType": "gemini-api-key"}}}'),
        joins=True,
    ),
    "qwen-code": Program(
        "qwen",
        ("--auth-type", "openai", "-y", "--resume", "ID", "-p", "go on"),
        {"OPENAI_BASE_URL": "URL/v1", "OPENAI_API_KEY": "made-up", "OPENAI_MODEL": "gpt-5.5"},
        "openai-chat",
        "messages",
        ("system", "developer"),
        joins=True,
    ),
    "copilot-cli": Program(
        "copilot",
        ("--allow-all-tools", "-p", "go on", "--resume", "ID"),
        {
            "COPILOT_PROVIDER_BASE_URL": "URL/v1",
            "COPILOT_PROVIDER_API_KEY": "made-up",
            "COPILOT_MODEL": "made-up",
            "COPILOT_OFFLINE": "true",
        },
        "openai-chat",
        "messages",
        ("system", "developer"),
    ),
    "kimi": Program(
        "kimi",
        ("-S", "session_ID", "-m", "__kimi_env_model__", "-p", "go on"),
        {
            "KIMI_MODEL_NAME": "made-up",
            "KIMI_MODEL_API_KEY": "made-up",
            "KIMI_MODEL_BASE_URL": "URL/v1",
            "KIMI_MODEL_PROVIDER_TYPE": "openai",
            "KIMI_CODE_NO_AUTO_UPDATE": "1",
            "KIMI_DISABLE_TELEMETRY": "1",
        },
        "openai-chat",
        "messages",
        ("system", "developer"),
        splits=True,
    ),
    "mistral-vibe": Program(
        "vibe",
        ("--trust", "--yolo", "--resume", "ID", "-p", "go on"),
        {"LOOP_KEY": "made-up"},
        "openai-chat",
        "messages",
        ("system", "developer"),
        (".vibe/config.toml", lambda url: CONFIG.format(url=url).replace("30000", "2000000")),
    ),
    "opencode": Program(
        "opencode",
        ("run", "-s", "ID", "-m", "x/made-up", "go on"),
        {"OPENCODE_DISABLE_MODELS_FETCH": "1"},
        "openai-chat",
        "messages",
        ("system", "developer"),
        (".config/opencode/opencode.json", _opencode_settings),
        before=("import", "FILE"),
        said='"go on"',
    ),
    "pi": Program(
        "pi",
        ("-p", "--provider", "x", "--model", "made-up", "--session", "FILE", "go on"),
        {"PI_OFFLINE": "1", "PI_TELEMETRY": "0"},
        "openai-chat",
        "messages",
        ("system", "developer"),
        (".pi/agent/models.json", _pi_settings),
    ),
}


def sent_by(program: Program, home: Path, folder: Path, file: Path) -> Any:
    """Return the messages of the first request of a program that goes on with a session."""
    with Model([Turn("Going on.")]) as model:
        if program.settings is not None:
            place, text = program.settings
            (home / place).parent.mkdir(parents=True, exist_ok=True)
            (home / place).write_text(text(model.url))
        environment = {name: value.replace("URL", model.url) for name, value in program.environment.items()}
        environment |= {"HOME": str(home), "LANG": "C.UTF-8", "PATH": f"{FOLDER}:/usr/bin:/bin"}
        own_id = re.findall(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|ses_\w+", str(file))[-1]
        words = {"ID": own_id, "session_ID": f"session_{own_id}", "FILE": str(file)}
        for arguments in filter(None, (program.before, program.arguments)):
            line = [str(FOLDER / program.command), *(words.get(word, word) for word in arguments)]
            done = subprocess.run(  # noqa: PLW1510 - the output is shown if it fails
                line, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100
            )
            assert done.returncode == 0, done.stdout + done.stderr
        return next(request.body for request in model.requests if request.has_tools)[program.messages]


def is_sent_as(text: str, sent: str) -> bool:
    """Return whether a text was sent: whole, or without the middle that Codex cuts out of long results.

    pi has words of its own before a summary, Kimi Code before the result of a tool that failed.
    """
    sent = sent.removeprefix("<system>ERROR: Tool execution failed.</system>\n")
    if text.startswith(_SUMMARY):
        return text.removeprefix(_SUMMARY).strip() in sent
    return text == sent or (
        len(text) > _CUT and "truncated" in sent and text[:_ENDS] + text[-_ENDS:] == sent[:_ENDS] + sent[-_ENDS:]
    )


_SUMMARY = "[Context Summary]"
_CUT, _ENDS = 10_000, 1_000


@pytest.mark.skipif(not FOLDER.is_dir(), reason="FLUE_PY_PROGRAMS names no folder of programs")
@pytest.mark.parametrize("name", sorted(PROGRAMS))
@pytest.mark.parametrize("talk", ["made up", CLAUDE, CODEX_REAL, CODEX_MADE])
async def test_the_program_sends_what_the_model_saw(tmp_path: Path, name: str, talk: str) -> None:
    program, home, folder = PROGRAMS[name], tmp_path / "home", tmp_path / "work"
    if not (FOLDER / program.command).exists():
        pytest.skip(f"{program.command} is not there")
    folder.mkdir()
    async with flue_py.open(":memory:") as store:
        if talk == "made up":
            session = await store.create_session(cwd=str(folder))
            for message in TALK:
                await session.append_message(message)
        else:
            report = await import_lines(store, tmp_path, lines_of(talk), finish=True)
            imported = existing(await store.get_session(report.session_id))
            session = imported
        request = await session.request(program.target, settings={})
        way = await write_continuation(session, name, home=home, folder=folder)
        sent = texts_in(sent_by(program, home, folder, way.path))
        expected = texts_in([message for message in request.messages if message.get("role") not in program.own_roles])
        # A request ends with words of the user, as the prompt here does.
        expected = [text for text in expected if text != CONTINUE]
        if name in WITHOUT_PICTURES:
            expected = [text for text in expected if DOT not in text]
        if program.splits:
            sent, expected = ([line for text in texts for line in text.split("\n\n")] for texts in (sent, expected))
        places = iter(sent)
        is_joined = program.joins and "".join(expected) in "".join(sent)
        missing = (
            [] if is_joined else [text for text in expected if not any(is_sent_as(text, other) for other in places)]
        )
        assert not missing, "the words are sent, in their order"
        # Some programs put the time before a prompt.
        assert any(text.endswith(program.said) for text in places)


def test_every_program_that_is_gone_on_with_is_tried() -> None:
    assert set(PROGRAMS) == set(export_names(resumed=True))
