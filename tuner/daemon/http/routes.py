"""The routes of the HTTP interface.

The OpenAPI document: ``python -m tuner.daemon.http.routes > docs/openapi.json``.
"""

import asyncio
import json
import logging
import sys
from typing import Annotated, Any, cast

from fastapi import FastAPI, Header, Path, Query, Request
from starlette.responses import Response

from tuner.daemon.api.archive_routes import add_archive
from tuner.daemon.api.endpoints import BEST_PATH, BestEndpoint, EventStream, event_text
from tuner.daemon.api.live_routes import add_live
from tuner.daemon.api.places import UserSlots
from tuner.daemon.api.responses import IN_MEMORY, STREAM, TEXT, caller_of_request, errors, json_response
from tuner.daemon.http.models import (
    After,
    BestAnswer,
    BestQuery,
    EventsQuery,
    Id,
    JobAnswer,
    JobsAnswer,
    JobsQuery,
    Submission,
    UseReports,
)
from tuner.daemon.http.responses import answer_errors, error_answer
from tuner.daemon.interface import ServiceInterface
from tuner.daemon.jobs.documents import job_document, jobs_document
from tuner.daemon.settings.tables import LimitsTable, TuningTable
from tuner.model.jobs import JobRecord, JobState

VERSION = "1"
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_LOG = logging.getLogger(__name__)

Number = Annotated[Id, Path(description="Of the job.")]
LastEventId = Annotated[After | None, Header(description="As browsers send it; counts before `after`.")]


def interface(
    service: ServiceInterface, limits: LimitsTable, tuning: TuningTable, closing: asyncio.Event | None = None
) -> BestEndpoint:
    """The whole HTTP interface; arguments as of ``application``."""
    return BestEndpoint(service, application(service, limits, tuning, closing))


def application(
    service: ServiceInterface, limits: LimitsTable, tuning: TuningTable, closing: asyncio.Event | None = None
) -> FastAPI:
    """The framework's part of the interface: all routes but ``GET /v1/best``, and the document of all.

    Args:
        service: what answers.
        limits: how many clients may follow jobs at a time.
        tuning: objective, policy and clocks of a submission that names none.
        closing: set when the daemon stops; streams end then.
    """
    app = FastAPI(
        title="tuner",
        version=VERSION,
        description="Tunes GPU kernels that run together, and tells the best configurations known.",
        docs_url=None,  # pages that load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        responses=errors(),
    )
    answer_errors(app)
    _document_best(app)
    _answers(app, service)
    _queue(app, service, tuning)
    _changes(app, service)
    add_archive(app, service)
    slots, closing = UserSlots(limits.followers), closing or asyncio.Event()
    _streams(app, service, slots, closing)
    add_live(app, service, slots, closing)
    return app


def _document_best(app: FastAPI) -> None:
    """Put ``GET /v1/best`` into the OpenAPI document; ``BestEndpoint`` serves it, by the same model."""

    @app.get(BEST_PATH, response_model=BestAnswer, summary="The best configurations known now")
    async def best(query: Annotated[BestQuery, Query()]) -> Response:
        raise AssertionError(f"{BEST_PATH} is served before the framework: {query}")


def _answers(app: FastAPI, service: ServiceInterface) -> None:
    """Uses of answers, status and metrics."""

    @app.post(
        "/v1/uses",
        status_code=204,
        response_class=Response,
        responses={202: IN_MEMORY, 204: {"description": "Counted, and stored within a second."}},
        summary="Count uses of answers",
    )
    async def used(uses: UseReports, request: Request) -> Response:
        stored = await service.used([use.question() for use in uses.uses], caller_of_request(request).peer)
        return Response(status_code=204) if stored else json_response({"stored": False}, 202)

    @app.get("/v1/status", response_model=dict[str, Any], summary="State of daemon, devices and queue")
    async def status() -> Response:
        return json_response(await service.status())

    @app.get("/metrics", response_class=Response, responses={200: TEXT}, summary="Figures for Prometheus")
    async def metrics() -> Response:
        return Response(service.metrics(), headers={"content-type": _PROMETHEUS})


def _queue(app: FastAPI, service: ServiceInterface, tuning: TuningTable) -> None:
    """Submitting and listing jobs."""

    @app.post(
        "/v1/jobs", status_code=201, response_model=JobAnswer, responses=errors(409), summary="Queue a job"
    )
    async def submit(submission: Submission, request: Request) -> Response:
        caller = caller_of_request(request)
        order = submission.order(objective=tuning.objective, policy=tuning.policy, clocks=tuning.clocks)
        job = await service.submit(order, caller.peer, submission.priority)
        _LOG.info("job %d submitted by %s: %s", job.id, caller, " ".join(order.workloads))
        return json_response(job_document(job), 201)

    @app.get("/v1/jobs", response_model=JobsAnswer, summary="Jobs, newest first")
    async def jobs(query: Annotated[JobsQuery, Query()]) -> Response:
        states = [JobState(state) for state in query.state]
        return json_response(jobs_document(await service.jobs(states, query.limit, query.before)))

    @app.get("/v1/jobs/{number}", response_model=JobAnswer, responses=errors(404), summary="One job")
    async def job(number: Number) -> Response:
        return json_response(job_document(await service.job(number)))


def _changes(app: FastAPI, service: ServiceInterface) -> None:
    """Cancelling, pausing and resuming jobs."""

    def done(request: Request, word: str, job: JobRecord) -> Response:
        _LOG.info("job %d %s by %s: now %s", job.id, word, caller_of_request(request), job.state.value)
        return json_response(job_document(job))

    @app.post(
        "/v1/jobs/{number}/cancel",
        response_model=JobAnswer,
        responses=errors(404, 409),
        summary="End a job; what it stored stays",
    )
    async def cancel(number: Number, request: Request) -> Response:
        return done(request, "cancelled", await service.cancel(number, caller_of_request(request).peer))

    @app.post(
        "/v1/jobs/{number}/pause",
        response_model=JobAnswer,
        responses=errors(404, 409),
        summary="Stop a job until it is resumed",
    )
    async def pause(number: Number, request: Request) -> Response:
        return done(request, "paused", await service.pause(number, caller_of_request(request).peer))

    @app.post(
        "/v1/jobs/{number}/resume",
        response_model=JobAnswer,
        responses=errors(404, 409),
        summary="Queue a paused job again",
    )
    async def resume(number: Number, request: Request) -> Response:
        return done(request, "resumed", await service.resume(number, caller_of_request(request).peer))


def _streams(app: FastAPI, service: ServiceInterface, slots: UserSlots, closing: asyncio.Event) -> None:
    """Events of jobs."""

    @app.get(
        "/v1/jobs/{number}/events",
        response_class=Response,
        responses={**errors(404), 200: STREAM},
        summary="Follow a job to its end",
    )
    async def follow(
        number: Number,
        query: Annotated[EventsQuery, Query()],
        request: Request,
        last_event_id: LastEventId = None,
    ) -> Response:
        await service.job(number)  # one that is not there is told before the stream begins
        after = last_event_id if last_event_id is not None else query.after or 0
        events = service.events(number, after)
        user = caller_of_request(request).peer.uid
        if not slots.take(user):
            return error_answer(429, "too many follow jobs already", headers={"retry-after": "1"})
        return EventStream(events, closing, lambda: slots.leave(user), event_text)


def published() -> str:
    """The OpenAPI document as it is committed."""
    app = application(cast("ServiceInterface", None), LimitsTable(), TuningTable())
    return json.dumps(app.openapi(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(published())
