"""The commands that read: what they print for people, and exactly what they print for programs."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from flue_py.cli import command as running
from flue_py.cli import read
from flue_py.core.sessions import derived_id
from flue_py.render.lines import MOST_TURNS
from tests.edges.cli_runs import REAL_ID, Flue
from tests.formats.pi_files import SESSION_ID, as_lines, every_type, real_facts, role_and_digest, sequence_digest

FACTS = real_facts()
ESCAPE = re.compile(r"\x1b\[([0-9;]*)m")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Flue:
    flue = Flue(tmp_path_factory.mktemp("real"))
    assert flue.import_real() == REAL_ID
    return flue


def test_context_as_json_is_pis_context_at_every_sampled_leaf(real: Flue) -> None:
    for sample in FACTS["sampledLeaves"][::4]:
        leaf = derived_id(REAL_ID, int(sample["leafId"][1:]) + 1)
        messages = real.json("context", REAL_ID, "--leaf", leaf)
        assert len(messages) == sample["messageCount"]
        assert sequence_digest(messages) == sample["sequenceSha256"]
    messages = real.json("context", REAL_ID[:6])
    assert [list(role_and_digest(message)) for message in messages] == FACTS["lastLeaf"]["messages"]


def test_usage_as_json_is_exact(real: Flue) -> None:
    usage, expected = real.json("usage", REAL_ID), FACTS["usageTotals"]
    kinds = {name: expected[name] for name in ("input", "output", "cacheRead", "cacheWrite")}
    assert {name: usage[name] for name in kinds} == kinds
    # The file has no totals: they are the sum of what it has.
    assert (expected["totalTokens"], usage["totalTokens"]) == (0, sum(kinds.values()))
    assert usage["cost"]["total"] == "30.3301977"
    assert abs(Decimal(usage["cost"]["total"]) - Decimal(expected["costTotal"])) < Decimal("1e-9")
    assert usage["onPath"] is True


def test_usage_since_an_entry_counts_only_what_follows(real: Flue) -> None:
    last, before = derived_id(REAL_ID, 1019), derived_id(REAL_ID, 1018)
    assert real.json("usage", REAL_ID, "--since", last)["output"] == 0
    assert real.json("usage", REAL_ID, "--since", before)["output"] == 53
    assert real.json("usage", REAL_ID, "--since", last, "--leaf", before)["onPath"] is False


def test_the_real_session_is_readable_within_eighty_columns(real: Flue) -> None:
    for command in (["tree"], ["tree", "--all"], ["show", "--path"], ["context"], ["show", "--path", "--last", "5"]):
        lines = real.lines(*command, "d703")
        assert max(map(len, lines)) <= 80, command
    assert real.lines("context", "d703")[0] == "914 messages, size about 170,276 tokens"
    assert real.lines("context", "d703", "--count")[0] == "914 messages, size 141,152 tokens"
    tree = real.lines("tree", "d703")
    assert tree[0] == "read packages/coding-a…, 1,018 entries, 1 branch, 47,609,906 tokens used, $30.33"
    assert [line.split()[:3] for line in tree[2:4]] == [["70b769", "●", "501"], ["3da8db", "●", "38"]]
    assert [len(tree), tree[-1].split()[:3]] == [2 + MOST_TURNS + 2, ["e15c32", "●", "assistant"]]
    assert "← leaf Σ 30.33" in tree[-1]
    assert len(real.lines("tree", "d703", "--all")) == 1_020
    assert [
        len(real.lines("show", "d703", "--path", "--last", "5")),
        len(real.json("show", "d703", "--path", "--last", "5")),
    ] == [6, 5]


def test_sessions_as_json_is_a_list_of_objects_with_ids(flue: Flue) -> None:
    first = flue.import_every_type()
    other = flue.json("fork", first, "--key", "other", "--title", "Another")["id"]
    listed = flue.json("sessions")
    assert {session["id"] for session in listed} == {first, other}
    assert [session["id"] for session in flue.json("sessions", "--kind", "fork")] == [other]
    assert len(flue.json("sessions", "--limit", "1")) == 1
    assert flue.json("sessions", "--scope", "nobody") == []
    lines = flue.lines("sessions")
    assert lines[0].split() == ["session", "active", "msgs", "$", "project", "model", "title"]
    assert any(line.endswith("INI parser session") for line in lines)


def test_tree_shows_both_branches_the_leaf_and_the_labels(flue: Flue) -> None:
    session = flue.import_every_type()
    text = "\n".join(flue.lines("tree", session))
    assert "├─○" in text
    assert "[first-version]" in text
    assert "← leaf" in text
    tree = flue.json("tree", session)
    rows = every_type()[1:]
    assert tree["leafId"] == "f0000001"
    assert [(row["id"], row["parentId"]) for row in tree["entries"]] == [(row["id"], row["parentId"]) for row in rows]
    assert {row["id"]: row["label"] for row in tree["entries"] if "label" in row} == {"a0000001": "first-version"}
    assert all(row["size"] for row in tree["entries"] if row["kind"] == "message")
    assert all(row["size"] is None for row in flue.json("tree", session, "--no-sizes")["entries"])


def test_sizes_are_estimates_and_marked_so_until_tokens_are_counted(flue: Flue) -> None:
    session = flue.import_every_type()
    estimated, counted = (flue.json("tree", session, *count) for count in ([], ["--count"]))
    assert (estimated["sizesCounted"], counted["sizesCounted"]) == (False, True)
    sizes = [{row["id"]: row["size"] for row in found["entries"]} for found in (estimated, counted)]
    assert sizes[0].keys() == sizes[1].keys()
    assert sizes[0] != sizes[1]
    for command in (["tree", "--all"], ["show", "--path"], ["context"]):
        shown = [" ".join(flue.lines(*command, session, *count)) for count in ([], ["--count"])]
        assert [re.search(r" ~\d", text) is None for text in shown] == [False, True]
    assert "contradict" in flue.run("tree", session, "--count", "--no-sizes", code=2).stderr


def test_path_as_json_has_whole_entries_root_to_leaf(flue: Flue) -> None:
    session = flue.import_every_type()
    path = flue.json("show", session, "--path", "--leaf", "h000")
    assert [entry["id"] for entry in path][:3] == ["m0000001", "t0000001", "u0000001"]
    assert path[-1]["payload"]["customType"] == "hook"
    assert [entry["depth"] for entry in path] == list(range(len(path)))


def test_show_tells_of_the_session_its_settings_and_single_entries(flue: Flue) -> None:
    session = flue.import_every_type()
    lines = flue.lines("show", session[:5])
    assert any(line.split() == ["set", "to", "openai/gpt-5.1-codex"] for line in lines)
    assert any("INI parser session" in line for line in lines)
    shown = flue.json("show", session)
    assert shown["settings"] == {"thinkingLevel": "high", "provider": "openai", "model": "gpt-5.1-codex"}
    assert shown["tasks"] == []
    assert "thinking high" in [" ".join(line.split()) for line in lines]
    silent = flue.json("show", flue.json("fork", session, "--at", "m0000001")["id"])
    assert silent["settings"]["thinkingLevel"] is None
    assert "Add a parser" in flue.lines("show", session, "u0000001")
    entry = flue.json("show", session, "a000")
    assert entry["payload"]["usage"]["totalTokens"] == 120
    assert entry["label"] == "first-version"


def test_show_around_an_entry_follows_its_branch(flue: Flue) -> None:
    session = flue.json("new", "--title", "around")["id"]
    ids = [
        flue.json("append", session, "--role", "user", text)["leafId"] for text in ("one", "two", "three", "y" * 5000)
    ]
    flue.run("move", session, ids[0])
    other = flue.json("append", session, "--role", "user", "another way")["leafId"]

    def around(entry: str, count: str) -> list[str]:
        return [row["id"] for row in flue.json("show", session, entry, "--around", count)]

    assert around(ids[1], "1") == ids[:3], "off the active path, its own branch"
    assert around(ids[0], "9") == [ids[0], other], "on the active path, that"
    shown = flue.run("show", session, ids[2], "--around", "1").stdout
    assert [line[:2] + line.split()[1] for line in shown.splitlines() if line[:2] in ("- ", "> ")] == [
        f"- {ids[1]}",
        f"> {ids[2]}",
        f"- {ids[3]}",
    ]
    assert "y" * 2000 + "\n(the entry goes on: show SESSION ENTRY)\n" in shown
    assert "name it" in flue.run("show", session, "--around", "1", code=2).stderr


def test_the_skill_is_printed_and_put_where_a_program_looks(flue: Flue, tmp_path: Path) -> None:
    printed = flue.run("skill").stdout
    assert re.match(r"---\nname: past-sessions\ndescription: .{20,1000}\n---\n", printed)
    for line in re.findall(r"`flue-py ([^`]+)`", printed):
        command, *words = line.split()
        options = {word for word in words if word.startswith("--")}
        missing = {option for option in options if option not in flue.run(command, "--help").stdout}
        assert not missing, line
    for program, folder in {"claude-code": ".claude", "codex": ".codex", "pi": ".pi/agent"}.items():
        file = tmp_path / "home" / folder / "skills" / "past-sessions" / "SKILL.md"
        assert "written" in flue.run("skill", program, "--home", str(tmp_path / "home")).stdout
        assert (file.read_text(), file.stat().st_mode & 0o777) == (printed, 0o600)
        assert "already" in flue.run("skill", program, "--home", str(tmp_path / "home")).stdout
        file.write_text("mine")
        assert "--overwrite" in flue.run("skill", program, "--home", str(tmp_path / "home"), code=1).stderr
        assert file.read_text() == "mine"
        flue.run("skill", program, "--home", str(tmp_path / "home"), "--overwrite")
        assert file.read_text() == printed


def test_ids_and_keys_may_be_shortened_while_they_fit_only_one(flue: Flue) -> None:
    session = flue.import_every_type()
    key = flue.json("fork", session, "--key", "triage-1")["id"]
    flue.run("fork", session, "--key", "triage-12")
    flue.run("fork", session, "--key", "review")
    assert flue.json("show", "rev")["key"] == "review"
    assert flue.json("show", "triage-1")["id"] == key
    empty = flue.json("fork", session, "--key", "")["id"]
    assert flue.json("show", "")["id"] == empty
    assert flue.json("show", session[:4])["id"] == SESSION_ID
    assert flue.json("show", session, "a")["id"] == "a0000001"
    assert "fits several" in flue.run("show", "triage", code=4).stderr
    assert "fits several" in flue.run("show", session, "l", code=4).stderr


def test_a_key_is_found_in_whatever_scope_it_is_and_before_the_beginning_of_another(flue: Flue) -> None:
    file = flue.write(as_lines(every_type()))
    flue.run("import", "pi", str(file), "--scope", "user-7")
    first = flue.json("fork", SESSION_ID, "--key", "triage")["id"]
    flue.run("fork", SESSION_ID, "--key", "triage-2")
    assert flue.json("show", "triage")["id"] == first
    assert flue.json("show", "triage-")["key"] == "triage-2"
    assert "fits several" in flue.run("show", "tri", code=4).stderr


def test_an_ambiguous_or_missing_entry_is_one_line_of_error(flue: Flue) -> None:
    session = flue.import_every_type()
    for arguments in (["context", session, "--leaf", "l0"], ["context", session, "--leaf", "zzz"], ["tree", "zzz"]):
        result = flue.run(*arguments, code=4)
        assert result.stdout == ""
        assert len(result.stderr.splitlines()) == 1
        assert result.stderr.startswith("Error: ")


def test_reading_makes_no_database(flue: Flue) -> None:
    for command in ("sessions", "info", "verify"):
        assert "there is no database" in flue.run(command, code=1).stderr
    for command in ("tree", "context", "usage", "show", "undo", "rm"):
        flue.run(command, "x", code=1)
    assert list(flue.folder.iterdir()) == []


def test_a_file_that_is_no_database_is_refused_and_left_alone(flue: Flue) -> None:
    flue.database.write_text("hello")
    assert "not a SQLite database" in flue.run("sessions", code=1).stderr
    assert flue.database.read_text() == "hello"


def test_info_and_verify_tell_of_the_database(flue: Flue) -> None:
    flue.import_every_type()
    info = flue.json("info")
    assert (info["sessions"], info["entries"]) == (1, len(every_type()) - 1)
    assert flue.json("verify")["problems"] == []
    assert flue.lines("verify") == ["1 session, 19 entries: 0 problems"]
    assert any(line.startswith("store") for line in flue.lines("info"))


def test_colours_are_for_terminals_and_no_color_is_heeded(flue: Flue) -> None:
    session = flue.import_every_type()
    assert not ESCAPE.search(flue.run("tree", session).stdout)
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm-256color"}

    def colours(**env: str) -> set[str]:
        codes = ";".join(ESCAPE.findall(flue.run("tree", session, env={**terminal, **env}).stdout)).split(";")
        return {code for code in codes if code[:1] in ("3", "9") and len(code) == 2}

    assert colours()
    assert not colours(NO_COLOR="1")


def test_json_is_never_coloured_and_keeps_every_character(flue: Flue) -> None:
    rows: list[Any] = every_type()[:4]
    rows[3]["message"]["content"] = [{"type": "text", "text": "naïve 漢字 \u2028 \x1b[31m"}]
    session = flue.import_rows(rows)
    result = flue.run("context", session, "--json", env={"FORCE_COLOR": "1"})
    assert json.loads(result.stdout)[0]["content"][0]["text"] == "naïve 漢字 \u2028 \x1b[31m"
    assert "漢字" in result.stdout
    assert "\x1b" not in result.stdout
    assert "\x1b" not in flue.run("context", session).stdout


def test_a_leaf_before_the_first_entry_is_said(flue: Flue) -> None:
    session = flue.import_every_type()
    flue.run("move", session, "--before-first")
    assert flue.json("context", session) == []
    assert flue.lines("context", session)[0] == "0 messages, size 0 tokens"
    assert flue.lines("tree", session)[-1] == "the leaf is before the first entry"
    assert flue.lines("show", session, "--path") == []


def test_of_a_very_long_session_a_part_is_shown_and_said_to_be_one(real: Flue, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = real.lines("show", "d703", "--path")
    monkeypatch.setattr(running, "MOST_LINES", 8)
    monkeypatch.setattr(read, "_HEAD", 3)
    shown = real.lines("show", "d703", "--path")
    assert shown[0].startswith(f"{len(whole) - len(shown) + 1:,} earlier entries are not shown; --last N shows more")
    assert [line.split()[1:] for line in shown[1:]] == [line.split()[1:] for line in whole[-len(shown) + 1 :]]
    assert len(shown) <= 9
    last = real.lines("show", "d703", "--path", "--last", "3")
    assert (len(last), last[0]) == (
        4,
        f"{len(whole) - 3:,} earlier entries are not shown; --last N shows more, --json all",
    )
    assert (
        len(real.lines("show", "d703", "--path", "--last", str(len(whole))))
        == len(whole)
        == len(real.json("show", "d703", "--path"))
    )
    summary, *messages = real.lines("context", "d703")
    assert summary.endswith("; the first 3 and the last 5 are shown (--last N shows more, --json all)")
    assert len(messages) == 9
    assert len(real.lines("context", "d703", "--last", "8")) == 10
