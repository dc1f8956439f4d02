"""Which database a command works on, and how, by the file of its user; the exit codes; the group of all commands."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import warnings
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from importlib import import_module
from keyword import iskeyword
from os.path import abspath, exists
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal, NoReturn, TextIO, TypeVar

import click
import msgspec
from msgspec.structs import replace

from flue_py import errors
from flue_py.core.json import Frozen
from flue_py.errors import FlueError, InvalidArgument
from flue_py.lazy import expression, lazy_module
from flue_py.system import in_full, open_if_plain

if TYPE_CHECKING:
    import tomllib

    from flue_py.core.chain import Witness
    from flue_py.sessions import housekeeping, witnesses
    from flue_py.sessions.housekeeping import Policy
else:
    tomllib = lazy_module("tomllib")
    housekeeping = lazy_module("flue_py.sessions.housekeeping")
    witnesses = lazy_module("flue_py.sessions.witnesses")

# ---------------------------------------------------------------------------------------------------------------------
# Which database a command works on.

Result = TypeVar("Result")
Read = TypeVar("Read")


def expanded(target: str) -> str:
    """Return a path with ``~`` expanded, and a URL as it is. Raises `InvalidArgument` for the home of no user."""
    return target if "://" in target else in_full(target)


def absolute(folder: str) -> str:
    """Return the absolute path of a folder, ``~`` expanded. Raises `InvalidArgument` for the home of no user."""
    return abspath(in_full(folder))


class Place(Frozen):
    """The database of this run. ``is_named`` says that the user chose it, rather than taking the default.

    ``before_reading`` is called by a command that reads the user's own database. ``key_files`` hold the keys that the
    database may have. ``witness`` is a file or a URL, which sessions are compared with but for those of ``accept``.
    """

    target: str
    is_named: bool = False
    before_reading: Callable[[Place], None] | None = None
    key_files: tuple[str, ...] = ()
    unchecked: bool = False
    witness: str | None = None
    accept: tuple[str, ...] = ()

    def witnessed(self) -> Witness | None:
        """Return the witness at the path or the URL that was named. Raises `InvalidArgument`."""
        if self.witness is None or "://" not in self.witness:
            return None if not self.witness else witnesses.FileWitness(self.witness)
        return witnesses.HttpWitness(self.witness, token=os.environ.get("FLUE_PY_WITNESS_TOKEN"))

    def keys(self) -> list[bytes | None] | None:
        """Return the keys of the files that were named; "" is no key. Raises `InvalidArgument`."""
        return [key_in(file) for file in self.key_files] or None

    @property
    def is_file(self) -> bool:
        """Whether it is a file rather than the URL of a server."""
        return "://" not in self.target

    @property
    def threads(self) -> bool | None:
        """How to open it: a file without threads, since a command does one thing after the other."""
        return False if self.is_file else None


def opened(name: str, path: str) -> BinaryIO:
    """Return a plain file opened for reading, which errors call by ``name``. Raises `InvalidArgument`."""
    try:
        file = open_if_plain(Path(path))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise InvalidArgument(f"{name}: {reason or error}") from error
    if file is None:
        raise InvalidArgument(f"{name}: it is a pipe or a device, not a file; write it into a file first")
    return file


_LONGEST_KEY_FILE = 4_096


def key_in(file: str, option: str = "--key-file") -> bytes | None:
    """Return the key in a file, without the end of its line; None for "". Raises `InvalidArgument`."""
    if not file:
        return None
    with opened(f"{option} {file}", in_full(file)) as key_file:
        key = key_file.read(_LONGEST_KEY_FILE)
    return key.removesuffix(b"\n").removesuffix(b"\r")


def is_only_readable(target: str) -> bool:
    """Return whether a target is an existing file that cannot be written: read-only, or on a full disk."""
    from flue_py.db.sqlite.file import why_not_writable

    return "://" not in target and exists(target) and why_not_writable(Path(target)) is not None


def finished(work: Coroutine[object, object, Result], *, needs_loop: bool) -> Result:
    """Return the result of a coroutine. On files nothing has to wait for anything else, so it needs no event loop."""
    if needs_loop:
        import asyncio

        return asyncio.run(work)
    from flue_py.db.waiting import run_here

    return run_here(work)


# ---------------------------------------------------------------------------------------------------------------------
# The file in which a user says how commands behave: ``config.toml``.

CONFIG_FILE = "~/.flue-py/config.toml"
CONFIG_VARIABLE = "FLUE_PY_CONFIG"


class ImportConfig(Frozen, forbid_unknown_fields=True):
    """Whether commands that read first import what has changed, and how many ``seconds`` that may take."""

    before_reading: bool = False
    seconds: Annotated[float, msgspec.Meta(ge=0.1, le=3600)] = 2.0


class Config(Frozen, forbid_unknown_fields=True):
    """The fields of the file. ``policy`` is the file of rules for `cleanup`.

    ``secrets`` is that of `flue_py.open`, for whatever a command writes.
    """

    import_: ImportConfig = msgspec.field(default=ImportConfig(), name="import")
    policy: str | None = None
    secrets: Literal["mask", "refuse"] | None = None


def read_config() -> Config:
    """Return the configuration of this user: that of the file that FLUE_PY_CONFIG names, or of the usual one.

    Without the usual file it is the default. Raises `InvalidArgument`, which names the file and the field at fault.
    """
    named = os.environ.get(CONFIG_VARIABLE)
    try:
        path = Path(absolute(named or CONFIG_FILE))
        text = path.read_text(encoding="utf-8")
    except (OSError, InvalidArgument) as error:
        if not named:  # there is none, or no home that could have one
            return Config()
        reason = error.strerror if isinstance(error, OSError) else None
        raise InvalidArgument(f"{CONFIG_VARIABLE}: {named}: {reason or error}") from error
    except ValueError as error:
        raise InvalidArgument(f"{named or CONFIG_FILE} is not UTF-8; save it as UTF-8") from error
    hint = "it may have policy, secrets, and [import] with before_reading and seconds"
    return _converted(text, path, Config, hint)


def read_policy(named: str | None) -> Policy:
    """Return the policy of a file, or of the one that the configuration names; without both an empty one.

    Raises `InvalidArgument`, which names the file and the field at fault.
    """
    file = named or read_config().policy
    if file is None:
        return housekeeping.Policy()
    try:
        path = Path(absolute(file))
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise InvalidArgument(f"the policy {file} cannot be read: {reason or error}") from error
    fields = ", ".join(housekeeping.Rule.__struct_fields__)
    hint = f"a policy has [[rule]], a rule {fields}; holds are in the database (flue-py hold)"
    return _converted(text, path, housekeeping.Policy, hint)


def _converted(text: str, path: Path, type_: type[Read], hint: str) -> Read:
    try:
        return msgspec.convert(tomllib.loads(text), type_)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidArgument(f"{path} is not TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"{path}: {error}; {hint}") from error


# ---------------------------------------------------------------------------------------------------------------------
# The exit code of each error, for scripts. They are promised: docs/reference/README.md.

FAILED = 1
NOT_FOUND = 4
CHANGED = 5
TAKEN = 6
BUSY = 7
REFUSED = 8
BAD_INPUT = 9

_CODES: tuple[tuple[int, tuple[type[errors.FlueError], ...]], ...] = (
    (CHANGED, (errors.LeafConflict, errors.RevisionConflict)),
    (TAKEN, (errors.SessionExists, errors.IdempotencyConflict, errors.CallConflict, errors.ReservationSettled)),
    (REFUSED, (errors.BudgetExceeded, errors.TaskDepthExceeded, errors.ModelRefused, errors.ContextOverflow)),
    (BUSY, (errors.RetryOrRebase,)),
    (
        NOT_FOUND,
        (
            errors.SessionNotFound,
            errors.EntryNotFound,
            errors.ArtifactNotFound,
            errors.BudgetNotFound,
            errors.ReservationNotFound,
            errors.AmbiguousId,
        ),
    ),
    (BAD_INPUT, (errors.InvalidEntry,)),
)

CODES = tuple(code for code, _ in _CODES)


def exit_code_of(error: errors.FlueError) -> int:
    """Return the exit code of a command that this error ended."""
    return next((code for code, kinds in _CODES if isinstance(error, kinds)), FAILED)


# ---------------------------------------------------------------------------------------------------------------------
# Error messages of the library, with commands in place of Python calls.

_PHRASES = {
    "with again=True": "with --again",
    "create it, or list_sessions()": "flue-py sessions lists those that are there",
    "open it with mode='get' or 'get_or_create'": "choose another, or use the one that is there",
    "name its scope, or open it with mode='get_or_create'": "flue-py sessions lists those that are there",
    "open it with mode='create'": "choose one that is there",
    "open it with mode='get'": "choose another",
    "call refresh() and decide again, or append with on_conflict='branch'": "look at it, and run the command again",
    "read what has changed since (changes() or refresh()) and decide again": "look at it, and run the command again",
    "refresh() and look before you repeat it, or use an idempotency_key": "look at it before you repeat the command",
    "or open with durability='normal'": "or ask who runs the server",
    "name one by tz=": "name one by --tz",
    "exclude() the copy": "use flue-py exclude on the copy",
}
_COMMANDS = {
    "copy_store": "copy",
    "list_sessions": "sessions",
    "list_budgets": "budget list",
    "set_budget": "budget set",
    "delete_budget": "budget rm",
    "forget": "memory rm",
    "remember": "memory add",
    "delete_session_tree": "rm",
    "move_leaf": "move",
    "go_back": "undo --to",
    "rewind": "move --turns",
    "uncompact": "compact --undo",
    "include": "exclude --clear",
    "unpin": "pin --clear",
    "get_tree": "tree",
    "loss_report": "loss",
    "read_bundle": "unbundle",
    "write_bundle": "bundle",
    "import_file": "import",
    "set_label": "label",
}
_SAME = frozenset(
    ["verify", "salvage", "backup", "undo", "redo", "exclude", "pin", "fork", "migrate", "compact", "recall"]
)
_CALL = expression(r"\b(?:store\.|session\.|flue_py\.|await )*([a-z_]+)\(\)")


def in_commands(message: str) -> str:
    """Return an error's message with commands in the place of the calls in it."""
    for phrase, command in _PHRASES.items():
        message = message.replace(phrase, command)
    return _CALL.sub(lambda call: _command(call[1]), message)


