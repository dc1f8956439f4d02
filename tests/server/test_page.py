"""The pages of a server in a real browser: they follow what happens, and have of a long session what is looked at."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.adapters.needed import needs

needs("server", "starlette", "uvicorn", "httpx")

import httpx

import flue_py
from tests.browser import PHONE, Chromium
from tests.server.serving import TOKENS, Server, served

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = "</script><img src=x onerror='window.pwned = 1'><script>window.pwned = 2</script>"
LONG = 2_400
ODD = "../~é/entries"


def ask(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, Any]:
    usage = {"input": 100, "output": 10, "totalTokens": 110, "cost": {"total": 0.25}}
    return {"role": "assistant", "provider": "anthropic", "model": "claude", "content": text, "usage": usage}


async def write_sessions(folder: Path) -> None:
    async with flue_py.open(folder / "s.db", prices=False) as store:
        for scope, number in (("ann", 0), ("ann", 1), ("bob", 0)):
            session = await store.create_session(
                id=f"{scope}-{number}", scope=scope, title=f"{HOSTILE} {scope} {number}", cwd=f"/w/part{number}"
            )
            first = [ask(f"{HOSTILE} first"), answer("**bold** zebra")]
            await session.append_messages([*first, ask("second"), answer("so")])
        for name in ("%41", ODD):
            await store.create_session(id=name, scope="ann", title="odd ann 2")
        hurt = await store.create_session(id="hurt", scope="ann", title="hurt ann 3")
        await hurt.append_messages([ask(f"part {place}") for place in range(6)])
        damaged = [entry.id for entry in await hurt.get_tree()][2:4]
        for project in range(3):
            child = await hurt.tasks.create(task_id=f"t{project}", title="a task")
            await child.append_message(ask("hello"))
        session = await store.create_session(id="long", scope="ann", title="long")
        await session.append_messages([ask(f"number {place}") for place in range(LONG - 1)])
        await session.append_message(answer("the end"))
    with closing(sqlite3.connect(folder / "s.db")) as connection, connection:
        for entry_id in damaged:
            connection.execute('UPDATE entries SET payload = \'{"role":"user"}\' WHERE id = ?', (entry_id,))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("pages")
    asyncio.run(write_sessions(folder))
    settings = {"agents": {"short": {"trim": {"max_tokens": 10}}}}
    (folder / "settings.json").write_text(json.dumps(settings))
    with served(folder, "--settings", str(folder / "settings.json")) as running:
        yield running


def logged_in(look: Callable[[Page], None], page: Page) -> None:
    """Log in as ann, where the address that is opened asks for it, and open that again."""
    address = page.url
    page.locator("[name=token]").fill(TOKENS["ann"])
    page.locator("[name=token]").press("Enter")
    page.locator("#sessions a").first.wait_for()
    page.goto(address)
    look(page)


def follows(page: Page) -> None:
    """Wait until the page is told of what happens."""
    page.locator(".kicker", has_text="live").wait_for()


def test_a_session_is_found_by_keys_and_its_page_follows_it(chromium: Chromium, server: Server) -> None:
    def look(page: Page) -> None:
        (cookie,) = page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
        assert page.evaluate("[document.cookie, localStorage.length, sessionStorage.length]") == ["", 0, 0]
        follows(page)
        assert {text.split()[-2] for text in page.locator("#sessions a").all_text_contents()[1:]} == {"ann"}
        assert "bob" not in page.content()
        page.keyboard.press("/")
        page.keyboard.type("zebra")
        page.keyboard.press("Enter")
        page.locator(".hits a").nth(1).wait_for()
        page.keyboard.press("Escape")
        page.select_option("#project", "part1")
        page.locator("h1").click()
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        follows(page)
        assert page.url == f"{server.url}/sessions/ann-1"
        assert page.title() == f"{HOSTILE} ann 1"
        assert page.locator("#panel strong").text_content() == "bold"
        assert page.evaluate("[window.pwned, document.images.length]") == [None, 0]
        with server.client("ann") as http:
            assert http.post("/v1/sessions/ann-1/messages", json={"messages": [answer("more")]}).is_success
            page.locator("#tree .badge.leaf", has=page.locator("xpath=..//*[text()='more']")).wait_for()
            assert page.locator("#tab-0").text_content() == "Model sees (5)"
            # Whoever reads another entry stays there.
            page.locator("#tree [role=treeitem]", has_text="second").click()
            assert http.post("/v1/sessions/ann-1/messages", json={"messages": [ask("again")]}).is_success
            page.locator("#tree [role=treeitem]", has_text="again").wait_for()
            assert page.locator("#tree [aria-selected=true]").text_content().find("second") > 0
        assert page.locator("#tiles").text_content().count("$0.75") == 1
        # A phone shows what each session cost, beside its name.
        page.set_viewport_size(PHONE)
        page.goto(server.url)
        cost = page.locator("#sessions .session td:last-child").first.bounding_box()
        assert cost["x"] + cost["width"] <= PHONE["width"]

    chromium.look(f"{server.url}/", partial(logged_in, look))


def test_a_reader_marks_moves_forks_and_undoes_unless_somebody_else_was_faster(
    chromium: Chromium, server: Server
) -> None:
    def look(page: Page) -> None:
        follows(page)
        row = page.locator("#tree [role=treeitem]", has_text="second")
        row.click()
        page.locator("[name=label]").fill(HOSTILE)
        page.locator("[name=label]").press("Enter")
        row.locator(".badge.label", has_text=HOSTILE).wait_for()
        page.get_by_role("button", name="Pin", exact=True).click()
        row.get_by_text("pinned").wait_for()
        page.get_by_role("button", name="Move leaf here").click()
        row.locator(".badge.leaf").wait_for()
        page.get_by_role("button", name="Undo").click()
        page.locator("#tree [role=treeitem]", has_text="so").locator(".badge.leaf").wait_for()
        page.locator("#tabs button", has_text="Sent").click()
        page.locator("#panel", has_text="as anthropic takes it").wait_for()
        page.select_option("#panel [name=agent]", "short")
        page.locator("#panel", has_text="for short").wait_for()
        rows = [row.split("\t") for row in page.locator("#panel table").inner_text().splitlines()]
        assert rows[0] == ["Step", "In", "Cut", "Out", "Added", "Sent on", "Why"]
        assert rows[-1] == ["trim_history", "53", "—", "42 (2)", "—", "11", "the oldest turn of more than fit"]
        page.get_by_role("button", name="Fork here").click()
        page.locator("#told a").click()
        page.locator("#sessions a", has_text="forked from").wait_for()
        page.locator("#tree [aria-selected=true]", has_text="so").locator(".badge.leaf").wait_for()
        # A page that is told of nothing does not know what somebody else wrote.
        page.add_init_script("window.EventSource = class { addEventListener() {} }")
        page.goto(f"{server.url}/sessions/ann-0")
        with server.client("ann") as http:
            assert http.post("/v1/sessions/ann-0/messages", json={"messages": [ask("faster")]}).is_success
        page.get_by_role("button", name="Undo").click()
        page.locator("#told.refused", has_text="Nothing was changed").wait_for()
        page.locator("#tree [role=treeitem]", has_text="faster").locator(".badge.leaf").wait_for()
        page.get_by_role("button", name="Undo").click()
        page.locator("#tree [role=treeitem]", has_text="so").locator(".badge.leaf").wait_for()
        assert page.evaluate("window.pwned") is None

    chromium.look(f"{server.url}/sessions/ann-0", partial(logged_in, look))


def test_of_a_long_session_there_is_what_is_looked_at(chromium: Chromium, server: Server) -> None:
    with server.client("ann") as http:
        ids = [entry["id"] for entry in http.get("/v1/sessions/long/entries?limit=1000").json()["entries"]]

    def look(page: Page) -> None:
        assert len(page.reload().body()) < 400_000, "scripts included"
        page.locator("#tab-0", has_text="Model sees (2,400)").wait_for()
        page.locator("#tiles", has_text="$0.25").wait_for()
        assert page.locator("#panel .gap").first.text_content() == f"Not on this page: {LONG - 501:,} messages of it."
        page.locator(".part-of a", has_text="Earlier").click()
        page.locator("#tree [aria-selected=true]", has_text=f"number {LONG - 501}").wait_for()
        # An address leads to an entry that the page does not have.
        page.goto(f"{server.url}/sessions/long#{ids[700]}")
        page.locator("#tab-0", has_text="Model sees (701)").wait_for()
        assert page.locator("#tree [aria-selected=true]").text_content().find("number 700") > 0
        page.locator("#tab-2").click()
        assert ids[699] in page.locator("#panel").text_content()
        # What a step did is counted from all of them.
        page.locator("#tabs button", has_text="Sent").click()
        page.locator("#panel", has_text="as anthropic takes it").wait_for()
        page.select_option("#panel [name=agent]", "short")
        page.locator("#panel", has_text="for short").wait_for()
        assert page.locator("#panel table tr").last.inner_text().split("\t")[2:5] == ["—", "5,484 (698)", "—"]

    chromium.look(f"{server.url}/sessions/long", partial(logged_in, look))


def test_what_can_be_read_of_a_damaged_session_is_shown_and_the_rest_is_named(
    chromium: Chromium, server: Server
) -> None:
    def look(page: Page) -> None:
        page.locator(".part-of .refused", has_text="2 entries are damaged").wait_for()
        texts = page.locator("#tree [role=treeitem]").all_text_contents()
        assert [sum(f"part {place}" in text for text in texts) for place in range(6)] == [1, 1, 0, 0, 1, 1]
        assert sum("not as it was stored" in text for text in texts) == 2
        page.locator("#told.refused").wait_for()
        assert page.locator("#tab-0").text_content() == "Model sees (…)"

    chromium.look(f"{server.url}/sessions/hurt", partial(logged_in, look))


def test_a_page_is_for_the_session_of_its_token_and_for_its_own_origin(server: Server) -> None:
    with httpx.Client(base_url=server.url) as http:
        for path in ("/", "/sessions/ann-0", "/sessions/nobody"):
            refused = http.get(path)
            assert (refused.status_code, "ann" in refused.text, "<form" in refused.text) == (401, False, True)
        assert http.get("/page/sessions").status_code == 401
        wrong = http.post("/login", data={"token": "x" * 16})
        assert (wrong.status_code, wrong.cookies) == (401, httpx.Cookies())
        assert http.post("/login", data={"token": TOKENS["ann"]}, headers={"Origin": "null"}).status_code == 403
        assert http.post("/login", data={"token": TOKENS["ann"]}).status_code == 303
        page = http.get("/sessions/ann-0")
        assert page.headers["content-security-policy"] == "frame-ancestors 'none'"
        assert "connect-src 'self'; form-action 'self'" in page.text
        assert "unsafe" not in page.text.split('Content-Security-Policy" content="')[1].split('">')[0]
        assert "bob" not in http.get("/page/sessions").text
        assert http.get("/page/sessions/long/context").json()["count"] == LONG
        gone = [http.get(f"/sessions/{name}") for name in ("bob-0", "nobody")]
        kinds = {(answer.status_code, answer.headers["content-type"]) for answer in gone}
        assert kinds == {(404, "text/html; charset=utf-8")}
        assert gone[0].text.replace("bob-0", "nobody") == gone[1].text
        for path in (f"/page/sessions/bob-0{part}" for part in ("", "/figures", "/context")):
            missing = http.get(path)
            assert (missing.status_code, missing.json()["code"]) == (404, "SessionNotFound")
        # The cookie alone writes nothing: a page says where it comes from.
        undo = "/v1/sessions/ann-0/undo"
        for origin, status in ((None, 401), ("http://localhost:1", 403), (server.url, 200)):
            headers = {} if origin is None else {"Origin": origin}
            assert http.post(undo, json={}, headers=headers).status_code == status
        assert http.post(undo.replace("undo", "redo"), json={}, headers={"Origin": server.url}).status_code == 200
        # What a page begins to follow at is an event of its session, whatever that is called.
        with server.client("ann") as api:
            rows = api.get("/page/sessions").json()["sessions"]
            for segment in [row["href"].rpartition("/")[2] for row in rows if row["id"] in ("%41", ODD)]:
                assert api.post(f"/v1/sessions/{segment}/messages", json={"messages": [ask("odd")]}).is_success
                after = http.get(f"/page/sessions/{segment}").json()["after"]
                with http.stream("GET", f"/v1/sessions/{segment}/events", params={"after": after}) as events:
                    assert (events.status_code, next(events.iter_text())) == (200, ": connected\n\n")
            assert api.get("/v1/sessions/~_").json()["code"] == "InvalidArgument"
        http.post("/login", data={}, headers={"Origin": server.url})
        assert http.get("/").status_code == 401
