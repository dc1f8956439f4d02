"""The reference pages that follow from the code: the API, the errors and the command line.

    python tests/docs/reference.py --write    write them to docs/built/, which git ignores

Names come from ``__all__`` of `flue_py` and of its rooms, their texts from docstrings, those of commands from their
help. Only what a docstring cannot have (the meaning of a type alias, the remedy for an error) is written here; a name
that lacks it is a `KeyError`.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import click
from msgspec import Struct

import flue_py
from flue_py import errors, transfer
from flue_py.cli import SECTIONS
from flue_py.cli import main as commands
from flue_py.context.settings import SettingsModel
from tests.samples import options_of

ROOT = Path(__file__).resolve().parents[2]

GROUPS = {
    "Opening": ("open", "Limits", "Store", "Session", "sync"),
    "Entries and context": ("Entry", "ContextEntry", "ContextSize", "Message", "NewEntry", "OffloadSettings"),
    "Several operations as one": ("Atomic", "Pending"),
    "Sessions": ("SessionInfo", "SessionPage", "NewSession"),
    "Results": ("Appended", "Moved", "Navigated", "Change", "Deletion", "LogLine", "Edit", "Document"),
    "Usage and budgets": ("UsageWindow", "Usage", "Cost", "Budget", "Reservation", "BudgetedCall"),
    "Search": ("SearchAnswer", "SearchHit"),
    "Types and constants": ("STORED", "JsonObject", "JsonValue", "__version__"),
}
"""The names of ``flue_py.__all__`` that are no errors."""

ROOMS = {
    "flue_py.sessions": (
        "ReportedSize", "Source", "PathSettings", "PendingTurn", "PendingCall", "Artifact", "ArtifactExcerpt",
        "TaskLink", "Leaving", "BranchSummary", "ConvertedMessage", "SessionEvent", "LegalHold", "VerifyReport",
        "Problem", "StoreInfo", "UsageReport", "UsageRow", "EntryCost", "Recorded", "Redaction", "RepricedCalls",
        "Repricing", "CallDifference", "MarkEffect", "Exclusion", "EditPlan", "Compact", "Rewind", "Exclude", "Fork",
        "Resume",
        "CommonPrefix", "LeafDiff", "DiffSide", "ToolUse", "DocumentInfo", "DocumentName", "DocumentsFound",
        "SessionHits", "Snippet", "Searched", "HeldAmount", "BackupReport", "Head", "Witness", "FileWitness",
        "StoreWitness", "HttpWitness", "Every", "KeyChange", "Receipt", "Look", "Trace",
        "FileCheckpoint", "FileState", "FileContent", "FileChange", "RestoredFiles",
    ),
    "flue_py.transfer": (
        "import_file", "ImportReport", "SessionImport", "export_session", "Exported", "ExportNote",
        "write_continuation", "ContinuationReport", "write_pages", "PagesReport", "transcript", "write_transcript",
        "TranscriptReport", "write_bundle", "BundleReport", "read_bundle", "UnbundleReport", "BundleCounts",
        "copy_store", "CopyReport", "CopyRefusal", "BudgetLeft", "DocumentLeft", "CopyProgress", "add_files",
        "FilesReport", "FileRefusal", "salvage", "SalvageReport", "Loss",
    ),
    "flue_py.prices": ("PriceBook",),
    "flue_py.core.context": ("Provenance", "provenance_of", "MergedRange", "merged_range_of"),
    "flue_py.providers": (
        "shape_of", "Shape", "convert", "Converted", "beside_ours", "to_provider", "Printed", "check_complete",
        "validate_message", "read_reported", "ReportedUsage", "usage_json", "applied_edits", "AppliedEdit",
        "wire_request", "WireRequest", "Repair", "broken_rules", "Broken", "broken_as_it_is", "Validity", "RULES",
        "LIMITS", "RequestLimits", "limits_of",
    ),
    "flue_py.context": (
        "ContextSettings", "AgentContext", "ContextWindow", "Superseding", "Microcompacting", "ToolResultBudget",
        "InTurn", "Trimming", "Fitting", "Rewriting", "ContextSpec", "ContextSource", "SourceReader", "Asked",
        "GatheredContext", "Section", "SkippedSource", "file_source", "session_context_file", "changes_file",
        "brief_file", "CacheBreakpoints", "ProviderEditing", "ClearToolUses", "context_settings", "context_schema",
        "ContextRequest", "PrefixBreak", "Attempts", "Attempt", "ask_fitting", "ContextReport", "StepReport",
        "ContextChange", "ContextEvent", "Step", "View", "Item", "added", "extract_text", "ExtractedText",
    ),
    "flue_py.context.blocks": (
        "Block", "BlockText", "RuntimeEnvironment", "Gitignore", "FileIndex", "LocalMemory", "WebhookMemory", "Saving",
        "BlocksAppended", "BlockTold", "BlockFailure", "memory_text", "MemoryText", "Remembered",
    ),
    "flue_py.models": ("open_model", "Model", "ModelRequest", "ModelReply", "FunctionModel"),
    "flue_py.adapters.messages": (
        "to_openai", "to_responses", "to_anthropic", "to_gemini", "to_pydantic_ai", "to_langchain", "from_openai",
        "from_responses", "from_anthropic", "from_gemini", "from_pydantic_ai", "from_langchain", "sent_to_pydantic_ai",
        "sent_to_langchain", "Context", "ProviderList", "FrameworkList", "OurMessages",
    ),
}  # fmt: skip
"""The names of the rooms' ``__all__``, each under the first room that has it."""

