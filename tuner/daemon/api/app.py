"""The routes: each checks what it is given, asks the desk, and writes down the answer.

The OpenAPI document: ``python -m tuner.daemon.api.app > docs/openapi.json``.
"""

import asyncio
import json
import logging
import sys
from collections.abc import Mapping
from typing import Annotated, Any, cast

from fastapi import FastAPI, Header, Path, Query, Request
from starlette.responses import Response

from tuner.daemon.api.callers import Caller, Places
from tuner.daemon.api.encoding import EventStream, encode
from tuner.daemon.api.errors import answer_errors, error_answer
from tuner.daemon.api.models import (
    After,
    BestAnswer,
    BestQuery,
    ErrorAnswer,
    EventsQuery,
    Id,
    JobAnswer,
    JobsAnswer,
    JobsQuery,
    Submission,
    Uses,
    job_document,
    jobs_document,
    reply_document,
)
from tuner.daemon.interface import ServiceInterface
from tuner.daemon.settings.tables import LimitsTable, TuningTable
from tuner.model.jobs import JobRecord, JobState

VERSION = "1"
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_STREAM: dict[str, Any] = {
    "description": "Events as they come: `id:` of stored ones, `event:` kind, `data:` JSON.",
    "content": {
        "text/event-stream": {
            "schema": {
                "type": "object",
                "properties": {name: {"type": "string"} for name in ("id", "event", "data")},
                "required": ["event", "data"],
            }
        }
    },
}
_TEXT: dict[str, Any] = {
    "description": "What Prometheus scrapes.",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}
_MEANINGS: Mapping[int, str] = {
    400: "What was asked for is wrong.",
    401: "Over TCP: no token, or a wrong one.",
    403: "This user may not ask, or over TCP: this Host may not.",
    404: "No such job.",
    409: "It cannot be done now.",
    413: "The body is too large.",
    422: "A parameter or the body is not as documented.",
    429: "Too many requests or followers; see Retry-After.",
    503: "The database cannot be used just now; see Retry-After.",
}
_ANY_TIME = (400, 401, 403, 413, 422, 429, 503)
_LOG = logging.getLogger(__name__)

Number = Annotated[Id, Path(description="Of the job.")]
LastEventId = Annotated[After | None, Header(description="As browsers send it; counts before `after`.")]


def _errors(*more: int) -> dict[int | str, dict[str, Any]]:
    return {
        status: {"model": ErrorAnswer, "description": _MEANINGS[status]}
        for status in sorted({*_ANY_TIME, *more})
    }


def application(
    desk: ServiceInterface, limits: LimitsTable, tuning: TuningTable, closing: asyncio.Event | None = None
) -> FastAPI:
    """The application over a desk.

    Args:
        desk: what answers.
        limits: how many may follow at a time.
        tuning: what a submission means that leaves out objective, policy or clocks.
        closing: set when the daemon stops; streams end then.
    """
    app = FastAPI(
        title="tuner",
        version=VERSION,
        description="Tunes GPU kernels that run together, and tells the best configurations known.",
        docs_url=None,  # pages that load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        responses=_errors(),
    )
    answer_errors(app)
    _answers(app, desk)
    _queue(app, desk, tuning)
    _changes(app, desk)
    _streams(app, desk, Places(limits.followers), closing or asyncio.Event())
    return app


def _json(document: object, status: int = 200) -> Response:
    return Response(encode(document), status, media_type="application/json")


def _caller(request: Request) -> Caller:
    caller: Caller = request.scope["state"]["caller"]
    return caller


