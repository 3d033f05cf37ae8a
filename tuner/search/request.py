"""Requests as users make them: for a search, and for stored answers."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuner.database.ranking import AnswerQuery
from tuner.devices.choice import identify
from tuner.devices.gpu_models import limits_of
from tuner.devices.kinds import PREFIX
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model import registry
from tuner.model.errors import InputError
from tuner.model.objective import described, normalised_scope
from tuner.model.options import OPTIONS, SearchOptions
from tuner.search.option_checks import check_options


@dataclass(frozen=True)
class SearchRequest(SearchOptions):
    """Workloads and options that the user requested.

    Attributes:
        workloads: e.g. ``("scan-lf:N=256", "fft:N=256")``; empty for those of the kernel files,
            else for ``DEFAULT_WORKLOADS`` of the catalogue.
        kernel_files: kernel files beside the catalogue.
    """

    workloads: Sequence[str] = ()
    kernel_files: Sequence[Path] = field(default=())

    def check(self) -> None:
        """Refuse what is wrong on every device, before one is opened.

        Raises:
            InputError: an option that cannot be; the message names it.
        """
        check_options({name: getattr(self, name) for name in OPTIONS}, lambda name: OPTIONS[name].flag)
        if self.patience is not None and not _takes_patience(self.policy):
            patient = ", ".join(name for name in registry.names("policy") if _takes_patience(name))
            raise InputError(f"--patience is no option of the policy {self.policy}; it is one of {patient}")
        if self.runs_per_day is None and self.pay_back_days != SearchOptions.pay_back_days:
            raise InputError(
                f"--pay-back-days {self.pay_back_days:g}: needs --runs-per-day; give both, or neither"
            )
        if self.runs_per_day is not None and self.runs_per_day * self.pay_back_days == 0.0:
            raise InputError(
                f"--runs-per-day {self.runs_per_day:g} for --pay-back-days {self.pay_back_days:g}:"
                " the product is too small for a number; choose more runs, such as 1000"
            )

    @property
    def stored_objective(self) -> str:
        """The objective as stored answers name it, with scope, timing and slowdown limit."""
        return described(self.objective, self.max_slowdown, normalised_scope(self.scope), self.timing)

    @property
    def policy_options(self) -> dict[str, int]:
        """Options that are handed to the policy."""
        return {} if self.patience is None else {"patience": self.patience}

    @property
    def search_settings(self) -> dict[str, float]:
        """Settings that limit the length of a policy's search, as far as they were chosen."""
        if self.runs_per_day is None:
            return dict(self.policy_options)
        return self.policy_options | {"runs": self.runs_per_day * self.pay_back_days}


def _takes_patience(policy: str) -> bool:
    return "patience" in inspect.signature(registry.load("policy", policy)).parameters


def answer_query(
    catalog: Catalog,
    specs: Sequence[str],
    device_spec: str | None,
    *,
    objective: str = "",
    clocks_as_found: bool = False,
    any_timing: bool = False,
) -> AnswerQuery:
    """Return the query for stored answers to workloads, with the present kernels and device.

    Args:
        catalog: the kernels.
        specs: the workloads.
        device_spec: as `worker.open_device` takes it.
        objective: as stored; empty for any.
        clocks_as_found: no clock and no power limit may be set.
        any_timing: see ``AnswerQuery``.

    Raises:
        InputError: an unknown kernel, size or device, or a recording that cannot be used.
        DeviceUnavailableError: the device cannot be opened.
    """
    kernels: dict[str, KernelFile] = {}
    if device_spec is not None and device_spec.startswith(PREFIX):
        from tuner.devices.replay import ReplayDevice  # noqa: PLC0415 - most runs replay nothing
        from tuner.search import replaying  # noqa: PLC0415 - same

        device = ReplayDevice(device_spec, specs)
        recorded = replaying.pairs(device.space)
        sources = {kernel.name: kernel.fingerprint for kernel, _ in recorded}
        workloads, identity = [workload for _, workload in recorded], device.identity
    else:
        workloads = catalog.workloads(specs)
        kernels = {workload.kernel: catalog.kernel(workload.kernel) for workload in workloads}
        sources = {name: kernel.fingerprint for name, kernel in kernels.items()}
        identity = identify(device_spec)
    return AnswerQuery(
        workloads=tuple({str(workload): workload for workload in workloads}.values()),
        kernels=kernels,
        sources=sources,
        objective=objective,
        device=identity,
        limits=limits_of(identity),
        clocks_as_found=clocks_as_found,
        any_timing=any_timing,
    )