HOME_OF = {name: "flue_py" for names in GROUPS.values() for name in names}
HOME_OF |= {name: room for room, names in ROOMS.items() for name in names}

SAID_HERE = {
    "Message": "A message, typed and frozen: `SystemMessage`, `UserMessage`, `AssistantMessage`, `ToolResultMessage`"
    " or `OtherMessage` of `flue_py.core.messages`.",
    "SourceReader": "A function, or a coroutine function, that takes an `Asked` and returns a text, or None.",
    "Source": "Where a message came from: `prompt`, `skill`, `shell`, `task` or `retry`. Other short tags are kept.",
    "STORED": 'The default of `leaf=`: "whatever leaf is stored", where `None` already means "before the first entry".',
    "JsonObject": "`dict[str, JsonValue]`.",
    "JsonValue": "What JSON can hold: `None`, `bool`, `int`, `float`, `str`, a list or a dict of these.",
    "RULES": "The rules of each target: name, what it says, and what finds where a request breaks it.",
    "LIMITS": "The `RequestLimits` of each target.",
    "Shape": "The form of a message: `openai-chat`, `openai-responses`, `anthropic` or `gemini`.",
    "Context": "What the model sees: a list of messages of ours, or of `ContextEntry`, or `OurMessages`.",
    "__version__": "The version of the installed package.",
}
"""What is said of names that are no classes or functions."""

