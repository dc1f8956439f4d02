"""Looking: what comes from other processes, going to other sessions, finding, secrets, long texts."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import sys
import threading
from base64 import b64encode
from contextlib import closing
from pathlib import Path
from subprocess import run
from typing import Any

import pytest

from flue_py.core.sessions import HARNESS, SessionInfo
from flue_py.render.lines import UNICODE, cells, text_of
from flue_py.render.views import ListedSession, listed_session
from flue_py.tui.model import columns_of, fitting, list_heading, list_line
from tests.adapters.needed import needs
from tests.tables import inputs

needs("tui", "textual", "detect_secrets")

import flue_py  # noqa: E402
from flue_py.tui.app import Browser, RowList, SessionScreen, SessionsScreen, keys_of  # noqa: E402
from flue_py.tui.model import FIRST_PAGE, OpenedSession, ShownTree  # noqa: E402
from tests.tui.driving import Driver, browsing  # noqa: E402
from tests.tui.story import KEY, answer, user  # noqa: E402

NAME = "Why is the build"

WRITER = """
import asyncio
import sqlite3
import sys
import flue_py.sync
with flue_py.sync.open(sys.argv[1]) as store:
    session = store.find_session(sys.argv[2])
    exec(sys.argv[3])
"""


def elsewhere(path: Path, session_id: str, work: str) -> None:
    """Do something to a session in another process."""
    run([sys.executable, "-c", WRITER, str(path), session_id, work], check=True)


async def id_of(path: Path, title: str) -> str:
    async with flue_py.open(path) as store:
        return (await store.list_sessions(title=title)).sessions[0].id


async def test_what_another_process_writes_is_shown(story: Path) -> None:
    session_id = await id_of(story, NAME)
    async with browsing(story, opens=NAME) as driver:
        elsewhere(story, session_id, "session.append_message({'role': 'user', 'content': 'From elsewhere'})")
        await driver.sees("> ● user From elsewhere")
        await driver.at("Fix it.")
        elsewhere(story, session_id, "session.append_message({'role': 'user', 'content': 'And again'})")
        assert "> ├─○ user [the fix]" in await driver.sees("And again")
        elsewhere(story, session_id, "session.undo(); session.undo()")
        assert "> ├─○ user [the fix]" in await driver.sees("○ user And again")
        elsewhere(story, session_id, "session.marks.set_label(session.leaf_id, 'by another')")
        await driver.sees("[by another]")
        elsewhere(story, session_id, "session.move_leaf(to=None)")
        assert "Fix it." in await driver.lacks("● user")


async def test_a_session_that_another_process_deletes_is_left(story: Path) -> None:
    session_id = await id_of(story, NAME)
    async with browsing(story, opens=NAME) as driver:
        elsewhere(story, session_id, "store.delete_session_tree(session)")
        await driver.sees("was deleted")
        await driver.press("p", "m", "u", "x", "r", "l", "escape", "D")
        await driver.press("escape")
        await driver.lacks("Why is the build red? ·")


async def test_a_long_session_opens_at_its_leaf_and_stays_there(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with flue_py.open(path) as store:
        session = await store.create_session(title="long")
        count = FIRST_PAGE * 2 + 50
        await session.append_messages([user(f"message {number}") for number in range(count)])
        path_ids = [entry.id for entry in await session.get_active_path()]
    async with browsing(path, opens="long") as driver:
        assert driver.app.screen.query_one(RowList).count == count
        assert f"> ● user message {count - 1}" in driver.screen
        await driver.press("home")
        await driver.sees("> ● user message 0")
        await driver.press("left")
        await driver.sees("(folded)")
        assert driver.app.screen.query_one(RowList).count == 1
        await driver.press("full_stop")
        await driver.sees(f"> ● user message {count - 1}")
    async with browsing(path, session=session.id) as driver:
        await driver.whole()
        driver.app.open_session(session.id, path_ids[7])
        await driver.sees("> ● user message 7")


async def test_one_goes_to_a_fork_a_task_and_back(story: Path) -> None:
    async with browsing(story, opens=NAME) as driver:
        await driver.at("fork What if")
        await driver.press("enter")
        await driver.sees("What if we drop the test? ·")
        await driver.whole()
        await driver.press("o")
        await driver.sees("Why is the build red? ·")
        await driver.whole()
        await driver.sees("> ● assistant Deployed.")
        await driver.at("task (done)")
        await driver.press("enter")
        await driver.sees("Review the fix ·")
        await driver.whole()
        await driver.press("o")
        await driver.sees("Why is the build red? ·")
        await driver.press("escape", "escape", "escape", "escape", "escape")
        await driver.until(lambda: isinstance(driver.app.screen, SessionsScreen))


async def test_a_word_is_found_in_all_sessions_and_in_one(story: Path) -> None:
    async with browsing(story) as driver:
        await driver.sees(NAME)
        await driver.type("smaller")
        await driver.press("ctrl+f")
        await driver.sees("faster and smaller")
        await driver.press("enter")
        await driver.sees("Write the release notes ·")
        await driver.whole()
        await driver.press("escape", "escape", "escape")
        await driver.open(NAME)
        await driver.press("3", "slash")
        await driver.sees("find in this session")
        await driver.type("timeout")
        await driver.press("enter")
        await driver.sees("after 30 s")
        await driver.press("enter")
        await driver.sees("> ● result [read_log]")
        await driver.press("slash")
        await driver.type("nowhere to be found")
        await driver.press("enter")
        await driver.sees("nothing found")


async def test_secrets_are_hidden_everywhere_until_they_are_asked_for(story: Path) -> None:
    session_id = await id_of(story, NAME)
    async with flue_py.open(story) as store:
        session = await store.find_session(session_id)
        await session.set_title(f"Build with {KEY}")
        await session.marks.set_label((await session.get_active_path())[0].id, f"key {KEY}")
        await session.set_metadata({"x": 1})
    hidden = KEY[:7]
    async with browsing(story) as driver:
        await driver.sees("Build with [hidden]")
        await driver.type("build")
        await driver.lacks("scratch")
        await driver.press("ctrl+d")
        assert hidden not in await driver.sees("Delete 'Build with [hidden]'?")
        await driver.press("n")
        await driver.lacks("Delete 'Build")
        await driver.press("enter")
        await driver.whole()
        await driver.at("Deploy it")
        screens = [await driver.sees("1 secret hidden")]
        await driver.press("t")
        screens.append(await driver.sees("as they stand"))
        await driver.press("z")
        screens.append(driver.screen)
        await driver.press("z", "equals_sign", "home", "equals_sign")
        screens.append(await driver.sees("in common"))
        await driver.press("a", "escape")
        await driver.at("compaction")
        await driver.press("b", "down", "down", "down", "down", "down")
        screens.append(await driver.sees("Deploy it with"))
        await driver.press("escape", "slash")
        await driver.type("GITHUB_TOKEN")
        await driver.press("enter")
        screens.append(await driver.sees("Deploy it"))
        await driver.press("escape")
        assert [screen for screen in screens if hidden in screen] == []
        await driver.at("Deploy it")
        await driver.press("s")
        await driver.sees(KEY[:20])
        await driver.press("s")
        await driver.sees("1 secret hidden")


async def test_a_long_text_is_cut_until_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with flue_py.open(path) as store:
        session = await store.create_session(title="long text")
        await session.append_message(user("word " * 20_000 + "the end"))
    async with browsing(path, opens="long text") as driver:
        await driver.press("tab", "end")
        await driver.sees("80,007 more characters; w shows all")
        await driver.press("w", "end")
        await driver.sees("the end")


@pytest.mark.parametrize(
    "entries",
    [
        [("message", {"role": "user", "content": ""})],
        [("message", {"role": "assistant", "content": []})],
        [("message", {
            "role": "assistant", "content": [{"type": "toolCall", "id": "c", "name": "t", "arguments": {"a": [1]}}],
        })],
        [("message", {"role": "user", "content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]})],
        [("note", None), ("note", 3), ("note", ["a", {"b": None}]), ("note", "text")],
        [("message", {
            "role": "bashExecution", "command": "ls", "output": "a\nb", "exitCode": 0, "cancelled": False,
            "truncated": False,
        })],
        [("model_change", {"provider": "x", "modelId": "y"}), ("thinking_level_change", {"thinkingLevel": "high"})],
    ],
    ids=["empty", "no parts", "call", "picture", "custom", "shell", "settings"],
)  # fmt: skip
async def test_every_kind_of_entry_can_be_read(entries: list[tuple[str, object]], tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with flue_py.open(path) as store:
        session = await store.create_session(title="kinds")
        for kind, data in entries:
            if kind == "message":
                await session.append_message(data)  # type: ignore[arg-type]
            else:
                await session.append_custom(kind, data)  # type: ignore[arg-type]
    async with browsing(path, opens="kinds") as driver:
        await driver.press("5", "home")
        for _ in entries:
            await driver.press("t", "w", "t", "down")
        assert isinstance(driver.app.screen, SessionScreen)
        assert driver.app.screen.query_one(RowList).count == len(entries)


async def test_the_leaf_is_marked_and_followed_where_the_view_does_not_show_it(story: Path) -> None:
    session_id = await id_of(story, NAME)
    async with browsing(story, opens=NAME) as driver:
        await driver.press("x")
        await driver.sees("x includes it again")
        assert driver.screen.count("← leaf") == 1
        elsewhere(story, session_id, "session.append_message({'role': 'user', 'content': 'From elsewhere'})")
        await driver.sees("> ● user From elsewhere")
        await driver.press("4", "end")
        await driver.sees("labelled")
        assert driver.screen.count("← leaf") <= 1


async def test_one_who_goes_on_while_rows_are_worked_out_stays_there(
    story: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await id_of(story, NAME)
    flag, moves = ShownTree.flag, 0
    async with browsing(story, session=session_id) as driver:

        def flag_while_a_key_is_pressed(tree: ShownTree, *about: Any) -> bytearray:
            nonlocal moves
            if threading.current_thread() is not threading.main_thread():
                driver.app.call_from_thread(driver.app.screen.query_one(RowList).stand_on, moves)
                moves += 1
            return flag(tree, *about)

        await driver.whole()
        monkeypatch.setattr(ShownTree, "flag", flag_while_a_key_is_pressed)
        driver.app.screen.follow()  # type: ignore[attr-defined]
        await driver.until(lambda: moves == 1)
        await driver.sees("> ● user Why is the build")
        elsewhere(story, session_id, "session.append_message({'role': 'user', 'content': 'From elsewhere'})")
        await driver.sees("From elsewhere")
        assert (driver.app.screen.query_one(RowList).at, moves) == (1, 2)


async def test_a_fork_that_another_process_makes_is_there_when_one_comes_back(story: Path) -> None:
    session_id = await id_of(story, NAME)
    async with browsing(story, opens=NAME) as driver:
        elsewhere(story, session_id, "session.fork(title='Made elsewhere')")
        await driver.press("question_mark")
        await driver.sees("move the leaf")
        await driver.press("escape")
        await driver.sees("fork Made elsewhere")


async def test_a_prompt_that_is_too_long_for_the_box_is_not_edited(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with flue_py.open(path) as store:
        session = await store.create_session(title="book")
        await session.append_message(user("word " * 30_000))
    async with browsing(path, opens="book") as driver:
        await driver.press("e")
        await driver.sees("are too many to edit here")


async def test_nothing_there_is_said(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with flue_py.open(path) as store:
        await store.create_session(title="empty")
    async with browsing(path, opens="empty") as driver:
        await driver.sees("no entries in this view")
        for key in "empxlfurvbo":
            await driver.press(key)
        await driver.press("escape", "escape", "equals_sign", "left", "right", "full_stop", "enter")
    async with flue_py.open(tmp_path / "none.db") as store:
        await store.create_session(metadata={HARNESS: "media"})
    async with browsing(tmp_path / "none.db") as driver:
        await driver.sees("0 sessions · 1 more hidden")
        await driver.press("enter", "ctrl+d", "ctrl+t", "down", "pagedown", "ctrl+f", "enter")


async def test_answers_without_usage_have_no_cost_that_is_known(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with flue_py.open(path) as store:
        session = await store.create_session(title="costs")
        told = answer("told")
        untold = {key: value for key, value in answer("untold").items() if key != "usage"}
        await session.append_messages([user("a"), told, user("b"), untold])
    async with browsing(path, opens="costs") as driver:
        await driver.sees("tokens unknown")
        assert "cost unknown" in driver.screen
        await driver.at("told")
        assert "1,200 in" in await driver.sees("$0.00481")


async def test_a_screen_that_is_left_shows_nothing_that_it_was_still_reading(
    story: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with browsing(story, opens=NAME) as driver:
        left, ended = driver.app.screen, asyncio.Event()
        assert isinstance(left, SessionScreen)

        async def until_the_list_is_gone(_: OpenedSession) -> None:
            try:
                while left.query(RowList):  # noqa: ASYNC110 - nothing tells that a widget is gone
                    await asyncio.sleep(0)
            finally:
                ended.set()

        monkeypatch.setattr(OpenedSession, "load_begun", until_the_list_is_gone)
        left.look_around()
        await driver.press("escape")
        await ended.wait()
        await driver.until(lambda: isinstance(driver.app.screen, SessionsScreen))


async def test_the_marks_of_a_session_without_compactions_cost_no_second_reading_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with flue_py.open(tmp_path / "s.db") as store:
        session = await store.create_session()
        ids = (await session.append_messages([user("a"), user("b"), user("c")])).entry_ids
        await session.marks.pin(ids[2])
        await session.marks.pin(ids[0])
        reads: list[object] = []
        monkeypatch.setattr(store.backend, "read_context", lambda *args, **options: reads.append(args))
        opened = OpenedSession(store, session)
        await opened.load_end()
        await opened.load_all()
        assert (opened.pinned, opened.excluded, reads) == ({ids[0], ids[2]}, {}, [])


async def test_pictures_are_named_by_their_bytes_and_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (640).to_bytes(4) + (480).to_bytes(4) + b"the rest"
    gif = b"GIF89a" + (9).to_bytes(2, "little") * 2
    parts = [
        {"type": "image", "data": b64encode(data).decode(), "mimeType": "image/png"} for data in (png, b"hello", gif)
    ]
    path = tmp_path / "s.db"
    async with flue_py.open(path) as store:
        session = await store.create_session(title="pictures")
        await session.append_messages([user("none"), {**user(""), "content": parts}])
    (folder := tmp_path / "here").mkdir()
    monkeypatch.chdir(folder)
    async with browsing(path, size=(160, 24)) as driver:
        await driver.open("pictures")
        for words in (
            "[image, image/png, 640 x 480 pixels, 32 bytes]",
            "[image, image/png, 5 bytes]",
            "[image, image/gif, 9 x 9 pixels, 10 bytes]",
        ):
            await driver.sees(words)
        await driver.press("i")
        await driver.sees("saved picture-")
        saved = sorted(folder.iterdir())
        assert [(file.suffix, file.read_bytes(), file.stat().st_mode & 0o777) for file in saved] == [
            (".png", png, 0o600),
            (".gif", gif, 0o600),
        ]
        await driver.press("i")
        await driver.sees("is there already")
        await driver.press("home", "i")
        await driver.sees("there is no picture")


async def test_a_damaged_session_is_named_and_the_others_are_listed(story: Path) -> None:
    session_id = await id_of(story, NAME)
    with closing(sqlite3.connect(story, isolation_level=None)) as connection:
        (created,) = connection.execute("SELECT created_at FROM sessions WHERE id = ?", (session_id,)).fetchone()
        set_creation = "UPDATE sessions SET created_at = ? WHERE id = ?"
        connection.execute(set_creation, (created + 1, session_id))
        async with browsing(story, size=(120, 24)) as driver:
            assert NAME not in await driver.sees(f"1 damaged: {session_id}")
            connection.execute(set_creation, (created, session_id))


async def test_a_store_that_is_read_without_its_key_says_so_at_the_head(story: Path) -> None:
    async with flue_py.open(story, unchecked=True) as store:
        app = Browser(store, "s.db")
        async with app.run_test(size=(80, 24)) as pilot:
            await Driver(app, pilot).sees("unchecked · flue-py")


# -- the list of sessions ---------------------------------------------------------------------------------------------


IMPORTED = '{"imported": {"format": "codex"}}'
SESSIONS = [
    listed_session(info, info.title or "", model)
    for info, model in (
        (SessionInfo("1", title="Red build", cwd="/srv/shop", metadata_text=IMPORTED), "openai/gpt-5.1-codex"),
        (SessionInfo("2", title="Notes", cwd="/srv/website", key="release", first_message="Write it down"), ""),
        (SessionInfo("3", title="Login", cwd="/srv/shop", scope="team", kind="fork", message_count=1_018), ""),
        (SessionInfo("4", title="Straße 今日はログを見ます " * 9), ""),
    )
]


def plain(text: str) -> str:
    return text


@inputs(
    ("words", "found"),
    [
        ("", "1234"), ("  ", "1234"), ("red", "1"), ("SHOP login", "3"), ("team", "3"), ("release", "2"), ("down", "2"),
        ("CODEX", "1"), ("openai/", "1"), ("strasse", "4"), ("red notes", ""),
    ],
)  # fmt: skip
def test_every_word_that_is_typed_has_to_be_somewhere(words: str, found: str) -> None:
    assert "".join(row.info.id for row in fitting(SESSIONS, words, plain)) == found


def test_a_word_that_is_hidden_is_not_found() -> None:
    assert fitting(SESSIONS, "red", lambda text: text.replace("Red", "[hidden]")) == []


def lines(sessions: list[ListedSession], width: int) -> list[str]:
    columns = columns_of(sessions)
    drawn = [text_of(list_line(row, plain, columns, width, UNICODE)) for row in sessions]
    return [list_heading(columns, width, UNICODE), *drawn]


def test_a_line_says_when_what_of_which_program_where_and_how_much() -> None:
    assert [line.split() for line in lines(SESSIONS, 120)[:4]] == [
        ["active", "title", "program", "project", "model", "msgs", "cost"],
        ["70-01-01", "00:00", "Red", "build", "codex", "shop", "gpt-5.1-codex", "0", "$0.00"],
        ["70-01-01", "00:00", "Notes", "website", "0", "$0.00"],
        ["70-01-01", "00:00", "↳", "fork", "Login", "shop", "1.0k", "-"],
    ]
    for few in (lines(SESSIONS[3:], 78), lines(SESSIONS, 40)):
        assert few[0].split() == ["active", "title", "msgs", "cost"]
        assert {cells(line) for line in few} == {cells(few[0])}


@inputs("width", [78, 79, 120, 200])
def test_the_names_of_columns_stand_above_them(width: int) -> None:
    heading, *rows = lines(SESSIONS, width)
    assert {cells(line) for line in (heading, *rows)} == {width}
    assert heading.index("title") == rows[0].index("Red build")
    assert heading.index("program") == rows[0].index("codex")


# -- the screens, as they look on 80 x 24 cells -----------------------------------------------------------------------


needs("tui", "textual", "detect_secrets")

from tests.tui import pictures  # noqa: E402


@pytest.mark.parametrize("name", pictures.SCENES)
async def test_a_screen_looks_as_it_did(name: str, story: Path) -> None:
    async with browsing(story) as driver:
        await pictures.SCENES[name](driver)
        text = pictures.text_file(name).read_text(encoding="utf-8")
        await driver.until(lambda: driver.screen + "\n" == text)


def test_the_page_about_the_browser_names_keys_that_are_there() -> None:
    page = pictures.PAGE.read_text(encoding="utf-8")
    keys = page.split("\n### The keys\n")[1].split("\nArrow keys")[0].split("\nThose of the list")
    for text, screen, fewest in zip(keys, (SessionScreen, SessionsScreen), (10, 4), strict=True):
        named = {name for name in re.findall(r"`(\S+)`", text) if name != "f1"}
        assert len(named) > fewest
        assert named <= {name for names, _ in keys_of(screen.BINDINGS) for name in names.split()}
    assert all(name in page and (pictures.DRAWN / name).exists() for name in pictures.PICTURES.values())


def test_no_text_is_of_a_scene_that_is_gone() -> None:
    assert {path.stem for path in pictures.TEXTS.glob("*.txt")} == set(pictures.SCENES)


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (200, 60), (20, 5)])
async def test_every_screen_can_be_drawn_in_any_size(size: tuple[int, int], story: Path) -> None:
    async with browsing(story, size=size) as driver:
        await driver.sees("flue-py")
        await driver.press("enter")
        await driver.whole()
        for key in (
            "1", "2", "3", "4", "5", "end", "home", "question_mark", "escape", "z", "z", "equals_sign", "down",
            "equals_sign",
        ):  # fmt: skip
            await driver.press(key)
        await driver.press("escape", "escape")
        assert len(driver.screen.splitlines()) == size[1]
