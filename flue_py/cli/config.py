"""The file in which a user says how commands behave: ``config.toml``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import msgspec

from flue_py.cli.main import absolute
from flue_py.core.json import Frozen
from flue_py.errors import InvalidArgument
from flue_py.lazy import lazy_module

if TYPE_CHECKING:
    import tomllib

    from flue_py.runtime import housekeeping
    from flue_py.runtime.housekeeping import Policy
else:
    tomllib = lazy_module("tomllib")
    housekeeping = lazy_module("flue_py.runtime.housekeeping")

Read = TypeVar("Read")

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