REMEDIES = {
    "LeafConflict": '`refresh()`, read what the other writer added, decide; or append with `on_conflict="branch"`.'
    " See [two writers](../how-to/write-safely.md).",
    "RevisionConflict": "Read what has changed since (`changes(after=expected)`, `refresh()`), and decide again."
    " See [two writers](../how-to/write-safely.md#say-what-you-have-seen).",
    "StoreBusy": "Try again; or give `open` a longer `busy_timeout`.",
    "OutcomeUnknown": "`refresh()` and look before repeating it; or use an idempotency key.",
    "SummaryFailed": "Compact again, or go on as it is. `answered` has the calls that were paid for all the same.",
    "RateLimited": "Wait `retry_after` seconds, where it says; then call again.",
    "ModelUnavailable": "Call again, after a while. The cause says what happened.",
    "ModelAborted": "Call again if the answer is still wanted.",
    "AbortedToCompact": "Call again if the answer is still wanted: what was asked is in the session, unanswered.",
    "ContextOverflow": "Compact the session, or send less; then call again.",
    "SessionInUse": "Run again when the other run has ended; one whose process has ended is taken over.",
    "MemoryUnavailable": "See to the server, or go on without what it remembers: a turn does.",
    "ModelRefused": "Change the request, or ask another model. The message has the provider's own words.",
    "ModelDenied": "See to the key, the account or the name of the model.",
    "SessionNotFound": "Create it, or look for it with `list_sessions()`. A handle on a deleted session is of no use.",
    "SessionExists": 'Open it with `mode="get"` or `mode="get_or_create"`, or take another key or id.',
    "EntryNotFound": "Take an id of `get_tree()`. Entries of other sessions, deleted and retracted ones are not seen.",
    "FilesChanged": "Look at `restore(dry_run=True)`: `names` were changed by other means, or have to stay.",
    "ArtifactNotFound": "Take an id of `artifacts()`. Those of deleted entries are gone.",
    "InvalidEntry": "Mend the field that the message names.",
    "OnHold": "Lift the hold, or name it.",
    "SecretRefused": "Take the secret out, or let the store mask it."
    " See [keep secrets out](../how-to/erase.md#keep-secrets-out).",
    "InvalidArgument": "Mend the argument that the message names.",
    "IdempotencyConflict": "Take a new key for a new operation. See [retries](../how-to/write-safely.md#retry-safely).",
    "CallConflict": "Report the same numbers, or give the call an id of its own. See [costs](../how-to/costs.md).",
    "AmbiguousId": "Give more characters; `matches` has the first ids that fit.",
    "TaskDepthExceeded": "Start the task from a session further up.",
    "BudgetExceeded": "Raise the budget with `set_budget()` and go on, wait until calls under way are settled, or stop."
    " See [budgets](../how-to/costs.md#budgets-of-tokens-and-money).",
    "BudgetNotFound": "Look for it with `list_budgets()`.",
    "ReservationNotFound": "There is nothing to settle. Was it made in another store, or its budget deleted?",
    "ReservationSettled": "Reserve anew. What expired can still be committed, but not released.",
    "UnreadableFile": "Name a file of that format.",
    "WrongEventLoop": "Open a store in each event loop, or use `flue_py.sync`. Under trio, open files and memory.",
    "WrongProcess": "Open the store after the fork; or start processes with `spawn` or `forkserver`.",
    "StoreClosed": "Open it again; work inside the `with`.",
    "FormatTooNew": "Upgrade flue_py. Nothing was read or written.",
    "NotAStore": "Name another file; this one is not touched.",
    "WrongKey": "Give the key that the message names by its fingerprint, or read the store unchecked.",
    "StoreUnavailable": "See to what the message says: the path, its permissions, the disk.",
    "CorruptStore": "Run `verify()`. Where it tells of damage, restore the last good backup, or rescue what is"
    " readable: see [back up and rescue](../how-to/back-up-and-rescue.md).",
    "HistoryPutBack": "Find out who put it back. See [prove a history](../how-to/prove-a-history.md).",
    "InvalidPrices": "Correct what it names. See [prices](../how-to/costs.md#set-prices).",
    "MissingExtra": "Install the extra that the message names.",
}
"""What to do about each error."""

_ROWS = re.compile(r"\s*\((?:rows?\s+)?[A-Z]\d\d(?:,?\s+(?:to\s+|and\s+)?[A-Z]\d\d)*\)|,\s+rows?\s+[A-Z]\d\d(?=\))")
_REFERENCE = re.compile(r"(?<!`)`([A-Za-z_.]+)`(?!`)")


def value_of(name: str) -> object:
    """Return what a name of the reference stands for."""
    return getattr(import_module(HOME_OF[name]), name)


# -- docstrings -------------------------------------------------------------------------------------------------------


def paragraphs(item: object) -> list[str]:
    """Return the docstring as Markdown paragraphs, without the ids of feature rows."""
    text = inspect.getdoc(item)
    if not text:
        raise ValueError(f"{item!r} has no docstring")
    plain = _ROWS.sub("", text).replace("``", "`")
    return [" ".join(part.split()) for part in plain.split("\n\n")]


def first_sentence(text: str) -> str:
    """Return the first sentence of a paragraph; its first clause where that ends in a colon."""
    found = re.match(r"(.+?(?<!e\.g)(?<!i\.e)[.:])(?=\s+[A-Z`*]|$)", text)
    return found[1] if found else text


def one_line(name: str) -> str:
    """Return what is said of a public name in the overview."""
    if name in SAID_HERE:
        return SAID_HERE[name]
    return first_sentence(paragraphs(value_of(name))[0])