def _command(call: str) -> str:
    if call in _SAME:
        return f"flue-py {call}"
    return f"flue-py {_COMMANDS[call]}" if call in _COMMANDS else call.replace("_", " ")


# ---------------------------------------------------------------------------------------------------------------------
# The group of all commands. It imports a command when it is needed, and shows every error in one line.

_ELSEWHERE = {"demo": "flue_py.demo"}
"""Commands that are in other modules than their names say."""

INTERRUPTED = 130
READER_GONE = 141
_WRONG_CALL = 2

_OBJECTS_BEFORE_COLLECTION = 50_000
"""Importing makes many objects and hardly any garbage: looking for it takes a tenth of a short command's time."""


class Told(click.ClickException):
    """A wrong call, or an error of this library, shown in one line."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        # click says that all of a class have the same.
        object.__setattr__(self, "exit_code", code)


class HelpfulGroup(click.Group):
    """A group that takes --db after a command, too, and suggests a command for an unknown one."""

    synonyms: Mapping[str, str] = MappingProxyType({})

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the named command, with the option --db. Raises `click.UsageError` for an unknown one."""
        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}{self._meant(ctx, args[0])}")
        name, command, rest = super().resolve_command(ctx, args)
        return name, None if command is None else _with_database(command), rest

    def _meant(self, ctx: click.Context, name: str) -> str:
        from difflib import get_close_matches

        names = self.list_commands(ctx)
        close = get_close_matches(name, names, n=1)
        meant = self.synonyms.get(name.lower()) or (close[0] if close else "")
        return f". Did you mean {meant!r}?" if meant else ""


