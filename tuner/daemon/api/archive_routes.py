"""The routes to what is stored: runs, their trials and samples, answers and their history."""

from typing import Annotated, Any

from fastapi import FastAPI, Path, Query
from starlette.responses import Response

from tuner.daemon.api.archive_models import (
    AnswersAnswer,
    AnswersQuery,
    HistoryAnswer,
    RunsAnswer,
    RunsQuery,
    SamplesAnswer,
    TrialsAnswer,
    TrialsQuery,
)
from tuner.daemon.api.responses import errors, json_response
from tuner.daemon.http.models import Id
from tuner.daemon.interface import ServiceInterface

RunNumber = Annotated[Id, Path(description="Of the run.")]


def add_archive(app: FastAPI, service: ServiceInterface) -> None:
    """Add the routes to an application."""
    _runs(app, service)

    @app.get("/v1/answers", response_model=AnswersAnswer, summary="Answers that are served")
    async def answers(query: Annotated[AnswersQuery, Query()]) -> Response:
        return json_response({"answers": service.archive.answers(stale=query.stale)})

    @app.get("/v1/history", response_model=HistoryAnswer, summary="Answers over time, with their samples")
    async def history(query: Annotated[RunsQuery, Query()]) -> Response:
        found = await service.archive.history(query.workload, query.limit, query.before)
        return json_response({"history": found})


def _runs(app: FastAPI, service: ServiceInterface) -> None:
    @app.get("/v1/runs", response_model=RunsAnswer, summary="Runs, newest first")
    async def runs(query: Annotated[RunsQuery, Query()]) -> Response:
        found = await service.archive.runs(query.workload, query.limit, query.before)
        return json_response({"runs": found})

    @app.get(
        "/v1/runs/{number}",
        response_model=dict[str, Any],
        responses=errors(404),
        summary="The document of a run, without its trials",
    )
    async def run(number: RunNumber) -> Response:
        return json_response(await service.archive.run(number))

    @app.get(
        "/v1/runs/{number}/trials",
        response_model=TrialsAnswer,
        responses=errors(404),
        summary="Trials of a run, in their order",
    )
    async def trials(number: RunNumber, query: Annotated[TrialsQuery, Query()]) -> Response:
        return json_response(await service.archive.trials(number, query.limit, query.after))

    @app.get(
        "/v1/runs/{number}/samples",
        response_model=SamplesAnswer,
        responses=errors(404),
        summary="What measuring the answer of a run again has given",
    )
    async def samples(number: RunNumber) -> Response:
        return json_response({"run": number, "samples": await service.archive.samples(number)})