def signature(owner: type, name: str) -> str:
    """Return a call of a method as it is written, and the type of what it returns."""
    called = inspect.signature(getattr(owner, name))
    return _call(name, called, list(called.parameters.values())[1:])


def _call(name: str, called: inspect.Signature, parameters: list[inspect.Parameter]) -> str:
    parts = []
    is_keyword = False
    for parameter in parameters:
        if parameter.kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD) and not is_keyword:
            is_keyword = True
            parts.append("*")
        if (options := options_of(parameter)) is not None:
            parts += [f"{option}=..." for option in options]
            continue
        parts.append(
            parameter.name if parameter.default is parameter.empty else f"{parameter.name}={parameter.default!r}"
        )
    returned = "" if called.return_annotation in (called.empty, "None") else f" -> {called.return_annotation}"
    return f"{name}({', '.join(parts)}){returned}"


def methods_of(owner: type) -> Iterator[str]:
    """Yield the public methods and properties of a class, in the order of its source, base classes first."""
    seen = set()
    for cls in reversed(owner.__mro__[:-1]):
        if not cls.__module__.startswith("flue_py"):
            continue
        for name in vars(cls):
            if not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name


# -- api.md -----------------------------------------------------------------------------------------------------------


def api_page() -> str:
    """Return the page on the names of the library."""
    lines = [
        "# API reference",
        "",
        "What most programs use is a name of `flue_py`; the rest has a module of its own, which `flue_py` offers, too:",
        "`flue_py.sessions`, `flue_py.transfer`, `flue_py.prices`, `flue_py.providers`, `flue_py.context`,",
        "`flue_py.errors` and `flue_py.core.context`;",
        "`flue_py.models` and `flue_py.adapters.messages` are imported under their own names.",
        "`flue_py.sync` has blocking twins of all that waits.",
        "What begins with an underscore, and modules that no page names, may change at any time.",
        "",
    ]
    for group, names in GROUPS.items():
        lines += [f"## {group}", "", "| name | |", "| --- | --- |"]
        lines += [f"| {_linked(name)} | {_cell(one_line(name))} |" for name in names]
        lines.append("")
    for room, names in ROOMS.items():
        lines += [f"## {room}", "", *[line for part in paragraphs(import_module(room))[:1] for line in (part, "")]]
        lines += ["| name | |", "| --- | --- |"]
        lines += [f"| {_linked(name)} | {_cell(one_line(name))} |" for name in names]
        lines.append("")
    lines += [
        "## Errors",
        "",
        "[All errors](errors.md), drawn by what a caller can do about them: "
        + ", ".join(f"`{name}`" for name in sorted(_error_names()))
        + ".",
        "",
    ]
    lines += _section("flue_py.open", _open_signature(), paragraphs(flue_py.open))
    lines += _section(
        "flue_py.transfer.salvage", "flue_py.transfer.salvage(damaged, new)", paragraphs(transfer.salvage)
    )
    for owner in (flue_py.Store, flue_py.Session, flue_py.Atomic, flue_py.Pending, flue_py.BudgetedCall):
        lines += _class_section(owner, f"flue_py.{owner.__name__}")
        if owner is flue_py.Session:
            for attribute, cls in groups_of_session():
                lines += _class_section(cls, f"flue_py.Session.{attribute}")
    for name, home in HOME_OF.items():
        value = value_of(name)
        if _is_described_function(name) and inspect.isfunction(value):
            called = inspect.signature(value)
            waits = "await " if inspect.iscoroutinefunction(value) else ""
            call = _call(f"{waits}{home}.{name}", called, list(called.parameters.values()))
            lines += _section(f"{home}.{name}", call, paragraphs(value))
    for name in HOME_OF:
        value = value_of(name)
        if isinstance(value, type) and _has_fields(value):
            lines += _value_section(name, value)
    return "\n".join(lines)


def _is_described_function(name: str) -> bool:
    """Return whether a name is a function that gets a section of its own like any other."""
    return name not in ("open", "salvage") and inspect.isfunction(value_of(name))


