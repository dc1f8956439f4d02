"""The OpenAPI document holds: of each route, for requests that it allows, and for those that it does not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.adapters.needed import needs

needs("server", "starlette", "uvicorn", "httpx", "schemathesis")

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import CHECKS, load_all_checks

from flue_py.server.routes import EVENTS
from tests.server.serving import TOKENS, Server

# Texts may be refused for more reasons than a schema can say, such as a cursor that no page gave.
LEFT_OUT = ("positive_data_acceptance",)


@pytest.mark.filterwarnings("ignore")
def test_every_route_answers_as_its_description_says(server: Server) -> None:
    load_all_checks()
    checks = [check for check in CHECKS.get_all() if check.__name__ not in LEFT_OUT]
    headers = {"Authorization": f"Bearer {TOKENS['ann']}"}
    document = schemathesis.openapi.from_url(f"{server.url}/openapi.json", headers=headers)
    operations = [result.ok() for result in document.get_all_operations()]
    assert len(operations) == 28
    for operation in operations:
        # A stream that follows a session does not end.
        if operation.path == EVENTS:
            continue

        @settings(
            max_examples=5,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def answers(case: Any) -> None:
            case.call_and_validate(headers=headers, checks=checks)

        answers()
