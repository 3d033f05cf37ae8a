"""Prints where an option is seen that was added to ``tuner/model/options.py`` alone."""

import json
import sys
from pathlib import Path
from typing import Any

import added_option  # noqa: F401 - first: it adds the option
from cli_process import SMALL, tuner
from pydantic import ValidationError

from tuner.daemon.http.api_models import Submission
from tuner.daemon.http.responses import worded
from tuner.daemon.http.routes import published
from tuner.daemon.jobs.specs import specs_of
from tuner.daemon.settings_file import load, schema
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import InputError
from tuner.model.jobs import JobSpec
from tuner.search import tuning
from tuner.search.job_messages import AttemptSpec
from tuner.search.job_process import request_of
from tuner.search.option_checks import check_options, job_options
from tuner.search.request import SearchRequest


def command_line(folder: Path) -> dict[str, Any]:
    """Help, a refusal, and the request that ``tuner run`` hands to the search."""
    requests = []

    def stop(_: Any, request: Any, *__: Any, **___: Any) -> None:
        requests.append(request)
        raise InputError("seen")

    tuning.tune = stop  # type: ignore[assignment]  # in this process only
    database = folder / "tuner.db"
    for words in ((), ("--passes", "7")):
        tuner("run", *SMALL, "--database", database, *words)
    return {
        "run --help": tuner("run", "--help").stdout,
        "submit --help": tuner("submit", "--help").stdout,
        "refusal": tuner("run", *SMALL, "--passes", "10").stderr,
        "requests": [request.passes for request in requests],
    }


def attempted(order: JobSpec) -> SearchRequest:
    """The request of an attempt at a job of the daemon."""
    return request_of(AttemptSpec(1, order, Path("tuner.db")))


def interface() -> dict[str, Any]:
    """The published interface, a refusal, and the request of the job that a client submits."""

    def submission(passes: int) -> Submission:
        return Submission.model_validate({"workloads": ["scan-lf:N=4"], "options": {"passes": passes}})

    order = submission(5).order(objective="energy", policy="auto", clocks="off")
    try:
        submission(0)
    except ValidationError as error:
        refusal = worded({**error.errors()[0], "loc": ("body", *error.errors()[0]["loc"])})
    return {
        "openapi": json.loads(published())["components"]["schemas"]["Options"]["properties"]["passes"],
        "refusal": refusal,
        "request": attempted(order).passes,  # type: ignore[attr-defined]  # the added field
    }


def settings(folder: Path) -> dict[str, Any]:
    """The schema of daemon.toml, a refusal, and the request of the job of a set."""
    path = folder / "daemon.toml"
    path.write_text("[tuning]\npasses = 0\n")
    try:
        load(path)
    except InputError as error:
        refusal = str(error)
    path.write_text("[tuning]\npasses = 4\n[[set]]\nname = 'a'\nworkloads = ['scan-lf:N=4']\n")
    read = load(path)
    (order,) = specs_of(read.set[0], read, Catalog.load(), ("sim:k40c",))
    return {
        "schema": schema()["$defs"]["TuningTable"]["properties"]["passes"],
        "refusal": refusal,
        "request": attempted(order).passes,  # type: ignore[attr-defined]  # the added field
    }


def check(value: int) -> str:
    """What the daemon says of a job before it queues it."""
    try:
        check_options(job_options(JobSpec(("scan-lf:N=4",), options={"passes": value})))
    except InputError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    place = Path(sys.argv[1])
    seen = {
        "command line": command_line(place),
        "interface": interface(),
        "settings": settings(place),
        "job": check(12),
    }
    sys.stdout.write(json.dumps(seen))
