"""The backup command."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from os.path import exists
from pathlib import Path
from types import SimpleNamespace

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete
from msgspec import to_builtins
from msgspec.structs import replace

import flue_py
from flue_py.cli import command as cli
from flue_py.cli.command import Answer, Plan
from flue_py.cli.main import HelpfulGroup, Place, expanded, finished, key_in, read_config, read_policy
from flue_py.core.chain import GOES_ON, Head, read_head
from flue_py.core.entries import from_microseconds
from flue_py.core.erasure import Receipt, Redaction
from flue_py.core.json import JsonObject, JsonValue, to_json
from flue_py.core.sessions import DocumentInfo, KeyChange
from flue_py.core.trees import SalvageReport
from flue_py.db.files import Part, make_private_folder
from flue_py.db.migrate import dialect_of
from flue_py.db.migrate import migrate as bring_up_to_date
from flue_py.db.schema import Migrated, creation_sql, migrations_directory, upgrade_sql
from flue_py.db.waiting import ON_LOOP, OnCaller
from flue_py.errors import CorruptStore, InvalidArgument, RevisionConflict, SessionNotFound, StoreUnavailable
from flue_py.render import views
from flue_py.render.lines import Line, Span, counted, one_line, printable, table
from flue_py.sessions.handle import all_sessions
from flue_py.sessions.housekeeping import (
    delete_all,
    find_completed,
    find_due,
    find_older,
    find_prunable,
    parse_age,
    without_held,
)
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store
from flue_py.system import read_beginning
from flue_py.transfer.copy import CopyProgress, CopyReport, salvage_file
from flue_py.transfer.export import FilesReport, add_files

# ---------------------------------------------------------------------------------------------------------------------
# The backup command.


@cli.command()
@click.argument("target", metavar="TARGET", type=click.Path(path_type=Path))
@click.option("--overwrite", is_flag=True, help="Replace an existing file, once the copy is complete.")
@click.option("--no-verify", is_flag=True, help="Do not verify the copy.")
async def backup(store: Store, target: Path, overwrite: bool, no_verify: bool) -> Answer:
    """Copy the database, as it is now, to the file TARGET. Others may go on writing.

    The copy is verified, readable by its owner only, and gets its name once it is complete. Only for SQLite files.

    A store on PostgreSQL is backed up by pg_dump. With --json: an object: path, sizeBytes, sessions, entries,
    verified.
    """
    with cli.progress_bar("backing up", "pages") as tell:
        copied = await store.backup(target, overwrite=overwrite, verify=not no_verify, progress=tell)
    row = views.row_of(copied, "path size_bytes sessions entries verified=is_verified")
    checked = "verified" if copied.is_verified else "not verified"
    return cli.said(
        f"{copied.path}: {cli.held(copied, 'sessions entries')}, {copied.size_bytes:,} bytes, {checked}", row
    )


# ---------------------------------------------------------------------------------------------------------------------
# The commands check and head: heads of sessions for people who keep them elsewhere, and what is there against these.

_LARGEST_HEADS = 64 << 20
_AGES = {
    "same": "is as it was",
    "newer": "goes on from it",
    "older": "is older: it was put back",
    "other": "has another history",
    "missing": "is missing",
}


@cli.command()
@click.argument("sessions", metavar="SESSION...", type=cli.SESSION, nargs=-1)
async def head(store: Store, sessions: list[Session]) -> Answer:
    """Print the heads of the named sessions, or of all: a line for each, to be kept on paper or in git.

    With --json: a list of objects: sessionId, revision, head, leaf, digest.
    """
    wanted = {session.id for session in sessions}
    heads = [head for head in await store.heads() if not wanted or head.session_id in wanted]
    document = "".join(f"{head}\n" for head in heads)
    return Answer(document=document, is_json=True, row=lambda: [_head_row(head) for head in heads])


def _head_row(head: Head) -> JsonObject:
    session_id, revision, value, leaf, digest = head.fields
    return {"sessionId": session_id, "revision": revision, "head": value, "leaf": leaf, "digest": digest}


@cli.command()
@click.option(
    "--against", "seen", metavar="FILE|HEAD", required=True, help="What head printed: a file of it, or a line."
)
async def check(store: Store, seen: str) -> Answer:
    """Compare sessions with heads that were printed before: which are as they were, newer, put back, or missing.

    The exit code is 1 if one is not there any more, or not as it was. With --json: an object: sessions (sessionId,
    seen, revision, age: same, newer, older, other, missing), new (how many had no head).
    """
    heads = {head.session_id: head for head in map(read_head, _lines_of(seen))}
    ages = await store.compare_heads([*heads.values()])
    present = {head.session_id: head.revision for head in await store.heads()}
    new = len(present.keys() - heads.keys())

    def lines() -> Iterable[Line]:
        for head, age in zip(heads.values(), ages, strict=True):
            yield ((f"{head.session_id}, revision {head.revision}: {_AGES[age]}", "" if age in GOES_ON else "red"),)
        yield ((f"{counted(len(heads), 'session')} compared, {new} without a head", "bold"),)

    def row() -> JsonObject:
        compared: list[JsonValue] = []
        for head, age in zip(heads.values(), ages, strict=True):
            revision = present.get(head.session_id)
            compared.append({"sessionId": head.session_id, "seen": head.revision, "revision": revision, "age": age})
        return {"sessions": compared, "new": new}

    return Answer(lines, row, code=0 if GOES_ON.issuperset(ages) else 1)


def _lines_of(seen: str) -> list[str]:
    if seen.lstrip().startswith("["):
        return [seen]
    data = read_beginning(Path(expanded(seen)), _LARGEST_HEADS + 1)
    if data is None or len(data) > _LARGEST_HEADS:
        raise InvalidArgument(f"--against: {seen} is not a file of heads")
    return [line for line in data.decode(errors="replace").splitlines() if line.strip()]


# ---------------------------------------------------------------------------------------------------------------------
# The completion command.

_SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
_VARIABLE = "_FLUE_PY_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, options, sessions and entries in SHELL: bash, zsh or fish.

    For bash, put this into ~/.bashrc, for zsh the same with zsh into ~/.zshrc: eval "$(flue-py completion bash)".
    For fish: flue-py completion fish > ~/.config/fish/completions/flue-py.fish.
    """
    root = ctx.find_root()
    source = _SHELLS[shell](root.command, {}, "flue-py", _VARIABLE)
    # Not source(): it starts a bash to ask for its version, which need not be the one that will read this.
    cli.print_document(source.source_template % source.source_vars())


