"""The keys of a screen, made from its bindings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.table import Table
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

if TYPE_CHECKING:
    from textual.app import ComposeResult

_NAMES = {
    "slash": "/", "question_mark": "?", "full_stop": ".", "equals_sign": "=", "escape": "esc", "pageup": "PgUp",
    "pagedown": "PgDn",
}  # fmt: skip


def keys_of(bindings: Sequence[BindingType]) -> Iterator[tuple[str, str]]:
    """Yield the keys of bindings, as they stand on a keyboard, with what they do."""
    for binding in bindings:
        if isinstance(binding, Binding):
            yield (
                " ".join(_NAMES.get(key, key) for key in binding.key.split(",")),
                binding.tooltip or binding.description,
            )


class Keys(ModalScreen[None]):
    """What each key does."""

    DEFAULT_CSS = """
    Keys { align: center middle; }
    Keys > VerticalScroll { width: 95%; max-width: 90; height: auto; max-height: 95%; border: round $primary; }
    Keys Static { padding: 0 1; height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter,question_mark,f1", "leave", "Back")]

    def __init__(self, keys: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._keys = keys

    def compose(self) -> ComposeResult:
        """Show the keys."""
        width = max(len(key) for key, _ in self._keys)
        table = Table.grid(padding=(0, 2))
        table.add_column(min_width=width, no_wrap=True)
        table.add_column()
        for key, said in self._keys:
            table.add_row(Text(key, style="bold"), Text(said))
        with VerticalScroll():
            yield Static(table)

    def on_mount(self) -> None:
        """Let the keys that scroll do so."""
        self.query_one(VerticalScroll).focus()

    def action_leave(self) -> None:
        """Go back."""
        self.dismiss(None)
