"""The real session file of a pi user, against what pi itself makes of it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from flue_py.core.entries import settings_on
from flue_py.core.sessions import derived_id
from flue_py.core.usage import NO_USAGE, Usage
from flue_py.formats.kit import ParsedSession
from flue_py.formats.pi import messages_for_model
from tests.formats import pi_files
from tests.tables import inputs

FACTS = pi_files.real_facts()


@pytest.fixture(scope="module")
def parsed() -> ParsedSession:
    return pi_files.parse_pi(pi_files.real_lines())


def ours(parsed: ParsedSession, their_id: str) -> str:
    """Return our id for an entry that the facts name by the 0-based index of its line."""
    return derived_id(str(parsed.session.id), int(their_id.removeprefix("e")) + 1)


def test_every_row_becomes_an_entry_and_nothing_is_repaired(parsed: ParsedSession) -> None:
    assert len(parsed.entries) == FACTS["entryCount"]
    assert parsed.report.rows == FACTS["file"]["lines"]
    assert parsed.report.skipped == ()
    assert parsed.report.repaired == ()
    assert parsed.report.unknown_kinds == {}
    assert parsed.report.surrogates_replaced == 0


def test_header_becomes_the_session(parsed: ParsedSession) -> None:
    assert parsed.version == "1"
    assert parsed.session.id == FACTS["header"]["id"]
    assert parsed.session.cwd == FACTS["header"]["cwd"]
    assert parsed.session.created_us == 1763681630805000


def test_kinds_and_roles_are_the_files_own(parsed: ParsedSession) -> None:
    kinds: dict[str, int] = {}
    roles: dict[str, int] = {}
    for entry in parsed.entries:
        kinds[entry.kind] = kinds.get(entry.kind, 0) + 1
        if entry.role:
            roles[entry.role] = roles.get(entry.role, 0) + 1
    assert kinds == FACTS["entryTypes"]
    assert roles == FACTS["messageRoles"]


def test_leaf_is_the_last_entry_and_the_path_is_the_whole_file(parsed: ParsedSession) -> None:
    assert [ours(parsed, leaf) for leaf in FACTS["leaves"]] == [parsed.leaf]
    path = pi_files.path_to(parsed, parsed.leaf)
    assert len(path) == FACTS["maxDepth"]
    assert [entry.extra_fields["line"] for entry in path] == list(range(2, FACTS["maxDepth"] + 2))


@inputs("sample", [*FACTS["sampledLeaves"], FACTS["lastLeaf"]], ids=lambda sample: sample["leafId"])
def test_context_is_what_pi_builds_at_every_sampled_leaf(parsed: ParsedSession, sample: dict[str, Any]) -> None:
    leaf = ours(parsed, sample["leafId"])
    context = pi_files.context_at(parsed, leaf)
    assert len(context) == sample["messageCount"]
    assert pi_files.sequence_digest(context) == sample["sequenceSha256"]
    assert len(messages_for_model(context)) == sample["llmMessageCount"]
    assert pi_files.sequence_digest(messages_for_model(context)) == sample["llmSequenceSha256"]
    settings = settings_on(pi_files.path_to(parsed, leaf))
    assert (settings.thinking_level or "off") == sample["thinkingLevel"]
    model = sample["model"] or {"provider": None, "modelId": None}
    assert (settings.provider, settings.model) == (model["provider"], model["modelId"])


def test_every_message_of_the_last_context_is_pis(parsed: ParsedSession) -> None:
    context = pi_files.context_at(parsed, parsed.leaf)
    assert [list(pi_files.role_and_digest(message)) for message in context] == FACTS["lastLeaf"]["messages"]


def test_usage_totals_are_pis_and_exact(parsed: ParsedSession) -> None:
    total = NO_USAGE
    for entry in parsed.entries:
        total = total.plus(entry.usage)
    usage, expected = Usage.from_totals(total), FACTS["usageTotals"]
    assert (usage.input, usage.output) == (expected["input"], expected["output"])
    assert (usage.cache_read, usage.cache_write) == (expected["cacheRead"], expected["cacheWrite"])
    # This file reports no totals: they are the sums of what it reports.
    assert expected["totalTokens"] == 0
    assert usage.total_tokens == usage.input + usage.output + usage.cache_read + usage.cache_write
    assert usage.cost.usd == Decimal("30.3301977")
    assert abs(usage.cost.usd - Decimal(expected["costTotal"])) < Decimal("1e-9")


def test_the_same_file_always_gives_the_same_entries(parsed: ParsedSession) -> None:
    again = pi_files.parse_pi(pi_files.real_lines())
    assert again == parsed


def test_a_longer_file_begins_with_the_entries_of_the_shorter_one(parsed: ParsedSession) -> None:
    shorter = pi_files.parse_pi(pi_files.real_lines()[:500])
    assert shorter.entries == parsed.entries[:499]
    assert shorter.leaf == parsed.entries[498].id


def test_each_paid_call_has_an_id_of_its_own_where_it_cost_anything(parsed: ParsedSession) -> None:
    calls = [call for entry in parsed.entries for call in entry.calls]
    assert len(calls) == FACTS["messageRoles"]["assistant"]
    paid = [call.call_id for call in calls if call.usage != NO_USAGE]
    assert len(set(paid)) == len(paid) > 400
