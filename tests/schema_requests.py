"""Requests made from the published interface, right and wrong ones, over TCP to a running server.

``test_daemon_hostile_schema.py`` runs this file in a pytest of its own.
"""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import requests
import schemathesis
from fake_service import FakeService
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from served_service import PATIENCE_S, ServedService, served

from tuner.daemon.http.routes import published
from tuner.daemon.interface import Peer
from tuner.model.jobs import Event, JobSpec

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
SCHEMA = schemathesis.openapi.from_dict(json.loads(published()))


class BriefService(FakeService):
    """A service whose streams end after what is stored, so that nobody waits for what will not happen."""

    async def events(self, number: int, after: int = 0) -> AsyncIterator[Event]:
        for event in list(self.told[number]):
            if (event.id or 0) > after:
                yield event


@pytest.fixture(scope="module")
def api() -> Iterator[ServedService]:
    with served(service=BriefService(most_jobs=50), tcp=True, requests_per_s=1e6) as running:
        for _ in range(3):
            running.wait(running.service.submit(JobSpec(("scan-lf:N=64",)), Peer()))
        yield running
        assert running.ask("GET", "/v1/status").status == 200


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as session:
        yield session


@SCHEMA.parametrize()
@settings(max_examples=10, suppress_health_check=list(HealthCheck))
def test_every_answer_is_as_published(
    case: schemathesis.Case[Any], api: ServedService, session: requests.Session
) -> None:
    """Whatever is sent, the answer is no server error, and has a status, type and body that are published."""
    assert api.tcp is not None
    case.call_and_validate(
        base_url=f"http://127.0.0.1:{api.tcp.port}",
        headers={"Authorization": f"Bearer {api.token}"},
        session=session,
        checks=CHECKS,
        timeout=PATIENCE_S,
    )