# ---------------------------------------------------------------------------------------------------------------------
# The copy command.

_SHOWN = 10


@cli.command()
@click.argument("source")
@click.argument("target")
@click.option("--no-verify", is_flag=True, help="Do not verify both databases at the end.")
@click.option(
    "--target-key-file", metavar="FILE", help="The file with the key of TARGET, '' for none, if not that of SOURCE."
)
def copy(place: Place, source: str, target: str, no_verify: bool, target_key_file: str | None) -> Answer:
    """Copy all sessions of SOURCE to TARGET, each a file or a URL, while both are in use.

    If it is interrupted, run it again: later runs copy what has changed. A session that differs in TARGET, or was
    changed there, is reported and left alone; the others are copied. Nothing else in TARGET is touched.

    The exit code is 1 if a part is refused, or if either end has problems. The database of flue-py --db plays no
    part; flue-py --key-file and --witness are those of SOURCE.

    With --json: an object: complete (what the exit code says), treesCopied, treesRefreshed, treesUnchanged;
    sessions, entries, paidCalls, budgets, documents, payloadBytes (what was written); budgetsKept and documentsKept
    (TARGET has them so already), budgetsLeft and documentsLeft (not copied, each with a reason, and refused if
    TARGET has another one in its place); removedIds (deleted in SOURCE, and now in TARGET); refused (sessionId,
    reason); onlyInTarget (how many), onlyInTargetIds (the first thousand); source, target (as info); sourceWentOn
    (it held less or more at the end); verified, sourceProblems, targetProblems (as verify).
    """
    ours = replace(place, target=expanded(source))
    target_keys = place.key_files if target_key_file is None else (target_key_file,)
    theirs = Place(expanded(target), key_files=target_keys)
    needs_loop = not (ours.is_file and theirs.is_file)
    report = finished(_copy(ours, theirs, verify=not no_verify, needs_loop=needs_loop), needs_loop=needs_loop)
    return Answer(lambda: _lines(report), lambda: _row(report), code=0 if report.is_complete else 1)


async def _copy(source: Place, target: Place, *, verify: bool, needs_loop: bool) -> CopyReport:
    _require_file(source)
    threads = None if needs_loop else False
    async with cli.opening(source, threads=threads) as ours:
        if ours.unchecked:
            cli.tell(cli.UNCHECKED)
        if target.is_file:
            make_private_folder(Path(target.target).parent)
        secrets = read_config().secrets
        async with flue_py.open(target.target, threads=threads, key=target.keys(), secrets=secrets) as theirs:
            with cli.progress_bar("copying", "sessions") as tell:

                def on_progress(now: CopyProgress) -> None:
                    tell(now.sessions, now.sessions_total, now.phase)

                return await flue_py.copy_store(ours, theirs, progress=on_progress, verify=verify)


def _require_file(place: Place) -> None:
    """Raise `StoreUnavailable` if a file is missing, which opening it would make."""
    scheme, _, path = place.target.partition(":///")
    if place.is_file or scheme.startswith("sqlite"):
        path = place.target if place.is_file else path.partition("?")[0]
        if not exists(path):
            raise StoreUnavailable(f"there is no database at {path}; name one that is there")


