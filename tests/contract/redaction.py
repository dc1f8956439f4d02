"""The contract: redactions."""

from __future__ import annotations

import pytest

from flue_py.core.context import copy_of
from flue_py.core.entries import NewEntry
from flue_py.core.erasure import REDACTED
from flue_py.core.json import JsonObject, JsonValue
from flue_py.core.operations import AppendEntries, Navigate, Operation
from flue_py.core.sessions import NewSession, Note, Seen
from flue_py.db.backend import Backend
from flue_py.errors import EntryNotFound, InvalidArgument, RevisionConflict
from tests.checks import raises
from tests.samples import (
    UNKNOWN,
    add,
    compaction,
    context_of,
    new_session,
    path_of,
    pictured,
    session_info,
    tree_ids,
    user,
)

SECRET = "the code of the vault is 4711"
NOTE = Note("a person", "by request")
LINE = "[redacted by a person: by request]"


def answer(*call_ids: str) -> NewEntry:
    """Return an answer with the secret in all its parts, and usage."""
    calls: list[JsonValue] = [
        {"type": "toolCall", "id": each, "name": "read", "arguments": {"path": SECRET}, "thoughtSignature": SECRET}
        for each in call_ids
    ]
    parts: list[JsonValue] = [{"type": "thinking", "thinking": SECRET}, {"type": "text", "text": SECRET}, *calls]
    usage: JsonObject = {"input": 7, "output": 2, "cost": {"total": 0.5}}
    return NewEntry.message({"role": "assistant", "content": parts, "usage": usage, "errorMessage": SECRET})


def result(call_id: str) -> NewEntry:
    content: JsonValue = [{"type": "text", "text": SECRET}]
    message: JsonObject = {"role": "toolResult", "toolCallId": call_id, "toolName": "read", "content": content}
    return NewEntry.message({**message, "details": {"path": SECRET}})


