"""A picture of a search: the cost of every trial, and the lowest so far."""

from typing import TYPE_CHECKING, Any

from tuner.model.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_MS, _MJ = 1e3, 1e3


def search_figure(result: Any) -> "Figure":  # noqa: ANN401 - a Result, which imports this
    """Time of every valid trial in the order of measuring, joules below where they were measured.

    Raises:
        InputError: Matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise InputError(f"plot: Matplotlib cannot be imported ({error}): pip install matplotlib") from error
    trials = [trial for trial in result.trials if trial.time_s is not None]
    with_joules = [trial for trial in trials if trial.energy_j is not None]
    label = " (modelled)" if result.modelled else ""
    figure = Figure(figsize=(7, 3 if not with_joules else 5), layout="constrained")
    axes = figure.subplots(2 if with_joules else 1, 1, sharex=True, squeeze=False)[:, 0]
    _cost(axes[0], [t.number for t in trials], [_MS * t.time_s for t in trials], f"time, ms{label}")
    if with_joules:
        numbers = [trial.number for trial in with_joules]
        _cost(axes[1], numbers, [_MJ * t.energy_j for t in with_joules], f"energy, mJ{label}")
        spread = [2 * _MJ * (t.energy_uncertainty_j or 0.0) for t in with_joules]
        joules = [_MJ * t.energy_j for t in with_joules]
        axes[1].errorbar(numbers, joules, yerr=spread, fmt="none", ecolor="0.6", lw=0.8)
    axes[-1].set_xlabel("trial")
    axes[0].set_title(" + ".join(result.workloads), fontsize="medium")
    return figure


def _cost(axes: Any, numbers: list[int], costs: list[float], title: str) -> None:  # noqa: ANN401 - untyped
    lowest: list[float] = []
    for cost in costs:
        lowest.append(min(cost, lowest[-1] if lowest else cost))
    axes.plot(numbers, costs, ".", color="0.5", label="trial")
    axes.step(numbers, lowest, where="post", color="tab:blue", label="lowest so far")
    axes.set_ylabel(title)
    axes.legend(fontsize="small")