def _lines(report: CopyReport) -> list[Line]:
    trees = cli.outcomes(
        {
            "copied": report.trees_copied,
            "brought up to date": report.trees_refreshed,
            "unchanged": report.trees_unchanged,
            "refused": len(report.refused),
        }
    )
    lines: list[Line] = [
        ((f"trees: {trees}", "bold"),),
        ((f"written: {_written(report)}", ""),),
        ((f"source: {cli.held(report.source, 'sessions entries ledger_rows')}", ""),),
        ((f"target: {cli.held(report.target, 'sessions entries ledger_rows')}", ""),),
    ]
    lines += [((f"refused: {printable(refusal.reason)}", "red"),) for refusal in report.refused]
    left_behind = [
        *((left.reason, left.is_refused) for left in report.budgets_left),
        *((left.reason, left.is_refused) for left in report.documents_left),
    ]
    lines += [((f"not copied: {printable(why)}", "red" if refused else "yellow"),) for why, refused in left_behind]
    if report.removed_ids:
        text = f"deleted in the source, and now in the target: {_named(report.removed_ids, len(report.removed_ids))}"
        lines.append(((text, "yellow"),))
    if report.only_in_target:
        text = f"only in the target: {_named(report.only_in_target_ids, report.only_in_target)}"
        lines.append(((text, "yellow"),))
    if report.source_went_on:
        lines.append((("the source has gone on meanwhile; copy again to catch up", "yellow"),))
    for end, problems in (("source", report.source_problems), ("target", report.target_problems)):
        lines += [((f"{end}: {printable(str(problem))}", "red"),) for problem in problems]
    if report.verified:
        problems_found = counted(len(report.source_problems) + len(report.target_problems), "problem")
        lines.append(((f"verified at both ends: {problems_found}", "bold"),))
    return lines


def _written(report: CopyReport) -> str:
    return cli.joined(
        [
            cli.held(report, "sessions entries calls"),
            *(cli.held(report, name) for name in ("budgets", "documents") if getattr(report, name)),
            counted(report.payload_bytes, "byte") + " of payload",
        ]
    )


def _named(ids: tuple[str, ...], count: int) -> str:
    rest = count - len(ids[:_SHOWN])
    listed = ", ".join(printable(session_id) for session_id in ids[:_SHOWN])
    return f"{counted(count, 'session')} ({listed}{f', and {rest:,} more' if rest else ''})"


def _row(report: CopyReport) -> JsonObject:
    documents_left = [
        {**left.document._asdict(), **views.row_of(left, "refused=is_refused reason")} for left in report.documents_left
    ]
    return {
        **views.row_of(report, "complete=is_complete trees_copied trees_refreshed trees_unchanged sessions entries"),
        **views.row_of(report, "paidCalls=calls budgets budgets_kept"),
        "budgetsLeft": [views.row_of(left, "budget_id refused=is_refused reason") for left in report.budgets_left],
        **views.row_of(report, "documents documents_kept"),
        "documentsLeft": [*documents_left],
        **views.row_of(report, "payload_bytes removed_ids"),
        "refused": [views.row_of(refusal, "session_id reason") for refusal in report.refused],
        **views.row_of(report, "only_in_target only_in_target_ids"),
        "source": views.store_row(report.source),
        "target": views.store_row(report.target),
        **views.row_of(report, "source_went_on verified"),
        "sourceProblems": views.problem_rows(report.source_problems),
        "targetProblems": views.problem_rows(report.target_problems),
    }


# ---------------------------------------------------------------------------------------------------------------------
# The info command.


@cli.command()
async def info(store: Store) -> Answer:
    """Show where the database is, its format and its size.

    With --json: an object: location, backend, formatVersion, sessions, entries, ledgerRows, documents, sizeBytes, key
    (its fingerprint, null without one).
    """
    facts = await store.info()
    return Answer(lambda: views.facts_lines(views.store_facts(facts), cli.look()), lambda: views.store_row(facts))


# ---------------------------------------------------------------------------------------------------------------------
# The migrate command.


@cli.command()
@click.option("--sql", "only_sql", is_flag=True, help="Print the SQL that creates a database, and connect to nothing.")
@click.option(
    "--from", "from_format", metavar="N", type=int, help="With --sql: print the SQL that upgrades from format N."
)
@click.option("--ini", "only_ini", is_flag=True, help="Print the path of the ini file for alembic's own commands.")
def migrate(place: Place, only_sql: bool, from_format: int | None, only_ini: bool, as_json: bool) -> Answer:
    """Create the database, or upgrade it to the current format.

    Opening a database does the same. Use this command to choose the time, or to read the SQL first.

    An older file is backed up beside itself first. --sql is in the dialect of the database that --db names. With
    --json: an object: location, did (created, upgraded or nothing), fromFormat (null if it was empty),
    formatVersion, backup (null if none was needed).
    """
    if only_ini and (only_sql or as_json or from_format is not None):
        raise click.UsageError("--ini prints a path, and goes with no other option")
    if only_ini:
        return Answer(document=f"{migrations_directory() / 'alembic.ini'}\n")
    cli.refuse(only_sql and as_json, "--sql prints SQL; leave out --json")
    if from_format is not None and not only_sql:
        raise click.UsageError("--from goes with --sql; what format a database has is written in it")
    dialect = dialect_of(place.target)
    if only_sql:
        return Answer(document=creation_sql(dialect) if from_format is None else upgrade_sql(dialect, from_format))
    if place.is_file:
        make_private_folder(Path(place.target).parent)
    here = dialect == "sqlite"
    done = finished(bring_up_to_date(place.target, waiting=OnCaller() if here else ON_LOOP), needs_loop=not here)
    did = "created" if done.found is None else "nothing" if done.found == done.format else "upgraded"
    row: JsonObject = {
        "location": done.location,
        "did": did,
        **views.row_of(done, "fromFormat=found formatVersion=format"),
        "backup": None if done.backup is None else str(done.backup),
    }
    return cli.said(_sentence(done, did), row)


