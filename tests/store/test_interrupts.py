"""A store without threads whose thread is interrupted: at each call that its transactions make, one after the other."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from flue_py import sync
from tests.tables import inputs

STEPS = 2000
PLACES = (str(Path("flue_py", "db", "sqlite")), str(Path("flue_py", "system.py")), "contextlib.py")


class Interrupts:
    """Raises `KeyboardInterrupt` where Python would handle a signal, at the n-th such place of the SQLite runners."""

    def __init__(self, place: int) -> None:
        self._left = place
        self.came = False

    def look(self, frame: FrameType, event: str, returned: object) -> None:
        if event not in {"call", "c_return"} or not any(each in frame.f_code.co_filename for each in PLACES):
            return
        if event == "c_return" and getattr(returned, "__name__", "") == "__enter__" and sys.version_info >= (3, 15):
            # It is told of the lock of a `with` as well, behind which no signal is handled.
            return
        self._left -= 1
        if self._left == 0:
            sys.setprofile(None)
            self.came = True
            raise KeyboardInterrupt


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


@inputs("target", [":memory:", "file"])
@inputs("what", ["append", "read"])
def test_a_store_goes_on_after_an_interrupt_anywhere(target: str, what: str, tmp_path: Path) -> None:
    with sync.open(target if target == ":memory:" else tmp_path / "s.db") as store:
        session = store.create_session()
        session.append_message(user("first"))
        calls: dict[str, Callable[[], object]] = {
            "append": lambda: session.append_message(user("a")),
            "read": lambda: store.get_session(session.id),
        }
        for place in range(1, STEPS):
            acknowledged = session.refresh().leaf_id
            interrupts = Interrupts(place)
            sys.setprofile(interrupts.look)
            try:
                calls[what]()
            except KeyboardInterrupt:
                # While the traceback is held, nothing that an interrupt left is let go.
                session.refresh()
                kept = session.append_message(user("b")).leaf_id
                other = threading.Thread(target=store.create_session, daemon=True)
                other.start()
                other.join(30)
                assert not other.is_alive()
            else:
                kept = session.leaf_id
            finally:
                sys.setprofile(None)
            assert kept == session.refresh().leaf_id
            assert acknowledged is not None
            assert kept is not None
            assert session.branches.is_ancestor(acknowledged, of=kept)
            if not interrupts.came:
                break
        assert place > 5
        assert not interrupts.came
        assert store.verify().problems == []
