"""The calendar periods of budgets: from midnight to midnight of a time zone, whatever its clocks do meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from flue_py.core.ledger import BudgetPeriod, NewBudget, bounds_of_period, checked_zone
from flue_py.errors import InvalidArgument
from tests.tables import inputs

HOUR = 3_600_000_000


def us(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * 1_000_000


@inputs(
    ("period", "zone", "at", "begins", "hours"),
    [
        ("day", "UTC", "2026-03-29T12:00Z", "2026-03-29T00:00Z", 24),
        ("day", "Europe/Berlin", "2026-03-28T23:00Z", "2026-03-28T23:00Z", 23),
        ("day", "Europe/Berlin", "2026-10-25T22:59Z", "2026-10-24T22:00Z", 25),
        ("week", "Europe/Berlin", "2026-03-29T21:59Z", "2026-03-22T23:00Z", 167),
        ("week", "Asia/Kathmandu", "2026-01-04T18:15Z", "2026-01-04T18:15Z", 168),
        ("month", "America/New_York", "2026-03-01T04:59Z", "2026-02-01T05:00Z", 28 * 24),
        ("month", "America/New_York", "2026-03-31T12:00Z", "2026-03-01T05:00Z", 31 * 24 - 1),
        ("month", "UTC", "2026-12-31T23:59Z", "2026-12-01T00:00Z", 31 * 24),
        # Its clocks go from 23:59:59 to 1:00: the day begins with the hour that there is.
        ("day", "Africa/Cairo", "2026-04-24T09:00Z", "2026-04-23T22:00Z", 23),
        # It had no 30 December 2011.
        ("day", "Pacific/Apia", "2011-12-30T09:59Z", "2011-12-29T10:00Z", 24),
    ],
)
def test_a_period_is_from_midnight_to_midnight(
    period: BudgetPeriod, zone: str, at: str, begins: str, hours: int
) -> None:
    began, ends = bounds_of_period(period, checked_zone(zone), us(at))
    assert (began, ends - began) == (us(begins), hours * HOUR)
    assert bounds_of_period(period, checked_zone(zone), ends - 1) == (began, ends)
    assert bounds_of_period(period, checked_zone(zone), ends)[0] == ends


def test_a_zone_is_taken_by_its_name_and_as_it_is() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert (checked_zone("Europe/Berlin"), checked_zone(berlin)) == (berlin, berlin)
    assert (checked_zone("UTC"), checked_zone(UTC), checked_zone(ZoneInfo("UTC"))) == (None, None, None)


@inputs(
    ("given", "words"),
    [
        ({"period": "year", "tz": "UTC"}, "period: 'year' is not one of day, week, month"),
        ({"period": "day", "tz": "Mars/Olympus"}, "tz: 'Mars/Olympus' is not a time zone"),
        ({"period": "day"}, "tz: '' is not a time zone"),
        ({"tz": "UTC"}, "tz: only a budget with a period"),
        ({"period": "day", "tz": "UTC", "spent": 5}, "spent_so_far: with a period"),
        ({"period": "day", "tz": "UTC", "spent": "ledger"}, "spent_so_far: with a period"),
    ],
)
def test_a_period_that_there_is_not_is_refused(given: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        NewBudget("scope", "tokens", 5, **given)  # type: ignore[arg-type]
