"""What a daemon tells a terminal view: events of two devices, three jobs and a search; no daemon is there."""

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import scripted_daemon

from tuner.cli.top.live_state import LiveState
from tuner.client import Event

BEGUN = datetime(2026, 11, 21, 22, 0, tzinfo=timezone.utc)
NAME = "scan-lf:N=1024"


def event(kind: str, job: int | None = None, /, **data: Any) -> Event:
    return Event(kind, BEGUN.isoformat(), job, data)


def device(spec: str = "sim:jetson-tx1", **fields: Any) -> Event:
    modelled = spec.startswith("sim:")
    document = {
        "spec": spec,
        "name": "NVIDIA Jetson TX1 (modelled)" if modelled else "NVIDIA H200",
        "driver": "" if modelled else "580.159",
        "modelled": modelled,
        "job": None,
        "holds": "",
        "spent_today_s": 12.0,
        "spent_today_j": 41.7,
        "budget_s": 3600.0,
        "budget_j": None,
        **fields,
    }
    return event("device", **document)


def power(spec: str, second: float, watts: float | None, **fields: Any) -> Event:
    sample = {
        "device": spec,
        "at": (BEGUN + timedelta(seconds=second)).isoformat(timespec="milliseconds"),
        "watts": watts,
        "clock_mhz": None,
        "throttle_reasons": [],
        "temperature_c": None,
        "others": 0,
        "load_percent": None,
        "reading": "",
        "failure": "",
        "modelled": spec.startswith("sim:"),
        **fields,
    }
    return event("power", **sample)


def job(number: int, **fields: Any) -> Event:
    return event("job", number, **scripted_daemon.job(number, **{"workloads": [NAME], **fields}))


def trial(number: int, of_job: int = 1, **fields: Any) -> Event:
    data = {
        "run": of_job,
        "number": number,
        "trial": number,
        "repeat": 0,
        "confirming": False,
        "cost": 0.2 - number / 1000,
        "unit": "J",
        "joules": 3.5 * number,
        "expected": 20,
        "status": "ok",
        "detail": "",
        "configurations": {NAME: {"P": 4, "L": 64 * number, "shuffle": True, "store": "direct"}},
        "clock_set_mhz": None,
        "power_limit_w": None,
        "time_s": 0.026838 + number / 10_000,
        "time_s_uncertainty": 0.000046,
        "energy_j": 0.2 - number / 1000,
        "energy_j_uncertainty": 0.000396,
        "watts": 6.84,
        "clock_mhz": 998.4,
        "modelled": True,
        "flags": [],
        **fields,
    }
    return event("trial", of_job, **data)


def served_answer(**fields: Any) -> Any:
    return {
        "run": 7,
        "at": "2026-11-21T21:00:00+00:00",
        "device": "cuda:0",
        "modelled": False,
        "objective": "energy",
        "workloads": {"fft:N=512": {"batch": 4096, "configuration": {"P": 16, "shuffle": False}}},
        "clock_mhz": 1200,
        "power_limit_w": None,
        "stale": [],
        "best": {
            "time_s": 0.00123,
            "time_s_uncertainty": 0.000002,
            "energy_j": 0.5,
            "energy_j_uncertainty": 0.001,
        },
        "against_default": {
            "slowdown": 0.02,
            "slowdown_interval": 0.004,
            "energy_saving": 0.31,
            "energy_saving_interval": 0.006,
        },
        "saving": {"energy_j": 0.2, "energy_j_interval": 0.004},
        **fields,
    }


def told() -> Iterator[Event]:
    """A daemon at work: one job runs, one waits, one has failed."""
    yield event("begin", instance="a", resumed=False)
    yield job(1, state="running", run=1)
    yield job(2, state="queued", reason="the GPU is used by others", device="cuda:0", objective="time")
    yield job(3, state="failed", reason="four crashes", run=2, ended_at=BEGUN.isoformat())
    for number in range(1, 13):
        yield trial(number)
    yield trial(13, status="timeout", detail="no answer in 60 s", cost=None)
    yield event("present")
    yield event("status", version="0.4.0", queue={"running": 1, "queued": 1, "paused": 0}, troubles=[])
    yield device("cuda:0", holds="2 processes of others compute on it")
    yield device(job=1)
    for second in range(60):
        yield power(
            *("cuda:0", second, 120.0 + 5 * second),
            clock_mhz=1980.0,
            temperature_c=61.0,
            load_percent=97.0,
            others=2,
            throttle_reasons=["power cap"],
        )
        yield power("sim:jetson-tx1", second, 6.84, clock_mhz=998.4, reading="trial")


def state_of(*events: Event) -> LiveState:
    """What a view knows after these events."""
    state = LiveState()
    for one in events:
        state.take(one)
    return state
