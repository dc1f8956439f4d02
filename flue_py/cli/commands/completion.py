"""The completion command."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from flue_py.cli.output import print_document

_SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
_VARIABLE = "_FLUE_PY_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, options, sessions and entries in SHELL: bash, zsh or fish.

    For bash, put this into ~/.bashrc, for zsh the same with zsh into ~/.zshrc: eval "$(flue-py completion bash)".
    For fish: flue-py completion fish > ~/.config/fish/completions/flue-py.fish.
    """
    root = ctx.find_root()
    source = _SHELLS[shell](root.command, {}, "flue-py", _VARIABLE)
    # Not source(): it starts a bash to ask for its version, which need not be the one that will read this.
    print_document(source.source_template % source.source_vars())
