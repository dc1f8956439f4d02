"""Importing pi files: what is stored, what is reported, and that importing again adds only what is new."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from flue_py.cli import transfer
from flue_py.transfer.source import ImportSource
from tests.edges.cli_runs import REAL_ID, Flue, in_session, with_a_bar_at_once
from tests.formats.pi_files import HEADER, SESSION_ID, as_lines, every_type, real_facts, real_lines


def said(entry_id: str, parent: str | None, text: str = "hello") -> dict[str, Any]:
    row = {"type": "message", "id": entry_id, "parentId": parent, "timestamp": "2026-01-05T10:00:01.000Z"}
    return {**row, "message": {"role": "user", "content": text, "timestamp": 1}}


def import_lines(flue: Flue, lines: list[bytes], *, code: int = 0, options: tuple[str, ...] = ()) -> Any:
    return flue.json("import", "pi", str(flue.write(lines)), *options, code=code)


def test_the_real_file_is_imported_whole_and_importing_it_again_changes_nothing(flue: Flue) -> None:
    facts = real_facts()
    (report,) = import_lines(flue, real_lines())
    assert (report["sessionId"], report["created"]) == (REAL_ID, True)
    assert (report["rows"], report["added"], report["alreadyThere"]) == (1019, 1018, 0)
    assert (report["skipped"], report["repaired"], report["unknownKinds"]) == ([], [], {})
    assert len(flue.json("show", REAL_ID, "--path")) == facts["maxDepth"]
    before = flue.json("sessions")
    (again,) = import_lines(flue, real_lines())
    assert (again["created"], again["changed"], again["added"], again["alreadyThere"]) == (False, False, 0, 1018)
    assert flue.json("sessions") == before
    assert flue.json("info")["entries"] == 1018
    assert flue.json("verify")["problems"] == []
    assert "nothing was changed" in flue.lines("import", "pi", str(flue.folder / "session.jsonl"))[0]


def test_session_takes_id_title_folder_time_labels_and_provenance_from_the_file(flue: Flue) -> None:
    shown = flue.json("show", flue.import_every_type())
    assert (shown["id"], shown["title"], shown["cwd"]) == (SESSION_ID, "INI parser session", "/home/dev/demo")
    assert shown["createdAt"] == "2026-01-05T10:00:00.000000Z"
    assert shown["metadata"]["imported"] == {"format": "pi", "version": 3, "file": "session.jsonl", "header": HEADER}
    assert shown["messageCount"] == 7
    assert shown["spent"] == "0.0006"


def test_context_of_an_imported_branch_is_pis(flue: Flue) -> None:
    session = flue.import_every_type()
    roles = [message["role"] for message in flue.json("context", session, "--leaf", "h0000001")]
    assert roles == ["user", "toolResult", "bashExecution", "bashExecution", "custom"]
    assert "## Goal: a parser" in flue.json("context", session, "--leaf", "h0000001")[0]["content"][0]["text"]
    texts = [message["content"] for message in flue.json("context", session)]
    assert texts[-1] == "Try the standard library instead"


def test_a_grown_file_adds_only_what_is_new(flue: Flue) -> None:
    rows = every_type()
    import_lines(flue, as_lines(rows[:6]))
    (report,) = import_lines(flue, as_lines(rows))
    assert (report["created"], report["added"], report["alreadyThere"]) == (False, 14, 5)
    assert (report["leafId"], report["leafKept"]) == ("f0000001", False)
    shown = flue.json("show", SESSION_ID)
    assert (shown["title"], shown["leafId"]) == ("INI parser session", "f0000001")
    labels = {row["id"]: row.get("label") for row in flue.json("tree", SESSION_ID)["entries"]}
    assert {key: value for key, value in labels.items() if value} == {"a0000001": "first-version"}

    fresh = Flue(flue.folder / "fresh")
    fresh.folder.mkdir()
    fresh.import_every_type()
    assert fresh.json("context", SESSION_ID) == flue.json("context", SESSION_ID)
    assert fresh.json("usage", SESSION_ID) == flue.json("usage", SESSION_ID)
    assert flue.json("verify")["problems"] == []


def test_what_changes_is_imported_while_it_is_watched(flue: Flue, monkeypatch: pytest.MonkeyPatch) -> None:
    call = {"type": "message", "id": "a2", "parentId": "a1", "timestamp": "2026-01-05T10:00:02.000Z"}
    calls = [{"type": "toolCall", "id": "c", "name": "bash", "arguments": {}}]
    folder = flue.folder / "watched"
    (folder / "-w").mkdir(parents=True)
    first, second = folder / "-w" / "first.jsonl", folder / "-w" / "second.jsonl"
    first.write_bytes(b"".join(as_lines([HEADER, said("a1", None)])))
    message = {"role": "assistant", "content": calls, "timestamp": 1}
    claude = {
        "type": "user", "uuid": "u1", "parentUuid": None, "sessionId": "s2", "cwd": "/w",
        "timestamp": "2026-01-05T10:00:00Z",
    }  # fmt: skip
    answer = {
        "type": "assistant", "uuid": "u2", "parentUuid": "u1", "sessionId": "s2", "timestamp": "2026-01-05T10:00:01Z",
    }  # fmt: skip
    tool = {"id": "m", "role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]}
    steps: list[tuple[Path, list[dict[str, Any]]] | None] = [
        (first, [{**call, "message": message}]),
        (second, [{**claude, "message": {"role": "user", "content": "hi"}}, {**answer, "message": tool}]),
        None,
        None,
        (folder / "other.txt", [{"type": "of no program"}]),
    ]

    def rest(_seconds: float) -> None:
        if not steps:
            raise KeyboardInterrupt
        if (step := steps.pop(0)) is not None:
            with step[0].open("ab") as file:
                file.write(b"".join(as_lines(step[1])))

    monkeypatch.setattr(transfer, "sleep", rest)
    done = flue.run("import", "auto", str(folder), "--watch", "--json", code=130)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(Path(row["file"]).name, row["added"], row["heldBackRows"]) for row in told] == [
        ("first.jsonl", 1, 0),
        ("first.jsonl", 1, 0),
        ("second.jsonl", 1, 1),
        ("second.jsonl", 1, 0),
    ], "what is held back comes in when the file rests"
    assert "Interrupted" in done.stderr
    assert len(flue.json("show", "s2", "--path")) == 2


def test_a_grown_version_1_file_continues_its_chain(flue: Flue) -> None:
    import_lines(flue, real_lines()[:100])
    (report,) = import_lines(flue, real_lines())
    assert (report["added"], report["alreadyThere"]) == (919, 99)
    assert len(flue.json("show", REAL_ID, "--path")) == 1018
    assert flue.json("usage", REAL_ID)["cost"]["total"] == "30.3301977"


def test_a_torn_line_that_was_completed_later_is_added_then(flue: Flue) -> None:
    lines = as_lines([HEADER, said("a", None), said("b", "a")])
    (first,) = import_lines(flue, [*lines[:2], lines[2][:30]])
    assert [note["line"] for note in first["skipped"]] == [3]
    (second,) = import_lines(flue, lines)
    assert (second["added"], second["leafId"], second["skipped"]) == (1, "b", [])


def test_a_session_that_moved_on_keeps_its_leaf_when_its_file_grows(flue: Flue) -> None:
    import_lines(flue, as_lines([HEADER, said("a", None)]))
    in_session(flue, lambda session: session.append_message({"role": "user", "content": "from here"}))
    leaf = flue.json("show", SESSION_ID)["leafId"]
    (report,) = import_lines(flue, as_lines([HEADER, said("a", None), said("b", "a")]))
    assert (report["added"], report["leafKept"], report["leafId"]) == (1, True, leaf)
    assert len(flue.json("tree", SESSION_ID)["entries"]) == 3
    again = flue.lines("import", "pi", str(flue.folder / "session.jsonl"))
    assert "nothing was changed" in again[0]


def test_a_leaf_moved_back_by_hand_stays_there(flue: Flue) -> None:
    import_lines(flue, as_lines([HEADER, said("a", None), said("b", "a")]))
    flue.run("move", SESSION_ID, "--before-first")
    (report,) = import_lines(flue, as_lines([HEADER, said("a", None), said("b", "a"), said("c", "b")]))
    assert (report["leafKept"], report["leafId"]) == (True, None)
    assert "its leaf stays" in "\n".join(
        flue.lines("import", "pi", str(flue.write(as_lines([HEADER, said("a", None), said("d", "a")]))))
    )


def test_labels_changed_here_outlive_another_import(flue: Flue) -> None:
    flue.import_every_type()
    flue.run("label", SESSION_ID, "a0000001", "renamed")
    flue.import_every_type()
    assert flue.json("show", SESSION_ID, "a0000001")["label"] == "renamed"


def test_a_retracted_entry_is_not_imported_anew(flue: Flue) -> None:
    lines = as_lines([HEADER, said("a", None), said("b", "a")])
    import_lines(flue, lines)
    in_session(flue, lambda session: session.remove_leaf_message("b"))
    (report,) = import_lines(flue, lines)
    assert report["changed"] is False
    assert flue.json("show", SESSION_ID)["leafId"] == "a"


def test_a_file_rewritten_with_new_ids_is_refused(flue: Flue) -> None:
    import_lines(flue, as_lines([HEADER, said("a", None)]))
    before = flue.json("tree", SESSION_ID)
    result = flue.run("import", "pi", str(flue.write(as_lines([HEADER, said("x", None)]))), code=1)
    assert "no entry in common" in result.stderr
    assert flue.json("tree", SESSION_ID) == before


def test_another_scope_does_not_get_the_same_session(flue: Flue) -> None:
    lines = as_lines([HEADER, said("a", None)])
    import_lines(flue, lines, options=("--scope", "user-7"))
    assert [session["scope"] for session in flue.json("sessions")] == ["user-7"]
    assert "user-7" in flue.run("import", "pi", str(flue.write(lines)), code=1).stderr
    (again,) = import_lines(flue, lines, options=("--scope", "user-7"))
    assert again["changed"] is False


def test_report_names_what_was_skipped_repaired_and_unknown(flue: Flue) -> None:
    lines = as_lines(
        [HEADER, said("a", "gone"), said("b", "c"), said("c", "b"), {**said("d", "a"), "type": "novel"}, said("e", "d")]
    )
    lines.append(b'{"type":"mess')
    (report,) = import_lines(flue, lines)
    assert [note["line"] for note in report["skipped"]] == [3, 4, 7]
    assert [note["line"] for note in report["repaired"]] == [2]
    assert report["unknownKinds"] == {"novel": 1}
    assert report["rows"] == 7
    fresh = Flue(flue.folder / "fresh")
    fresh.folder.mkdir()
    text = "\n".join(fresh.lines("import", "pi", str(fresh.write(lines))))
    for words in ("skipped line 3", "skipped line 7", "repaired line 2", "1 entry 'novel'"):
        assert words in text


def test_lone_surrogates_are_counted(flue: Flue) -> None:
    (report,) = import_lines(flue, as_lines([HEADER, said("a", None, "half \ud83d of it")]))
    assert report["surrogatesReplaced"] == 1
    assert flue.json("context", SESSION_ID)[0]["content"] == "half \ufffd of it"


def test_one_unreadable_file_does_not_keep_the_others_out(flue: Flue) -> None:
    good = flue.write(as_lines([HEADER, said("a", None)]), "good.jsonl")
    bad = flue.write([b"nothing\n"], "bad.jsonl")
    result = flue.run("import", "pi", str(bad), str(good), code=1)
    assert len(result.stderr.splitlines()) == 1
    assert "bad.jsonl" in result.stderr
    assert [session["id"] for session in flue.json("sessions")] == [SESSION_ID]


def test_no_database_is_made_where_nothing_can_be_imported(flue: Flue) -> None:
    flue.run("import", "pi", str(flue.write([b"nothing\n"])), code=1)
    flue.run("import", "pi", str(flue.folder / "missing.jsonl"), code=2)
    assert not flue.database.exists()


def test_an_unknown_format_is_named(flue: Flue) -> None:
    result = flue.run("import", "word", str(flue.write([])), code=2)
    assert (
        "'word' is neither a file or folder that is there, nor a format: auto, pi, noumen, claude-code" in result.stderr
    )


def test_the_database_and_its_folder_are_for_their_owner_alone(flue: Flue) -> None:
    flue.database = flue.folder / "deep" / "folder" / "sessions.db"
    flue.import_every_type()
    assert stat.S_IMODE(flue.database.stat().st_mode) == 0o600
    assert stat.S_IMODE(flue.database.parent.stat().st_mode) == 0o700


def test_a_header_alone_makes_an_empty_session_that_can_grow(flue: Flue) -> None:
    (report,) = import_lines(flue, as_lines([HEADER]))
    assert (report["created"], report["added"], report["leafId"]) == (True, 0, None)
    (report,) = import_lines(flue, as_lines([HEADER, said("a", None)]))
    assert (report["added"], report["leafId"], report["leafKept"]) == (1, "a", False)


def test_two_files_that_share_copied_entries_pay_for_them_once(flue: Flue) -> None:
    rows = every_type()
    flue.import_rows(rows)
    copy = flue.import_rows([{**HEADER, "id": "copy"}, *rows[1:6]], "copy.jsonl")
    spent = {session["id"]: session["spent"] for session in flue.json("sessions")}
    # Nothing was booked on the copy, as on a session of which nobody told anything: that is not called 0.
    assert spent == {SESSION_ID: "0.0006", "copy": None}
    assert flue.json("usage", copy)["cost"]["total"] == "0.0006"


def test_the_file_is_closed_where_the_database_cannot_be_made(flue: Flue, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[ImportSource] = []
    start = ImportSource.start
    monkeypatch.setattr(ImportSource, "start", lambda source: (started.append(source), start(source)))
    (flue.database.parent / "file").write_text("")
    flue.database = flue.database.parent / "file" / "sessions.db"
    flue.run("import", "pi", str(flue.write(as_lines([HEADER]))), code=1)
    (source,) = started
    assert source._file is not None
    assert source._file.closed


def test_an_import_of_several_files_shows_bytes_and_files_and_ends_with_a_total(flue: Flue) -> None:
    files = [flue.write(as_lines([{**HEADER, "id": name}, said(f"{name}1", None)]), f"{name}.jsonl") for name in "abc"]
    bad = flue.write([b"no session\n"], "bad.jsonl")
    out, shown = with_a_bar_at_once("--db", str(flue.database), "import", "auto", *map(str, files))
    assert "importing file 3 of 3: c.jsonl" in shown
    assert out.splitlines()[-1] == "total: 3 of 3 files imported, 3 new sessions, 3 new entries"
    again = flue.run("import", "auto", *map(str, [*files, bad]), code=1)
    assert again.stdout.splitlines()[-1] == (
        "total: 3 of 4 files imported, 0 new sessions, 0 new entries, 1 file not imported"
    )


def test_an_import_that_is_interrupted_says_what_it_has_and_goes_on_from_there(
    flue: Flue, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [flue.write(as_lines([{**HEADER, "id": name}, said(f"{name}1", None)]), f"{name}.jsonl") for name in "abc"]
    batch = ImportSource.batch

    def until_c(source: ImportSource) -> object:
        if source.path.name == "c.jsonl":
            raise KeyboardInterrupt
        return batch(source)

    counts = "2 of 3 files imported, 2 new sessions, 2 new entries"
    with monkeypatch.context() as patch:
        patch.setattr(ImportSource, "batch", until_c)
        stopped = flue.run("import", "auto", *map(str, files), code=130)
    assert [name for name in "abc" if f"{name}.jsonl: imported as" in stopped.stdout] == ["a", "b"]
    assert stopped.stdout.splitlines()[-1] == f"total: {counts}"
    assert (
        stopped.stderr
        == f"Interrupted; what was committed before stays: {counts}. The same import goes on from there\n"
    )
    assert flue.lines("import", "auto", *map(str, files))[-1] == (
        "total: 3 of 3 files imported, 1 new session, 1 new entry"
    )