def _linked(name: str) -> str:
    value = value_of(name)
    has_section = name in ("open", "Store", "Session", "Atomic", "Pending", "BudgetedCall", "salvage") or _has_fields(
        value
    )
    anchor = f"{HOME_OF[name]}{name}".replace(".", "").lower()
    return f"[`{name}`](#{anchor})" if has_section or _is_described_function(name) else f"`{name}`"


def _has_fields(value: object) -> bool:
    """Return whether a value is a class of frozen values, or a model of settings."""
    return isinstance(value, type) and issubclass(value, (Struct, SettingsModel))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _section(name: str, call: str, text: list[str]) -> list[str]:
    return [f"## {name}", "", f"`{call}`", "", *[line for part in text for line in (part, "")]]


def _open_signature() -> str:
    parts = []
    for parameter in inspect.signature(flue_py.open).parameters.values():
        if parameter.name == "engine":
            parts.append("*")
        is_default_value = isinstance(parameter.default, Struct)
        shown = f"{type(parameter.default).__name__}()" if is_default_value else repr(parameter.default)
        parts.append(f"{parameter.name}={shown}")
    return f"async with flue_py.open({', '.join(parts)}) as store"


def groups_of_session() -> Iterator[tuple[str, type]]:
    """Yield the attributes of a session that are groups of its methods, and their classes."""
    for name, member in vars(flue_py.Session).items():
        if isinstance(member, property):
            yield name, get_type_hints(member.fget)["return"]


def _class_section(owner: type, name: str) -> list[str]:
    lines = [f"## {name}", "", *[line for part in paragraphs(owner) for line in (part, "")]]
    properties = [member for member in methods_of(owner) if isinstance(inspect.getattr_static(owner, member), property)]
    if properties:
        lines += ["| property | |", "| --- | --- |"]
        lines += [
            f"| `{member}` | {_cell(' '.join(paragraphs(inspect.getattr_static(owner, member))))} |"
            for member in properties
        ]
        lines.append("")
    for member in methods_of(owner):
        if member in properties:
            continue
        lines += [f"### `{signature(owner, member)}`", ""]
        lines += [line for part in paragraphs(getattr(owner, member)) for line in (part, "")]
    return lines


def _value_section(name: str, value: type) -> list[str]:
    lines = [f"## {HOME_OF[name]}.{name}", "", *[line for part in paragraphs(value) for line in (part, "")]]
    if issubclass(value, SettingsModel):
        # Not asked of the fields: how, differs between versions of pydantic.
        needed = {name: "..." for name, field in value.model_fields.items() if field.is_required()}
        defaults = value(**needed)
        fields = {
            name: f"`{name}`" if name in needed else f"`{name}` ({getattr(defaults, name)!r})"
            for name in value.model_fields
        }
    else:
        assert issubclass(value, Struct)
        fields = {name: f"`{name}`" for name in value.__struct_fields__}
    lines += ["Fields: " + ", ".join(fields.values()) + ".", ""]
    others = [member for member in methods_of(value) if member not in fields and member != "model_config"]
    if others:
        lines += ["| | |", "| --- | --- |"]
        for member in others:
            found = inspect.getattr_static(value, member)
            shown = member if isinstance(found, property) else _method_call(value, member)
            said = " ".join(paragraphs(found if isinstance(found, property) else getattr(value, member)))
            lines.append(f"| `{shown}` | {_cell(said)} |")
        lines.append("")
    return lines


def _method_call(value: type, member: str) -> str:
    if isinstance(inspect.getattr_static(value, member), classmethod):
        parameters = ", ".join(inspect.signature(getattr(value, member)).parameters)
        return f"{member}({parameters})"
    return signature(value, member)


# -- errors.md --------------------------------------------------------------------------------------------------------


def _error_names() -> set[str]:
    return {name for name in errors.__all__ if isinstance(value := getattr(errors, name), type) and _is_error(value)}


def _is_error(value: type) -> bool:
    return issubclass(value, errors.FlueError)


def branches() -> list[type[errors.FlueError]]:
    """Return the branches of the tree, in the order of their source; modules may define errors of their own."""
    found = [branch for branch in errors.FlueError.__subclasses__() if branch.__module__ == errors.__name__]
    return [branch for branch in found if branch is not errors.ModelError]


