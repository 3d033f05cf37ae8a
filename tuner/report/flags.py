"""What stands behind ``use:``: options of the compiler, else the command that writes a header."""

import shlex
from collections.abc import Mapping
from typing import Any

from tuner.errors import InputError
from tuner.exchange.build import Build, build_of


def pasted(build: Build) -> str:
    """The options of nvcc as a shell reads them.

    Raises:
        InputError: one is not safe in a command.
    """
    return shlex.join(build.words())


def use_of(document: Mapping[str, Any], workload: Mapping[str, Any], named: str = "") -> str:
    """What builds the answer of a workload; empty where nothing is tuned.

    Args:
        document: of the run, with an answer.
        workload: one of its workloads.
        named: what a command must say to read the run's database.
    """
    build = build_of(document["best"]["configurations"][workload["name"]], workload.get("expanded"))
    try:
        options = pasted(build)
    except InputError as error:
        run = document.get("run")
        options = f"(no options: {error})" if run is None else header_command(run, named)
    expands = f" with the source of tuner kernels expand {build.source}" if build.source and options else ""
    return "; ".join([*([f"{options}{expands}"] if options else []), *build.launches()])


def header_command(run: int, named: str = "") -> str:
    """The command that writes the answer of a stored run as a header, which takes any value and workloads."""
    return f"tuner export {run} --format header{named} --output tuned.h"
