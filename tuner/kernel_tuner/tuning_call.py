"""A call of ``tune_kernel``, and the same in the words of a run."""

from dataclasses import dataclass
from typing import Any

from tuner.kernel_tuner.answers import Judge
from tuner.kernel_tuner.kernel import KernelCall
from tuner.kernel_tuner.objectives import Aim, Metrics
from tuner.kernel_tuner.strategies import MappedSearch
from tuner.search.request import Request

_WINDOW_S = 0.1  # of every trial where the best is judged by a metric: none may be cut short for its time


@dataclass(frozen=True)
class TuningCall:
    """A call of ``tune_kernel``, read and checked.

    Attributes:
        kernel: what it says of the kernel.
        search: how to search.
        aim: what is best.
        judge: which answers are right; None where nobody says.
        metrics: computed from every result.
        device_spec: see ``open_device``.
        cache: name of a cache file, or None.
        quiet: print nothing.
        verbose: print what was left out, too.
    """

    kernel: KernelCall
    search: MappedSearch
    aim: Aim
    judge: Judge | None
    metrics: Metrics | None
    device_spec: str | None
    cache: Any = None
    quiet: bool = False
    verbose: bool = False

    def request(self, workload: str, budget: int | None) -> Request:
        """The same in the words of a run.

        A search for energy spares trials their joules that cannot be the best; metrics and cache files need
        those, and so does a window that is as long as the sensor needs.
        """
        all_joules = self.aim.objective == "time" or self.metrics or self.cache
        return Request(
            workloads=(workload,),
            objective=self.aim.objective,
            policy=self.search.policy,
            budget=budget,
            time_limit_s=self.search.time_limit_s,
            window_s=_WINDOW_S if self.aim.is_metric and not self.aim.joules else None,
            seed=self.search.seed,
            joules=self.aim.joules and bool(all_joules),
        )
