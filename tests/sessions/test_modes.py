"""Each mode of compaction through a session, on every database."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from flue_py import (
    InvalidArgument,
    ModelAborted,
    ModelError,
    ModelUnavailable,
    RateLimited,
    Session,
    Store,
    SummaryFailed,
)
from flue_py.compaction import CompactionSettings
from flue_py.compaction.blocks import Around
from flue_py.compaction.material import Material
from flue_py.compaction.modes import Asker, Hybrid, Intent, Lossless, Made, Mode, Window
from flue_py.compaction.settings import OnFailure
from flue_py.core.entries import Pairing
from flue_py.core.json import JsonObject
from flue_py.core.model import FunctionModel, ModelRequest
from tests.checks import raises
from tests.sessions.talk import user
from tests.tables import inputs

SETTINGS = CompactionSettings(keep_recent_tokens=200)


async def work(session: Session, rounds: int, start: int = 0) -> None:
    for number in range(start, start + rounds):
        await session.append_message(user(f"wish {number}"))
        called: JsonObject = {
            "type": "toolCall",
            "id": f"c{number}",
            "name": "read",
            "arguments": {"path": f"f{number}"},
        }
        await session.append_message({"role": "assistant", "content": [called]})
        await session.append_message(
            {"role": "toolResult", "toolCallId": f"c{number}", "toolName": "read", "content": "line " * 200}
        )
        await session.append_message({"role": "assistant", "content": "read it"})


@inputs(
    ("mode", "words"),
    [
        ("intent", ['✓ read → "f0" (turn 1, assistant)', "[INTENT-DERIVED RECONSTRUCTION — covers turns 1–"]),
        (Lossless(state="building"), ["STATE MACHINE POSITION:\n  building", "RECENT EVIDENCE (newest first):"]),
        (Hybrid(), ["[CONTEXT RECONSTRUCTION", "\n\n---\n\nmodel says"]),
        ("llm", ["model says"]),
    ],
    ids=["intent", "lossless", "hybrid", "llm"],
)
async def test_a_session_is_compacted_again_and_again(
    session: Session, store: Store, mode: str | Mode, words: list[str]
) -> None:
    model = FunctionModel(lambda _: "model says", "small", provider="house", context_window=200_000)
    await work(session, 10)
    before = await session.build_context()
    done = await session.compact(model, mode=mode, settings=SETTINGS)
    assert done.appended is not None
    assert done.tokens_freed is not None
    assert done.tokens_freed > 0
    for word in words:
        assert word in (done.summary or "")
    await session.undo()
    assert await session.build_context() == before
    for number in range(3):
        await work(session, 6, start=20 + 6 * number)
        done = await session.compact(model, mode=mode, settings=SETTINGS)
        assert done.appended is not None
        assert (done.summary or "").count("[WHAT THE USER SAID") == 1
        for said in ("wish 0\n", "wish 9\n", "wish 20\n"):
            assert said in str(done.summary)
    assert (await store.verify()).problems == []


async def test_a_call_that_runs_is_never_summarised_away(session: Session) -> None:
    await work(session, 10)
    running: JsonObject = {"type": "toolCall", "id": "live", "name": "bash", "arguments": {"command": "make"}}
    caller = await session.append_message({"role": "assistant", "content": [running]})
    done = await session.compact(mode="intent", settings=CompactionSettings(keep_recent_tokens=0))
    assert done.planned is not None
    assert caller.entry_id in [item.entry_id for item in done.planned.staying]
    await session.append_message(user("go on without it"))
    await work(session, 5, start=10)
    done = await session.compact(mode="intent", settings=SETTINGS)
    assert '⧖ bash → "make" (turn ' in str(done.summary)
    assert f"[entry {caller.entry_id}, call live]" in str(done.summary)


async def test_a_session_finds_its_running_tasks_by_itself(session: Session) -> None:
    await work(session, 4)
    await session.tasks.create(task_id="index-docs")
    done_task = await session.tasks.create(task_id="read-log")
    await done_task.tasks.end("done")
    around = Around(tasks=["job 7: of the caller"], approvals=["ap-1: may it push?"])
    await work(session, 10, start=4)
    done = await session.compact(mode=Intent(around), settings=SETTINGS)
    assert "- task index-docs: session " in str(done.summary)
    assert "- task job 7: of the caller" in str(done.summary)
    assert "- approval ap-1: may it push?" in str(done.summary)
    assert "read-log" not in str(done.summary)


async def test_a_call_that_a_running_task_is_to_answer_is_kept_until_the_task_has_ended(session: Session) -> None:
    await work(session, 3)
    called: JsonObject = {"type": "toolCall", "id": "t1", "name": "task", "arguments": {"prompt": "look"}}
    caller = (await session.append_message({"role": "assistant", "content": [called]})).entry_id
    task = await session.tasks.create(task_id="look-it-up")
    await work(session, 10, start=3)
    done = await session.compact(mode="intent", settings=SETTINGS)
    assert done.planned is not None
    assert done.planned.first_kept_entry_id == caller
    assert (await session.compact(mode="intent", settings=SETTINGS)).reason == "no_cut_point"
    await task.tasks.end("failed", summary="it died")
    done = await session.compact(mode="intent", settings=SETTINGS)
    assert done.appended is not None
    assert f"[entry {caller}, call t1]" in str(done.summary)


@pytest.mark.parametrize("said", ["p1: make all", "p1", "p1 make all"])
@pytest.mark.parametrize("by", [Intent, Window])
async def test_a_call_that_waits_for_an_approval_is_kept_until_nobody_names_it(
    session: Session, by: type[Intent] | type[Window], said: str
) -> None:
    waiting: list[str] = [said, "p10: another", "job 7"]
    mode = by(Around(approvals=lambda: waiting))
    await work(session, 3)
    made = {"type": "toolCall", "name": "bash", "arguments": {"command": "make"}}
    parts = [{**made, "id": each} for each in ("p0", "p1")]
    caller = (await session.append_message({"role": "assistant", "content": [*parts]})).entry_id
    await session.append_message({"role": "toolResult", "toolCallId": "p0", "toolName": "bash", "content": "made"})
    await work(session, 10, start=3)
    done = await session.compact(mode=mode, settings=SETTINGS)
    assert done.planned is not None
    if by is Window:
        # What is kept begins with a user, and nothing is said.
        stays = [item.entry_id for item in done.planned.staying]
        assert (caller in stays, done.planned.staying[0].data["role"], done.summary) == (True, "user", "")
    else:
        assert done.planned.first_kept_entry_id == caller
        assert f"- approval {said}" in str(done.summary)
    await session.append_message({"role": "toolResult", "toolCallId": "p1", "toolName": "bash", "content": "made"})
    pairing = Pairing(await session.build_context())
    assert (pairing.unpaired, all(pairing.results.values())) == (set(), True)
    await session.undo()
    waiting.remove(said)
    assert (await session.compact(mode=mode, settings=SETTINGS)).appended is not None


async def test_a_hang_an_abort_and_a_rate_limit_are_failures_that_leave_nothing(session: Session) -> None:
    await work(session, 10)
    before = await session.refresh()
    for error, reason in (
        (ModelUnavailable("no whole answer within 3 seconds"), "no whole answer"),
        (ModelAborted("it was ended"), "it was ended"),
        (RateLimited("not now", retry_after=900.0), "not now"),
    ):

        def fail(request: ModelRequest, error: ModelError = error) -> str:
            assert request.timeout == 3.0
            raise error

        settings = replace(SETTINGS, summary_timeout=3.0)
        with pytest.raises(SummaryFailed, match=reason) as failed:
            await session.compact(FunctionModel(fail, "small"), settings=settings)
        assert failed.value.__cause__ is error
        assert failed.value.retry_after == (900.0 if isinstance(error, RateLimited) else None)
        assert await session.refresh() == before


@inputs("mode", ["llm", "hybrid"])
@inputs("on_failure", ["raise", "fallback", "mark"])
async def test_a_call_that_was_ended_compacts_nothing_whatever_failures_lead_to(
    session: Session, mode: str, on_failure: OnFailure
) -> None:
    def end(request: ModelRequest) -> str:
        raise ModelAborted("it was ended")

    await work(session, 10)
    before = await session.refresh()
    settings = replace(SETTINGS, on_failure=on_failure)
    with pytest.raises(SummaryFailed, match="it was ended"):
        await session.compact(FunctionModel(end, "small"), mode=mode, settings=settings)
    assert await session.refresh() == before


async def test_a_mode_of_somebody_elses_that_lets_an_error_through_has_failed(session: Session) -> None:
    class Careless:
        name = "careless"
        needs_model = True

        async def make(self, material: Material, asker: Asker | None) -> Made:
            assert asker is not None
            await asker.ask(ModelRequest(({"role": "user", "content": "sum it up"},)))
            raise AssertionError

    def fail(request: ModelRequest) -> str:
        raise ModelUnavailable("away")

    await work(session, 10)
    model = FunctionModel(fail, "small")
    with pytest.raises(SummaryFailed, match="the careless summary failed: away"):
        await session.compact(model, mode=Careless(), settings=SETTINGS)
    done = await session.compact(model, mode=Careless(), settings=replace(SETTINGS, on_failure="fallback"))
    assert (done.mode, done.appended is not None) == ("intent", True)


async def test_what_cannot_work_is_found_before_anything_is_done(session: Session) -> None:
    settings = CompactionSettings(mode="lmm")
    with pytest.raises(InvalidArgument, match=r"^settings\.mode: there is no 'lmm'; choose one of llm, "):
        await session.compact(settings=settings)
    with pytest.raises(InvalidArgument, match=r"^settings\.mode: there is no 'lmm'"):
        await session.compactions.plan(settings=settings)
    await raises(InvalidArgument, session.compact(), match=r"^model: mode 'llm' asks a model")
    assert (await session.compact(dry_run=True)).reason == "no_cut_point"


async def test_a_mode_that_asks_a_model_needs_none_where_none_is_to_be_asked(session: Session) -> None:
    await work(session, 10)
    done = await session.compact(mode="llm", settings=replace(SETTINGS, prefer_deterministic=True))
    assert (done.mode, done.appended is not None) == ("intent", True)


def test_settings_are_checked_as_a_whole() -> None:
    with pytest.raises(InvalidArgument, match=r"^reserve_tokens: -1 .*; mode: '' is .*; summary_timeout: 0 is no time"):
        CompactionSettings(reserve_tokens=-1, mode="", summary_timeout=0)


@inputs(
    ("field", "value"),
    [
        ("reserve_tokens", 1.5), ("keep_recent_messages", -1), ("keep_recent_messages", 2.0),
        ("keep_recent_messages", True), ("enabled", 1), ("registered_item_tokens", -1), ("registered_tokens", None),
        ("summary_timeout", float("inf")), ("summary_timeout", 10**400), ("user_words_share", 10**400),
        ("summary_timeout", None), ("rate_limit_wait", -1), ("rate_limit_wait", float("nan")), ("user_words_share", 2),
        ("user_words_share", True), ("on_failure", "ignore"), ("max_message_chars", -1), ("prefer_deterministic", 1),
        ("include_reasoning", "yes"), ("include_symbols", None),
    ],
)  # fmt: skip
def test_settings_name_the_field_that_is_wrong(field: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match=f"^{field}: "):
        CompactionSettings(**{field: value})  # type: ignore[arg-type]