class RedactionContract:
    """What `Backend.redact` says."""

    async def test_a_payload_gives_way_to_a_tombstone_and_the_context_stays_whole(self, backend: Backend) -> None:
        info = await new_session(backend, user(SECRET), answer("a", "b"), result("a"), result("b"), user("go on"))
        ids = await tree_ids(backend, info.id)
        done = await backend.redact(info.id, ids[:4], note=NOTE)
        assert (done.entry_ids, done.already, done.seen_by) == (tuple(ids[:4]), (), (info.id,))
        assert done.revision == (await session_info(backend, info.id)).revision
        assert done.look is not None
        assert (done.look.is_clean, done.look.run_bytes, done.look.stays) == (True, 16, ())
        assert SECRET not in str(await path_of(backend, info.id))
        messages = [message for _, message in await context_of(backend, info.id)]
        mark = messages[0].pop(REDACTED)
        assert isinstance(mark, dict)
        assert (mark["by"], mark["why"]) == ("a person", "by request")
        assert messages[0] == {"role": "user", "content": LINE}
        calls = [{"type": "toolCall", "id": each, "name": "read", "arguments": {}} for each in "ab"]
        assert messages[1]["content"] == [{"type": "text", "text": LINE}, *calls]
        assert [message.get("toolCallId") for message in messages] == [None, None, "a", "b", None]
        assert messages[2]["content"] == [{"type": "text", "text": LINE}]
        usage = await backend.read_usage(info.id, None)
        assert (usage.usage.input, usage.usage.output) == (7, 2)

    async def test_what_was_made_of_it_goes_along(self, backend: Backend) -> None:
        info = await new_session(backend, user(SECRET), user("go on"))
        await backend.update_session(info.id, auto_title="Code of the vault")
        assert (await session_info(backend, info.id)).first_message == SECRET
        first, second = await tree_ids(backend, info.id)
        steps: list[Operation] = [AppendEntries(info.id, [user("more")]), Navigate(info.id, first)]
        await backend.atomic(steps, idempotency_key="k")
        await backend.redact(info.id, [first], note=NOTE)
        now = await session_info(backend, info.id)
        assert (now.first_message, now.auto_title) == (LINE, None)
        outcome = (await backend.atomic(steps, idempotency_key="k")).outcomes[1]
        assert getattr(outcome, "draft", None) == LINE
        log = await backend.read_log(info.id, before=None, limit=100)
        assert "vault" not in str(log)
        assert (log[0].what, log[0].by, log[0].why) == ("redacted", "a person", "by request")
        assert [entry.id for entry in await path_of(backend, info.id, second)] == [first, second]

    async def test_a_title_and_a_preview_of_others_stay(self, backend: Backend) -> None:
        info = await new_session(backend, user("hello"), user(SECRET))
        await backend.update_session(info.id, title="Code of the vault", auto_title="Greetings")
        await backend.redact(info.id, [(await tree_ids(backend, info.id))[1]], note=NOTE)
        now = await session_info(backend, info.id)
        assert (now.first_message, now.title, now.auto_title) == ("hello", "Code of the vault", "Greetings")

    async def test_attachments_go_unless_another_entry_has_them(self, backend: Backend) -> None:
        shared, own = bytes(range(256)) * 40, bytes(reversed(range(256))) * 40
        info = await new_session(backend, pictured(shared, own), pictured(shared))
        first, second = await tree_ids(backend, info.id)
        before = (await path_of(backend, info.id))[1].payload
        await backend.redact(info.id, [first], note=NOTE)
        assert (await path_of(backend, info.id))[1].payload == before
        await backend.redact(info.id, [second], note=NOTE)
        assert [message["content"] for _, message in await context_of(backend, info.id)] == [LINE, LINE]

    async def test_forks_and_copies_are_named_and_forks_go_on(self, backend: Backend) -> None:
        info = await new_session(backend, user(SECRET), user("go on"))
        first, second = await tree_ids(backend, info.id)
        fork = await backend.fork(info.id, second, NewSession())
        late = await backend.fork(info.id, None, NewSession())
        (entry,) = (await path_of(backend, info.id))[:1]
        (copied,) = await add(backend, late.id, copy_of(entry, info.id))
        other = await new_session(backend, user(SECRET))
        (same,) = await tree_ids(backend, other.id)
        done = await backend.redact(fork.id, [first], note=NOTE)
        assert done.seen_by == (fork.id, info.id)
        assert set(done.copies) == {(late.id, copied), (other.id, same)}
        assert [message["content"] for _, message in await context_of(backend, info.id)] == [LINE, "go on"]
        # Who added it has it in the log, too, and another one has not.
        revisions = [(await session_info(backend, each)).revision for each in (info.id, late.id)]
        assert revisions == [info.revision + 1, late.revision + 1]

    async def test_summaries_made_over_it_are_named_and_go_if_they_are_named(self, backend: Backend) -> None:
        info = await new_session(backend, user(SECRET), user("two"), user("three"))
        first, _, third = await tree_ids(backend, info.id)
        (over,) = await add(backend, info.id, compaction(third, f"They said that {SECRET}"))
        (kept,) = await add(backend, info.id, compaction(third, "and so on"))
        assert (await backend.redact(info.id, [third], note=NOTE, dry_run=True)).may_quote == ()
        done = await backend.redact(info.id, [first], note=NOTE)
        assert done.may_quote == (over, kept)
        assert (await backend.redact(info.id, [over], note=NOTE)).entry_ids == (over,)
        assert (await backend.redact(info.id, [kept], note=NOTE)).may_quote == ()
        context = await context_of(backend, info.id)
        assert LINE in str(context[0])
        assert SECRET not in str(await path_of(backend, info.id))
        assert [entry_id for entry_id, _ in context] == [kept, third]

    async def test_a_branch_that_was_left_is_named_by_its_summary(self, backend: Backend) -> None:
        info = await new_session(backend, user("one"), user(SECRET))
        first, second = await tree_ids(backend, info.id)
        summary = NewEntry.branch_summary(f"They said that {SECRET}", from_id=second, abandoned_leaf_id=second)
        moved = await backend.navigate(info.id, first, summary=summary)
        planned = await backend.redact(info.id, [first], note=NOTE, dry_run=True)
        assert planned.may_quote == ()
        assert (await backend.redact(info.id, [second], note=NOTE)).may_quote == (moved.summary_id,)

    async def test_a_second_redaction_and_a_dry_run_change_nothing(self, backend: Backend) -> None:
        info = await new_session(backend, user(SECRET), user("go on"))
        first = (await tree_ids(backend, info.id))[0]
        planned = await backend.redact(info.id, [first], note=NOTE, dry_run=True)
        assert (planned.entry_ids, planned.revision) == ((first,), info.revision)
        assert (await path_of(backend, info.id))[0].fields["content"] == SECRET
        await backend.redact(info.id, [first], note=NOTE)
        before = await path_of(backend, info.id)
        done = await backend.redact(info.id, [first], note=Note(None, "again"))
        assert (done.entry_ids, done.already) == ((), (first,))
        assert await path_of(backend, info.id) == before

    async def test_what_only_looks_like_a_tombstone_is_redacted(self, backend: Backend) -> None:
        mark: JsonObject = {"by": "a person", "why": "by request", "at": "2026-01-01T00:00:00+00:00", "seal": "0" * 16}
        info = await new_session(backend, user(SECRET, redacted=mark))
        (first,) = await tree_ids(backend, info.id)
        assert (await backend.redact(info.id, [first], note=NOTE)).entry_ids == (first,)

    async def test_entries_that_are_not_seen_are_refused_by_name(self, backend: Backend) -> None:
        info = await new_session(backend, user(SECRET))
        other = await new_session(backend, user("other"))
        (mine,), (theirs,) = [await tree_ids(backend, each.id) for each in (info, other)]
        for entry_id in (UNKNOWN, theirs, "\0"):
            with pytest.raises(EntryNotFound, match="it may belong to another session"):
                await backend.redact(info.id, [mine, entry_id], note=NOTE)
        await raises(RevisionConflict, backend.redact(info.id, [mine], expected=Seen(revision=9), note=NOTE))
        assert (await path_of(backend, info.id))[0].fields["content"] == SECRET

    async def test_a_retracted_entry_can_be_redacted_and_comes_back_as_a_tombstone(self, backend: Backend) -> None:
        info = await new_session(backend, user("hello"), user(SECRET))
        first, second = await tree_ids(backend, info.id)
        await backend.retract(info.id, second)
        await backend.redact(info.id, [second], note=NOTE)
        await backend.undo(info.id)
        assert [entry.id for entry in await path_of(backend, info.id)] == [first, second]
        assert SECRET not in str(await path_of(backend, info.id))

    async def test_it_cannot_be_taken_back(self, backend: Backend) -> None:
        info = await new_session(backend, user("hello"), user(SECRET))
        done = await backend.redact(info.id, (await tree_ids(backend, info.id))[1:], note=NOTE)
        with pytest.raises(InvalidArgument, match=f"revision {done.revision} .* is a redaction"):
            await backend.go_back(info.id, done.revision, before=True)
        # The append is what is undone, and done again.
        await backend.undo(info.id)
        await backend.redo(info.id)
        assert SECRET not in str(await path_of(backend, info.id))

    async def test_every_kind_of_entry_gives_way(self, backend: Backend) -> None:
        entries = [
            NewEntry.custom("note", {"text": SECRET}),
            NewEntry.custom("words", SECRET),
            NewEntry.custom("custom_message", {"customType": "hint", "content": SECRET, "details": SECRET}),
            NewEntry.custom("tool_artifact", {"content": SECRET}),
            NewEntry.custom("session_info", {"name": SECRET}),
            NewEntry.message({"role": "bashExecution", "command": SECRET, "output": SECRET}),
            NewEntry.message({"role": "user", "content": "hi"}, extra={"toolUseResult": SECRET, "line": 3}),
        ]
        info = await new_session(backend, *entries)
        ids = await tree_ids(backend, info.id)
        excluded = await add(backend, info.id, NewEntry.exclusion(ids[2], why=SECRET))
        await backend.redact(info.id, [*ids, *excluded], note=NOTE)
        path = await path_of(backend, info.id)
        assert SECRET not in str(path)
        assert [entry.kind for entry in path[:2]] == ["note", "words"]
        assert len(await context_of(backend, info.id)) == 2
