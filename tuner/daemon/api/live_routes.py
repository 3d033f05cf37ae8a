"""The routes to what happens now: the stream of everything, and the power of the devices."""

import asyncio
from typing import Annotated

from fastapi import FastAPI, Header, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from tuner.daemon.api.endpoints import EventStream, feed_text
from tuner.daemon.api.places import UserSlots
from tuner.daemon.api.responses import STREAM, caller_of_request, json_response
from tuner.daemon.http.models import RequestModel
from tuner.daemon.http.responses import error_answer
from tuner.daemon.interface import ServiceInterface

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
    """What is told beside jobs and devices."""

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


def add_live(app: FastAPI, service: ServiceInterface, slots: UserSlots, closing: asyncio.Event) -> None:
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
        user = caller_of_request(request).peer.uid
        if not slots.take(user):
            return error_answer(429, "too many follow already", headers={"retry-after": "1"})
        events = service.follow(last_event_id or query.after, power=query.power)
        return EventStream(events, closing, lambda: slots.leave(user), feed_text)
