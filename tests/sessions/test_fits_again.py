"""Right after a compaction none is due, however many compactions came before it and whatever they have to carry on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import flue_py
from flue_py import Session
from flue_py.context.counters import counter_for
from flue_py.core.jsontext import JsonObject
from flue_py.core.model_seam import FunctionModel
from tests.sessions.talk import user

pytestmark = pytest.mark.anyio

MODES = ["llm", "intent", "lossless", "hybrid", "window"]
WINDOW = 8_000


def call(number: int, name: str, path: str) -> list[JsonObject]:
    part: JsonObject = {"type": "toolCall", "id": f"c{number}", "name": name, "arguments": {"path": path}}
    return [
        {"role": "assistant", "content": [part]},
        {"role": "toolResult", "toolCallId": f"c{number}", "toolName": name, "content": "done " * 30, "isError": False},
    ]


async def grow(session: Session, messages: Sequence[JsonObject]) -> None:
    await session.append_messages([*messages, user("go on " * 900), {"role": "assistant", "content": "done " * 1500}])


@pytest.mark.parametrize("mode", MODES)
async def test_the_lists_of_files_take_no_more_and_no_more_room(mode: str) -> None:
    model = FunctionModel(lambda _: "model says", "small", context_window=WINDOW)
    async with flue_py.open(":memory:") as store:
        session = await store.create_session()
        for cycle in range(12):
            numbers = range(cycle * 40, cycle * 40 + 40)
            calls = [call(each, "edit" if each % 4 else "read", f"src/package_{each}/module.py") for each in numbers]
            await grow(session, [message for each in calls for message in each])
            done = await session.compact(model, mode=mode)
            assert done.appended is not None
        assert done.summary is not None
        newest, oldest = f"src/package_{numbers[-1]}/module.py", "src/package_41/module.py"
        lists = done.summary[done.summary.index("<read-files>") :]
        assert newest in lists
        assert oldest not in lists
        assert counter_for(None).count(user(lists)) <= WINDOW // 16
        for tag in ("read-files", "modified-files"):
            assert "py\n[… " in lists.partition(f"<{tag}>")[2]
            assert f"more, which are stored with this summary]\n</{tag}>" in lists
        # All are handed on: nothing that was said is lost.
        latest = await session.latest_compaction()
        assert latest is not None
        details = latest.fields["details"]
        assert isinstance(details, dict)
        paths = {f"src/package_{each}/module.py" for each in range(numbers[-1] + 1)}
        assert paths <= {*details["readFiles"], *details["modifiedFiles"]}  # type: ignore[misc]
        assert (await session.recall(None, oldest)).hits
        assert (await store.verify()).problems == []