def _sentence(done: Migrated, did: str) -> str:
    if did == "created":
        return f"{done.location}: created, format {done.format}"
    if did == "nothing":
        return f"{done.location}: format {done.format} is the current one; nothing was changed"
    backup = "" if done.backup is None else f"; a backup is at {done.backup}"
    return f"{done.location}: upgraded from format {done.found} to {done.format}{backup}"


# ---------------------------------------------------------------------------------------------------------------------
# The rekey command.


@cli.command()
@click.option("--new-key-file", metavar="FILE", help="The file with the new key: 16 to 64 random bytes.")
@click.option("--remove", is_flag=True, help="Leave the database without a key.")
def rekey(place: Place, new_key_file: str | None, remove: bool) -> Answer:
    """Give the database another key, or its first one, or none. flue-py --key-file has the one that it has now.

    Programs that have both keys go on meanwhile. If it is interrupted or killed, run it again: until it is done, the
    database needs both keys.

    With --json: an object: before and after (fingerprints, null without a key), trees, entries (how many have
    another digest now).
    """
    if (new_key_file is None) is not remove:
        raise click.UsageError("give either --new-key-file or --remove")
    key = None if new_key_file is None else key_in(new_key_file, "--new-key-file")
    if key is None and not remove:
        raise click.UsageError("--new-key-file names no file; --remove leaves the database without a key")
    keys = place.keys() or [None]

    async def work(store: Store) -> KeyChange:
        with cli.progress_bar("rekeying", "trees") as tell:
            return await store.rekey(key, progress=tell)

    done = cli.run(place, work, key=[*keys, key])
    names = [f"key {name}" if name else "no key" for name in (done.before, done.after)]
    changed = f"{counted(done.trees, 'tree')}, {counted(done.entries, 'entry', 'entries')}"
    text = f"from {names[0]} to {names[1]}: {changed}"
    return cli.said(text, views.row_of(done, "before after trees entries"))


# ---------------------------------------------------------------------------------------------------------------------
# The reprice command.


@cli.command(bar="pricing")
@click.option("--yes", is_flag=True, help="Write the costs. Without it they are only shown.")
async def reprice(store: Store, yes: bool) -> Answer:
    """Price the calls whose cost is unknown, at the prices of their day.

    What was reported, or priced before, is never changed. Without --yes nothing is.

    The prices are your own or published ones. It shows how many calls of which model get a cost, how much that is,
    and which stay unknown, and why: no usage (their tokens are unknown), no model, tokens of no kind (only a
    total), no price. Budgets are not changed.

    With --json: an object: dryRun, calls and costUsd (what gets a cost), unknownCalls, and rows with provider,
    model, calls, costUsd (a decimal string; null if it stays unknown) and why.
    """
    done = await store.reprice(dry_run=not yes)

    def lines() -> Iterable[Line]:
        if done.rows:
            heads = ("provider", "model", "calls", "US dollars", "stays unknown")
            rows = [
                (
                    row.provider or views.DASH,
                    row.model or views.DASH,
                    f"{row.calls:,}",
                    views.DASH if row.usd is None else views.dollars(row.usd),
                    row.why or "",
                )
                for row in done.rows
            ]
            cells = [[(text, "dim") for text in heads], *([(text, "") for text in row] for row in rows)]
            yield from table(cells, right=frozenset((2, 3)))
        if not done.rows:
            text = "every call has a known cost"
        else:
            would = "would get a cost" if done.dry_run else "got a cost"
            text = f"{counted(done.calls, 'call')} {would}, {views.dollars(done.usd)} US dollars in all"
            text += f"; {done.unknown_calls:,} unknown" if done.unknown_calls else ""
        yield ((text, "bold"),)
        if done.dry_run and done.calls:
            yield (("nothing was changed; --yes writes it", "yellow"),)

    return Answer(lines, done.to_json)


# ---------------------------------------------------------------------------------------------------------------------
# The commands hold, erase and cleanup.

_hold_option = click.option(
    "--despite-hold",
    "despite",
    metavar="HOLD",
    multiple=True,
    help="Take what has this hold, too: the id of a session, or scope:NAME.",
)


@cli.command()
@click.argument("session", type=cli.SESSION_NAME, required=False)
@cli.scope_option
@cli.why_option
@click.option("--lift", is_flag=True, help="Lift the hold.")
async def hold(store: Store, session: str | None, why: str | None, lift: bool) -> Answer:
    """Put a legal hold on SESSION, or with --scope alone on all of a tenant or user; without both, list the holds.

    Nothing of it is deleted, erased or redacted then, unless --despite-hold names it. With --json: a list of objects:
    scope, sessionId (null for all of the scope), by, why, atUs.
    """
    is_list = session is None and store.scope is None
    if is_list and (lift or why):
        raise click.UsageError("name a SESSION, or give --scope for all of a tenant or user")
    session_id = None if session is None else (await store.find_session(session)).id
    holds = [hold for hold in await store.holds() if is_list or hold.session_id == session_id]
    if lift and not await store.lift_hold(session_id):
        raise InvalidArgument("there is no hold on it; hold lists those that there are")
    if not (is_list or lift):
        holds = [await store.hold(session_id, by=cli.BY, why=why)]
    text = "".join(f"{'lifted: ' * lift}{printable(str(hold))}\n" for hold in holds)
    return Answer(lambda: cli.plain_lines(text or "there are no holds"), lambda: to_builtins(holds))