def _answers(app: FastAPI, desk: ServiceInterface) -> None:
    """What is known: the best configurations, the state of the daemon, its figures."""

    @app.get("/v1/best", response_model=BestAnswer, summary="The best configurations known now")
    async def best(query: Annotated[BestQuery, Query()], request: Request) -> Response:
        # Documents the route; a server's requests take the shortcut.
        return _json(reply_document(desk.best(query.question(), _caller(request).peer)))

    @app.post("/v1/uses", status_code=204, response_class=Response, summary="Count uses of answers")
    async def used(uses: Uses, request: Request) -> Response:
        await desk.used([use.question() for use in uses.uses], _caller(request).peer)
        return Response(status_code=204)

    @app.get("/v1/status", response_model=dict[str, Any], summary="JobState of daemon, devices and queue")
    async def status() -> Response:
        return _json(await desk.status())

    @app.get("/metrics", response_class=Response, responses={200: _TEXT}, summary="Figures for Prometheus")
    async def metrics() -> Response:
        return Response(desk.metrics(), headers={"content-type": _PROMETHEUS})


def _queue(app: FastAPI, desk: ServiceInterface, tuning: TuningTable) -> None:
    """Jobs that are asked for, and those there are."""

    @app.post(
        "/v1/jobs", status_code=201, response_model=JobAnswer, responses=_errors(409), summary="Queue a job"
    )
    async def submit(submission: Submission, request: Request) -> Response:
        caller = _caller(request)
        order = submission.order(objective=tuning.objective, policy=tuning.policy, clocks=tuning.clocks)
        job = await desk.submit(order, caller.peer, submission.priority)
        _LOG.info("job %d submitted by %s: %s", job.id, caller, " ".join(order.workloads))
        return _json(job_document(job), 201)

    @app.get("/v1/jobs", response_model=JobsAnswer, summary="Jobs, newest first")
    async def jobs(query: Annotated[JobsQuery, Query()]) -> Response:
        states = [JobState(state) for state in query.state]
        return _json(jobs_document(await desk.jobs(states, query.limit, query.before)))

    @app.get("/v1/jobs/{number}", response_model=JobAnswer, responses=_errors(404), summary="One job")
    async def job(number: Number) -> Response:
        return _json(job_document(await desk.job(number)))


def _changes(app: FastAPI, desk: ServiceInterface) -> None:
    """What can be done to a job."""

    def done(request: Request, word: str, job: JobRecord) -> Response:
        _LOG.info("job %d %s by %s: now %s", job.id, word, _caller(request), job.state.value)
        return _json(job_document(job))

    @app.post(
        "/v1/jobs/{number}/cancel",
        response_model=JobAnswer,
        responses=_errors(404, 409),
        summary="End a job; what it stored stays",
    )
    async def cancel(number: Number, request: Request) -> Response:
        return done(request, "cancelled", await desk.cancel(number, _caller(request).peer))

    @app.post(
        "/v1/jobs/{number}/pause",
        response_model=JobAnswer,
        responses=_errors(404, 409),
        summary="Stop a job until it is resumed",
    )
    async def pause(number: Number, request: Request) -> Response:
        return done(request, "paused", await desk.pause(number, _caller(request).peer))

    @app.post(
        "/v1/jobs/{number}/resume",
        response_model=JobAnswer,
        responses=_errors(404, 409),
        summary="Queue a paused job again",
    )
    async def resume(number: Number, request: Request) -> Response:
        return done(request, "resumed", await desk.resume(number, _caller(request).peer))


def _streams(app: FastAPI, desk: ServiceInterface, places: Places, closing: asyncio.Event) -> None:
    """What happens to a job, as it happens."""

    @app.get(
        "/v1/jobs/{number}/events",
        response_class=Response,
        responses={**_errors(404), 200: _STREAM},
        summary="Follow a job to its end",
    )
    async def follow(
        number: Number,
        query: Annotated[EventsQuery, Query()],
        request: Request,
        last_event_id: LastEventId = None,
    ) -> Response:
        await desk.job(number)  # one that is not there is told before the stream begins
        after = last_event_id if last_event_id is not None else query.after or 0
        events = desk.events(number, after)
        user = _caller(request).peer.uid
        if not places.take(user):
            return error_answer(429, "too many follow jobs already", headers={"retry-after": "1"})
        return EventStream(events, closing, lambda: places.leave(user))


def published() -> str:
    """The document as it is committed; nobody is asked for it, so it needs no desk."""
    app = application(cast("ServiceInterface", None), LimitsTable(), TuningTable())
    return json.dumps(app.openapi(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(published())
