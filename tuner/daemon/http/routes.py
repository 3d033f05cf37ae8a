"""The routes of the HTTP interface.

The OpenAPI document: ``python -m tuner.daemon.http.routes > docs/openapi.json``.
"""

import asyncio
import json
import logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast

from fastapi import FastAPI, Header, Path, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from tuner.daemon.http.access import Caller
from tuner.daemon.http.api_models import (
    After,
    AnswersAnswer,
    AnswersQuery,
    BestAnswer,
    BestQuery,
    ErrorAnswer,
    EventsQuery,
    HistoryAnswer,
    Id,
    JobAnswer,
    JobsAnswer,
    JobsQuery,
    RequestModel,
    RunsAnswer,
    RunsQuery,
    SamplesAnswer,
    Submission,
    TrialsAnswer,
    TrialsQuery,
    UseReports,
)
from tuner.daemon.http.client_connection import UserSlots
from tuner.daemon.http.responses import (
    BEST_PATH,
    BestEndpoint,
    EventStream,
    answer_errors,
    error_answer,
    event_text,
)
from tuner.daemon.interface import encode
from tuner.daemon.settings import LimitsTable, TuningTable
from tuner.model.jobs import Job, JobState

if TYPE_CHECKING:
    from tuner.daemon.service import Service


# --- Responses of the routes, and how the OpenAPI document describes them.