_MOST_FOUND = 1_000
_receipt_option = click.option(
    "--receipt", metavar="FILE", type=click.Path(path_type=Path), help="Write the receipt there."
)


def _check_erase(options: SimpleNamespace) -> None:
    if options.sessions and options.search is not None:
        raise click.UsageError("SESSION and --search exclude each other; give one of them")


@cli.destructive(check=_check_erase)
@click.argument("sessions", metavar="[SESSION]...", type=cli.SESSION_NAME, nargs=-1)
@cli.scope_option
@click.option("--search", metavar="WORDS", help="Redact the entries that have these words, at most 1,000 at once.")
@cli.why_option
@_receipt_option
@_hold_option
async def erase(
    store: Store,
    sessions: tuple[str, ...],
    search: str | None,
    why: str | None,
    receipt: Path | None,
    despite: tuple[str, ...],
) -> Plan:
    """Delete sessions as rm does, so that no byte of them is left, look for what is left, and say so in a receipt.

    Without SESSION and with --scope, everything of that tenant or user. The paid calls lose agents and folders. Words
    are looked for in thoughts, too, but not in retracted texts; titles that have them stay, and are named. What goes
    is overwritten, the log is emptied, a file that has it elsewhere is written anew, and all of it is looked for
    in every file of the database, and in all rows. Entries that other sessions see stay, and are named. If it is
    interrupted or killed, run it again. Exit code 1 if something is left, could not be reached, or more is found.

    With --json, and in the file of --receipt, an object: complete (null if nothing was looked for), dryRun, sessionIds,
    scope, counts, entriesKept, redacted, seenBy, mayQuote, missingIds, atUs, by, why, size (bytes), left (titles that
    have the words, and stay), and look, null before it is done: places (pairs of name and size), runBytes (so many in a
    row are found wherever they are), unsampled (how many texts were too short or too plain to be looked for), traces
    and stays (place, size, where; stays are rows that were not erased), hindrances, outOfReach, rebuilt.
    """
    ids, left = [await _erasable(store, name) for name in sessions], list[str]()
    if search is not None:
        found = partial(store.search, search, limit=_MOST_FOUND)
        answer = await found(parts=("messages", "tools", "thinking", "summaries"))
        if answer.damaged:
            raise CorruptStore(f"nothing was erased, since not all can be searched: {'; '.join(answer.damaged)}")
        entries = [(hit.session_id, hit.entry_id) for hit in answer.hits if hit.entry_id is not None]
        work = partial(Store.erase, entries=entries)
        left = [f"more than {_MOST_FOUND:,} texts have these words: run it again for the rest"] * answer.has_more
        # One that a program made goes along with what it was made of.
        titled = sorted(each.session.id for each in (await found(parts=("titles",))).sessions if each.session.title)
        left += [f"a title or an id has these words, and stays: session {name}" for name in titled]
    elif ids:
        work = partial(Store.erase, sessions=ids)
    elif store.scope is not None:
        work = partial(Store.erase_scope, scope=store.scope)
    else:
        raise click.UsageError("name a SESSION, or give --scope for everything of a tenant or user, or --search")
    return await _deletion(
        store, partial(work, by=cli.BY, why=why, despite_holds=despite), ("erase", "erased"), receipt, left=left
    )


@cli.destructive()
@click.option("--policy", "policy_file", metavar="FILE", help="The policy; else that of config.toml.")
@cli.why_option
@_receipt_option
async def cleanup(store: Store, policy_file: str | None, why: str | None, receipt: Path | None) -> Plan:
    """Erase the sessions that the rules of a policy take, as erase does, but for those that a hold is on.

    A policy is a TOML file of tables [[rule]] with scope, kind (root or fork), max_age (30d, 4w or 12h), max_sessions,
    max_entries and max_bytes (of payload, as it is stored): the sessions that were active longest ago go until no more
    are left. Task sessions go with their parents only. With --json: as erase.
    """
    policy = read_policy(policy_file)
    with cli.progress_bar("looking"):
        due = await find_due(store, policy, datetime.now(UTC))
        free = [info.id for info in await without_held(due, lambda name: store.erase([name], dry_run=True))]
    work = partial(Store.erase, sessions=free, by=cli.BY, why=why)
    return await _deletion(store, work, ("erase", "erased"), receipt, len(due) - len(free))


async def _erasable(store: Store, name: str) -> str:
    """Return the id of a session; the name itself if an erasure was interrupted, which may have been that of it."""
    try:
        return (await store.find_session(name)).id
    except SessionNotFound:
        if not await store.backend.is_erasing():
            raise
        return name


