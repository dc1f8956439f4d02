"""Secrets on the way into a store: masked or refused by each way in, and in no byte of its files."""

from __future__ import annotations

import ast
import inspect
import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import flue_py
from flue_py.cli import main
from flue_py.db import backend as backends
from flue_py.errors import CorruptStore, FlueError, InvalidArgument, SecretRefused
from tests.adapters.needed import needs
from tests.postgres import NewDatabase

needs("secrets", "detect_secrets")

KEY = "AKIA" + "QWERTYUIOPASDFGH"
"""Made up, in the form of a real one."""
MARK = "[secret: AWS Access Key]"

FAMILIES = {
    "AWS Access Key": KEY,
    "GitHub Token": "ghp_" + "Ab1" * 12,
    "Slack Token": "xoxb-123456789012-123456789012-abcdefghijklmnopqrstuvwx",
    "Provider Key": "sk-ant-api03-" + "Zz9-" * 20,
    "Service Token": "hvs." + "a1B2c3D4e5F6",
    "JSON Web Token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
    "Private Key": "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\nq83v\n-----END RSA PRIVATE KEY-----",
}

Way = Callable[[], object]


def _message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _answer(arguments: dict[str, Any], call_id: str = "c1") -> dict[str, Any]:
    call = {"type": "toolCall", "id": call_id, "name": "run", "arguments": arguments}
    return {"role": "assistant", "content": [{"type": "text", "text": "ok"}, call]}


