"""What stands behind ``use:``: options of the compiler, else the command that writes a header."""

import shlex

from tuner.exchange.build import Build, build_of
from tuner.model.errors import InputError
from tuner.model.run_document import TrialDocument, WorkloadDocument


def pasted(build: Build) -> str:
    """The options of nvcc as a shell reads them.

    Raises:
        InputError: one is not safe in a command.
    """
    return shlex.join(build.words())


def use_of(
    best: TrialDocument, workload: WorkloadDocument, run: int | None, named: str = ""
) -> tuple[str, list[str]]:
    """What builds the answer of a workload.

    Args:
        best: the answer.
        workload: one of its workloads.
        run: number of the run; None of one that is not stored.
        named: what a command must say to read the run's database.

    Returns:
        Options or a command for a shell, empty where the compiler is told nothing; and lines about the source
        and the launches, for people.
    """
    build = build_of(best["configurations"][workload["name"]], workload.get("expanded"))
    lines = []
    try:
        use = pasted(build)
    except InputError as error:
        use = "" if run is None else header_command(run, named)
        lines = [f"no options: {error}"] if run is None else []
    if build.macros and build.source is not None:
        lines.append(f"source: what tuner kernels expand {shlex.quote(build.source)} writes")
    if launches := build.launches():
        lines.append(f"launch: {'; '.join(launches)}")
    return use, lines


def header_command(run: int, named: str = "") -> str:
    """The command that writes the answer of a stored run as a header, which takes any value and workloads."""
    return f"tuner export {run} --format header{named} --output tuned.h"