def errors_of(branch: type[errors.FlueError]) -> list[type[errors.FlueError]]:
    """Return the public errors on a branch, each before those that are a kind of it."""
    found = [error for each in branch.__subclasses__() for error in (each, *errors_of(each))]
    return [error for error in found if error.__module__ == errors.__name__]


def errors_page() -> str:
    """Return the page on the errors, drawn by the remedy."""
    lines = [
        "# Errors",
        "",
        "The [reference](../reference/README.md#errors) says what they have in common.",
        "",
        "| error | also a | |",
        "| --- | --- | --- |",
        "| `FlueError` | | the root |",
    ]
    for branch in branches():
        lines.append(f"| &emsp;[`{branch.__name__}`](#{branch.__name__.lower()}) | | |")
        lines += [
            f"| &emsp;&emsp;`{error.__name__}` | {_other_base_of(error)} | {_said(error)} |"
            for error in errors_of(branch)
        ]
    lines.append("")
    for branch in branches():
        lines += [f"## {branch.__name__}", "", paragraphs(branch)[0], ""]
        lines += ["| error | it has | what to do |", "| --- | --- | --- |"]
        lines += [
            f"| `{error.__name__}` | {_attributes_of(error)} | {REMEDIES[error.__name__]} |"
            for error in errors_of(branch)
        ]
        lines.append("")
    return "\n".join(lines)


def _other_base_of(error: type) -> str:
    below = [base for base in error.__bases__ if issubclass(base, errors.FlueError)]
    kinds = [base for base in below if base not in branches()]
    others = [base.__name__ for base in [*kinds, *error.__bases__] if base in kinds or base.__module__ == "builtins"]
    return f"`{others[0]}`" if others else ""


def _said(error: type) -> str:
    return _cell(_REFERENCE.sub(r"`\1`", paragraphs(error)[0]))


def _attributes_of(error: type) -> str:
    if "__init__" not in vars(error):
        return ""
    names = re.findall(r"self\.(\w+) =", inspect.getsource(vars(error)["__init__"]))
    return ", ".join(f"`{name}`" for name in names)


# -- cli.md -----------------------------------------------------------------------------------------------------------


def command_line_page() -> str:
    """Return the page on the commands: their arguments, help and options, by the sections of the overview."""
    lines = [
        "# The command line",
        "",
        "The [reference](../reference/README.md#the-command-line) says what holds for all commands.",
        "",
    ]
    for title, names in SECTIONS.items():
        lines += [f"## {title}", ""]
        for name in names:
            lines += _command_section(f"flue-py {name}", command_of(name))
    return "\n".join(lines)


def command_of(name: str) -> click.Command:
    """Return a command by its name."""
    command = commands.get_command(click.Context(commands), name)
    assert command is not None
    return command


def _command_section(call: str, command: click.Command) -> list[str]:
    arguments = [argument_name(part) for part in command.params if isinstance(part, click.Argument)]
    lines = [f"### `{' '.join([call, *arguments])}`", ""]
    lines += [
        line for part in inspect.cleandoc(command.help or "").split("\n\n") for line in (" ".join(part.split()), "")
    ]
    options = [part for part in command.params if isinstance(part, click.Option)]
    for option in options:
        name, text = option.get_help_record(click.Context(command)) or ("", "")
        lines.append(f"- `{name}`: {text}")
    lines += [""] * bool(options)
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            lines += _command_section(f"{call} {name}", below)
    return lines


def argument_name(argument: click.Argument) -> str:
    """Return an argument as a heading shows it."""
    name = argument.metavar or str(argument.name).upper()
    return name if argument.required else f"[{name}]"


# -- the command ------------------------------------------------------------------------------------------------------

FOLDER = "docs/built"
PAGES = {f"{FOLDER}/api.md": api_page, f"{FOLDER}/errors.md": errors_page, f"{FOLDER}/cli.md": command_line_page}


def main(arguments: list[str]) -> int:
    """Write the pages."""
    if arguments != ["--write"]:
        print(__doc__)
        return 2
    (ROOT / FOLDER).mkdir(exist_ok=True)
    for name, make in PAGES.items():
        (ROOT / name).write_text(make(), encoding="utf-8")
        print(f"{name} was written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
