"""A stored trial measured again, without a search."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.measurement.paired import LEAST_REPEATS
from tuner.measurement.pooling import join
from tuner.model.errors import InputError
from tuner.model.objective import COVERAGE, Objective
from tuner.model.plan import Plan
from tuner.model.records import trial_from
from tuner.model.trial import Measurement, Trial
from tuner.search.request import Request, choose_run_clocks, resolve
from tuner.search.setup import MeasurementSetup

MOST_REPEATS = 5
"""Of a trial that is not known to the wanted precision by then: a drift that matters shows in fewer."""


def measure_again(
    setup: MeasurementSetup,
    request: Request,
    catalog: Catalog,
    record: Mapping[str, Any],
) -> Measurement:
    """Measure a trial in several repeats, with idle power, and join them.

    Args:
        setup: opened for the request.
        request: its workloads, objective, precision and clocks.
        catalog: where its kernels are.
        record: the trial, as ``tuner.model.records.trial_record`` writes it.

    Raises:
        InputError: the trial is not of the request's workloads, or at a clock or power limit that may not
            be set.
        ClockError: clocks were asked for that cannot be set.
    """
    pairs, _ = resolve(catalog, request.workloads, setup.device)
    trial = trial_from(record, [str(workload) for _, workload in pairs])
    clocks_mhz = choose_run_clocks(request, setup.clocks, setup.no_clocks)
    if trial.clock_mhz is not None and trial.clock_mhz not in clocks_mhz:
        raise InputError(
            f"the sample is of {trial.clock_mhz} MHz, which may not be set under clocks {request.clocks!r}"
        )
    if trial.power_limit_w is not None:
        raise InputError(f"the sample is at a power limit of {trial.power_limit_w} W, which no job sets")
    plans = [
        kernel.plan(workload, configuration)
        for (kernel, workload), configuration in zip(pairs, trial.configurations, strict=True)
        if isinstance(kernel, KernelFile)
    ]
    if len(plans) < len(pairs):
        raise InputError(f"{setup.device.identity.spec}: a recording cannot be measured again")
    return _joined(setup, request, trial, plans)


def _joined(setup: MeasurementSetup, request: Request, trial: Trial, plans: list[Plan]) -> Measurement:
    objective = Objective(request.objective)
    repeats: list[Measurement] = []
    while len(repeats) < LEAST_REPEATS or (
        len(repeats) < MOST_REPEATS and not _known(join(repeats), objective, request.energy_precision)
    ):
        repeats.append(setup.measurer.measure(trial, plans))
        if not repeats[-1].ok:
            return repeats[-1]
    setup.measurer.measure_idle(trial.clock_mhz)
    joined = setup.measurer.with_idle(join(repeats), trial.clock_mhz)
    return replace(joined, ended_s=setup.device.now_s())


def _known(measurement: Measurement, objective: Objective, precision: float) -> bool:
    """True where half of the cost's 95 % interval is no more than so much of it; or where it has no cost."""
    cost = objective.cost(measurement)
    return not math.isfinite(cost) or COVERAGE * objective.uncertainty(measurement) <= precision * cost