async def _deletion(
    store: Store,
    work: Callable[..., Awaitable[Receipt]],
    verbs: tuple[str, str] = ("delete", "deleted"),
    file: Path | None = None,
    held: int = 0,
    left: Sequence[str] = (),
) -> Plan:
    """Return the plan of a deletion or an erasure. ``held`` sessions were passed over, ``left`` are texts that stay."""
    planned = replace(await work(store, dry_run=True), left=tuple(left))
    ids = planned.session_ids
    names, before = {name: await cli.name_of(store, name) for name in ids}, await store.backend.get_sessions(ids)
    notes = [*left, *[f"{counted(held, 'session')} passed over: a hold is on it, see flue-py hold"] * bool(held)]

    def shown(receipt: Receipt) -> Answer:
        code = 0 if receipt.look is None or receipt.is_complete else 1
        return Answer(lambda: views.receipt_lines(receipt, names, verbs[1]), receipt.to_json, code=code, notes=notes)

    async def go(store: Store) -> Answer:
        for was, now in zip(before, await store.backend.get_sessions(ids), strict=True):
            # Of a scope, all goes that is there by now.
            if planned.scope is None and was and now and was.revision != now.revision:
                raise RevisionConflict(now.id, was.revision, now.revision)
        with cli.progress_bar(f"{verbs[0][:-1]}ing"), nullcontext() if file is None else Part(file) as part:
            receipt = replace(await work(store, dry_run=False), left=tuple(left))
            if part is not None:
                part.write(to_json(receipt.to_json()) + b"\n")
                part.publish()
        return shown(receipt)

    scope = f"everything of scope {printable(repr(planned.scope))}"
    subject = counted(len(names), "session") if planned.scope is None else scope
    if not names and planned.redacted:
        subject = counted(planned.redacted, "entry", "entries")
    elif not any(planned.counts.values()):
        is_left = verbs[0] == "erase" and await store.backend.is_erasing()
        subject = "what an interrupted erasure left" if is_left else ""
    return Plan(subject, shown(planned), go, verbs[0])


# ---------------------------------------------------------------------------------------------------------------------
# The rm command.


def _age(ctx: click.Context, param: click.Parameter, age: str | None) -> timedelta | None:
    try:
        return None if age is None else parse_age(age)
    except InvalidArgument as error:
        raise click.BadParameter(str(error), param_hint="--inactive-for") from error


def _check_rm(options: SimpleNamespace) -> None:
    is_by_config = options.config_gone or options.without_config
    if (options.session is not None) + (options.inactive_for is not None) + is_by_config > 1:
        raise click.UsageError("SESSION, --inactive-for, and --config-gone exclude each other; give one of them")


@cli.destructive(check=_check_rm)
@click.argument("session", type=cli.SESSION_NAME, required=False)
@cli.scope_option
@click.option(
    "--inactive-for", metavar="AGE", callback=_age, help="Delete sessions last active that long ago: 30d, 4w or 12h."
)
@click.option("--config-gone", is_flag=True, help="Delete sessions whose configuration file is gone, completed or not.")
@click.option("--without-config", is_flag=True, help="Those that never had a configuration file, too.")
@_hold_option
async def rm(
    store: Store,
    session: str | None,
    inactive_for: timedelta | None,
    config_gone: bool,
    without_config: bool,
    despite: tuple[str, ...],
) -> Plan:
    """Delete SESSION, its task sessions and theirs, and every entry that no other session sees.

    Forks are kept with all they see, and so is the record of costs. At a terminal it shows what would go, and asks; if
    any of it changes meanwhile, all of it is kept.
    If SESSION is "all", and no session has that id or key, all completed sessions are deleted.
    With --scope and nothing else, all data of that tenant or user is deleted: sessions, memories, files, budgets,
    and from the record of costs folders and agents. The amounts paid stay.

    With --inactive-for and --config-gone, task sessions are deleted with their parents only, and a session with a task
    session that was active since stays. A relative path of a configuration file is one in the session's folder; of a
    program that gives its sessions none, --without-config is all of them. Nothing is ever deleted by itself: run it by
    a timer, with --yes.

    With --json: as erase, without a look.
    """
    revision = None
    if session is not None and (session.lower() != "all" or await _is_named(store, session)):
        target = await store.find_session(session)
        ids, held, revision = [target.id], 0, target.revision
    elif session is not None or inactive_for is not None or config_gone or without_config:
        with cli.progress_bar("looking"):
            if inactive_for is not None:
                chosen = await find_older(store, inactive_for, datetime.now(UTC))
            elif session is not None:
                chosen = await find_completed(store)
            else:
                chosen = await find_prunable(store, without_config=without_config)
            plan = partial(store.delete_session_tree, dry_run=True, despite_holds=despite)
            ids = [info.id for info in await without_held(chosen, plan)]
            held = len(chosen) - len(ids)
    elif store.scope is not None:
        return await _deletion(store, partial(Store.delete_scope, scope=store.scope, despite_holds=despite))
    else:
        raise click.UsageError("name a SESSION, or give --scope for everything of a tenant or user")
    work = partial(delete_all, session_ids=ids, despite_holds=despite, expected_revision=revision)
    return await _deletion(store, work, held=held)


async def _is_named(store: Store, name: str) -> bool:
    return any(name in (info.id, info.key) for info in await all_sessions(store.backend, scope=store.scope))


# ---------------------------------------------------------------------------------------------------------------------
# The redact command.


