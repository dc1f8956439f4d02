"""What is to be called while something goes on is checked before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

import flue_py
from flue_py import sync
from flue_py.errors import InvalidArgument
from tests.sessions.talk import user


def test_progress_that_is_not_a_function_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with sync.open(tmp_path / "s.db") as store, sync.open(":memory:") as other:
        session = store.create_session(id="s")
        session.append_message(user("a"))
        file = tmp_path / "s.jsonl"
        file.write_text(sync.export_session(session, "pi").text, encoding="utf-8")
        bundle = sync.write_bundle(store, tmp_path / "s.bundle").path
        calls = (
            lambda: sync.import_file(other, file, progress=5),  # type: ignore[arg-type]
            lambda: sync.read_bundle(other, bundle, progress=5),  # type: ignore[arg-type]
            lambda: sync.copy_store(store, other, progress=5),  # type: ignore[arg-type]
            lambda: store.backup(tmp_path / "b.db", progress=5),  # type: ignore[arg-type]
        )
        for call in calls:
            with pytest.raises(InvalidArgument, match=r"^progress: 5 is not a function$"):
                call()
        assert other.info().sessions == 0
        assert not (tmp_path / "b.db").exists()


def test_what_hears_of_oddities_is_a_function() -> None:
    with sync.open(":memory:") as store:
        with pytest.raises(InvalidArgument, match=r"^on_oddity: 5 is not a function$"):
            store.import_session(flue_py.NewSession(), [], leaf=None, on_oddity=5)  # type: ignore[arg-type]
        assert store.info().sessions == 0
