import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import pytest
from fake_service import FakeService
from fastapi import FastAPI, Query
from hypothesis import given
from hypothesis import strategies as st
from served_service import answered, served
from starlette.responses import Response

from tuner.daemon.http.api_models import BestAnswer, BestQuery, JobAnswer
from tuner.daemon.http.responses import answer_errors
from tuner.daemon.http.routes import interface, published
from tuner.daemon.interface import Peer
from tuner.daemon.settings import LimitsTable, TuningTable
from tuner.model.objective import NAMES
from tuner.model.trial import Measurement, Trial
from tuner.search.job_messages import told_trial
from tuner.search.session import TrialEvent

DOCS = Path(__file__).parent.parent / "docs"
TRIAL = TrialEvent(Trial(()), Measurement(()), 1.0, 1.0, 1, None, 1.0)
HOW = "python -m tuner.daemon.http.routes > docs/openapi.json"


@pytest.fixture(scope="module")
def document() -> Any:
    return json.loads(published())


def test_the_committed_interface_is_the_one_that_is_served(document: Any) -> None:
    """What is committed is what a server publishes."""
    with served() as api:
        served_document = api.ask("GET", "/openapi.json").document

    assert served_document == document
    assert json.loads((DOCS / "openapi.json").read_text()) == document, HOW


def test_the_shown_replies_are_those_of_the_interface() -> None:
    """The page shows a reply of best, a job and a trial, each with every field that there is."""
    page = (DOCS / "daemon-api.md").read_text()
    best, job, _, trial = re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)

    assert set(json.loads(best)) == set(BestAnswer.model_fields)
    assert BestAnswer.model_validate_json(best).workloads
    assert set(json.loads(job)) == set(JobAnswer.model_fields)
    assert JobAnswer.model_validate_json(job).model_dump()["workloads"]
    assert set(json.loads(trial)) == set(told_trial(TRIAL, 1, "J"))


def test_everything_a_client_sends_is_bounded(document: Any) -> None:
    """Every string, list and number that a request may hold has an end."""
    unbounded: list[str] = []

    def check(schema: Any, where: str) -> None:
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            check(document["components"]["schemas"][name], name)
            return
        for option in schema.get("anyOf", []):
            check(option, where)
        kind = schema.get("type")
        ends = {
            "string": {"maxLength", "enum"},
            "array": {"maxItems"},
            "integer": {"maximum"},
            "number": {"maximum"},
            "object": {"additionalProperties"},
        }
        if kind in ends and not ends[kind] & set(schema):
            unbounded.append(where)
        for name, inner in schema.get("properties", {}).items():
            check(inner, f"{where}.{name}")
        if "items" in schema:
            check(schema["items"], f"{where}[]")

    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for parameter in operation.get("parameters", []):
                check(parameter["schema"], f"{method} {path} {parameter['name']}")
            if "requestBody" in operation:
                check(operation["requestBody"]["content"]["application/json"]["schema"], f"{method} {path}")

    assert unbounded == []


def test_the_objectives_are_those_there_are(document: Any) -> None:
    """The interface names every objective and no other."""
    assert tuple(document["components"]["schemas"]["UseReport"]["properties"]["objective"]["enum"]) == NAMES


def test_the_guide_names_every_route(document: Any) -> None:
    """docs/daemon-api.md has each path that is published."""
    text = (DOCS / "daemon-api.md").read_text()

    assert [path for path in document["paths"] if path.replace("{number}", "ID") not in text] == []


NAMES_OF_PARAMETERS = st.sampled_from(
    ["workload", "workload", "objective", "device", "max_slowdown", "clocks_as_found", "count", "colour"]
)
VALUES = st.sampled_from(
    [
        "scan-lf:N=64",
        "scan-ks",
        "fft",
        "time",
        "energy",
        "cuda:0",
        "0.05",
        "nan",
        "true",
        "no",
        "-1",
        "1e400",
        "",
    ]
) | st.text(max_size=20)


@given(st.lists(st.tuples(NAMES_OF_PARAMETERS, VALUES), max_size=6))
def test_best_answers_as_the_framework_would(pairs: list[tuple[str, str]]) -> None:
    """Past the framework, queries are answered and refused as the published model would within it."""
    query = urlencode(pairs, errors="replace")

    served, wanted = (asyncio.run(answered(app, "/v1/best", query)) for app in (SERVED, REFERENCE))
    assert served[0]["status"] == wanted[0]["status"]
    assert json.loads(served[1]["body"]) == json.loads(wanted[1]["body"])


def reference() -> FastAPI:
    """``GET /v1/best`` as the framework alone would serve it."""
    app, service = FastAPI(), FakeService()
    answer_errors(app)

    @app.get("/v1/best")
    async def best(query: Annotated[BestQuery, Query()]) -> Response:
        return Response(service.best(query.question(), Peer(0, 1)).json, media_type="application/json")

    return app


REFERENCE = reference()
SERVED = interface(FakeService(), LimitsTable(), TuningTable())


def test_what_answers_stays_light() -> None:
    """Neither the server nor what answers imports what the daemon's process must not hold."""
    code = (
        "import sys, tuner.daemon.http.server; print(*sys.modules)\n"
        "import tuner.daemon.answers.answerer, tuner.kernel_files.catalog\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    server, answerer = (set(line.split()) for line in done.stdout.splitlines())
    parts = ("devices.choice", "devices.worker", "search.explaining", "search.request", "search.session")
    heavy = {"scipy", "cupy", *(f"tuner.{part}" for part in parts)}

    assert heavy.isdisjoint(answerer)
    assert (heavy | {"numpy", "httpx", "sqlite3"}).isdisjoint(server)