@cli.destructive()
@click.argument("session", type=cli.SESSION_NAME)
@click.argument("entries", metavar="ENTRY...", type=cli.ENTRY_NAME, nargs=-1, required=True)
@click.option("--why", metavar="TEXT", required=True, help="The reason, which stands in the place of the text.")
@_hold_option
async def redact(store: Store, session: str, entries: tuple[str, ...], why: str, despite: tuple[str, ...]) -> Plan:
    """Take the text of entries of SESSION for good: a line with the reason stands in its place, for the model, too.

    Attachments, previews, automatic titles and words of the index that were made of it go as well. Forks that see the
    entries, summaries that were made over them, and copies in other sessions are named: a summary stays, unless it is
    an ENTRY, too. The amounts paid stay. It cannot be undone.

    With --json: an object: dryRun, sessionId, entryIds, already (what was redacted before), mayQuote (summaries),
    seenBy (sessions that see one of them), copies (a list of objects: sessionId, entryId), and look, as erase, null
    before it is done. Exit code 1 if something of it is left.
    """
    target = await store.find_session(session)
    ids = [await target.resolve_entry_id(entry) for entry in entries]
    planned = await target.redact(ids, why, by=cli.BY, dry_run=True, despite_holds=despite)

    async def go(store: Store) -> Answer:
        done = await (await store.find_session(target.id)).redact(ids, why, by=cli.BY, despite_holds=despite)
        return _redacted(done, "redacted", dry_run=False)

    subject = counted(len(planned.entry_ids), "entry", "entries") if planned.entry_ids else ""
    return Plan(subject, _redacted(planned, "would be redacted", dry_run=True), go, "redact")


def _redacted(redaction: Redaction, verb: str, *, dry_run: bool) -> Answer:
    look = redaction.look
    copies = [f"{entry_id} of session {session_id}" for session_id, entry_id in redaction.copies]
    named = {
        "redacted before": redaction.already,
        "may quote it": redaction.may_quote,
        "see it, and go on without its text": redaction.seen_by[1:],
        "copies of it, which stay": copies,
    }

    def lines() -> Iterable[Line]:
        yield ((f"{counted(len(redaction.entry_ids), 'entry', 'entries')} {verb}", "bold"),)
        yield from (((f"  {entry_id}", "red"),) for entry_id in redaction.entry_ids)
        yield from (((f"{what}: {', '.join(names)}", "yellow"),) for what, names in named.items() if names)
        if look is not None:
            yield from views.look_lines(look, redaction.size, is_complete=look.is_clean)

    def row() -> JsonObject:
        pairs: list[JsonValue] = [{"sessionId": name, "entryId": entry_id} for name, entry_id in redaction.copies]
        names = "session_id entry_ids already may_quote seen_by"
        return {"dryRun": dry_run, **views.row_of(redaction, names), "copies": pairs, "look": to_builtins(look)}

    return Answer(lines, row, code=0 if look is None or look.is_clean else 1)


# ---------------------------------------------------------------------------------------------------------------------
# The salvage command.

SOMETHING_LOST = 3
"""The exit code of a rescue that was not complete: 1 is an error, 2 a wrong call."""

_SALVAGE_SHOWN = 20


@cli.command()
@click.argument("damaged", metavar="DAMAGED", type=click.Path(path_type=Path))
@click.argument("new", metavar="NEW", type=click.Path(path_type=Path))
def salvage(place: Place, damaged: Path, new: Path) -> Answer:
    """Write what can be read of a DAMAGED SQLite file to the file NEW, and report what is lost.

    DAMAGED and its write-ahead log are only read; stop programs that write to them first. NEW must not exist; it
    has the key of flue-py --key-file. Exit code 0 if everything was rescued, 3 if something was lost.

    With --json: an object: path, complete, sessions, entries, calls, documents (how many were rescued),
    damagedPages, unchecked (DAMAGED needs a key that was not given), and lost and changed, lists of objects: what,
    sessionId, entryId, detail.
    """
    with cli.progress_bar("rescuing"):
        report = salvage_file(damaged, new, key=place.keys())
    code = 0 if report.is_complete else SOMETHING_LOST
    notes = [cli.UNCHECKED] if report.unchecked else []
    return Answer(lambda: _salvage_lines(report, new), lambda: _salvage_row(report, new), notes=notes, code=code)


def _salvage_lines(report: SalvageReport, new: Path) -> list[Line]:
    lines: list[Line] = [((f"lost {printable(str(loss))}", "red"),) for loss in report.losses[:_SALVAGE_SHOWN]]
    lines += _more(len(report.losses), "more were lost")
    lines += [((f"changed {printable(str(change))}", "yellow"),) for change in report.changes[:_SALVAGE_SHOWN]]
    lines += _more(len(report.changes), "more were changed")
    pages = counted(len(report.damaged_pages), "damaged page")
    changed = f"{len(report.losses)} lost, {len(report.changes)} changed"
    outcome = "everything is as it was" if report.is_complete else changed
    contents = cli.held(report, f"sessions entries calls{' documents' * bool(report.documents)}")
    lines.append(((f"{new}: {contents}; {pages}: {outcome}", "bold"),))
    return lines


def _more(count: int, outcome: str) -> list[Line]:
    return [((f"{count - _SALVAGE_SHOWN} {outcome}; --json tells all", "dim"),)] if count > _SALVAGE_SHOWN else []