STREAM: dict[str, Any] = {
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
TEXT: dict[str, Any] = {
    "description": "What Prometheus scrapes.",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}
ALIVE: dict[str, Any] = {**TEXT, "description": "`ok`."}
IN_MEMORY = {
    "description": "Counted in memory; stored as soon as the database can be used again.",
    "content": {"application/json": {"schema": {"type": "object"}}},
}
_MEANINGS: Mapping[int, str] = {
    400: "What was asked for is wrong.",
    401: "Over TCP: no token, or a wrong one.",
    403: "This user may not ask, or not change this job, or a web page asks.",
    404: "No such job or run.",
    409: "It cannot be done now.",
    413: "The body is too large.",
    422: "A parameter or the body is not as documented.",
    429: "Too many requests or followers; see Retry-After.",
    503: "The database cannot be used just now; see Retry-After.",
}
_ANY_TIME = (400, 401, 403, 413, 422, 429, 503)


def errors(*more: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a route: those of all routes, and further statuses."""
    return {
        status: {"model": ErrorAnswer, "description": _MEANINGS[status]}
        for status in sorted({*_ANY_TIME, *more})
    }


def json_response(document: object, status: int = 200) -> Response:
    """A document as the body of a response."""
    return Response(encode(document), status, media_type="application/json")


def caller_of_request(request: Request) -> Caller:
    """Return the caller of a request."""
    caller: Caller = request.scope["state"]["caller"]
    return caller


# --- The routes to stored runs and answers.

RunNumber = Annotated[Id, Path(description="Of the run.")]


def add_archive(app: FastAPI, service: "Service") -> None:
    """Add the routes to an application."""
    _runs(app, service)

    @app.get("/v1/answers", response_model=AnswersAnswer, summary="Answers that are served")
    async def answers(query: Annotated[AnswersQuery, Query()]) -> Response:
        return json_response({"answers": service.archive.answers(stale=query.stale)})

    @app.get("/v1/history", response_model=HistoryAnswer, summary="Answers over time, with their samples")
    async def history(query: Annotated[RunsQuery, Query()]) -> Response:
        rows = await service.archive.history(query.workload, query.limit, query.before)
        return json_response({"history": rows})


def _runs(app: FastAPI, service: "Service") -> None:
    @app.get("/v1/runs", response_model=RunsAnswer, summary="Runs, newest first")
    async def runs(query: Annotated[RunsQuery, Query()]) -> Response:
        rows = await service.archive.runs(query.workload, query.limit, query.before)
        return json_response({"runs": rows})

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


# --- The routes to what happens now: the stream of everything, and the power of the devices.

_MOST_LETTERS = 40  # of a place in the feed
_PLACE = r"^([0-9a-f]{8}-[0-9]{1,19})?$"
PlaceHeader = Annotated[
    str,
    Header(
        max_length=_MOST_LETTERS, pattern=_PLACE, description="As browsers send it; counts before `after`."
    ),
]
PlaceText = Annotated[str, Field(max_length=_MOST_LETTERS, pattern=_PLACE)]


class FeedQuery(RequestModel):
    """Query parameters of the event feed of jobs and devices."""

    after: PlaceText = Field(default="", description="Go on after this `id:`; empty for the beginning.")
    power: bool = Field(default=False, description="Sample the power of the devices, and tell of it.")


class PowerSample(BaseModel):
    """Power of a device at a time; null for what nobody tells."""

    device: str
    at: str = Field(description="UTC, ISO 8601.")
    watts: float | None = Field(description="Mean since the sample before, where the sensor can tell.")
    clock_mhz: float | None
    throttle_reasons: list[str]
    temperature_c: float | None
    processes: int | None = Field(description="That compute on it.")
    others: int | None = Field(description="Of them, those that are no job of this daemon.")
    load_percent: float | None = Field(description="Share of the last second in which something ran.")
    reading: str = Field(description="The sensor; `trial` for the mean power of the last trial.")
    scope: str = Field(description="What the sensor sees.")
    failure: str = Field(description="Why it cannot be read; empty where it can.")
    modelled: bool


class DevicePower(BaseModel):
    """The newest samples of a device, oldest first."""

    device: str
    samples: list[PowerSample]


class PowerAnswer(BaseModel):
    """Power of the devices now."""

    interval_s: float = Field(description="Between samples, while somebody watches.")
    devices: list[DevicePower]


def add_live(app: FastAPI, service: "Service", slots: UserSlots, closing: asyncio.Event) -> None:
    """Add the routes to an application.

    Args:
        app: the application.
        service: what answers.
        slots: of those who follow.
        closing: set when the daemon stops; streams end then.
    """

    @app.get("/v1/power", response_model=PowerAnswer, summary="Power of the devices now")
    async def power() -> Response:
        return json_response(await service.power())

    @app.get("/v1/events", response_class=Response, responses={200: STREAM}, summary="Follow everything")
    async def follow(
        query: Annotated[FeedQuery, Query()], request: Request, last_event_id: PlaceHeader = ""
    ) -> Response:
        user = caller_of_request(request).peer.user
        if not slots.take(user):
            return error_answer(429, "too many follow already", headers={"retry-after": "1"})
        events = service.follow(last_event_id or query.after, power=query.power)
        return EventStream(events, closing, lambda: slots.leave(user), bytes)  # they are text already


# --- The application: the routes to jobs, uses, status and metrics, and the OpenAPI document.

VERSION = "1"
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_LOG = logging.getLogger(__name__)

Number = Annotated[Id, Path(description="Of the job.")]
LastEventId = Annotated[After | None, Header(description="As browsers send it; counts before `after`.")]


def interface(
    service: "Service", limits: LimitsTable, tuning: TuningTable, closing: asyncio.Event | None = None
) -> BestEndpoint:
    """The whole HTTP interface; arguments as of ``application``."""
    return BestEndpoint(service, application(service, limits, tuning, closing))


def application(
    service: "Service", limits: LimitsTable, tuning: TuningTable, closing: asyncio.Event | None = None
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


def _answers(app: FastAPI, service: "Service") -> None:
    """Uses of answers, status, health and metrics."""

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

    @app.get("/healthz", response_class=Response, responses={200: ALIVE}, summary="The process answers")
    async def alive() -> Response:
        return Response("ok\n", media_type="text/plain")

    @app.get(
        "/readyz",
        response_class=Response,
        responses={200: ALIVE},
        summary="The database is sound, and a device is known",
    )
    async def ready() -> Response:
        waits = service.not_ready()
        return error_answer(503, "; ".join(waits), kind="not-ready") if waits else await alive()

    @app.get("/metrics", response_class=Response, responses={200: TEXT}, summary="Figures for Prometheus")
    async def metrics() -> Response:
        return Response(service.metrics(), headers={"content-type": _PROMETHEUS})


def _queue(app: FastAPI, service: "Service", tuning: TuningTable) -> None:
    """Submitting and listing jobs."""

    @app.post(
        "/v1/jobs", status_code=201, response_model=JobAnswer, responses=errors(409), summary="Queue a job"
    )
    async def submit(submission: Submission, request: Request) -> Response:
        caller = caller_of_request(request)
        order = submission.order(objective=tuning.objective, policy=tuning.policy, clocks=tuning.clocks)
        job = await service.submit(order, caller.peer, submission.priority)
        _LOG.info("job %d submitted by %s: %s", job.id, caller, " ".join(order.workloads))
        return json_response(vars(job), 201)

    @app.get("/v1/jobs", response_model=JobsAnswer, summary="Jobs, newest first")
    async def jobs(query: Annotated[JobsQuery, Query()]) -> Response:
        states = [JobState(state) for state in query.state]
        listed = await service.jobs(states, query.limit, query.before)
        return json_response({"jobs": [vars(job) for job in listed]})

    @app.get("/v1/jobs/{number}", response_model=JobAnswer, responses=errors(404), summary="One job")
    async def job(number: Number) -> Response:
        return json_response(vars(await service.job(number)))


def _changes(app: FastAPI, service: "Service") -> None:
    """Cancelling, pausing and resuming jobs."""

    def done(request: Request, word: str, job: Job) -> Response:
        _LOG.info("job %d %s by %s: now %s", job.id, word, caller_of_request(request), job.state)
        return json_response(vars(job))

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


def _streams(app: FastAPI, service: "Service", slots: UserSlots, closing: asyncio.Event) -> None:
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
        user = caller_of_request(request).peer.user
        if not slots.take(user):
            return error_answer(429, "too many follow jobs already", headers={"retry-after": "1"})
        return EventStream(events, closing, lambda: slots.leave(user), event_text)


def published() -> str:
    """The OpenAPI document as it is committed."""
    app = application(cast("Service", None), LimitsTable(), TuningTable())
    return json.dumps(app.openapi(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(published())
