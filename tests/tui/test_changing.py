"""What the keys change: the leaf, labels, pins, exclusions, forks, edited prompts, deletions."""

from __future__ import annotations

from pathlib import Path

from tests.adapters.needed import needs

needs("tui", "textual", "detect_secrets")

import flue_py  # noqa: E402
from flue_py.tui.app import SessionsScreen  # noqa: E402
from tests.tui.driving import Driver, browsing  # noqa: E402
from tests.tui.story import KEY, answer, user  # noqa: E402
from tests.values import existing  # noqa: E402

NAME = "Why is the build"


async def red_build(driver: Driver) -> flue_py.Session:
    """Return the session in the store of the browser, as it is stored now."""
    page = await driver.app.store.list_sessions(title="Why is the build red?")
    return existing(await driver.app.store.get_session(page.sessions[0].id))


async def texts(session: flue_py.Session) -> list[str]:
    return [str(entry.fields.get("content")) for entry in await session.get_active_path() if entry.role == "user"]


async def test_the_leaf_is_moved_and_that_is_undone_and_done_again(story: Path) -> None:
    async with browsing(story, opens=NAME) as driver:
        session = await red_build(driver)
        was = session.leaf_id
        await driver.at("Fixed by")
        await driver.press("m")
        await driver.sees("this is the leaf now")
        moved = (await session.refresh()).leaf_id
        assert moved != was
        assert [line.by for line in await session.log(limit=1)] == ["flue-py browse"]
        await driver.press("u")
        await driver.sees("undone")
        assert (await session.refresh()).leaf_id == was
        await driver.press("r")
        await driver.sees("done again")
        assert (await session.refresh()).leaf_id == moved
        await driver.press("r")
        await driver.sees("nothing changed")


async def test_a_label_is_set_and_cleared(story: Path) -> None:
    async with browsing(story, opens=NAME) as driver:
        session = await red_build(driver)
        await driver.at("Is it green")
        await driver.press("l")
        await driver.sees("Label of this entry")
        await driver.type("ask again")
        await driver.press("enter")
        await driver.sees("[ask again]")
        assert "ask again" in (await session.marks.labels()).values()
        await driver.press("l")
        await driver.sees("Label of this entry")
        await driver.press("escape")
        await driver.lacks("Label of this entry")
        assert "ask again" in (await session.marks.labels()).values()
        await driver.press("l", *["backspace"] * 9, "enter")
        await driver.sees("no label")
        assert "ask again" not in (await session.marks.labels()).values()


async def test_an_entry_is_pinned_and_unpinned(story: Path) -> None:
    async with browsing(story, opens=NAME) as driver:
        session = await red_build(driver)
        before = await session.marks.pins()
        await driver.at("Is it green")
        await driver.press("p")
        await driver.sees("every later compaction keeps it")
        assert len(await session.marks.pins()) == len(before) + 1
        await driver.press("p")
        await driver.sees("unpinned")
        assert await session.marks.pins() == before


async def test_an_entry_is_excluded_and_included(story: Path) -> None:
    async with browsing(story, opens=NAME) as driver:
        session = await red_build(driver)
        await driver.at("Is it green")
        await driver.press("x")
        await driver.sees("x includes it again")
        assert len(await session.marks.exclusions()) == 1
        assert "Is it green now?" not in str(await session.build_context())
        await driver.press("x")
        await driver.sees("included in the context again")
        assert "Is it green now?" in str(await session.build_context())


async def test_what_cannot_be_done_is_said_and_changes_nothing(story: Path) -> None:
    async with browsing(story, opens=NAME) as driver:
        session = await red_build(driver)
        await driver.at("Fix it.")
        await driver.press("x")
        await driver.sees("not on the")
        assert (await session.refresh()).revision == (await red_build(driver)).revision
        assert await session.marks.exclusions() == []
        await driver.at("Deployed.")
        await driver.press("e")
        await driver.sees("only what a user said can be edited")
        await driver.press("b")
        await driver.sees("this is no compaction")


async def test_an_edited_prompt_is_a_new_branch_and_one_undo_goes_back(story: Path) -> None:
    async with browsing(story, opens=NAME) as driver:
        session = await red_build(driver)
        was, count = session.leaf_id, len(await session.get_tree())
        await driver.at("Fix it.")
        await driver.press("enter")
        await driver.sees("Change the prompt")
        await driver.type(" Quickly!")
        await driver.press("ctrl+s")
        await driver.sees("the leaf of a new branch")
        session = await red_build(driver)
        assert await texts(session) == ["Why is the build red?", "Fix it. Quickly!"]
        assert len(await session.get_tree()) == count + 1
        await driver.press("u")
        await driver.sees("undone")
        assert (await session.refresh()).leaf_id == was