def _with_database(command: click.Command) -> click.Command:
    """Return a command that takes --db as the group of all commands does."""
    if any("--db" in param.opts for param in command.params):
        return command
    taking = copy(command)
    option = click.Option(["--db", "other_database"], metavar="PATH", hidden=True, expose_value=False, callback=_take)
    taking.params = [*command.params, option]
    return taking


def _take(ctx: click.Context, _: click.Parameter, database: str | None) -> None:
    if database is not None:
        ctx.obj = replace(ctx.obj, target=expanded(database), is_named=True, before_reading=None)
        ctx.find_root().params["database"] = database


class LazyGroup(HelpfulGroup):
    """A group that imports a command when it is needed, and shows every error in one line."""

    synonyms = MappingProxyType({
        "ls": "sessions", "list": "sessions", "session": "show", "cat": "show", "view": "show",
        "logs": "log", "reflog": "log", "delete": "rm", "remove": "rm", "del": "rm", "cost": "usage",
        "costs": "usage", "stats": "usage", "graph": "tree", "branch": "fork", "checkout": "move",
        "switch": "move", "goto": "move", "revert": "undo", "messages": "show", "chat": "show",
        "load": "import", "dump": "export", "html": "export", "md": "export", "markdown": "export",
        "fsck": "verify", "doctor": "verify", "status": "info", "repair": "salvage",
        "restore": "salvage", "upgrade": "migrate", "clone": "copy", "budgets": "budget", "memories": "memory",
        "merge": "merge-back", "pick": "cherry-pick", "tag": "label", "continue": "show",
        "ui": "browse", "tui": "browse", "browser": "browse", "explore": "browse", "open": "browse",
        "find": "search", "grep": "search",
        "create": "new", "add": "append", "write": "append", "schema": "append --schema",
        "path": "show --path", "conversation": "show --turns", "history": "show --history", "last": "show --answer",
        "transcript": "export markdown", "save": "export markdown --words-only", "snapshot": "export json",
        "retry": "undo --turn --message", "clear": "move --turns 0", "rewind": "move --turns N",
        "back": "undo --to REVISION", "uncompact": "compact --undo", "unpin": "pin --clear",
        "include": "exclude --clear", "prune": "rm --config-gone",
    })  # fmt: skip

    def __init__(
        self,
        *args: object,
        sections: Mapping[str, Mapping[str, str]],
        modules: Mapping[str, str],
        tell_of_interruption: Callable[[], None],
        **extra: object,
    ) -> None:
        super().__init__(*args, **extra)  # type: ignore[arg-type]
        self._tell_of_interruption = tell_of_interruption
        self._sections = sections
        self._names = [name for section in sections.values() for name in section]
        self._modules = {name: modules[title] for title, section in sections.items() for name in section}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order of the overview."""
        return self._names

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, imported now; None if the name is unknown."""
        if cmd_name not in self._names:
            return None
        name = cmd_name.replace("-", "_") + "_" * iskeyword(cmd_name)
        command = getattr(import_module(_ELSEWHERE.get(name, f"flue_py.cli.{self._modules[cmd_name]}")), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the overview from the table of commands, without importing one."""
        for title, commands in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([*commands.items()])

    def main(  # type: ignore[override, unused-ignore]
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: object,
    ) -> object:
        """Run the command line. Unwritten output is dropped, since the interpreter's last flush must not fail."""
        thresholds = gc.get_threshold()
        gc.set_threshold(_OBJECTS_BEFORE_COLLECTION, *thresholds[1:])
        # The interpreter looks through all objects once more when it ends, but for those that are frozen.
        atexit.register(gc.freeze)
        # An interruption between a call and its `await` is no fault: Python would warn of it beside our line, which may
        # be as late as at its end. Filters of the user come first.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning, append=True)
        try:
            return super().main(args, prog_name, complete_var, standalone_mode, **extra)
        except OSError:  # not even the error could be written
            sys.exit(FAILED)
        finally:
            gc.set_threshold(*thresholds)
            for stream in (sys.stdout, sys.stderr):
                _drop_unwritten(stream)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: object
    ) -> click.Context:
        """Return the context of a run. Wrong options before the command are shown in one line.

        Without a command it is a wrong call, except at a terminal: there the group itself says how to go on.
        """
        is_terminal = sys.stdout is not None and sys.stdout.isatty()
        self.invoke_without_command, self.no_args_is_help = is_terminal, not is_terminal
        with _told_in_one_line(info_name or "flue-py", self._tell_of_interruption):
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command, and flush its output.

        An error of this library or of the system is one line on stderr; its exit code is that of `exit_code_of`. A
        wrong call exits 2, an interruption 130, and a closed pipe 141, as SIGPIPE would.
        """
        with _told_in_one_line(ctx.command_path, self._tell_of_interruption):
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result


@contextmanager
def _told_in_one_line(command_path: str, tell_of_interruption: Callable[[], None]) -> Iterator[None]:
    try:
        yield
    except FlueError as error:
        raise Told(on_one_line(in_commands(str(error))), exit_code_of(error)) from error
    except click.UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # a group without a command gets its help
            raise
        where = command_path if error.ctx is None else error.ctx.command_path
        text = on_one_line(f"{error.format_message().rstrip('.')}; see {where} --help")
        raise Told(text, _WRONG_CALL) from error
    except BrokenPipeError:
        _exit(READER_GONE)
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        raise click.ClickException(on_one_line(f"{where}{error.strerror or error}")) from error
    except KeyboardInterrupt:
        tell_of_interruption()
        _exit(INTERRUPTED)


def _exit(code: int) -> NoReturn:
    raise click.exceptions.Exit(code)


def _drop_unwritten(stream: TextIO) -> None:
    try:
        stream.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def on_one_line(text: str) -> str:
    """Return a text as one line with nothing in it that a terminal would act on."""
    return "".join(char if char.isprintable() else " " for char in text)
