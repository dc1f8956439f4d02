"""The browser: which screen is shown, and whether secrets are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.worker import active_worker

from flue_py.render.lines import UNICODE, Glyphs
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.tui.masking import Mask, Masked
from flue_py.tui.screens.finding import FindScreen
from flue_py.tui.screens.session import SessionScreen
from flue_py.tui.screens.sessions import SessionsScreen

if TYPE_CHECKING:
    from textual.await_complete import AwaitComplete


class Browser(App[None]):
    """The browser. ``session_id`` and ``entry_id`` say where it begins; ``place`` is what the database is called."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+q,ctrl+c", "quit", "Quit", show=False, priority=True)]

    def __init__(
        self,
        store: Store,
        place: str,
        *,
        session_id: str | None = None,
        entry_id: str | None = None,
        read_only: bool = False,
        glyphs: Glyphs = UNICODE,
    ) -> None:
        super().__init__()
        self.store = store
        self.place = place
        self.read_only = read_only
        self.glyphs = glyphs
        self._mask = Mask()
        self._shows_secrets = False
        self._begin = (session_id, entry_id)

    def on_mount(self) -> None:
        """Show the list of sessions, and the session that was named."""
        self.push_screen(SessionsScreen())
        session_id, entry_id = self._begin
        if session_id is not None:
            self.open_session(session_id, entry_id)

    @property
    def shows_secrets(self) -> bool:
        """Whether secrets were asked for."""
        return self._shows_secrets

    def mask(self, text: str) -> Masked:
        """Return a text without its secrets, and how many are hidden: none once they were asked for."""
        return Masked(text, 0) if self._shows_secrets else self._mask.masked(text)

    def secrets(self, text: str) -> tuple[str, ...]:
        """Return the secrets in a text."""
        return self._mask.secrets(text)

    def masked(self, text: str) -> str:
        """Return a text without its secrets, unless they were asked for."""
        return self.mask(text).text

    def toggle_secrets(self) -> bool:
        """Show secrets, or hide them again; return whether they are shown now."""
        self._shows_secrets = not self._shows_secrets
        return self._shows_secrets

    def open_session(self, session_id: str, entry_id: str | None = None) -> None:
        """Show a session: at an entry, or at its leaf."""
        self.push_screen(SessionScreen(session_id, entry_id))

    def find(
        self, words: str, *, within: Session | None = None, found: Callable[[str | None], None] | None = None
    ) -> None:
        """Show a search in all sessions, or in one: ``found`` then gets the id of the chosen entry, or None."""
        self.push_screen(FindScreen(words, within=within), found)

    def leave(self) -> None:
        """Go back to the screen before."""
        self.pop_screen()

    def pop_screen(self) -> AwaitComplete:
        """Go back to the screen before, and end the work of the one that is left."""
        # Textual ends it once the widgets of the screen are gone, and until then such work would look for them.
        left, own = self.screen, active_worker.get(None)
        for worker in self.workers:
            if worker.node is left and worker is not own:
                worker.cancel()
        return super().pop_screen()