async def test_pictures_of_an_edited_prompt_stay(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    picture = {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}
    async with flue_py.open(path) as store:
        session = await store.create_session(title="pictures")
        await session.append_message({**user(""), "content": [{"type": "text", "text": "Look"}, picture]})
        await session.append_message(answer("A word."))
    async with browsing(path, opens="pictures") as driver:
        await driver.at("Look")
        await driver.press("e")
        await driver.type(" closer")
        await driver.press("ctrl+s")
        await driver.sees("the leaf of a new branch")
        made = existing(await driver.app.store.get_session(session.id))
        (only,) = await made.get_active_path()
        assert only.fields["content"] == [{"type": "text", "text": "Look closer"}, picture]


async def test_what_was_typed_is_kept_where_another_process_wrote(story: Path) -> None:
    async with browsing(story, opens=NAME) as driver:
        await driver.at("Fix it.")
        await driver.press("e")
        await driver.sees("Change the prompt")
        await driver.type(" Now.")
        screen = driver.app.screen_stack[-2]
        screen.take_changes = nothing  # type: ignore[attr-defined, method-assign]
        async with flue_py.open(story) as other:
            theirs = await other.find_session((await red_build(driver)).id)
            await theirs.append_message(user("From elsewhere"))
        await driver.press("ctrl+s")
        await driver.sees("written meanwhile")
        del screen.take_changes  # type: ignore[attr-defined]
        assert "Fix it. Now." in driver.screen
        await screen.take_changes()  # type: ignore[attr-defined]
        await driver.press("ctrl+s")
        await driver.sees("the leaf of a new branch")
        session = await red_build(driver)
        assert await texts(session) == ["Why is the build red?", "Fix it. Now."]
        assert "From elsewhere" in str([entry.data for entry in await session.get_tree()])


async def nothing() -> None:
    """Do nothing in place of following the session."""


async def test_an_empty_prompt_is_not_saved(story: Path) -> None:
    async with browsing(story, opens=NAME) as driver:
        await driver.at("Fix it.")
        await driver.press("e")
        await driver.sees("Change the prompt")
        await driver.press(*["backspace"] * 7, "ctrl+s")
        await driver.sees("An empty prompt says nothing")
        await driver.press("escape")
        await driver.lacks("Change the prompt")


async def test_a_prompt_with_a_secret_is_edited_only_after_a_question(story: Path) -> None:
    async with browsing(story, opens=NAME) as driver:
        await driver.at("Deploy it")
        await driver.press("e")
        screen = await driver.sees("This prompt has 1 secret")
        assert KEY[:8] not in screen
        await driver.press("n")
        await driver.lacks("This prompt has")
        await driver.press("e")
        await driver.sees("This prompt has 1 secret")
        await driver.press("y")
        await driver.sees(KEY[:8])


async def test_a_fork_is_made_and_shown(story: Path) -> None:
    async with browsing(story, opens=NAME) as driver:
        await driver.at("Is it green")
        await driver.press("f")
        await driver.sees("Title of the fork")
        await driver.type("Another way")
        await driver.press("enter")
        await driver.sees("Another way ·")
        await driver.whole()
        await driver.press("escape")
        await driver.sees("fork Another way")


async def test_a_session_is_deleted_after_a_question_and_not_without_yes(story: Path) -> None:
    async with browsing(story) as driver:
        await driver.sees("Why is the build")
        await driver.type("notes")
        await driver.lacks("Why is the build")
        for key in ("n", "enter", "escape"):
            await driver.press("ctrl+d")
            await driver.sees("Delete 'Write the release notes'?")
            await driver.press(key)
            await driver.lacks("Delete 'Write")
        assert len((await driver.app.store.list_sessions()).sessions) == 5
        await driver.press("ctrl+d")
        await driver.sees("2 entries would go")
        await driver.press("y")
        await driver.sees("deleted 1 session")
        await driver.sees("0 sessions of 3")
        assert len((await driver.app.store.list_sessions()).sessions) == 4


async def test_a_session_that_was_written_meanwhile_is_not_deleted(story: Path) -> None:
    async with browsing(story, opens=NAME) as driver:
        await driver.press("D")
        await driver.sees("Delete 'Why is the build red?'?")
        async with flue_py.open(story) as other:
            theirs = await other.find_session((await red_build(driver)).id)
            await theirs.append_message(user("Wait"))
        await driver.press("y")
        await driver.sees("written meanwhile")
        assert await red_build(driver)


async def test_the_shown_session_is_deleted_with_its_task(story: Path) -> None:
    async with browsing(story, opens=NAME) as driver:
        await driver.press("D")
        await driver.sees("1 task session goes with it")
        await driver.press("y")
        await driver.until(lambda: isinstance(driver.app.screen, SessionsScreen))
        await driver.sees("0 sessions of 3")
        titles = {info.title for info in (await driver.app.store.list_sessions()).sessions}
        assert titles == {"What if we drop the test?", "Write the release notes", None}


async def test_a_store_that_can_only_be_read_is_not_changed(story: Path) -> None:
    from flue_py.tui.app import Browser

    async with flue_py.open(story, read_only=True) as store:
        app = Browser(store, "sessions.db", read_only=True)
        async with app.run_test(size=(80, 24)) as pilot:
            driver = Driver(app, pilot)
            await driver.open(NAME)
            await driver.at("Fixed by")
            for key in "mpuelxfrD":
                app.screen.say("")
                await driver.press(key)
                await driver.sees("this database can only be read")