def _salvage_row(report: SalvageReport, new: Path) -> JsonObject:
    return {
        "path": str(new),
        **views.row_of(report, "complete=is_complete sessions entries calls documents damaged_pages unchecked"),
        "lost": [views.row_of(loss, "what session_id entry_id detail") for loss in report.losses],
        "changed": [views.row_of(change, "what session_id entry_id detail") for change in report.changes],
    }


# ---------------------------------------------------------------------------------------------------------------------
# The store command.


@click.group(cls=HelpfulGroup)
def store() -> None:
    """Add, list, show and remove files that agents read: texts, and the text of documents.

    A file has a name, in a project (a folder; default: for all) and a scope.
    """


store.synonyms = {"ls": "list", "import": "add", "remove": "rm", "delete": "rm", "cat": "show"}


@cli.command(group=store, create=True)
@click.argument("path")
@click.option("--name", metavar="NAME", help="The name it gets; of a folder, what its files' names begin with.")
@cli.document_project_option
@cli.scope_option
async def add(store: Store, path: str, name: str | None, project: str | None) -> Answer:
    """Add PATH, a file or a folder, in place of what has its name.

    Of .pdf, .docx, .pptx and .xlsx files the text is stored, with flue-py[documents]. Hidden files and links in a
    folder are passed over.

    Everything else has to be text in UTF-8. Exit code 1 if a file of a folder was not added. With --json: an
    object: added (as in list), refused (a list of name, reason), notes.
    """
    report = await add_files(store, path, name=name, project=project or "")
    return Answer(lambda: _report_lines(report), lambda: _report_json(report), code=1 if report.refused else 0)


@cli.command("list", group=store, paged=True)
@cli.project_option("Only those for this folder.")
@cli.scope_option
async def list_(store: Store, project: str | None) -> Answer:
    """List the files with type and size, by project and name.

    With --json: a list of name, type, space (empty), project (null for all folders), scope, source, characters,
    createdAt, changedAt.
    """
    files = await store.files(project=project)
    return Answer(lambda: _store_lines(files), lambda: [views.info_row(file) for file in files])


@cli.command(group=store, paged=True)
@click.argument("name")
@cli.document_project_option
@cli.scope_option
async def show(store: Store, name: str, project: str | None) -> Answer:
    """Show the text of the file NAME.

    With --json: an object as in list, with text.
    """
    folder = project or ""
    document = await store.read_file(name, project=folder)
    if document is None:
        raise InvalidArgument(f"there is no file {_called(name, folder)}; list has their names")
    return Answer(lambda: cli.plain_lines(document.body), lambda: views.document_row(document))


@cli.destructive("rm", group=store)
@click.argument("name")
@cli.document_project_option
@cli.scope_option
async def store_rm(store: Store, name: str, project: str | None) -> Plan:
    """Delete the file NAME. Its text is kept nowhere.

    With --json: an object: dryRun, and deleted, as in list, or null if there was none.
    """
    folder = project or ""

    async def remove(store: Store) -> bool:
        return await store.remove_file(name, project=folder)

    document = await store.read_file(name, project=folder)
    return cli.document_plan(document, _called(name, folder), remove, ("file", "delete", "deleted", "deleted"))


def _called(name: str, folder: str) -> str:
    return f"{printable(repr(name))} for {printable(folder)}" if folder else printable(repr(name))


def _store_lines(files: Sequence[DocumentInfo]) -> list[Line]:
    if not files:
        return cli.plain_lines("there are no files")
    rows: list[list[Span]] = [[(name, "dim") for name in ("file", "characters", "changed", "type", "project")]]
    for file in files:
        about: list[Span] = [(f"{file.chars:,}", ""), (views.minute(from_microseconds(file.changed_us)), "")]
        rows.append([(one_line(file.name), "bold"), *about, (one_line(file.type), ""), (one_line(file.project), "dim")])
    return table(rows, right=frozenset({1}))


def _report_lines(report: FilesReport) -> list[Line]:
    lines = cli.plain_lines(f"added {counted(len(report.added), 'file')}")
    if report.added:
        lines += _store_lines(report.added)
    for refusal in report.refused:
        lines += cli.plain_lines(f"not added: {one_line(refusal.name)}: {one_line(refusal.reason)}")
    for note in report.notes:
        lines += cli.plain_lines(f"note: {one_line(note)}")
    return lines


def _report_json(report: FilesReport) -> JsonObject:
    return {
        "added": [views.info_row(file) for file in report.added],
        "refused": [views.row_of(refusal, "name reason") for refusal in report.refused],
        "notes": [*report.notes],
    }


# ---------------------------------------------------------------------------------------------------------------------
# The verify command.


@cli.command(bar="verifying")
async def verify(store: Store) -> Answer:
    """Check everything that is stored twice, and show what disagrees. Exit code 1 if something does.

    With --json: an object: sessions, entries (how many were looked at), problems (kind, where, detail).
    """
    report = await store.verify()

    def lines() -> Iterable[Line]:
        for problem in report.problems:
            yield ((str(problem), "red"),)
        yield ((f"{cli.held(report, 'sessions entries')}: {counted(len(report.problems), 'problem')}", "bold"),)

    return Answer(lines, lambda: views.verify_row(report), code=1 if report.problems else 0)
