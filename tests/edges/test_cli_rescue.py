"""The commands against damage: backup and salvage."""

from __future__ import annotations

from tests.edges.cli_runs import Flue


def flip_a_digest(flue: Flue, session: str) -> str:
    """Damage the last entry of a session's path in the file; return its id."""
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(flue.database)) as connection:
        sql = "SELECT e.id, e.digest FROM entries e JOIN sessions s ON s.leaf = e.id WHERE s.id = ?"
        entry_id, digest = connection.execute(sql, (session,)).fetchone()
    data = bytearray(flue.database.read_bytes())
    data[data.index(digest)] ^= 1
    flue.database.write_bytes(data)
    return str(entry_id)


def test_a_backup_says_what_it_holds(flue: Flue) -> None:
    session = flue.import_every_type()
    target = flue.folder / "backup.db"
    (line,) = flue.lines("backup", str(target))
    size = target.stat().st_size
    assert line.startswith(f"{target}: 1 session, ")
    assert line.endswith(f"{size:,} bytes, verified")
    again = flue.run("backup", str(target), code=1)
    assert again.stderr == f"Error: {target} is there already; name another file, or remove it\n"
    done = flue.json("backup", str(target), "--overwrite", "--no-verify")
    assert done == {
        "path": str(target), "sizeBytes": size, "sessions": 1, "entries": done["entries"], "verified": False,
    }  # fmt: skip
    flue.database = target
    assert [row["id"] for row in flue.json("sessions")] == [session]


def test_a_backup_of_a_damaged_database_is_refused(flue: Flue) -> None:
    entry_id = flip_a_digest(flue, flue.import_every_type())
    result = flue.run("backup", str(flue.folder / "backup.db"), code=1)
    assert f"entry {entry_id}" in result.stderr
    assert not (flue.folder / "backup.db").exists()


def test_an_undamaged_database_is_salvaged_whole(flue: Flue) -> None:
    session = flue.import_every_type()
    new = flue.folder / "new.db"
    (line,) = flue.lines("salvage", str(flue.database), str(new))
    assert line.endswith("0 damaged pages: everything is as it was")
    context = flue.json("context", session)
    flue.database = new
    assert flue.json("context", session) == context


def test_what_is_lost_is_named_and_the_exit_code_says_so(flue: Flue) -> None:
    session = flue.import_every_type()
    entry_id = flip_a_digest(flue, session)
    first, second, *_ = flue.run("salvage", str(flue.database), str(flue.folder / "1.db"), code=3).stdout.splitlines()
    assert first == f"lost entry: session {session}, entry {entry_id}: its payload does not match its digest"
    assert second.startswith(f"changed leaf: session {session}, entry {entry_id}: ")
    report = flue.json("salvage", str(flue.database), str(flue.folder / "2.db"), code=3)
    assert report["complete"] is False
    assert report["lost"] == [
        {"what": "entry", "sessionId": session, "entryId": entry_id, "detail": "its payload does not match its digest"}
    ]
    assert [change["what"] for change in report["changed"]][:1] == ["leaf"]
    flue.database = flue.folder / "2.db"
    assert flue.json("verify")["problems"] == []


def test_a_long_list_of_losses_is_cut_short_for_people(flue: Flue) -> None:
    flue.import_real()
    data = bytearray(flue.database.read_bytes())
    for start in range(20 * 4096, 90 * 4096, 4096):
        data[start : start + 4096] = bytes(4096)
    flue.database.write_bytes(data)
    lines = flue.run("salvage", str(flue.database), str(flue.folder / "new.db"), code=3).stdout.splitlines()
    assert len(lines) <= 43
    assert any(line.endswith(" more were lost; --json tells all") for line in lines)


def test_what_cannot_be_salvaged_is_one_line(flue: Flue) -> None:
    text = flue.write([b"no database"], "text")
    assert "text" in flue.run("salvage", str(text), str(flue.folder / "new.db"), code=1).stderr
    flue.import_every_type()
    assert "is there already" in flue.run("salvage", str(flue.database), str(text), code=1).stderr