def _everywhere(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


def _brought(folder: Path, text: str) -> tuple[Path, Path, Path]:
    """Return a store, a bundle and a file of another program with a text."""
    folder.mkdir()
    for name in ("copied", "bundled"):
        with flue_py.sync.open(folder / f"{name}.db") as store:
            session = store.create_session(title=text, metadata={"a": text}, cwd=text)
            first = session.append_message(_message(text)).entry_ids[0]
            session.append_message(_message(f"{text} {'many words ' * 9_000}"))
            session.append_message(_message("more"))
            beside = flue_py.NewEntry.message(_message("many words " * 9_000), id="beside", extra={"a": text})
            session.import_entries([beside], leaf="beside")
            session.marks.set_label(first, text, why=text)
            session.tasks.create(task_id="t").tasks.end("done", summary=text)
            store.remember("fact", text)
            if name == "bundled":
                flue_py.sync.write_bundle(store, folder / "a.bundle", keep_paths=True)
    head = {"type": "session", "version": 3, "id": "s1", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/w"}
    line = {"type": "message", "id": "aaaaaaaa", "parentId": None, "timestamp": "2026-01-01T00:00:01.000Z"}
    file = folder / "s.jsonl"
    file.write_text("".join(f"{json.dumps(each)}\n" for each in (head, {**line, "message": _message(text)})))
    return folder / "copied.db", folder / "a.bundle", file


def _ways(store: flue_py.sync.Store, session: flue_py.sync.Session, brought: tuple[Path, Path, Path]) -> dict[str, Way]:
    """Return each way to write a text, by its name."""
    path, bundle, file = brought
    first, _ = session.append_messages([_message("first"), _message("second")]).entry_ids
    task = session.tasks.create(task_id="task")
    entry = flue_py.NewEntry.message(_message(KEY), id="e1")

    twice = f'{{"role":"user","content":"{KEY}","content":"x"}}'

    def batch() -> object:
        with store.atomic() as atomic:
            made = atomic.create_session(title=KEY)
            return atomic.append_message(made, _message(KEY))

    def copy() -> object:
        with flue_py.sync.open(path) as source:
            report = flue_py.sync.copy_store(source, store)
        assert not report.target_problems
        return report

    return {
        "title": lambda: store.create_session(title=KEY), "cwd": lambda: store.create_session(cwd=f"/x {KEY}"),
        "metadata": lambda: store.create_session(metadata={"deep": [{KEY: [KEY]}]}),
        "password": lambda: store.create_session(metadata={"password": f"x{KEY[5:]}"}),
        "message": lambda: session.append_message(_message(f"x\n{KEY} y")),
        "messages": lambda: session.append_messages([_message("a"), _message(KEY)], idempotency_key="k"),
        "part": lambda: session.append_message({"role": "user", "content": [{"type": "text", "text": KEY}]}),
        "arguments": lambda: session.append_message(_answer({"cmd": {"x": [KEY]}, KEY: 1})),
        "result": lambda: session.append_message(
            {"role": "toolResult", "toolCallId": "c1", "toolName": "run", "content": KEY, "details": {"x": KEY}}
        ),
        "shell": lambda: session.append_shell("env", KEY, 0), "custom": lambda: session.append_custom("note", [KEY]),
        "large": lambda: session.append_message(_message(f"{KEY} {'words ' * 9_000}")),
        "compaction": lambda: session.append_compaction(KEY, first_kept_entry_id=first, tokens_before=1),
        "branch summary": lambda: session.append_branch_summary(KEY, from_id=first),
        "by store": lambda: store.append_messages(session, [_message(KEY)]), "batch": batch,
        "new title": lambda: session.set_title(KEY), "new metadata": lambda: session.set_metadata({"a": KEY}),
        "merged": lambda: session.set_metadata({"a": KEY}, merge=True),
        "completed": lambda: session.set_completed(None, why=KEY),
        "label": lambda: session.marks.set_label(first, KEY), "pin": lambda: session.marks.pin(first, why=KEY),
        "exclusion": lambda: session.marks.exclude(first, why=KEY),
        "fork": lambda: session.fork(title=KEY, metadata={"a": KEY}), "copy": lambda: session.copy(title=KEY),
        "navigate": lambda: session.navigate(first, summary=KEY, label=KEY, why=KEY),
        "move": lambda: session.move_leaf(first, why=KEY), "rewind": lambda: session.rewind(to=None, by=KEY),
        "go back": lambda: session.go_back(to=1, why=KEY),
        "task": lambda: session.tasks.create(task_id="other", title=KEY),
        "task result": lambda: task.tasks.end("done", summary=KEY),
        "memory": lambda: store.remember("fact", KEY), "file": lambda: store.add_file("f.txt", KEY, source=KEY),
        "entries": lambda: session.import_entries([entry], leaf="e1"),
        "twice": lambda: session.import_entries([replace(entry, id="e2", payload=twice)], leaf="e2"),
        "session": lambda: store.import_session(flue_py.NewSession(title=KEY), [entry], leaf="e1"),
        "import": lambda: flue_py.sync.import_file(store, file), "copy of a store": copy,
        "bundle": lambda: flue_py.sync.read_bundle(store, bundle), "redaction": lambda: session.redact(first, KEY),
    }  # fmt: skip


def _found(text: str) -> list[tuple[int, int, str]]:
    return [(*place.span(), "AWS Access Key") for place in re.finditer(rf"(?:{KEY[:5]})?{KEY[5:]}", text)]


@pytest.mark.parametrize("choice", ["mask", "refuse", _found])
def test_no_way_in_stores_a_secret(tmp_path: Path, choice: Any) -> None:
    brought = _brought(tmp_path / "in", KEY)
    folder = tmp_path / "store"
    folder.mkdir()
    wrong = []
    with flue_py.sync.open(folder / "s.db", secrets=choice) as store:
        session = store.create_session()
        ways = _ways(store, session, brought)
        for name, way in ways.items():
            before = store.info()
            session.refresh()
            try:
                way()
            except SecretRefused as error:
                is_right = choice == "refuse" and KEY not in str(error) and error.rule in str(error) and error.place
                now = store.info()
                is_right = is_right and (now.entries, now.sessions, now.documents) == (
                    before.entries, before.sessions, before.documents,
                )  # fmt: skip
            else:
                is_right = choice != "refuse"
            if not is_right:
                wrong.append(name)
        assert wrong == []
        assert store.verify().problems == []
        if choice != "refuse":
            titles = {info.title or info.first_message for info in store.list_sessions(limit=100).sessions}
            assert MARK in titles
            assert not store.search(KEY).sessions
    assert KEY.encode() not in _everywhere(folder)
    assert KEY[5:].encode() not in _everywhere(folder)


def test_without_the_setting_all_of_it_is_stored(tmp_path: Path) -> None:
    brought = _brought(tmp_path / "in", KEY)
    with flue_py.sync.open(":memory:") as store:
        session = store.create_session()
        for name, way in _ways(store, session, brought).items():
            session.refresh()
            assert way() is not None or name == "label", name
        assert store.search(KEY).sessions


def test_each_write_but_a_removal_is_given_its_values_in_one_place() -> None:
    tree = ast.parse(inspect.getsource(backends.Backend))
    past = set()
    for method in ast.walk(tree):
        if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for call in ast.walk(method):
                if isinstance(call, ast.Attribute) and ast.unparse(call) in ("self._runner.write", "self._runner.land"):
                    past |= {method.name} if "self._with_values(" not in ast.unparse(method) else set()
    held = {"reserve", "release_reservation"}  # amounts, for a session that is there
    assert past == {"delete_tree", "empty_scope", "forget_deleted", "delete_budget", *held}


def test_each_family_of_rules_is_masked_by_its_name_and_refused_by_it() -> None:
    wrong = []
    with flue_py.sync.open(":memory:", secrets="mask") as masked, flue_py.sync.open(":memory:", secrets="refuse") as no:
        session, other = masked.create_session(), no.create_session()
        for rule, secret in FAMILIES.items():
            session.append_message(_message(f"it is {secret} now"))
            text = session.build_context()[-1]["content"]
            with pytest.raises(SecretRefused) as error:
                other.append_message(_message(f"it is {secret} now"))
            if text != f"it is [secret: {rule}] now" or (error.value.rule, error.value.place) != (
                rule, "entries[0].content",
            ):  # fmt: skip
                wrong.append((rule, text, str(error.value)))
    assert wrong == []


def _raises(text: str) -> Any:
    raise ValueError(f"cannot read {text}")


BAD_FINDERS: dict[str, Any] = {
    "raises": _raises, "no list": lambda _: 3, "no rule": lambda _: [(0, 1)], "beyond": lambda _: [(0, 999, "a")],
    "empty": lambda _: [(1, 1, "a")], "no number": lambda _: [("0", 1, "a")], "a flag": lambda _: [(False, 1, "a")],
    "rule of the text": lambda text: [(0, len(text), f"of {text}")], "two lines": lambda _: [(0, 1, "a\nb")],
}  # fmt: skip


def test_a_function_that_fails_refuses_the_write_and_shows_nothing_of_the_text() -> None:
    wrong = []
    for name, finder in BAD_FINDERS.items():
        with flue_py.sync.open(":memory:", secrets=finder) as store:
            try:
                store.create_session(title=KEY)
            except InvalidArgument as error:
                is_ours = str(error).startswith("secrets: it ") and KEY not in str(error)
                if is_ours and error.__cause__ is error.__context__ is None and store.info().sessions == 0:
                    continue
            wrong.append(name)
    assert wrong == []


def test_places_of_a_function_may_overlap_and_a_name_with_one_is_refused() -> None:
    with flue_py.sync.open(
        ":memory:", secrets=lambda text: [(3, 6, "b"), (0, 4, "a")] if text[1:] == "12345" else []
    ) as store:
        assert store.create_session(title="012345").title == "[secret: a]"
        with pytest.raises(SecretRefused, match="by the rule 'a'"):
            store.create_session(key="012345")


def test_a_name_is_refused_and_what_no_secret_is_stays_as_it_is() -> None:
    picture = {"type": "image", "mimeType": "image/png", "data": "A" * 2_000 + KEY + "A" * 2_000}
    message = {"role": "user", "content": [{"type": "text", "text": MARK}, picture]}
    with flue_py.sync.open(":memory:", secrets="mask") as store:
        session = store.create_session(metadata={"sessionId": "a1b2c3d4e5f6", "tokens": 12345678})
        names: list[Way] = [
            lambda: store.create_session(key=KEY), lambda: store.create_session(scope=KEY),
            lambda: store.create_session(id=KEY), lambda: session.append_message(_message("x"), idempotency_key=KEY),
            lambda: session.append_custom(KEY), lambda: session.append_message(_answer({}, KEY)),
            lambda: store.remember(KEY, "x"), lambda: session.tasks.create(task_id=KEY),
            lambda: session.set_metadata({KEY: 1, MARK: 2}), lambda: store.set_budget(scope=KEY, tokens=1),
        ]  # fmt: skip
        for name in names:
            with pytest.raises(SecretRefused, match="no mark can stand for a name"):
                name()
        assert (session.metadata["sessionId"], session.metadata["tokens"]) == ("a1b2c3d4e5f6", 12345678)
        session.append_message(message)
        assert session.build_context() == [message]
        # A name that was there before can be removed.
        assert not store.forget(KEY)
        assert store.delete_session_tree(KEY).session_ids == ()


def test_a_mark_hides_nothing_and_is_masked_once() -> None:
    with flue_py.sync.open(":memory:", secrets="mask") as store:
        session = store.create_session()
        session.append_messages([_message(f"[secret: {KEY}]"), _message(f"password = {MARK}")])
        assert [each["content"] for each in session.build_context()] == [f"[secret: {MARK}", f"password = {MARK}"]


def test_a_copy_is_masked_once_and_goes_on(tmp_path: Path) -> None:
    path, _, _ = _brought(tmp_path / "in", KEY)
    with flue_py.sync.open(path) as source, flue_py.sync.open(":memory:", key=b"k" * 32, secrets="mask") as target:
        (session,) = (source.find_session(info.id) for info in source.list_sessions(kind="root").sessions)
        for added in (True, False, True):
            report = flue_py.sync.copy_store(source, target)
            assert (report.trees_copied + report.trees_refreshed > 0, report.target_problems) == (added, ())
            if not added:
                session.append_message(_message(f"one more {KEY}"))
        copied = target.find_session(session.id)
        assert (copied.title, copied.info.first_message, copied.metadata["a"]) == (MARK, MARK, MARK)
        assert copied.build_context()[-1]["content"] == f"one more {MARK}"
        assert target.memories()[0].body == MARK


def test_an_entry_that_was_edited_gets_no_sound_digest_by_a_mask(tmp_path: Path) -> None:
    path, _, _ = _brought(tmp_path / "in", KEY)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE entries SET payload = replace(payload, 'AKIA', 'ABIA') WHERE depth = 0")
    with flue_py.sync.open(path) as source, flue_py.sync.open(":memory:", secrets="mask") as target:
        with pytest.raises(CorruptStore, match="does not match its digest"):
            flue_py.sync.copy_store(source, target, verify=False)
        assert target.list_sessions(kind="root").sessions == ()


def test_commands_have_it_from_the_settings(tmp_path: Path) -> None:
    _, _, file = _brought(tmp_path / "in", f"the key is {KEY}")
    config = tmp_path / "in" / "config.toml"
    config.write_text('secrets = "mask"\n')
    folder = tmp_path / "store"
    folder.mkdir()

    def run(*arguments: str) -> str:
        called = CliRunner().invoke(
            main, ["--db", str(folder / "s.db"), *arguments], env={"FLUE_PY_CONFIG": str(config)}
        )
        assert called.exit_code == 0, called.output
        return called.output

    run("import", str(file))
    assert "nothing was changed" in run("import", str(file))
    assert MARK in run("show", "s1")
    run("copy", str(tmp_path / "in" / "copied.db"), str(folder / "t.db"))
    assert KEY.encode() not in _everywhere(folder)


async def test_it_is_masked_on_postgres_too(new_store_database: NewDatabase) -> None:
    async with flue_py.open(new_store_database(), secrets="mask") as store:
        session = await store.create_session(title=KEY)
        await session.append_message(_message(KEY))
        fork = await session.fork(title=KEY)
        assert (session.title, fork.title) == (MARK, MARK)
        assert (await fork.build_context())[0]["content"] == MARK
        assert (await store.verify()).problems == []


def test_another_choice_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="secrets"), flue_py.sync.open(":memory:", secrets=3):  # type: ignore[arg-type]
        raise AssertionError
    assert issubclass(SecretRefused, FlueError)
